/* How a plan is lowered: by the steps that it lists, or as DTensor would run it. */
#include "cost_models/plan_lowering.h"

#include "interop/export/forms.h"

dtp_status dtp_plan_lowering_init(dtp_plan_lowering *l, const dtp_plan *plan, dtp_err *err)
{
    *l = (dtp_plan_lowering){.cost = dtp_torch_cost_init(),
                             .redistributor = dtp_redistributor_generic(),
                             .options = dtp_lower_options_init(dtp_redistributor_generic())};
    if (plan != NULL) {
        DTP_TRY(dtp_err_prefixed(dtp_target_find(plan->target, &l->options.target, err), err,
                                 "the plan's target"));
        l->redistributor = dtp_redistributor_of(l->options.target);
    }
    if (plan != NULL && plan->expressible.form != NULL) {
        const dtp_export_form *form;
        DTP_TRY(dtp_export_form_find(plan->expressible.form, &form, err));
        l->target = *l->options.target;
        l->target.terms_apart = form->terms_apart;
        l->options.target = &l->target;
    }
    if (plan != NULL && plan->redistribution == DTP_REDISTRIBUTION_TORCH) {
        l->planner.options.price = dtp_torch_step_price;
        l->planner.options.price_user = &l->cost;
        l->decides = dtp_torch_redistributor(&l->planner);
        l->redistributor = &l->decides;
        l->options.merge_collectives = false;
    } else if (plan != NULL && plan->redistribution == DTP_REDISTRIBUTION_LISTED) {
        dtp_steps steps;
        for (int32_t i = 0; i < plan->n_redistributions; i++) {
            DTP_TRY(dtp_err_prefixed(
                dtp_listed_steps(&plan->mesh, &plan->redistributions[i], &steps, err), err,
                "the plan's redistributions[%d]", i));
        }
        l->listed = (dtp_listed_redistributions){.n = plan->n_redistributions,
                                                 .redistributions = plan->redistributions};
        l->decides = dtp_listed_redistributor(&l->listed);
        l->redistributor = &l->decides;
    }
    l->options.redistributor = l->redistributor;
    if (plan != NULL) {
        l->options.overlap = plan->overlap;
    }
    return DTP_OK;
}

dtp_status dtp_plan_list_redistributions(dtp_plan *plan, const dtp_graph *g,
                                         const dtp_redistributor *redistributor, dtp_err *err)
{
    dtp_redistribution_recorder recorder = {.inner = redistributor, .arena = plan->arena};
    const dtp_redistributor recording = dtp_recording_redistributor(&recorder);
    /* Kept: nodes of the plain program share no copies. */
    dtp_lower_options options = {
        .redistributor = &recording, .unplaced = true, .kept = true, .target = &dtp_target_cpu};
    for (; options.chunk < dtp_graph_chunks(g); options.chunk++) {
        dtp_program *program = NULL;
        DTP_TRY(dtp_lower(g, &plan->sharding, &options, &program, err));
        dtp_program_destroy(program);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) { /* partial values that are fetched are reduced */
        const dtp_layout *kept = &plan->sharding.layouts[t];
        const dtp_layout whole = dtp_layout_without_partial(kept);
        dtp_steps steps;
        DTP_TRY(dtp_redistribute_by(&recording, &plan->mesh, &g->tensors[t].type, kept, &whole,
                                    &steps, err));
    }
    plan->redistribution = DTP_REDISTRIBUTION_LISTED;
    plan->n_redistributions = recorder.n;
    plan->redistributions = recorder.redistributions;
    return DTP_OK;
}
