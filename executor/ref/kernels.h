/* The kernel lists of the reference backend, each ended by a NULL name. Kernels are written from
 * docs/ops.md as plain index loops in double, apart from the kernels that they check.
 */
#ifndef DTP_EXECUTOR_REF_KERNELS_H
#define DTP_EXECUTOR_REF_KERNELS_H

#include "core/graph/op.h"

/* X(family) stands for the list dtp_ref__<family>[] of a file. */
#define DTP_REF_FAMILIES(X)                                                                        \
    X(elementwise)                                                                                 \
    X(shape)                                                                                       \
    X(stats)                                                                                       \
    X(contract)                                                                                    \
    X(conv)                                                                                        \
    X(pool)                                                                                        \
    X(fill)                                                                                        \
    X(softmax)                                                                                     \
    X(norm)                                                                                        \
    X(linear_loss)                                                                                 \
    X(lookup)                                                                                      \
    X(attention)                                                                                   \
    X(update)
#define DTP_REF_DECLARE(family) extern const dtp_kernel dtp_ref__##family[];
DTP_REF_FAMILIES(DTP_REF_DECLARE)

#endif
