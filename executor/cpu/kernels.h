/* The kernels of the CPU backend: one table per file, and what the files share. */
#ifndef DTP_EXECUTOR_CPU_KERNELS_H
#define DTP_EXECUTOR_CPU_KERNELS_H

#include "executor/device/bound/bind.h"

/* X(family) stands for the kernels dtp_cpu_<family>[] of a file, ended by one without an op. */
#define DTP_CPU_FAMILIES(X)                                                                        \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(conv)                                                                                        \
    X(cross_entropy)                                                                               \
    X(einsum)                                                                                      \
    X(elementwise)                                                                                 \
    X(fused)                                                                                       \
    X(lookup)                                                                                      \
    X(norm)                                                                                        \
    X(optimizer)                                                                                   \
    X(pool)                                                                                        \
    X(random)                                                                                      \
    X(reduce)                                                                                      \
    X(rope)                                                                                        \
    X(row_stats)                                                                                   \
    X(shape)                                                                                       \
    X(softmax)
#define DTP_CPU_DECLARE(family) extern const dtp_kernel dtp_cpu_##family[];
DTP_CPU_FAMILIES(DTP_CPU_DECLARE)

/* Working memory of the threads, shared by all kernels of a backend, which run one after the other;
 * as large as the most that one of them needs, and part of no arena. `bind` asks for so many floats
 * per thread; `run` finds them, those of the next thread `stride` floats further. */
dtp_status dtp_cpu_reserve(dtp_backend *b, int64_t floats, dtp_err *err) DTP_MUST_CHECK;
float *dtp_cpu_scratch(const dtp_backend *b, int64_t *stride);

#endif
