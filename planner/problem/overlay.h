/* A selection problem under another limit, with other costs and with further intervals.
 * The problem below stays as it is; the overlay borrows from it whatever it does not change. */
#ifndef DTP_PLANNER_PROBLEM_OVERLAY_H
#define DTP_PLANNER_PROBLEM_OVERLAY_H

#include "planner/problem/problem.h"

typedef struct dtp_overlay {
    const dtp_problem *base; /* borrowed */
    dtp_problem problem;     /* what is solved */
} dtp_overlay;

/* The same problem; needs dtp_overlay_free. usage_limit may be set in out->problem. */
void dtp_overlay_init(const dtp_problem *base, dtp_overlay *out);
void dtp_overlay_free(dtp_overlay *o);

/* Costs of the strategies that may be written, at first those of the base. */
dtp_status dtp_overlay_costs(dtp_overlay *o, int64_t **cost, dtp_err *err) DTP_MUST_CHECK;
/* Costs of the edges that may be written, at first those of the base; every edge has a matrix of
 * its own then, which begins at problem.edge_first. */
dtp_status dtp_overlay_edges(dtp_overlay *o, int64_t **cost, dtp_err *err) DTP_MUST_CHECK;
/* As dtp_problem_add_interval. */
dtp_status dtp_overlay_add_interval(dtp_overlay *o, int32_t variable, int64_t begin, int64_t end,
                                    const int64_t *usage, dtp_err *err) DTP_MUST_CHECK;

#endif
