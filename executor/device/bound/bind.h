/* What the tables of kernels of every device are made of. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_BIND_H
#define DTP_EXECUTOR_DEVICE_BOUND_BIND_H

#include "core/base/arena.h"
#include "core/graph/op.h"

/* Sets of dtypes. The op's own inference says which of them go together. */
#define DTP_FLOATS (DTP_DTYPE_BIT(DTP_F32) | DTP_DTYPE_BIT(DTP_BF16) | DTP_DTYPE_BIT(DTP_F16))
#define DTP_INTS (DTP_DTYPE_BIT(DTP_I32) | DTP_DTYPE_BIT(DTP_I64) | DTP_DTYPE_BIT(DTP_BOOL))
#define DTP_NUMBERS (DTP_FLOATS | DTP_INTS)

/* Zeroed memory for the state of a kernel (`bind`). */
#define DTP_STATE(arena, state, pointer, err)                                                      \
    DTP_TRY(DTP_NEW(arena, pointer, 1, err));                                                      \
    *(state) = (pointer)

/* The function op_bind, which is fn with more arguments. */
#define DTP_BIND(op, fn, ...)                                                                      \
    static dtp_status op##_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,       \
                                dtp_err *err)                                                      \
    {                                                                                              \
        return fn(args, __VA_ARGS__, arena, state, err);                                           \
    }

#endif
