/* dtplan sweep: step, throughput, memory and cost of plans by devices and batch. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "cost_models/machine/machine_set.h"
#include "planner/variant_search.h"
#include "tools/dtplan/inputs.h"
#include "tools/interrupt.h"
#include "tools/machines.h"
#include "tools/progress.h"

enum { MOST = 256 }; /* values of one list */

/* One plan. */
typedef struct sweep_row {
    int64_t devices, batch; /* 0: that of the model */
    dtp_prediction predicted;
    char mesh[DTP_MESH_TEXT_BYTES], with[160]; /* "--remat layer --microbatches 2"; why no plan */
    bool planned;
} sweep_row;

typedef struct sweep_command {
    tool_source source;
    int32_t n_devices, n_batches, n;
    int64_t devices[MOST], batches[MOST];
    sweep_row *rows; /* n of them are done */
    dtp_ctx ctx;
    char model[128]; /* its name */
    const char *rates;
    dtp_arena *arena;
} sweep_command;

static dtp_status read_list(const char *option, const char *text, int64_t *out, int32_t *n,
                            dtp_err *err)
{
    for (const char *at = text; text != NULL; at++) {
        if (*n == MOST) {
            return DTP_FAIL(err, DTP_INVALID, "%s: more than %d numbers", option, MOST);
        }
        if (!dtp_int_read(&at, &out[*n]) || out[*n] < 1 || out[*n] > 1 << 30 ||
            (*at != ',' && *at != '\0')) {
            return DTP_FAIL(err, DTP_INVALID, "%s: '%s' is not a list of numbers such as 64,128",
                            option, text);
        }
        (*n)++;
        if (*at == '\0') {
            break;
        }
    }
    return DTP_OK;
}

static void show_progress(void *user, const dtp_plan_progress *now)
{
    const sweep_command *c = user;
    const sweep_row *r = &c->rows[c->n];
    char note[128];
    (void)snprintf(note, sizeof note, "plan %d of %d, %" PRId64 " devices%s%s%s", c->n + 1,
                   c->n_devices * (c->n_batches > 0 ? c->n_batches : 1), r->devices,
                   now->best_s > 0.0 ? ", best " : "",
                   now->best_s > 0.0 ? dtp_seconds(now->best_s).text : "",
                   now->variant != NULL ? " .." : "");
    tool_progress_note(note);
}

/* A row that does not fit is planned with recomputation and microbatches, unless these are
 * given. */
static dtp_status plan_row(sweep_command *c, const dtp_graph *model, const dtp_machine *machine,
                           const tool_target *target, dtp_err *err)
{
    static const dtp_variant_search all = {.remat = true, .microbatches = true};
    sweep_row *r = &c->rows[c->n];
    dtp_plan_options o = dtp_plan_options_init();
    dtp_plan_result result;
    DTP_TRY(tool_plan_request(&c->source, target, &o, err));
    o.mode = strcmp(c->source.mode, "tensor") == 0 ? DTP_PLAN_TENSOR : DTP_PLAN_RULES;
    o.objective = DTP_OBJECTIVE_TIME;
    o.limit_s = c->source.limit_s;
    o.devices = (int32_t)r->devices;
    o.interrupted = tool_interrupted;
    o.progress = show_progress;
    o.user = c;
    o.ctx = &c->ctx;
    o.make_fit = true;
    DTP_TRY(dtp_plan_make(model, machine, &o, &result, err));
    if (result.infeasible) {
        const bool known = result.smallest_peak_bytes > 0;
        const int64_t least = known ? result.smallest_peak_bytes : result.smallest_bound;
        (void)snprintf(r->with, sizeof r->with, "does not fit %s: needs %s%s",
                       dtp_byte_count((double)result.memory_limit_bytes).text,
                       known ? "" : "more than ", dtp_byte_count((double)least).text);
    } else {
        const char *with = dtp_variant_text(&all, &result.plan->variant, c->arena);
        (void)snprintf(r->with, sizeof r->with, "%s", with != NULL ? with : "");
        dtp_mesh_print(&result.plan->mesh, r->mesh);
        r->predicted = result.plan->predicted;
        r->planned = true;
    }
    dtp_plan_result_free(&result);
    return DTP_OK;
}

/* More devices than the machine has: its outermost level has more members. */
static dtp_status make_row(sweep_command *c, int64_t devices, int64_t batch, dtp_err *err)
{
    tool_source source = c->source;
    dtp_graph *model = NULL;
    dtp_machine *machine = NULL;
    tool_target target;
    char dim[40], level[320];
    const char *const grown = level;
    c->rows[c->n] = (sweep_row){.devices = devices, .batch = batch};
    if (batch > 0) {
        (void)snprintf(dim, sizeof dim, "batch=%" PRId64, batch);
        if (source.dims.n == TOOL_LIST_MAX) {
            return DTP_FAIL(err, DTP_INVALID, "--dim: too many");
        }
        source.dims.items[source.dims.n++] = dim;
    }
    DTP_TRY(tool_read_graph(&source, &model, err));
    dtp_status s = tool_machine_of(&source, &machine, err);
    const int32_t last = s == DTP_OK ? machine->n_levels - 1 : -1;
    const int64_t inside =
        last >= 0 ? dtp_machine_devices(machine) / machine->levels[last].size : 1;
    if (last >= 0 && devices > dtp_machine_devices(machine) && devices % inside == 0) {
        (void)snprintf(level, sizeof level, "%.256s.size=%" PRId64, machine->levels[last].name,
                       devices / inside);
        (void)fprintf(stderr, "%" PRId64 " devices: %s\n", devices, level);
        s = dtp_machine_set(&machine, 1, &grown, err);
    }
    s = s == DTP_OK ? tool_target_find(&source, model->framework, machine, &target, err) : s;
    if (s == DTP_OK) {
        const char *rates = tool_rates(machine, NULL);
        (void)snprintf(c->model, sizeof c->model, "%s", model->name);
        c->rates = rates != NULL ? dtp_arena_strdup(c->arena, rates) : NULL;
        tool_progress_begin("planning");
        s = plan_row(c, model, machine, &target, err);
        tool_progress_end();
    }
    dtp_machine_destroy(machine);
    dtp_graph_destroy(model);
    c->n += s == DTP_OK ? 1 : 0;
    return s;
}

/* ---- what is printed and written ---- */

/* Of 1e9 tokens; 0: no price, or the model has no tokens. */
static double cost_of(const sweep_command *c, const sweep_row *r)
{
    return r->predicted.tokens_per_s > 0.0 ? 1e9 / r->predicted.tokens_per_s / 3600.0 *
                                                 (double)r->devices * c->source.price_per_hour
                                           : 0.0;
}

/* Work per second: tokens, else samples, else steps; `each`: of a device. */
static double speed_of(const sweep_row *r, bool each)
{
    const double work = r->predicted.tokens_per_s > 0.0
                            ? r->predicted.tokens_per_s
                            : (double)(r->batch > 0 ? r->batch : 1) / r->predicted.step_time_s;
    return !r->planned ? 0.0 : each ? work / (double)r->devices : work;
}

/* "fastest", "cheapest": more work per second, of all devices and of one, than every other row. */
static const char *mark_of(const sweep_command *c, const sweep_row *r)
{
    bool best[2] = {r->planned, r->planned};
    for (int32_t i = 0; i < c->n; i++) {
        for (int each = 0; each < 2; each++) {
            best[each] = best[each] && (&c->rows[i] >= r ||
                                        speed_of(&c->rows[i], each != 0) < speed_of(r, each != 0));
            best[each] = best[each] && (&c->rows[i] <= r ||
                                        speed_of(&c->rows[i], each != 0) <= speed_of(r, each != 0));
        }
    }
    return c->n < 2             ? ""
           : best[0] && best[1] ? "fastest, cheapest"
           : best[0]            ? "fastest"
           : best[1]            ? "cheapest"
                                : "";
}

/* "fastest: 64 devices, batch 128". */
static void print_marked(const sweep_command *c, const char *mark, dtp_strbuf *out)
{
    for (int32_t i = 0; i < c->n; i++) {
        const sweep_row *r = &c->rows[i];
        if (strstr(mark_of(c, r), mark) != NULL) {
            dtp_strbuf_addf(out, "%s: %" PRId64 " devices", mark, r->devices);
            dtp_strbuf_addf(out, r->batch > 0 ? ", batch %" PRId64 "\n" : "\n", r->batch);
        }
    }
}

static void print_table(const sweep_command *c, dtp_strbuf *out)
{
    const bool priced = c->source.price_per_hour > 0.0;
    dtp_strbuf_addf(out, "%s on %s, %s mode%s\n\n", c->model, c->source.machine, c->source.mode,
                    tool_rates_note(c->rates));
    dtp_strbuf_addf(out, "devices  batch      step  tokens/s     each    MFU       peak%s  mesh\n",
                    priced ? " cost/1e9" : "");
    for (int32_t i = 0; i < c->n; i++) {
        const sweep_row *r = &c->rows[i];
        const dtp_prediction *p = &r->predicted;
        char batch[24] = "-";
        if (r->batch > 0) {
            (void)snprintf(batch, sizeof batch, "%" PRId64, r->batch);
        }
        dtp_strbuf_addf(out, "%7" PRId64 " %6s ", r->devices, batch);
        if (!r->planned) {
            dtp_strbuf_addf(out, "%s\n", r->with);
            continue;
        }
        dtp_strbuf_addf(out, "%9s ", dtp_seconds(p->step_time_s).text);
        if (p->tokens_per_s > 0.0) {
            dtp_strbuf_addf(out, "%9.0f %8.0f %5.1f%%", p->tokens_per_s,
                            p->tokens_per_s / (double)r->devices, 100.0 * p->mfu);
        } else {
            dtp_strbuf_addf(out, "%9s %8s %6s", "-", "-", "-");
        }
        dtp_strbuf_addf(out, " %10s", dtp_byte_count((double)p->peak_bytes).text);
        dtp_strbuf_addf(out, priced ? " %8.2f" : "", cost_of(c, r));
        dtp_strbuf_addf(out, "  %s\n", r->mesh);
        if (strcmp(r->with, "as it is") != 0) {
            dtp_strbuf_addf(out, "    with %s\n", r->with);
        }
    }
    dtp_strbuf_add(out, "\n");
    print_marked(c, "fastest", out);
    print_marked(c, "cheapest", out);
    if (c->n < c->n_devices * (c->n_batches > 0 ? c->n_batches : 1)) {
        dtp_strbuf_add(out, "ended early: further plans are not made\n");
    }
}

static void print_csv(const sweep_command *c, dtp_strbuf *out)
{
    dtp_strbuf_add(out, "model,machine,mesh,with,mark,devices,batch,step_s,tokens_per_s,"
                        "tokens_per_s_per_device,mfu,peak_bytes,cost_per_1e9_tokens\n");
    for (int32_t i = 0; i < c->n; i++) {
        const sweep_row *r = &c->rows[i];
        const dtp_prediction *p = &r->predicted;
        const char *const texts[] = {c->model, c->source.machine, r->mesh, r->with, mark_of(c, r)};
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
            dtp_strbuf_add(out, "\"");
            for (const char *at = texts[k]; *at != '\0'; at++) {
                dtp_strbuf_addf(out, *at == '"' ? "\"%c" : "%c", *at);
            }
            dtp_strbuf_add(out, "\",");
        }
        dtp_strbuf_addf(out, "%" PRId64 ",", r->devices);
        dtp_strbuf_addf(out, r->batch > 0 ? "%" PRId64 "," : ",", r->batch);
        if (r->planned) {
            dtp_strbuf_addf(out, "%.9g,%.9g,%.9g,%.6g,%" PRId64 ",", p->step_time_s,
                            p->tokens_per_s, p->tokens_per_s / (double)r->devices, p->mfu,
                            p->peak_bytes);
            dtp_strbuf_addf(out, c->source.price_per_hour > 0.0 ? "%.6g\n" : "\n", cost_of(c, r));
        } else {
            dtp_strbuf_add(out, ",,,,,\n");
        }
    }
}

/* ---- the command ---- */

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    sweep_command *c = command;
    dtp_strbuf text = {0};
    c->source.model = operands[0];
    DTP_TRY(read_list("--devices", c->source.device_counts, c->devices, &c->n_devices, err));
    DTP_TRY(read_list("--batch", c->source.batches, c->batches, &c->n_batches, err));
    if (c->n_devices == 0 || c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s is missing",
                        c->n_devices == 0 ? "--devices N,..." : "--machine FILE");
    }
    const int32_t n_batches = c->n_batches > 0 ? c->n_batches : 1;
    const int32_t n_rows = c->n_devices * n_batches;
    c->arena = dtp_arena_create();
    c->rows = calloc((size_t)n_rows, sizeof *c->rows);
    DTP_TRY(DTP_MEMORY(err, c->arena, c->rows));
    tool_interrupt_catch();
    for (int32_t i = 0; i < n_rows && !tool_interrupted(NULL); i++) {
        const int64_t batch = c->n_batches > 0 ? c->batches[i % n_batches] : 0;
        const dtp_status s = make_row(c, c->devices[i / n_batches], batch, err);
        if (s == DTP_STOPPED) {
            break; /* the rows that are there are printed */
        }
        DTP_TRY(s);
    }
    if (c->source.output != NULL) {
        print_csv(c, &text);
        DTP_TRY(tool_put_in(c->source.output, &text, err));
        dtp_strbuf_free(&text);
    }
    print_table(c, &text);
    return tool_put_text(&text, err);
}

int dtplan_sweep(int argc, char **argv)
{
    sweep_command c = {.ctx = dtp_ctx_default()};
    const tool_call call = {TOOL_SWEEP, execute, &c, &c.source, NULL};
    c.ctx.level = DTP_LOG_WARN;
    const int code = tool_run(&call, argc, argv);
    dtp_arena_destroy(c.arena);
    free(c.rows);
    return code;
}
