/* What a kernel computes in: the type of its operands, or what it rounds them to. */
#ifndef DTP_SPMD_PROGRAM_ARITHMETIC_H
#define DTP_SPMD_PROGRAM_ARITHMETIC_H

#include <string.h>

#include "core/layout/tensor_type.h"

/* A dtp_dtype; DTP_TF32: a product rounds its f32 operands (core/transform/precision.h); DTP_FP8:
 * its operands are quantized, with one scale a tensor (core/transform/quantize.h). The others are
 * of machine files alone: a scale for a block of 128 (fp8_block) or of 16 elements (nvfp4). */
typedef int32_t dtp_arithmetic;
enum { DTP_TF32 = DTP_N_DTYPES, DTP_FP8, DTP_FP8_BLOCK, DTP_NVFP4, DTP_N_ARITHMETICS };

static inline const char *dtp_arithmetic_name(dtp_arithmetic a)
{
    static const char *const NAMES[] = {"tf32", "fp8", "fp8_block", "nvfp4"};
    return a >= DTP_TF32 ? NAMES[a - DTP_TF32] : dtp_dtype_name((dtp_dtype)a);
}

/* DTP_INVALID. */
static inline dtp_status dtp_arithmetic_parse(const char *name, dtp_arithmetic *out, dtp_err *err)
{
    dtp_dtype dtype = DTP_F32;
    for (*out = DTP_TF32; *out < DTP_N_ARITHMETICS; (*out)++) {
        if (strcmp(name, dtp_arithmetic_name(*out)) == 0) {
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_dtype_parse(name, &dtype, err));
    *out = (dtp_arithmetic)dtype;
    return DTP_OK;
}

/* That of the products of a graph; `tf32`: its flag. */
static inline dtp_arithmetic dtp_product_arithmetic(dtp_dtype operands, bool tf32)
{
    return tf32 && operands == DTP_F32 ? DTP_TF32 : (dtp_arithmetic)operands;
}

#endif
