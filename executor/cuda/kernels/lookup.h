/* Elements at integer positions, their sums, and one_hot. An id outside of [0, size) sets the error
 * word, if there is one; one that is not on this rank stands for zeros. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_LOOKUP_H
#define DTP_EXECUTOR_CUDA_KERNELS_LOOKUP_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/ids.h"

typedef struct dtp_cuda_scatter_call {
    dtp_cuda_nest items; /* all ids; views: ids, src, out without the dim, number of the group */
    dtp_cuda_nest rest;  /* other dims of src; views: src, out */
    int32_t src_dtype, out_dtype;
    int64_t out_bytes;
} dtp_cuda_scatter_call;

enum {
    DTP_CUDA_SCATTER_ITEMS, /* views of a scatter_call's items */
    DTP_CUDA_SCATTER_SRC,
    DTP_CUDA_SCATTER_OUT,
    DTP_CUDA_SCATTER_GROUP,
    DTP_CUDA_SCATTER_VIEWS
};

#ifdef __cplusplus
extern "C" {
#endif

/* out = x at the ids, in words of 1, 2, 4, 8 or 16 bytes. Views: out, ids, x without the dim. */
cudaError_t dtp_cuda_gather_run(cudaStream_t queue, const dtp_cuda_nest *nest,
                                const dtp_bound_ids *ids, int32_t word_bytes, void *out,
                                const void *x);
/* Views: y, ids, index along the dim. */
cudaError_t dtp_cuda_one_hot_run(cudaStream_t queue, const dtp_cuda_nest *nest,
                                 const dtp_bound_ids *ids, int32_t dtype, float on, float off,
                                 void *y);
/* out = sums of src. Positions that ids differ in by their place alone share no sums: they are
 * groups. groups * local < 2^32, ids < 2^31. Workspace: spmd/target/cuda_workspace.h. */
cudaError_t dtp_cuda_scatter_run(cudaStream_t queue, const dtp_cuda_scatter_call *call,
                                 const dtp_bound_ids *ids, void *out, const void *src,
                                 void *workspace);

#ifdef __cplusplus
}
#endif

#endif
