/* How every tensor of a graph depends on the rows of the batch, when the nodes see a part of the
 * rows at a time: the sharding rules of the ops (core/graph/op.h) say it for every node, as if the
 * parts were ranks of a mesh dim over which the batch is split. Microbatches and evaluations are
 * made by what is found here.
 */
#ifndef DTP_CORE_TRANSFORM_ROW_PARTS_H
#define DTP_CORE_TRANSFORM_ROW_PARTS_H

#include "core/graph/graph.h"

typedef struct dtp_row_parts {
    /* set by the caller */
    const dtp_graph *g;
    const char *what; /* names the caller in errors: "microbatches" */
    dtp_dim_id dim;   /* of the rows */
    int32_t count;    /* equal parts; 1: parts of any size, of each of which a dim of g has one */
    bool folds; /* values of parts may be folded by more than a sum, and read once all rows have
                   been: else a node that reads them is refused */
    /* found */
    dtp_row_part *part; /* by tensor */
    int32_t *axis;      /* by tensor: DTP_ROWS_CUT along this axis */
    bool *own;          /* by tensor: it is made of statistics that each part has of its own */
    bool *statistic;    /* by tensor: in_training takes a sum over rows: each part has its own */
    int32_t n_dims;     /* `dim` and the dims that it is renamed to */
    dtp_dim_id dims[DTP_MAX_MICRO_DIMS];
} dtp_row_parts;

/* Fills the rest of *w, with storage from `arena`; nodes of phase UPDATE are left out. DTP_INVALID
 * when `count` does not divide a size or no input has the dim; DTP_UNSUPPORTED naming the node that
 * needs all rows, or the parameter that has the dim. */
dtp_status dtp_row_parts_find(dtp_row_parts *w, dtp_arena *arena, dtp_err *err) DTP_MUST_CHECK;

/* Whether operand i, a sum over the rows of a part, is the gradient of a statistic of that part,
 * and whole. */
bool dtp_row_parts_whole_gradient(const dtp_row_parts *w, const dtp_node *node, int32_t i);

/* Whether the rows are along this dim. */
bool dtp_row_parts_cut(const dtp_row_parts *w, dtp_dim_id d);

#endif
