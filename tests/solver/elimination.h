/* The least cost of a selection problem by eliminating one variable after the other: dynamic
 * programming over tables of what remains. Reads the data of the problem and shares no code with
 * the solvers. Exact, by three rules:
 *
 *   eliminate  all tables with a variable are added up, and for all strategies of the variables
 *   around it
 *              the least over its own strategies is written down.
 *   drop       strategy t goes when some s of the same variable costs no more whatever the others
 *   do:
 *              sum over the tables with the variable of max (table(s, .) - table(t, .)) <= 0, and,
 *              when usage counts, s uses no more than t at any time.
 *   wait       when usage counts, variables that may change it wait for those that cannot.
 *
 * Costs are multiplied by a scale, so that multipliers of usage may be finer than 1. Failures are
 * those of cmocka. */
#ifndef DTP_TESTS_SOLVER_ELIMINATION_H
#define DTP_TESTS_SOLVER_ELIMINATION_H

#include "planner/problem/problem.h"

/* What stands for DTP_FORBIDDEN: 60 of them can be added up. */
#define ELIMINATION_FORBIDDEN (INT64_C(1) << 56)

/* A table over some variables, row-major, the first variable outermost. */
typedef struct elimination_table {
    int32_t n,
        *variables; /* ascending; of a step: those around the step's variable, which comes last */
    int64_t size, *cost;
    int64_t *least; /* while a step is made: by row, the least over its variable's strategies */
} elimination_table;

/* A variable that was eliminated: what it costs given the strategies of the variables around it. */
typedef struct elimination_step {
    int32_t variable, n_tables, n_around, *around; /* around: eliminated later; ascending */
    elimination_table *tables;
} elimination_step;

typedef struct elimination {
    const dtp_problem *p; /* borrowed */
    int64_t scale;
    bool with_usage;    /* usage counts */
    int32_t *left;      /* by variable: strategies that are left */
    int32_t **strategy; /* by variable: which these are */
    bool *gone, *loud;  /* by variable: eliminated; strategies that are left differ in usage */
    int64_t *weight;    /* by variable: cells to add up to eliminate it; 0: not known */
    int32_t n, cap;
    elimination_table *tables;
    int32_t n_steps;
    elimination_step *steps; /* when usage counts, in the order in which they were done */
    int64_t least;           /* of what is eliminated altogether */
    int64_t cells, largest;  /* added up so far; of one variable */
} elimination;

/* A problem of which nothing is eliminated yet. Strategies that cost more than another one are
 * dropped. */
elimination *elimination_create(const dtp_problem *p, int64_t scale, bool with_usage);
void elimination_destroy(elimination *e);

/* Eliminates variables, dropping strategies on the way, while one takes at most `most` cells. Of an
 * elimination with usage only those that cannot change the usage. */
void elimination_reduce(elimination *e, int64_t most);

/* A copy of what is left, with the multiplier of every strategy (as those of p->cost; NULL: none)
 * added and all variables eliminated without dropping anything: first those that cannot change the
 * usage and take at most `most` cells. */
elimination *elimination_finish(const elimination *e, const int64_t *multipliers, int64_t most);

/* The least cost of p without regard to usage; DTP_FORBIDDEN when there is no solution.
 * *cells (may be NULL): how many were added up. */
int64_t elimination_optimum(const dtp_problem *p, int64_t *cells);

/* What the strategies of a step's variable cost above the least, given those of the variables
 * around it. at: by variable, index among the strategies that are left; out: one per strategy that
 * is left. */
void elimination_step_costs(const elimination *e, const elimination_step *step, const int32_t *at,
                            int64_t *out);

#endif
