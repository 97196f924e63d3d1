/* The selection problem: every variable picks one of its strategies.
 *
 *   minimise    sum_i cost_i(s_i) + sum_(a,b) cost_ab(s_a, s_b)
 *   subject to  sum_{i: begin_i <= t < end_i} usage_i(s_i) <= usage_limit   for every time t
 *
 * A variable may have further intervals, each with usages of its own; where they overlap they add
 * up.
 *
 * Costs and usages are non-negative integers. A cost of DTP_FORBIDDEN excludes the strategy
 * or the pair; sums of costs saturate there, so a plan whose total reaches it is excluded as well.
 * Several edges may join the same two variables: their costs add up.
 *
 * Plain data in compact arrays. Build: dtp_problem_create, the add functions in the order of
 * the indices (variables before the edges that use them), dtp_problem_check. Afterwards only
 * read.
 */
#ifndef DTP_PLANNER_PROBLEM_PROBLEM_H
#define DTP_PLANNER_PROBLEM_PROBLEM_H

#include <stddef.h>

#include "core/base/status.h"

#define DTP_FORBIDDEN INT64_C(1000000000000000000)

enum { DTP_MAX_STRATEGIES = 1 << 20 }; /* of one variable */

typedef struct dtp_problem {
    char *name; /* never NULL once checked */
    int64_t usage_limit;
    int32_t n_variables, n_edges;
    int64_t *begin,
        *end;       /* by variable: the half-open interval of its usage; empty if begin >= end */
    int64_t *first; /* by variable, and one more: its strategies are first[i]..first[i + 1] - 1 */
    int64_t *cost, *usage; /* by strategy */
    int32_t *edge_a, *edge_b;
    int64_t *edge_first; /* by edge: its matrix, row-major, rows by strategies of a, begins at
                            edge_cost[edge_first[e]]; edges may share one */
    int64_t *edge_cost;
    int64_t n_stored; /* numbers in edge_cost */
    int32_t n_extra;  /* further intervals */
    int32_t *extra_variable;
    int64_t *extra_begin, *extra_end;
    int64_t *extra_first; /* by further interval: its usages begin at extra_usage[extra_first[x]] */
    int64_t *extra_usage; /* as many as the variable has strategies; intervals may share them */
    int64_t cap_strategies, cap_entries, n_extra_usage, cap_extra_usage; /* room in the arrays */
    int32_t cap_variables, cap_edges, cap_extra;
} dtp_problem;

/* One interval of usage: first those of the variables, by variable, then the further ones. */
typedef struct dtp_problem_interval {
    int32_t variable;
    int64_t begin, end;   /* half-open; empty if begin >= end */
    const int64_t *usage; /* by strategy of the variable; borrowed */
} dtp_problem_interval;

dtp_status dtp_problem_create(const char *name, int64_t usage_limit, dtp_problem **out,
                              dtp_err *err) DTP_MUST_CHECK;
void dtp_problem_destroy(dtp_problem *p);

/* A variable with k >= 1 strategies; cost and usage are copied. */
dtp_status dtp_problem_add_variable(dtp_problem *p, int64_t begin, int64_t end, int32_t k,
                                    const int64_t *cost, const int64_t *usage,
                                    dtp_err *err) DTP_MUST_CHECK;
/* A further interval of a variable that is there already; usage (by strategy) is copied, unless it
 * is what the last further interval of the variable has. */
dtp_status dtp_problem_add_interval(dtp_problem *p, int32_t variable, int64_t begin, int64_t end,
                                    const int64_t *usage, dtp_err *err) DTP_MUST_CHECK;
/* An edge between two variables that are there already; the matrix (k_a rows of k_b) is copied. */
dtp_status dtp_problem_add_edge(dtp_problem *p, int32_t a, int32_t b, const int64_t *cost,
                                dtp_err *err) DTP_MUST_CHECK;

/* The same with the matrix of an edge that is there and has as many rows and columns. */
dtp_status dtp_problem_add_edge_like(dtp_problem *p, int32_t a, int32_t b, int32_t edge,
                                     dtp_err *err) DTP_MUST_CHECK;

/* DTP_INVALID or DTP_RANGE naming the place ("edges.costs[3][7]"): wrong lengths, negative numbers,
 * an edge from a variable to itself, usages whose sum does not fit. */
dtp_status dtp_problem_check(const dtp_problem *p, dtp_err *err) DTP_MUST_CHECK;

/* Number of strategies of a variable. */
int32_t dtp_problem_n_strategies(const dtp_problem *p, int32_t variable);

/* Where the matrix of an edge ends in edge_cost. */
int64_t dtp_problem_edge_end(const dtp_problem *p, int32_t edge);
/* Entries of the matrices of all edges, shared ones as often as they occur. */
int64_t dtp_problem_n_entries(const dtp_problem *p);

/* All intervals: variables and further ones. */
int32_t dtp_problem_n_intervals(const dtp_problem *p);
dtp_problem_interval dtp_problem_interval_at(const dtp_problem *p, int32_t index);

/* a + b for costs, saturating at DTP_FORBIDDEN. */
static inline int64_t dtp_problem_add_cost(int64_t a, int64_t b)
{
    return a >= DTP_FORBIDDEN - b ? DTP_FORBIDDEN : a + b;
}

/* Room for `need` elements of `size` bytes in *array; capacities at least double. */
dtp_status dtp_problem__reserve(void *array, int64_t need, int64_t *capacity, size_t size,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
