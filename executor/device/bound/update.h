/* Optimizer updates, bound for any device. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_UPDATE_H
#define DTP_EXECUTOR_DEVICE_BOUND_UPDATE_H

#include "dtp/op.h"

typedef enum dtp_update_rule {
    DTP_UPDATE_SGD,
    DTP_UPDATE_MOMENTUM,
    DTP_UPDATE_ADAM,
    DTP_UPDATE_ADAMW,
    DTP_UPDATE_ACCUMULATE /* p: the sum so far, g: what is added */
} dtp_update_rule;

/* Ops whose elements are floats. */
#define DTP_UPDATE_OPS(OP)                                                                         \
    OP(sgd, SGD)                                                                                   \
    OP(momentum, MOMENTUM)                                                                         \
    OP(adam, ADAM)                                                                                 \
    OP(adamw, ADAMW)

/* One tensor: parameter, gradient and the slots that the rule has, all of one dtype. Outputs may be
 * the operands. Cards take it as it is: no padding beside what may look like half of an address. */
typedef struct dtp_bound_update {
    int64_t n; /* elements */
    dtp_update_rule rule;
    int32_t dtype;
    const void *p, *g, *m, *v;
    const void *factor; /* of the gradient, one number; NULL: 1. At 0 outputs are the operands. */
    void *p_out, *m_out, *v_out;
    double lr, beta1, beta2, eps; /* lr before the step's lr_scale */
    float decay, momentum;
} dtp_bound_update;

/* Everything but addresses, to be kept in *state; these. */
dtp_status dtp_bind_update(const dtp_kernel_args *args, dtp_update_rule rule, dtp_arena *arena,
                           void **state, dtp_err *err) DTP_MUST_CHECK;
dtp_bound_update dtp_update_now(const dtp_kernel_args *args);

#endif
