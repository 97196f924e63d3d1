/* What the kernels share: checks of types, attributes, dims of views. */
#include "executor/cpu/kernels.h"

#include <string.h>

static dtp_status check(const dtp_op_call *call, bool ints, dtp_err *err)
{
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        const dtp_ttype *type = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        dtp_dtype dtype = type->dtype;
        if (dtype == DTP_F32 || (ints && !dtp_dtype_is_float(dtype))) {
            continue;
        }
        return DTP_FAIL(err, DTP_UNSUPPORTED, "op '%s' on backend cpu: %s %d has dtype %s",
                        call->op->name, i < call->n_in ? "operand" : "output",
                        (int)(i < call->n_in ? i : i - call->n_in), dtp_dtype_name(dtype));
    }
    return DTP_OK;
}

dtp_status dtp_cpu_check_f32(const dtp_op_call *call, dtp_err *err)
{
    return check(call, true, err);
}

dtp_status dtp_cpu_check_all_f32(const dtp_op_call *call, dtp_err *err)
{
    return check(call, false, err);
}

void dtp_cpu_split(const dtp_op_call *call, const char *key, const dtp_view *x, dtp_cpu_over *out)
{
    const dtp_attr *attr = dtp_call_attr(call, key);
    memset(out, 0, sizeof *out);
    out->count = 1;
    out->global_count = 1;
    for (int32_t i = 0; i < x->local.rank; i++) {
        dtp_tdim dim = x->local.dims[i];
        bool over = attr->kind == DTP_ATTR_DIM && attr->i == dim.id;
        for (int32_t k = 0; attr->kind == DTP_ATTR_DIMS && k < attr->n; k++) {
            over = over || attr->ids[k] == dim.id;
        }
        if (over) {
            out->over[out->n_over++] = dim;
            out->count *= dim.size;
            out->global_count *= x->global[i];
        } else {
            out->rows[out->n_rows++] = dim;
        }
    }
}

int64_t dtp_cpu_offset(const dtp_view *view, dtp_dim_id dim)
{
    int32_t at = dtp_ttype_find(&view->local, dim);
    return at < 0 ? 0 : view->offset[at];
}

int64_t dtp_cpu_global(const dtp_view *view, dtp_dim_id dim)
{
    int32_t at = dtp_ttype_find(&view->local, dim);
    return at < 0 ? 1 : view->global[at];
}

int64_t dtp_cpu_global_rows(const dtp_view *view, int32_t n, const dtp_tdim *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < n; i++) {
        count *= dtp_cpu_global(view, dims[i].id);
    }
    return count;
}

dtp_status dtp_cpu_bad_id(const dtp_op_call *call, const char *what, int64_t id, int64_t size,
                          dtp_err *err)
{
    return DTP_FAIL(err, DTP_RANGE, "%s: %s %lld is not in [0, %lld)", call->op->name, what,
                    (long long)id, (long long)size);
}
