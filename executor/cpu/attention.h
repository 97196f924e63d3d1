/* What attention and its gradient share. */
#ifndef DTP_EXECUTOR_CPU_ATTENTION_H
#define DTP_EXECUTOR_CPU_ATTENTION_H

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/nest.h"
#include "executor/device/bound/attention.h"
#include "spmd/target/cpu_attention.h"

/* Threads of a team for so many heads of queries, at most as many as the workspace has tile sets
 * for. */
int32_t dtp_attention_team(const dtp_attention_shape *s, const dtp_kernel_args *args,
                           int64_t heads);
dtp_status dtp_attention_check_workspace(const dtp_attention_shape *s, const dtp_kernel_args *args,
                                         dtp_err *err) DTP_MUST_CHECK;

/* What a mask adds to the scores of n keys from element `at` on; -inf: the pair is not seen. */
void dtp_attention_mask_row(const dtp_attention_mat *mask, int64_t at, int64_t n, float *out);
/* The weights of one query, or gradients of its scores, of n keys, and its row of the mask. */
typedef struct dtp_attention_pairs {
    int64_t n;
    const float *mask, *w;
    float scale;
} dtp_attention_pairs;

/* Row i of y += scale w[i] (row i of x) for the keys that are seen; others have no part, whatever x
 * is. Rows are `cols` wide; of a step of 0 there is one. */
void dtp_attention_add_seen(const dtp_attention_pairs *pairs, int64_t cols, const float *x,
                            int64_t x_step, float *y, int64_t y_step);
/* Rows of the matrix from element `at` on, with contiguous columns: in place when they are, else
 * gathered into the buffer, as f32. */
const float *dtp_attention_block(const dtp_attention_mat *mat, int64_t at, int64_t rows,
                                 float *buffer, int64_t *ld);
/* A block of keys or values, as a product with its transpose needs it: products with the second
 * operand not transposed run at twice the speed in OpenBLAS, so contiguous columns are transposed
 * into the buffer; others are gathered there. */
typedef struct dtp_attention_keys {
    const float *data; /* rows x cols, leading dim ld */
    int64_t ld;
    const float *by; /* the operand of the product */
    bool by_trans;   /* it is rows x cols too */
    int64_t by_ld;
} dtp_attention_keys;

/* `wide` holds the block of a 16-bit matrix; another needs none. */
dtp_attention_keys dtp_attention_keys_of(const dtp_attention_mat *mat, int64_t at, int64_t rows,
                                         float *buffer, float *wide);
/* Floats of such a block. */
static inline int64_t dtp_attention_wide(const dtp_attention_mat *mat)
{
    return dtp_dtype_is_half(mat->dtype) ? DTP_ATTENTION_KEYS * mat->cols : 0;
}
/* Are all elements of the rows finite? */
bool dtp_attention_is_finite(const float *x, int64_t rows, int64_t cols, int64_t ld);
/* Stores a contiguous block, or adds it to one of f32. */
void dtp_attention_put(const dtp_attention_mat *mat, int64_t at, int64_t rows, const float *buffer,
                       bool add);

/* Where a head stands in the sequence: places of its local query 0 and key 0. */
typedef struct dtp_attention_at {
    int64_t query, key;
} dtp_attention_at;

/* That of head `index` of `n`, chunks first. */
dtp_attention_at dtp_attention_at_of(const dtp_attention_shape *s, int64_t index, int64_t n);
/* Keys of the block that starts at a local key: at most DTP_ATTENTION_KEYS, in one run of the
 * order, so that every query sees the first few of them. */
int64_t dtp_attention_key_block(const dtp_attention_shape *s, dtp_attention_at at, int64_t key);
/* How many of the n keys of a block from `key` on a local query sees. */
int64_t dtp_attention_visible(const dtp_attention_shape *s, dtp_attention_at at, int64_t query,
                              int64_t key, int64_t n);
/* How many of them any of nq queries sees. */
int64_t dtp_attention_block_sees(const dtp_attention_shape *s, dtp_attention_at at, int64_t query,
                                 int64_t nq, int64_t key, int64_t n);

#endif
