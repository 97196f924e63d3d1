/* What two plans of one model do differently, and what each difference costs. Tensors and nodes of
 * the two graphs are matched by name: the plans may run different graphs (implementations,
 * recomputation). */
#ifndef DTP_PLANNER_PLAN_DIFF_H
#define DTP_PLANNER_PLAN_DIFF_H

#include "core/plan/plan.h"
#include "cost_models/cost_split.h"
#include "spmd/lower/lower.h"

/* One of the two: what is run, and how it is lowered. */
typedef struct dtp_diff_input {
    const dtp_graph *graph;
    const dtp_sharding *sharding;
    const dtp_lower_options *options; /* of the final program */
} dtp_diff_input;

/* Index 0 and 1 of every pair are the two plans. */
typedef struct dtp_diff_tensor {
    const char *name;
    dtp_tensor_kind kind;
    dtp_tensor_id id[2];   /* -1: the plan's graph has no such tensor */
    const char *layout[2]; /* NULL where there is no such tensor */
    int64_t peak_bytes[2]; /* in all its layouts, when most memory is needed */
} dtp_diff_tensor;

typedef struct dtp_diff_node {
    const char *name;
    const char *op;
    dtp_node_id id[2];       /* -1: the plan's graph has no such node */
    const char *strategy[2]; /* NULL where there is no such node */
    dtp_cost_split cost[2];
} dtp_diff_node;

typedef struct dtp_diff_side {
    dtp_prediction predicted; /* of the final program */
    dtp_cost_split cost;      /* the additive cost, split */
    int64_t needed_bytes;     /* when most memory is needed */
    int64_t other_bytes;      /* of it, in buffers of no tensor: staging, workspace */
} dtp_diff_side;

typedef struct dtp_plan_diff {
    bool priced; /* costs and memory are there */
    dtp_diff_side side[2];
    int32_t n_tensors;
    dtp_diff_tensor *tensors; /* whose layouts differ, in the order of the graph */
    int32_t n_nodes;
    dtp_diff_node *nodes; /* whose strategies or costs differ */
} dtp_plan_diff;

/* Tensors or nodes, as indices into their lists, by how much they differ: bytes at the peak, costs;
 * ties in the order of the graph. From `arena`. */
dtp_status dtp_plan_diff_order(const dtp_plan_diff *diff, bool nodes, dtp_arena *arena,
                               int32_t **out, dtp_err *err) DTP_MUST_CHECK;

/* `machine` NULL: layouts and strategies are compared, not costs. Everything from `arena`. */
dtp_status dtp_plan_diff_make(const dtp_diff_input inputs[2], const dtp_machine *machine,
                              dtp_arena *arena, dtp_plan_diff *out, dtp_err *err) DTP_MUST_CHECK;

#endif
