/* The edges at every node of a selection problem. */
#ifndef DTP_PLANNER_PROBLEM_ADJACENCY_H
#define DTP_PLANNER_PROBLEM_ADJACENCY_H

#include "planner/problem/problem.h"

typedef struct sel_incident {
    int32_t *first; /* by node, and one more: its edges are edge[first[i]..first[i + 1] - 1], */
    int32_t *edge;  /* in their order */
} sel_incident;

dtp_status sel_incident_create(const dtp_select_problem *p, sel_incident *out,
                               dtp_err *err) DTP_MUST_CHECK;
void sel_incident_destroy(sel_incident *x);

#endif
