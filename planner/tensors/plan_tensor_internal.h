/* What the files that plan in tensor mode share.
 *
 *   plan_tensor.c     the mode: problem, pins, the plan
 *   solve_limit.c     solutions within a memory limit as candidates
 *   solve_exposed.c  ... at prices that a timeline suggests
 *   timeline_moves.c  single decisions changed for a better timeline
 *   smallest_limit.c  the smallest limit that works
 */
#ifndef DTP_PLANNER_TENSORS_PLAN_TENSOR_INTERNAL_H
#define DTP_PLANNER_TENSORS_PLAN_TENSOR_INTERNAL_H

#include "planner/planning.h"
#include "planner/solver/solve.h"
#include "planner/tensors/exposed_communication.h"
#include "planner/untied/tying_bound.h"
#include "planner/problem/tensors/tensor_pins.h"
#include "planner/problem/tensors/tensor_problem.h"

/* The selection problem of one mesh. */
typedef struct tensor_state {
    const dtp_graph *base; /* without, and */
    dtp_graph *set;        /* with the implementations of the styles */
    dtp_pin_set pins;
    dtp_tensor_problem *problem; /* NULL when the pins contradict each other */
    dtp_tensor_problem *tied;    /* the one before, once fewer instances share decisions */
    dtp_tying_bound tying_bound; /* has_tying_bound: no plan costs less, whatever is shared */
    bool has_tying_bound;
    dtp_exposed exposed; /* of the programs that were offered */
    int32_t *start;      /* by assignment: a decision known beforehand; scratch */
    int64_t usage_limit; /* of the problem outside of a search */
    int64_t limit;       /* bytes that programs must stay within; 0 = none */
    bool corrections;    /* what programs need beyond the problem is reserved */
    int64_t floor;       /* a search for the smallest limit: none below this works; else 0 */
    int64_t step_part;   /* ... of what is above it the next step is a part, 1 / step_part */
} tensor_state;

/* What came of one solve. */
typedef struct dtp_tensor_round {
    bool found;
    int64_t usage;     /* as the problem counts */
    int64_t peak;      /* of the program */
    int64_t over;      /* by how much that exceeds the limit */
    int32_t reserved;  /* nodes of the graph for which corrections were added */
    int64_t full_cost; /* at undiscounted prices */
    double step_s;     /* of the timeline */
} dtp_tensor_round;

dtp_solve_options dtp_tensor__solver_options(const dtp_planning *p);
/* Offers what a selection means, and fills *out. */
dtp_status dtp_tensor__offer(dtp_planning *p, const int32_t *selection, dtp_tensor_round *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* p->best or p->near as a selection, which is scratch of the state; NULL when there is none or the
 * problem has no such solution. */
dtp_status dtp_tensor__start_from(const dtp_planning *p, const dtp_candidate *c,
                                  const int32_t **start, dtp_err *err) DTP_MUST_CHECK;
/* Solves the problem as it is and offers the solution. `first`: status and bound are those of the
 * certificate. */
dtp_status dtp_tensor__solve_once(dtp_planning *p, const dtp_solve_options *options, bool first,
                                  dtp_tensor_round *out, dtp_err *err) DTP_MUST_CHECK;
/* Solves within the limit of the problem until the program of a solution is within that of the
 * request, and looks for a better timeline then. Leaves the problem as it was. */
dtp_status dtp_tensor__solve_limit(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

/* Solves at prices without what the timelines so far hide. The certificate stays as it was. */
dtp_status dtp_tensor__solve_exposed(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;
/* Changes decisions of p->near, one at a time, while its timeline gets better. Nothing
 * is done when it is not a solution of the problem. */
dtp_status dtp_tensor__improve_schedule(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

/* Baselines that need less than *smallest (0: nothing is known) lower it. */
void dtp_tensor__compare_baselines(const dtp_planning *p, int64_t *smallest);
/* Objective memory: offers the plan that needs least. Nothing fits: the result says what limit
 * works. */
dtp_status dtp_tensor__find_minimum(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

#endif
