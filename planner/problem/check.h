/* Independent re-evaluation of a choice, in integers, from the problem alone. */
#ifndef DTP_PLANNER_PROBLEM_CHECK_H
#define DTP_PLANNER_PROBLEM_CHECK_H

#include "planner/problem/problem.h"

typedef struct dtp_select_value {
    int64_t cost;    /* saturates at DTP_SELECT_FORBIDDEN */
    int64_t peak;    /* largest usage at any time; 0 when nothing is ever live */
    int64_t peak_at; /* the first time at which it is reached */
    bool feasible;   /* nothing forbidden, peak within the limit */
} dtp_select_value;

/* choice: by node, the index of its strategy. DTP_INVALID for an index that is not there. */
dtp_status dtp_select_evaluate(const dtp_select_problem *p, const int32_t *choice,
                               dtp_select_value *out, dtp_err *err) DTP_MUST_CHECK;

/* The same for many choices of one problem, whose times are put in order once. Borrows the problem;
 * costs may change in place meanwhile, usages may not. */
typedef struct dtp_select_evaluator dtp_select_evaluator;
dtp_status dtp_select_evaluator_create(const dtp_select_problem *p, dtp_select_evaluator **out,
                                       dtp_err *err) DTP_MUST_CHECK;
void dtp_select_evaluator_destroy(dtp_select_evaluator *e);
dtp_status dtp_select_evaluator_run(const dtp_select_evaluator *evaluator, const int32_t *choice,
                                    dtp_select_value *out, dtp_err *err) DTP_MUST_CHECK;
/* The cost alone: the times take much longer. */
dtp_status dtp_select_evaluator_cost(const dtp_select_evaluator *evaluator, const int32_t *choice,
                                     int64_t *cost, dtp_err *err) DTP_MUST_CHECK;
/* The peak when every interval has its smallest usage: no choice has less. */
dtp_status dtp_select_least_peak(const dtp_select_problem *p, int64_t *out,
                                 dtp_err *err) DTP_MUST_CHECK;

#endif
