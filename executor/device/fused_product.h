/* A product and more (core/graph/ops/fused.c) by single kernels of the backend: the product, in the
 * result's memory, the expression in its place, the sum. */
#ifndef DTP_EXECUTOR_DEVICE_FUSED_PRODUCT_H
#define DTP_EXECUTOR_DEVICE_FUSED_PRODUCT_H

#include "core/graph/op.h"

dtp_status dtp_fused_product_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_fused_product_run(const dtp_kernel_args *args, dtp_err *err) DTP_MUST_CHECK;

#endif
