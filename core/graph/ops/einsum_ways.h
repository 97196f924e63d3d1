/* Operands of a pair of an einsum, and the ways to run the pair as a batched GEMM. */
#ifndef DTP_CORE_GRAPH_OPS_EINSUM_WAYS_H
#define DTP_CORE_GRAPH_OPS_EINSUM_WAYS_H

#include "core/graph/ops/einsum_plan.h"

/* An operand of a pair: its dims of size other than 1, with element strides. */
typedef struct dtp_einsum_tensor {
    dtp_einsum_buf buf;
    int32_t rank;
    dtp_dim_id id[DTP_MAX_OP_DIMS];
    int64_t size[DTP_MAX_OP_DIMS], stride[DTP_MAX_OP_DIMS];
} dtp_einsum_tensor;

/* An ordered set of dims, outermost first. */
typedef struct dtp_einsum_group {
    int32_t n;
    dtp_dim_id id[DTP_MAX_OP_DIMS];
} dtp_einsum_group;

/* A tensor seen as a matrix rows x cols. */
typedef struct dtp_einsum_matrix {
    bool packed;    /* it must be copied first */
    bool row_major; /* rows x cols as stored; else cols x rows */
    int64_t ld;
} dtp_einsum_matrix;

/* One way to run a pair as a batched GEMM. */
typedef struct dtp_einsum_way {
    dtp_einsum_group batch, m, n, k;
    dtp_einsum_matrix part[DTP_EINSUM_PARTS]; /* first operand m x k, second k x n, result m x n */
    double moved;                             /* elements of the packed parts */
} dtp_einsum_way;

/* The place of a dim; -1 when the tensor does not have it. */
int32_t dtp_einsum__find(const dtp_einsum_tensor *t, dtp_dim_id id);
bool dtp_einsum__has(const dtp_einsum_tensor *t, dtp_dim_id id);
/* In elements; 0 when the tensor does not have the dim. */
int64_t dtp_einsum__stride_of(const dtp_einsum_tensor *t, dtp_dim_id id);
/* Appends a dim unless its size is 1. */
void dtp_einsum__add_dim(dtp_einsum_tensor *t, dtp_dim_id id, int64_t size);
/* Row-major strides, and the number of elements; false when that does not fit. An empty tensor
 * counts as one of size 1 along its empty dims. */
bool dtp_einsum__set_strides(dtp_einsum_tensor *t, int64_t *n_elems);
/* The number of elements, as a double: safe for shapes whose product does not fit. */
double dtp_einsum__elems(const dtp_einsum_tensor *t);
/* The dims of `order` that are in `with` and not in `without` (NULL: none are). */
dtp_einsum_group dtp_einsum__select_dims(const dtp_einsum_tensor *order,
                                         const dtp_einsum_tensor *with,
                                         const dtp_einsum_tensor *without);
dtp_einsum_matrix dtp_einsum__matrix_of(const dtp_einsum_tensor *t, const dtp_einsum_group *rows,
                                        const dtp_einsum_group *cols);
/* The way that packs the fewest elements. */
void dtp_einsum__best_way(const dtp_einsum_tensor *a, const dtp_einsum_tensor *b,
                          const dtp_einsum_tensor *c, dtp_einsum_way *best);

#endif
