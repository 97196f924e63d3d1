/* Edges of the problem of tensor mode and what they cost. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_EDGE_COSTS_H
#define DTP_PLANNER_PROBLEM_TENSORS_EDGE_COSTS_H

#include "planner/problem/tensors/tensor_internal.h"

typedef enum link_kind {
    LINK_MADE,
    LINK_VIEWED,
    LINK_READ,
    LINK_PASSED,
    LINK_TIED /* no redistribution: two layouts must be equal */
} link_kind;

/* One redistribution between two variables. */
typedef struct link {
    link_kind kind;
    int32_t a, b;      /* variables, in the direction of the data */
    uint32_t operands; /* READ, PASSED: bit i: operand i is the tensor; TIED: slot of b */
    int32_t output;    /* MADE, PASSED: of node a; TIED: slot of a (dtp_layout_place) */
    int32_t node;      /* MADE: group of the maker; READ, PASSED: of the reader; TIED: of b, -1:
                          b keeps the tensor */
    int32_t maker;     /* TIED: as `node`, of a */
    dtp_tensor_id tensor;
    dtp_node_id reader; /* READ, PASSED */
    int64_t count;      /* how often it runs in a step, over all instances */
} link;

/* Adds the edge of a link to the selection problem, with the matrix of an edge before it where the
 * two are equal by construction; a link of one variable with itself adds to the costs of that
 * variable. */
dtp_status dtp_tensor__edge(tensor_build *b, const link *l, dtp_err *err) DTP_MUST_CHECK;

#endif
