/* What the kernels share: attributes, dims of views, working memory. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "executor/device/backend.h"

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

dtp_status dtp_cpu_reserve(dtp_backend *b, int64_t floats, dtp_err *err)
{
    int64_t bytes;
    if (!dtp_add_i64(floats, 15, &floats) ||
        !dtp_mul_i64(floats / 16 * 16, (int64_t)sizeof(float) * b->threads, &bytes)) {
        return DTP_FAIL(err, DTP_NOMEM, "rows too long to be widened");
    }
    return dtp_scratch_reserve(&b->scratch, (size_t)bytes, err);
}

float *dtp_cpu_scratch(const dtp_backend *b, int64_t *stride)
{
    *stride = (int64_t)b->scratch.bytes / b->threads / (int64_t)sizeof(float) / 16 * 16;
    return b->scratch.data;
}
