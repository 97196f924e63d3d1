/* The kernels of the CPU backend: one table per file, and what the files share. */
#ifndef DTP_EXECUTOR_CPU_KERNELS_H
#define DTP_EXECUTOR_CPU_KERNELS_H

#include "core/base/arena.h"
#include "core/graph/op.h"

/* Sets of dtypes. The op's own inference says which of them go together. */
#define DTP_CPU_FLOATS (DTP_DTYPE_BIT(DTP_F32) | DTP_DTYPE_BIT(DTP_BF16) | DTP_DTYPE_BIT(DTP_F16))
#define DTP_CPU_INTS (DTP_DTYPE_BIT(DTP_I32) | DTP_DTYPE_BIT(DTP_I64) | DTP_DTYPE_BIT(DTP_BOOL))
#define DTP_CPU_BOTH (DTP_CPU_FLOATS | DTP_CPU_INTS)

/* X(family) stands for the kernels dtp_cpu_<family>[] of a file, ended by one without an op. */
#define DTP_CPU_FAMILIES(X)                                                                        \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(cross_entropy)                                                                               \
    X(einsum)                                                                                      \
    X(elementwise)                                                                                 \
    X(fused)                                                                                       \
    X(lookup)                                                                                      \
    X(norm)                                                                                        \
    X(optimizer)                                                                                   \
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

/* Zeroed memory for the state of a kernel (`bind`). */
#define DTP_CPU_STATE(arena, state, pointer, err)                                                  \
    DTP_TRY(DTP_NEW(arena, pointer, 1, err));                                                      \
    *(state) = (pointer)

#endif
