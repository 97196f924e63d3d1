/* What the files that plan in tensor mode share. Planning is a loop over a problem that does not
 * change:
 *
 *   problem, overlay {limit, weights of compute and communication, memory corrections}
 *     → solve → assignment → evaluate (lower, predict) → offer to the one incumbent
 *
 *   plan_tensor.c    the mode: problem, pins, the plan
 *   evaluate.c       one solve; the program and the candidate of an assignment
 *   solve_limit.c    the loop within a memory limit
 *   coarser_plans.c  plans of coarser meshes as candidates (coarser_mesh.h)
 *   step_search.c    the search for a shorter step (step_costs.h, step_moves.h)
 *   minimum_limit.c  the smallest limit that works
 */
#ifndef DTP_PLANNER_TENSORS_PLAN_TENSOR_INTERNAL_H
#define DTP_PLANNER_TENSORS_PLAN_TENSOR_INTERNAL_H

#include "planner/planning.h"
#include "planner/problem/overlay.h"
#include "planner/problem/tensors/tensor_pins.h"
#include "planner/problem/tensors/tensor_problem.h"
#include "planner/solver/solve.h"
#include "planner/tensors/coarser_mesh.h"
#include "planner/tensors/tying_bound.h"

/* A search within a memory limit. */
typedef struct limit_search {
    dtp_overlay overlay;
    int64_t limit;   /* bytes that programs must stay within; 0 = none */
    int64_t floor;   /* a search for the smallest limit: none below this works; else 0 */
    bool peaks_only; /* ... where peaks decide alone: programs are not placed with overlap */
    const dtp_redistributor *redistributor; /* of programs; NULL: that of the problem */
    int64_t step_part; /* ... of what is above it the next step is a part, 1 / step_part */
} limit_search;

/* An assignment that was looked at. */
typedef struct seen_assignment {
    const int32_t *strategy; /* by variable */
    double step_s;           /* of its program; infinite where that does not fit, or is unknown */
} seen_assignment;

/* The prices of a coarser mesh of which there is a plan. */
typedef struct dtp_coarser_prices {
    dtp_pricer pricer;
    dtp_redistribution_pricer *redistributions;
    dtp_coarser_steps steps;
    struct dtp_coarser_prices *next;
} dtp_coarser_prices;

/* The selection problem of one mesh. */
typedef struct tensor_state {
    const dtp_graph *base; /* without, and */
    dtp_graph *set;        /* with the implementations of the styles */
    dtp_pin_set pins;
    dtp_tensor_problem *problem; /* NULL when the pins contradict each other */
    dtp_form_space *space;       /* of the form of the request; NULL: none */
    int64_t tying_bound;         /* has_tying_bound: no plan costs less, whatever is shared */
    bool has_tying_bound;
    int64_t step_bound;       /* of the certificate */
    int32_t n_seen, cap_seen; /* assignments of `problem` that were evaluated */
    seen_assignment *seen;
    int32_t *start;              /* scratch, by variable: an assignment that is known beforehand */
    dtp_coarser_prices *coarser; /* of the candidates; NULL: none, not yet */
    const dtp_layout
        *from_coarser;   /* of the best plan of a coarser mesh; NULL: none was the best */
    limit_search search; /* the one under way */
} tensor_state;

/* What a solve is for besides its solution. */
typedef enum solve_kind {
    SOLVE_PLAIN,
    SOLVE_ONLY,     /* the solution is the last one seen unless it is repeated, not evaluated */
    SOLVE_FIRST,    /* its status and bound are those of the certificate */
    SOLVE_CORRECTED /* memory corrections are added when the program is too large */
} solve_kind;

/* What came of one solve. */
typedef struct dtp_tensor_round {
    bool found;
    bool repeated;      /* it was seen before */
    int64_t bound;      /* of the overlay's costs */
    int64_t usage;      /* as the problem counts */
    double step_s;      /* of the program */
    int64_t peak;       /* of the program */
    int32_t peak_stage; /* ... of several: whose peak it is */
    int64_t over;       /* by how much that exceeds the limit */
    int32_t corrected;  /* nodes of the graph for which corrections were added */
} dtp_tensor_round;

/* Of the programs of the search under way. */
const dtp_redistributor *dtp_tensor__redistributor(const dtp_planning *p);
dtp_solve_options dtp_tensor__solver_options(const dtp_planning *p);
/* Solves the overlay and offers the solution. */
dtp_status dtp_tensor__solve_once(dtp_planning *p, const dtp_solve_options *options,
                                  solve_kind kind, dtp_tensor_round *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* The loop: solves within the problem's limit until the program of a solution is within that of the
 * request, then for a short step where communication overlaps. The overlay starts with
 * usage_limit. */
dtp_status dtp_tensor__solve_limit(dtp_planning *p, int64_t usage_limit,
                                   dtp_err *err) DTP_MUST_CHECK;

/* *repeated: the assignment, by variable, was seen before; else it is now, the last one. */
dtp_status dtp_tensor__note(tensor_state *state, const int32_t *assignment, bool *repeated,
                            dtp_err *err) DTP_MUST_CHECK;
/* Evaluates and offers an assignment. *step_s: infinite when its program is too large. */
dtp_status dtp_tensor__try(dtp_planning *p, const int32_t *assignment, double *step_s,
                           dtp_err *err) DTP_MUST_CHECK;
/* From the candidates so far on, under the overlay's limit, to ones with a shorter simulated step;
 * the overlay's costs change. */
dtp_status dtp_tensor__shorten_step(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

/* Plans the coarser meshes (coarser_mesh.h) of a mesh that the request names, and offers what they
 * are on this one; once, where nothing that is asked for names mesh dims. */
dtp_status dtp_tensor__offer_coarser(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;
void dtp_tensor__free_coarser(tensor_state *state);

/* Baselines that need less than *smallest (0: nothing is known) lower it. */
dtp_status dtp_tensor__compare_baselines(const dtp_planning *p, int64_t *smallest,
                                         dtp_err *err) DTP_MUST_CHECK;
/* Objective memory: offers the plan that needs least. Nothing fits: the result says what limit
 * works. */
dtp_status dtp_tensor__find_minimum(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

#endif
