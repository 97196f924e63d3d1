/* Independent re-evaluation of an assignment, in integers, from the problem alone. */
#ifndef DTP_PLANNER_PROBLEM_CHECK_H
#define DTP_PLANNER_PROBLEM_CHECK_H

#include "planner/problem/problem.h"

typedef struct dtp_problem_value {
    int64_t cost;    /* saturates at DTP_FORBIDDEN */
    int64_t peak;    /* largest usage at any time; 0 when nothing is ever live */
    int64_t peak_at; /* the first time at which it is reached */
    bool feasible;   /* nothing forbidden, peak within the limit */
} dtp_problem_value;

/* assignment: by variable, the index of its strategy. DTP_INVALID for an index that is not
 * there. */
dtp_status dtp_problem_evaluate(const dtp_problem *p, const int32_t *assignment,
                                dtp_problem_value *out, dtp_err *err) DTP_MUST_CHECK;

/* The same for many assignments of one problem, whose times are put in order once. Borrows the
 * problem; costs may change in place meanwhile, usages may not. */
typedef struct dtp_evaluator dtp_evaluator;
dtp_status dtp_evaluator_create(const dtp_problem *p, dtp_evaluator **out,
                                dtp_err *err) DTP_MUST_CHECK;
void dtp_evaluator_destroy(dtp_evaluator *e);
dtp_status dtp_evaluator_run(const dtp_evaluator *evaluator, const int32_t *assignment,
                             dtp_problem_value *out, dtp_err *err) DTP_MUST_CHECK;
/* The cost alone: the times take much longer. */
dtp_status dtp_evaluator_cost(const dtp_evaluator *evaluator, const int32_t *assignment,
                              int64_t *cost, dtp_err *err) DTP_MUST_CHECK;
/* The peak when every interval has its smallest usage: no assignment has less. */
dtp_status dtp_minimum_peak(const dtp_problem *p, int64_t *out, dtp_err *err) DTP_MUST_CHECK;

#endif
