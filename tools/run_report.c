/* What dtrun prints: progress, predicted against measured, JSON (docs/formats/report.md). */
#include "tools/run_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/base/units.h"
#include "core/transform/microbatch.h"
#include "core/transform/precision.h"
#include "core/transform/stages.h"
#include "cost_models/comm_report.h"
#include "tools/report.h"

void dtp_report_work(const dtp_graph *g, int64_t *per_step, const char **unit)
{
    *per_step = 1;
    *unit = "steps";
    bool found = false;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind != DTP_TENSOR_INPUT || tensor->type.rank < 1) {
            continue;
        }
        const dtp_ttype type = dtp_microbatch_whole(g, &tensor->type);
        bool integer = tensor->type.dtype == DTP_I32 || tensor->type.dtype == DTP_I64;
        if (integer && tensor->type.rank >= 2) {
            *per_step = dtp_ttype_elems(&type);
            *unit = "tokens";
            return;
        }
        if (!found) {
            *per_step = type.dims[0].size;
            *unit = "samples";
            found = true;
        }
    }
}

dtp_status dtp_report_start(dtp_report *r, const dtp_session *s, const char *backend,
                            const char *comm, const dtp_prediction *predicted, dtp_err *err)
{
    const dtp_runner *runner = dtp_session_runner(s);
    const dtp_program *p = dtp_runner_program(runner);
    *r = (dtp_report){.model = p->graph->name,
                      .backend = backend,
                      .comm = comm,
                      .program_peak_bytes = p->peak_bytes,
                      .runner = runner};
    const int32_t n_stages = dtp_graph_stages(p->graph);
    DTP_TRY(dtp_stages_mesh(&p->mesh, n_stages, &r->mesh, err));
    r->ranks = dtp_mesh_ranks(&r->mesh);
    for (int32_t k = 0; k < n_stages && n_stages > 1; k++) {
        const int64_t peak = p->chunks[k]->peak_bytes;
        r->program_peak_bytes = peak > r->program_peak_bytes ? peak : r->program_peak_bytes;
    }
    if (predicted != NULL) {
        r->predicted = *predicted;
        r->has_prediction = true;
    }
    dtp_report_work(p->graph, &r->tokens_per_step, &r->unit);
    r->arena = dtp_arena_create();
    return dtp_counters_of(p, r->arena, &r->counters, err);
}

dtp_status dtp_report_add(dtp_report *r, const dtp_step_result *step, dtp_err *err)
{
    if (r->n_steps == r->capacity) {
        int32_t capacity = r->capacity < INT32_MAX / 2 - 64 ? 2 * r->capacity + 64 : INT32_MAX;
        void *grown =
            r->n_steps < capacity ? realloc(r->steps, (size_t)capacity * sizeof *r->steps) : NULL;
        DTP_TRY(DTP_MEMORY(err, grown));
        r->steps = grown;
        r->capacity = capacity;
    }
    r->steps[r->n_steps++] = *step;
    return DTP_OK;
}

dtp_status dtp_report_add_eval(dtp_report *r, int64_t step, double loss, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(r->arena, &r->evals, r->n_evals, r->n_evals + 1, &r->eval_capacity,
                           sizeof *r->evals, err));
    r->evals[r->n_evals++] = (struct dtp_report_eval){.step = step, .loss = loss};
    return DTP_OK;
}

/* States of loss scaling, where the graph has them. */
static dtp_status read_loss_scale(dtp_report *r, dtp_session *s, dtp_err *err)
{
    const dtp_graph *g = dtp_runner_program(r->runner)->graph;
    const dtp_tensor_id scale = dtp_graph_find(g, DTP_LOSS_SCALE),
                        skipped = dtp_graph_find(g, DTP_LOSS_SKIPPED);
    r->scales_loss = scale >= 0 && skipped >= 0 && g->tensors[scale].kind == DTP_TENSOR_STATE &&
                     g->tensors[skipped].kind == DTP_TENSOR_STATE;
    if (!r->scales_loss) {
        return DTP_OK;
    }
    DTP_TRY(dtp_session_gather(s, scale, &r->loss_scale, err));
    return dtp_session_gather(s, skipped, &r->skipped, err);
}

void dtp_report_free(dtp_report *r)
{
    free(r->steps);
    free(r->peak_bytes);
    dtp_arena_destroy(r->arena);
    *r = (dtp_report){0};
}

/* ---- figures ---- */

typedef enum figure { STEP_S, COMPUTE_S, EXPOSED_S, FEED_S } figure; /* medians as well */

typedef struct spread {
    double median, min, max;
} spread;

/* The rank whose times stand beside the prediction: the first one of the stage with most work, of
 * which that is. */
static int32_t rank_beside(const dtp_report *r)
{
    const dtp_pipeline *p = r->pipeline;
    int32_t most = 0;
    for (int32_t k = 1; p != NULL && p->times.section_s != NULL && k < p->table.n_stages; k++) {
        most = dtp_pipeline_work_s(p, k) > dtp_pipeline_work_s(p, most) ? k : most;
    }
    return p != NULL ? most * (r->ranks / p->table.n_stages) : 0;
}

/* Over all steps in which it is known; zeros when there are none, NaN when no step was run. `out`,
 * where it goes, fails when memory runs out. */
static spread spread_of(const dtp_report *r, figure f, dtp_strbuf *out)
{
    const double none = r->n_steps > 0 ? 0.0 : (double)NAN;
    spread s = {none, none, none};
    int32_t n = 0;
    double *values = r->n_steps > 0 ? malloc((size_t)r->n_steps * sizeof *values) : NULL;
    for (int32_t i = 0; values != NULL && i < r->n_steps; i++) {
        const dtp_step_result *step = &r->steps[i];
        values[n] = f == COMPUTE_S   ? step->times.compute_s
                    : f == EXPOSED_S ? step->times.comm_s
                    : f == FEED_S    ? step->feed_s
                                     : step->times.total_s;
        n += isnan(values[n]) ? 0 : 1;
    }
    if (n > 0) {
        qsort(values, (size_t)n, sizeof *values, dtp_compare_doubles);
        s = (spread){.median = (values[n / 2] + values[(n - 1) / 2]) / 2,
                     .min = values[0],
                     .max = values[n - 1]};
    }
    if (r->medians != NULL && (f == COMPUTE_S || f == EXPOSED_S)) {
        s.median = r->medians[rank_beside(r)][f];
    }
    out->failed = out->failed || (r->n_steps > 0 && values == NULL);
    free(values);
    return s;
}

double dtp_report_comm_s(const dtp_program *p, double exposed_s)
{
    bool apart = false;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        apart = apart || (p->instrs[i].kind == DTP_INSTR_START && p->instrs[i].pair != i + 1);
    }
    return apart ? (double)NAN : exposed_s;
}

static int64_t highest_peak(const dtp_report *r)
{
    int64_t peak = 0;
    for (int32_t i = 0; r->peak_bytes != NULL && i < r->ranks; i++) {
        peak = r->peak_bytes[i] > peak ? r->peak_bytes[i] : peak;
    }
    return peak;
}

dtp_status dtp_report_finish(dtp_report *r, dtp_session *s, dtp_err *err)
{
    double own[DTP_REPORT_MEDIANS];
    dtp_strbuf none = {0};
    r->peak_bytes = calloc((size_t)r->ranks, sizeof *r->peak_bytes);
    dtp_status status = r->peak_bytes != NULL ? dtp_session_peaks(s, r->peak_bytes, err)
                                              : DTP_FAIL(err, DTP_NOMEM, "no memory for a report");
    status = status == DTP_OK ? dtp_report_find_fused(r, err) : status;
    for (int32_t f = 0; f < DTP_REPORT_MEDIANS; f++) {
        own[f] = spread_of(r, (figure)f, &none).median;
    }
    status = status == DTP_OK && none.failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a report")
                                             : status;
    status = status == DTP_OK ? dtp_report_find_stages(r, s, own, err) : status;
    return status == DTP_OK ? read_loss_scale(r, s, err) : status;
}

/* ---- text ---- */

void dtp_report_progress(const dtp_report *r, int64_t total, char *out, size_t bytes)
{
    enum { RECENT = 20 };
    if (r->n_steps == 0) {
        (void)snprintf(out, bytes, "step 0/%" PRId64, total);
        return;
    }
    int32_t n = r->n_steps < RECENT ? r->n_steps : RECENT;
    double seconds = 0;
    for (int32_t i = r->n_steps - n; i < r->n_steps; i++) {
        seconds += r->steps[i].times.total_s + r->steps[i].feed_s;
    }
    seconds /= n;
    const dtp_step_result *last = &r->steps[r->n_steps - 1];
    char loss[32] = "", norm[32] = "";
    if (last->has_loss) {
        snprintf(loss, sizeof loss, "  loss %.4f", last->loss);
    }
    if (!isnan(last->grad_norm)) {
        snprintf(norm, sizeof norm, "  gradients %.4g", last->grad_norm);
    }
    double rate = seconds > 0 ? (double)r->tokens_per_step / seconds : 0;
    double left = (double)(total - last->step - 1) * seconds;
    int64_t whole = left > 0 ? (int64_t)ceil(left) : 0;
    snprintf(out, bytes, "step %" PRId64 "/%" PRId64 "%s%s  %.0f %s/s  left %" PRId64 ":%02d",
             last->step + 1, total, loss, norm, rate, r->unit, whole / 60, (int)(whole % 60));
}

/* NaN: not known. */
static void row(dtp_strbuf *out, const char *name, double predicted, double measured)
{
    const bool has_predicted = !isnan(predicted), has_measured = !isnan(measured);
    dtp_strbuf_addf(out, "  %-14s %12s %12s", name,
                    has_predicted ? dtp_seconds(predicted).text : "-",
                    has_measured ? dtp_seconds(measured).text : "-");
    if (has_predicted && has_measured) {
        double off = measured > 0 ? 100.0 * (predicted - measured) / measured : 0.0;
        dtp_strbuf_addf(out, " %+8.1f %%", off);
    }
    dtp_strbuf_addf(out, "\n");
}

/* What people compare, of steps of so many seconds; zeros where the model has no tokens. MFU is
 * that of the prediction by the ratio of both times: the same FLOPs at the same peak. */
static dtp_prediction throughput(const dtp_report *r, double step_s)
{
    const dtp_prediction *p = &r->predicted;
    dtp_prediction out = {.step_time_s = step_s};
    if (r->tokens > 0 && step_s > 0.0) {
        out.tokens_per_s = (double)r->tokens / step_s;
        out.mfu = r->has_prediction ? p->mfu * p->step_time_s / step_s : 0.0;
        out.vain = r->has_prediction ? p->vain * p->step_time_s / step_s : 0.0;
    }
    return out;
}

static void throughput_row(dtp_strbuf *out, const char *name, double predicted, double measured,
                           const char *unit)
{
    char texts[2][24] = {"-", "-"};
    const double values[2] = {predicted, measured};
    for (int32_t i = 0; i < 2; i++) {
        if (values[i] > 0.0) {
            (void)snprintf(texts[i], sizeof texts[i], unit[0] == '\0' ? "%.0f%s" : "%.1f%s",
                           values[i], unit);
        }
    }
    dtp_strbuf_addf(out, "  %-14s %12s %12s", name, texts[0], texts[1]);
    if (predicted > 0.0 && measured > 0.0) {
        dtp_strbuf_addf(out, " %+8.1f %%", 100.0 * (predicted - measured) / measured);
    }
    dtp_strbuf_add(out, "\n");
}

static void print_throughput(const dtp_report *r, double step_s, dtp_strbuf *out)
{
    const dtp_prediction p = throughput(r, r->predicted.step_time_s), m = throughput(r, step_s);
    if (!(m.tokens_per_s > 0.0)) {
        return;
    }
    throughput_row(out, "tokens/s", p.tokens_per_s, m.tokens_per_s, "");
    throughput_row(out, "per device", p.tokens_per_s / r->ranks, m.tokens_per_s / r->ranks, "");
    if (m.mfu > 0.0) {
        throughput_row(out, "MFU", 100.0 * p.mfu, 100.0 * m.mfu, " %");
    }
    if (m.vain > 0.0) { /* slots of experts that hold no token */
        throughput_row(out, "in vain", 100.0 * p.vain, 100.0 * m.vain, " %");
    }
}

/* Rate and norm of the gradients, where they change. */
static void print_training(const dtp_step_result *first, const dtp_step_result *last,
                           dtp_strbuf *out)
{
    if (first->rate != last->rate) {
        dtp_strbuf_addf(out, "learning rate %g -> %g\n", first->rate, last->rate);
    }
    if (!isnan(first->grad_norm)) {
        dtp_strbuf_addf(out, "norm of the gradients %.6f -> %.6f\n", first->grad_norm,
                        last->grad_norm);
    }
}

void dtp_report_text(const dtp_report *r, dtp_strbuf *out)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&r->mesh, mesh);
    dtp_strbuf_addf(out, "%s: %d step%s on %d rank%s (mesh '%s', %s backend, %s communicator)\n",
                    r->model, r->n_steps, r->n_steps == 1 ? "" : "s", r->ranks,
                    r->ranks == 1 ? "" : "s", mesh, r->backend, r->comm);
    if (r->n_steps > 0 && r->steps[0].has_loss) {
        dtp_strbuf_addf(out, "loss %.6f -> %.6f\n", r->steps[0].loss,
                        r->steps[r->n_steps - 1].loss);
    }
    if (r->n_steps > 0 && !isnan(r->steps[0].rate)) {
        print_training(&r->steps[0], &r->steps[r->n_steps - 1], out);
    }
    if (r->scales_loss) {
        dtp_strbuf_addf(out, "loss scale %g, %g steps skipped\n", (double)r->loss_scale,
                        (double)r->skipped);
    }
    if (tool_rates_note(r->rates)[0] != '\0') {
        dtp_strbuf_addf(out, "predicted%s\n", tool_rates_note(r->rates));
    }
    dtp_strbuf_addf(out, "  %-14s %12s %12s\n", "per step", "predicted", "measured");
    const dtp_prediction none = {.step_time_s = (double)NAN,
                                 .compute_s = (double)NAN,
                                 .comm_s = (double)NAN,
                                 .exposed_comm_s = (double)NAN};
    const dtp_prediction *p = r->has_prediction ? &r->predicted : &none;
    const spread step = spread_of(r, STEP_S, out), exposed = spread_of(r, EXPOSED_S, out);
    row(out, "step", p->step_time_s, step.median);
    row(out, "compute", p->compute_s, spread_of(r, COMPUTE_S, out).median);
    row(out, "comm", p->comm_s, dtp_report_comm_s(dtp_runner_program(r->runner), exposed.median));
    row(out, "exposed comm", p->exposed_comm_s, exposed.median);
    print_throughput(r, step.median, out);
    dtp_strbuf_addf(out, "  step time median %s, fastest %s, slowest %s; inputs %s\n",
                    dtp_seconds(step.median).text, dtp_seconds(step.min).text,
                    dtp_seconds(step.max).text, dtp_seconds(spread_of(r, FEED_S, out).median).text);
    if (r->peak_bytes != NULL) {
        int64_t predicted = r->has_prediction ? r->predicted.peak_bytes : r->program_peak_bytes;
        int64_t peak = highest_peak(r);
        dtp_strbuf_addf(out, "peak per rank: predicted %s, measured %s%s\n",
                        dtp_byte_count((double)predicted).text, dtp_byte_count((double)peak).text,
                        predicted == peak ? " (equal)" : " (DIFFERENT)");
    }
    if (r->pipeline != NULL) {
        dtp_report_stages_text(r, out);
        return;
    }
    const dtp_coll_stat *stats;
    int32_t n = dtp_runner_coll_stats(r->runner, &stats);
    dtp_strbuf_add(out, n > 0 ? "collectives per rank and step\n" : "no collectives\n");
    for (int32_t i = 0; i < n; i++) {
        char dims[DTP_MESH_TEXT_BYTES];
        dtp_mesh_set_print(&r->mesh, stats[i].set, ",", dims);
        dtp_strbuf_addf(out, "  %-18s over %-10s %6" PRId64 " calls %10s\n",
                        dtp_coll_name(stats[i].kind), dims, stats[i].count,
                        dtp_byte_count((double)stats[i].bytes).text);
    }
    dtp_report_fused_text(r, out);
}

/* ---- JSON ---- */

#define HEAD_FIELDS(name, m, n) FIELD_TEXT("model", name), FIELD_MESH(m), FIELD_INT("ranks", n)

static void collective_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_report *r = user;
    const dtp_coll_stat *stats;
    (void)dtp_runner_coll_stats(r->runner, &stats);
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("kind", dtp_coll_name(stats[i].kind)),
                         FIELD_DIMS("mesh_dims", &r->mesh, stats[i].set),
                         FIELD_INT("count", stats[i].count), FIELD_INT("bytes", stats[i].bytes)));
}

static const char *node_name(const dtp_program *p, const dtp_instr *in)
{
    return in->node >= 0 ? p->graph->nodes[in->node].name : NULL;
}

static void apart_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_report *r = user;
    const dtp_program *p = dtp_runner_program(r->runner);
    const dtp_instr *in = &p->instrs[r->apart[i]];
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("op", dtp_instr_name(in)), FIELD_TEXT("node", node_name(p, in)),
                         FIELD_TEXT("phase", dtp_phase_name(in->phase)),
                         FIELD_TEXT("why", dtp_runner_why_apart(r->runner, r->apart[i]))));
}

static void instruction_row(tool_rows *rows, const void *user, int32_t i)
{
    static const char *const kinds[] = {"kernel", "collective", "wait", "copy"};
    const dtp_report *r = user;
    const dtp_program *p = dtp_runner_program(r->runner);
    const dtp_instr *in = &p->instrs[i];
    const char *why = dtp_runner_why_apart(r->runner, i);
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("kind", kinds[in->kind]), FIELD_TEXT("op", dtp_instr_name(in)),
                         FIELD_TEXT("node", node_name(p, in)),
                         FIELD_TEXT("phase", dtp_phase_name(in->phase)),
                         FIELD_BOOL_IF(in->joined, "joined", true),
                         FIELD_BOOL_IF(why != NULL, "as_one", why != NULL && why[0] == '\0'),
                         FIELD_TEXT_IF(why != NULL && why[0] != '\0', "why", why),
                         FIELD_REAL("predicted_s", dtp_instr_runs(p, in) * in->time_s),
                         FIELD_REAL("measured_s", dtp_runner_profile(r->runner)[i] / r->n_steps)));
}

static dtp_status take_text(dtp_json_writer *j, dtp_strbuf *out, dtp_err *err)
{
    dtp_strbuf_join(out, &j->buf);
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for a report") : DTP_OK;
}

static void eval_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_report *r = user;
    tool_row(rows, TOOL_FIELDS(FIELD_INT("step", r->evals[i].step),
                               FIELD_REAL("loss", r->evals[i].loss)));
}

dtp_status dtp_report_json(const dtp_report *r, bool profile, dtp_strbuf *out, dtp_err *err)
{
    dtp_json_writer j = {0};
    const spread step = spread_of(r, STEP_S, &j.buf), exposed = spread_of(r, EXPOSED_S, &j.buf);
    const spread compute = spread_of(r, COMPUTE_S, &j.buf), feed = spread_of(r, FEED_S, &j.buf);
    const dtp_prediction *p = &r->predicted;
    const dtp_prediction then = throughput(r, p->step_time_s), now = throughput(r, step.median);
    const dtp_coll_stat *stats;
    const int32_t n_stats = dtp_runner_coll_stats(r->runner, &stats);
    const int32_t n_stages = r->pipeline != NULL ? r->pipeline->table.n_stages : 0;
    const int32_t n_messages = r->pipeline != NULL ? r->pipeline->times.n_messages : 0;
    const bool profiled = profile && dtp_runner_profile(r->runner) != NULL && r->n_steps > 0;
    const bool trains = r->n_steps > 0 && !isnan(r->steps[0].rate);
    const bool clips = trains && dtp_runner_program(r->runner)->graph->norm >= 0;
    int32_t n_losses = 0;
    double *losses, *rates, *norms;
    DTP_TRY(DTP_NEW(r->arena, losses, r->n_steps, err));
    DTP_TRY(DTP_NEW(r->arena, rates, r->n_steps, err));
    DTP_TRY(DTP_NEW(r->arena, norms, r->n_steps, err));
    for (int32_t i = 0; i < r->n_steps; i++) {
        rates[i] = r->steps[i].rate;
        norms[i] = r->steps[i].grad_norm;
    }
    while (n_losses < r->n_steps && r->steps[n_losses].has_loss) {
        losses[n_losses] = r->steps[n_losses].loss;
        n_losses++;
    }
    tool_report(
        &j, "dtp.report/1",
        TOOL_FIELDS(
            HEAD_FIELDS(r->model, &r->mesh, r->ranks), FIELD_TEXT("backend", r->backend),
            FIELD_TEXT("comm", r->comm), FIELD_INT("steps", r->n_steps),
            FIELD_REALS("loss", n_losses, losses),
            FIELD_REALS("rate", trains ? r->n_steps : 0, rates),
            FIELD_REALS("grad_norm", clips ? r->n_steps : 0, norms),
            FIELD_LIST_IF(r->n_evals > 0, "eval", r->n_evals, eval_row, r),
            FIELD_OBJECT_IF(r->scales_loss, "loss_scale",
                            FIELD_REAL("scale", (double)r->loss_scale),
                            FIELD_INT("skipped_steps", (int64_t)r->skipped)),
            FIELD_OBJECT("step_time_s", FIELD_REAL("median", step.median),
                         FIELD_REAL("min", step.min), FIELD_REAL("max", step.max)),
            FIELD_OBJECT_OR_NULL(
                r->has_prediction, "predicted", FIELD_REAL("step_time_s", p->step_time_s),
                FIELD_REAL("compute_s", p->compute_s), FIELD_REAL("comm_s", p->comm_s),
                FIELD_REAL("exposed_comm_s", p->exposed_comm_s), TOKEN_FIELDS(&then, r->ranks),
                FIELD_TEXT_IF(r->rates != NULL, "rates", r->rates),
                FIELD_INT("peak_bytes", p->peak_bytes),
                FIELD_MAP("collectives", DTP_N_COLL_TOTALS, tool_total_row, p)),
            FIELD_OBJECT("measured", FIELD_REAL("step_time_s", step.median),
                         FIELD_REAL("compute_s", compute.median),
                         FIELD_REAL("comm_s", dtp_report_comm_s(dtp_runner_program(r->runner),
                                                                exposed.median)),
                         FIELD_REAL("exposed_comm_s", exposed.median), TOKEN_FIELDS(&now, r->ranks),
                         FIELD_REAL("feed_s", feed.median),
                         FIELD_INT("peak_bytes", highest_peak(r)),
                         FIELD_INTS("peak_bytes_per_rank", r->peak_bytes != NULL ? r->ranks : 0,
                                    r->peak_bytes)),
            FIELD_LIST("collectives", r->pipeline == NULL ? n_stats : 0, collective_row, r),
            FIELD_LIST_IF(r->pipeline != NULL, "stages", n_stages, dtp_report_stage_row, r),
            FIELD_LIST_IF(r->pipeline != NULL, "sends", n_messages, tool_send_row, r->pipeline),
            FIELD_OBJECT_IF(r->n_as_one + r->n_apart > 0, "fused", FIELD_INT("as_one", r->n_as_one),
                            FIELD_LIST("apart", r->n_apart, apart_row, r)),
            FIELD_MAP("counters", r->counters.n, tool_counter_row, &r->counters),
            FIELD_LIST_IF(profiled, "instructions", dtp_runner_program(r->runner)->n_instrs,
                          instruction_row, r)));
    return take_text(&j, out, err);
}

/* ---- verify ---- */

static bool within(const dtp_verify_result *v, const dtp_verify_item *item)
{
    return item->rel_err <= dtp_verify_bound(v, item->kind);
}

/* The kinds with an item that is not within the tolerance. */
static int32_t failed_kinds(const dtp_verify_result *v, const char *names[DTP_VERIFY_N_KINDS])
{
    int32_t n = 0;
    for (int kind = 0; kind < (int)DTP_VERIFY_N_KINDS; kind++) {
        const dtp_verify_item *worst = dtp_verify_worst(v, (dtp_verify_kind)kind);
        if (worst != NULL && !within(v, worst)) {
            names[n++] = dtp_verify_kind_name((dtp_verify_kind)kind);
        }
    }
    return n;
}

/* "  NaN on both sides: outputs 'loss' step 1, gradients 'w1' step 1 and 3 others: they agree, and
 * show nothing" */
static void nan_text(const dtp_verify_result *v, dtp_strbuf *out)
{
    enum { SHOWN = 3 };
    int32_t n = 0;
    for (int32_t i = 0; i < v->n; i++) {
        const dtp_verify_item *item = &v->items[i];
        if (item->nan_step < 0) {
            continue;
        }
        if (n < SHOWN) {
            dtp_strbuf_addf(out, "%s%s '%s' step %d", n == 0 ? "  NaN on both sides: " : ", ",
                            dtp_verify_kind_name(item->kind), item->name, item->nan_step);
        }
        n++;
    }
    if (n > SHOWN) {
        dtp_strbuf_addf(out, " and %d others", n - SHOWN);
    }
    dtp_strbuf_add(out, n > 0 ? ": they agree, and show nothing of the plan\n" : "");
}

/* "  a plan for target cuda as a program of target cpu; mesh x:2;y:4 for x:8;y:8, batch=16 for 64":
 * nothing where the plan was verified as it is. */
static void add_verified(const dtp_verified *w, dtp_strbuf *out)
{
    char here[DTP_MESH_TEXT_BYTES], planned[DTP_MESH_TEXT_BYTES];
    const char *between = "  ", *end = "";
    if (w->planned_target != NULL) {
        dtp_strbuf_addf(out, "  layouts of a plan for target %s, in a program of target %s%s",
                        w->planned_target, w->target,
                        w->without_tf32 ? " with products in f32" : "");
        between = "; ";
        end = "\n";
    }
    if (w->planned_model != NULL) {
        dtp_mesh_print(w->mesh, here);
        dtp_mesh_print(w->planned_mesh, planned);
        dtp_strbuf_addf(out, "%sverified on %s for %s", between, here, planned);
        between = ", with ";
        end = "\n";
        for (int32_t i = 0; i < w->model->n_given; i++) {
            const dtp_dim_override *is = &w->model->given[i], *was = &w->planned_model->given[i];
            if (is->size != was->size) {
                dtp_strbuf_addf(out, "%s%s=%" PRId64 " for %" PRId64, between, is->name, is->size,
                                was->size);
                between = ", ";
            }
        }
    }
    dtp_strbuf_add(out, end);
}

void dtp_verify_text(const dtp_verify_result *v, const dtp_verified *what, dtp_strbuf *out)
{
    const char *failed[DTP_VERIFY_N_KINDS];
    const int32_t n_failed = failed_kinds(v, failed);
    dtp_strbuf_addf(out, "verify: %d rank%s against one device, %d step%s, tolerance %g", v->ranks,
                    v->ranks == 1 ? "" : "s", v->steps, v->steps == 1 ? "" : "s", v->tolerance);
    if (v->compute_tolerance != v->tolerance) {
        dtp_strbuf_addf(out, ", %g of outputs and gradients", v->compute_tolerance);
    }
    if (v->skipped > 0) {
        dtp_strbuf_addf(out, "; %d steps skipped, whose gradients overflow f16", v->skipped);
    }
    dtp_strbuf_add(out, "\n");
    add_verified(what, out);
    for (int kind = 0; kind < (int)DTP_VERIFY_N_KINDS; kind++) {
        /* "  updates    FAIL   69 compared, worst 1.000e-03 at 'w1' step 2" */
        const dtp_verify_item *worst = dtp_verify_worst(v, (dtp_verify_kind)kind);
        int32_t n = 0;
        for (int32_t i = 0; i < v->n; i++) {
            n += (int)v->items[i].kind == kind;
        }
        if (worst != NULL) {
            dtp_strbuf_addf(out, "  %-10s %s  %4d compared, worst %.3e at '%s'",
                            dtp_verify_kind_name((dtp_verify_kind)kind),
                            within(v, worst) ? "pass" : "FAIL", n, worst->rel_err, worst->name);
            if (worst->step > 0) {
                dtp_strbuf_addf(out, " step %d", worst->step);
            }
            dtp_strbuf_add(out, "\n");
        }
    }
    for (int32_t i = 0; i < v->n; i++) {
        const dtp_verify_item *item = &v->items[i];
        if (!within(v, item)) {
            dtp_strbuf_addf(
                out, "  MISMATCH %s '%s' step %d: relative %.3e, absolute %.3e, largest %s %.3e\n",
                dtp_verify_kind_name(item->kind), item->name, item->step, item->rel_err,
                item->abs_err, item->kind == DTP_VERIFY_UPDATE ? "change" : "reference",
                item->ref_max);
        }
    }
    nan_text(v, out);
    dtp_strbuf_add(out, v->pass ? "pass" : "FAIL");
    for (int32_t i = 0; i < n_failed; i++) {
        dtp_strbuf_addf(out, "%s%s", i > 0 ? ", " : ": ", failed[i]);
    }
    dtp_strbuf_addf(out, ": max relative error %.3e\n", v->max_rel_err);
}

/* What was compared of one kind. */
typedef struct kind_items {
    const dtp_verify_result *v;
    dtp_verify_kind kind;
} kind_items;

static void item_row(tool_rows *rows, const void *user, int32_t i)
{
    const kind_items *items = user;
    const dtp_verify_item *x = &items->v->items[i];
    tool_row(rows, TOOL_FIELDS(FIELD_OBJECT_IF(
                       x->kind == items->kind && x->rel_err >= 0, x->name,
                       FIELD_REAL("max_rel_err", x->rel_err), FIELD_REAL("max_abs_err", x->abs_err),
                       FIELD_REAL("ref_max", x->ref_max), FIELD_INT("step", x->step),
                       FIELD_INT_IF(x->nan_step >= 0, "nan_step", x->nan_step))));
}

#define KIND_FIELD(v, k)                                                                           \
    FIELD_MAP(dtp_verify_kind_name(k), (v)->n, item_row, (&(kind_items){(v), (k)}))

static void dim_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_graph *model = user;
    tool_row(rows, TOOL_FIELDS(FIELD_INT(model->given[i].name, model->given[i].size)));
}

dtp_status dtp_verify_json(const dtp_verify_result *v, const dtp_verified *what, dtp_strbuf *out,
                           dtp_err *err)
{
    const dtp_graph *model = what->model, *was = what->planned_model;
    const bool smaller = was != NULL, other = smaller || what->planned_target != NULL;
    dtp_json_writer j = {0};
    const char *failed[DTP_VERIFY_N_KINDS];
    const int32_t n_failed = failed_kinds(v, failed);
    tool_report(
        &j, "dtp.verify/1",
        TOOL_FIELDS(
            HEAD_FIELDS(model->name, what->mesh, v->ranks),
            FIELD_MAP("dims", model->n_given, dim_row, model), FIELD_TEXT("target", what->target),
            FIELD_OBJECT_IF(
                other, "planned",
                FIELD_TEXT_IF(what->planned_target != NULL, "target", what->planned_target),
                FIELD_BOOL_IF(what->without_tf32, "tf32", true),
                FIELD_MESH_IF(smaller, what->planned_mesh),
                FIELD_MAP_IF(smaller, "dims", smaller ? was->n_given : 0, dim_row, was)),
            FIELD_INT("steps", v->steps), FIELD_INT("skipped_steps", v->skipped),
            FIELD_REAL("tolerance", v->tolerance),
            FIELD_REAL("compute_tolerance", v->compute_tolerance), FIELD_BOOL("pass", v->pass),
            FIELD_REAL("max_rel_err", v->max_rel_err), FIELD_TEXTS("failed", n_failed, failed),
            KIND_FIELD(v, DTP_VERIFY_INITIAL), KIND_FIELD(v, DTP_VERIFY_OUTPUT),
            KIND_FIELD(v, DTP_VERIFY_GRADIENT), KIND_FIELD(v, DTP_VERIFY_UPDATE),
            FIELD_REALS("loss", v->losses != NULL ? v->steps : 0, v->losses),
            FIELD_REALS("reference_loss", v->ref_losses != NULL ? v->steps : 0, v->ref_losses),
            FIELD_OBJECT("predicted", FIELD_INT("peak_bytes", v->predicted_peak_bytes),
                         FIELD_INTS_IF(v->predicted_bytes != NULL, "peak_bytes_per_rank", v->ranks,
                                       v->predicted_bytes)),
            FIELD_OBJECT("measured", FIELD_INTS("peak_bytes_per_rank", v->ranks, v->peak_bytes))));
    return take_text(&j, out, err);
}
