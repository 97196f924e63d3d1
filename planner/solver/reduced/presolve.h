/* Making a selection problem small (docs/solve.md). Every reduction keeps at least one optimal
 * solution among those cheaper than the cutoff; what is left is the kernel. */
#ifndef DTP_PLANNER_SOLVER_REDUCED_PRESOLVE_H
#define DTP_PLANNER_SOLVER_REDUCED_PRESOLVE_H

#include "planner/problem/problem.h"

typedef struct dtp_presolve_options {
    bool soft_arc_consistency;  /* minima move from edges to variables; separable edges go */
    bool functional_dependency; /* a variable whose strategy follows from a neighbour's joins it */
    bool dominance;             /* Goldstein's criterion, usage included */
    bool pbqp;                  /* variables of degree <= 2 without usage at contended times go */
    bool memory_rows;           /* usage counts only at contended maximal cliques of intervals */
    bool incumbent_filter; /* entries that make every solution reach the cutoff are forbidden */
} dtp_presolve_options;

/* All of them. */
dtp_presolve_options dtp_presolve_options_init(void);

/* What is there: once before, once after. */
typedef struct dtp_presolve_size {
    int64_t variables, strategies, edges, entries, rows;
} dtp_presolve_size;

typedef struct dtp_presolve_report {
    dtp_presolve_size before, after;
    int64_t merged_variables, eliminated_variables, separable_edges;
    int64_t inconsistent, filtered, dominated, oversized; /* strategies */
    int64_t filtered_entries, dropped_rows;
} dtp_presolve_report;

typedef struct solver_reduced solver_reduced;

/* Runs the reductions to a fixed point; may be called again after the cutoff fell. */
dtp_status solver_presolve(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;
/* Soft arc consistency alone, over the edges that changed. */
dtp_status solver_propagate(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
