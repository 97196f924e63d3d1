/* The search for pipeline stages: how many of them, how many microbatches and slots, and what is
 * recomputed. Layouts and mesh of each trial are planned by a mode (dtp_plan_request.trial).
 *
 *  1. Where the number of stages is searched, plans without stages, as they are without this
 *     search, in at most half of the time that is left. A plan with stages takes the place of
 *     theirs when it saves 1 % of the step.
 *  2. Every number of stages that divides the devices, with 4 microbatches a stage and everything
 *     recomputed, on all meshes of the devices of a stage; more microbatches where nothing fits.
 *  3. From the three fastest of these on, one quantity after the other: microbatches,
 *     recomputation, chunks on each stage, slots, then microbatches again, on the mesh that was
 *     found.
 *  4. The fastest plan with stages is planned once more, with all solves, baselines and bounds.
 *
 * A number of stages is dropped when kernels alone take longer than the best plan, whatever the
 * borders are (dtp_stages_bound; with chunks a share of them for each stage), with any number of
 * microbatches and nothing recomputed.
 */
#ifndef DTP_PLANNER_STAGE_SEARCH_H
#define DTP_PLANNER_STAGE_SEARCH_H

#include "planner/variant_search.h"

typedef struct dtp_stage_search {
    bool stages, remat, microbatches, slots; /* what is searched; the rest is as the request says */
    dtp_variant_search without; /* how plans without stages are searched; of `stages` alone */
} dtp_stage_search;

/* The best plan. out->tried has a text for every trial: the best one, the best one without stages,
 * where the plan has them, the rest with stages, the best first, and the rest without, as their
 * search lists them. request->options.devices, or those of the mesh that it names, are those of
 * all stages where the number is searched. Nothing fits: infeasible, with what plans without
 * stages need or those of the most stages, the less of both. Fails as the mode does with the first
 * plan. */
dtp_status dtp_plan_stages(dtp_plan_mode mode, const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, const dtp_stage_search *what,
                           dtp_plan_result *out, dtp_err *err) DTP_MUST_CHECK;

#endif
