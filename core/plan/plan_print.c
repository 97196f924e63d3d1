/* A plan as text for people. */
#include <inttypes.h>

#include "core/plan/plan_internal.h"

void dtp_bounds_print(int64_t cost, const char *unit, int64_t bound, double gap, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "cost %" PRId64 "%s, bound %" PRId64 ", gap %.4f %%", cost, unit, bound,
                    100.0 * gap);
}

static void print_prediction(const char *name, const dtp_prediction *p, double best, bool fits,
                             dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-22s %12.6f %12.6f %12.6f %14" PRId64 " %8.2fx%s\n", name,
                    p->step_time_s, p->compute_s, p->comm_s, p->peak_bytes,
                    best > 0.0 ? p->step_time_s / best : 1.0,
                    fits ? "" : "  over the memory limit");
}

static void print_predictions(const dtp_plan *plan, dtp_strbuf *out)
{
    const double best = plan->predicted.step_time_s;
    if (plan->machine == NULL) {
        dtp_strbuf_addf(out, "\npeak bytes per rank: %" PRId64 "\n", plan->predicted.peak_bytes);
        return;
    }
    dtp_strbuf_addf(out, "\n%-22s %12s %12s %12s %14s %9s\n", "predicted per step", "total s",
                    "compute s", "comm s", "peak bytes", "vs plan");
    print_prediction("this plan", &plan->predicted, best, true, out);
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        if (b->legal) {
            print_prediction(b->name, &b->predicted, best, dtp_plan_baseline_fits(plan, b), out);
        } else {
            dtp_strbuf_addf(out, "%-22s not applicable: %s\n", b->name, b->why);
        }
    }
}

static void print_choices(const dtp_plan *plan, const dtp_graph *g, dtp_strbuf *out)
{
    const dtp_graph_variant *c = &plan->variant;
    if (c->precision.compute != DTP_F32) {
        dtp_strbuf_addf(out, "precision: %s, gradients of parameters %s\n",
                        dtp_dtype_name(c->precision.compute),
                        dtp_dtype_name(c->precision.gradients));
    }
    for (int32_t i = 0; i < c->remat.n; i++) {
        dtp_strbuf_addf(out, "%s%s%s", i == 0 ? "recomputed: " : ", ", c->remat.items[i],
                        i + 1 == c->remat.n ? "\n" : "");
    }
    if (plan->overlap.depth > 0) {
        dtp_strbuf_addf(out, "overlap: depth %d\n", plan->overlap.depth);
    }
    if (plan->overlap.bucket_bytes > DTP_BUCKET_BYTES) {
        dtp_strbuf_addf(out, "buckets: %lld bytes\n", (long long)plan->overlap.bucket_bytes);
    }
    if (c->microbatches > 1) {
        dtp_strbuf_addf(out, "microbatches: %d of '%s'\n", c->microbatches,
                        dtp_dims_name(&g->dims, g->micro_dims[0]));
    }
}

void dtp_plan_print(const dtp_plan *plan, const dtp_graph *g, dtp_strbuf *out)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&plan->mesh, mesh);
    dtp_strbuf_addf(out, "model %s on mesh '%s', %s%s\n", plan->model, mesh,
                    plan->machine != NULL ? "machine " : "no machine",
                    plan->machine != NULL ? plan->machine : "");
    if (strcmp(plan->target, dtp_plan__default_target) != 0) {
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
        dtp_strbuf_addf(out, "pin: %s\n", plan->pins[i]);
    }
    for (int32_t i = 0; i < plan->n_tried; i++) {
        dtp_strbuf_addf(out, "tried: %s\n", plan->tried[i]);
    }
    const dtp_certificate *c = &plan->certificate;
    const bool time = plan->objective == DTP_OBJECTIVE_TIME;
    dtp_strbuf_addf(out, "certificate: %s, ", dtp_cert_status_name(c->status));
    dtp_bounds_print(c->cost, time ? " ps" : " bytes", c->bound, c->gap, out);
    dtp_strbuf_addf(out, " (%s, %" PRId64 " nodes)\n", c->solver, c->nodes);
    if (c->ended != DTP_STOP_NONE) {
        dtp_strbuf_addf(out, "ended early: %s; the plan is the best one found so far\n",
                        dtp_stop_reasons[c->ended]);
    }
    if (c->least_cost < c->cost) {
        dtp_strbuf_addf(
            out,
            "makespan: the plan is taken for its step time; the least cost found is %" PRId64
            " ps, gap %.4f %%\n",
            c->least_cost, 100.0 * dtp_gap(c->least_cost, c->bound));
    }
    if (c->has_untied) {
        dtp_strbuf_addf(out,
                        "layer tying: bound %" PRId64 " if every instance of a block decided for "
                        "itself, so it costs at most %" PRId64 " ps, %.4f %%\n",
                        c->untied_bound, c->least_cost - c->untied_bound, 100.0 * c->untied_gap);
    }
    for (int32_t i = 0; i < c->n_prices; i++) {
        const dtp_shadow_price *p = &c->prices[i];
        dtp_strbuf_addf(out, "shadow price of '%s': %" PRId64 " ps%s%s\n", p->constraint,
                        p->saves_ps, p->relaxed_by_bytes > 0 ? " for 1 GiB more" : "",
                        p->exact ? "" : " (not proven)");
    }
    print_predictions(plan, out);
    dtp_strbuf_add(out, "\ncollectives per step:");
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        const dtp_coll_total *t = &plan->predicted.collectives[i];
        if (t->count > 0) {
            dtp_strbuf_addf(out, " %s %" PRId64 " (%" PRId64 " bytes)", t->kind, t->count,
                            t->bytes);
        }
    }
    dtp_strbuf_add(out, "\n");
}
