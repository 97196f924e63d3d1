/* The decision a planner makes, in memory: a layout for every tensor and, for every node, which
 * sharding rule it uses on every mesh dim. */
#include "core/plan/sharding.h"

#include <string.h>

#include "core/transform/microbatch.h"
#include "core/graph/op_rules.h"
#include "core/plan/sharding_microbatch.h"

/* ---- following rules ---- */

static bool splits_over(const dtp_layout_rules *rules, dtp_dim_id d, int32_t m)
{
    if (d < 0 || d >= rules->n) {
        return false;
    }
    for (int8_t i = 0; i < rules->splits[d].n; i++) {
        if (rules->splits[d].mesh_dims[i] == m) {
            return true;
        }
    }
    return false;
}

/* Row of a renaming op: both sides if they fit together, else the operand's side, else the
 * output's. */
static int32_t renaming_row(const dtp_op_call *call, const dtp_sharding_rules *set,
                            const dtp_mesh *mesh, const dtp_layout_rules *rules, int32_t m)
{
    int32_t by_in = 0, by_out = 0;
    for (int32_t r = 1; r < set->n; r++) {
        const dtp_sharding_rule *row = &set->rows[r];
        const bool in = splits_over(rules, row->dim, m), out = splits_over(rules, row->out_dim, m);
        int64_t parts = 1; /* ranks that a split of both dims would have, with mesh dim m */
        for (int32_t k = 0; k < mesh->n_dims; k++) {
            if (k == m || splits_over(rules, row->dim, k) || splits_over(rules, row->out_dim, k)) {
                parts *= mesh->sizes[k];
            }
        }
        if (row->linear || !dtp_renaming_fits(call, row, parts)) {
            continue;
        }
        if (in && out) {
            return r;
        }
        by_in = in && by_in == 0 ? r : by_in;
        by_out = out && by_out == 0 ? r : by_out;
    }
    return by_in != 0 ? by_in : by_out;
}

static dtp_status row_from_rules(const dtp_op_call *call, const dtp_mesh *mesh,
                                 const dtp_layout_rules *rules, int32_t m, int16_t *row,
                                 dtp_err *err)
{
    dtp_sharding_rules set;
    dtp_dim_id dims[DTP_MAX_OP_DIMS], split = -1; /* the one dim that the rules split over m */
    *row = 0;
    if ((call->op->flags & DTP_OP_RENAMES) != 0) {
        dtp_sharding_rules_of(call, false, &set);
        *row = (int16_t)renaming_row(call, &set, mesh, rules, m);
        return DTP_OK;
    }
    const int32_t n = dtp_call_dims(call, dims);
    for (int32_t i = 0; i < n; i++) {
        if (!splits_over(rules, dims[i], m)) {
            continue;
        }
        if (split >= 0) {
            return DTP_FAIL(
                err, DTP_INVALID,
                "dims '%s' and '%s' meet here but the rules split both over mesh dim '%s'",
                dtp_dims_name(call->dims, split), dtp_dims_name(call->dims, dims[i]),
                mesh->names[m]);
        }
        split = dims[i];
    }
    if (split < 0) {
        return DTP_OK;
    }
    dtp_sharding_rules_of(call, false, &set);
    for (int32_t r = 1; r < set.n; r++) {
        if (!set.rows[r].linear && set.rows[r].dim == split) {
            *row = (int16_t)r;
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "dim '%s' must be whole here but the rules split it over mesh dim '%s'",
                    dtp_dims_name(call->dims, split), mesh->names[m]);
}

dtp_status dtp_strategy_from_rules(const dtp_graph *g, dtp_node_id node, const dtp_mesh *mesh,
                                   const dtp_layout_rules *rules, dtp_strategy *out, dtp_err *err)
{
    const dtp_node *n = &g->nodes[node];
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, n, &types);
    memset(out, 0, sizeof *out);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        DTP_TRY(dtp_err_prefixed(row_from_rules(&call, mesh, rules, m, &out->row[m], err), err,
                                 "node '%s' (%s)", n->name, n->op->name));
    }
    return DTP_OK;
}

dtp_status dtp_sharding_from_rules(const dtp_graph *g, const dtp_mesh *mesh,
                                   const dtp_layout_rules *rules, bool uneven, dtp_arena *arena,
                                   dtp_sharding *out, dtp_err *err)
{
    *out = (dtp_sharding){.mesh = *mesh, .n_tensors = g->n_tensors, .n_nodes = g->n_nodes};
    DTP_TRY(DTP_NEW(arena, out->layouts, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->strategies, g->n_nodes, err));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        DTP_TRY(dtp_err_prefixed(dtp_layout_rules_layout(rules, mesh, &g->dims, &g->tensors[t].type,
                                                         uneven, &out->layouts[t], err),
                                 err, "tensor '%s'", g->tensors[t].name));
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        DTP_TRY(dtp_strategy_from_rules(g, n, mesh, rules, &out->strategies[n], err));
    }
    return dtp_microbatch_defer(g, out, err);
}

dtp_status dtp_sharding_add_replicas(dtp_sharding *s, dtp_arena *arena, dtp_err *err)
{
    for (int phase = 0; phase < 3; phase++) {
        const size_t n = (size_t)s->n_tensors;
        s->replicas[phase] = dtp_arena_alloc(arena, n, sizeof *s->replicas[phase]);
        if (s->replicas[phase] == NULL) {
            s->replicas[0] = NULL;
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for the views of %zu tensors", n);
        }
        if (n > 0) {
            memcpy(s->replicas[phase], s->layouts, n * sizeof *s->layouts);
        }
    }
    return DTP_OK;
}

/* ---- check ---- */

/* A declared row of an opaque op (dim -1) may split any axis. */
static bool place_fits(const dtp_placement *p, const dtp_ttype *type, dtp_dim_id d)
{
    if (p->kind != DTP_SHARD) {
        return true;
    }
    return p->axis >= 0 && p->axis < type->rank && (d < 0 || type->dims[p->axis].id == d);
}

static dtp_status check_strategy(const dtp_graph *g, const dtp_sharding *s, dtp_node_id id,
                                 dtp_err *err)
{
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, &g->nodes[id], &types);
    dtp_sharding_rules set;
    if (dtp_strategy_is_replicated(&s->strategies[id], s->mesh.n_dims)) {
        return DTP_OK;
    }
    dtp_sharding_rules_of(&call, true, &set);
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        int32_t r = s->strategies[id].row[m];
        if (r < 0 || r >= set.n) {
            return DTP_FAIL(err, DTP_INVALID, "strategy row %d of %d on mesh dim '%s'", r, set.n,
                            s->mesh.names[m]);
        }
        for (int32_t i = 0; i < call.n_in; i++) {
            if (!place_fits(&set.rows[r].in[i], &call.in[i], set.rows[r].dim)) {
                return DTP_FAIL(err, DTP_INTERNAL, "operand %d is not split on its dim '%s'", i,
                                dtp_dims_name(call.dims, set.rows[r].dim));
            }
        }
        for (int32_t i = 0; i < call.n_out; i++) {
            if (!place_fits(&set.rows[r].out[i], &call.out[i], set.rows[r].out_dim)) {
                return DTP_FAIL(err, DTP_INTERNAL, "output %d is not split on its dim '%s'", i,
                                dtp_dims_name(call.dims, set.rows[r].out_dim));
            }
        }
    }
    if ((call.op->flags & DTP_OP_RENAMES) != 0) {
        /* The mesh dims that use one row of a renaming op split both sides evenly. */
        for (int32_t m = 0; m < s->mesh.n_dims; m++) {
            const dtp_sharding_rule *row = &set.rows[s->strategies[id].row[m]];
            int64_t parts = 1;
            for (int32_t k = 0; k < s->mesh.n_dims; k++) {
                parts *=
                    s->strategies[id].row[k] == s->strategies[id].row[m] ? s->mesh.sizes[k] : 1;
            }
            if (row->dim >= 0 && !dtp_renaming_fits(&call, row, parts)) {
                return DTP_FAIL(err, DTP_INVALID,
                                "dims '%s' and '%s' cannot both be split into %lld parts",
                                dtp_dims_name(call.dims, row->dim),
                                dtp_dims_name(call.dims, row->out_dim), (long long)parts);
            }
        }
        return DTP_OK;
    }
    return DTP_OK;
}

dtp_status dtp_sharding_check(const dtp_graph *g, const dtp_sharding *s, dtp_err *err)
{
    if (s->n_tensors != g->n_tensors || s->n_nodes != g->n_nodes) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a sharding of %d tensors and %d nodes for a graph of %d and %d",
                        s->n_tensors, s->n_nodes, g->n_tensors, g->n_nodes);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        dtp_status st = dtp_layout_check(&s->layouts[t], &s->mesh, &g->tensors[t].type, err);
        for (int phase = 0; phase < 3 && dtp_sharding_has_replicas(s) && st == DTP_OK; phase++) {
            st = dtp_layout_check(&s->replicas[phase][t], &s->mesh, &g->tensors[t].type, err);
        }
        DTP_TRY(dtp_err_prefixed(st, err, "tensor '%s'", g->tensors[t].name));
    }
    for (int32_t n = 0; n < g->n_nodes; n++) {
        DTP_TRY(dtp_err_prefixed(check_strategy(g, s, n, err), err, "node '%s' (%s)",
                                 g->nodes[n].name, g->nodes[n].op->name));
    }
    return DTP_OK;
}

dtp_status dtp_sharding_of_copy(const dtp_sharding *from, const dtp_graph_copy *c, dtp_arena *arena,
                                dtp_sharding *out, dtp_err *err)
{
    *out = (dtp_sharding){
        .mesh = from->mesh, .n_tensors = c->to->n_tensors, .n_nodes = c->to->n_nodes};
    DTP_TRY(DTP_NEW(arena, out->layouts, out->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->strategies, out->n_nodes, err));
    for (dtp_tensor_id t = 0; t < out->n_tensors; t++) {
        out->layouts[t] = dtp_layout_replicated(c->to->tensors[t].type.rank, from->mesh.n_dims);
    }
    for (dtp_tensor_id t = from->n_tensors - 1; t >= 0; t--) {
        if (c->tensor[t] >= 0) {
            out->layouts[c->tensor[t]] = from->layouts[t];
        }
    }
    for (int32_t phase = 0; phase < 3 && dtp_sharding_has_replicas(from); phase++) {
        DTP_TRY(DTP_NEW(arena, out->replicas[phase], out->n_tensors, err));
        memcpy(out->replicas[phase], out->layouts, (size_t)out->n_tensors * sizeof *out->layouts);
        for (dtp_tensor_id t = from->n_tensors - 1; t >= 0; t--) {
            if (c->tensor[t] >= 0) {
                out->replicas[phase][c->tensor[t]] = from->replicas[phase][t];
            }
        }
    }
    if (from->regather != NULL) {
        bool *regather;
        DTP_TRY(DTP_NEW(arena, regather, out->n_tensors, err));
        for (dtp_tensor_id t = from->n_tensors - 1; t >= 0; t--) {
            if (c->tensor[t] >= 0) {
                regather[c->tensor[t]] = from->regather[t];
            }
        }
        out->regather = regather;
    }
    for (dtp_node_id n = 0; n < from->n_nodes; n++) {
        if (c->node[n] >= 0) {
            out->strategies[c->node[n]] = from->strategies[n];
        }
    }
    return DTP_OK;
}
