/* Solves a selection problem: presolve; a search for solutions beside an ascent of the bound
 * (planner/solver/primal_dual.h); branch and bound where what is left is small enough; branch and
 * bound of neighbourhoods of the best solution (planner/solver/large_neighbourhood.h). The bound
 * holds in exact arithmetic, and the cost is that of the independent evaluation
 * (planner/problem/check.h). */
#ifndef DTP_PLANNER_SOLVER_SOLVE_H
#define DTP_PLANNER_SOLVER_SOLVE_H

#include "core/base/stop.h"
#include "core/plan/plan.h"
#include "planner/problem/check.h"
#include "planner/solver/parameters/parameters.h"
#include "planner/solver/reduced/presolve.h"

typedef enum dtp_solver {
    DTP_SOLVER_AUTO,  /* by the size of what presolve leaves */
    DTP_SOLVER_EXACT, /* branch and bound alone */
    DTP_SOLVER_LARGE, /* search and ascent alone */
    DTP_SOLVER_GLPK   /* one integer program, by GLPK; then its answer is proven as in EXACT */
} dtp_solver;

typedef struct dtp_solve_options {
    const dtp_solver_parameters *parameters; /* borrowed */
    dtp_presolve_options presolve;
    dtp_solver solver;
    int32_t threads;      /* 1 or more (two are used); the answer does not depend on them */
    const dtp_stop *stop; /* NULL = none; where it fires depends on the machine's speed */
    bool until_stopped;   /* without a limit of iterations, passes until it fires or a proof */
    int64_t iterations;   /* rounds of the searches, and nodes of branch and bound; 0 = no limit
                             when until_stopped, else 400 */
    uint64_t seed;
    int64_t lp_entries;  /* up to so many, bounds by the linear program, else by dual ascent */
    int64_t max_entries; /* finite edge entries of the largest relaxation that is tried */
    double gap;          /* a kernel too large for the linear program is left when cost and bound
                             are this close, as a share of the cost; 0 = when they are equal */
    int64_t cutoff;      /* solutions are wanted that cost less than this; 0 = any */
    const int32_t
        *start; /* an assignment by variable known beforehand, which need not be feasible; NULL:
                             none */
} dtp_solve_options;

/* Everything of presolve, no limits given, 2 threads, seed 1, 250,000 entries. */
dtp_solve_options dtp_solve_options_init(void);

typedef struct dtp_solve_result {
    dtp_cert_status status;  /* INFEASIBLE: proven, also that nothing costs less than the cutoff;
                               TIME_LIMIT: nothing found, nothing proven */
    int32_t *assignment;     /* by variable; NULL without a solution; dtp_solve_result_free */
    dtp_problem_value value; /* of the assignment */
    int64_t bound;           /* no solution costs less; the cutoff, or DTP_FORBIDDEN without
                               one, when infeasible */
    int64_t nodes;           /* of branch and bound, of all that is left */
    dtp_presolve_report presolve; /* after.*: when the first relaxation was set up */
} dtp_solve_result;

/* "auto", "exact", "large" or "glpk"; DTP_INVALID for another name. */
dtp_status dtp_solver_parse(const char *name, dtp_solver *out, dtp_err *err) DTP_MUST_CHECK;

/* (cost - bound) / cost, 0 for cost 0. */
double dtp_solve_gap(const dtp_solve_result *r);

/* DTP_RANGE: presolve leaves more than GLPK is given. */
dtp_status dtp_solve(const dtp_problem *p, const dtp_solve_options *options, dtp_solve_result *out,
                     dtp_err *err) DTP_MUST_CHECK;
void dtp_solve_result_free(dtp_solve_result *r);

#endif
