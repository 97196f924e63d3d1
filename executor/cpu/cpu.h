/* The CPU backend: f32 and integer kernels on OpenBLAS, vectorised loops and OpenMP. */
#ifndef DTP_EXECUTOR_CPU_CPU_H
#define DTP_EXECUTOR_CPU_CPU_H

#include "executor/device/backend.h"

dtp_status dtp_backend_cpu_create(int32_t threads, dtp_backend **out, dtp_err *err) DTP_MUST_CHECK;

#endif
