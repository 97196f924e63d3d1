/* Convolutions and their derivatives as implicit matrix products: nothing is copied, elements
 * outside of a tensor are zero. Products run on the units for f32, whatever the operands are. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_CONV_H
#define DTP_EXECUTOR_CUDA_KERNELS_CONV_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CUDA_CONV_DIMS = 11, DTP_CUDA_CONV_AXES = 3 };

/* The dims of rows, columns or terms of a product, row-major. A dim has strides in a, b and c, and
 * may count a coordinate of b, `scale` for each step. */
typedef struct dtp_cuda_conv_index {
    int32_t n;
    int64_t total;
    int64_t size[DTP_CUDA_CONV_DIMS];
    int64_t stride[3][DTP_CUDA_CONV_DIMS]; /* of a, b, c */
    int32_t axis[DTP_CUDA_CONV_DIMS];      /* -1: none */
    int64_t scale[DTP_CUDA_CONV_DIMS];
} dtp_cuda_conv_index;

/* c[group, m, n] = sum over k of a[group, m, k] b[group, k, n]. Coordinate i of b is `first` plus
 * what n and k count; b is zero where that is no multiple of `every`, or the quotient is not in
 * [0, limit). */
typedef struct dtp_cuda_conv_form {
    dtp_cuda_conv_index group, m, n, k;
    int64_t first[DTP_CUDA_CONV_AXES], every[DTP_CUDA_CONV_AXES], limit[DTP_CUDA_CONV_AXES];
    int64_t step[DTP_CUDA_CONV_AXES]; /* strides of the coordinates in b */
    int32_t dtype[3];                 /* of a, b, c */
    int64_t parts;                    /* of the terms; more than 1: added by a second kernel */
    bool skips; /* where b is outside is no term, whatever a is; else it is zero */
} dtp_cuda_conv_form;

/* `space`: parts x elements of c in f32, when there are several. c has elements. */
cudaError_t dtp_cuda_conv_run(cudaStream_t queue, const dtp_cuda_conv_form *conv, const void *a,
                              const void *b, void *c, float *space);

#ifdef __cplusplus
}
#endif

#endif
