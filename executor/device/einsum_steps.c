/* What the kernels of every backend do with the steps of an einsum (spmd/target/einsum_plan.h). */
#include "executor/device/einsum_steps.h"

dtp_status dtp_einsum_check(const dtp_kernel_args *args, const dtp_einsum_plan *plan, dtp_err *err)
{
    if (plan->too_large) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "einsum: an intermediate product is too large");
    }
    if (plan->workspace_bytes > args->workspace_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "einsum: workspace of %lld bytes, %lld are needed",
                        (long long)args->workspace_bytes, (long long)plan->workspace_bytes);
    }
    return DTP_OK;
}

void *dtp_einsum_address(const dtp_kernel_args *args, const dtp_einsum_buf *buf)
{
    return buf->operand == DTP_EINSUM_OUT         ? args->out[0].data
           : buf->operand == DTP_EINSUM_WORKSPACE ? (void *)((char *)args->workspace + buf->offset)
                                                  : args->in[buf->operand].data;
}

void dtp_einsum_nest(const dtp_einsum_loop *loop, const int32_t range[2], int32_t n_parts,
                     const int32_t *parts, bool sorted, dtp_nest *out)
{
    int64_t sizes[DTP_NEST_DIMS], strides[DTP_NEST_VIEWS][DTP_NEST_DIMS];
    int32_t order[DTP_NEST_DIMS], n = 0;
    const int64_t *by = loop->stride[DTP_EINSUM_A];
    for (int32_t i = range[0]; i < range[1]; i++) {
        int32_t at = n++;
        while (sorted && at > 0 && by[order[at - 1]] < by[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        sizes[i] = loop->size[order[i]];
        for (int32_t p = 0; p < n_parts; p++) {
            strides[p][i] = loop->stride[parts[p]][order[i]];
        }
    }
    dtp_nest_raw(out, n, sizes, n_parts, (const int64_t(*)[DTP_NEST_DIMS])strides);
}
