/* permute and stack: elements of any type are moved as they are. */
#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"

/* Copies x into y from element y_at on, over the dims of x. */
static void copy(const dtp_kernel_args *args, const dtp_view *y, int64_t y_at, const dtp_view *x)
{
    const dtp_view *views[] = {y, x};
    const int64_t bytes = dtp_dtype_bytes(y->local.dtype);
    dtp_nest nest;
    dtp_nest_make(&nest, x->local.rank, x->local.dims, 2, views);
    dtp_nest_copy(&nest, args->threads, (char *)y->data + y_at * bytes, x->data, bytes);
}

static dtp_status permute_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    copy(args, &args->out[0], 0, &args->in[0]);
    return DTP_OK;
}

static dtp_status stack_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    const int64_t stride = dtp_view_stride(y, dtp_call_dim(args->call, "dim"));
    for (int32_t i = 0; i < args->call->n_in; i++) {
        copy(args, y, i * stride, &args->in[i]);
    }
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"permute", permute_kernel, NULL},
                                   {"stack", stack_kernel, NULL}};
const dtp_cpu_family dtp_cpu_arrange = {rows, sizeof rows / sizeof rows[0]};
