/* What a kernel computes in: the type of its operands, or tf32. */
#ifndef DTP_SPMD_PROGRAM_ARITHMETIC_H
#define DTP_SPMD_PROGRAM_ARITHMETIC_H

#include <string.h>

#include "core/layout/tensor_type.h"

/* A dtp_dtype, or DTP_TF32: a product rounds its f32 operands (core/transform/precision.h). */
typedef int32_t dtp_arithmetic;
enum { DTP_TF32 = DTP_N_DTYPES, DTP_N_ARITHMETICS };

static inline const char *dtp_arithmetic_name(dtp_arithmetic a)
{
    return a == DTP_TF32 ? "tf32" : dtp_dtype_name((dtp_dtype)a);
}

/* DTP_INVALID. */
static inline dtp_status dtp_arithmetic_parse(const char *name, dtp_arithmetic *out, dtp_err *err)
{
    dtp_dtype dtype = DTP_F32;
    const bool tf32 = strcmp(name, "tf32") == 0;
    DTP_TRY(tf32 ? DTP_OK : dtp_dtype_parse(name, &dtype, err));
    *out = tf32 ? DTP_TF32 : (dtp_arithmetic)dtype;
    return DTP_OK;
}

/* That of the products of a graph; `tf32`: its flag. */
static inline dtp_arithmetic dtp_product_arithmetic(dtp_dtype operands, bool tf32)
{
    return tf32 && operands == DTP_F32 ? DTP_TF32 : (dtp_arithmetic)operands;
}

#endif
