/* Random selection problems small enough to enumerate: forbidden strategies and pairs, parallel
 * edges, memory, ties, empty intervals. The enumeration evaluates by its own code. */
#ifndef DTP_TESTS_SOLVER_RANDOM_PROBLEMS_H
#define DTP_TESTS_SOLVER_RANDOM_PROBLEMS_H

#include "planner/solver/reduced/presolve.h"

enum { SELECT_MAX_NODES = 7, SELECT_MAX_K = 4, SELECT_MAX_TIME = 12, SELECT_COMBINATIONS = 64 };

typedef struct random_source {
    uint64_t state;
} random_source;

/* 0 .. n - 1. */
int64_t draw(random_source *r, int64_t n);
dtp_problem *random_problem(random_source *r);
/* One where the cost of a plan without anything forbidden may still reach DTP_FORBIDDEN, and
 * usages are near what the reader allows. */
dtp_problem *overflowing_problem(random_source *r);
/* One of few variables with shapes that are rare else: a variable of more than 64 strategies,
 * several edges in either direction between the same two variables, usages near the largest that
 * are allowed, a limit of 0, intervals that are all empty, no edges. */
dtp_problem *odd_problem(random_source *r);
/* Cost of an assignment, -1 when it is not allowed. */
int64_t plain_cost(const dtp_problem *p, const int32_t *assignment);
/* The least cost over all assignments, -1 when none is allowed. */
int64_t enumerate(const dtp_problem *p);
/* A bit for every reduction that is left out. */
dtp_presolve_options combination(uint32_t bits);

#endif
