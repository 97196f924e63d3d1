/* Text forms of a selection problem and of its solutions. */
#ifndef DTP_PLANNER_PROBLEM_WRITE_H
#define DTP_PLANNER_PROBLEM_WRITE_H

#include "core/base/strbuf.h"
#include "planner/problem/problem.h"

/* The contest's JSON, one inner list per line. */
void dtp_problem_write_iopddl(const dtp_problem *p, dtp_strbuf *out);
/* The marginal form (planner/solver/relax.h) with binary variables and one memory row per maximal
 * clique of intervals, in CPLEX-LP. Columns: y_NODE_STRATEGY, z_EDGE_ROW_COLUMN. Forbidden
 * pairs have no column, forbidden strategies are fixed at 0. */
dtp_status dtp_problem_write_lp(const dtp_problem *p, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

/* What variables and strategies of a problem are called. */
typedef struct dtp_problem_names {
    const void *user;
    void (*variable)(const void *user, int32_t variable, dtp_strbuf *out);
    void (*strategy)(const void *user, int32_t variable, int32_t strategy, dtp_strbuf *out);
} dtp_problem_names;

/* For reading, of a problem in picoseconds and bytes: every variable with its strategies, their
 * costs and the most that they use at one time by one interval; every matrix once, `-` for what is
 * forbidden. DTP_NOMEM. */
dtp_status dtp_problem_print(const dtp_problem *p, const dtp_problem_names *names, dtp_strbuf *out,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
