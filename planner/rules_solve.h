/* The integer program of rules mode (docs/ilp.md) over a priced problem.
 *
 *   x[t,m] in {0,1}    name t is split over mesh dim m
 *   y[d,a] in [0,1]    set d uses its assignment a
 *   min  sum_d,a cost[d,a] y[d,a]          objective time, memory rows <= limit
 *   min  z, then max sum x                 objective memory, memory rows <= z
 *   sum_a y[d,a] = 1;   sum_{a: m in a(t)} y[d,a] = x[t,m] for t in d
 *
 * Memory rows are added when a solution violates them. Every solution is evaluated again in
 * integers.
 */
#ifndef DTP_PLANNER_RULES_SOLVE_H
#define DTP_PLANNER_RULES_SOLVE_H

#include "core/plan/plan.h"
#include "planner/problem/rules/rules_problem.h"

enum { DTP_RULES_MAX_SOLUTIONS = 8 };

typedef struct dtp_rules_request {
    dtp_plan_objective objective;
    int64_t limit_bytes;          /* 0 = none */
    const dtp_layout_rules *pins; /* splits that must hold; NULL = none */
    const dtp_stop *stop;         /* NULL = none */
    int32_t max_solutions;        /* distinct solutions wanted, best first; at least 1 */
    double margin;                /* further ones within this fraction of the best cost */
} dtp_rules_request;

/* Objective time without limit, one solution. */
dtp_rules_request dtp_rules_request_init(void);

typedef struct dtp_rules_solution {
    dtp_rules_choice choice;
    dtp_rules_value value;
} dtp_rules_solution;

typedef struct dtp_rules_result {
    dtp_cert_status
        status; /* OPTIMAL or INFEASIBLE, FEASIBLE or TIME_LIMIT when a limit ended it */
    int32_t n;
    dtp_rules_solution solutions[DTP_RULES_MAX_SOLUTIONS]; /* best first, by exact value */
    int64_t bound; /* no choice is better: ps (time) or bytes (memory) */
    int64_t nodes; /* of the branch and bound, all solves */
} dtp_rules_result;

/* DTP_INVALID when a pin cannot hold: a name that may not be split so, or over two mesh dims. */
dtp_status dtp_rules_solve(const dtp_rules_problem *p, const dtp_rules_request *request,
                           dtp_rules_result *out, dtp_err *err) DTP_MUST_CHECK;

#endif
