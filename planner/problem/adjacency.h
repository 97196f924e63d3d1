/* The edges at every variable of a selection problem. */
#ifndef DTP_PLANNER_PROBLEM_ADJACENCY_H
#define DTP_PLANNER_PROBLEM_ADJACENCY_H

#include "planner/problem/problem.h"

typedef struct solver_adjacency {
    int32_t *first; /* by variable, and one more: its edges are edge[first[i]..first[i + 1] - 1], */
    int32_t *edge;  /* in their order */
} solver_adjacency;

dtp_status solver_adjacency_create(const dtp_problem *p, solver_adjacency *out,
                                   dtp_err *err) DTP_MUST_CHECK;
void solver_adjacency_destroy(solver_adjacency *x);

#endif
