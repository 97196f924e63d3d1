/* What the dims of a model are, read from its forward nodes: the batch, the sequence, the
 * vocabulary, feature dims that Megatron splits, experts. From these baselines.c makes styles. */
#ifndef DTP_PLANNER_BASELINE_DIMS_H
#define DTP_PLANNER_BASELINE_DIMS_H

#include "core/graph/graph.h"

typedef struct dtp_baseline_dims {
    dtp_dim_id batch;    /* first dim of the first input that has dims; -1 = none, as below */
    dtp_dim_id sequence; /* positions of the queries of attention */
    dtp_dim_id vocab;    /* classes of the loss, made by an einsum with a parameter */
    dtp_dim_id experts;  /* a dim that parameter, other operand and output of an einsum share */
    bool *feature;       /* by dim: split by columns where a parameter makes it, by rows where one
                            contracts it; at most one of the dims of a parameter */
    bool any_feature;
    dtp_tdim indivisible; /* id >= 0: a parameter has no feature dim because `parts` does not divide
                             this one */
} dtp_baseline_dims;

/* How an einsum treats a dim of one of its operands. */
typedef enum dtp_feature_use {
    DTP_USE_NONE,       /* the operand lacks it */
    DTP_USE_MADE,       /* of the operands only this has it, and the output has it */
    DTP_USE_CONTRACTED, /* another operand has it, the output does not */
    DTP_USE_SHARED      /* another operand and the output have it */
} dtp_feature_use;

dtp_feature_use dtp_baseline__use(const dtp_graph *g, const dtp_node *n, int32_t operand,
                                  dtp_dim_id d);

/* For features split over `parts` ranks; storage from `arena`. */
dtp_status dtp_baseline__dims(const dtp_graph *g, int64_t parts, dtp_arena *arena,
                              dtp_baseline_dims *out, dtp_err *err) DTP_MUST_CHECK;

#endif
