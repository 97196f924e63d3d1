/* The norm of several tensors. */
#ifndef DTP_DTENSOR_GRADIENT_NORM_H
#define DTP_DTENSOR_GRADIENT_NORM_H

#include "dtp/tensor.h"

/* sqrt of the sum of the squares of all elements of n tensors, none of them partial, on every rank.
 * Collective: one all-reduce per set of mesh dims. Not recorded by a tape. */
dtp_status dtp_gradient__norm(int32_t n, const dtp_tensor *grads, double *out,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
