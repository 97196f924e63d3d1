/* 16-bit floats in kernels that compute in f32: elements are widened, a block or row at a time, and
 * results are rounded to nearest even once. A NaN stays one. */
#ifndef DTP_EXECUTOR_CPU_LOOPS_HALVES_H
#define DTP_EXECUTOR_CPU_LOOPS_HALVES_H

#include "core/layout/tensor_type.h"

enum { DTP_HALF_BLOCK = 1024 }; /* elements of a block */

/* n elements of a 16-bit dtype, `step` apart, to f32 and back. */
void dtp_widen(dtp_dtype dtype, int64_t n, const void *src, int64_t step, float *dst);
void dtp_narrow(dtp_dtype dtype, int64_t n, const float *src, void *dst, int64_t step);

/* Element `index` of an f32 or 16-bit array. */
float dtp_float_at(dtp_dtype dtype, const void *data, int64_t index);
void dtp_float_put(dtp_dtype dtype, void *data, int64_t index, float value);

/* n contiguous elements of such an array from `at` on: in place, or widened to `buffer`. */
const float *dtp_floats(dtp_dtype dtype, int64_t n, const void *data, int64_t at, float *buffer);

#endif
