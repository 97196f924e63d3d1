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
#include "interop/styles/pin_texts.h"

/* Receives the progress of planning. */
typedef struct dtp_plan_watch {
    void (*progress)(void *user, const dtp_plan_progress *now);
    void *user;
    const char *variant;  /* that is planned; NULL: none is searched */
    const dtp_plan *best; /* of other variants; NULL: none */
} dtp_plan_watch;

/* The options, and what became of their texts. */
typedef struct dtp_plan_request {
    dtp_plan_options options;    /* mesh NULL: the best of `devices`, of up to max_mesh_dims dims;
                                    with stages both are of one stage.
                                    memory_limit_bytes 0: none; candidates and threads are set */
    const dtp_target *target;    /* what the program is for */
    int32_t n_texts;             /* tensor mode: what must hold, "pin TENSOR: LAYOUT" and "style */
    const char *const *texts;    /* GLOB: STYLE" (interop/styles/pin_texts.h) */
    const dtp_pin_set *pins;     /* pins mode: what they mean in the graph with the variant; their
                                    texts are for the plan's list */
    const dtp_export_form *form; /* of which a plan loses nothing; NULL: any plan */
    const dtp_names *names;      /* for that form; NULL: none */
    const dtp_graph_variant
        *variant;      /* precision, recomputation, microbatches; NULL = none. Pins of tensor
                                         mode name nodes of the changed graph */
    dtp_solver solver; /* tensor mode */
    /* Of the planner itself: */
    int32_t max_mesh_dims;
    double margin;    /* rules mode: candidates lie within this fraction of the optimum */
    bool tying_bound; /* tensor mode: bound what tying loses */
    bool of_finer;    /* tensor mode: the mesh is a coarser one of that which is planned; no
                         coarser ones are planned for it */
    bool usual; /* tensor mode: usual layouts alone (planner/baselines/baselines.h) are candidates,
                   nothing is solved */
    int32_t n_meshes;       /* > 0: of the mesh search these alone, those with fewer dims first; */
    const dtp_mesh *meshes; /* else all of options.devices */
    bool find_limit; /* tensor mode: when nothing fits, a limit that works is looked for, also where
                        tensors alone need more than the limit; of a trial in one solve a mesh */
    bool brief; /* tensor mode: when nothing fits, the best baseline alone says what limit works */
    bool trial; /* tensor mode: of a search that plans the best one again: no baselines, rules and
                   bounds, few solves */
    const dtp_plan
        *incumbent;       /* tensor mode, objective time: the incumbent of another graph, of which
                              only certificate and prediction are read. Nothing is planned where
                              the additive cost cannot be below its own; NULL: none */
    const dtp_plan *best; /* objective time: of other graphs, or of usual layouts, of which mesh and
                             prediction are read. Of the mesh search those are pruned on which
                             kernels alone take about as long; NULL: none */
    bool best_is_own;     /* it is of this graph: its mesh is not pruned */
    const dtp_plan_watch *watch; /* NULL: no progress */
    const dtp_stop *stop; /* ends planning with the best plan so far; NULL = none. Without a plan
                             yet planning fails with DTP_STOPPED */
} dtp_plan_request;

/* No mesh, one device, up to 3 dims, target `cpu`, objective time, no limit, 6 candidates
 * within 5 %, seed 1, 2 threads, gap 0.001, no slack, with the bound of what tying loses. */
dtp_plan_request dtp_plan_request_init(void);

#endif
