/* Operands that an op reads by windows (core/graph/op.h): what a rank lacks of the range that its
 * piece needs is brought to it, dim by dim, so that corners come along. Where two permutes bring it
 * to all ranks, one from each of the places beside as a rule, the bytes sent are those of the
 * margins; of two places one permute is all. Else the dim is gathered, and the kernel reads its
 * range where it lies in the whole dim. A piece that has its range already is read as it is.
 *
 * An op that moves elements and whose result at every place is the whole piece of another place, as
 * a roll by whole pieces, is the permute alone.
 */
#include "spmd/lower/lower_internal.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "core/graph/op_rules.h"
#include "spmd/lower/redistribute_program.h"
#include "spmd/program/ranges.h"

/* An operand on its way. */
typedef struct filling {
    const dtp_lower_env *env;
    dtp_node_id node;
    dtp_phase phase;
    dtp_ttype type;
    dtp_layout layout; /* in which the node reads it */
    dtp_mesh_set gathered;
    dtp_range wanted[DTP_MAX_RANK]; /* by dim; of 0: it is there, or none is asked for */
    dtp_margins margins[DTP_MAX_RANK];
} filling;

/* The ranges of an operand that its pieces lack. */
static void find_wanted(filling *f, const dtp_op_call *call, const dtp_node_layouts *layouts,
                        int32_t operand)
{
    const dtp_mesh *mesh = &f->env->p->mesh;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        const dtp_dim_id d = layouts->dim[m];
        const int32_t axis = (layouts->windows >> m & 1U) != 0 ? dtp_ttype_find(&f->type, d) : -1;
        if (axis < 0) {
            continue;
        }
        const dtp_dim_role role = dtp_role_of(call, d);
        const dtp_dim_window *window = dtp_role_window(&role, operand);
        if (window == NULL || f->wanted[axis].of > 0) {
            continue;
        }
        const int32_t base = dtp_role_base(call, &role, d);
        const dtp_ttype *of = base < call->n_in ? &call->in[base] : &call->out[base - call->n_in];
        const dtp_range range = {dtp_ttype_size(of, d), *window};
        const dtp_split_dim dim = dtp_split_dim_of(mesh, &f->layout, &f->type, axis);
        f->margins[axis] = dtp_margins_of(&dim, &range);
        if (!f->margins[axis].there) {
            f->wanted[axis] = range;
            f->gathered |= f->margins[axis].near ? 0 : dim.set;
        }
    }
}

/* A value of the tensor of `from` that holds ranges; it is no version that others read. */
static dtp_status add_ranged(const filling *f, dtp_value_id from, const dtp_layout *layout,
                             const dtp_range ranges[DTP_MAX_RANK], dtp_value_id *out, dtp_err *err)
{
    dtp_program *p = f->env->p;
    dtp_value v = dtp_program__value_init(p->values[from].name, DTP_VALUE_TEMP);
    dtp_range *kept;
    DTP_TRY(DTP_NEW(p->arena, kept, DTP_MAX_RANK, err));
    p->pinned_bytes += (int64_t)(DTP_MAX_RANK * sizeof *kept);
    memcpy(kept, ranges, DTP_MAX_RANK * sizeof *kept);
    v.tensor = p->values[from].tensor;
    v.type = f->type;
    v.layout = *layout;
    v.ranges = kept;
    return dtp_program__add_value(p, &v, out, err);
}

static dtp_status add_copy(const filling *f, dtp_copy copy, int32_t n_in, const dtp_value_id *in,
                           dtp_value_id out, dtp_err *err)
{
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COPY, f->node, f->phase);
    instr.move = copy;
    instr.n_in = n_in;
    instr.in = in;
    instr.n_out = 1;
    instr.out = &out;
    return dtp_program__add_instr(f->env->p, &instr, err);
}

/* Sends margins on by copy.shift. *received: the staging value in which others' arrive. */
static dtp_status send(const filling *f, dtp_copy copy, dtp_value_id value, int64_t most,
                       dtp_value_id *received, dtp_err *err)
{
    dtp_program *p = f->env->p;
    dtp_ttype local;
    dtp_value_id sent;
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_START, f->node, f->phase);
    dtp_value_local(p, value, DTP_ANY_RANK, &local, NULL);
    local.dims[copy.axis].size = most;
    instr.coll = (dtp_coll){.kind = DTP_PERMUTE,
                            .set = copy.set,
                            .dtype = f->type.dtype,
                            .count = dtp_ttype_elems(&local),
                            .shift = copy.shift};
    DTP_TRY(dtp_program__add_staging(p, "staging.send", f->type.dtype, 1, instr.coll.count, &sent,
                                     err));
    DTP_TRY(add_copy(f, copy, 1, &value, sent, err));
    DTP_TRY(dtp_program__add_staging(p, "staging.receive", f->type.dtype, 1, instr.coll.count,
                                     received, err));
    instr.n_in = instr.n_out = 1;
    instr.in = &sent;
    instr.out = received;
    return dtp_program__add_instr(p, &instr, err);
}

/* *value gets its range of one dim by permutes. */
static dtp_status fill_dim(const filling *f, int32_t axis, dtp_range ranges[DTP_MAX_RANK],
                           dtp_value_id *value, dtp_err *err)
{
    dtp_program *p = f->env->p;
    const dtp_layout layout = p->values[*value].layout;
    const dtp_split_dim dim = dtp_split_dim_of(&p->mesh, &layout, &f->type, axis);
    const dtp_margins *margins = &f->margins[axis];
    dtp_value_id in[1 + DTP_RANGE_PERMUTES] = {*value}, filled;
    int32_t n = 1;
    ranges[axis] = f->wanted[axis];
    DTP_TRY(add_ranged(f, *value, &layout, ranges, &filled, err));
    dtp_copy copy = {.kind = DTP_COPY_RANGE_OUT,
                     .axis = axis,
                     .set = dim.set,
                     .range = &p->values[filled].ranges[axis]};
    for (int32_t i = 0; i < margins->n; i++) {
        copy.shift = margins->shift[i];
        DTP_TRY(send(f, copy, *value, margins->most[i], &in[n++], err));
    }
    copy.kind = DTP_COPY_RANGE_IN;
    copy.shift = margins->shift[0];
    copy.shift2 = margins->n > 1 ? margins->shift[1] : 0;
    DTP_TRY(add_copy(f, copy, n, in, filled, err));
    *value = filled;
    return DTP_OK;
}

/* All of a dim, for every piece of `of` elements. */
static dtp_range all_of(const dtp_ttype *type, int32_t axis, int64_t of)
{
    return (dtp_range){of, {0, 1, 0, type->dims[axis].size - 1, 0}};
}

static dtp_status fill(filling *f, dtp_value_id *value, dtp_err *err)
{
    dtp_program *p = f->env->p;
    dtp_layout whole = f->layout;
    dtp_range ranges[DTP_MAX_RANK] = {{0}};
    for (int32_t m = 0; m < p->mesh.n_dims; m++) {
        if ((f->gathered >> m & 1U) != 0) {
            whole.placement[m] = (dtp_placement){0};
        }
    }
    if (f->gathered != 0) {
        DTP_TRY(dtp_redistribute_value(p, &whole, f->node, f->phase, value, err));
    }
    for (int32_t i = 0; i < f->type.rank; i++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        if (f->wanted[i].of > 0 && dtp_layout_axis_splits(&whole, i, splits) > 0) {
            DTP_TRY(fill_dim(f, i, ranges, value, err));
        } else if (f->wanted[i].of > 0) {
            ranges[i] = all_of(&f->type, i, f->wanted[i].of);
        }
    }
    if (f->gathered != 0) {
        const dtp_value_id from = *value;
        DTP_TRY(add_ranged(f, from, &f->layout, ranges, value, err));
        p->values[*value].parent = from;
    }
    return DTP_OK;
}

dtp_status dtp_lower__ranges(const dtp_lower_env *env, dtp_node_id node, dtp_phase phase,
                             const dtp_op_call *call, const dtp_node_layouts *layouts,
                             dtp_value_id *in, dtp_err *err)
{
    for (int32_t i = 0; i < call->n_in && layouts->windows != 0; i++) {
        filling f = {.env = env,
                     .node = node,
                     .phase = phase,
                     .type = call->in[i],
                     .layout = layouts->in[i]};
        bool any = false;
        find_wanted(&f, call, layouts, i);
        for (int32_t d = 0; d < f.type.rank; d++) {
            any = any || f.wanted[d].of > 0;
        }
        DTP_TRY(any ? fill(&f, &in[i], err) : DTP_OK);
    }
    return DTP_OK;
}

int32_t dtp_lower__passed_on(const dtp_lower_env *env, const dtp_op_call *call,
                             const dtp_node_layouts *layouts, dtp_mesh_set *set)
{
    const dtp_mesh *mesh = &env->p->mesh;
    filling f = {.env = env, .type = call->in[0], .layout = layouts->in[0]};
    int32_t shift = 0;
    if (layouts->windows == 0 || (call->op->flags & DTP_OP_MOVES) == 0 || call->n_in != 1 ||
        !dtp_ttype_equal(&call->in[0], &call->out[0])) {
        return 0;
    }
    find_wanted(&f, call, layouts, 0);
    for (int32_t i = 0; i < f.type.rank; i++) {
        const dtp_split_dim dim = dtp_split_dim_of(mesh, &f.layout, &f.type, i);
        if (f.wanted[i].of > 0 && f.margins[i].pieces &&
            dtp_layout_is_even_over(&f.layout, mesh, &f.type, dim.set)) {
            shift = f.margins[i].shift[0];
            *set = dim.set;
        }
    }
    return shift;
}
