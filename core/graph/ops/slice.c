/* slice, pad and concat: the ops that give one dim name several sizes. */
#include "core/graph/ops/common.h"

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
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

static dtp_status infer_pad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int64_t before = dtp_call_int(call, "before"), after = dtp_call_int(call, "after");
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    dtp_ttype want = call->in[0];
    if (before < 0 || after < 0 || before > INT64_MAX / 4 || after > INT64_MAX / 4 ||
        want.dims[axis].size > INT64_MAX / 4) {
        return DTP_FAIL(err, DTP_INVALID, "padding of %lld and %lld does not fit",
                        (long long)before, (long long)after);
    }
    want.dims[axis].size += before + after;
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
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
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

/* Only what the output holds is read. */
static void work_move(const dtp_op_call *call, dtp_work *out)
{
    *out =
        (dtp_work){.cls = DTP_WORK_MEMORY, .bytes = 2.0 * (double)dtp_ttype_bytes(&call->out[0])};
}

static dtp_status vjp_slice(dtp_vjp *v, dtp_err *err)
{
    const dtp_ttype *whole = &v->g->tensors[v->in[0]].type;
    const dtp_attr dim = dtp_op__copy_attr(v, "dim");
    const int64_t size = whole->dims[dtp_ttype_find(whole, (dtp_dim_id)dim.i)].size;
    const dtp_attr attrs[] = {dim, dtp_attr_int("before", dtp_vjp_attr(v, "start")->i),
                              dtp_attr_int("after", size - dtp_vjp_attr(v, "stop")->i)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"pad", 1, &v->d_out[0], 3, attrs}, v->in[0], &v->d_in[0],
                        err);
}

static dtp_status emit_slice(dtp_vjp *v, int64_t start, int32_t operand, dtp_err *err)
{
    const dtp_ttype *type = &v->g->tensors[v->in[operand]].type;
    const dtp_attr dim = dtp_op__copy_attr(v, "dim");
    const int64_t size = type->dims[dtp_ttype_find(type, (dtp_dim_id)dim.i)].size;
    const dtp_attr attrs[] = {dim, dtp_attr_int("start", start),
                              dtp_attr_int("stop", start + size)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"slice", 1, &v->d_out[0], 3, attrs}, v->in[operand],
                        &v->d_in[operand], err);
}

static dtp_status vjp_pad(dtp_vjp *v, dtp_err *err)
{
    return emit_slice(v, dtp_vjp_attr(v, "before")->i, 0, err);
}

static dtp_status vjp_concat(dtp_vjp *v, dtp_err *err)
{
    const dtp_dim_id d = (dtp_dim_id)dtp_vjp_attr(v, "dim")->i;
    const int32_t n = v->g->nodes[v->node].n_in;
    int64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        const dtp_ttype *type = &v->g->tensors[v->in[i]].type;
        const int64_t size = type->dims[dtp_ttype_find(type, d)].size;
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
static const dtp_attr_spec CONCAT_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                             {.key = NULL}};

const dtp_op_def dtp_ops_slice[] = {
    {.name = "slice",
     .summary = "elements [start, stop) of a dim",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = SLICE_ATTRS,
     .infer = infer_slice,
     .role = dtp_op__role_along,
     .linear = DTP_LINEAR_EACH,
     .work = work_move,
     .vjp = vjp_slice,
     .bench = {"rc | dim=r start=0 stop=@u"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE,
     .mtf_class = "SliceOperation"},
    {.name = "pad",
     .summary = "zeros before and after",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = PAD_ATTRS,
     .infer = infer_pad,
     .role = dtp_op__role_along,
     .linear = DTP_LINEAR_EACH,
     .work = work_move,
     .vjp = vjp_pad,
     .bench = {"rc | dim=r before=0 after=@u"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE,
     .mtf_class = "PadOperation"},
    {.name = "concat",
     .summary = "operands one after another along a dim",
     .min_in = 1,
     .max_in = DTP_MAX_OP_IN,
     .n_out = 1,
     .attrs = CONCAT_ATTRS,
     .infer = infer_concat,
     .role = dtp_op__role_along,
     .linear = DTP_LINEAR_JOINT,
     .work = work_move,
     .vjp = vjp_concat,
     .bench = {"rc rc | dim=r"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE,
     .mtf_class = "ConcatOperation"},
    {.name = NULL},
};
