#include "planner/plan_rules.h"

#include <inttypes.h>
#include <string.h>

#include "planner/baselines.h"
#include "planner/mesh_search.h"
#include "planner/rules_solve.h"

enum { MAX_MESH_DIMS_SEARCHED = 3, MAX_TIGHTENINGS = 8 };

dtp_plan_request dtp_plan_request_init(void)
{
    return (dtp_plan_request){
        .devices = 1, .objective = DTP_OBJECTIVE_TIME, .candidates = 6, .margin = 0.05};
}

/* Planning on one mesh. */
typedef struct planning {
    const dtp_graph *g;
    const dtp_machine *machine;
    const dtp_plan_request *request;
    dtp_pricer pricer;
    dtp_arena *arena; /* of the plan */
    dtp_rules pins;
    int32_t n_baselines;
    dtp_candidate *baselines;
    dtp_candidate best;
    bool has_best, best_in_space; /* in_space: the integer program could have chosen it */
    dtp_cert_status status;       /* of the first solve */
    int64_t bound, nodes;
    dtp_plan_result *out;
} planning;

/* ---- comparing candidates -----------------------------------------------------------------------
 */

static bool within_limit(const planning *p, const dtp_candidate *c)
{
    return p->request->memory_limit_bytes == 0 ||
           c->predicted.peak_bytes <= p->request->memory_limit_bytes;
}

static bool keeps_pins(const planning *p, const dtp_candidate *c)
{
    for (int32_t d = 0; d < p->pins.n; d++) {
        const dtp_rule_splits *want = &p->pins.splits[d];
        if (want->n > 0 && memcmp(want, &c->rules.splits[d], sizeof *want) != 0) {
            return false;
        }
    }
    return true;
}

/* Every dim is split in mesh order: what the integer program can express. */
static bool in_space(const dtp_candidate *c)
{
    for (int32_t d = 0; d < c->rules.n; d++) {
        const dtp_rule_splits *s = &c->rules.splits[d];
        for (int8_t k = 1; k < s->n; k++) {
            if (s->mesh_dims[k] < s->mesh_dims[k - 1]) {
                return false;
            }
        }
    }
    return true;
}

/* Timeline first for objective time, peak first for objective memory; the other breaks ties. */
static bool better(const planning *p, const dtp_candidate *a, const dtp_candidate *b)
{
    const double ta = a->predicted.step_time_s, tb = b->predicted.step_time_s;
    const int64_t ma = a->predicted.peak_bytes, mb = b->predicted.peak_bytes;
    if (p->request->objective == DTP_OBJECTIVE_MEMORY) {
        return ma != mb ? ma < mb : ta < tb;
    }
    return ta < tb || (!(tb < ta) && ma < mb);
}

static void offer(planning *p, const dtp_candidate *c)
{
    if (c->legal && within_limit(p, c) && keeps_pins(p, c) &&
        (!p->has_best || better(p, c, &p->best))) {
        p->best = *c;
        p->best_in_space = in_space(c);
        p->has_best = true;
    }
}

/* ---- candidates ---------------------------------------------------------------------------------
 */

static dtp_status offer_baselines(planning *p, dtp_err *err)
{
    DTP_TRY(dtp_baselines_list(p->g, &p->pricer.mesh, p->request->rules_file, p->arena,
                               &p->n_baselines, &p->baselines, err));
    for (int32_t i = 0; i < p->n_baselines; i++) {
        if (p->baselines[i].legal) {
            DTP_TRY(dtp_candidate_predict(p->g, &p->pricer, p->arena, &p->baselines[i], err));
        }
        offer(p, &p->baselines[i]);
    }
    return DTP_OK;
}

/* Lowers the solutions; returns through *over by how much the smallest program exceeds the limit.
 */
static dtp_status offer_solutions(planning *p, const dtp_rules_problem *problem,
                                  const dtp_rules_result *solved, int64_t *over, dtp_err *err)
{
    *over = INT64_MAX;
    for (int32_t i = 0; i < solved->n; i++) {
        const dtp_rules_solution *s = &solved->solutions[i];
        dtp_candidate c = {.cost_ps = s->value.cost_ps};
        DTP_TRY(dtp_rules_of_choice(problem, &s->choice, p->arena, &c.rules, err));
        DTP_TRY(dtp_candidate_predict(p->g, &p->pricer, p->arena, &c, err));
        if (!c.legal) {
            return DTP_FAIL(err, DTP_INTERNAL, "a solution of the integer program is illegal: %s",
                            c.why);
        }
        const int64_t excess = c.predicted.peak_bytes - p->request->memory_limit_bytes;
        *over = excess < *over ? excess : *over;
        offer(p, &c);
    }
    return DTP_OK;
}

/* The choice with the least memory: the plan if its program fits after all, else what is said to be
 * the smallest limit that works. */
static dtp_status offer_smallest(planning *p, const dtp_rules_problem *problem, dtp_err *err)
{
    int64_t over;
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result result;
    request.objective = DTP_OBJECTIVE_MEMORY;
    request.pins = &p->pins;
    DTP_TRY(dtp_rules_solve(problem, &request, &result, err));
    p->nodes += result.nodes;
    if (result.n == 0) {
        return DTP_FAIL(err, DTP_INVALID, "rules: no layout rules of this model keep the pins");
    }
    DTP_TRY(offer_solutions(p, problem, &result, &over, err));
    p->out->smallest_peak_bytes = p->request->memory_limit_bytes + over;
    return DTP_OK;
}

/* The bound of the problem without a memory limit, for a plan that fits although the integer
 * program, which counts a little more than the program needs, found none. */
static dtp_status bound_without_limit(planning *p, const dtp_rules_problem *problem, dtp_err *err)
{
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result result;
    request.objective = p->request->objective;
    request.pins = &p->pins;
    DTP_TRY(dtp_rules_solve(problem, &request, &result, err));
    p->nodes += result.nodes;
    p->bound = result.bound;
    p->status = DTP_CERT_FEASIBLE;
    return DTP_OK;
}

/* The integer program counts live bytes; the program's exact peak decides. When every solution's
 * program is too large, the limit of the integer program is lowered by the excess and it is solved
 * again. Status and bound are those of the first solve: the later ones have a tighter limit. */
static dtp_status offer_optima(planning *p, const dtp_rules_problem *problem, dtp_err *err)
{
    dtp_rules_request request = dtp_rules_request_init();
    dtp_rules_result solved;
    request.objective = p->request->objective;
    request.limit_bytes = p->request->memory_limit_bytes;
    request.pins = &p->pins;
    request.max_solutions = p->request->candidates;
    request.margin = p->request->margin;
    for (int32_t i = 0; i < MAX_TIGHTENINGS; i++) {
        int64_t over;
        DTP_TRY(dtp_rules_solve(problem, &request, &solved, err));
        p->nodes += solved.nodes;
        if (i == 0) {
            p->bound = solved.bound;
            p->status = solved.status;
        }
        if (solved.n == 0) {
            break;
        }
        DTP_TRY(offer_solutions(p, problem, &solved, &over, err));
        if (p->request->memory_limit_bytes == 0 || over <= 0 || request.limit_bytes <= over) {
            break;
        }
        request.limit_bytes -= over;
    }
    return DTP_OK;
}

static dtp_status solve(planning *p, const dtp_rules_problem *problem, dtp_err *err)
{
    DTP_TRY(offer_optima(p, problem, err));
    if (!p->has_best) {
        DTP_TRY(offer_smallest(p, problem, err));
    }
    DTP_TRY(offer_baselines(p, err));
    p->out->infeasible = !p->has_best;
    if (p->has_best && p->status != DTP_CERT_OPTIMAL && p->status != DTP_CERT_FEASIBLE) {
        return bound_without_limit(p, problem, err);
    }
    return DTP_OK;
}

/* ---- the plan -----------------------------------------------------------------------------------
 */

/* The cost is that of the plan chosen by its timeline; OPTIMAL when it also has the least additive
 * price. */
static dtp_certificate certify(const planning *p)
{
    dtp_certificate c = {.status = p->status, .solver = "glpk", .nodes = p->nodes};
    const bool time = p->request->objective == DTP_OBJECTIVE_TIME;
    c.cost = time ? p->best.cost_ps : p->best.predicted.peak_bytes;
    /* A baseline outside the space (a dim split in another order) may even be below the bound. */
    c.bound = p->bound < c.cost ? p->bound : c.cost;
    if (c.status == DTP_CERT_OPTIMAL && (c.cost > c.bound || !p->best_in_space)) {
        c.status = DTP_CERT_FEASIBLE;
    }
    c.gap = c.cost > 0 ? (double)(c.cost - c.bound) / (double)c.cost : 0.0;
    return c;
}

static dtp_status list_pins(const planning *p, dtp_plan *plan, dtp_err *err)
{
    plan->pins = dtp_arena_alloc(p->arena, 3, sizeof *plan->pins);
    if (plan->pins == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
    }
    if (p->request->pins != NULL && p->request->pins[0] != '\0') {
        plan->pins[plan->n_pins++] = dtp_arena_printf(p->arena, "rules %s", p->request->pins);
    }
    if (p->request->memory_limit_bytes > 0) {
        plan->pins[plan->n_pins++] =
            dtp_arena_printf(p->arena, "memory %" PRId64, p->request->memory_limit_bytes);
    }
    plan->pins[plan->n_pins++] = "even splits";
    for (int32_t i = 0; i < plan->n_pins; i++) {
        if (plan->pins[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
        }
    }
    return DTP_OK;
}

static dtp_status fill_plan(const planning *p, dtp_plan *plan, dtp_err *err)
{
    plan->model = dtp_arena_strdup(p->arena, p->g->name);
    plan->machine = dtp_arena_strdup(p->arena, p->machine->name);
    if (plan->model == NULL || plan->machine == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a plan");
    }
    plan->mesh = p->pricer.mesh;
    plan->rules_mode = true;
    plan->objective = p->request->objective;
    plan->memory_limit_bytes = p->request->memory_limit_bytes;
    plan->rules = p->best.rules;
    plan->predicted = p->best.predicted;
    plan->certificate = certify(p);
    plan->model_hash = dtp_graph_hash(p->g);
    plan->machine_hash = dtp_machine_hash(p->machine);
    DTP_TRY(list_pins(p, plan, err));
    DTP_TRY(dtp_plan_add_baselines(plan, p->n_baselines, p->baselines, err));
    return dtp_sharding_from_rules(p->g, &plan->mesh, &plan->rules, false, p->arena,
                                   &plan->sharding, err);
}

static dtp_status plan_into(planning *p, dtp_plan *plan, dtp_err *err)
{
    dtp_rules_problem *problem = NULL;
    p->arena = plan->arena;
    DTP_TRY(dtp_rules_parse(p->request->pins == NULL ? "" : p->request->pins, &p->pricer.mesh,
                            &p->g->dims, p->arena, &p->pins, err));
    DTP_TRY(dtp_rules_problem_create(p->g, &p->pricer, &problem, err));
    dtp_status s = solve(p, problem, err);
    dtp_rules_problem_destroy(problem);
    if (s == DTP_OK && !p->out->infeasible) {
        s = fill_plan(p, plan, err);
    }
    return s;
}

static dtp_status plan_on_mesh(const dtp_graph *g, const dtp_machine *machine,
                               const dtp_plan_request *request, const dtp_mesh *mesh,
                               dtp_plan_result *out, dtp_err *err)
{
    planning p = {.g = g, .machine = machine, .request = request, .out = out};
    dtp_plan *plan = NULL;
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_pricer_init(machine, mesh, &p.pricer, err));
    DTP_TRY(dtp_plan_create(&plan, err));
    dtp_status s = plan_into(&p, plan, err);
    if (s != DTP_OK || out->infeasible) {
        dtp_plan_destroy(plan);
        return s;
    }
    out->plan = plan;
    return DTP_OK;
}

/* ---- mesh search --------------------------------------------------------------------------------
 */

static bool plan_better(const dtp_plan_request *request, const dtp_plan *a, const dtp_plan *b)
{
    if (request->objective == DTP_OBJECTIVE_MEMORY) {
        return a->predicted.peak_bytes < b->predicted.peak_bytes;
    }
    return a->predicted.step_time_s < b->predicted.step_time_s;
}

/* Keeps the better of two results. */
static void keep(const dtp_plan_request *request, dtp_plan_result *best, dtp_plan_result *next)
{
    if (next->infeasible) {
        if (best->plan == NULL &&
            (!best->infeasible || next->smallest_peak_bytes < best->smallest_peak_bytes)) {
            *best = *next;
        }
        return;
    }
    if (best->plan == NULL || plan_better(request, next->plan, best->plan)) {
        dtp_plan_destroy(best->plan);
        *best = *next;
    } else {
        dtp_plan_destroy(next->plan);
    }
}

static dtp_status search_meshes(const dtp_graph *g, const dtp_machine *machine,
                                const dtp_plan_request *request, dtp_arena *arena,
                                dtp_plan_result *out, dtp_err *err)
{
    dtp_mesh *meshes;
    int32_t n, skipped = 0;
    memset(out, 0, sizeof *out);
    DTP_TRY(
        dtp_mesh_factorisations(request->devices, MAX_MESH_DIMS_SEARCHED, arena, &n, &meshes, err));
    for (int32_t i = 0; i < n; i++) {
        dtp_plan_result next;
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&meshes[i], text);
        dtp_status s = plan_on_mesh(g, machine, request, &meshes[i], &next, err);
        if (dtp_status_is_input(s) && request->pins != NULL && ++skipped < n) {
            continue; /* the pins do not fit this mesh */
        }
        if (s != DTP_OK) {
            dtp_plan_destroy(out->plan);
            out->plan = NULL;
            dtp_err_prefix(err, "mesh '%s'", text);
            return s;
        }
        dtp_log(request->ctx, DTP_LOG_INFO, "planner", "mesh", "mesh='%s' step_time_s=%g", text,
                next.infeasible ? -1.0 : next.plan->predicted.step_time_s);
        keep(request, out, &next);
    }
    return DTP_OK;
}

dtp_status dtp_plan_rules(const dtp_graph *g, const dtp_machine *machine,
                          const dtp_plan_request *request, dtp_plan_result *out, dtp_err *err)
{
    if (request->mesh != NULL) {
        return plan_on_mesh(g, machine, request, request->mesh, out, err);
    }
    dtp_arena *arena = dtp_arena_create();
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the mesh search");
    }
    dtp_status s = search_meshes(g, machine, request, arena, out, err);
    dtp_arena_destroy(arena);
    return s;
}
