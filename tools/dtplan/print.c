#include "tools/dtplan/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report.h"
#include "core/graph/op_rules.h"

static const char *const KINDS[] = {"input", "param", "state", "value"};
static const char *const PHASES[] = {"forward", "backward", "update"};

const char *tool_tensor_kind(dtp_tensor_kind kind)
{
    return KINDS[kind];
}

/* ---- graph --------------------------------------------------------------------------------------
 */

static void print_attr(const dtp_graph *g, const dtp_op_def *op, int32_t index, const dtp_attr *a,
                       dtp_strbuf *out)
{
    switch (a->kind) {
    case DTP_ATTR_FLOAT:
        dtp_strbuf_addf(out, " %s=%g", a->key, a->f);
        break;
    case DTP_ATTR_ENUM:
        dtp_strbuf_addf(out, " %s=%s", a->key, op->attrs[index].choices[a->i]);
        break;
    case DTP_ATTR_DTYPE:
        dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dtype_name((dtp_dtype)a->i));
        break;
    case DTP_ATTR_DIM:
        dtp_strbuf_addf(out, " %s=%s", a->key, dtp_dims_name(&g->dims, (dtp_dim_id)a->i));
        break;
    case DTP_ATTR_DIMS:
        for (int32_t i = 0; i < a->n; i++) {
            dtp_strbuf_addf(out, "%s%s", i == 0 ? " over=" : "+",
                            dtp_dims_name(&g->dims, a->ids[i]));
        }
        break;
    case DTP_ATTR_INT:
    case DTP_ATTR_BOOL:
        dtp_strbuf_addf(out, " %s=%" PRId64, a->key, a->i);
        break;
    }
}

static void print_node(const dtp_graph *g, const dtp_node *n, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-8s %s = %s(", PHASES[n->phase], n->name, n->op->name);
    for (int32_t i = 0; i < n->n_in; i++) {
        dtp_strbuf_addf(out, "%s%s", i > 0 ? ", " : "", g->tensors[n->in[i]].name);
    }
    dtp_strbuf_add(out, ")");
    for (int32_t i = 0; i < n->n_attrs; i++) {
        print_attr(g, n->op, i, &n->attrs[i], out);
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        char type[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&g->tensors[n->out[i]].type, &g->dims, type);
        dtp_strbuf_addf(out, "%s %s", i == 0 ? " ->" : ",", type);
    }
    dtp_strbuf_add(out, "\n");
}

void tool_print_graph(const dtp_graph *g, dtp_strbuf *out)
{
    int64_t elems = 0, bytes = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (tensor->kind == DTP_TENSOR_VALUE) {
            continue;
        }
        char type[DTP_TTYPE_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_strbuf_addf(out, "%-8s %s %s\n", KINDS[tensor->kind], tensor->name, type);
        bool param = tensor->kind == DTP_TENSOR_PARAM;
        elems += param ? dtp_ttype_elems(&tensor->type) : 0;
        bytes += tensor->kind == DTP_TENSOR_INPUT ? 0 : dtp_ttype_bytes(&tensor->type);
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        print_node(g, &g->nodes[n], out);
    }
    dtp_strbuf_addf(out,
                    "# %s: %d tensors, %d nodes, %" PRId64 " parameters, %" PRId64
                    " bytes of parameters and optimizer state\n",
                    g->name, g->n_tensors, g->n_nodes, elems, bytes);
}

/* ---- strategies ---------------------------------------------------------------------------------
 */

static void print_place(const dtp_graph *g, const dtp_ttype *type, const dtp_placement *p,
                        dtp_strbuf *out)
{
    if (p->kind == DTP_SHARD) {
        dtp_strbuf_addf(out, "S(%s)", dtp_dims_name(&g->dims, type->dims[p->axis].id));
    } else if (p->kind == DTP_PARTIAL) {
        dtp_strbuf_addf(out, "P(%s)", dtp_reduce_op_name((dtp_reduce_op)p->op));
    } else {
        dtp_strbuf_add(out, "R");
    }
}

void tool_print_strategies(const dtp_graph *g, dtp_strbuf *out)
{
    for (int32_t n = 0; n < g->n_nodes; n++) {
        dtp_call_types types;
        dtp_sharding_rules set;
        dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
        dtp_sharding_rules_of(&call, true, &set);
        dtp_strbuf_addf(out, "%s (%s): %d rows on one mesh dim\n", g->nodes[n].name, call.op->name,
                        set.n);
        for (int32_t r = 0; r < set.n; r++) {
            const dtp_sharding_rule *row = &set.rows[r];
            dtp_strbuf_addf(out, "  %2d ", r);
            for (int32_t i = 0; i < call.n_in; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.in[i], &row->in[i], out);
            }
            dtp_strbuf_add(out, " -> ");
            for (int32_t i = 0; i < call.n_out; i++) {
                dtp_strbuf_add(out, i > 0 ? ", " : "");
                print_place(g, &call.out[i], &row->out[i], out);
            }
            dtp_strbuf_add(out, row->internal ? "  (as its decomposition)\n" : "\n");
        }
    }
}

/* ---- plan ---------------------------------------------------------------------------------------
 */

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
    const dtp_graph_variant *c = &plan->choices;
    for (int32_t i = 0; i < c->remat.n; i++) {
        dtp_strbuf_addf(out, "%s%s%s", i == 0 ? "recomputed: " : ", ", c->remat.items[i],
                        i + 1 == c->remat.n ? "\n" : "");
    }
    if (c->microbatches > 1) {
        dtp_strbuf_addf(out, "microbatches: %d of '%s'\n", c->microbatches,
                        dtp_dims_name(&g->dims, g->micro_dims[0]));
    }
}

void tool_print_plan(const dtp_plan *plan, const dtp_graph *g, dtp_strbuf *out)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&plan->mesh, mesh);
    dtp_strbuf_addf(out, "model %s on mesh '%s', %s%s\n", plan->model, mesh,
                    plan->machine != NULL ? "machine " : "no machine",
                    plan->machine != NULL ? plan->machine : "");
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
    tool_print_bounds(c->cost, time ? " ps" : " bytes", c->bound, c->gap, out);
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
    if (c->has_unfolded) {
        dtp_strbuf_addf(out,
                        "folding: bound %" PRId64 " if every instance of a block decided for "
                        "itself, so it costs at most %" PRId64 " ps, %.4f %%\n",
                        c->unfolded_bound, c->least_cost - c->unfolded_bound,
                        100.0 * c->unfolded_gap);
    }
    for (int32_t i = 0; i < c->n_prices; i++) {
        const dtp_shadow_price *p = &c->prices[i];
        dtp_strbuf_addf(out, "price of '%s': %" PRId64 " ps%s%s\n", p->constraint, p->saves_ps,
                        p->relaxed_by_bytes > 0 ? " for 1 GiB more" : "",
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

void tool_print_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_strbuf *out)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        char type[DTP_TTYPE_TEXT_BYTES], layout[DTP_LAYOUT_TEXT_BYTES];
        dtp_ttype_print(&tensor->type, &g->dims, type);
        dtp_layout_print(&s->layouts[t], &s->mesh, &tensor->type, &g->dims, layout);
        dtp_strbuf_addf(out, "%-8s %s %s: %s\n", KINDS[tensor->kind], tensor->name, type, layout);
    }
}

/* ---- memory -------------------------------------------------------------------------------------
 */

typedef struct buffer {
    int64_t offset;
    dtp_value_id value;
} buffer;

static int by_offset(const void *a, const void *b)
{
    const buffer *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->value > y->value) - (x->value < y->value);
}

void tool_print_memory(const dtp_program *p, dtp_strbuf *out)
{
    static const char *const kinds[] = {"resident", "input", "temp", "staging", "workspace"};
    buffer *list = calloc((size_t)p->n_values + 1, sizeof *list);
    int32_t n = 0;
    if (list == NULL) {
        out->failed = true;
        return;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].parent < 0) {
            list[n++] = (buffer){p->values[v].offset, v};
        }
    }
    qsort(list, (size_t)n, sizeof *list, by_offset);
    dtp_strbuf_addf(out, "# peak %" PRId64 " bytes per rank, %d buffers\n", p->peak_bytes, n);
    dtp_strbuf_addf(out, "%14s %14s %10s %7s..%-7s %s\n", "offset", "bytes", "kind", "first",
                    "last", "value");
    for (int32_t i = 0; i < n; i++) {
        const dtp_value *v = &p->values[list[i].value];
        dtp_strbuf_addf(out, "%14" PRId64 " %14" PRId64 " %10s %7d..%-7d %s\n", v->offset, v->bytes,
                        kinds[v->kind], v->first, v->last, v->name);
    }
    free(list);
}
