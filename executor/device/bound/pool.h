/* pool and pool_grad, bound for any device: the rows over which the windows are the same, and the
 * strides of the spatial axes. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_POOL_H
#define DTP_EXECUTOR_DEVICE_BOUND_POOL_H

#include "core/graph/ops/pool.h"
#include "executor/device/nest.h"

/* Views: the result (y or dx), x, and of pool_grad dy. */
enum { DTP_POOL_OUT, DTP_POOL_X, DTP_POOL_DY, DTP_POOL_VIEWS };

typedef struct dtp_bound_pool {
    bool max, inside, grad;
    dtp_nest rows;
    dtp_conv_axis axis[DTP_CONV_AXES]; /* always three: the first may be of size 1 */
    int64_t step[DTP_POOL_VIEWS][DTP_CONV_AXES];
    int64_t taps, places, elems; /* of a window; of y and of x in a row */
    /* Of the result: its elements on each axis, and where they begin in x; of pool_grad. */
    int64_t kept[DTP_CONV_AXES], first[DTP_CONV_AXES], results;
} dtp_bound_pool;

void dtp_bind_pool(const dtp_kernel_args *args, dtp_bound_pool *out);

#endif
