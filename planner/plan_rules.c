#include "planner/plan_rules.h"

#include <string.h>

#include "planner/planning.h"
#include "planner/rules_solve.h"

/* The integer program of one mesh. */
typedef struct rules_state {
    dtp_layout_rules pins;
    dtp_rules_problem *problem;
} rules_state;

/* What one solve, and the tighter ones after it, came to. */
typedef struct verdict {
    dtp_cert_status status;
    int64_t bound, nodes;
} verdict;

/* ---- candidates ---------------------------------------------------------------------------------
 */

static bool keeps_pins(const dtp_planning *p, const dtp_candidate *c)
{
    const rules_state *state = p->state;
    for (int32_t d = 0; d < state->pins.n; d++) {
        const dtp_rule_splits *want = &state->pins.splits[d];
        if (want->n > 0 && memcmp(want, &c->rules.splits[d], sizeof *want) != 0) {
            return false;
        }
    }
    return true;
}

/* Every dim is split in mesh order: what the integer program can express. */
static dtp_status in_space(const dtp_planning *p, const dtp_candidate *c, bool *is, dtp_err *err)
{
    (void)p;
    (void)err;
    *is = true;
    for (int32_t d = 0; d < c->rules.n; d++) {
        const dtp_rule_splits *s = &c->rules.splits[d];
        for (int8_t k = 1; k < s->n; k++) {
            *is = *is && s->mesh_dims[k] >= s->mesh_dims[k - 1];
        }
    }
    return DTP_OK;
}

/* Lowers the solutions; returns through *over by how much the smallest program exceeds the limit.
 */
static dtp_status offer_solutions(dtp_planning *p, const dtp_rules_problem *problem,
                                  const dtp_rules_result *solved, int64_t *over, dtp_err *err)
{
    *over = INT64_MAX;
    for (int32_t i = 0; i < solved->n && !(i > 0 && dtp_stopped(p->request->stop)); i++) {
        const dtp_rules_solution *s = &solved->solutions[i];
        /* Another mode compares sums over whole programs. */
        dtp_candidate c = {.redistributor = dtp_redistributor_generic(),
                           .cost_ps = p->planner->rules_only ? s->value.cost_ps : 0};
        DTP_TRY(dtp_rules_of_choice(problem, &s->choice, p->arena, &c.rules, err));
        DTP_TRY(dtp_candidate_predict(p->graph, &p->pricer, p->arena, &c, err));
        if (!c.legal) {
            return DTP_FAIL(err, DTP_INTERNAL, "a solution of the integer program is illegal: %s",
                            c.why);
        }
        if (!p->planner->rules_only) {
            DTP_TRY(dtp_sharding_from_rules(p->graph, &p->pricer.mesh, &c.rules, false, p->arena,
                                            &c.sharding, err));
        }
        const int64_t excess = dtp_planning_excess(p, &c);
        *over = excess < *over ? excess : *over;
        dtp_planning_offer(p, &c);
    }
    return DTP_OK;
}

/* The integer program counts live bytes; the program's exact peak decides. When every solution's
 * program is too large, the limit of the integer program is lowered by the excess and it is solved
 * again. Status and bound are those of the first solve: the later ones have a tighter limit. */
static dtp_status offer_optima(dtp_planning *p, const dtp_rules_problem *problem,
                               const dtp_layout_rules *pins, verdict *v, dtp_err *err)
{
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result solved;
    request.objective = p->request->objective;
    request.limit_bytes = p->request->memory_limit_bytes;
    request.stop = p->request->stop;
    request.pins = pins;
    request.max_solutions = p->request->candidates;
    request.margin = p->request->margin;
    for (int32_t i = 0; i < DTP_MAX_TIGHTENINGS; i++) {
        int64_t over;
        DTP_TRY(dtp_rules_solve(problem, &request, &solved, err));
        v->nodes += solved.nodes;
        if (i == 0) {
            v->bound = solved.bound;
            v->status = solved.status;
        }
        if (solved.n == 0) {
            break;
        }
        DTP_TRY(offer_solutions(p, problem, &solved, &over, err));
        if (over <= 0 || request.limit_bytes <= over) {
            break;
        }
        request.limit_bytes -= over;
    }
    return DTP_OK;
}

/* The choice with the least memory: the plan if its program fits after all, else what is said to be
 * the smallest limit that works. */
static dtp_status offer_smallest(dtp_planning *p, const rules_state *state, verdict *v,
                                 dtp_err *err)
{
    int64_t over;
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result result;
    request.objective = DTP_OBJECTIVE_MEMORY;
    request.pins = &state->pins;
    request.stop = p->request->stop;
    DTP_TRY(dtp_rules_solve(state->problem, &request, &result, err));
    v->nodes += result.nodes;
    DTP_TRY(result.n == 0 ? dtp_stop_check(request.stop, err) : DTP_OK);
    if (result.n == 0) {
        return DTP_FAIL(err, DTP_INVALID, "rules: no layout rules of this model keep the pins");
    }
    DTP_TRY(offer_solutions(p, state->problem, &result, &over, err));
    p->out->smallest_peak_bytes = p->request->memory_limit_bytes + over;
    return DTP_OK;
}

/* The bound of the problem without a memory limit, for a plan that fits although the integer
 * program, which counts a little more than the program needs, found none. */
static dtp_status bound_without_limit(const dtp_planning *p, const rules_state *state, verdict *v,
                                      dtp_err *err)
{
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result result;
    request.objective = p->request->objective;
    request.pins = &state->pins;
    request.stop = p->request->stop;
    DTP_TRY(dtp_rules_solve(state->problem, &request, &result, err));
    v->nodes += result.nodes;
    v->bound = result.bound;
    v->status = DTP_CERT_FEASIBLE;
    return DTP_OK;
}

/* ---- the mode -----------------------------------------------------------------------------------
 */

static dtp_status begin(dtp_planning *p, dtp_err *err)
{
    rules_state *state = dtp_arena_alloc(p->arena, 1, sizeof *state);
    if (state == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for rules mode");
    }
    p->state = state;
    DTP_TRY(dtp_layout_rules_parse(p->request->pins == NULL ? "" : p->request->pins,
                                   &p->pricer.mesh, &p->graph->dims, p->arena, &state->pins, err));
    DTP_TRY(dtp_planning_price_baselines(p, err));
    return dtp_rules_problem_create(p->graph, &p->pricer, &state->problem, err);
}

static void finish(dtp_planning *p)
{
    rules_state *state = p->state;
    if (state != NULL) {
        dtp_rules_problem_destroy(state->problem);
        state->problem = NULL;
    }
}

static dtp_status solve(dtp_planning *p, dtp_err *err)
{
    const rules_state *state = p->state;
    verdict v = {0};
    DTP_TRY(offer_optima(p, state->problem, &state->pins, &v, err));
    if (!p->has_best) {
        DTP_TRY(dtp_stop_check(p->request->stop, err));
        DTP_TRY(offer_smallest(p, state, &v, err));
        DTP_TRY(bound_without_limit(p, state, &v, err));
    }
    p->certificate =
        (dtp_certificate){.status = v.status, .bound = v.bound, .nodes = v.nodes, .solver = "glpk"};
    return DTP_OK;
}

static dtp_status decide(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    plan->rules_mode = true;
    plan->rules = p->best.rules;
    if (p->request->pins != NULL && p->request->pins[0] != '\0') {
        DTP_TRY(dtp_planning_add_pin(plan, dtp_arena_printf(p->arena, "rules %s", p->request->pins),
                                     err));
    }
    return dtp_sharding_from_rules(p->graph, &plan->mesh, &plan->rules, false, p->arena,
                                   &plan->sharding, err);
}

dtp_status dtp_plan_rules(const dtp_graph *g, const dtp_machine *machine,
                          const dtp_plan_request *request, dtp_plan_result *out, dtp_err *err)
{
    static const dtp_planner planner = {.begin = begin,
                                        .finish = finish,
                                        .solve = solve,
                                        .keeps_pins = keeps_pins,
                                        .in_space = in_space,
                                        .decide = decide,
                                        .rules_only = true};
    return dtp_planning_run(&planner, g, machine, request, out, err);
}

/* ---- for other modes ----------------------------------------------------------------------------
 */

dtp_status dtp_planning_offer_rules(dtp_planning *p, dtp_err *err)
{
    dtp_rules_problem *problem = NULL;
    verdict v = {0};
    DTP_TRY(dtp_rules_problem_create(p->graph, &p->pricer, &problem, err));
    dtp_status s = offer_optima(p, problem, NULL, &v, err);
    dtp_rules_problem_destroy(problem);
    return s;
}
