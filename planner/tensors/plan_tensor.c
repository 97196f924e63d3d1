/* Planning in tensor mode: a layout for every tensor and a row of its sharding rules for every
 * node, by the selection problem of planner/problem/tensors/tensor_problem.h. */
#include "planner/tensors/plan_tensor.h"

#include <inttypes.h>
#include <string.h>

#include "core/graph/implementation.h"
#include "planner/shadow_prices.h"
#include "planner/tensors/step_bound.h"
#include "planner/tensors/plan_tensor_internal.h"

/* Share of the cost that tying may lose before the problem is solved again in two groups, unless it
 * has more edge entries. */
static const double MOST_LOSS = 0.01;
enum { APART_LARGE = 4000000 };

/* Of the solves for the bound on the step; edge entries above which there are fewer. */
enum { BOUND_ITERATIONS = 5, BOUND_LARGE = 2000000 };
static const double BOUND_GAP = 0.005;

const char DTP_SOLVER_UNTIED[] = "selection";
const char DTP_SOLVER_TIED[] = "selection, tied";
const char DTP_SOLVER_TWO_GROUPS[] = "selection, tied in 2 groups";

/* ---- begin and end ---- */

static dtp_status admit(const dtp_planning *p, const dtp_candidate *c, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_problem *select = state->problem->select;
    dtp_problem_value value;
    bool found = false;
    if (c->legal && dtp_planning_excess(p, c) <= 0) {
        DTP_TRY(dtp_tensor_assignment(state->problem, &c->sharding, state->start, &found, err));
    }
    if (found) {
        DTP_TRY(dtp_problem_evaluate(select, state->start, &value, err));
        select->usage_limit = value.peak > select->usage_limit ? value.peak : select->usage_limit;
    }
    return DTP_OK;
}

/* Programs of baselines and of layout rules read what other nodes brought, of which the problem
 * knows nothing, so it may count more for one than its program needs. Its limit is as high as it
 * counts for those that fit: then its bound speaks of them, too. */
static dtp_status admit_candidates(const dtp_planning *p, dtp_err *err)
{
    if (p->request->options.memory_limit_bytes == 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < p->n_baselines; i++) {
        DTP_TRY(admit(p, &p->baselines[i], err));
    }
    DTP_TRY(p->has_best ? admit(p, &p->best, err) : DTP_OK);
    return p->has_best ? admit(p, &p->cheapest, err) : DTP_OK;
}

/* What the plans have in common of which nothing of some kinds is lost. Names and modules are those
 * of any plan. */
static dtp_status make_space(const dtp_planning *p, uint32_t loses, dtp_mesh_set data_dims,
                             dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_plan *plan;
    dtp_placements *placements;
    DTP_TRY(DTP_NEW(p->arena, plan, 1, err));
    DTP_TRY(DTP_NEW(p->arena, placements, 1, err));
    DTP_TRY(DTP_NEW(p->arena, state->space, 1, err));
    plan->mesh = p->pricer.mesh;
    DTP_TRY(dtp_layout_rules_create(p->arena, p->graph->dims.n, &plan->rules, err));
    DTP_TRY(dtp_sharding_from_rules(p->graph, &plan->mesh, &plan->rules, false, p->arena,
                                    &plan->sharding, err));
    DTP_TRY(dtp_placements_make(plan, p->graph, p->request->names, p->arena, placements, err));
    DTP_TRY(dtp_form_space_make(loses, placements, state->space, err));
    state->space->data_dims = data_dims;
    return DTP_OK;
}

/* In place of the one before. */
static dtp_status make_problem(dtp_planning *p, int32_t runs, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_tensor_problem *made = NULL;
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = runs;
    options.redistributions = p->redistributions;
    options.stop = p->request->stop;
    options.uneven = p->request->options.uneven;
    options.memory_bytes = p->request->options.memory_limit_bytes;
    options.n_pins = state->pins.n_pins;
    options.pins = state->pins.pins;
    options.space = state->space;
    DTP_TRY(dtp_tensor_problem_create(p->graph, &p->pricer, &options, &made, err));
    dtp_tensor_problem_destroy(state->problem);
    state->problem = made;
    state->search.limit = p->request->options.memory_limit_bytes;
    state->start =
        dtp_arena_alloc(p->arena, (size_t)state->problem->n_variables, sizeof *state->start);
    DTP_TRY(DTP_MEMORY(err, state->start));
    state->n_seen = state->cap_seen = 0;
    state->seen = NULL;
    return admit_candidates(p, err);
}

/* Several pins that leave a variable without a strategy are reported as a conflict. */
static dtp_status explain_conflict(dtp_planning *p, dtp_err *err)
{
    dtp_conflict conflict;
    dtp_plan_result *out = p->out;
    const dtp_plan_request *r = p->request;
    if (r->n_texts == 0 && p->certificate.status == DTP_CERT_INFEASIBLE) {
        /* Without pins the limit is in conflict with nothing else. */
        DTP_TRY(DTP_NEW(out->arena, out->conflict, 1, err));
        out->conflict[0] =
            dtp_arena_printf(out->arena, "memory %" PRId64, r->options.memory_limit_bytes);
        DTP_TRY(DTP_MEMORY(err, out->conflict[0]));
        out->n_conflict = 1;
        return DTP_OK;
    }
    const dtp_conflict_question question = {r->n_texts, r->texts, r->options.memory_limit_bytes,
                                            r->options.uneven, r->stop};
    DTP_TRY(dtp_conflict_find(p->graph, &p->pricer, &question, out->arena, &conflict, err));
    out->n_conflict = conflict.n;
    out->conflict = conflict.texts;
    for (int32_t i = 0; i < conflict.n; i++) {
        conflict.texts[i] = dtp_arena_strdup(out->arena, conflict.texts[i]);
        DTP_TRY(DTP_MEMORY(err, conflict.texts[i]));
    }
    return DTP_OK;
}

static dtp_status begin(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = dtp_arena_alloc(p->arena, 1, sizeof *state);
    DTP_TRY(DTP_MEMORY(err, state));
    p->state = state;
    DTP_TRY(dtp_pin_set_read(p->request->n_texts, p->request->texts, p->graph, &p->pricer.mesh,
                             p->arena, &state->pins, err));
    DTP_TRY(dtp_graph_with_implementations(p->graph, state->pins.n_implementations,
                                           state->pins.implementations, &state->set, err));
    state->base = p->graph;
    p->graph = state->set;
    if (p->request->form != NULL && p->request->form->loses != 0) {
        DTP_TRY(make_space(p, p->request->form->loses, 0, err));
    }
    DTP_TRY(dtp_planning_price_baselines(p, err));
    if (p->request->usual) {
        return DTP_OK;
    }
    const bool by_rules = !p->request->of_finer && !p->request->trial && p->graph->stages == NULL;
    DTP_TRY(by_rules ? dtp_planning_offer_rules(p, err) : DTP_OK);
    dtp_err why = {0};
    dtp_status s = make_problem(p, 1, &why);
    if (s == DTP_INVALID && state->pins.n_texts > 1) {
        DTP_TRY(explain_conflict(p, err));
        if (p->out->n_conflict > 1) {
            return DTP_OK;
        }
    }
    return s == DTP_OK ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
}

static void finish(dtp_planning *p)
{
    tensor_state *state = p->state;
    if (state != NULL) {
        dtp_tensor__free_coarser(state);
        dtp_tensor_problem_destroy(state->problem);
        dtp_graph_destroy(state->set);
        *state = (tensor_state){0};
    }
}

/* ---- candidates ---- */

static bool keeps_pins(const dtp_planning *p, const dtp_candidate *c)
{
    const tensor_state *state = p->state;
    return dtp_pins_kept(p->graph, &c->sharding, state->pins.n_pins, state->pins.pins);
}

static dtp_status in_space(const dtp_planning *p, const dtp_candidate *c, bool *is, dtp_err *err)
{
    const tensor_state *state = p->state;
    return dtp_tensor_assignment(state->problem, &c->sharding, state->start, is, err);
}

/* ---- solving ---- */

/* The problem in which fewer instances share their decisions, from the best plan so far on. */
static dtp_status solve_apart(dtp_planning *p, int32_t runs, dtp_err *err)
{
    const tensor_state *state = p->state;
    DTP_TRY(make_problem(p, runs, err));
    /* What was proven for the tied problem does not hold for this one. */
    p->certificate =
        (dtp_certificate){.status = DTP_CERT_TIME_LIMIT,
                          .solver = runs == 0 ? DTP_SOLVER_UNTIED : DTP_SOLVER_TWO_GROUPS,
                          .nodes = p->certificate.nodes};
    return dtp_tensor__solve_limit(p, state->problem->select->usage_limit, err);
}

/* `brief`: a short search, as of a trial. */
static dtp_status solve_problem(dtp_planning *p, bool brief, dtp_err *err)
{
    const tensor_state *state = p->state;
    const dtp_plan_request *request = p->request;
    dtp_plan_request trial = *request;
    trial.trial = trial.trial || brief;
    p->request = &trial;
    const dtp_status s = dtp_tensor__solve_limit(p, state->problem->select->usage_limit, err);
    p->request = request;
    return s;
}

/* The problem whose plans lose nothing of the form at all, with these mesh dims as data dims; the
 * certificate stays. */
static dtp_status solve_data(dtp_planning *p, dtp_mesh_set data, bool brief, dtp_err *err)
{
    const dtp_export_form *form = p->request->form;
    const dtp_certificate kept = p->certificate;
    DTP_TRY(make_space(p, form->loses | form->may_lose, data, err));
    DTP_TRY(make_problem(p, 1, err));
    DTP_TRY(solve_problem(p, brief, err));
    p->certificate = kept;
    p->pruned = false;
    return DTP_OK;
}

/* Whether a short search finds plans by modules with these mesh dims as data dims. */
static dtp_status finds_modules(dtp_planning *p, dtp_mesh_set data, bool *finds, dtp_err *err)
{
    const dtp_prediction before = p->by_form[0];
    const bool had = p->has_form[0];
    p->has_form[0] = false;
    DTP_TRY(solve_data(p, data, true, err));
    *finds = p->has_form[0];
    if (had && !(*finds && p->by_form[0].step_time_s < before.step_time_s)) {
        p->by_form[0] = before;
        p->has_form[0] = true;
    }
    return DTP_OK;
}

/* The problem whose plans lose nothing that the form may lose either. Of a form of modules with
 * each set of mesh dims as data dims that has such plans: a mesh dim of modules either splits the
 * batch or does what styles do, which no layout of a single tensor says. */
static dtp_status solve_narrow(dtp_planning *p, dtp_err *err)
{
    const dtp_export_form *form = p->request->form;
    if (form == NULL || form->may_lose == 0 || p->pruned) {
        return DTP_OK;
    }
    const dtp_mesh_set sets = form->has_modules ? 1U << p->pricer.mesh.n_dims : 1;
    for (dtp_mesh_set data = 0; data < sets; data++) {
        bool finds = true;
        DTP_TRY(form->has_modules ? finds_modules(p, data, &finds, err) : DTP_OK);
        DTP_TRY(finds ? solve_data(p, data, false, err) : DTP_OK);
    }
    return DTP_OK;
}

/* Nothing with tied layers costs less than the incumbent; what is said of the mesh holds without
 * tying, as its plan might be without when it is planned alone. */
static dtp_status bound_pruned(dtp_planning *p, dtp_err *err)
{
    const tensor_state *state = p->state;
    int64_t *said = &p->certificate.bound, bound;
    if (!p->request->tying_bound || !dtp_tensor_is_tied(state->problem)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tying_bound_find(state->problem, *said, *said, &bound, err));
    *said = bound < *said ? (bound > 0 ? bound : 0) : *said;
    return DTP_OK;
}

/* Whether the plan is one that people see, as far as it is known. */
static bool wants_bounds(const dtp_planning *p)
{
    return p->request->tying_bound && !p->request->trial &&
           p->request->options.objective == DTP_OBJECTIVE_TIME && p->has_best && !p->pruned &&
           (p->incumbent == NULL ||
            p->best.predicted.step_time_s < p->incumbent->predicted.step_time_s);
}

/* Of the problem that was solved last. Baselines need not be plans of the problem: the bound of all
 * is at most the step of the plan. One of the problem below it would show that the bound is none.
 */
static dtp_status bound_step(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    const int64_t step_ps = dtp_picoseconds(p->best.predicted.step_time_s);
    dtp_solve_options options = dtp_tensor__solver_options(p);
    bool is = false;
    if (!wants_bounds(p) || !dtp_pricer_overlaps(&p->pricer) || dtp_stopped(p->request->stop) ||
        p->graph->stages != NULL) { /* that of a program that runs alone */
        return DTP_OK;
    }
    options.iterations = BOUND_ITERATIONS;
    options.gap = BOUND_GAP;
    const bool large = dtp_problem_n_entries(state->problem->select) > BOUND_LARGE;
    DTP_TRY(dtp_step_bound_find(state->problem, &options, large, &state->step_bound, err));
    if (state->step_bound > step_ps) {
        DTP_TRY(in_space(p, &p->best, &is, err));
        state->step_bound = is ? 0 : step_ps;
    }
    return DTP_OK;
}

/* What tying can cost at most; where that is much, each half of the instances decides on its own.
 */
static dtp_status solve_tying(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    if (p->pruned || !dtp_tensor_is_tied(state->problem)) {
        return p->pruned ? bound_pruned(p, err) : DTP_OK;
    }
    DTP_TRY(dtp_stop_check(p->request->stop, err));
    if (wants_bounds(p)) {
        DTP_TRY(
            dtp_tying_bound_find(state->problem, p->cheapest.cost_ps, 0, &state->tying_bound, err));
        /* Tied instances have a replica where one of them has two readers. Where a redistribution
         * may take single steps alone, one over a replica can cost less than one without. */
        const bool more = p->pricer.target->direct && state->tying_bound > p->certificate.bound;
        state->tying_bound = more ? p->certificate.bound : state->tying_bound;
        state->has_tying_bound = true;
    }
    if (p->request->options.untie) {
        return solve_apart(p, 0, err);
    }
    const dtp_export_form *form = p->request->form;
    /* A problem has no plans of which an exact form loses something. */
    const bool apart = form == NULL || (form->loses != 0 && form->may_lose == 0);
    return apart && state->has_tying_bound &&
                   dtp_problem_n_entries(state->problem->select) <= APART_LARGE &&
                   dtp_gap(p->cheapest.cost_ps, state->tying_bound) > MOST_LOSS
               ? solve_apart(p, 2, err)
               : DTP_OK;
}

static dtp_status solve(dtp_planning *p, dtp_err *err)
{
    const tensor_state *state = p->state;
    /* Whether a form says what needs least is not known. */
    const bool brief = p->request->brief || p->request->form != NULL;
    p->certificate.solver = DTP_SOLVER_TIED;
    if (p->request->usual) {
        p->certificate.solver = "none";
        return dtp_planning_offer_baselines(p, err);
    }
    if (state->problem == NULL) {
        p->certificate.status = DTP_CERT_INFEASIBLE;
        return DTP_OK;
    }
    DTP_TRY(dtp_planning_offer_baselines(p, err));
    /* Of modules alone, plans of the whole problem are of use as far as it bounds them. */
    const dtp_export_form *form = p->request->form;
    const bool bounds = form != NULL && form->has_modules &&
                        dtp_export_placements_fail(p->model, p->machine->kind) != NULL;
    dtp_status s = solve_problem(p, bounds, err);
    s = s == DTP_OK ? solve_tying(p, err) : s;
    s = s == DTP_OK ? bound_step(p, err) : s;
    s = s == DTP_OK ? solve_narrow(p, err) : s;
    if (p->request->options.objective == DTP_OBJECTIVE_MEMORY) {
        p->certificate.bound = 0; /* that was one of costs */
    }
    DTP_TRY(s);
    if (p->pruned) {
        return DTP_OK;
    }
    if (p->request->options.objective == DTP_OBJECTIVE_MEMORY || (!p->has_best && !brief)) {
        DTP_TRY(dtp_tensor__find_minimum(p, err));
    }
    if (!p->has_best) {
        if (brief) {
            return dtp_tensor__compare_baselines(p, &p->out->smallest_peak_bytes, err);
        }
        return explain_conflict(p, err);
    }
    return DTP_OK;
}

/* ---- the plan ---- */

static dtp_status find_prices(const dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    const tensor_state *state = p->state;
    const dtp_shadow_prices constraints = {.model = state->base,
                                           .pricer = &p->pricer,
                                           .n_texts = state->pins.n_texts,
                                           .texts = state->pins.texts,
                                           .memory_bytes = p->request->options.memory_limit_bytes,
                                           .seed = p->request->options.seed,
                                           .uneven = p->request->options.uneven};
    plan->certificate.has_prices = true;
    return dtp_shadow_prices_find(&constraints, p->arena, &plan->certificate.n_prices,
                                  &plan->certificate.prices, err);
}

/* The bound without tying holds with tying too. */
static dtp_status bound_tying(const dtp_planning *p, dtp_certificate *c, dtp_err *err)
{
    const tensor_state *state = p->state;
    bool optimal = false;
    if (!state->has_tying_bound) {
        return DTP_OK;
    }
    const int64_t bound = state->tying_bound > 0 ? state->tying_bound : 0;
    c->bound = bound > c->bound ? bound : c->bound;
    if (c->bound == c->cost) {
        DTP_TRY(in_space(p, &p->best, &optimal, err));
    }
    c->status = optimal ? DTP_CERT_OPTIMAL : c->status;
    c->gap = dtp_gap(c->cost, c->bound);
    if (dtp_tensor_is_tied(state->problem)) {
        c->has_untied = true;
        c->untied_bound = bound;
        c->untied_gap = dtp_gap(c->least_cost, bound);
    }
    return DTP_OK;
}

static dtp_status decide(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    const tensor_state *state = p->state;
    plan->sharding = p->best.sharding;
    for (int32_t i = 0; i < state->pins.n_texts; i++) {
        DTP_TRY(dtp_planning_add_pin(plan, state->pins.texts[i], err));
    }
    DTP_TRY(bound_tying(p, &plan->certificate, err));
    plan->certificate.step_bound = state->step_bound;
    DTP_TRY(p->request->options.prices && !dtp_stopped(p->request->stop) ? find_prices(p, plan, err)
                                                                         : DTP_OK);
    const size_t n = (size_t)state->pins.n_implementations;
    DTP_TRY(DTP_NEW(plan->arena, plan->implementations, n, err));
    if (n > 0) {
        memcpy(plan->implementations, state->pins.implementations,
               n * sizeof *plan->implementations);
    }
    plan->n_implementations = state->pins.n_implementations;
    return DTP_OK;
}

dtp_status dtp_plan_tensor(const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, dtp_plan_result *out, dtp_err *err)
{
    static const dtp_planner planner = {.begin = begin,
                                        .finish = finish,
                                        .solve = solve,
                                        .keeps_pins = keeps_pins,
                                        .in_space = in_space,
                                        .decide = decide};
    return dtp_planning_run(&planner, g, machine, request, out, err);
}
