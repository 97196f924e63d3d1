/* Shared by the files that cut a graph into microbatches. */
#ifndef DTP_CORE_TRANSFORM_MICROBATCH_INTERNAL_H
#define DTP_CORE_TRANSFORM_MICROBATCH_INTERNAL_H

#include "core/graph/graph_copy.h"
#include "core/transform/microbatch.h"

/* What one microbatch has of a tensor. */
typedef enum dtp_micro_part { DTP_MICRO_WHOLE, DTP_MICRO_CUT, DTP_MICRO_SUM } dtp_micro_part;

typedef struct dtp_micro_work {
    const dtp_graph *g;
    int32_t count;
    dtp_dim_id dim;
    dtp_micro_part *part; /* by tensor */
    int32_t *axis;        /* by tensor: DTP_MICRO_CUT along this axis */
    bool *needed;         /* by tensor: read once per step */
    dtp_tensor_id *sum;   /* by tensor: its accumulated value in the new graph, -1 = none */
    int32_t n_dims;
    dtp_dim_id dims[DTP_MAX_MICRO_DIMS];
    dtp_graph_copy copy;
} dtp_micro_work;

/* The dim is cut wherever it occurs. */
bool dtp_micro__is_cut(const dtp_micro_work *w, dtp_dim_id d);
/* Finds the state of every tensor; w has graph, count and dim. Arrays from `scratch`. DTP_INVALID
 * or DTP_UNSUPPORTED when the graph cannot be cut so. */
dtp_status dtp_micro__find_parts(dtp_micro_work *w, dtp_arena *scratch,
                                 dtp_err *err) DTP_MUST_CHECK;

#endif
