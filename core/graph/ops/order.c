/* Positions of large and small elements: argmax, argmin, topk. The first of equals wins.
 *
 * argmax over a split dim: m = max x, then arg_first, the smallest global index of an element that
 * equals m, and its minimum over the ranks: two all-reduces of rows. topk gathers the dim.
 */
#include "core/graph/ops/rows.h"

static const char *const TOPK_OUT[] = {"indices"};

/* `rows` with the index type that the attribute asks for. */
static dtp_status set_indices(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want = dtp_rows__outside(call, &call->in[0]);
    want.dtype = (dtp_dtype)dtp_call_int(call, "dtype");
    if (want.dtype != DTP_I32 && want.dtype != DTP_I64) {
        return DTP_FAIL(err, DTP_INVALID, "'dtype' is %s, an index is i32 or i64",
                        dtp_dtype_name(want.dtype));
    }
    return dtp_rows__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_arg(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    return set_indices(call, has_out, out, err);
}

static dtp_status infer_arg_first(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    const dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "m", &rows, true, err));
    return set_indices(call, has_out, out, err);
}

static dtp_dim_role role_first(const dtp_op_call *call, dtp_dim_id d)
{
    const bool over = dtp_rows__is_over(call, d);
    return (dtp_dim_role){.role = over ? DTP_ROLE_REDUCED : DTP_ROLE_PARALLEL,
                          .op = DTP_REDUCE_MIN};
}

/* `user` of the row is the kind of the extremum. */
static dtp_status split_arg(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err)
{
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "dtype")};
    dtp_dim_id id;
    const dtp_attr list = dtp_rows__over_list(&attrs[0], &id);
    dtp_tensor_id parts[2] = {ins[0], -1};
    DTP_TRY(dtp_rows__emit_reduce(g, call->op->user, ins[0], &list, &parts[1], err));
    return dtp_rows__emit(g, "arg_first", 2, parts, 2, attrs, outs, err);
}

/* ---- topk ---- */

static dtp_status infer_topk(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int64_t k = dtp_call_int(call, "k");
    int32_t axis;
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(dtp_op__axis(call, "over", &axis, err));
    dtp_ttype want = call->in[0];
    if (k < 1 || k > want.dims[axis].size) {
        return DTP_FAIL(err, DTP_INVALID, "'k' is %lld, dim '%s' has %lld elements", (long long)k,
                        dtp_dims_name(call->dims, want.dims[axis].id),
                        (long long)want.dims[axis].size);
    }
    want.dims[axis].size = k;
    DTP_TRY(dtp_rows__set_out(call, has_out, &want, out, err));
    out[1] = want;
    out[1].dtype = DTP_I32;
    return DTP_OK;
}

/* dy goes back to where the values came from. */
static dtp_status vjp_topk(dtp_vjp *v, dtp_err *err)
{
    const dtp_ttype *x = &v->g->tensors[v->in[0]].type;
    const dtp_dim_id over = (dtp_dim_id)dtp_vjp_attr(v, "over")->i;
    const dtp_attr attrs[] = {dtp_attr_dim("over", over), dtp_attr_dims("along", 1, &over),
                              dtp_attr_int("size", dtp_ttype_size(x, over))};
    const dtp_tensor_id in[] = {v->out[1], v->d_out[0]};
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){"scatter_add", 2, in, 3, attrs}, v->in[0], &v->d_in[0],
                        err);
}

static const dtp_attr_spec ARG_ATTRS[] = {{.key = "over", .kind = DTP_ATTR_DIM, .required = true},
                                          {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_I32},
                                          {.key = NULL}};
static const dtp_attr_spec TOPK_ATTRS[] = {
    {.key = "over", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "k", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 2147483647.0},
    {.key = "largest", .kind = DTP_ATTR_BOOL, .def = 1},
    {.key = NULL}};

#define ARG(op, text, kind)                                                                        \
    DTP_ROW(op, text, 1, 1, 1),                                                                    \
        .attrs = ARG_ATTRS, .infer = infer_arg, .role = dtp_rows__role_internal,                   \
        .elem_flops = 1.0, .no_grad = "an index is piecewise constant", .decompose = split_arg,    \
        .user = (kind)

const dtp_op_def dtp_ops_order[] = {
    {ARG("argmax", "index of the largest element over a dim", "max"), .f32_error = DTP_EXACT},
    {ARG("argmin", "index of the smallest element over a dim", "min"), .f32_error = DTP_EXACT},
    {
        DTP_ROW("arg_first", "index of the first element that equals m", 2, 2, 1),
        .flags = DTP_OP_INTERNAL_USE,
        .attrs = ARG_ATTRS,
        .infer = infer_arg_first,
        .role = role_first,
        .elem_flops = 1.0,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "argmax",
        .bench = {"rc r | over=c"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("topk",
                "the k largest or smallest elements over a dim, in order, and their indices", 1, 1,
                2),
        .attrs = TOPK_ATTRS,
        .out_names = TOPK_OUT,
        .infer = infer_topk,
        .role = dtp_rows__role_whole,
        .elem_flops = 10.0,
        .vjp = vjp_topk,
        .bench = {"rc | over=c k=8"},
        .f32_error = DTP_EXACT,
    },
    {.name = NULL},
};
