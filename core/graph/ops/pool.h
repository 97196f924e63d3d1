/* pool: the maximum or mean of windows over spatial dims, which may overlap; pool_grad. */
#ifndef DTP_CORE_GRAPH_OPS_POOL_H
#define DTP_CORE_GRAPH_OPS_POOL_H

#include "core/graph/ops/conv.h"

typedef struct dtp_pool_form {
    bool max;    /* else the mean */
    bool inside; /* it divides by the elements that a window has, else by the size of the window */
    int32_t n;
    dtp_conv_axis axis[DTP_CONV_AXES]; /* in: of x, out: of y; no kernel dims */
} dtp_pool_form;

/* Of a call of pool or pool_grad that inference took, with whole spatial dims. */
dtp_pool_form dtp_pool_form_of(const dtp_op_call *call);

#endif
