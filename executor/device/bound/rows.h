/* Ops over rows, bound for any device: a row is all elements over the dims that an attribute of the
 * call names, and there is one for every element of the other dims. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_ROWS_H
#define DTP_EXECUTOR_DEVICE_BOUND_ROWS_H

#include "executor/device/nest.h"

typedef enum dtp_fold { DTP_FOLD_SUM, DTP_FOLD_MAX, DTP_FOLD_MIN, DTP_FOLD_PROD } dtp_fold;

/* The first view has all dims; each other one has some of them (row values lack the dims of a row,
 * per-feature vectors lack the rows). Views are the caller's and stay. */
typedef struct dtp_bound_rows {
    dtp_view_over dims; /* of the first view */
    int32_t n_views;
    const dtp_view *views[DTP_NEST_VIEWS];
    int64_t option;    /* of the op (DTP_ROW_OPS) */
    bool gives_places; /* results are places in rows */
    int64_t none;      /* the place of what is not there; of integers, a fold of nothing */
    double factor;     /* of a fold; of a sum of squares */
} dtp_bound_rows;

/* OP(op, attribute of the dims, option). */
#define DTP_ROW_OPS(OP)                                                                            \
    OP(softmax, "over", 0) /* whether with the logarithm */                                        \
    OP(log_softmax, "over", 1)                                                                     \
    OP(softmax_grad, "over", 0)                                                                    \
    OP(log_softmax_grad, "over", 1)                                                                \
    OP(softmax_apply, "over", dtp_call_int(args->call, "log"))                                     \
    OP(softmax_grad_apply, "over", dtp_call_int(args->call, "log"))                                \
    OP(sum_exp, "over", 0)                                                                         \
    OP(row_dot, "over", 0)                                                                         \
    OP(logsumexp, "over", 0)                                                                       \
    OP(norm, "over", order_of(args->call)) /* 1, 2; 0: the largest magnitude */                    \
    OP(amax, "over", 0)                                                                            \
    OP(var, "over", divisor_of(args->call, b)) /* of the sum of squares */                         \
    OP(std, "over", divisor_of(args->call, b))                                                     \
    OP(cumsum, "dim", dtp_call_int(args->call, "reverse"))                                         \
    OP(prod_grad, "over", 0)                                                                       \
    OP(argmax, "over", 1) /* whether the largest */                                                \
    OP(argmin, "over", 0)                                                                          \
    OP(topk, "over", dtp_call_int(args->call, "largest"))                                          \
    OP(arg_first, "over", 0)                                                                       \
    OP(moments, "over", dtp_last_sum(&args->out[0], &args->in[0]))                                 \
    OP(var_finish, "over", dtp_call_int(args->call, "count")) /* of the elements */                \
    OP(reduce, "over", fold_of(args->call))                   /* dtp_fold */                       \
    OP(any, "over", DTP_FOLD_MAX)                                                                  \
    OP(all, "over", DTP_FOLD_MIN)

#define DTP_ROW_OP_NUMBER(op, ...) DTP_ROW_##op,
typedef enum dtp_row_op { DTP_ROW_OPS(DTP_ROW_OP_NUMBER) } dtp_row_op;

/* The call of an op: its operands, then its outputs. DTP_UNSUPPORTED: as dtp_places_check. */
dtp_status dtp_bind_rows(const dtp_kernel_args *args, dtp_row_op op, dtp_bound_rows *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* DTP_UNSUPPORTED when a row has more elements than are counted as places. */
dtp_status dtp_places_check(const dtp_op_call *call, const dtp_bound_rows *b, int64_t most,
                            dtp_err *err) DTP_MUST_CHECK;
/* Rows of these views, split by the attribute `key` of a call. */
void dtp_bind_views(const dtp_op_call *call, const char *key, int32_t n_views,
                    const dtp_view *const *views, dtp_bound_rows *out);

/* Elements from the first sum of a row to the last, along the dim that x does not have. */
int64_t dtp_last_sum(const dtp_view *sums, const dtp_view *x);

#endif
