/* Planning: from a graph and a machine to a plan with certificate and baselines, on a given mesh or
 * on the best of all meshes. What the modes share: the request, the result, the search for a mesh.
 *
 *   rules mode    planner/plan_rules.h    layouts follow from layout rules
 *   tensor mode   planner/tensors/plan_tensor.h   a layout for every tensor
 *
 * The mesh search goes through all ordered factorisations of the number of devices. Ranks are laid
 * on the devices in row-major order, the last mesh dim innermost in the network, so the order of
 * the factors is the mapping of mesh dims to network levels, and ordered factorisations are all
 * shapes with all mappings. A mesh whose bound reaches the cost of the incumbent is
 * pruned.
 */
#ifndef DTP_PLANNER_PLAN_SEARCH_H
#define DTP_PLANNER_PLAN_SEARCH_H

#include "dtp/status.h"
#include "core/plan/plan.h"
#include "cost_models/machine/machine.h"
#include "planner/solver/solve.h"
#include "dtp/planner.h"
#include "interop/export/forms.h"

/* Who is told how far planning is. */
typedef struct dtp_plan_watch {
    void (*progress)(void *user, const dtp_plan_progress *now);
    void *user;
    const char *variant;  /* that is planned; NULL: none is searched */
    const dtp_plan *best; /* of other variants; NULL: none */
} dtp_plan_watch;

typedef struct dtp_plan_request {
    const dtp_mesh *mesh; /* NULL: search over all factorisations of `devices` into up to
                             `max_mesh_dims` dims */
    int32_t devices, max_mesh_dims;
    const dtp_target *target; /* what the program is for */
    dtp_plan_objective objective;
    int64_t memory_limit_bytes;  /* per rank; 0 = none */
    bool uneven;                 /* rules and tensor mode: splits that do not divide a size, into no
                                   more parts than elements */
    const char *pins;            /* rules mode: rules that must hold, "batch:x"; NULL = none */
    int32_t n_texts;             /* tensor mode: what must hold, "pin TENSOR: LAYOUT" and "style */
    const char *const *texts;    /* GLOB: STYLE" (interop/styles/pin_texts.h) */
    const dtp_export_form *form; /* of which a plan loses nothing; NULL: any plan */
    const dtp_names *names;      /* for that form; NULL: none */
    const dtp_graph_variant
        *variant;           /* precision, recomputation, microbatches; NULL = none. Pins of tensor
                                         mode name nodes of the changed graph */
    const char *rules_file; /* dtp.rules/1 with hand-written baselines; NULL = none */
    int32_t candidates;     /* rules mode: an optimum and its neighbours that are lowered, 1 to 8 */
    double margin;          /* ... within this fraction of the optimum */
    uint64_t seed;          /* tensor mode: of the solver's heuristic */
    dtp_solver solver;      /* tensor mode */
    int32_t threads;        /* tensor mode: of the solver; the plan does not depend on them */
    double gap;             /* tensor mode: large problems need no closer certificate, as a share */
    bool prices;            /* tensor mode: shadow prices of the constraints */
    bool tying_bound;       /* tensor mode: bound what tying loses */
    bool untie;             /* tensor mode: afterwards without layer tying */
    bool brief; /* tensor mode: when nothing fits, the best baseline alone says what limit works */
    const dtp_plan
        *incumbent; /* tensor mode, objective time: the incumbent of another graph, of which
                              only certificate and prediction are read. Nothing is planned where
                              the additive cost cannot be below its own; NULL: none */
    const dtp_plan_watch *watch; /* NULL: nobody */
    const dtp_stop *stop; /* ends planning with the best plan so far; NULL = none. Without a plan
                             yet planning fails with DTP_STOPPED */
    const dtp_ctx *ctx;
} dtp_plan_request;

/* No mesh, one device, up to 3 dims, target `cpu`, objective time, no limit, 6 candidates
 * within 5 %, seed 1, 2 threads, gap 0.001, with the bound of what tying loses. */
dtp_plan_request dtp_plan_request_init(void);

#endif
