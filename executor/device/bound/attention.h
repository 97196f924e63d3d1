/* Attention and its gradient, bound for any device: sizes, heads, places of keys, matrices. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_ATTENTION_H
#define DTP_EXECUTOR_DEVICE_BOUND_ATTENTION_H

#include "core/graph/ops/attention_split.h"
#include "core/graph/ops/sequence.h"
#include "executor/device/nest.h"

/* Sizes of a call on this rank, as kernels of cards take them too. With a chunk dim a head is one
 * chunk of one. */
typedef struct dtp_attention_shape {
    int64_t queries, first_query, global_queries, keys, features, values;
    int64_t chunks, local_chunks, first_chunk, shift; /* 1, 1, 0, 0 without a chunk dim */
    dtp_sequence order;                               /* of all keys */
    int64_t ahead;                                    /* keys before the first query's own */
    double scale;
    int32_t causal; /* whether */
} dtp_attention_shape;

/* The matrix [row dim, column dim] of one head inside a view; steps in elements. */
typedef struct dtp_attention_mat {
    void *data;
    dtp_dtype dtype;
    int64_t row_step, col_step, cols;
} dtp_attention_mat;

/* Views of nests over heads; dk and dv lie as k and v. */
enum {
    DTP_ATTENTION_Q,
    DTP_ATTENTION_K,
    DTP_ATTENTION_V,
    DTP_ATTENTION_OUT,
    DTP_ATTENTION_LSE,
    DTP_ATTENTION_MASK,
    DTP_ATTENTION_DOUT, /* from here on of the gradient */
    DTP_ATTENTION_DQ,
    DTP_ATTENTION_VIEWS
};

typedef struct dtp_attention_mats {
    dtp_attention_mat q, k, v, out, dout, dq, dk, dv;
    dtp_attention_mat mask; /* [query, key] of truth values or floats; data NULL: there is none */
    float *lse;
    int64_t lse_step;
} dtp_attention_mats;

typedef struct dtp_bound_attention {
    dtp_attention_shape shape;
    dtp_attention_mats mats;
    /* The dims that tell heads apart: in q, k and v, the chunk dim first; in q only. */
    int32_t n_shared, n_grouped;
    dtp_tdim shared_dims[DTP_MAX_RANK], grouped_dims[DTP_MAX_RANK];
    int32_t n_views;
    const dtp_view *views[DTP_ATTENTION_VIEWS];
    dtp_nest shared, grouped; /* heads */
} dtp_bound_attention;

/* Of attention or attention_part, or, with `grad`, of its gradient; with the addresses and offsets
 * of this run. */
void dtp_bind_attention(const dtp_kernel_args *args, bool grad, dtp_bound_attention *out);

/* attention_merge: views out a, out b, out, lse a, lse b, lse; `rows` over lse, `values` over the
 * other dims of out. */
void dtp_bind_attention_merge(const dtp_kernel_args *args, dtp_nest *rows, dtp_nest *values);

#endif
