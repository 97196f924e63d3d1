/* Registered ops with their kernels, for tests:
 *   my_matmul  "mk,kn->mn"     k reduced by sum, linear in each operand, differentiable
 *   my_scale   "...d,d->...d"  x times a gain per element of d, differentiable
 *   my_reverse "...d->...d"    y[j] = x[(n-1-j+offset) mod n], d whole, differentiable by itself
 *   my_max     "bd->b"         d reduced by max, not differentiable
 *   local_mm   "mk,kn->mn"     opaque: S1,S0->P and S0,R->S0
 *   local_dot  "ab,ab->"       opaque: S0,R->P (the kernel finds its rows in the whole operand) and
 *                              S1,S1->P */
#ifndef DTP_TESTS_OPS_OWN_OPS_H
#define DTP_TESTS_OPS_OWN_OPS_H

#include "dtp/op.h"

enum { OWN_OPS = 6 };

dtp_op_set *own_ops_create(void); /* fails the test when it cannot */
extern const dtp_kernel own_ops_kernels[OWN_OPS];

#endif
