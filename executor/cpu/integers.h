/* add, sub, mul, max and min of two integer operands. */
#ifndef DTP_EXECUTOR_CPU_INTEGERS_H
#define DTP_EXECUTOR_CPU_INTEGERS_H

#include "executor/device/kernel.h"

typedef enum dtp_cpu_int_function {
    DTP_INT_ADD,
    DTP_INT_SUB,
    DTP_INT_MUL,
    DTP_INT_MAX,
    DTP_INT_MIN
} dtp_cpu_int_function;

void dtp_cpu_binary_ints(const dtp_kernel_args *args, dtp_cpu_int_function op);

#endif
