/* pool: the maximum or mean of windows over spatial dims, which may overlap; pool_grad. */
#ifndef DTP_CORE_GRAPH_OPS_POOL_H
#define DTP_CORE_GRAPH_OPS_POOL_H

#include "core/graph/ops/conv.h"

typedef struct dtp_pool_form {
    bool max;    /* else the mean */
    bool inside; /* it divides by the elements that a window has, else by the size of the window */
    int32_t n;
    dtp_conv_axis axis[DTP_CONV_AXES]; /* in: of x, out: of y; no kernel dims */
    /* Of what a rank runs: elements of the result, and where they begin in what it has of x. */
    int64_t kept[DTP_CONV_AXES], first[DTP_CONV_AXES];
} dtp_pool_form;

/* Of a call of pool or pool_grad that inference took, with whole spatial dims. */
dtp_pool_form dtp_pool_form_of(const dtp_op_call *call);

/* Of what a rank runs: `before` counts from the elements of x and y that the views have. */
dtp_pool_form dtp_pool_form_here(const dtp_kernel_args *args);

#endif
