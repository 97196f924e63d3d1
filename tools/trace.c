/* A step as a trace for Perfetto: slices, queues, arrows. */
#include "tools/trace.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/graph/ops/fused_ops.h"
#include "cost_models/comm_report.h"
#include "cost_models/price.h"
#include "cost_models/timeline.h"
#include "tools/report.h"

/* Picoseconds. Perfetto cuts microseconds to whole nanoseconds, after a product in floating point:
 * what ends where the next one begins, on a whole nanosecond, could end after it, and be dropped.
 */
static int64_t grid_ps(double s)
{
    const int64_t ps = s > 0 ? (int64_t)llround(1e12 * s) : 0;
    return ps > 0 && ps % 1000 == 0 ? ps + 1 : ps;
}

static double us_of(int64_t ps)
{
    return (double)ps / 1e6;
}

/* ---- events ---- */

static void add_event(tool_trace *t, const tool_field *fields)
{
    dtp_json_begin_line(&t->w, NULL);
    tool_write(&t->w, fields);
    dtp_json_end_object(&t->w);
}

/* Of the current process. Threads of different processes have different numbers: Perfetto names
 * threads by theirs alone. */
#define FIELDS_PLACE(t, queue)                                                                     \
    FIELD_INT("pid", (t)->n_processes),                                                            \
        FIELD_INT("tid", (t)->threads *(t)->n_processes + (int32_t)(queue))
#define FIELDS_TIME(begin, end)                                                                    \
    FIELD_REAL("ts", us_of(grid_ps(begin))), FIELD_REAL("dur", us_of(grid_ps(end) - grid_ps(begin)))
#define FIELD_US_IF(on, k, s) FIELD_REAL_IF(on, k, us_of((int64_t)llround(1e12 * (s))))

static void add_name(tool_trace *t, const char *what, int32_t queue, const char *name)
{
    add_event(t,
              TOOL_FIELDS(FIELD_TEXT("ph", "M"), FIELD_TEXT("name", what), FIELDS_PLACE(t, queue),
                          FIELD_OBJECT("args", FIELD_TEXT("name", name))));
}

void tool_trace_thread(tool_trace *t, int32_t queue, const char *name)
{
    add_name(t, "thread_name", queue, name);
}

void tool_trace_name(const dtp_program *p, const dtp_instr *instr, dtp_strbuf *out)
{
    if (instr->kind == DTP_INSTR_WAIT) {
        dtp_strbuf_addf(out, "wait %s", dtp_coll_name(instr->coll.kind));
    } else {
        dtp_strbuf_add(out, dtp_instr_name(instr));
    }
    if (instr->kind == DTP_INSTR_KERNEL) {
        dtp_fused_print(&(dtp_op_call){.op = instr->op, .attrs = instr->attrs, .n_in = instr->n_in},
                        out);
    }
    if (instr->node >= 0) {
        dtp_strbuf_addf(out, " %s", p->graph->nodes[instr->node].name);
    }
}

/* The layout of a tensor, "" of other values. */
static void layout_of(const dtp_program *p, dtp_value_id id, char out[DTP_LAYOUT_TEXT_BYTES])
{
    const dtp_value *v = &p->values[id];
    out[0] = '\0';
    if (v->kind != DTP_VALUE_STAGING && v->kind != DTP_VALUE_WORKSPACE) {
        dtp_layout_print(&v->layout, &p->mesh, &v->type, &p->dims, out);
    }
}

static int64_t bytes_of(const dtp_program *p, const dtp_instr *instr)
{
    int64_t bytes = 0;
    if (instr->kind == DTP_INSTR_START) {
        const dtp_coll *c = &instr->coll;
        const int32_t ranks = dtp_mesh_set_size(&p->mesh, c->set);
        return (int64_t)dtp_coll_full_bytes(c->kind, c->count, c->dtype, ranks);
    }
    for (int32_t k = 0; k < instr->n_in; k++) {
        bytes += p->values[instr->in[k]].bytes;
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        bytes += p->values[instr->out[k]].bytes;
    }
    return bytes;
}

void tool_trace_more(const dtp_program *p, const dtp_instr *instr, dtp_strbuf *out)
{
    char from[DTP_LAYOUT_TEXT_BYTES] = "", to[DTP_LAYOUT_TEXT_BYTES] = "";
    dtp_strbuf_addf(out, ", %s", dtp_byte_count((double)bytes_of(p, instr)).text);
    if (instr->kind == DTP_INSTR_START) {
        char set[DTP_MESH_TEXT_BYTES];
        dtp_mesh_set_print(&p->mesh, instr->coll.set, "+", set);
        dtp_strbuf_addf(out, " over %s", set);
    }
    if (instr->kind != DTP_INSTR_KERNEL && instr->n_in > 0) {
        layout_of(p, instr->in[0], from);
    }
    if (instr->n_out > 0) {
        layout_of(p, instr->out[0], to);
    }
    dtp_strbuf_addf(out, "%s%s%s%s", from[0] != '\0' ? ", from " : "", from,
                    to[0] == '\0'     ? ""
                    : from[0] != '\0' ? " to "
                                      : ", ",
                    to);
}

/* An arrow: phase "s" in the slice of the START, "f" in that of the WAIT. */
static void add_flow(tool_trace *t, const tool_slice *slice, const char *phase, int32_t start,
                     double s)
{
    const int32_t chunk = t->program->chunk, chunks = dtp_graph_chunks(t->program->graph);
    const int64_t of_chunk = (int64_t)dtp_program_microbatches(t->program) * t->most_instrs;
    const int64_t id = (t->n_processes * (int64_t)chunks + chunk) * of_chunk +
                       (int64_t)slice->microbatch * t->most_instrs + start;
    add_event(t, TOOL_FIELDS(FIELD_TEXT("ph", phase), FIELD_TEXT("name", "collective"),
                             FIELD_TEXT("cat", "collective"), FIELD_INT("id", id),
                             FIELDS_PLACE(t, slice->queue), FIELD_REAL("ts", us_of(grid_ps(s))),
                             FIELD_TEXT_IF(phase[0] == 'f', "bp", "e")));
}

/* The current process. */
static bool is_predicted(const tool_trace *t)
{
    return t->processes[t->n_processes - 1].rank == TOOL_TRACE_PREDICTED;
}

static void write_slice(tool_trace *t, const tool_slice *slice)
{
    static const char *const kinds[] = {"kernel", "collective", "wait", "copy"};
    const dtp_program *p = t->program;
    const dtp_instr *instr = &p->instrs[slice->instr];
    const bool start = instr->kind == DTP_INSTR_START, wait = instr->kind == DTP_INSTR_WAIT;
    const bool host = slice->queue == TOOL_HOST, more = !host && !wait;
    char in[DTP_LAYOUT_TEXT_BYTES] = "", layout[DTP_LAYOUT_TEXT_BYTES] = "";
    dtp_strbuf name = {0};
    tool_trace_name(p, instr, &name);
    if (more && instr->n_out > 0) {
        layout_of(p, instr->out[0], layout);
    }
    if (more && !(instr->kind == DTP_INSTR_KERNEL) && instr->n_in > 0) {
        layout_of(p, instr->in[0], in);
    }
    add_event(
        t, TOOL_FIELDS(
               FIELD_TEXT("ph", "X"), FIELD_BUFFER("name", &name),
               FIELD_TEXT("cat", host ? "issue" : kinds[instr->kind]),
               FIELDS_PLACE(t, slice->queue), FIELDS_TIME(slice->begin_s, slice->end_s),
               FIELD_OBJECT(
                   "args", FIELD_INT("instruction", slice->instr),
                   FIELD_TEXT("phase", dtp_phase_name(instr->phase)),
                   FIELD_INT_IF(dtp_program_microbatches(p) > 1, "microbatch", slice->microbatch),
                   {.kind = FIELD_IF(more && start, FIELD_IS_DIMS),
                    .key = "mesh_dims",
                    .mesh = &p->mesh,
                    .set = instr->coll.set},
                   FIELD_INT_IF(more && start && instr->coll.n_bucket > 0, "tensors",
                                instr->coll.n_bucket),
                   FIELD_INT_IF(more, "bytes", more ? bytes_of(p, instr) : 0),
                   FIELD_TEXT_IF(in[0] != '\0', "from", in),
                   FIELD_TEXT_IF(layout[0] != '\0', "layout", layout),
                   FIELD_BOOL_IF(more && instr->joined, "joined", true),
                   FIELD_US_IF(more && t->priced, "predicted_us", instr->time_s),
                   FIELD_US_IF(start && is_predicted(t), "exposed_us", slice->exposed_s))));
    if (start && !host) {
        t->started_s[slice->instr] = slice->begin_s;
        add_flow(t, slice, "s", slice->instr, slice->begin_s);
    } else if (wait) {
        /* Not before the collective runs: compute may wait while others run before it. */
        add_flow(t, slice, "f", instr->pair, fmax(slice->begin_s, t->started_s[instr->pair]));
    }
}

/* ---- what is left out ---- */

static bool is_left_out(const tool_trace *t, int32_t microbatch)
{
    return microbatch >= t->whole && microbatch + 1 < dtp_program_microbatches(t->program);
}

static void leave_out(tool_left_out *left, const dtp_instr *instr, const tool_slice *slice)
{
    const double s = slice->end_s - slice->begin_s;
    const bool wait = instr->kind == DTP_INSTR_WAIT;
    left->begin_s = left->n == 0 ? slice->begin_s : left->begin_s;
    left->end_s = slice->end_s;
    left->work_s += wait ? 0 : s;
    left->wait_s += wait ? s : 0;
    left->predicted_s += slice->queue == TOOL_HOST ? 0 : instr->time_s;
    left->exposed_s += slice->exposed_s;
    left->n++;
}

static void write_left_out(tool_trace *t, tool_queue queue)
{
    const tool_left_out *left = &t->left[queue];
    const int32_t last = dtp_program_microbatches(t->program) - 2;
    dtp_strbuf name = {0};
    dtp_strbuf_addf(&name, "microbatches %d to %d, left out", t->whole, last);
    add_event(
        t, TOOL_FIELDS(FIELD_TEXT("ph", "X"), FIELD_BUFFER("name", &name),
                       FIELD_TEXT("cat", "left_out"), FIELDS_PLACE(t, queue),
                       FIELDS_TIME(left->begin_s, left->end_s),
                       FIELD_OBJECT("args", FIELD_INT("slices", left->n),
                                    FIELD_US_IF(true, "work_us", left->work_s),
                                    FIELD_US_IF(true, "wait_us", left->wait_s),
                                    FIELD_US_IF(t->priced, "predicted_us", left->predicted_s),
                                    FIELD_US_IF(is_predicted(t), "exposed_us", left->exposed_s))));
}

/* ---- a trace ---- */

dtp_status tool_trace_begin(tool_trace *t, const dtp_program *p, bool priced, int32_t processes,
                            dtp_err *err)
{
    const int32_t n = p->chunks != NULL ? dtp_graph_chunks(p->graph) : 1;
    int32_t body = 1; /* of a stage */
    *t = (tool_trace){.program = p, .priced = priced, .threads = TOOL_N_QUEUES + 1};
    for (int32_t k = 0; k < n; k++) {
        const dtp_program *of = p->chunks != NULL ? p->chunks[k] : p;
        body += dtp_program_body(of) / dtp_graph_stages(p->graph);
        t->most_instrs = of->n_instrs > t->most_instrs ? of->n_instrs : t->most_instrs;
    }
    t->threads += p->chunks != NULL ? p->graph->stages->n_transfers + 1 : 0;
    t->whole = TOOL_TRACE_INSTRUCTIONS / processes / body;
    if (t->whole < dtp_program_microbatches(p)) { /* one of them is the last */
        t->whole = t->whole > 2 ? t->whole - 1 : 1;
    }
    t->started_s = calloc((size_t)t->most_instrs + 1, sizeof *t->started_s);
    t->processes = calloc((size_t)processes, sizeof *t->processes);
    dtp_json_begin_object(&t->w, NULL);
    dtp_json_write_string(&t->w, "displayTimeUnit", "ns");
    dtp_json_begin_array(&t->w, "traceEvents", false);
    return DTP_MEMORY(err, t->started_s, t->processes);
}

void tool_trace_free(tool_trace *t)
{
    free(t->started_s);
    free(t->processes);
    dtp_strbuf_free(&t->w.buf);
    *t = (tool_trace){0};
}

void tool_trace_process(tool_trace *t, const tool_totals *totals)
{
    const bool predicted = totals->rank == TOOL_TRACE_PREDICTED;
    char rank[32] = "every rank", stage[32] = "";
    dtp_strbuf name = {0};
    t->processes[t->n_processes++] = *totals;
    memset(t->left, 0, sizeof t->left);
    if (!predicted) {
        (void)snprintf(rank, sizeof rank, "rank %d", totals->rank);
    }
    if (totals->stage >= 0) {
        (void)snprintf(stage, sizeof stage, " of stage %d", totals->stage);
        tool_trace_thread(t, TOOL_SECTIONS, "sections");
    }
    dtp_strbuf_addf(&name, "%s%s, %s", rank, stage, predicted ? "predicted" : "measured");
    add_name(t, "process_name", TOOL_COMPUTE, dtp_strbuf_text(&name));
    dtp_strbuf_free(&name);
    tool_trace_thread(t, TOOL_COMPUTE, "compute");
    tool_trace_thread(t, TOOL_COMMUNICATION, "communication");
}

void tool_trace_slice(tool_trace *t, const tool_slice *slice)
{
    if (is_left_out(t, slice->microbatch)) {
        leave_out(&t->left[slice->queue], &t->program->instrs[slice->instr], slice);
    } else {
        write_slice(t, slice);
    }
}

bool tool_trace_enter(tool_trace *t, const dtp_stage_action *a)
{
    t->program = t->program->chunks[a->chunk];
    return !is_left_out(t, a->microbatch);
}

void tool_trace_stage_slice(tool_trace *t, const tool_stage_slice *slice)
{
    const dtp_stage_action *a = slice->action;
    const bool update = a->section >= DTP_SECTION_UPDATE, sends = strcmp(slice->what, "send") == 0;
    const int32_t n = dtp_graph_stages(t->program->graph), chunk = a->chunk / n;
    const bool chunks = dtp_graph_chunks(t->program->graph) > n;
    dtp_strbuf name = {0};
    if (strcmp(slice->what, "section") != 0) {
        dtp_strbuf_addf(&name, "%s ", slice->what);
    }
    if (update) {
        dtp_strbuf_add(&name, dtp_section_name(a->section).text);
    } else {
        dtp_strbuf_addf(&name, "%c%d", a->section == DTP_SECTION_FORWARD ? 'F' : 'B',
                        a->microbatch);
    }
    if (chunks) {
        dtp_strbuf_addf(&name, " chunk %d", chunk);
    }
    if (slice->to >= 0) {
        dtp_strbuf_addf(&name, " to stage %d", slice->to);
    }
    add_event(t, TOOL_FIELDS(FIELD_TEXT("ph", "X"), FIELD_BUFFER("name", &name),
                             FIELD_TEXT("cat", slice->what), FIELDS_PLACE(t, slice->queue),
                             FIELDS_TIME(slice->begin_s, slice->end_s),
                             FIELD_OBJECT("args",
                                          FIELD_TEXT("section", dtp_section_name(a->section).text),
                                          FIELD_INT_IF(chunks, "chunk", chunk),
                                          FIELD_INT_IF(!update, "microbatch", a->microbatch),
                                          FIELD_INT_IF(a->slot >= 0, "slot", a->slot),
                                          FIELD_INT_IF(slice->to >= 0, "to", slice->to),
                                          FIELD_INT_IF(sends, "bytes", slice->bytes))));
}

void tool_trace_process_end(tool_trace *t)
{
    for (int queue = 0; queue < (int)TOOL_N_QUEUES; queue++) {
        if (t->left[queue].n > 0) {
            write_left_out(t, (tool_queue)queue);
        }
    }
}

static void process_row(tool_rows *rows, const void *user, int32_t i)
{
    const tool_totals *totals = &((const tool_trace *)user)->processes[i];
    const bool predicted = totals->rank == TOOL_TRACE_PREDICTED;
    tool_row(rows, TOOL_FIELDS(FIELD_INT("pid", i + 1), FIELD_BOOL("predicted", predicted),
                               FIELD_INT_IF(!predicted, "rank", totals->rank),
                               FIELD_INT_IF(totals->stage >= 0, "stage", totals->stage),
                               FIELD_REAL("step_time_s", totals->step_time_s),
                               FIELD_REAL("compute_s", totals->compute_s),
                               FIELD_REAL("comm_s", totals->comm_s),
                               FIELD_REAL("exposed_comm_s", totals->exposed_comm_s),
                               FIELD_REAL_IF(predicted, "host_s", totals->host_s),
                               FIELD_REAL_IF(totals->stage >= 0, "work_s", totals->work_s)));
}

dtp_status tool_trace_end(tool_trace *t, dtp_strbuf *out, dtp_err *err)
{
    const dtp_program *p = t->program;
    const int32_t runs = dtp_program_microbatches(p);
    const int32_t left_out = t->whole < runs ? runs - 1 - t->whole : 0;
    const int32_t n_stages = dtp_graph_stages(p->graph);
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&p->mesh, mesh);
    dtp_json_end_array(&t->w);
    tool_write(
        &t->w,
        TOOL_FIELDS(FIELD_OBJECT(
            "otherData", FIELD_TEXT("format", "dtp.trace/1"), FIELD_TEXT("model", p->graph->name),
            FIELD_TEXT("mesh", mesh), FIELD_INT("ranks", n_stages * dtp_mesh_ranks(&p->mesh)),
            FIELD_INT_IF(n_stages > 1, "stages", n_stages), FIELD_INT("microbatches", runs),
            FIELD_INT("microbatches_left_out", left_out),
            FIELD_LIST("processes", t->n_processes, process_row, t))));
    tool_report_end(&t->w);
    if (left_out > 0) {
        (void)fprintf(stderr, "trace: microbatches %d to %d of %d are %s: they are too many\n",
                      t->whole, runs - 2, runs, n_stages > 1 ? "sections alone" : "one slice");
    }
    dtp_strbuf_join(out, &t->w.buf);
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a trace") : DTP_OK;
}

/* ---- predicted ---- */

/* Writes what was simulated: of a whole step, or of a section that begins at zero_s. */
typedef struct task_writer {
    tool_trace *t;
    double host_s, zero_s;
    double now_s;    /* of compute */
    double *ended_s; /* by START */
} task_writer;

/* The slices of a task of instruction i: what the host does for it, and itself. */
static void add_task(const task_writer *w, const dtp_schedule_task *task, int32_t microbatch)
{
    tool_slice slice = {.queue = TOOL_HOST,
                        .instr = task->instr,
                        .microbatch = microbatch,
                        .begin_s = w->zero_s + task->issued_s - w->host_s,
                        .end_s = w->zero_s + task->issued_s};
    if (w->host_s > 0 && !w->t->program->instrs[task->instr].joined) {
        tool_trace_slice(w->t, &slice);
    }
    slice.queue = task->lane == DTP_LANE_COMPUTE ? TOOL_COMPUTE
                  : task->lane == DTP_LANE_FAR   ? TOOL_FAR
                                                 : TOOL_COMMUNICATION;
    slice.begin_s = w->zero_s + task->begin_s;
    slice.end_s = w->zero_s + task->end_s;
    slice.exposed_s = task->exposed_s;
    tool_trace_slice(w->t, &slice);
}

/* Instructions from..to - 1 of a microbatch, the first of which has `task`. Returns the task after
 * the last. */
static const dtp_schedule_task *add_tasks(task_writer *w, const dtp_schedule_task *task,
                                          int32_t from, int32_t to, int32_t j)
{
    const dtp_program *p = w->t->program;
    assert(task != NULL);
    for (int32_t i = from; i < to; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (!dtp_instr_runs_in(p, instr, j)) {
            continue;
        }
        if (instr->kind == DTP_INSTR_WAIT) {
            const double until_s = fmax(w->now_s, w->ended_s[instr->pair]);
            const tool_slice wait = {TOOL_COMPUTE, i, j, w->now_s, until_s, 0};
            tool_trace_slice(w->t, &wait);
            w->now_s = until_s;
            continue;
        }
        add_task(w, task, j);
        w->ended_s[i] = w->zero_s + task->end_s;
        w->now_s = task->lane != DTP_LANE_COMPUTE ? w->now_s : w->zero_s + task->end_s;
        task++;
    }
    return task;
}

/* Names the queues that a program may leave empty: of the host, of collectives across hosts. */
static void name_queues(task_writer *w, const dtp_program *p)
{
    bool far = false;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        far = far || p->instrs[i].far;
    }
    if (w->host_s > 0) {
        tool_trace_thread(w->t, TOOL_HOST, "host");
    }
    if (far) {
        tool_trace_thread(w->t, TOOL_FAR, "communication across hosts");
    }
}

/* A step of one program. */
static dtp_status add_step(task_writer *w, const dtp_machine *machine, bool overlaps,
                           const dtp_prediction *predicted, dtp_err *err)
{
    tool_trace *t = w->t;
    dtp_schedule_result result;
    dtp_schedule_task *tasks = dtp_schedule_simulate(t->program, machine, overlaps, &result);
    DTP_TRY(DTP_MEMORY(err, tasks));
    tool_trace_process(t, &(tool_totals){.rank = TOOL_TRACE_PREDICTED,
                                         .stage = -1,
                                         .step_time_s = predicted->step_time_s,
                                         .compute_s = predicted->compute_s,
                                         .comm_s = predicted->comm_s,
                                         .exposed_comm_s = predicted->exposed_comm_s,
                                         .host_s = predicted->host_s});
    name_queues(w, t->program);
    const dtp_schedule_task *task = tasks;
    for (int32_t j = 0; j < dtp_program_microbatches(t->program); j++) {
        task = add_tasks(w, task, 0, t->program->n_instrs, j);
    }
    tool_trace_process_end(t);
    free(tasks);
    return DTP_OK;
}

/* ---- predicted, of stages ---- */

/* A section as it is simulated: in the first microbatch, and in others. */
typedef struct simulated_section {
    dtp_schedule_task *tasks;
    dtp_schedule_result result;
} simulated_section;

/* The sections of a stage in the order of its table, each with its instructions. */
static void add_stage(task_writer *w, const dtp_pipeline *p, int32_t s,
                      const dtp_pipeline_step *step, const simulated_section *sections)
{
    const dtp_stage_table *table = &p->table;
    const int32_t n_sections = DTP_SECTION_UPDATE + table->n_parts;
    tool_totals totals = {.rank = TOOL_TRACE_PREDICTED,
                          .stage = s,
                          .step_time_s = step->end_s,
                          .compute_s = p->stages[s].compute_s,
                          .comm_s = p->stages[s].comm_s,
                          .work_s = dtp_pipeline_work_s(p, s)};
    for (int32_t i = 0; i < table->n_actions[s]; i++) {
        const dtp_stage_action *a = &table->actions[s][i];
        const int32_t k = 2 * (a->chunk * n_sections + a->section) + (a->microbatch > 0 ? 1 : 0);
        totals.exposed_comm_s += sections[k].result.exposed_comm_s;
        totals.host_s += sections[k].result.host_s;
    }
    tool_trace_process(w->t, &totals);
    name_queues(w, p->programs[table->actions[s][0].chunk]);
    for (int32_t i = 0; i < table->n_actions[s]; i++) {
        const dtp_stage_action *a = &table->actions[s][i];
        const dtp_program *program = p->programs[a->chunk];
        const int32_t k = 2 * (a->chunk * n_sections + a->section) + (a->microbatch > 0 ? 1 : 0);
        w->zero_s = w->now_s = step->begin_s[s][i];
        tool_trace_stage_slice(
            w->t,
            &(tool_stage_slice){TOOL_SECTIONS, "section", a, w->zero_s,
                                w->zero_s + dtp_pipeline_section_s(table, &p->times, a), 0, -1});
        if (tool_trace_enter(w->t, a)) {
            (void)add_tasks(
                w, sections[k].tasks,
                dtp_section_begin(program, program->instrs, program->n_instrs, a->section),
                dtp_section_begin(program, program->instrs, program->n_instrs, a->section + 1),
                a->microbatch);
        }
    }
}

/* What a stage sends, on a thread for each queue. */
static void add_messages(tool_trace *t, const dtp_pipeline *p, int32_t s,
                         const dtp_pipeline_step *step)
{
    const dtp_stage_table *table = &p->table;
    int32_t queue = TOOL_SENDS;
    for (int32_t k = 0; k < p->times.n_messages; k++) {
        const dtp_stage_message *x = &p->times.messages[k];
        const bool single = x->once || x->section >= DTP_SECTION_UPDATE;
        dtp_strbuf name = {0};
        if (x->from % table->n_stages != s) {
            continue;
        }
        dtp_strbuf_addf(&name, "sends to stage %d", x->to % table->n_stages);
        if (p->n > table->n_stages) {
            dtp_strbuf_addf(&name, ", chunk %d", x->to / table->n_stages);
        }
        dtp_strbuf_addf(&name, ", behind %s", dtp_section_name(x->section).text);
        tool_trace_thread(t, queue, dtp_strbuf_text(&name));
        dtp_strbuf_free(&name);
        for (int32_t m = 0; m < (single ? 1 : table->n_microbatches); m++) {
            const dtp_stage_action of = {x->section, x->from,
                                         single ? table->n_microbatches - 1 : m, -1};
            const double arrives_s = step->arrival_s[k][m];
            tool_trace_stage_slice(t, &(tool_stage_slice){queue, "send", &of, arrives_s - x->time_s,
                                                          arrives_s, x->bytes,
                                                          x->to % table->n_stages});
        }
        queue++;
    }
}

static dtp_status add_stages(task_writer *w, const dtp_pipeline *p, const dtp_machine *machine,
                             bool overlaps, dtp_err *err)
{
    const int32_t n_sections = DTP_SECTION_UPDATE + p->table.n_parts, n = 2 * n_sections * p->n;
    simulated_section *sections = calloc((size_t)n, sizeof *sections);
    dtp_pipeline_step step;
    dtp_arena *arena = dtp_arena_create();
    dtp_status status = DTP_MEMORY(err, sections, arena);
    status =
        status == DTP_OK ? dtp_pipeline_replay(&p->table, &p->times, arena, &step, err) : status;
    for (int32_t k = 0; k < n && status == DTP_OK; k++) {
        sections[k].tasks =
            dtp_schedule_section(p->programs[k / 2 / n_sections], machine, overlaps,
                                 k / 2 % n_sections, k % 2 == 0, &sections[k].result);
        status = DTP_MEMORY(err, sections[k].tasks);
    }
    for (int32_t s = 0; s < p->table.n_stages && status == DTP_OK; s++) {
        add_stage(w, p, s, &step, sections);
        add_messages(w->t, p, s, &step);
    }
    for (int32_t k = 0; k < n && sections != NULL; k++) {
        free(sections[k].tasks);
    }
    free(sections);
    dtp_arena_destroy(arena);
    return status;
}

dtp_status tool_trace_predicted(tool_trace *t, const dtp_job *job, const dtp_machine *machine,
                                dtp_err *err)
{
    const bool overlaps = machine->overlap && t->program->target->asynchronous;
    task_writer w = {.t = t, .host_s = overlaps ? machine->host_s : 0};
    w.ended_s = calloc((size_t)t->most_instrs + 1, sizeof *w.ended_s);
    dtp_status s = DTP_MEMORY(err, w.ended_s);
    if (s == DTP_OK) {
        s = job->pipeline != NULL ? add_stages(&w, job->pipeline, machine, overlaps, err)
                                  : add_step(&w, machine, overlaps, &job->predicted, err);
    }
    free(w.ended_s);
    return s;
}

dtp_status tool_trace_job(const dtp_job *job, const dtp_machine *machine, dtp_strbuf *out,
                          dtp_err *err)
{
    tool_trace t;
    const int32_t n = dtp_graph_stages(job->graph);
    dtp_status s = tool_trace_begin(&t, job->program, true, n, err);
    s = s == DTP_OK ? tool_trace_predicted(&t, job, machine, err) : s;
    s = s == DTP_OK ? tool_trace_end(&t, out, err) : s;
    tool_trace_free(&t);
    return s;
}
