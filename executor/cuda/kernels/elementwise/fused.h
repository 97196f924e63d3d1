/* Fused ops: expressions of elementwise functions, and norms of them. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_FUSED_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_FUSED_H

#include <cuda_runtime_api.h>

#include "core/graph/ops/fused.h"
#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step: its function as dtp_cuda_op, its operands in the array of values (operands, then results
 * of steps). */
typedef struct dtp_cuda_step {
    int32_t op, arg[DTP_FUSED_ARGS];
    float constant;
} dtp_cuda_step;

typedef struct dtp_cuda_expr {
    dtp_cuda_nest nest; /* views: outputs, operands */
    int32_t n, also;    /* as in dtp_fused_expr */
    int32_t n_in, n_out;
    int32_t dtype[DTP_FUSED_OUT + DTP_FUSED_IN];
    dtp_cuda_step step[DTP_FUSED_STEPS];
} dtp_cuda_expr;

/* Outputs and operands of an expression, in the order of the views. */
typedef struct dtp_cuda_expr_data {
    void *at[DTP_FUSED_OUT + DTP_FUSED_IN];
} dtp_cuda_expr_data;

/* result = norm(x), x = expression: one row for every element of the rows' dims. */
typedef struct dtp_cuda_fused_norm {
    dtp_cuda_expr expr; /* its nest: the rows; views: x, operands */
    dtp_cuda_nest over; /* the elements of a row, of the same views */
    /* The same for y, gamma, beta, mean and rstd; without centring beta and mean are not there. */
    dtp_cuda_nest norm_rows, norm_over;
    int32_t centred, dtype; /* of y and gamma; statistics are f32 */
    float eps;
} dtp_cuda_fused_norm;

enum {
    DTP_CUDA_Y,
    DTP_CUDA_GAMMA,
    DTP_CUDA_RSTD,
    DTP_CUDA_BETA,
    DTP_CUDA_MEAN,
    DTP_CUDA_NORM_VIEWS
};
typedef struct dtp_cuda_norm_data {
    void *at[DTP_CUDA_NORM_VIEWS];
} dtp_cuda_norm_data;

/* Neither nest is empty. */
cudaError_t dtp_cuda_fused_norm_run(cudaStream_t queue, const dtp_cuda_fused_norm *norm,
                                    const dtp_cuda_expr_data *data,
                                    const dtp_cuda_norm_data *norm_data);

/* The nest is not empty. */
cudaError_t dtp_cuda_expr_run(cudaStream_t queue, const dtp_cuda_expr *expr,
                              const dtp_cuda_expr_data *data);

#ifdef __cplusplus
}
#endif

#endif
