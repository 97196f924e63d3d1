/* The cheapest selection within the usage limit, found without the solvers.
 *
 * With a multiplier of usage at every time, the least of cost + sum over times of multiplier *
 * (usage - limit) is a lower bound, exact by elimination (elimination.h); multipliers are lifted by
 * subgradient steps. Walking through the steps of the elimination backwards gives every selection
 * with what it costs above that bound, so that all selections up to a threshold above it can be
 * looked at. The threshold doubles until the cheapest of them that keeps the limit costs no more
 * than it. All in integers. */
#ifndef DTP_TESTS_SOLVER_LIMIT_SEARCH_H
#define DTP_TESTS_SOLVER_LIMIT_SEARCH_H

#include "planner/problem/problem.h"

typedef struct limit_options {
    int32_t rounds;       /* of the multipliers */
    int64_t most_cells;   /* of one elimination before multipliers come in */
    int64_t most_visited; /* after so many partial selections the search is given up */
} limit_options;

typedef struct limit_result {
    bool found;      /* false: given up */
    int64_t cost;    /* the least within the limit; of a selection that was evaluated anew */
    int64_t bound;   /* that the search began from, rounded up */
    int64_t visited; /* partial selections */
    int32_t loud;    /* variables whose strategies differ in usage */
} limit_result;

/* 300 rounds, 2^16 cells, 2^26 partial selections. */
limit_options limit_options_init(void);

/* p has a solution within its usage_limit, which must not be 0. */
limit_result limit_search(const dtp_problem *p, const limit_options *options);

#endif
