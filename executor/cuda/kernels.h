/* The kernels of the CUDA backend: one table per family, and what the families share. A family is a
 * C file that binds calls (sizes, strides, constants) and puts launches on the queue, and
 * kernels/FAMILY.cu with a plain C header. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_H
#define DTP_EXECUTOR_CUDA_KERNELS_H

#include "executor/cuda/cuda_internal.h"
#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/bind.h"
#include "executor/device/nest.h"

/* X(family) stands for the kernels dtp_cuda_<family>[] of a file, ended by one without an op. */
#define DTP_CUDA_FAMILIES(X)                                                                       \
    X(attention)                                                                                   \
    X(conv)                                                                                        \
    X(cross_entropy)                                                                               \
    X(einsum)                                                                                      \
    X(elementwise)                                                                                 \
    X(fused)                                                                                       \
    X(lookup)                                                                                      \
    X(norm)                                                                                        \
    X(optimizer)                                                                                   \
    X(pool)                                                                                        \
    X(random)                                                                                      \
    X(reduce)                                                                                      \
    X(rope)                                                                                        \
    X(row_stats)                                                                                   \
    X(shape)                                                                                       \
    X(softmax)
#define DTP_CUDA_DECLARE(family) extern const dtp_kernel dtp_cuda_##family[];
DTP_CUDA_FAMILIES(DTP_CUDA_DECLARE)

/* The compute queue that a kernel is put on. */
static inline cudaStream_t dtp_cuda_stream(const dtp_kernel_args *args)
{
    return (cudaStream_t)args->queue;
}

/* einsum.c: as dtp_backend_ops.why_apart, for products with an epilogue. */
const char *dtp_cuda_why_apart(const dtp_bound_kernel *k);
/* A nest as kernels take it. DTP_UNSUPPORTED when more than DTP_CUDA_DIMS dims are left after
 * merging. */
dtp_status dtp_cuda_nest_of(const dtp_nest *nest, dtp_cuda_nest *out, dtp_err *err) DTP_MUST_CHECK;
/* dst = src over the dims of `shape`, elements of dst's type, from element dst_at and src_at on. */
dtp_status dtp_cuda_view_copy(cudaStream_t queue, const dtp_ttype *shape, const dtp_view *dst,
                              int64_t dst_at, const dtp_view *src, int64_t src_at,
                              dtp_err *err) DTP_MUST_CHECK;
/* The same of sizes and strides as given: strides[0] of dst, strides[1] of src. */
dtp_status dtp_cuda_strided_copy(cudaStream_t queue, int32_t n_dims, const int64_t *sizes,
                                 const int64_t (*strides)[DTP_NEST_DIMS], int64_t elem_bytes,
                                 void *dst, const void *src, dtp_err *err) DTP_MUST_CHECK;

#endif
