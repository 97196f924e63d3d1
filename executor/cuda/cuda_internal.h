/* Shared by the files of the CUDA backend. */
#ifndef DTP_EXECUTOR_CUDA_CUDA_INTERNAL_H
#define DTP_EXECUTOR_CUDA_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "executor/cuda/cuda.h"
#include "executor/cuda/kernels/elementwise/optimizer.h"
#include "spmd/target/cuda_workspace.h"

enum { DTP_CUDA_ALGORITHMS = 16 }; /* proposals of cuBLASLt for a product, at most */

typedef struct dtp_cuda {
    dtp_backend base;
    int32_t device;
    cudaStream_t compute, comm, copy; /* kernels; collectives; feeds */
    cublasLtHandle_t blas;
    void *blas_workspace; /* of cuBLASLt, from the first product that is bound on */
    bool joining;         /* updates are kept for one launch */
    int32_t n_joined;
    dtp_bound_update joined[DTP_CUDA_UPDATES];
    const dtp_step_record *record; /* of the joined updates */
    /* Switches for finding faults: */
    bool no_epilogues; /* of products: all are computed apart */
    bool nccl_alone;   /* NCCL also for groups of one rank */
    int32_t algorithm; /* number of the proposal for a product, or the last one */
} dtp_cuda;

static inline dtp_cuda *dtp_cuda_of(dtp_backend *b)
{
    return (dtp_cuda *)b;
}

/* Turns switches on: words with commas between them, such as "no_epilogues,algorithm=2"; NULL or
 * "": none. DTP_INVALID for a word that is none. */
dtp_status dtp_cuda_switch(dtp_cuda *c, const char *words, dtp_err *err) DTP_MUST_CHECK;

/* The status of a call of the CUDA runtime: DTP_NOMEM, or DTP_INTERNAL naming the call. */
dtp_status dtp_cuda_status(cudaError_t code, const char *call, dtp_err *err) DTP_MUST_CHECK;
#define DTP_CUDA_TRY(err, call) DTP_TRY(dtp_cuda_status(call, #call, err))

extern const dtp_queue_ops dtp_cuda_queue; /* queue.c */

/* Slots of dtp_backend_ops (staging.c); they are put on the compute queue. */
dtp_status dtp_cuda_pack(dtp_backend *b, const dtp_view *src, int32_t axis, int32_t parts,
                         const dtp_ttype *part, void *staging, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_unpack(dtp_backend *b, const void *staging, int32_t axis, int32_t parts,
                           const dtp_ttype *part, const dtp_view *dst, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_slice(dtp_backend *b, const dtp_view *src, int32_t axis, int64_t start,
                          const dtp_view *dst, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_scale(dtp_backend *b, const dtp_view *src, double factor, const dtp_view *dst,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
