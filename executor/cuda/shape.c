/* Ops that copy elements or make them from nothing. */
#include "executor/cuda/kernels.h"

static dtp_status broadcast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return dtp_cuda_view_copy(dtp_cuda_stream(args), &args->out[0].local, &args->out[0], 0,
                              &args->in[0], 0, err);
}

static dtp_status permute_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return dtp_cuda_view_copy(dtp_cuda_stream(args), &args->in[0].local, &args->out[0], 0,
                              &args->in[0], 0, err);
}

const dtp_kernel dtp_cuda_shape[] = {
    {"broadcast", broadcast_kernel, NULL, 0}, {"permute", permute_kernel, NULL, 0}, {.op = NULL}};
