/* layer_norm and rms_norm (without mean and beta), their gradients and the parts that they
 * decompose into when a dim of `over` is split, bound for any device. The sums of a row lie along
 * the one dim ("_stat") that x does not have: two of layer_norm (the moments about a shift; s0 and
 * s1), one of rms_norm (the last of the two). */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_NORM_H
#define DTP_EXECUTOR_DEVICE_BOUND_NORM_H

#include "executor/device/bound/rows.h"

/* Views of rows, forward; backward dx and dy stand for y and beta. */
enum {
    DTP_NORM_X,
    DTP_NORM_Y,
    DTP_NORM_GAMMA,
    DTP_NORM_RSTD,
    DTP_NORM_MEAN,
    DTP_NORM_BETA,
    DTP_NORM_SUMS,
    DTP_NORM_SHIFT, /* of layer_norm_apply */
    DTP_NORM_VIEWS,
    DTP_NORM_DX = DTP_NORM_Y,
    DTP_NORM_DY = DTP_NORM_BETA
};
/* Views of the elements of gamma, each with all rows: x, dy, rstd, mean, and dgamma and dbeta. */
enum { DTP_NORM_DGAMMA = 4, DTP_NORM_DBETA, DTP_NORM_COLUMN_VIEWS };

typedef enum dtp_norm_part {
    DTP_NORM_FORWARD,   /* y, mean and rstd of rows */
    DTP_NORM_APPLY,     /* the same from moments */
    DTP_NORM_GRAD,      /* dx, dgamma and dbeta */
    DTP_NORM_GRAD_SUMS, /* s0 and s1 alone */
    DTP_NORM_GRAD_APPLY /* the gradient from these */
} dtp_norm_part;

#define DTP_NORM_OPS(OP)                                                                           \
    OP(layer_norm, FORWARD)                                                                        \
    OP(rms_norm, FORWARD)                                                                          \
    OP(layer_norm_apply, APPLY)                                                                    \
    OP(rms_norm_apply, APPLY)                                                                      \
    OP(layer_norm_grad, GRAD)                                                                      \
    OP(rms_norm_grad, GRAD)                                                                        \
    OP(layer_norm_grad_sums, GRAD_SUMS)                                                            \
    OP(rms_norm_grad_sums, GRAD_SUMS)                                                              \
    OP(layer_norm_grad_apply, GRAD_APPLY)                                                          \
    OP(rms_norm_grad_apply, GRAD_APPLY)

typedef struct dtp_norm_numbers {
    int32_t centered; /* whether layer_norm */
    int32_t sums;     /* whether the sums of a row are an operand, or the only result */
    double eps;
    double count; /* elements of a row, on all ranks when there are sums and backward */
    int64_t last; /* elements from the first sum of a row to the last */
} dtp_norm_numbers;

typedef struct dtp_bound_norm {
    dtp_norm_part part;
    dtp_norm_numbers numbers;
    dtp_bound_rows rows;
    dtp_bound_rows columns; /* with dgamma: one row per element of gamma */
} dtp_bound_norm;

void dtp_bind_norm(const dtp_kernel_args *args, dtp_norm_part part, dtp_bound_norm *out);

#endif
