/* Rules mode on one mesh: a loop over a selection problem that does not change.
 *
 * Memory. The problem counts at most what a program needs; the peak of the program decides. While
 * the program of a solution is too large, the limit of the problem is lowered by the excess and it
 * is solved again.
 * Passes. Merged collectives and overlap make a program faster than its additive cost says. So the
 * neighbours of an optimum, the best solutions in which one name is split otherwise, are lowered as
 * well when they cost little more; the simulated makespan decides. */
#include "planner/plan_rules.h"

#include <string.h>

#include "cost_models/node_price.h"
#include "planner/planning.h"
#include "planner/problem/overlay.h"
#include "planner/problem/rules/rules_problem.h"
#include "planner/solver/minimum_memory.h"

/* Neighbours of an optimum that are lowered at most; rounds of the search for one. */
enum { MAX_NEIGHBOURS = 7, NEIGHBOUR_ROUNDS = 4 };

/* The problem of one mesh. */
typedef struct rules_state {
    dtp_layout_rules pins;
    dtp_rules_problem *problem;
} rules_state;

/* One search: the problem under limits and costs of its own, and what came of it. */
typedef struct rules_search {
    dtp_planning *p;
    const dtp_rules_problem *problem;
    dtp_overlay overlay;
    bool found;             /* the last solve: a solution, and */
    int64_t over;           /* by how much the smallest program exceeds the limit of the request */
    dtp_cert_status status; /* of the first solve */
    int64_t bound, nodes;   /* of the first solve; of all */
} rules_search;

/* ---- candidates ---- */

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

static dtp_status in_space(const dtp_planning *p, const dtp_candidate *c, bool *is, dtp_err *err)
{
    const rules_state *state = p->state;
    int32_t *scratch =
        dtp_arena_alloc(p->arena, (size_t)state->problem->select->n_variables, sizeof *scratch);
    DTP_TRY(DTP_MEMORY(err, scratch));
    *is = dtp_rules_assignment(state->problem, &c->rules, scratch);
    return DTP_OK;
}

/* Lowers, predicts and offers what an assignment means: with the redistributions of the machine,
 * then of the generic machine where these are others (dtp_candidate_faster). */
static dtp_status evaluate(rules_search *s, const int32_t *assignment, dtp_err *err)
{
    dtp_planning *p = s->p;
    const dtp_redistributor *generic = dtp_redistribute_cache_planner(p->generic);
    dtp_lower_options options = dtp_planning_lowering(p, dtp_planning_redistributor(p));
    dtp_candidate c = {.legal = true, .arena = p->arena};
    dtp_err why = {0};
    bool more = true;
    DTP_TRY(dtp_rules_of_assignment(s->problem, assignment, p->arena, &c.rules, err));
    dtp_status st =
        dtp_sharding_from_rules(p->graph, &p->pricer.mesh, &c.rules, p->request->options.uneven,
                                p->arena, &c.sharding, &why);
    for (int32_t k = 0; k < 2 && st == DTP_OK && more; k++) {
        options.redistributor = k == 0 ? options.redistributor : generic;
        st = dtp_candidate_predict(p->graph, &p->pricer, &options, &c, generic, &more, &why);
        if (st == DTP_OK) {
            const int64_t over = dtp_planning_excess(p, &c);
            s->over = over < s->over ? over : s->over;
            DTP_TRY(dtp_planning_offer(p, &c, err));
        }
        more = more && !dtp_stopped(p->request->stop);
    }
    if (dtp_lowering_refuses(st)) {
        return DTP_FAIL(err, DTP_INTERNAL, "a solution of the problem is illegal: %s", why.msg);
    }
    return st == DTP_OK ? DTP_OK : DTP_FAIL(err, st, "%s", why.msg);
}

/* ---- solving ---- */

/* Sets stay joined to their names alone: the linear program of such edges is small. */
static dtp_solve_options solver_options(const dtp_planning *p, dtp_solver solver)
{
    dtp_solve_options options = dtp_solve_options_init();
    options.solver = solver;
    options.stop = p->request->stop;
    options.presolve.functional_dependency = false;
    return options;
}

/* Solves the overlay and offers the solution. */
static dtp_status solve_once(rules_search *s, dtp_solve_result *r, dtp_err *err)
{
    const dtp_solve_options options = solver_options(s->p, DTP_SOLVER_GLPK);
    DTP_TRY(dtp_solve(&s->overlay.problem, &options, r, err));
    s->nodes += r->nodes;
    s->found = r->assignment != NULL;
    s->over = INT64_MAX;
    return s->found ? evaluate(s, r->assignment, err) : DTP_OK;
}

/* Objective memory: the limit becomes the smallest that works. */
static dtp_status minimise_memory(rules_search *s, int64_t upper, dtp_err *err)
{
    const dtp_solve_options options = solver_options(s->p, DTP_SOLVER_GLPK);
    dtp_minimum_memory least;
    DTP_TRY(dtp_minimum_memory_find(s->problem->select, &options, upper, &least, err));
    s->found = least.assignment != NULL;
    s->status = !least.possible              ? DTP_CERT_INFEASIBLE
                : !s->found                  ? DTP_CERT_TIME_LIMIT
                : least.bound == least.usage ? DTP_CERT_OPTIMAL
                                             : DTP_CERT_FEASIBLE;
    s->bound = least.bound;
    s->overlay.problem.usage_limit = least.usage;
    dtp_minimum_memory_free(&least);
    return DTP_OK;
}

/* A solution that costs little more than the optimum. */
typedef struct neighbour {
    int64_t cost;
    int32_t *assignment;
} neighbour;

/* Inserts a solution by its cost unless it is there; drops the last one when there are `most`. */
static void insert(neighbour *list, int32_t *n, int32_t most, const dtp_solve_result *r,
                   int32_t n_variables)
{
    const size_t bytes = (size_t)n_variables * sizeof *r->assignment;
    int32_t at = *n;
    for (int32_t i = 0; i < *n; i++) {
        if (memcmp(list[i].assignment, r->assignment, bytes) == 0) {
            return;
        }
    }
    while (at > 0 && list[at - 1].cost > r->value.cost) {
        at--;
    }
    if (at == most) {
        return;
    }
    *n += *n < most ? 1 : 0;
    int32_t *room = list[*n - 1].assignment;
    memmove(&list[at + 1], &list[at], (size_t)(*n - 1 - at) * sizeof *list);
    memcpy(room, r->assignment, bytes);
    list[at] = (neighbour){r->value.cost, room};
}

/* The best solution in which name t is split otherwise than in the optimum, with `parts` into
 * another number of parts, if it costs less than the cutoff. No proof is asked for. */
static dtp_status solve_neighbour(rules_search *s, int32_t t, bool parts, int32_t optimum,
                                  int64_t cutoff, dtp_solve_result *r, dtp_err *err)
{
    const dtp_mesh *mesh = &s->p->pricer.mesh;
    const dtp_rules_name *name = &s->problem->names[t];
    dtp_solve_options options = solver_options(s->p, DTP_SOLVER_LARGE);
    int64_t *cost;
    options.cutoff = cutoff;
    options.iterations = NEIGHBOUR_ROUNDS;
    DTP_TRY(dtp_overlay_costs(&s->overlay, &cost, err));
    cost += s->problem->select->first[t];
    for (int32_t k = 0; k < name->n_masks; k++) {
        const bool same = dtp_mesh_set_size(mesh, name->masks[k]) ==
                          dtp_mesh_set_size(mesh, name->masks[optimum]);
        cost[k] = k == optimum || (parts && same) ? DTP_FORBIDDEN : 0;
    }
    DTP_TRY(dtp_solve(&s->overlay.problem, &options, r, err));
    memset(cost, 0, (size_t)name->n_masks * sizeof *cost);
    s->nodes += r->nodes;
    return DTP_OK;
}

/* Offers the cheapest neighbours of an optimum. */
static dtp_status offer_neighbours(rules_search *s, const dtp_solve_result *optimum, dtp_err *err)
{
    const dtp_problem *select = s->problem->select;
    const dtp_plan_request *request = s->p->request;
    const int32_t most = request->options.candidates - 1;
    const int64_t cutoff =
        optimum->value.cost + 1 + (int64_t)(request->margin * (double)optimum->value.cost);
    neighbour list[MAX_NEIGHBOURS];
    int32_t n = 0;
    for (int32_t i = 0; i < most; i++) {
        DTP_TRY(DTP_NEW(s->p->arena, list[i].assignment, select->n_variables, err));
    }
    for (int32_t i = 0; i < 2 * s->problem->n_names && most > 0 && !dtp_stopped(request->stop);
         i++) {
        const int32_t t = i / 2;
        dtp_solve_result r;
        DTP_TRY(solve_neighbour(s, t, i % 2 == 1, optimum->assignment[t], cutoff, &r, err));
        if (r.assignment != NULL) {
            insert(list, &n, most, &r, select->n_variables);
        }
        dtp_solve_result_free(&r);
    }
    for (int32_t i = 0; i < n && !dtp_stopped(request->stop); i++) {
        DTP_TRY(evaluate(s, list[i].assignment, err));
    }
    return DTP_OK;
}

/* Until a program is within the limit of the request. Status and bound are those of the first
 * solve: the later ones have a tighter limit. */
static dtp_status search(rules_search *s, dtp_err *err)
{
    const dtp_plan_request *request = s->p->request;
    const bool time = request->options.objective == DTP_OBJECTIVE_TIME;
    dtp_problem *problem = &s->overlay.problem;
    if (request->options.memory_limit_bytes > 0) {
        problem->usage_limit = request->options.memory_limit_bytes;
    }
    if (!time) {
        DTP_TRY(minimise_memory(s, request->options.memory_limit_bytes, err));
        if (!s->found) {
            return DTP_OK;
        }
    }
    for (int32_t i = 0; i < DTP_MAX_TIGHTENINGS && problem->usage_limit > 0 &&
                        !(i > 0 && dtp_stopped(request->stop));
         i++) {
        dtp_solve_result r;
        dtp_status status = solve_once(s, &r, err);
        if (i == 0 && time) {
            s->status = r.status;
            s->bound = r.bound;
        }
        if (status == DTP_OK && s->found && time) {
            status = offer_neighbours(s, &r, err);
        }
        dtp_solve_result_free(&r);
        DTP_TRY(status);
        if (!s->found || s->over <= 0) {
            break;
        }
        problem->usage_limit -= s->over;
    }
    return DTP_OK;
}

static dtp_status offer_optima(dtp_planning *p, const dtp_rules_problem *problem, rules_search *s,
                               dtp_err *err)
{
    *s = (rules_search){.p = p, .problem = problem};
    dtp_overlay_init(problem->select, &s->overlay);
    const dtp_status status = search(s, err);
    dtp_overlay_free(&s->overlay);
    return status;
}

/* The rules with the least memory: the plan if its program fits after all, else what is said to be
 * the smallest limit that works. The bound stays that of the first solve. Where no rules fit, only
 * a baseline can that the problem does not have; it gets the bound without a limit. */
static dtp_status offer_smallest(rules_search *s, dtp_err *err)
{
    dtp_planning *p = s->p;
    const int64_t bound = s->bound;
    const bool none = s->status == DTP_CERT_INFEASIBLE;
    const dtp_solve_options options = solver_options(s->p, DTP_SOLVER_GLPK);
    dtp_solve_result r;
    dtp_overlay_init(s->problem->select, &s->overlay);
    DTP_TRY(minimise_memory(s, 0, err));
    DTP_TRY(s->found ? DTP_OK : dtp_stop_check(p->request->stop, err));
    if (!s->found) {
        return DTP_FAIL(err, DTP_INVALID, "rules: no layout rules of this model keep the pins");
    }
    dtp_status status = solve_once(s, &r, err);
    dtp_solve_result_free(&r);
    DTP_TRY(status);
    p->out->smallest_peak_bytes =
        p->request->form == NULL ? p->request->options.memory_limit_bytes + s->over : 0;
    if (p->request->options.objective == DTP_OBJECTIVE_TIME && none) {
        DTP_TRY(dtp_solve(s->problem->select, &options, &r, err));
        s->nodes += r.nodes;
        s->bound = r.bound;
        dtp_solve_result_free(&r);
    } else if (p->request->options.objective == DTP_OBJECTIVE_TIME) {
        s->bound = bound;
    }
    s->status = DTP_CERT_FEASIBLE;
    return DTP_OK;
}

/* ---- the mode ---- */

static dtp_status begin(dtp_planning *p, dtp_err *err)
{
    rules_state *state = dtp_arena_alloc(p->arena, 1, sizeof *state);
    DTP_TRY(DTP_MEMORY(err, state));
    p->state = state;
    DTP_TRY(
        dtp_layout_rules_parse(p->request->options.rules == NULL ? "" : p->request->options.rules,
                               &p->pricer.mesh, &p->graph->dims, p->arena, &state->pins, err));
    DTP_TRY(dtp_planning_price_baselines(p, err));
    return dtp_rules_problem_create(p->graph, &p->pricer, dtp_planning_redistributor(p),
                                    &state->pins, p->request->options.uneven, &state->problem, err);
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
    rules_search v;
    DTP_TRY(offer_optima(p, state->problem, &v, err));
    if (!p->has_best) {
        p->certificate.status = v.status; /* said already when the search below is ended */
        DTP_TRY(dtp_stop_check(p->request->stop, err));
        DTP_TRY(offer_smallest(&v, err));
    }
    p->certificate =
        (dtp_certificate){.status = v.status, .bound = v.bound, .nodes = v.nodes, .solver = "glpk"};
    dtp_planning_tell(p);
    return DTP_OK;
}

static dtp_status decide(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    plan->rules_mode = true;
    plan->rules = p->best.rules;
    if (p->request->options.rules != NULL && p->request->options.rules[0] != '\0') {
        DTP_TRY(dtp_planning_add_pin(
            plan, dtp_arena_printf(p->arena, "rules %s", p->request->options.rules), err));
    }
    plan->sharding = p->best.sharding;
    return DTP_OK;
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

/* ---- for other modes ---- */

dtp_status dtp_planning_offer_rules(dtp_planning *p, dtp_err *err)
{
    dtp_rules_problem *problem = NULL;
    rules_search v;
    DTP_TRY(dtp_rules_problem_create(p->graph, &p->pricer, dtp_planning_redistributor(p), NULL,
                                     p->request->options.uneven, &problem, err));
    dtp_status s = offer_optima(p, problem, &v, err);
    dtp_rules_problem_destroy(problem);
    return s;
}
