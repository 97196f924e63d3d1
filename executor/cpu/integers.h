/* add, sub, mul, max and min of two integer operands. */
#ifndef DTP_EXECUTOR_CPU_INTEGERS_H
#define DTP_EXECUTOR_CPU_INTEGERS_H

#include "executor/device/kernel.h"

/* DTP_UNSUPPORTED for another op. */
dtp_status dtp_cpu_check_binary_ints(const dtp_op_call *call, dtp_err *err) DTP_MUST_CHECK;
void dtp_cpu_binary_ints(const dtp_kernel_args *args);

#endif
