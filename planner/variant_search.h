/* The search for precision, recomputation and microbatches: a mode of planning plans for one graph
 * variant after the other, the best plan stays.
 *
 * Variants are tried in order of work: the model as it is, then more microbatches, then
 * recomputation (dtp_remat_choices x dtp_microbatch_variants), then all of these in bf16, with
 * gradients of parameters in bf16 and in f32. For objective time a variant is dropped
 *   - when its compute bound (planner/problem/tensors/compute_bound.h) is not below the makespan of
 *     the incumbent: then no plan for it is faster;
 *   - in tensor mode, when the model as it is has a plan, and no additive cost of the variant is
 *     below that plan's (dtp_plan_request.incumbent).
 * What the request gives is in all variants: "the model as it is" has it, and no text says it.
 * While nothing fits, only the first rule can drop a variant: the answer is the fastest plan of all
 * variants.
 */
#ifndef DTP_PLANNER_VARIANT_SEARCH_H
#define DTP_PLANNER_VARIANT_SEARCH_H

#include "planner/plan_search.h"

/* dtp_plan_rules or dtp_plan_tensor. */
typedef dtp_status (*dtp_plan_mode)(const dtp_graph *g, const dtp_machine *machine,
                                    const dtp_plan_request *request, dtp_plan_result *out,
                                    dtp_err *err);

typedef struct dtp_variant_search {
    bool precision, remat, microbatches; /* what is searched; the rest is as the request says */
    int32_t max_microbatches;            /* 0: 16 */
    bool usual; /* tensor mode, objective time: usual layouts of all variants come first */
    bool helps; /* what makes a plan fit: without the model as it is, recomputation of nothing or of
                   all blocks, each with the fewest microbatches that do, and no result where
                   nothing fits */
    bool when_needed; /* recomputation and microbatches only where the model without them has no
                         plan, or, with `usual`, where a usual layout takes less time than its plan
                         and does not fit; and no more microbatches than fit. Where nothing else is
                         tried, `tried` is empty */
} dtp_variant_search;

/* The best plan. out->tried has a text for every variant, such as
 * "--remat layer --microbatches 2: 6.912 s, 79.87 GiB", and so has the plan: the model as it is
 * first, then those with a plan, the best first, then the others in the order of the search.
 * Infeasible: the result is that of the variant whose best baseline needs least. Fails as the mode
 * does with the first variant; another one that cannot be made of the model is listed in
 * `tried`. */
dtp_status dtp_plan_variants(dtp_plan_mode mode, const dtp_graph *g, const dtp_machine *machine,
                             const dtp_plan_request *request, const dtp_variant_search *what,
                             dtp_plan_result *out, dtp_err *err) DTP_MUST_CHECK;

/* What is searched of it: "--precision bf16 --remat layer:0-3,head --microbatches 2", "as it is";
 * from `arena`, NULL when out of memory. */
const char *dtp_variant_text(const dtp_variant_search *what, const dtp_graph_variant *variant,
                             dtp_arena *arena);

#endif
