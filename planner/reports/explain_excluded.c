/* Alternatives that are no strategies, each with its reason. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "planner/reports/explain_internal.h"
#include "core/graph/op_rules.h"

enum { MAX_LAYOUTS = 4096, REASON_BYTES = 320 };

/* Adds an alternative that is not listed yet. */
static dtp_status add(dtp_explaining *e, const char *text, const char *reason, dtp_err *err)
{
    dtp_alternative *a;
    for (int32_t i = 0; i < e->out->n; i++) {
        if (strcmp(e->out->alternatives[i].text, text) == 0) {
            return DTP_OK;
        }
    }
    const char *copy = dtp_arena_strdup(e->arena, reason);
    DTP_TRY(DTP_MEMORY(err, copy));
    return dtp_explain__add(e, text, copy, &a, err);
}

/* ---- pins ---- */

/* What is a strategy but for the pins. */
static dtp_status add_pinned(dtp_explaining *e, dtp_err *err)
{
    const dtp_tensor_variable *c = &e->free->variables[dtp_explain__variable(e, e->free)];
    for (int32_t k = 0; k < c->n_strategies && e->free != e->problem; k++) {
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_explain__print(e, &c->strategies[k], text);
        DTP_TRY(add(e, text, "a pin says otherwise", err));
    }
    return DTP_OK;
}

/* ---- layouts of a tensor ---- */

/* The first split that does not divide its dim, in words; false when all do. */
static bool find_uneven(const dtp_explaining *e, const dtp_layout *l, char out[REASON_BYTES])
{
    const dtp_graph *g = e->request->graph;
    const dtp_mesh *mesh = &e->request->plan->mesh;
    const dtp_ttype *type = &g->tensors[e->tensor].type;
    for (int32_t axis = 0; axis < type->rank; axis++) {
        int64_t parts = 1;
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            const bool splits = l->placement[m].kind == DTP_SHARD && l->placement[m].axis == axis;
            parts *= splits ? mesh->sizes[m] : 1;
        }
        if (type->dims[axis].size % parts != 0) {
            (void)snprintf(out, REASON_BYTES,
                           "uneven: dim '%.200s' of size %" PRId64 " into %" PRId64 " parts",
                           dtp_dims_name(&g->dims, type->dims[axis].id), type->dims[axis].size,
                           parts);
            return true;
        }
    }
    return false;
}

static dtp_status add_layout(dtp_explaining *e, const dtp_layout *l, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_graph_tensor *t = &g->tensors[e->tensor];
    char text[DTP_LAYOUT_TEXT_BYTES], reason[REASON_BYTES];
    dtp_layout_print(l, &e->request->plan->mesh, &t->type, &g->dims, text);
    if (!find_uneven(e, l, reason)) {
        (void)snprintf(reason, sizeof reason, "%s",
                       !dtp_layout_has_partial(l) ? "no rule of an op reads or leaves it so"
                       : t->producer < 0          ? "it is whole from the start, not a sum"
                                                  : "its op leaves no partial sums there");
    }
    return add(e, text, reason, err);
}

/* All layouts that split in mesh order or are partial sums; not too many of them. */
static dtp_status add_layouts(dtp_explaining *e, dtp_err *err)
{
    const dtp_mesh *mesh = &e->request->plan->mesh;
    const int32_t rank = e->request->graph->tensors[e->tensor].type.rank;
    int64_t n = 1;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        n *= mesh->sizes[m] > 1 ? rank + 2 : 1;
    }
    for (int64_t code = 0; code < n && n <= MAX_LAYOUTS; code++) {
        dtp_layout l = dtp_layout_replicated(rank, mesh->n_dims);
        int64_t left = code;
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            const int32_t pick = mesh->sizes[m] > 1 ? (int32_t)(left % (rank + 2)) : 0;
            left /= mesh->sizes[m] > 1 ? rank + 2 : 1;
            if (pick == rank + 1) {
                l.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
            } else if (pick > 0) {
                dtp_layout_split(&l, m, pick - 1);
            }
        }
        DTP_TRY(add_layout(e, &l, err));
    }
    return DTP_OK;
}

/* ---- dims of a node ---- */

static bool splits(const dtp_sharding_rule *rule, dtp_dim_id d)
{
    return rule->dim == d || rule->out_dim == d;
}

static int64_t size_of(const dtp_op_call *call, dtp_dim_id d)
{
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const dtp_ttype *type = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        for (int32_t a = 0; a < type->rank; a++) {
            if (type->dims[a].id == d) {
                return type->dims[a].size;
            }
        }
    }
    return 0;
}

/* Dim d over mesh dim m, unless some strategy has it so. */
static dtp_status add_dim(dtp_explaining *e, const dtp_op_call *call, const dtp_sharding_rules *set,
                          dtp_dim_id d, int32_t m, dtp_err *err)
{
    const dtp_mesh *mesh = &e->request->plan->mesh;
    const dtp_tensor_variable *c = &e->free->variables[e->free->variable_of_node[e->node]];
    const char *name = dtp_dims_name(&e->request->graph->dims, d);
    const int64_t size = size_of(call, d);
    char text[REASON_BYTES], reason[REASON_BYTES];
    bool is_split = mesh->sizes[m] == 1, has_rule = false;
    for (int32_t k = 0; k < c->n_strategies && !is_split; k++) {
        const int16_t row = c->strategies[k].strategy.row[m];
        is_split = row > 0 && splits(&set->rows[row], d);
    }
    if (is_split) {
        return DTP_OK;
    }
    for (int32_t r = 1; r < set->n && !has_rule; r++) {
        has_rule = splits(&set->rows[r], d);
    }
    (void)snprintf(text, sizeof text, "%s: %.200s", mesh->names[m], name);
    if (!has_rule) {
        (void)snprintf(reason, sizeof reason, "%s needs dim '%.200s' whole", call->op->name, name);
    } else if (size % mesh->sizes[m] != 0) {
        (void)snprintf(reason, sizeof reason,
                       "uneven: dim '%.200s' of size %" PRId64 " into %" PRId64 " parts", name,
                       size, mesh->sizes[m]);
    } else {
        (void)snprintf(reason, sizeof reason, "never better than another way to run it");
    }
    return add(e, text, reason, err);
}

static dtp_status add_dims(dtp_explaining *e, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    dtp_call_types types;
    dtp_sharding_rules set;
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    const dtp_op_call call = dtp_node_call(g, &g->nodes[e->node], &types);
    dtp_sharding_rules_of(&call, true, &set);
    const int32_t n = dtp_call_dims(&call, dims);
    for (int32_t m = 0; m < e->request->plan->mesh.n_dims; m++) {
        for (int32_t i = 0; i < n; i++) {
            DTP_TRY(add_dim(e, &call, &set, dims[i], m, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_explain__excluded(dtp_explaining *e, dtp_err *err)
{
    DTP_TRY(add_pinned(e, err));
    return e->tensor >= 0 ? add_layouts(e, err) : add_dims(e, err);
}
