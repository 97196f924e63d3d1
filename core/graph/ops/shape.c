/* Ops that move elements of every type as they are: permute and stack; slice, pad and concat,
 * which give one dim name several sizes; relabel, a row-major reshape to other dim names; roll and
 * reorder:
 *   pad      y[i + before] = x[i], as far as y has it; else 0
 *   roll     y[(i + shift) mod n] = x[i]
 *   reorder  into the zigzag order over `chunks` (core/graph/ops/sequence.h), or out of it
 */
#include "core/graph/ops/shape.h"

#include <string.h>

#include "core/graph/op_rules.h"
#include "core/graph/ops/common.h"
#include "core/graph/ops/sequence.h"

/* Bytes alone. */
static void work_move(const dtp_op_call *call, dtp_work *out)
{
    *out = (dtp_work){.cls = DTP_WORK_MEMORY, .bytes = dtp_call_bytes(call)};
}

/* ---- permute, stack ---- */

static dtp_status infer_permute(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    if (!has_out) {
        return DTP_FAIL(err, DTP_INVALID, "'out' is missing: the order of the dims");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

/* The new dim comes first unless 'out' says otherwise. */
static dtp_status infer_stack(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *x = &call->in[0];
    const dtp_dim_id d = dtp_call_dim(call, "dim");
    dtp_ttype want = {.dtype = x->dtype, .rank = 1, .dims = {{d, call->n_in}}};
    if (dtp_ttype_find(x, d) >= 0 || x->rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "no new dim '%s' fits on operands of %d dims",
                        dtp_dims_name(call->dims, d), x->rank);
    }
    for (int32_t i = 1; i < call->n_in; i++) {
        char text[2][DTP_TTYPE_TEXT_BYTES];
        if (!dtp_ttype_equal(x, &call->in[i])) {
            dtp_ttype_print(&call->in[i], call->dims, text[0]);
            dtp_ttype_print(x, call->dims, text[1]);
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, operand 0 is %s", i, text[0],
                            text[1]);
        }
    }
    for (int32_t i = 0; i < x->rank; i++) {
        want.dims[want.rank++] = x->dims[i];
    }
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* A slice of one element for every operand, without the stacked dim. */
static dtp_status vjp_stack(dtp_vjp *v, dtp_err *err)
{
    const int32_t n = v->g->nodes[v->node].n_in;
    const dtp_attr dim = *dtp_vjp_attr(v, "dim");
    for (int32_t i = 0; i < n; i++) {
        const dtp_attr attrs[] = {dim, dtp_attr_int("start", i), dtp_attr_int("stop", i + 1)};
        dtp_tensor_id part;
        if (!v->need[i]) {
            continue;
        }
        DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"slice", 1, &v->d_out[0], 3, attrs}, -1, &part, err));
        DTP_TRY(dtp_vjp_unbroadcast(v, part, v->in[i], &v->d_in[i], err));
    }
    return DTP_OK;
}

/* ---- slice, pad, concat ---- */

static dtp_status infer_slice(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int64_t start = dtp_call_int(call, "start"), stop = dtp_call_int(call, "stop");
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    dtp_ttype want = call->in[0];
    if (start < 0 || stop <= start || stop > want.dims[axis].size) {
        return DTP_FAIL(
            err, DTP_INVALID, "[%lld, %lld) is not a range within dim '%s' of size %lld",
            (long long)start, (long long)stop, dtp_dims_name(call->dims, want.dims[axis].id),
            (long long)want.dims[axis].size);
    }
    want.dims[axis].size = stop - start;
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_pad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int64_t before = dtp_call_int(call, "before"), after = dtp_call_int(call, "after");
    const int64_t most = INT64_MAX / 4;
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    dtp_ttype want = call->in[0];
    dtp_tdim *dim = &want.dims[axis];
    if (before < -most || after < -most || before > most || after > most || dim->size > most) {
        return DTP_FAIL(err, DTP_INVALID, "padding of %lld and %lld does not fit",
                        (long long)before, (long long)after);
    }
    if (dim->size + before + after < 1) {
        return DTP_FAIL(err, DTP_INVALID,
                        "padding of %lld and %lld leaves nothing of dim '%s' of size %lld",
                        (long long)before, (long long)after, dtp_dims_name(call->dims, dim->id),
                        (long long)dim->size);
    }
    dim->size += before + after;
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_concat(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    dtp_ttype want = call->in[0];
    for (int32_t i = 1; i < call->n_in; i++) {
        DTP_TRY(dtp_op__same_dtype(call, i, 0, err));
        if (call->in[i].rank != want.rank) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d has %d dims, operand 0 has %d", i,
                            call->in[i].rank, want.rank);
        }
        for (int32_t k = 0; k < want.rank; k++) {
            const dtp_tdim a = call->in[0].dims[k], b = call->in[i].dims[k];
            if (a.id != b.id || (k != axis && a.size != b.size)) {
                return DTP_FAIL(err, DTP_INVALID,
                                "dim '%s' of size %lld in operand %d stands against '%s' of size "
                                "%lld in operand 0",
                                dtp_dims_name(call->dims, b.id), (long long)b.size, i,
                                dtp_dims_name(call->dims, a.id), (long long)a.size);
            }
        }
        if (call->in[i].dims[axis].size > INT64_MAX / 32) {
            return DTP_FAIL(err, DTP_RANGE, "operand %d is too long", i);
        }
        want.dims[axis].size += call->in[i].dims[axis].size;
    }
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* Elements of dim "dim" moved on by `by`. */
static dtp_dim_role moved(const dtp_op_call *call, dtp_dim_id d, int64_t by, bool cyclic)
{
    dtp_dim_role role = {.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    if (d == dtp_call_dim(call, "dim")) {
        role.window[0] = (dtp_dim_window){1, 1, by, -by, cyclic ? 1 : 0};
    }
    return role;
}

static dtp_dim_role role_slice(const dtp_op_call *call, dtp_dim_id d)
{
    return moved(call, d, -dtp_call_int(call, "start"), false);
}

static dtp_dim_role role_pad(const dtp_op_call *call, dtp_dim_id d)
{
    return moved(call, d, dtp_call_int(call, "before"), false);
}

static dtp_dim_role role_roll(const dtp_op_call *call, dtp_dim_id d)
{
    const int64_t n = dtp_ttype_size(&call->in[0], dtp_call_dim(call, "dim"));
    return moved(call, d, n > 0 ? dtp_call_int(call, "shift") % n : 0, true);
}

/* Only what the output holds is read. */
static void work_slice(const dtp_op_call *call, dtp_work *out)
{
    *out =
        (dtp_work){.cls = DTP_WORK_MEMORY, .bytes = 2.0 * (double)dtp_ttype_bytes(&call->out[0])};
}

static dtp_status vjp_slice(dtp_vjp *v, dtp_err *err)
{
    const dtp_ttype *whole = &v->g->tensors[v->in[0]].type;
    const dtp_attr dim = *dtp_vjp_attr(v, "dim");
    const int64_t size = dtp_ttype_size(whole, (dtp_dim_id)dim.i);
    const dtp_attr attrs[] = {dim, dtp_attr_int("before", dtp_vjp_attr(v, "start")->i),
                              dtp_attr_int("after", size - dtp_vjp_attr(v, "stop")->i)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"pad", 1, &v->d_out[0], 3, attrs}, v->in[0], &v->d_in[0],
                        err);
}

static dtp_status emit_slice(dtp_vjp *v, int64_t start, int32_t operand, dtp_err *err)
{
    const dtp_ttype *type = &v->g->tensors[v->in[operand]].type;
    const dtp_attr dim = *dtp_vjp_attr(v, "dim");
    const int64_t size = dtp_ttype_size(type, (dtp_dim_id)dim.i);
    const dtp_attr attrs[] = {dim, dtp_attr_int("start", start),
                              dtp_attr_int("stop", start + size)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"slice", 1, &v->d_out[0], 3, attrs}, v->in[operand],
                        &v->d_in[operand], err);
}

/* What the operand has of dy: a slice, or, where elements were left out, with zeros in their place.
 */
static dtp_status vjp_pad(dtp_vjp *v, dtp_err *err)
{
    const int64_t before = dtp_vjp_attr(v, "before")->i, after = dtp_vjp_attr(v, "after")->i;
    const dtp_attr attrs[] = {*dtp_vjp_attr(v, "dim"), dtp_attr_int("before", -before),
                              dtp_attr_int("after", -after)};
    return before < 0 || after < 0
               ? dtp_vjp_emit(v, &(dtp_vjp_op){"pad", 1, &v->d_out[0], 3, attrs}, v->in[0],
                              &v->d_in[0], err)
               : emit_slice(v, before, 0, err);
}

static dtp_status vjp_concat(dtp_vjp *v, dtp_err *err)
{
    const dtp_dim_id d = (dtp_dim_id)dtp_vjp_attr(v, "dim")->i;
    const int32_t n = v->g->nodes[v->node].n_in;
    int64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        const dtp_ttype *type = &v->g->tensors[v->in[i]].type;
        const int64_t size = dtp_ttype_size(type, d);
        if (v->need[i]) {
            DTP_TRY(emit_slice(v, at, i, err));
        }
        at += size;
    }
    return DTP_OK;
}

static const dtp_attr_spec SLICE_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                            {.key = "start", .kind = DTP_ATTR_INT, .def = 0},
                                            {.key = "stop", .kind = DTP_ATTR_INT, .required = true},
                                            {.key = NULL}};
static const dtp_attr_spec PAD_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                          {.key = "before", .kind = DTP_ATTR_INT, .def = 0},
                                          {.key = "after", .kind = DTP_ATTR_INT, .def = 0},
                                          {.key = NULL}};
static const dtp_attr_spec DIM_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                          {.key = NULL}};

/* ---- relabel ---- */

/* Rules: within a group, the outermost dim of size > 1 on either side may be split together with
 * its counterpart over a mesh dim that divides both: rank r then holds the same consecutive
 * elements on both sides. In a group of one dim each that is the whole dim, so uneven splits fit
 * too. */

int32_t dtp_relabel_groups(const dtp_ttype *in, const dtp_ttype *out,
                           dtp_relabel_group groups[DTP_MAX_RANK + 1])
{
    int32_t i = 0, o = 0, n = 0;
    while (i < in->rank || o < out->rank) {
        dtp_relabel_group g = {.in_first = i, .out_first = o};
        int64_t a = i < in->rank ? in->dims[i++].size : 1;
        int64_t b = o < out->rank ? out->dims[o++].size : 1;
        while (a != b) {
            if (a < b && i < in->rank) {
                a *= in->dims[i++].size;
            } else if (b < a && o < out->rank) {
                b *= out->dims[o++].size;
            } else {
                return -1;
            }
        }
        while (i < in->rank && in->dims[i].size == 1 &&
               !(o < out->rank && out->dims[o].size == 1)) {
            i++;
        }
        while (o < out->rank && out->dims[o].size == 1 &&
               !(i < in->rank && in->dims[i].size == 1)) {
            o++;
        }
        g.n_in = i - g.in_first;
        g.n_out = o - g.out_first;
        groups[n++] = g;
    }
    return n;
}

static dtp_status infer_relabel(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_relabel_group groups[DTP_MAX_RANK + 1];
    DTP_TRY(dtp_op__declared(has_out, call->in[0].dtype, out, err));
    DTP_TRY(dtp_ttype_check_size(&out[0], err));
    const long long a = (long long)dtp_ttype_elems(&call->in[0]);
    const long long b = (long long)dtp_ttype_elems(&out[0]);
    if (a != b || dtp_relabel_groups(&call->in[0], &out[0], groups) < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the operand has %lld elements but 'out' has %lld", a, b);
    }
    return DTP_OK;
}

/* Position of the first dim of size > 1 in [first, first + n), -1 when there is none. */
static int32_t outermost(const dtp_ttype *type, int32_t first, int32_t n)
{
    for (int32_t i = first; i < first + n; i++) {
        if (type->dims[i].size > 1) {
            return i;
        }
    }
    return -1;
}

static void rules_relabel(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    dtp_relabel_group groups[DTP_MAX_RANK + 1];
    const int32_t n = dtp_relabel_groups(&call->in[0], &call->out[0], groups);
    for (int32_t g = 0; g < n; g++) {
        const int32_t i = outermost(&call->in[0], groups[g].in_first, groups[g].n_in);
        const int32_t o = outermost(&call->out[0], groups[g].out_first, groups[g].n_out);
        if (i < 0 || o < 0) {
            continue;
        }
        dtp_sharding_rule *row = &out->rows[out->n++];
        memset(row, 0, sizeof *row);
        row->dim = call->in[0].dims[i].id;
        row->out_dim = call->out[0].dims[o].id;
        row->in[0] = (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)i};
        row->out[0] = (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)o};
    }
    if (linear) {
        dtp_sharding_rules_add_linear(out, call, 1U);
    }
}

/* ---- roll, reorder ---- */

static dtp_status infer_roll(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_reorder(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    const dtp_tdim dim = call->in[0].dims[axis];
    DTP_TRY(dtp_sequence_check(call, dim.id, dim.size, dtp_call_int(call, "chunks"), err));
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

static const dtp_attr_spec ROLL_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "shift", .kind = DTP_ATTR_INT, .required = true, .min = -9e15, .max = 9e15},
    {.key = NULL}};
static const dtp_attr_spec REORDER_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "chunks", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 1e9},
    {.key = "inverse", .kind = DTP_ATTR_BOOL},
    {.key = NULL}};

#define MOVE(op, text, most, traits)                                                               \
    DTP_ROW(op, text, 1, most, 1), .flags = DTP_OP_ANY_DTYPE | DTP_OP_MOVES | (traits),            \
                                   .f32_error = DTP_EXACT
#define MOVED(op, text, attributes) MOVE(op, text, 1, 0), .attrs = (attributes)
#define ALONG(op, text, most, attributes)                                                          \
    MOVE(op, text, most, 0), .attrs = (attributes), .role = dtp_op__role_along

const dtp_op_def dtp_ops_shape[] = {
    {MOVE("permute", "the dims in another order", 1, 0), .infer = infer_permute,
     .linear = DTP_LINEAR_EACH, .elem_flops = 1.0, .vjp = dtp_op__self_grad,
     .bench = {"rc | out=cr"}},
    {ALONG("stack", "operands of one shape along a new dim", DTP_MAX_OP_IN, DIM_ATTRS),
     .infer = infer_stack, .linear = DTP_LINEAR_JOINT, .elem_flops = 1.0, .vjp = vjp_stack,
     .bench = {"rc rc | dim=_stat"}},
    {MOVED("slice", "elements [start, stop) of a dim", SLICE_ATTRS), .infer = infer_slice,
     .role = role_slice, .linear = DTP_LINEAR_EACH, .work = work_slice, .vjp = vjp_slice,
     .bench = {"rc | dim=r start=0 stop=@u"}, .mtf_class = "SliceOperation"},
    {MOVED("pad", "zeros before and after; fewer elements where negative", PAD_ATTRS),
     .infer = infer_pad, .role = role_pad, .linear = DTP_LINEAR_EACH, .work = work_slice,
     .vjp = vjp_pad, .bench = {"rc | dim=r before=0 after=@u"}, .mtf_class = "PadOperation"},
    {ALONG("concat", "operands one after another along a dim", DTP_MAX_OP_IN, DIM_ATTRS),
     .infer = infer_concat, .linear = DTP_LINEAR_JOINT, .work = work_slice, .vjp = vjp_concat,
     .bench = {"rc rc | dim=r"}, .mtf_class = "ConcatOperation"},
    {MOVE("relabel", "row-major reshape to other dim names: rename, split, merge", 1,
          DTP_OP_RELABEL | DTP_OP_RENAMES),
     .infer = infer_relabel, .rules = rules_relabel, .linear = DTP_LINEAR_EACH, .work = work_move,
     .vjp = dtp_op__self_grad, .inplace_in = {1}, .mtf_class = "ReshapeOperation"},
    {MOVED("roll", "elements of a dim moved on by `shift`, those beyond the end to its start",
           ROLL_ATTRS),
     .infer = infer_roll, .role = role_roll, .linear = DTP_LINEAR_EACH, .work = work_slice,
     .vjp = dtp_op__self_grad, .bench = {"rc | dim=r shift=1"}},
    {ALONG("reorder", "a sequence in zigzag order, or back", 1, REORDER_ATTRS),
     .infer = infer_reorder, .linear = DTP_LINEAR_EACH, .work = work_move, .vjp = dtp_op__self_grad,
     .bench = {"rc | dim=c chunks=2"}},
    {.name = NULL},
};
