/* One run over the strategies of a variable (min_marginals_run.c), of which min_marginals.c makes
 * two: without the usage limit and with it. */
#ifndef DTP_PLANNER_SOLVER_MIN_MARGINALS_INTERNAL_H
#define DTP_PLANNER_SOLVER_MIN_MARGINALS_INTERNAL_H

#include "planner/solver/primal_marginals.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/min_marginals.h"

typedef struct solver_min_marginals {
    const dtp_solver_parameters *parameters;
    const dtp_problem *p;
    int32_t variable, k;               /* k: its strategies */
    dtp_min_marginal *out;             /* by strategy */
    bool *open;                        /* by strategy: more is to be said about it */
    solver_primal_marginals primal;    /* solutions, to which better ones are added */
    int64_t *work_units;               /* left */
    int64_t *top;                      /* by strategy */
    int64_t most;                      /* the largest */
    int64_t *bound;                    /* scratch, by strategy of the reduced problem */
    int32_t *origin;                   /* by strategy of the reduced problem: of the problem */
    int32_t *assignment, *full, *best; /* scratch, by variable */
    solver_reduced *w;
    solver_reduced *aside; /* w before strategies were set aside; NULL: none were */
    int32_t depth;         /* how much is tried with one strategy: as often as this, doubled */
    bool *waits;           /* by strategy: set aside */
} solver_min_marginals;

/* Borrows p, out, work_units and start. Everything is open. */
dtp_status solver_min_marginals_create(const dtp_problem *p,
                                       const dtp_min_marginal_options *options, int64_t *work_units,
                                       dtp_min_marginal *out, solver_min_marginals *m,
                                       dtp_err *err) DTP_MUST_CHECK;
void solver_min_marginals_destroy(solver_min_marginals *m);

/* Raises bounds and lowers costs of what is open, as far as the work units last. */
dtp_status solver_min_marginals_run(solver_min_marginals *m, dtp_err *err) DTP_MUST_CHECK;

/* Solves with strategy s on its own, to the end. */
dtp_status solver_min_marginals_finish(solver_min_marginals *m, int32_t s,
                                       dtp_err *err) DTP_MUST_CHECK;

/* ---- for the two files ----------------------------------------------------------------------- */

/* What a round of ascent in a reduced problem costs, in work units. */
int64_t solver_min_marginals__work_units(solver_reduced *w);
/* m->origin becomes that of the reduced problem. */
void solver_min_marginals__find_origins(solver_min_marginals *m, const solver_reduced *w);
/* Leaves w presolved, with what the multipliers exclude taken out. */
dtp_status solver_min_marginals__apply(const solver_dual *d, solver_reduced *w,
                                       dtp_err *err) DTP_MUST_CHECK;
/* Those strategies of w, which is m->w or m->aside, that are open and wait, or do not. */
dtp_status solver_min_marginals__one_by_one(solver_min_marginals *m, solver_reduced *w,
                                            bool waiting, dtp_err *err) DTP_MUST_CHECK;

#endif
