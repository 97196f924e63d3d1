/* What attention and its gradient are on one rank: sizes, heads, places in the sequence. */
#ifndef DTP_EXECUTOR_DEVICE_ATTENTION_SHAPE_H
#define DTP_EXECUTOR_DEVICE_ATTENTION_SHAPE_H

#include "core/graph/ops/attention_split.h"
#include "core/graph/ops/sequence.h"
#include "executor/device/nest.h"

/* Sizes of a call on this rank and the dims that tell heads apart. With a chunk dim a head is one
 * chunk of one, and the chunk dim is the first of `shared`. */
typedef struct dtp_attention_shape {
    dtp_attention_dims dims;
    int64_t queries, first_query, global_queries, keys, features, values;
    int64_t chunks, local_chunks, first_chunk; /* 1, 1, 0 without a chunk dim */
    dtp_sequence order;                        /* of all keys */
    int64_t ahead;                             /* keys before the first query's own */
    int32_t n_shared, n_grouped;
    dtp_tdim shared[DTP_MAX_RANK];  /* in q, k and v */
    dtp_tdim grouped[DTP_MAX_RANK]; /* in q only */
} dtp_attention_shape;

void dtp_attention_shape_of(dtp_attention_shape *s, const dtp_kernel_args *args);

#endif
