/* A plan as text for people. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "core/base/glob.h"
#include "core/plan/plan_internal.h"

enum { MOST_TRIED = 3 }; /* texts of a search that are printed */

void dtp_pin_print(const char *pin, dtp_strbuf *out)
{
    const bool memory = strncmp(pin, "memory ", 7) == 0; /* a number of bytes follows */
    dtp_strbuf_addf(out, "%s%s", memory ? "memory " : pin,
                    memory ? dtp_byte_count(strtod(pin + 7, NULL)).text : "");
}

/* Of an additive cost, in picoseconds. */
static dtp_quantity cost_text(int64_t ps)
{
    return dtp_seconds(1e-12 * (double)ps);
}

/* Of the step. */
static void print_step_bound(const dtp_plan *plan, dtp_strbuf *out)
{
    const dtp_certificate *c = &plan->certificate;
    const double step_s = plan->predicted.step_time_s, bound_s = 1e-12 * (double)c->step_bound;
    if (c->step_bound > 0) {
        dtp_strbuf_addf(
            out, "step: no plan of this mesh%s takes less than %s, this one %s, %.1f %% more\n",
            c->has_untied ? " with equal layers" : "", dtp_seconds(bound_s).text,
            dtp_seconds(step_s).text, 100.0 * (step_s / bound_s - 1.0));
    }
}

static void print_fastest(const dtp_plan *plan, dtp_strbuf *out)
{
    const dtp_plan_fastest *f = &plan->fastest;
    const double more = plan->predicted.step_time_s / f->step_time_s - 1.0;
    const double less = (double)(f->peak_bytes - plan->predicted.peak_bytes);
    if (f->step_time_s > 0.0 && more > 0.0) {
        dtp_strbuf_addf(out,
                        "slack: the fastest plan found takes %s and %s; this one takes %.2f %% "
                        "more time and %s %s memory (--slack %g)\n",
                        dtp_seconds(f->step_time_s).text,
                        dtp_byte_count((double)f->peak_bytes).text, 100.0 * more,
                        dtp_byte_count(fabs(less)).text, less < 0.0 ? "more" : "less", f->slack);
    }
}

/* Cost and bound are picoseconds or, of the memory objective, bytes. */
static void print_bounds(const dtp_plan *plan, dtp_strbuf *out)
{
    const dtp_certificate *c = &plan->certificate;
    const bool time = plan->objective == DTP_OBJECTIVE_TIME;
    dtp_strbuf_addf(out, "cost %s, bound %s, gap %.4f %%",
                    time ? cost_text(c->cost).text : dtp_byte_count((double)c->cost).text,
                    time ? cost_text(c->bound).text : dtp_byte_count((double)c->bound).text,
                    100.0 * c->gap);
}

static void print_prediction(const char *name, const dtp_prediction *p, double best, bool fits,
                             dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-17s %9s %9s %9s %9s %9s %8.2fx%s\n", name,
                    dtp_seconds(p->step_time_s).text, dtp_seconds(p->compute_s).text,
                    dtp_seconds(p->comm_s).text, dtp_seconds(p->exposed_comm_s).text,
                    dtp_byte_count((double)p->peak_bytes).text,
                    best > 0.0 ? p->step_time_s / best : 1.0, fits ? "" : "*");
}

/* The plan under its target and under another one, side by side; rows that say nothing of both are
 * left out. */
static void print_targets(const dtp_plan *plan, const dtp_plan_elsewhere *other, dtp_strbuf *out)
{
    enum { NAME, RATES, STEP, TOKENS, EACH, MFU, PEAK, RESERVED, N_ROWS };
    static const char *const names[N_ROWS] = {
        "", "rates", "step", "tokens/s", "  of a device", "MFU", "peak", "  reserved"};
    const dtp_prediction *both[] = {&plan->predicted, &other->predicted};
    char cells[N_ROWS][2][40];
    const bool over = other->limit_bytes > 0 && both[1]->peak_bytes > other->limit_bytes;
    for (int i = 0; i < 2; i++) {
        const dtp_prediction *p = both[i];
        const int64_t taken = p->reserved_bytes > 0 ? p->reserved_bytes : p->peak_bytes;
        const double tokens = p->tokens_per_s;
        const bool any = tokens > 0.0;
        (void)snprintf(cells[NAME][i], 40, "%s", i == 0 ? plan->target : other->target);
        (void)snprintf(cells[RATES][i], 40, "%s", i == 0 ? plan->rates : other->rates);
        (void)snprintf(cells[STEP][i], 40, "%s", dtp_seconds(p->step_time_s).text);
        (void)snprintf(cells[TOKENS][i], 40, any ? "%.0f" : "-", tokens);
        (void)snprintf(cells[EACH][i], 40, any ? "%.0f" : "-",
                       tokens / dtp_mesh_ranks(&plan->mesh));
        (void)snprintf(cells[MFU][i], 40, p->mfu > 0.0 ? "%.1f %%" : "-", 100.0 * p->mfu);
        (void)snprintf(cells[PEAK][i], 40, "%s%s", dtp_byte_count((double)p->peak_bytes).text,
                       i == 1 && over ? "*" : "");
        (void)snprintf(cells[RESERVED][i], 40, "%s", dtp_byte_count((double)taken).text);
    }
    dtp_strbuf_add(out, "\nthis plan by the target that runs it:\n");
    for (int r = 0; r < N_ROWS; r++) {
        const bool empty = strcmp(cells[r][0], "-") == 0 && strcmp(cells[r][1], "-") == 0;
        if (!empty) {
            dtp_strbuf_addf(out, "%-17s %13s %13s\n", names[r], cells[r][0], cells[r][1]);
        }
    }
    dtp_strbuf_add(out, over ? "* over the memory limit\n" : "");
}

/* Where the time of the plan goes, and what people compare. */
static void print_throughput(const dtp_plan *plan, const dtp_plan_elsewhere *other, dtp_strbuf *out)
{
    static const char *const names[DTP_N_COMPUTE_PARTS] = {"products", "attention", "its gradient",
                                                           "memory-bound", "launches"};
    const dtp_prediction *p = &plan->predicted;
    const char *datasheet = strcmp(plan->rates, "datasheet") == 0 ? " (datasheet)" : "";
    const int32_t devices = dtp_mesh_ranks(&plan->mesh);
    bool any = false;
    for (int32_t i = 0; i < DTP_N_COMPUTE_PARTS; i++) {
        if (p->compute_parts_s[i] > 0.0) {
            dtp_strbuf_addf(out, "%s %s %s", any ? "," : "compute:", names[i],
                            dtp_seconds(p->compute_parts_s[i]).text);
            any = true;
        }
    }
    if (p->host_s > 0.0) {
        dtp_strbuf_addf(out, "%s waiting for the host %s",
                        any ? ";" : "compute:", dtp_seconds(p->host_s).text);
    }
    any = any || p->host_s > 0.0;
    if (p->skew_s > 0.0) {
        dtp_strbuf_addf(out, "%s skew %s", any ? ";" : "compute:", dtp_seconds(p->skew_s).text);
    }
    dtp_strbuf_add(out, any || p->skew_s > 0.0 ? "\n" : "");
    if (other != NULL) {
        print_targets(plan, other, out);
        return;
    }
    if (p->reserved_bytes > 0) {
        dtp_strbuf_addf(out, "memory: %s allocated at the peak, %s reserved\n",
                        dtp_byte_count((double)p->peak_bytes).text,
                        dtp_byte_count((double)p->reserved_bytes).text);
    }
    if (p->tokens_per_s > 0.0) {
        dtp_strbuf_addf(out, "tokens: %.0f/s, %.0f/s per device", p->tokens_per_s,
                        p->tokens_per_s / devices);
        if (p->mfu > 0.0) {
            dtp_strbuf_addf(out, ", MFU %.1f %%", 100.0 * p->mfu);
        }
        dtp_strbuf_addf(out, "%s\n", datasheet);
        if (p->vain > 0.0) {
            dtp_strbuf_addf(out, "in vain: %.1f %%, slots of experts that hold no token\n",
                            100.0 * p->vain);
        }
    }
}

static void print_predictions(const dtp_plan *plan, const dtp_plan_elsewhere *other,
                              dtp_strbuf *out)
{
    const double best = plan->predicted.step_time_s;
    if (plan->machine == NULL) {
        dtp_strbuf_addf(out, "\npeak per rank: %s\n",
                        dtp_byte_count((double)plan->predicted.peak_bytes).text);
        return;
    }
    const bool datasheet = strcmp(plan->rates, "datasheet") == 0;
    dtp_strbuf_addf(out, "\npredicted per step%s:\n%-17s %9s %9s %9s %9s %9s %9s\n",
                    datasheet ? ", at rates of the datasheet" : "", "", "step", "compute", "comm",
                    "exposed", "peak", "vs plan");
    print_prediction("this plan", &plan->predicted, best, true, out);
    bool all_fit = true;
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        if (b->legal) {
            const bool fits = dtp_plan_baseline_fits(plan, b);
            print_prediction(b->name, &b->predicted, best, fits, out);
            all_fit = all_fit && fits;
        } else {
            dtp_strbuf_addf(out, "%-17s not applicable: %s\n", b->name, b->why);
        }
    }
    dtp_strbuf_add(out, all_fit ? "" : "* over the memory limit\n");
    print_throughput(plan, other, out);
}

static void print_frozen(const dtp_graph *g, dtp_strbuf *out)
{
    double all = 0.0, frozen = 0.0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        const double n = (double)dtp_ttype_elems(&tensor->type);
        all += tensor->kind == DTP_TENSOR_PARAM ? n : 0.0;
        frozen += tensor->frozen ? n : 0.0;
    }
    if (frozen > 0.0 && g->loss >= 0) {
        dtp_strbuf_addf(out, "frozen: %s of %s parameters\n", dtp_amount(frozen).text,
                        dtp_amount(all).text);
    }
}

static void print_choices(const dtp_plan *plan, const dtp_graph *g, dtp_strbuf *out)
{
    const dtp_graph_variant *c = &plan->variant;
    print_frozen(g, out);
    dtp_strbuf_add(out,
                   c->outputs.chosen ? c->outputs.n > 0 ? "outputs: " : "outputs: none\n" : "");
    for (int32_t i = 0; i < c->outputs.n; i++) {
        dtp_strbuf_addf(out, "%s%s", c->outputs.names[i], i + 1 == c->outputs.n ? "\n" : ", ");
    }
    if (c->precision.tf32) {
        dtp_strbuf_add(out, "precision: f32, products tf32\n");
    } else if (c->precision.compute != DTP_F32) {
        const char *products = dtp_precision_products(&c->precision);
        dtp_strbuf_addf(out, "precision: %s%s%s, gradients of parameters %s\n",
                        dtp_dtype_name(c->precision.compute),
                        products != NULL ? ", products in blocks " : "",
                        products != NULL ? products : "", dtp_dtype_name(c->precision.gradients));
    }
    for (int32_t i = 0; i < c->remat.n; i++) {
        const bool last = i + 1 == c->remat.n;
        dtp_strbuf_addf(out, "%s%s%s", i == 0 ? "recomputed: " : " ", c->remat.items[i],
                        last ? "\n" : dtp_remat_separator(c->remat.items[i]));
    }
    const char *again = c->regather;
    char item[DTP_GLOB_BYTES];
    for (int32_t i = 0; again != NULL && dtp_glob_next(&again, item); i++) {
        const bool many = i == MOST_TRIED && *again != '\0';
        dtp_strbuf_addf(out, "%s%s%s", i == 0 ? "gathered again: " : ", ", many ? "..." : item,
                        many || *again == '\0' ? "\n" : "");
        again = many ? NULL : again;
    }
    if (plan->overlap.depth > 0) {
        dtp_strbuf_addf(out, "overlap: depth %d\n", plan->overlap.depth);
    }
    if (plan->overlap.bucket_bytes > 0 && plan->overlap.bucket_bytes != DTP_BUCKET_BYTES) {
        dtp_strbuf_addf(out, "buckets: %s\n",
                        dtp_byte_count((double)plan->overlap.bucket_bytes).text);
    }
    if (c->microbatches > 1) {
        dtp_strbuf_addf(out, "microbatches: %d of '%s'\n", c->microbatches,
                        dtp_dims_name(&g->dims, g->micro_dims[0]));
    }
    for (int32_t s = 0; s < dtp_stage_choice_chunks(&c->stages); s++) {
        dtp_strbuf_addf(out, "%s%s", s == 0 ? "stages: " : ", ", c->stages.borders[s]);
    }
    if (c->stages.n > 1) {
        if (c->stages.chunks > 1) {
            dtp_strbuf_addf(out, "; %d chunks on each of %d stages", c->stages.chunks, c->stages.n);
        }
        dtp_strbuf_addf(out, "; %d microbatches in flight on the first\n", dtp_stage_slots(g, 0));
        dtp_strbuf_addf(out, "bubble: %s, imbalance %s, exposed sends %s\n",
                        dtp_seconds(plan->predicted.bubble_s).text,
                        dtp_seconds(plan->predicted.imbalance_s).text,
                        dtp_seconds(plan->predicted.exposed_sends_s).text);
    }
}

void dtp_plan_print_tried(int32_t n, const char *const *tried, dtp_strbuf *out)
{
    const int32_t shown = n > MOST_TRIED ? MOST_TRIED : n;
    for (int32_t i = 0; i < shown; i++) {
        dtp_strbuf_addf(out, "tried: %s\n", tried[i]);
    }
    if (n > shown) {
        dtp_strbuf_addf(out, "tried: %d more\n", (int)(n - shown));
    }
}

/* What the form costs beside the best plan of any form. */
static void print_expressible(const dtp_plan *plan, dtp_strbuf *out)
{
    const dtp_plan_expressible *e = &plan->expressible;
    const bool time = plan->objective == DTP_OBJECTIVE_TIME;
    const double all = time ? e->all_step_time_s : (double)e->all_peak_bytes;
    const double own = time ? plan->predicted.step_time_s : (double)plan->predicted.peak_bytes;
    if (e->form == NULL) {
        return;
    }
    dtp_strbuf_addf(out, "expressible as %s: ", e->form);
    if (own > all) {
        dtp_strbuf_addf(out, "%s, %.2f %% more than the best plan of any form (%s)",
                        time ? dtp_seconds(own).text : dtp_byte_count(own).text,
                        100.0 * (own / all - 1.0),
                        time ? dtp_seconds(all).text : dtp_byte_count(all).text);
    } else {
        dtp_strbuf_add(out, "no slower than the best plan of any form");
    }
    dtp_strbuf_add(out, e->bounded ? "; the bound covers plans of this form only\n"
                                   : "; the bound covers plans of every form\n");
    if (e->by != NULL) {
        const bool modules = strcmp(e->by, "modules") == 0;
        const double other = time ? e->other_step_time_s : (double)e->other_peak_bytes;
        const char *name = modules ? "placements alone" : "modules";
        dtp_strbuf_addf(out, "form: %s; ",
                        modules ? "modules (parallelize_module, fully_shard)" : "placements alone");
        if (e->failing != NULL) {
            dtp_strbuf_addf(out, "placements alone are left out: %s\n", e->failing);
        } else if (other > 0.0) {
            dtp_strbuf_addf(out, "the best plan by %s: %s, %.2f %% %s\n", name,
                            time ? dtp_seconds(other).text : dtp_byte_count(other).text,
                            100.0 * fabs(other / own - 1.0), other < own ? "less" : "more");
        } else {
            dtp_strbuf_addf(out, "no plan by %s was found\n", name);
        }
    }
}

void dtp_plan_print(const dtp_plan *plan, const dtp_graph *g, const dtp_plan_elsewhere *other,
                    dtp_strbuf *out)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&plan->mesh, mesh);
    dtp_strbuf_addf(out, "model %s on mesh '%s', %s%s\n", plan->model, mesh,
                    plan->machine != NULL ? "machine " : "no machine",
                    plan->machine != NULL ? plan->machine : "");
    if (plan->runtime[0] != '\0') {
        dtp_strbuf_addf(out, "target %s, rates of runtime %s (%s)\n", plan->target, plan->runtime,
                        plan->rates);
    } else if (strcmp(plan->target, dtp_plan__default_target) != 0) {
        dtp_strbuf_addf(out, "target %s\n", plan->target);
    }
    if (plan->rules_mode) {
        const char *rules =
            dtp_layout_rules_print(&plan->rules, &plan->mesh, &g->dims, plan->arena);
        out->failed = out->failed || rules == NULL;
        dtp_strbuf_addf(out, "rules: %s\n",
                        rules == NULL || rules[0] == '\0' ? "(all replicated)" : rules);
    }
    print_choices(plan, g, out);
    for (int32_t i = 0; i < plan->n_pins; i++) {
        dtp_strbuf_add(out, "pin: ");
        dtp_pin_print(plan->pins[i], out);
        dtp_strbuf_add(out, "\n");
    }
    dtp_plan_print_tried(plan->n_tried, plan->tried, out);
    print_expressible(plan, out);
    const dtp_certificate *c = &plan->certificate;
    print_fastest(plan, out);
    print_step_bound(plan, out);
    dtp_strbuf_addf(out, "certificate: %s, ", dtp_cert_status_name(c->status));
    print_bounds(plan, out);
    dtp_strbuf_addf(out, " (%s, %" PRId64 " nodes)\n", c->solver, c->nodes);
    if (c->ended != DTP_STOP_NONE) {
        dtp_strbuf_addf(out, "ended early: %s; the plan is the best one found so far\n",
                        dtp_stop_reasons[c->ended]);
    }
    if (c->least_cost < c->cost) {
        dtp_strbuf_addf(
            out,
            "makespan: the plan is taken for its step time; the least cost found is %s, "
            "gap %.4f %%\n",
            cost_text(c->least_cost).text, 100.0 * dtp_gap(c->least_cost, c->bound));
    }
    if (c->has_untied) {
        dtp_strbuf_addf(out,
                        "layer tying: bound %s if every instance of a block decided for itself, "
                        "so it costs at most %s, %.4f %%\n",
                        cost_text(c->untied_bound).text,
                        cost_text(c->least_cost - c->untied_bound).text, 100.0 * c->untied_gap);
    }
    for (int32_t i = 0; i < c->n_prices; i++) {
        const dtp_shadow_price *p = &c->prices[i];
        dtp_strbuf_add(out, "shadow price of '");
        dtp_pin_print(p->constraint, out);
        dtp_strbuf_addf(out, "': %s%s%s\n", cost_text(p->saves_ps).text,
                        p->relaxed_by_bytes > 0 ? " for 1 GiB more" : "",
                        p->exact ? "" : " (not proven)");
    }
    print_predictions(plan, other, out);
    bool none = true;
    dtp_strbuf_add(out, "\ncollectives per step:");
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        const dtp_coll_total *t = &plan->predicted.collectives[i];
        if (t->count > 0) {
            dtp_strbuf_addf(out, " %s %" PRId64 " (%s)", t->kind, t->count,
                            dtp_byte_count((double)t->bytes).text);
            none = false;
        }
    }
    dtp_strbuf_add(out, none ? " none\n" : "\n");
}
