/* Plans of coarser meshes as candidates. Every plan of a coarser mesh is one of the finer mesh, of
 * the same step where collectives may run over several mesh dims. The problem of the finer mesh has
 * more strategies, and prices redistributions over several mesh dims as several collectives, so
 * that the search there seldom finds it. */
#include "cost_models/node_price.h"
#include "planner/tensors/plan_tensor_internal.h"

/* Offers the plan of a coarser mesh. The steps of redistributions are those that are cheapest
 * there, where the target takes such steps. */
static dtp_status offer(dtp_planning *p, const dtp_coarser_mesh *coarser, const dtp_plan *plan,
                        dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_coarser_prices *prices;
    dtp_candidate c = {.legal = true, .arena = p->arena};
    dtp_err why = {0};
    DTP_TRY(DTP_NEW(p->arena, prices, 1, err));
    prices->next = state->coarser;
    state->coarser = prices;
    DTP_TRY(dtp_pricer_init(p->machine, &coarser->mesh, p->pricer.target, &prices->pricer, err));
    DTP_TRY(dtp_redistribution_pricer_create(&prices->pricer, &prices->redistributions, err));
    const dtp_redistributor *own = dtp_planning_redistributor(p);
    dtp_coarser_steps_init(&prices->steps, coarser,
                           dtp_redistribution_pricer_redistributor(prices->redistributions), own);
    DTP_TRY(
        dtp_finer_sharding(coarser, &p->pricer.mesh, &plan->sharding, p->arena, &c.sharding, err));
    dtp_status s = dtp_sharding_check(p->graph, &c.sharding, &why);
    const dtp_lower_options lowering =
        dtp_planning_lowering(p, p->pricer.target->direct ? own : &prices->steps.redistributor);
    s = s == DTP_OK ? dtp_candidate_faster(p->graph, &p->pricer, &lowering,
                                           dtp_redistribute_cache_planner(p->generic), &c, &why)
                    : s;
    if (s != DTP_OK) {
        return dtp_lowering_refuses(s) ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
    }
    DTP_TRY(dtp_planning_offer(p, &c, err));
    const bool best = p->has_best && p->best.sharding.layouts == c.sharding.layouts;
    state->from_coarser = best ? c.sharding.layouts : state->from_coarser;
    return DTP_OK;
}

dtp_status dtp_tensor__offer_coarser(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_plan_request request = *p->request;
    const int32_t n = dtp_coarser_meshes(&p->pricer);
    /* What is said of single mesh dims is not said of the coarser ones. */
    const bool named = request.n_texts > 0 || request.pins != NULL || request.form != NULL ||
                       (request.options.rules != NULL && request.options.rules[0] != '\0');
    if (state->coarser != NULL || request.of_finer || request.options.mesh == NULL || named) {
        return DTP_OK;
    }
    request.options.rules_file = NULL;
    request.options.prices = request.options.untie = false;
    request.options.slack = 0.0; /* ties are broken on the finer mesh */
    request.tying_bound = false;
    request.brief = request.of_finer = true;
    request.watch = NULL;
    for (int32_t i = n; i > 0 && !dtp_stopped(request.stop); i--) {
        dtp_plan_result r;
        dtp_coarser_mesh coarser;
        dtp_coarser_mesh_make(&p->pricer, i, &coarser);
        request.options.mesh = &coarser.mesh;
        dtp_err why = {0};
        dtp_status s = dtp_planning_run(p->planner, p->model, p->machine, &request, &r, &why);
        if (s == DTP_STOPPED) {
            return DTP_OK;
        }
        if (s != DTP_OK && !dtp_lowering_refuses(s)) {
            return DTP_FAIL(err, s, "%s", why.msg);
        }
        if (s != DTP_OK) {
            continue;
        }
        s = r.plan != NULL ? offer(p, &coarser, r.plan, err) : DTP_OK;
        dtp_plan_result_free(&r);
        DTP_TRY(s);
    }
    return DTP_OK;
}

void dtp_tensor__free_coarser(tensor_state *state)
{
    for (dtp_coarser_prices *c = state->coarser; c != NULL; c = c->next) {
        dtp_redistribution_pricer_destroy(c->redistributions);
    }
    state->coarser = NULL;
}
