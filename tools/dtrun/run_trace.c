/* The trace of a run (tools/trace.h): the last step as it was measured on every rank, and before
 * it what was predicted, given a machine. */
#include "tools/dtrun/run_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "tools/run_report.h"
#include "tools/trace.h"

/* What rank 0 gets of a rank: its totals, then begin and end of every span. */
enum { STEP_S, COMPUTE_S, EXPOSED_S, N_TOTALS };

static void add_rank(tool_trace *t, int32_t rank, const double *numbers)
{
    const dtp_program *p = t->program;
    const dtp_span *span = (const dtp_span *)(const void *)(numbers + N_TOTALS);
    const tool_totals totals = {rank,
                                numbers[STEP_S],
                                numbers[COMPUTE_S],
                                dtp_report_comm_s(p, numbers[EXPOSED_S]),
                                numbers[EXPOSED_S],
                                (double)NAN};
    tool_trace_process(t, &totals);
    for (int32_t j = 0; j < dtp_program_microbatches(p); j++) {
        const int32_t n = j + 1 < dtp_program_microbatches(p) ? dtp_program_body(p) : p->n_instrs;
        for (int32_t i = 0; i < n; i++, span++) {
            const bool start = p->instrs[i].kind == DTP_INSTR_START;
            const tool_slice slice = {
                start ? TOOL_COMMUNICATION : TOOL_COMPUTE, i, j, span->begin_s, span->end_s, 0};
            if (dtp_instr_runs_in(p, &p->instrs[i], j)) {
                tool_trace_slice(t, &slice);
            }
        }
    }
    tool_trace_process_end(t);
}

/* The numbers of every rank, one after the other, to rank 0, which has a trace. */
static dtp_status add_ranks(tool_trace *t, dtp_comm *comm, int64_t n, const double *own,
                            double *numbers, dtp_err *err)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        for (int64_t i = 0; i < n; i++) {
            numbers[i] = rank == comm->rank ? own[i] : 0;
        }
        DTP_TRY(dtp_comm_all_reduce(comm, DTP_REDUCE_SUM, DTP_F64, n, numbers, err));
        if (comm->rank == 0) {
            add_rank(t, rank, numbers);
        }
    }
    return DTP_OK;
}

static dtp_status gather(tool_trace *t, dtp_session *s, dtp_comm *comm, const dtp_step_result *last,
                         dtp_err *err)
{
    const dtp_span *spans;
    const int64_t n_spans = dtp_runner_spans(dtp_session_runner(s), &spans);
    const int64_t n = N_TOTALS + 2 * n_spans;
    double *own = calloc((size_t)n, sizeof *own), *numbers = calloc((size_t)n, sizeof *numbers);
    dtp_status status = DTP_MEMORY(err, own, numbers);
    if (status == DTP_OK) {
        own[STEP_S] = last->times.total_s;
        own[COMPUTE_S] = last->times.compute_s;
        own[EXPOSED_S] = last->times.comm_s;
        memcpy(own + N_TOTALS, spans, (size_t)n_spans * sizeof *spans);
        status = add_ranks(t, comm, n, own, numbers, err);
    }
    free(own);
    free(numbers);
    return status;
}

dtp_status dtrun_write_trace(const char *path, dtp_session *s, dtp_comm *comm,
                             const dtp_step_result *last, const dtp_machine *machine,
                             const dtp_prediction *predicted, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(dtp_session_runner(s));
    const bool priced = machine != NULL && predicted != NULL;
    tool_trace t;
    dtp_strbuf text = {0};
    dtp_status status = tool_trace_begin(&t, p, priced, comm->size + (priced ? 1 : 0), err);
    if (comm->rank == 0 && !priced) {
        (void)fprintf(stderr, "trace: the measured step alone; --machine adds the predicted one\n");
    }
    if (status == DTP_OK && comm->rank == 0 && priced) {
        status = tool_trace_predicted(&t, machine, predicted, err);
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
