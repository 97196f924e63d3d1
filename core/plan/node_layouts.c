/* Rows of several mesh dims put together (core/plan/node_layouts.h). */
#include "core/plan/node_layouts.h"
#include "core/graph/op_rules.h"

#include <string.h>

typedef struct row_combination {
    const dtp_mesh *mesh;
    const dtp_op_call *call;
    const dtp_layout *in, *wanted; /* present layouts of the operands, wanted ones of outputs */
    dtp_sharding_rule rows[DTP_MAX_MESH_DIMS]; /* one per mesh dim */
} row_combination;

/* If the layout splits dim d over exactly `set`, takes over its order. */
static bool adopt_order(const dtp_ttype *type, const dtp_layout *layout, dtp_dim_id d,
                        dtp_mesh_set set, int8_t *order)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int32_t axis = dtp_ttype_find(type, d);
    const int32_t n = axis < 0 ? 0 : dtp_layout_axis_splits(layout, axis, splits);
    dtp_mesh_set have = 0;
    for (int32_t i = 0; i < n; i++) {
        have |= 1U << splits[i];
    }
    for (int32_t i = 0; i < n && have == set; i++) {
        order[splits[i]] = (int8_t)i;
    }
    return axis >= 0 && have == set;
}

static void choose_order(const row_combination *w, int32_t m, dtp_mesh_set set, int8_t *order)
{
    if ((set & (set - 1U)) == 0) {
        order[m] = 0;
        return;
    }
    for (int32_t i = 0; i < w->call->n_in; i++) {
        if (adopt_order(&w->call->in[i], &w->in[i], w->rows[m].dim, set, order)) {
            return;
        }
    }
    for (int32_t i = 0; i < w->call->n_out && w->wanted != NULL; i++) {
        if (adopt_order(&w->call->out[i], &w->wanted[i], w->rows[m].out_dim, set, order)) {
            return;
        }
    }
    int8_t depth = 0;
    for (int32_t k = 0; k < w->mesh->n_dims; k++) {
        if ((set >> k & 1U) != 0) {
            order[k] = depth++;
        }
    }
}

/* The mesh dims whose rows split the same dim as row m. */
static dtp_mesh_set dim_set(const row_combination *w, int32_t m)
{
    dtp_mesh_set set = 0;
    for (int32_t k = 0; k < w->mesh->n_dims; k++) {
        if (w->rows[k].dim == w->rows[m].dim) {
            set |= 1U << k;
        }
    }
    return set;
}

static void place_row(dtp_placement place, int8_t order, dtp_placement *out)
{
    *out = place;
    out->order = place.kind == DTP_SHARD ? order : 0;
}

/* Averages pass through an op that is linear as sums do: when operands of the row arrive as
 * averages and none as a sum, the row is one of averages. */
static void take_averages(row_combination *w, int32_t m)
{
    dtp_sharding_rule *row = &w->rows[m];
    bool any = false;
    for (int32_t i = 0; i < w->call->n_in; i++) {
        const dtp_placement at = w->in[i].placement[m];
        if (row->in[i].kind == DTP_PARTIAL && at.kind == DTP_PARTIAL) {
            if (at.op != DTP_REDUCE_AVG) {
                return;
            }
            any = true;
        }
    }
    for (int32_t i = 0; i < DTP_MAX_OP_IN && any; i++) {
        row->in[i].op = row->in[i].kind == DTP_PARTIAL ? DTP_REDUCE_AVG : row->in[i].op;
    }
    for (int32_t i = 0; i < DTP_MAX_OP_OUT && any; i++) {
        row->out[i].op = row->out[i].kind == DTP_PARTIAL ? DTP_REDUCE_AVG : row->out[i].op;
    }
}

static void combine_rows(const row_combination *w, dtp_node_layouts *out)
{
    const int32_t n_mesh = w->mesh->n_dims;
    memset(out->dim, 0, sizeof out->dim);
    memset(out->order, 0, sizeof out->order);
    out->internal = out->windows = 0;
    out->linear = false;
    for (int32_t i = 0; i < w->call->n_in; i++) {
        out->in[i] = dtp_layout_replicated(w->call->in[i].rank, n_mesh);
    }
    for (int32_t i = 0; i < w->call->n_out; i++) {
        out->out[i] = dtp_layout_replicated(w->call->out[i].rank, n_mesh);
    }
    for (int32_t m = 0; m < w->mesh->n_dims; m++) {
        const dtp_sharding_rule *row = &w->rows[m];
        out->dim[m] = row->dim;
        out->internal |= row->internal ? 1U << m : 0U;
        out->windows |= row->windows ? 1U << m : 0U;
        out->linear = out->linear || row->linear;
        if (row->dim >= 0) {
            choose_order(w, m, dim_set(w, m), out->order);
        }
        for (int32_t i = 0; i < w->call->n_in; i++) {
            place_row(row->in[i], out->order[m], &out->in[i].placement[m]);
        }
        for (int32_t i = 0; i < w->call->n_out; i++) {
            place_row(row->out[i], out->order[m], &out->out[i].placement[m]);
        }
    }
}

/* Numbers the splits of every axis from 0, keeping their order: rows of one dim give its splits one
 * order, of which an operand of an opaque op may have only some. */
static void number_splits(dtp_layout *layout)
{
    for (int32_t axis = 0; axis < layout->rank; axis++) {
        int8_t next = 0;
        dtp_layout old = *layout;
        for (int32_t depth = 0; depth < DTP_MAX_MESH_DIMS; depth++) {
            for (int32_t m = 0; m < layout->n_mesh; m++) {
                const dtp_placement *p = &old.placement[m];
                if (p->kind == DTP_SHARD && p->axis == axis && p->order == depth) {
                    layout->placement[m].order = next++;
                }
            }
        }
    }
}

/* A renaming row between dims of different sizes is right only if the parts divide both. */
static dtp_status check_renames(const row_combination *w, dtp_err *err)
{
    for (int32_t m = 0; m < w->mesh->n_dims; m++) {
        const dtp_sharding_rule *row = &w->rows[m];
        if (row->dim < 0 || row->in[0].kind != DTP_SHARD || row->out[0].kind != DTP_SHARD) {
            continue;
        }
        int64_t in = w->call->in[0].dims[row->in[0].axis].size;
        int64_t out = w->call->out[0].dims[row->out[0].axis].size;
        int64_t parts = dtp_mesh_set_size(w->mesh, dim_set(w, m));
        if (in != out && (in % parts != 0 || out % parts != 0)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "dims '%s' (%lld) and '%s' (%lld) cannot both be split into %lld parts",
                            dtp_dims_name(w->call->dims, row->dim), (long long)in,
                            dtp_dims_name(w->call->dims, row->out_dim), (long long)out,
                            (long long)parts);
        }
    }
    return DTP_OK;
}

dtp_status dtp_node_layouts_find(const dtp_mesh *mesh, const dtp_op_call *call,
                                 const dtp_sharding_rules *rules, const dtp_strategy *strategy,
                                 const dtp_layout *in, const dtp_layout *out,
                                 dtp_node_layouts *result, dtp_err *err)
{
    row_combination w = {.mesh = mesh, .call = call, .in = in, .wanted = out};
    dtp_sharding_rules own;
    own.n = 1;
    memset(&own.rows[0], 0, sizeof own.rows[0]);
    own.rows[0].dim = own.rows[0].out_dim = -1;
    if (rules == NULL && !dtp_strategy_is_replicated(strategy, mesh->n_dims)) {
        dtp_sharding_rules_of(call, true, &own);
    }
    rules = rules != NULL ? rules : &own;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        int32_t r = strategy->row[m];
        if (r < 0 || r >= rules->n) {
            return DTP_FAIL(err, DTP_INVALID, "strategy row %d of %d on mesh dim '%s'", r, rules->n,
                            mesh->names[m]);
        }
        w.rows[m] = rules->rows[r];
        if (w.rows[m].linear) {
            take_averages(&w, m);
        }
    }
    if ((call->op->flags & DTP_OP_RENAMES) != 0) {
        DTP_TRY(check_renames(&w, err));
    }
    combine_rows(&w, result);
    if ((call->op->flags & DTP_OP_OPAQUE) != 0) {
        for (int32_t i = 0; i < call->n_in; i++) {
            number_splits(&result->in[i]);
        }
        for (int32_t i = 0; i < call->n_out; i++) {
            number_splits(&result->out[i]);
        }
    }
    return DTP_OK;
}
