/* The kernel lists of the reference backend, each ended by a NULL name. Kernels are written from
 * docs/ops.md as plain index loops in double, apart from the kernels that they check.
 */
#ifndef DTP_EXECUTOR_REF_KERNELS_H
#define DTP_EXECUTOR_REF_KERNELS_H

#include "core/graph/op.h"

extern const dtp_kernel dtp_ref__elementwise[];
extern const dtp_kernel dtp_ref__shape[];
extern const dtp_kernel dtp_ref__stats[];
extern const dtp_kernel dtp_ref__contract[];
extern const dtp_kernel dtp_ref__fill[];
extern const dtp_kernel dtp_ref__softmax[];
extern const dtp_kernel dtp_ref__norm[];
extern const dtp_kernel dtp_ref__lookup[];
extern const dtp_kernel dtp_ref__attention[];
extern const dtp_kernel dtp_ref__update[];

#endif
