/* Why a tensor or node is as it is in a plan: the chosen way, every alternative with what it would
 * cost, and what excludes it.
 *
 *   alone     everything else as it is, but for the replicas of the tensor, which follow it at the
 *             least cost; an exact re-evaluation of the selection problem of tensor mode
 *   at least  a lower bound of the difference when everything else is chosen anew, within the
 *             limits and pins of the plan, by reduced costs (planner/solver/dual_bound.h):
 *             at_least <= difference when solved again <= alone, the last where alone fits
 *
 * Instances of a repeated block decide together (when the plan treats them alike), and differences
 * are those of all of them. Differences are of additive costs, in picoseconds per step.
 */
#ifndef DTP_PLANNER_EXPLAIN_H
#define DTP_PLANNER_EXPLAIN_H

#include "cost_models/cost_split.h"
#include "planner/problem/tensors/tensor_problem.h"

typedef struct dtp_explain_request {
    const dtp_graph *graph; /* the plan's (dtp_plan_graph) */
    const dtp_machine *machine;
    const dtp_plan *plan;
    bool plan_is_current; /* made for this model and machine: its certificate holds */
    bool exact;           /* solve again with each alternative */
    const char *name;     /* of a tensor or node; of both: the tensor */
    bool node;            /* the node */
} dtp_explain_request;

typedef struct dtp_alternative {
    const char *text;     /* a layout, or a strategy in words */
    const char *excluded; /* by what, in words; NULL: it is allowed. Of an excluded one without a
                             price nothing below is there */
    bool chosen, priced;
    bool apart;            /* it cannot stand alone: something else would have to change with it */
    dtp_cost_split alone;  /* unless apart */
    int64_t alone_memory;  /* bytes more at the peak, as the problem counts; unless apart */
    bool alone_fits;       /* ... within the memory limit */
    bool none;             /* nothing within the limits has it */
    int64_t at_least;      /* unless none */
    bool at_least_is_best; /* it is the difference itself */
} dtp_alternative;

/* What the plan communicates for it: collectives of one kind, one set of mesh dims and one size. */
typedef struct dtp_explained_coll {
    dtp_coll_kind kind;
    dtp_mesh_set set;
    double bytes;       /* full buffer */
    int64_t times;      /* in a step */
    dtp_coll_time time; /* of one */
} dtp_explained_coll;

typedef struct dtp_explanation {
    const char *name;
    bool node;       /* what decides is how a node runs */
    const char *via; /* a tensor without a variable of its own: the node that decides; else NULL */
    int32_t instances;  /* that decide together */
    int32_t runs;       /* groups in which instances of a block are tied (dtp_tensor_options) */
    const char *chosen; /* text */
    int64_t plan_ps;    /* of the plan, with the redistribution steps that it takes */
    int64_t cost_ps;  /* of the plan, as the problem counts: with the cheapest steps on the machine;
                         what differences start from */
    int64_t bound_ps; /* of all plans within its limits and pins, */
    bool tied;        /* in which instances of repeated blocks decide together */
    bool pinned;      /* whether it has pins */
    int64_t peak_bytes, limit_bytes; /* as the problem counts; limit 0 = none */
    int32_t n;
    dtp_alternative *alternatives; /* allowed ones first, cheapest alone first */
    int32_t n_colls;
    dtp_explained_coll *colls; /* of the plan without passes, of this instance; dearest first */
    double comm_s;         /* what its part of collectives takes in a step as it runs, with buckets
                              and overlap, of this instance; */
    double exposed_comm_s; /* what compute waits for of it */
} dtp_explanation;

/* Everything from `arena`. DTP_NOT_FOUND naming the nearest names when there is no such tensor or
 * node, DTP_UNSUPPORTED for a plan that tensor mode cannot express. */
dtp_status dtp_explain(const dtp_explain_request *request, dtp_arena *arena, dtp_explanation *out,
                       dtp_err *err) DTP_MUST_CHECK;

#endif
