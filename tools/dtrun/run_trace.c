/* The trace of a run (tools/trace.h): the last step as it was measured on every rank, and before
 * it what was predicted, given a machine. */
#include "tools/dtrun/run_trace.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "tools/run_report.h"
#include "tools/trace.h"

/* What rank 0 gets of a rank: its totals, of a stage then when its actions ran, then begin and end
 * of every span of every chunk. */
enum { STEP_S, COMPUTE_S, EXPOSED_S, N_TOTALS };
enum { PER_ACTION = sizeof(dtp_action_times) / sizeof(double) };

/* The stages of a run; table NULL: there are none. */
typedef struct traced {
    const dtp_program *program; /* of any chunk */
    const dtp_stage_table *table;
} traced;

static int64_t spans_of(const dtp_program *p)
{
    return (int64_t)(dtp_program_microbatches(p) - 1) * dtp_program_body(p) + p->n_instrs;
}

static int32_t stage_of(const traced *r, int32_t rank)
{
    return r->table == NULL ? 0 : rank / dtp_mesh_ranks(&r->program->mesh);
}

static int64_t n_numbers(const traced *r, int32_t rank)
{
    const int32_t s = stage_of(r, rank);
    if (r->table == NULL) {
        return N_TOTALS + 2 * spans_of(r->program);
    }
    int64_t n = N_TOTALS + (int64_t)PER_ACTION * r->table->n_actions[s];
    for (int32_t c = s; c < r->table->n_chunks; c += r->table->n_stages) {
        n += 2 * spans_of(r->program->chunks[c]);
    }
    return n;
}

/* Instructions [from, to) of microbatch j, as much later as `after_s` says. */
static void add_instrs(tool_trace *t, const dtp_span *spans, int32_t from, int32_t to, int32_t j,
                       double after_s)
{
    const dtp_program *p = t->program;
    for (int32_t i = from; i < to; i++) {
        const dtp_span *span = &spans[(int64_t)j * dtp_program_body(p) + i];
        const bool start = p->instrs[i].kind == DTP_INSTR_START;
        const tool_slice slice = {start ? TOOL_COMMUNICATION : TOOL_COMPUTE,
                                  i,
                                  j,
                                  after_s + span->begin_s,
                                  after_s + span->end_s,
                                  0};
        if (dtp_instr_runs_in(p, &p->instrs[i], j)) {
            tool_trace_slice(t, &slice);
        }
    }
}

/* Bytes that an action sends, and whether it waits for any. */
static int64_t action_sends(const traced *r, const dtp_stage_action *a, bool *waits)
{
    const dtp_stages *stages = r->program->graph->stages;
    int64_t bytes = 0;
    *waits = false;
    for (int32_t k = 0; k < stages->n_transfers; k++) {
        const dtp_transfer *x = &stages->transfers[k];
        const bool single = x->once || x->section >= DTP_SECTION_UPDATE;
        const int32_t reader = x->once ? DTP_SECTION_UPDATE + 1 : x->section + 1;
        const bool sends = x->from == a->chunk && x->section == a->section &&
                           (!x->once || a->microbatch + 1 == r->table->n_microbatches);
        bytes += sends ? dtp_transfer_bytes(r->program->chunks, x) : 0;
        *waits = *waits ||
                 (x->to == a->chunk && x->into < 0 && a->section == (single ? reader : x->section));
    }
    return bytes;
}

/* An action of a stage, and the instructions of its section. */
static void add_action(tool_trace *t, const traced *r, const dtp_stage_action *a,
                       const dtp_action_times *ran, const dtp_span *spans)
{
    const dtp_program *p = r->program->chunks[a->chunk];
    const int32_t from = dtp_section_begin(p, p->instrs, p->n_instrs, a->section);
    const int32_t to = dtp_section_begin(p, p->instrs, p->n_instrs, a->section + 1);
    bool waits;
    const int64_t bytes = action_sends(r, a, &waits);
    if (waits) {
        tool_trace_stage_slice(
            t, &(tool_stage_slice){TOOL_SECTIONS, "wait", a, ran->waits_s, ran->ready_s, 0, -1});
    }
    tool_trace_stage_slice(
        t, &(tool_stage_slice){TOOL_SECTIONS, "section", a, ran->begin_s, ran->end_s, 0, -1});
    if (bytes > 0) {
        tool_trace_stage_slice(
            t, &(tool_stage_slice){TOOL_SENDS, "send", a, ran->end_s, ran->sent_s, bytes, -1});
    }
    int32_t first = from;
    while (first < to && !dtp_instr_runs_in(p, &p->instrs[first], a->microbatch)) {
        first++;
    }
    if (tool_trace_enter(t, a) && first < to) {
        const int64_t at = (int64_t)a->microbatch * dtp_program_body(p) + first;
        add_instrs(t, spans, from, to, a->microbatch, ran->begin_s - spans[at].begin_s);
    }
}

static void add_stage(tool_trace *t, const traced *r, int32_t s, const double *numbers)
{
    const dtp_stage_table *table = r->table;
    const dtp_action_times *ran = (const dtp_action_times *)(const void *)numbers;
    const double *all = numbers + (ptrdiff_t)PER_ACTION * table->n_actions[s];
    tool_trace_thread(t, TOOL_SENDS, "sends");
    for (int32_t i = 0; i < table->n_actions[s]; i++) {
        const dtp_stage_action *a = &table->actions[s][i];
        const double *spans = all;
        for (int32_t c = s; c < a->chunk; c += table->n_stages) {
            spans += 2 * spans_of(r->program->chunks[c]);
        }
        add_action(t, r, a, &ran[i], (const dtp_span *)(const void *)spans);
    }
}

static void add_rank(tool_trace *t, const traced *r, int32_t rank, const double *numbers)
{
    const int32_t s = stage_of(r, rank);
    tool_totals totals = {.rank = rank,
                          .stage = r->table != NULL ? s : -1,
                          .step_time_s = numbers[STEP_S],
                          .compute_s = numbers[COMPUTE_S],
                          .comm_s = dtp_report_comm_s(r->program, numbers[EXPOSED_S]),
                          .exposed_comm_s = numbers[EXPOSED_S],
                          .host_s = (double)NAN,
                          .work_s = numbers[COMPUTE_S] + numbers[EXPOSED_S]};
    for (int32_t c = s; r->table != NULL && c < r->table->n_chunks; c += r->table->n_stages) {
        const double comm_s = dtp_report_comm_s(r->program->chunks[c], numbers[EXPOSED_S]);
        totals.comm_s = c == s || isnan(comm_s) ? comm_s : totals.comm_s;
    }
    tool_trace_process(t, &totals);
    if (r->table != NULL) {
        add_stage(t, r, s, numbers + N_TOTALS);
        return;
    }
    const dtp_program *p = r->program;
    const dtp_span *spans = (const dtp_span *)(const void *)(numbers + N_TOTALS);
    for (int32_t j = 0; j < dtp_program_microbatches(p); j++) {
        const bool last = j + 1 == dtp_program_microbatches(p);
        add_instrs(t, spans, 0, last ? p->n_instrs : dtp_program_body(p), j, 0.0);
    }
    tool_trace_process_end(t);
}

/* The numbers of every rank, one after the other, to rank 0, which has a trace. */
static dtp_status add_ranks(tool_trace *t, const traced *r, dtp_comm *comm, const double *own,
                            double *numbers, dtp_err *err)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        const int64_t n = n_numbers(r, rank);
        for (int64_t i = 0; i < n; i++) {
            numbers[i] = rank == comm->rank ? own[i] : 0;
        }
        DTP_TRY(dtp_comm_all_reduce(comm, DTP_REDUCE_SUM, DTP_F64, n, numbers, err));
        if (comm->rank == 0) {
            add_rank(t, r, rank, numbers);
        }
    }
    return DTP_OK;
}

static dtp_status gather(tool_trace *t, dtp_session *s, dtp_comm *comm, const dtp_step_result *last,
                         dtp_err *err)
{
    const dtp_stage_table *table;
    const dtp_action_times *ran = dtp_session_actions(s, &table);
    const traced r = {t->program, ran != NULL ? table : NULL};
    int64_t n = N_TOTALS;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        n = n_numbers(&r, rank) > n ? n_numbers(&r, rank) : n;
    }
    double *own = calloc((size_t)n, sizeof *own), *numbers = calloc((size_t)n, sizeof *numbers);
    dtp_status status = DTP_MEMORY(err, own, numbers);
    if (status == DTP_OK) {
        const int32_t stage = stage_of(&r, comm->rank);
        const int32_t n_actions = ran != NULL ? table->n_actions[stage] : 0;
        double *to = own + N_TOTALS;
        own[STEP_S] = last->times.total_s;
        own[COMPUTE_S] = last->times.compute_s;
        own[EXPOSED_S] = last->times.comm_s;
        if (n_actions > 0) {
            memcpy(to, ran, (size_t)n_actions * sizeof *ran);
            to += (ptrdiff_t)PER_ACTION * n_actions;
        }
        for (int32_t k = 0; k < (ran != NULL ? table->n_chunks / table->n_stages : 1); k++) {
            const dtp_span *spans;
            const int64_t n_spans = dtp_runner_spans(dtp_session_chunk_runner(s, k), &spans);
            memcpy(to, spans, (size_t)n_spans * sizeof *spans);
            to += 2 * n_spans;
        }
        status = add_ranks(t, &r, comm, own, numbers, err);
    }
    free(own);
    free(numbers);
    return status;
}

dtp_status dtrun_write_trace(const char *path, dtp_session *s, dtp_comm *comm,
                             const dtp_step_result *last, const dtp_machine *machine,
                             const dtp_job *job, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(dtp_session_runner(s));
    const bool priced = machine != NULL && dtp_job_predicted(job) != NULL;
    const int32_t n_predicted = priced ? dtp_graph_stages(p->graph) : 0;
    tool_trace t;
    dtp_strbuf text = {0};
    dtp_status status = tool_trace_begin(&t, p, priced, comm->size + n_predicted, err);
    if (comm->rank == 0 && !priced) {
        (void)fprintf(stderr, "trace: the measured step alone; --machine adds the predicted one\n");
    }
    if (status == DTP_OK && comm->rank == 0 && priced) {
        status = tool_trace_predicted(&t, job, machine, err);
    }
    status = status == DTP_OK ? gather(&t, s, comm, last, err) : status;
    if (status == DTP_OK && comm->rank == 0) {
        status = tool_trace_end(&t, &text, err);
        status = status == DTP_OK ? tool_put_in(path, &text, err) : status;
    }
    dtp_strbuf_free(&text);
    tool_trace_free(&t);
    return status;
}
