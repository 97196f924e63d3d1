/* What every strategy of one variable costs when everything else is chosen to be least: the least
 * cost of all solutions with it, or a lower bound of that. One presolve and one ascent of the dual
 * serve all strategies together (min_marginals_run.c). */
#ifndef DTP_PLANNER_SOLVER_MIN_MARGINALS_H
#define DTP_PLANNER_SOLVER_MIN_MARGINALS_H

#include "planner/problem/problem.h"
#include "planner/solver/parameters/parameters.h"

typedef struct dtp_min_marginal {
    int64_t cost;  /* of the best solution known with the strategy; DTP_FORBIDDEN: none */
    int64_t bound; /* no solution with it costs less; DTP_FORBIDDEN: there is none.
                      Equal to cost: that is the least */
} dtp_min_marginal;

typedef struct dtp_min_marginal_options {
    const dtp_solver_parameters *parameters; /* borrowed */
    int32_t variable;
    const int32_t *start; /* an assignment by variable that is feasible */
    int64_t work_units;   /* reads of matrix entries; a good second has about 2e8 */
    bool exact;           /* afterwards every strategy that is still open is solved on its own */
} dtp_min_marginal_options;

/* Work units of about 50 ms, more for millions of entries, not exact. */
dtp_min_marginal_options dtp_min_marginal_options_init(const dtp_problem *p, int32_t variable,
                                                       const int32_t *start);

/* out: by strategy of the variable. In: costs of solutions that the caller knows, within the limit,
 * else DTP_FORBIDDEN. Deterministic. DTP_INVALID when the start is not feasible. */
dtp_status dtp_min_marginals(const dtp_problem *p, const dtp_min_marginal_options *options,
                             dtp_min_marginal *out, dtp_err *err) DTP_MUST_CHECK;

#endif
