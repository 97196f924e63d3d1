/* The part of the program check that looks at ranges of values. */
#include "spmd/program/program_check_ranges.h"

#include <string.h>

#include "core/graph/op_rules.h"
#include "spmd/program/program_check.h"
#include "spmd/program/ranges.h"

static dtp_range range_of(const dtp_value *v, int32_t axis)
{
    return v->ranges != NULL ? v->ranges[axis] : (dtp_range){0};
}

static bool same_range(const dtp_range *a, const dtp_range *b)
{
    return a->of == b->of && memcmp(&a->window, &b->window, sizeof a->window) == 0;
}

/* Whether two tensors split a dim over the same mesh dims in the same order. */
static bool split_alike(const dtp_value *a, int32_t i, const dtp_value *b, int32_t k)
{
    int32_t x[DTP_MAX_MESH_DIMS], y[DTP_MAX_MESH_DIMS];
    const int32_t n = dtp_layout_axis_splits(&a->layout, i, x);
    return n == dtp_layout_axis_splits(&b->layout, k, y) &&
           memcmp(x, y, (size_t)n * sizeof *x) == 0;
}

/* ---- values ---- */

/* One dim of a value that lies in another one. */
static bool lies_in(const dtp_program *p, const dtp_value *v, const dtp_value *up, int32_t axis)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    const dtp_range range = range_of(v, axis), of_up = range_of(up, axis);
    if (range.of == 0 || dtp_layout_axis_splits(&up->layout, axis, splits) > 0) {
        return split_alike(v, axis, up, axis) && same_range(&range, &of_up);
    }
    const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &v->layout, &v->type, axis);
    bool all = true;
    for (int64_t k = 0; k < d.places && all; k++) {
        const int64_t n = dtp_extent_size(dtp_range_at(&d, &range, k));
        all = n == 0 || n == d.size;
    }
    return all;
}

dtp_status dtp_check__value_ranges(const dtp_program *p, const dtp_value *v, dtp_err *err)
{
    const dtp_value *up = v->parent >= 0 ? &p->values[v->parent] : NULL;
    if (v->ranges == NULL) {
        return up == NULL || up->ranges == NULL
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INTERNAL, "it lies in '%s', which holds ranges", up->name);
    }
    bool fits = v->kind == DTP_VALUE_TEMP && (up == NULL || dtp_ttype_equal(&up->type, &v->type));
    for (int32_t i = 0; i < v->type.rank && fits; i++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const dtp_range *r = &v->ranges[i];
        fits = (r->of == 0 || (r->of > 0 && r->window.per > 0 && r->window.stride >= 0 &&
                               dtp_layout_axis_splits(&v->layout, i, splits) > 0)) &&
               (up == NULL || lies_in(p, v, up, i));
    }
    return fits ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "it cannot hold its ranges");
}

dtp_status dtp_check__no_ranges(const dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    const bool may = instr->kind == DTP_INSTR_KERNEL ||
                     (instr->kind == DTP_INSTR_COPY && instr->move.range != NULL);
    for (int32_t k = 0; k < instr->n_in + instr->n_out && !may; k++) {
        const dtp_value *v =
            &p->values[k < instr->n_in ? instr->in[k] : instr->out[k - instr->n_in]];
        if (v->ranges != NULL) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' holds ranges, it takes pieces", v->name);
        }
    }
    return DTP_OK;
}

/* ---- kernels ---- */

static const dtp_value *end_of(const dtp_program *p, const dtp_instr *instr, int32_t k)
{
    return &p->values[k < instr->n_in ? instr->in[k] : instr->out[k - instr->n_in]];
}

/* Dim `axis` of operand k, read by a window over the pieces of `base`. */
static bool has_range(const dtp_program *p, const dtp_value *v, int32_t axis,
                      const dtp_dim_window *window, const dtp_value *base)
{
    const int32_t at = dtp_ttype_find(&base->type, v->type.dims[axis].id);
    const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &v->layout, &v->type, axis);
    bool has = at >= 0 && split_alike(v, axis, base, at);
    const dtp_range needed = {has ? base->type.dims[at].size : 0, *window};
    for (int64_t k = 0; k < d.places && has; k++) {
        const dtp_extent held = dtp_value_extent(p, v, axis, k);
        has = dtp_extent_size(held) == d.size || dtp_extent_in(dtp_range_at(&d, &needed, k), held);
    }
    return has;
}

dtp_status dtp_check__kernel_ranges(const dtp_program *p, const dtp_instr *instr,
                                    const dtp_op_call *call, bool windows, dtp_err *err)
{
    for (int32_t k = 0; k < instr->n_in + instr->n_out; k++) {
        const dtp_value *v = end_of(p, instr, k);
        for (int32_t i = 0; i < v->type.rank && (windows || v->ranges != NULL); i++) {
            const dtp_dim_id d = v->type.dims[i].id;
            const dtp_dim_role role = windows ? dtp_role_of(call, d) : (dtp_dim_role){0};
            const dtp_dim_window *w = k < instr->n_in ? dtp_role_window(&role, k) : NULL;
            const bool has =
                w == NULL ? range_of(v, i).of == 0
                          : has_range(p, v, i, w, end_of(p, instr, dtp_role_base(call, &role, d)));
            if (!has) {
                return DTP_FAIL(err, DTP_INTERNAL, "'%s' does not hold what it reads of dim '%s'",
                                v->name, dtp_dims_name(&p->dims, d));
            }
        }
    }
    return DTP_OK;
}

/* ---- copies and permutes ---- */

/* Elements of a staging value for margins of dim `axis` of v from `shift` places before. */
static int64_t margin_elems(const dtp_program *p, dtp_value_id v, const dtp_copy *copy,
                            int32_t shift)
{
    dtp_ttype local;
    dtp_value_local(p, v, DTP_ANY_RANK, &local, NULL);
    const dtp_split_dim d =
        dtp_split_dim_of(&p->mesh, &p->values[v].layout, &p->values[v].type, copy->axis);
    local.dims[copy->axis].size = 0;
    for (int64_t k = 0; k < d.places; k++) {
        const int64_t n = dtp_extent_size(dtp_margin_at(&d, copy->range, k, shift));
        local.dims[copy->axis].size =
            n > local.dims[copy->axis].size ? n : local.dims[copy->axis].size;
    }
    return dtp_ttype_elems(&local);
}

/* The shift by which staging operand k of a copy into ranges was sent; 0: it has no such operand.
 */
static int32_t shift_of(const dtp_instr *instr, int32_t k)
{
    return k == 1 ? instr->move.shift : k == 2 ? instr->move.shift2 : 0;
}

/* Whether pieces and what was sent make up the range at every place. */
static bool fills(const dtp_program *p, const dtp_instr *instr, const dtp_split_dim *d)
{
    bool full = true;
    for (int64_t k = 0; k < d->places && full; k++) {
        const dtp_extent wanted = dtp_range_at(d, instr->move.range, k);
        int64_t have = dtp_extent_size(dtp_margin_at(d, instr->move.range, k, 0));
        for (int32_t i = 1; i < instr->n_in; i++) {
            have += dtp_extent_size(dtp_margin_at(d, instr->move.range, k, shift_of(instr, i)));
        }
        full = have == dtp_extent_size(wanted);
    }
    for (int32_t i = 1; i < instr->n_in && full; i++) {
        const dtp_value *sent = &p->values[instr->in[i]];
        full = dtp_check__is_flat(sent) && sent->type.dtype == p->values[instr->in[0]].type.dtype &&
               sent->type.dims[0].size ==
                   margin_elems(p, instr->in[0], &instr->move, shift_of(instr, i));
    }
    return full;
}

dtp_status dtp_check__range_copy(const dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    const dtp_copy *move = &instr->move;
    const bool out = move->kind == DTP_COPY_RANGE_OUT;
    if (instr->n_out != 1 || instr->n_in < 1 || instr->n_in > (out ? 1 : 3) ||
        move->range == NULL || move->range->of < 1 || move->range->window.per < 1 ||
        move->shift == 0 || (move->shift2 != 0) != (instr->n_in == 3)) {
        return DTP_FAIL(err, DTP_INTERNAL, "a malformed copy of a range");
    }
    const dtp_value *from = &p->values[instr->in[0]], *to = &p->values[instr->out[0]];
    bool fits = !dtp_check__is_flat(from) && move->axis >= 0 && move->axis < from->type.rank &&
                range_of(from, move->axis).of == 0;
    if (fits) {
        const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &from->layout, &from->type, move->axis);
        fits = d.set == move->set && d.ascending && move->shift % d.places != 0 &&
               (instr->n_in < 3 ||
                (move->shift2 % d.places != 0 && (move->shift - move->shift2) % d.places != 0));
        if (fits && out) {
            fits = dtp_check__is_flat(to) && to->type.dtype == from->type.dtype &&
                   to->type.dims[0].size == margin_elems(p, instr->in[0], move, move->shift);
        } else if (fits) {
            fits = dtp_ttype_equal(&from->type, &to->type) && to->ranges != NULL &&
                   dtp_layout_equal(&from->layout, &to->layout) && fills(p, instr, &d);
        }
    }
    for (int32_t i = 0; i < to->type.rank && fits && !out; i++) {
        const dtp_range want = i == move->axis ? *move->range : range_of(from, i);
        fits = same_range(&want, &to->ranges[i]);
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "'%s' to '%s' is no such copy of a range", from->name,
                           to->name);
}

dtp_status dtp_check__range_permute(const dtp_program *p, int32_t start, dtp_err *err)
{
    const dtp_instr *instr = &p->instrs[start];
    int32_t from = start - 1, to = instr->pair + 1, k = 0;
    while (from >= 0 && !(p->instrs[from].kind == DTP_INSTR_COPY && p->instrs[from].n_out == 1 &&
                          p->instrs[from].out[0] == instr->in[0])) {
        from--;
    }
    for (; to < p->n_instrs; to++) {
        const dtp_instr *i = &p->instrs[to];
        for (k = 0; i->kind == DTP_INSTR_COPY && k < i->n_in && i->in[k] != instr->out[0]; k++) {
        }
        if (i->kind == DTP_INSTR_COPY && k < i->n_in) {
            break;
        }
    }
    if (from < 0 || to == p->n_instrs) {
        return DTP_FAIL(err, DTP_INTERNAL, "a permute without copies of a range");
    }
    const dtp_instr *a = &p->instrs[from], *b = &p->instrs[to];
    const bool fits = a->move.kind == DTP_COPY_RANGE_OUT && b->move.kind == DTP_COPY_RANGE_IN &&
                      a->move.range != NULL && b->move.range != NULL && a->in[0] == b->in[0] &&
                      a->move.axis == b->move.axis && a->move.set == instr->coll.set &&
                      b->move.set == instr->coll.set && a->move.shift == instr->coll.shift &&
                      shift_of(b, k) == instr->coll.shift &&
                      same_range(a->move.range, b->move.range);
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "it does not lead from the pieces of '%s' to ranges",
                           p->values[a->in[0]].name);
}

dtp_status dtp_check__passed_on(const dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    const dtp_node *node = instr->node >= 0 ? &p->graph->nodes[instr->node] : NULL;
    const dtp_value *from = &p->values[instr->in[0]], *to = &p->values[instr->out[0]];
    dtp_call_types types;
    bool fits = true;
    if (node == NULL || (node->op->flags & DTP_OP_MOVES) == 0 || from->tensor != node->in[0] ||
        to->tensor != node->out[0]) {
        return DTP_OK;
    }
    const dtp_op_call call = dtp_node_call(p->graph, node, &types);
    for (int32_t i = 0; i < from->type.rank && fits; i++) {
        const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &from->layout, &from->type, i);
        const dtp_dim_role role = dtp_role_of(&call, from->type.dims[i].id);
        const dtp_dim_window *window = dtp_role_window(&role, 0);
        const bool along = (d.set & instr->coll.set) != 0;
        const dtp_range range = {d.size, window != NULL ? *window : (dtp_dim_window){0}};
        fits = !along || (window != NULL && d.set == instr->coll.set && d.ascending);
        for (int64_t k = 0; k < d.places && fits && along; k++) {
            const int64_t n = dtp_extent_size(dtp_margin_at(&d, &range, k, instr->coll.shift));
            fits = n == dtp_extent_size(dtp_shard_at(&d, k)) &&
                   n == dtp_extent_size(dtp_range_at(&d, &range, k));
        }
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "it does not pass on what '%s' reads of '%s'",
                           node->name, from->name);
}
