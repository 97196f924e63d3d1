/* Mixed-integer linear programs, solved by GLPK.
 *
 *   minimise    sum_j c_j x_j
 *   subject to  lo_i <= sum_j a_ij x_j <= hi_i    for every row i
 *               l_j <= x_j <= u_j                 for every column j
 *               x_j integer                       for the columns marked so
 *
 * Bounds may be infinite (-INFINITY, INFINITY). Numbers are doubles: callers scale costs and bytes
 * to moderate sizes and re-evaluate what comes back in exact integers.
 *
 * GLPK ends the process on misuse and on internal failures. The fence catches that and returns
 * DTP_SOLVER with GLPK's words; a verdict such as "infeasible" is a field of the result, not an
 * error. After such a failure the GLPK environment of the calling thread is discarded, so a program
 * that uses GLPK itself in the same thread loses its problems then.
 */
#ifndef DTP_PLANNER_SOLVER_GLPK_FENCE_H
#define DTP_PLANNER_SOLVER_GLPK_FENCE_H

#include "core/base/stop.h"

typedef struct dtp_ilp dtp_ilp;

typedef enum dtp_ilp_status {
    DTP_ILP_OPTIMAL,    /* proven within the solver's tolerances */
    DTP_ILP_FEASIBLE,   /* a solution, but a limit ended the search */
    DTP_ILP_INFEASIBLE, /* proven that there is none */
    DTP_ILP_TIME_LIMIT  /* a limit ended the search before any solution was found */
} dtp_ilp_status;

/* Called with the values of a relaxation, by column: may add rows that they violate with
 * dtp_ilp_add_row, and is then called again with the new optimum. A failure ends the solve. */
typedef dtp_status (*dtp_ilp_lazy_fn)(void *user, dtp_ilp *ilp, const double *values, dtp_err *err);

typedef struct dtp_ilp_options {
    int64_t node_limit;   /* branch-and-bound nodes, 0 = none; deterministic */
    const dtp_stop *stop; /* borrowed, NULL = none; where it fires is not deterministic */
    bool relaxation;      /* only the relaxation: values are not integer, row_duals are set */
    dtp_ilp_lazy_fn lazy; /* of the relaxation; NULL = none */
    void *lazy_user;
} dtp_ilp_options;

/* 200,000 nodes, no stop token, nothing lazy. */
dtp_ilp_options dtp_ilp_options_init(void);

typedef struct dtp_ilp_result {
    dtp_ilp_status status;
    double objective;  /* of the values; OPTIMAL and FEASIBLE only */
    double bound;      /* no solution is below it (to the solver's tolerance); -INFINITY = none */
    double root_bound; /* the same from the duals of the root relaxation, recomputed outside GLPK:
                          any dual vector gives a valid bound; -INFINITY = none */
    const double *values; /* by column, integer columns rounded; owned by the dtp_ilp until the next
                             call on it; NULL without a solution */
    const double *row_duals; /* by row, of the relaxation alone; owned likewise, NULL otherwise */
    int64_t nodes;
} dtp_ilp_result;

dtp_status dtp_ilp_create(dtp_ilp **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_ilp_destroy(dtp_ilp *ilp);

typedef struct dtp_ilp_col {
    double lo, hi, cost;
    bool integer;
} dtp_ilp_col;

dtp_status dtp_ilp_add_col(dtp_ilp *ilp, dtp_ilp_col col, int32_t *index,
                           dtp_err *err) DTP_MUST_CHECK;
/* Columns of a row must be distinct; index may be NULL. DTP_INVALID on a column that is not there,
 * a coefficient that is not finite, or lo > hi. */
dtp_status dtp_ilp_add_row(dtp_ilp *ilp, double lo, double hi, int32_t n, const int32_t *cols,
                           const double *coefs, int32_t *index, dtp_err *err) DTP_MUST_CHECK;
void dtp_ilp_set_cost(dtp_ilp *ilp, int32_t col, double cost);
void dtp_ilp_add_cost(dtp_ilp *ilp, int32_t col, double cost);
void dtp_ilp_set_col_bounds(dtp_ilp *ilp, int32_t col, double lo, double hi);
void dtp_ilp_set_row_bounds(dtp_ilp *ilp, int32_t row, double lo, double hi);
int32_t dtp_ilp_n_cols(const dtp_ilp *ilp);
int32_t dtp_ilp_n_rows(const dtp_ilp *ilp);

/* DTP_SOLVER when GLPK failed or found the relaxation unbounded. */
dtp_status dtp_ilp_solve(dtp_ilp *ilp, const dtp_ilp_options *options, dtp_ilp_result *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
