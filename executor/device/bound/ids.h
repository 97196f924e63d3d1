/* Look-ups by integer position, bound for any device. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_IDS_H
#define DTP_EXECUTOR_DEVICE_BOUND_IDS_H

#include "executor/device/nest.h"

/* Ids, and the dim that they index: on this rank it has positions first .. first + local - 1. */
typedef struct dtp_bound_ids {
    const void *data;
    int32_t dtype, operand; /* number of the operand, for the error word */
    int64_t first, local, size;
    int64_t stride;        /* of the dim in the tensor that is indexed */
    int64_t skip;          /* id that adds nothing to a sum; -1 = none */
    dtp_error_word *error; /* NULL: ids outside are none on this rank */
} dtp_bound_ids;

/* Ids of operand number `operand`, which index dim `dim` of a view, as they are in this run. */
dtp_bound_ids dtp_bind_ids(const dtp_kernel_args *args, int32_t operand, const dtp_view *at,
                           dtp_dim_id dim);
/* The view without that dim, whose name other views may have too. */
dtp_view dtp_view_without(const dtp_view *view, dtp_dim_id dim);

#endif
