/* Baselines: what people would do by hand, as complete decisions priced by the same model as a
 * plan.
 *
 * replicated          everything on every device
 * data_parallel       the inputs split over their first dim on all mesh dims
 * zero1 zero2 zero3   data_parallel with optimizer states, also gradients, also parameters split
 *                     over all mesh dims (zero3 is FSDP)
 * megatron            features split over all mesh dims: a parameter that makes a feature dim by
 *                     columns, the one that contracts it by rows, vocabulary and loss too
 * megatron_sp         the same with the sequence split outside of those (sequence parallelism)
 * data_megatron, data_megatron_sp, zero1_megatron_sp, zero3_megatron, zero3_megatron_sp
 *                     on meshes of two and more dims: data over all but the last mesh dim, features
 *                     over the last
 * expert_parallel, zero3_expert
 *                     data_parallel, zero3, with the experts of a mixture split over the last mesh
 *                     dims
 * and the sets of a rules file; a set of the file replaces a baseline of the same name.
 *
 * Which dims are features, the vocabulary, the sequence or experts is read from the graph
 * (baseline_dims.c), not from names.
 */
#ifndef DTP_PLANNER_BASELINES_H
#define DTP_PLANNER_BASELINES_H

#include "cost_models/candidate.h"

/* What people begin with. */
typedef enum dtp_usual {
    DTP_USUAL_ALL,   /* all baselines */
    DTP_USUAL_ALONE, /* only zero1, zero2, zero3, zero3_expert, and zero1 and 3 with megatron_sp */
    DTP_USUAL_APART  /* the same where a mesh of one dim is tried too: on meshes of several dims
                        none that are over data dims alone */
} dtp_usual;

typedef struct dtp_baseline_options {
    /* Choose the steps of redistributions, as in dtp_candidate_faster; the generic machine also for
     * styles. */
    const dtp_redistributor *machine, *generic;
    const char *rules_file; /* sets written by hand; NULL = none */
    bool for_form;          /* also megatron on each mesh dim alone, as forms of one mesh dim have
                               it: "megatron@x", what it does not divide stays whole; no output is
                               a partial sum */
    bool rules_only;        /* only "replicated", "data_parallel" and the sets of rules_file */
    dtp_usual usual;
    bool fastest;  /* usual ones that take 1 % longer than the fastest one that fits do not apply */
    int64_t limit; /* bytes that programs must stay within; 0: none. The step of one that does
                      not is that with overlap, its peak that without */
    const dtp_stop *stop; /* once it fires the rest do not apply; NULL = none */
} dtp_baseline_options;

/* All baselines of a graph on the pricer's mesh with sharding, cost_ps and prediction, storage from
 * `arena`. One that does not apply to the model or mesh has legal = false, says why, and has no
 * sharding. */
dtp_status dtp_baselines_create(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_baseline_options *options, dtp_arena *arena, int32_t *n,
                                dtp_candidate **out, dtp_err *err) DTP_MUST_CHECK;

/* Enters predicted baselines into a plan that has none; strings are borrowed. */
dtp_status dtp_plan_add_baselines(dtp_plan *plan, int32_t n, const dtp_candidate *baselines,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
