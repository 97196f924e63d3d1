/* How far the rates of a machine may be off before another plan is better.
 *
 * For every rate and delay of the machine (cost_models/machine/machine_scale.h) the factors below
 * and above 1 at which another plan takes over are found by bisection: the plan is priced again on
 * the scaled machine and compared with what planning finds there. On additive costs, which fall and
 * rise in proportion to one quantity, the factors at which a plan is best form an interval, and
 * bisection finds its ends; with overlap of communication that is an approximation.
 */
#ifndef DTP_PLANNER_SENSITIVITY_H
#define DTP_PLANNER_SENSITIVITY_H

#include "cost_models/machine/machine_scale.h"
#include "planner/reports/pareto.h"

typedef struct dtp_sensitivity_request {
    const dtp_graph *model;
    const dtp_graph *graph; /* the plan's (dtp_plan_graph) */
    const dtp_machine *machine;
    const dtp_plan *plan;
    dtp_plan_mode search; /* how plans are found; of the plan's mode */
    double widest;        /* factors from 1/widest to widest are looked at */
    double tolerance;     /* another plan takes over when it is faster by this fraction */
    int32_t steps;        /* of bisection, per side */
    const char *only;     /* one quantity by name; NULL: all */
} dtp_sensitivity_request;

/* Everything but 8 steps, factor 16 and tolerance 0.1 % is to be filled in. */
dtp_sensitivity_request dtp_sensitivity_request_init(void);

typedef struct dtp_takeover {
    bool found;        /* false: the plan stays best as far as was looked */
    double stays;      /* the outermost factor at which it was seen to stay best */
    double goes;       /* the innermost factor at which another is better */
    double gain;       /* by what fraction of the step time, there */
    int32_t n_tensors; /* whose layouts are others in the plan that takes over */
    int32_t n_nodes;   /* that run otherwise in it */
    int32_t n_examples;
    const char *examples[3]; /* "w1: batch@x -> d_ff@x", parameters first */
} dtp_takeover;

typedef struct dtp_sensitivity_row {
    dtp_machine_param param;
    dtp_takeover below, above;
} dtp_sensitivity_row;

typedef struct dtp_sensitivity {
    bool best_now; /* false: another plan is better on the machine as it is */
    dtp_takeover now;
    int32_t n;
    dtp_sensitivity_row *rows; /* none when another plan is better now */
} dtp_sensitivity;

/* Mesh, limit and pins are those of the plan. Everything from `arena`. DTP_NOT_FOUND when `only`
 * names no quantity, listing them. */
dtp_status dtp_sensitivity_find(const dtp_sensitivity_request *request, dtp_arena *arena,
                                dtp_sensitivity *out, dtp_err *err) DTP_MUST_CHECK;

#endif
