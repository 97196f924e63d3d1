/* The plan file (dtp/plan.h): the decision, what it is predicted to cost, and the certificate. */
#include "core/plan/plan.h"

#include "core/transform/regather.h"

#include <stdio.h>
#include <string.h>

#include "core/plan/plan_internal.h"
#include "core/graph/op_rules.h"

dtp_status dtp_plan_create(dtp_plan **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_plan *plan = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *plan);
    if (plan == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a plan");
    }
    plan->arena = arena;
    plan->model = "";
    plan->machine = "";
    plan->rates = "";
    plan->runtime = "";
    plan->target = dtp_plan__default_target;
    plan->overlap.bucket_bytes = DTP_BUCKET_BYTES;
    plan->certificate.solver = "";
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        plan->predicted.collectives[i].kind = dtp_plan__collectives[i];
    }
    *out = plan;
    return DTP_OK;
}

void dtp_plan_destroy(dtp_plan *plan)
{
    if (plan != NULL) {
        dtp_arena_destroy(plan->arena);
    }
}

bool dtp_plan_baseline_fits(const dtp_plan *plan, const dtp_baseline *b)
{
    return !b->legal || plan->memory_limit_bytes == 0 ||
           b->predicted.peak_bytes <= plan->memory_limit_bytes;
}

dtp_status dtp_plan_graph(const dtp_plan *plan, const dtp_graph *model, dtp_graph **out,
                          dtp_err *err)
{
    return dtp_graph_with_variant(model, &plan->variant, plan->n_implementations,
                                  plan->implementations, out, err);
}

const char dtp_plan__default_target[] = "cpu";
const char *const dtp_plan__compute_parts[] = {"products_s", "attention_s", "attention_grad_s",
                                               "memory_s",   "launch_s",    NULL};
const char *const dtp_plan__collectives[] = {"all_reduce", "all_gather",         "reduce_scatter",
                                             "all_to_all", "collective_permute", NULL};
const char *const dtp_plan__cert_statuses[] = {"optimal", "feasible", "infeasible", "time_limit",
                                               NULL};
const char *const dtp_plan__objectives[] = {"time", "memory", NULL};
const char *const dtp_plan__phases[] = {"forward", "backward", "update", NULL};

double dtp_gap(int64_t cost, int64_t bound)
{
    return cost > 0 ? (double)(cost - bound) / (double)cost : 0.0;
}

const char *dtp_cert_status_name(dtp_cert_status status)
{
    return dtp_plan__cert_statuses[status];
}

bool dtp_plan_redistribution_is(const dtp_plan_redistribution *r, const dtp_ttype *type,
                                const dtp_layout *from, const dtp_layout *to)
{
    return dtp_layout_equal(&r->from, from) && dtp_layout_equal(&r->after[r->n_steps - 1], to) &&
           dtp_ttype_same_sizes(&r->type, type);
}

/* ---- names of strategies ---- */

/* Appends at most `most` bytes of a text; returns the new length. */
static size_t append(char out[DTP_ROW_TEXT_BYTES], size_t used, const char *text, size_t most)
{
    const size_t room = DTP_ROW_TEXT_BYTES - 1 - used;
    const size_t limit = most < room ? most : room;
    size_t n = 0;
    while (n < limit && text[n] != '\0') {
        out[used + n] = text[n];
        n++;
    }
    out[used + n] = '\0';
    return used + n;
}

/* The name of a row without the number that makes it distinct; its length. Reading a plan asks for
 * tens of thousands, so there is no formatted printing in it. */
static size_t base_name(const dtp_sharding_rule *row, int32_t n_in, const dtp_dims *dims,
                        char out[DTP_ROW_TEXT_BYTES])
{
    enum { NAME = 160, HALF = 70 };
    size_t used = 0;
    bool splits = row->out[0].kind != DTP_REPLICATE;
    if (row->linear) {
        for (int32_t i = 0; i < n_in; i++) {
            if (row->in[i].kind == DTP_PARTIAL) {
                char number[16];
                (void)snprintf(number, sizeof number, "%d", i);
                used = append(out, used, used == 0 ? "partial(" : "+", NAME);
                used = append(out, used, number, sizeof number);
            }
        }
        return append(out, used, used == 0 ? "partial()" : ")", NAME);
    }
    for (int32_t i = 0; i < n_in; i++) {
        splits = splits || row->in[i].kind != DTP_REPLICATE;
    }
    if (row->dim < 0 && splits) { /* a row of an opaque op, of no dim wherever it occurs */
        return append(out, 0, "declared", NAME);
    }
    const char *in = row->dim < 0 ? "" : dtp_dims_name(dims, row->dim);
    const char *to = row->out_dim < 0 ? "" : dtp_dims_name(dims, row->out_dim);
    if (row->dim == row->out_dim) {
        return append(out, 0, row->dim < 0 ? "replicated" : in, NAME);
    }
    used = append(out, 0, in, HALF);
    return append(out, append(out, used, ">", 1), to, HALF);
}

void dtp_plan__row_name(const dtp_sharding_rules *set, int32_t r, int32_t n_in,
                        const dtp_dims *dims, char out[DTP_ROW_TEXT_BYTES])
{
    int32_t same = 0;
    const size_t used = base_name(&set->rows[r], n_in, dims, out);
    for (int32_t i = 0; i < r; i++) {
        char other[DTP_ROW_TEXT_BYTES];
        (void)base_name(&set->rows[i], n_in, dims, other);
        same += strcmp(other, out) == 0 ? 1 : 0;
    }
    if (same > 0) {
        (void)snprintf(out + used, DTP_ROW_TEXT_BYTES - used, "#%d", same + 1);
    }
}

int32_t dtp_plan__row_find(const dtp_sharding_rules *set, const char *name, int32_t n_in,
                           const dtp_dims *dims)
{
    for (int32_t i = 0; i < set->n; i++) {
        char text[DTP_ROW_TEXT_BYTES];
        const size_t n = base_name(&set->rows[i], n_in, dims, text);
        if (strncmp(name, text, n) == 0) {
            dtp_plan__row_name(set, i, n_in, dims, text);
            if (strcmp(name, text) == 0) {
                return i;
            }
        }
    }
    return -1;
}

void dtp_strategy_print(const dtp_graph *g, dtp_node_id node, const dtp_mesh *mesh,
                        const dtp_strategy *strategy, char out[DTP_STRATEGY_TEXT_BYTES])
{
    dtp_call_types types;
    dtp_sharding_rules set;
    const dtp_op_call call = dtp_node_call(g, &g->nodes[node], &types);
    size_t used = 0;
    (void)snprintf(out, DTP_STRATEGY_TEXT_BYTES, "replicated");
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        char row[DTP_ROW_TEXT_BYTES];
        if (strategy->row[m] > 0 && strategy->row[m] < set.n) {
            dtp_plan__row_name(&set, strategy->row[m], call.n_in, &g->dims, row);
            used += (size_t)snprintf(out + used, DTP_STRATEGY_TEXT_BYTES - used, "%s%s: %s",
                                     used > 0 ? ", " : "", mesh->names[m], row);
        }
    }
}

dtp_status dtp_plan_set_regather(dtp_plan *plan, const dtp_graph *g, const bool *again,
                                 dtp_err *err)
{
    plan->sharding.regather = again;
    return again == NULL ? DTP_OK
                         : dtp_regather_text(g, again, plan->arena, &plan->variant.regather, err);
}
