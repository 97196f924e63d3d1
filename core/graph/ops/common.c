/* Inference helpers that most ops share. */
#include "core/graph/ops/common.h"

#include <assert.h>
#include <string.h>

dtp_status dtp_op__set_out(const dtp_op_call *call, bool has_out, const dtp_ttype *want,
                           dtp_ttype *out, dtp_err *err)
{
    if (!has_out) {
        out[0] = *want;
        return DTP_OK;
    }
    out[0].dtype = want->dtype;
    if (out[0].rank != want->rank) {
        return DTP_FAIL(err, DTP_INVALID, "'out' has %d dims, the result has %d", out[0].rank,
                        want->rank);
    }
    for (int32_t i = 0; i < want->rank; i++) {
        int32_t at = dtp_ttype_find(&out[0], want->dims[i].id);
        if (at < 0 || out[0].dims[at].size != want->dims[i].size) {
            return DTP_FAIL(
                err, DTP_INVALID, "dim '%s' is %lld in the result but %lld in 'out' (0: not there)",
                dtp_dims_name(call->dims, want->dims[i].id), (long long)want->dims[i].size,
                (long long)(at < 0 ? 0 : out[0].dims[at].size));
        }
    }
    return DTP_OK;
}

int32_t dtp_op__first_with(const dtp_op_call *call, int32_t end, dtp_dim_id id)
{
    for (int32_t i = 0; i < end; i++) {
        if (dtp_ttype_find(&call->in[i], id) >= 0) {
            return i;
        }
    }
    return -1;
}

dtp_status dtp_op__same_size(const dtp_op_call *call, int32_t i, dtp_tdim d, dtp_err *err)
{
    const int32_t first = dtp_op__first_with(call, call->n_in, d.id);
    const int64_t size = dtp_ttype_size(&call->in[first], d.id);
    if (size != d.size) {
        return DTP_FAIL(err, DTP_INVALID, "dim '%s' is %lld in operand %d but %lld in operand %d",
                        dtp_dims_name(call->dims, d.id), (long long)size, first, (long long)d.size,
                        i);
    }
    return DTP_OK;
}

/* Adds the dims of operand i that `out` lacks. */
static dtp_status merge_dims(const dtp_op_call *call, int32_t i, dtp_ttype *out, dtp_err *err)
{
    for (int32_t k = 0; k < call->in[i].rank; k++) {
        const dtp_tdim d = call->in[i].dims[k];
        DTP_TRY(dtp_op__same_size(call, i, d, err));
        if (dtp_ttype_find(out, d.id) >= 0) {
            continue;
        }
        if (out->rank == DTP_MAX_RANK) {
            return DTP_FAIL(err, DTP_INVALID, "the operands have more than %d dims together",
                            DTP_MAX_RANK);
        }
        out->dims[out->rank++] = d;
    }
    return DTP_OK;
}

dtp_status dtp_op__broadcast(const dtp_op_call *call, int32_t first, dtp_ttype *out, dtp_err *err)
{
    *out = (dtp_ttype){.dtype = call->in[first].dtype};
    for (int32_t i = first; i < call->n_in; i++) {
        DTP_TRY(merge_dims(call, i, out, err));
    }
    for (int32_t i = 0; i < first; i++) {
        DTP_TRY(merge_dims(call, i, out, err));
    }
    return DTP_OK;
}

dtp_status dtp_op__need_float(const dtp_op_call *call, int32_t i, dtp_err *err)
{
    if (!dtp_dtype_is_float(call->in[i].dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, a floating-point type is needed", i,
                        dtp_dtype_name(call->in[i].dtype));
    }
    return DTP_OK;
}

dtp_status dtp_op__same_dtype(const dtp_op_call *call, int32_t i, int32_t j, dtp_err *err)
{
    if (call->in[i].dtype != call->in[j].dtype) {
        return DTP_FAIL(err, DTP_INVALID, "operand %d is %s but operand %d is %s (use cast)", i,
                        dtp_dtype_name(call->in[i].dtype), j, dtp_dtype_name(call->in[j].dtype));
    }
    return DTP_OK;
}

dtp_dtype dtp_op__sum_dtype(dtp_dtype dtype)
{
    return dtp_dtype_is_half(dtype) ? DTP_F32 : dtype;
}

dtp_status dtp_op__result(const dtp_op_call *call, dtp_dtype dtype, dtp_dtype *out, dtp_err *err)
{
    const int64_t result = dtp_call_int(call, "result");
    *out = result == DTP_NO_DTYPE ? dtype : (dtp_dtype)result;
    if (*out != dtype && !dtp_dtype_widens(dtype, *out)) {
        return DTP_FAIL(err, DTP_INVALID, "a result of %s from operands of %s",
                        dtp_dtype_name(*out), dtp_dtype_name(dtype));
    }
    return DTP_OK;
}

dtp_status dtp_op__need_bool(const dtp_op_call *call, dtp_err *err)
{
    for (int32_t i = 0; i < call->n_in; i++) {
        if (call->in[i].dtype != DTP_BOOL) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, bool is needed", i,
                            dtp_dtype_name(call->in[i].dtype));
        }
    }
    return DTP_OK;
}

dtp_status dtp_op__axis(const dtp_op_call *call, const char *key, int32_t *axis, dtp_err *err)
{
    const dtp_dim_id d = dtp_call_dim(call, key);
    *axis = dtp_ttype_find(&call->in[0], d);
    if (*axis < 0) {
        return DTP_FAIL(err, DTP_INVALID, "'%s' names dim '%s', which operand 0 does not have", key,
                        dtp_dims_name(call->dims, d));
    }
    return DTP_OK;
}

dtp_status dtp_op__declared(bool has_out, dtp_dtype dtype, dtp_ttype *out, dtp_err *err)
{
    if (!has_out) {
        return DTP_FAIL(err, DTP_INVALID, "'out' is missing: the dims of the result");
    }
    out[0].dtype = dtype;
    return DTP_OK;
}

dtp_status dtp_op__emit1(dtp_vjp *v, const char *op, dtp_tensor_id x, dtp_tensor_id like,
                         dtp_tensor_id *out, dtp_err *err)
{
    return dtp_vjp_emit(v, &(dtp_vjp_op){op, 1, &x, 0, NULL}, like, out, err);
}

dtp_status dtp_op__emit2(dtp_vjp *v, const char *op, dtp_tensor_id a, dtp_tensor_id b,
                         dtp_tensor_id like, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_tensor_id in[] = {a, b};
    return dtp_vjp_emit(v, &(dtp_vjp_op){op, 2, in, 0, NULL}, like, out, err);
}

dtp_status dtp_op__emit_scale(dtp_vjp *v, dtp_tensor_id x, double factor, dtp_tensor_id like,
                              dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr attr = dtp_attr_float("factor", factor);
    return dtp_vjp_emit(v, &(dtp_vjp_op){"scale", 1, &x, 1, &attr}, like, out, err);
}

dtp_status dtp_op__emit_cast(dtp_vjp *v, dtp_tensor_id x, dtp_dtype dtype, dtp_tensor_id *out,
                             dtp_err *err)
{
    const dtp_attr attr = dtp_attr_int("dtype", (int64_t)dtype);
    *out = x;
    return v->g->tensors[x].type.dtype == dtype
               ? DTP_OK
               : dtp_vjp_emit(v, &(dtp_vjp_op){"cast", 1, &x, 1, &attr}, x, out, err);
}

dtp_status dtp_op__self_grad(dtp_vjp *v, dtp_err *err)
{
    enum { MAX_ATTRS = 16 };
    const dtp_node *node = &v->g->nodes[v->node];
    dtp_attr attrs[MAX_ATTRS];
    assert(node->n_attrs <= MAX_ATTRS);
    for (int32_t i = 0; i < node->n_attrs; i++) {
        attrs[i] = node->attrs[i];
        if (attrs[i].kind == DTP_ATTR_BOOL) {
            attrs[i].i = attrs[i].i == 0 ? 1 : 0;
        } else if (strcmp(attrs[i].key, "shift") == 0) {
            attrs[i].i = -attrs[i].i;
        }
    }
    const dtp_vjp_op op = {node->op->name, 1, &v->d_out[0], node->n_attrs, attrs};
    return dtp_vjp_emit(v, &op, v->in[0], &v->d_in[0], err);
}

dtp_status dtp_op__zero_grad(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr zero = dtp_attr_float("value", 0.0);
    return dtp_vjp_emit(v, &(dtp_vjp_op){"fill", 1, &v->d_out[0], 1, &zero}, v->in[0], &v->d_in[0],
                        err);
}

dtp_status dtp_op__enum_attr(const dtp_graph *g, const char *op, const char *key,
                             const char *choice, dtp_attr *out, dtp_err *err)
{
    const dtp_op_def *def = dtp_op_set_find(g->ops, op);
    const dtp_attr_spec *spec = def == NULL ? NULL : dtp_op_attr(def, key);
    const int32_t index = spec == NULL ? -1 : dtp_attr_choice(spec, choice);
    if (index < 0) {
        return DTP_FAIL(err, DTP_INTERNAL, "op '%s' has no %s '%s'", op, key, choice);
    }
    *out = dtp_attr_int(spec->key, index);
    return DTP_OK;
}

dtp_status dtp_op__emit_mask(dtp_vjp *v, const char *cmp, dtp_tensor_id a, dtp_tensor_id b,
                             dtp_tensor_id like, dtp_tensor_id *out, dtp_err *err)
{
    const dtp_attr cast = dtp_attr_int("dtype", (int64_t)v->g->tensors[v->in[0]].type.dtype);
    const dtp_tensor_id pair[] = {a, b};
    dtp_attr kind;
    dtp_tensor_id mask;
    DTP_TRY(dtp_op__enum_attr(v->g, "compare", "cmp", cmp, &kind, err));
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"compare", 2, pair, 1, &kind}, like, &mask, err));
    return dtp_vjp_emit(v, &(dtp_vjp_op){"cast", 1, &mask, 1, &cast}, like, out, err);
}

dtp_dim_role dtp_op__role_along(const dtp_op_call *call, dtp_dim_id d)
{
    const bool along = d == dtp_call_dim(call, "dim");
    return (dtp_dim_role){.role = along ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
}
