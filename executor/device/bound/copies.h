/* Ops that copy elements, bound for any device as copies of strided blocks. They do not look at the
 * element type. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_COPIES_H
#define DTP_EXECUTOR_DEVICE_BOUND_COPIES_H

#include "executor/device/nest.h"

#define DTP_COPY_OPS(OP)                                                                           \
    OP(broadcast)                                                                                  \
    OP(permute)                                                                                    \
    OP(stack)                                                                                      \
    OP(relabel)                                                                                    \
    OP(slice)                                                                                      \
    OP(concat)                                                                                     \
    OP(roll)                                                                                       \
    OP(reorder)

/* y = x over n dims, elements of so many bytes; strides in elements: of y, of x. */
typedef struct dtp_bound_copy {
    int32_t n;
    int64_t sizes[DTP_NEST_DIMS], strides[2][DTP_NEST_DIMS], elem_bytes;
    void *y;
    const void *x;
} dtp_bound_copy;
typedef dtp_status (*dtp_copy_fn)(const dtp_kernel_args *args, const dtp_bound_copy *copy,
                                  dtp_err *err);

/* Calls fn for the copies of a call: dtp_copies_<op>. */
#define DTP_COPIES_OF(op)                                                                          \
    dtp_status dtp_copies_##op(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)          \
        DTP_MUST_CHECK;
DTP_COPY_OPS(DTP_COPIES_OF)

/* pad on the elements that the views have of its dim: n elements from `from` of x on are those from
 * `to` of y on, the others of y are zeros. */
typedef struct dtp_pad_form {
    int64_t to, from, n;
} dtp_pad_form;
dtp_pad_form dtp_pad_form_here(const dtp_kernel_args *args);

/* The kernel of an op, by a function `copy` of the device, and its row in the kernel table. */
#define DTP_COPY_KERNEL(op)                                                                        \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        return dtp_copies_##op(args, copy, err);                                                   \
    }
#define DTP_COPY_ROW(op) {#op, op##_kernel, NULL, 0},

#endif
