/* Which rows of an op are tried when a strategy is chosen, by our rules and by PyTorch's. */
#include <string.h>

#include "spmd/propagate/propagate_internal.h"

static bool any_wanted(const dtp_decision *d)
{
    for (int32_t i = 0; i < d->call->n_out; i++) {
        if (d->wanted[i] != NULL) {
            return true;
        }
    }
    return false;
}

static bool any_pinned(const dtp_decision *d)
{
    for (int32_t i = 0; i < d->call->n_in; i++) {
        if (d->operands[i].pinned != NULL) {
            return true;
        }
    }
    return false;
}

/* A pin speaks of mesh dim m of an operand or output. */
static bool is_asked(const dtp_decision *d, int32_t m)
{
    for (int32_t i = 0; i < d->call->n_out; i++) {
        const dtp_mesh_set dims = d->wanted_dims[i];
        if (d->wanted[i] != NULL && (dims == 0 || (dims >> m & 1U) != 0)) {
            return true;
        }
    }
    for (int32_t i = 0; i < d->call->n_in; i++) {
        const dtp_mesh_set dims = d->operands[i].pinned_dims;
        if (d->operands[i].pinned != NULL && (dims == 0 || (dims >> m & 1U) != 0)) {
            return true;
        }
    }
    return false;
}

/* Splits what is whole everywhere over m: free now, but a guess about the readers of the output. */
static bool is_guess(const dtp_decision *d, const dtp_sharding_rule *row, int32_t m)
{
    for (int32_t i = 0; i < d->call->n_in; i++) {
        const dtp_operand *operand = &d->operands[i];
        for (int32_t v = -1; v < operand->n_versions; v++) {
            const dtp_layout *at = v < 0 ? operand->at : &operand->versions[v];
            if (at->placement[m].kind != DTP_REPLICATE) {
                return false;
            }
        }
    }
    return row->dim >= 0;
}

/* The operand, or a copy of it, is a sum or an average there. */
static bool is_summed(const dtp_operand *operand, int32_t m)
{
    for (int32_t v = -1; v < operand->n_versions; v++) {
        const dtp_placement at = (v < 0 ? operand->at : &operand->versions[v])->placement[m];
        if (at.kind == DTP_PARTIAL && (at.op == DTP_REDUCE_SUM || at.op == DTP_REDUCE_AVG)) {
            return true;
        }
    }
    return false;
}

/* Passes partial values on although no operand has any there. */
static bool is_idle(const dtp_decision *d, const dtp_sharding_rule *row, int32_t m)
{
    for (int32_t i = 0; i < d->call->n_in && row->linear; i++) {
        if (row->in[i].kind == DTP_PARTIAL && is_summed(&d->operands[i], m)) {
            return false;
        }
    }
    return row->linear;
}

static void add_row(dtp_row_lists *out, int32_t m, int32_t row)
{
    for (int32_t i = 0; i < out->n[m]; i++) {
        if (out->rows[m][i] == row) {
            return;
        }
    }
    out->rows[m][out->n[m]++] = (int16_t)row;
}

/* The row that the call asks for by name: it says how it runs where a dim is split that needs
 * communication inside, and an operand arrives split so over m. -1: none; pins stand above it. */
static int32_t named_row(const dtp_decision *d, const dtp_sharding_rules *rules, int32_t m)
{
    const dtp_attr_spec *spec = d->call->op->attrs;
    bool named = false;
    for (; spec != NULL && spec->key != NULL; spec++) {
        named = named || (spec->implementation && dtp_call_attr(d->call, spec->key) != NULL);
    }
    for (int32_t r = 0; r < rules->n && named && !any_pinned(d); r++) {
        const dtp_sharding_rule *row = &rules->rows[r];
        for (int32_t i = 0; i < d->call->n_in && row->internal; i++) {
            const dtp_placement at = d->operands[i].at->placement[m];
            if (at.kind == DTP_SHARD && row->in[i].kind == DTP_SHARD &&
                row->in[i].axis == at.axis) {
                return r;
            }
        }
    }
    return -1;
}

void dtp_propagate__rows(const dtp_decision *d, const dtp_sharding_rules *rules, dtp_row_lists *out)
{
    memset(out, 0, sizeof *out);
    for (int32_t m = 0; m < d->mesh->n_dims; m++) {
        const bool guesses = is_asked(d, m);
        const int32_t named = named_row(d, rules, m);
        for (int32_t r = 0; r < rules->n; r++) {
            const dtp_sharding_rule *row = &rules->rows[r];
            if (named >= 0 ? r == named
                           : guesses || (!is_guess(d, row, m) && !is_idle(d, row, m))) {
                add_row(out, m, r);
            }
        }
    }
}

/* ---- PyTorch ---- */

/* Elementwise, or an einsum that only multiplies (the gradient of a product). */
static bool is_pointwise(const dtp_op_call *call)
{
    const bool einsum = (call->op->flags & DTP_OP_CONTRACTION) != 0 && call->n_in > 1;
    bool whole = false;
    for (int32_t i = 0; i < call->n_in && einsum; i++) {
        whole = whole || call->in[i].rank == call->out[0].rank;
        for (int32_t k = 0; k < call->in[i].rank; k++) {
            if (dtp_ttype_find(&call->out[0], call->in[i].dims[k].id) < 0) {
                return false;
            }
        }
    }
    return whole || (call->op->flags & DTP_OP_ELEMENTWISE) != 0;
}

/* Ops for which PyTorch compares costs; for all others the output follows one operand. */
static bool compares_costs(const dtp_op_call *call)
{
    if ((call->op->flags & DTP_OP_CONTRACTION) != 0) {
        return call->n_in > 1 && !is_pointwise(call);
    }
    return (call->op->flags & (DTP_OP_ATTENTION | DTP_OP_ATTENTION_GRAD | DTP_OP_LOOKUP)) != 0;
}

/* Elementwise: the operand with most shards, then of the highest rank, the last of equal ones;
 * else the first one. */
static int32_t followed(const dtp_decision *d)
{
    int32_t best = 0;
    if (!is_pointwise(d->call)) {
        return 0;
    }
    for (int32_t i = 1; i < d->call->n_in; i++) {
        const int64_t a = dtp_layout_shards(d->operands[best].at, d->mesh);
        const int64_t b = dtp_layout_shards(d->operands[i].at, d->mesh);
        if (b > a || (b == a && d->call->in[i].rank >= d->call->in[best].rank)) {
            best = i;
        }
    }
    return best;
}

/* PyTorch tries for a contraction: everything replicated, dims of all three, the summed ones, those
 * of the first operand, those of the second. */
static int32_t contraction_class(const dtp_op_call *call, const dtp_sharding_rule *row)
{
    const bool a = row->in[0].kind == DTP_SHARD, b = row->in[1].kind == DTP_SHARD;
    const bool out = row->out[0].kind == DTP_SHARD;
    if (row->dim < 0 || call->n_in != 2) {
        return row->linear ? 5 : 0;
    }
    return out ? (a && b ? 1 : a ? 3 : 4) : 2;
}

/* PyTorch makes a dim whole along which elements are moved. */
static bool is_apart(const dtp_decision *d, const dtp_sharding_rule *row)
{
    return !row->internal && !(row->windows && (d->call->op->flags & DTP_OP_MOVES) != 0);
}

void dtp_propagate__torch_rows(const dtp_decision *d, const dtp_sharding_rules *rules,
                               dtp_row_lists *out)
{
    const bool all = compares_costs(d->call) || d->call->n_in == 0 || any_pinned(d);
    const int32_t operand = d->call->n_in > 0 ? followed(d) : 0;
    memset(out, 0, sizeof *out);
    for (int32_t m = 0; m < d->mesh->n_dims; m++) {
        const int32_t named = named_row(d, rules, m);
        if (named >= 0) {
            add_row(out, m, named);
        } else if (all && (d->call->n_in > 0 || any_wanted(d))) {
            const bool contraction = (d->call->op->flags & DTP_OP_CONTRACTION) != 0;
            const bool internal = any_pinned(d);
            for (int32_t cls = 0; cls <= 5; cls++) {
                for (int32_t r = 0; r < rules->n; r++) {
                    const dtp_sharding_rule *row = &rules->rows[r];
                    if ((contraction ? contraction_class(d->call, row) : 0) == cls &&
                        (internal || is_apart(d, row)) && (any_wanted(d) || !is_idle(d, row, m))) {
                        add_row(out, m, r);
                    }
                }
            }
        } else if (d->call->n_in > 0) {
            const dtp_placement place = d->operands[operand].at->placement[m];
            for (int32_t r = 1; r < rules->n; r++) {
                const dtp_sharding_rule *row = &rules->rows[r];
                const bool same = place.kind == DTP_SHARD && is_apart(d, row) &&
                                  row->in[operand].kind == DTP_SHARD &&
                                  row->in[operand].axis == place.axis;
                if (same || (row->linear && place.kind != DTP_SHARD && !is_idle(d, row, m))) {
                    add_row(out, m, r);
                }
            }
            add_row(out, m, 0);
        } else {
            add_row(out, m, 0);
        }
    }
}

bool dtp_propagate__torch_fits(const dtp_decision *d, const dtp_node_layouts *layouts)
{
    if (!compares_costs(d->call)) {
        return true;
    }
    for (int32_t i = 0; i < d->call->n_in; i++) {
        for (int32_t axis = 0; axis < d->call->in[i].rank; axis++) {
            int32_t splits[DTP_MAX_MESH_DIMS];
            int64_t parts = 1;
            const int32_t n = dtp_layout_axis_splits(&layouts->in[i], axis, splits);
            for (int32_t k = 0; k < n; k++) {
                parts *= d->mesh->sizes[splits[k]];
            }
            if (parts > 1 && d->call->in[i].dims[axis].size < parts) {
                return false;
            }
        }
    }
    return true;
}
