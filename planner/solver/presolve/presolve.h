/* Making a selection problem small (docs/solve.md). Every reduction keeps at least one optimal
 * solution among those cheaper than the cutoff; what is left is the kernel. */
#ifndef DTP_PLANNER_SOLVER_PRESOLVE_PRESOLVE_H
#define DTP_PLANNER_SOLVER_PRESOLVE_PRESOLVE_H

#include "planner/problem/problem.h"

typedef struct dtp_presolve_options {
    bool consistency; /* arc consistency, costs moved from edges to nodes, separable edges */
    bool merge;       /* a node whose strategy follows from a neighbour's joins it */
    bool dominance;   /* Goldstein's criterion, usage included */
    bool eliminate;   /* nodes of degree <= 2 without usage at contended times */
    bool rows;        /* usage matters only at maximal cliques of intervals, where contended */
    bool cap;         /* entries that make every solution reach the cutoff */
} dtp_presolve_options;

/* All of them. */
dtp_presolve_options dtp_presolve_options_init(void);

/* What is there: once before, once after. */
typedef struct dtp_presolve_size {
    int64_t nodes, strategies, edges, entries, rows;
} dtp_presolve_size;

typedef struct dtp_presolve_report {
    dtp_presolve_size before, after;
    int64_t merged_nodes, eliminated_nodes, separable_edges;
    int64_t inconsistent, capped, dominated, oversized; /* strategies */
    int64_t capped_entries, dropped_rows;
} dtp_presolve_report;

#endif
