/* Loops over nests (executor/device/nest.h) on the threads of the CPU. */
#ifndef DTP_EXECUTOR_CPU_LOOPS_NEST_H
#define DTP_EXECUTOR_CPU_LOOPS_NEST_H

#include "executor/device/nest.h"

/* Calls fn for pieces of rows that cover the nest, on up to `threads` threads. */
typedef void (*dtp_nest_fn)(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS]);
void dtp_nest_each(const dtp_nest *nest, int32_t threads, dtp_nest_fn fn, const void *user);

/* dst[nest] = src[nest] for elements of 1, 2, 4 or 8 bytes; view 0 is dst, view 1 src.
 * Transpositions go in square blocks. */
void dtp_nest_copy(const dtp_nest *nest, int32_t threads, void *dst, const void *src,
                   int64_t elem_bytes);

/* dst = src over the dims of `shape`, elements of dst's type. */
void dtp_view_copy(const dtp_ttype *shape, const dtp_view *dst, const dtp_view *src,
                   int32_t threads);

/* dst (cols x rows, contiguous) = transpose of src (rows x cols, leading dim ld), on one thread. */
void dtp_transpose(int64_t rows, int64_t cols, const float *src, int64_t ld, float *dst);

#endif
