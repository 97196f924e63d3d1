/* The plan as a selection of the problem that it was made from, tied in as many runs as it needs.
 * Where the plan says what options cost at least and that is up to date, those that cost too much
 * to matter are left out: of a large problem little is built then. */
#include <string.h>

#include "planner/reports/explain_internal.h"
#include "planner/problem/tensors/tying_groups.h"

/* Beyond so many runs (planner/problem/tensors/tying_groups.h) every instance is looked at on its
 * own; options that are kept where options are left out. */
enum { MOST_RUNS = 4 };
/* Options that are looked at in a large problem; fewer where the plan fills the memory: what an
 * alternative costs then depends on everything, and is told as an interval anyway. */
enum { NEAR_OPTIONS = 2000, NEAR_OPTIONS_FULL = 1200 };

/* A tensor that is kept as an op leaves or reads it: that op decides. */
static dtp_status follow_tensor(dtp_explaining *e, const dtp_tensor_problem *p, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_tensor_id t = e->tensor;
    if (t < 0 || p->variable_of_tensor[t] >= 0) {
        return DTP_OK;
    }
    e->node = g->tensors[t].producer;
    for (int32_t n = 0; n < g->n_nodes && e->node < 0; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            e->node = g->nodes[n].in[i] == t ? n : e->node;
        }
    }
    if (e->node < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "nothing makes or reads tensor '%s'",
                        g->tensors[t].name);
    }
    e->tensor = -1;
    e->out->via = g->nodes[e->node].name;
    return DTP_OK;
}

int32_t dtp_explain__choice(const dtp_explaining *e, const dtp_tensor_problem *p)
{
    return e->tensor >= 0 ? p->variable_of_tensor[e->tensor] : p->variable_of_node[e->node];
}

/* ---- options that are left out ------------------------------------------------------------------
 */

/* All options of the assignment that is explained, and of copies of its tensor. */
static dtp_status keep_explained(dtp_explaining *e, const dtp_tensor_problem *p, bool *keep,
                                 dtp_err *err)
{
    DTP_TRY(follow_tensor(e, p, err));
    const int32_t explained = dtp_explain__choice(e, p);
    for (int32_t i = 0; i < p->n_variables; i++) {
        const dtp_tensor_variable *c = &p->variables[i];
        const bool copy =
            c->kind == DTP_DECIDE_REPLICA && p->variable_of_tensor[c->tensor] == explained;
        for (int32_t k = 0; k < c->n_strategies && (i == explained || copy); k++) {
            keep[k] = true;
        }
        keep += c->n_strategies;
    }
    return DTP_OK;
}

/* Of every other assignment one option: for a problem of which nothing else is read. */
static dtp_status keep_one(void *ctx, const dtp_tensor_problem *p, bool *keep, dtp_err *err)
{
    bool *at = keep;
    for (int32_t i = 0; i < p->n_variables; i++) {
        for (int32_t k = 0; k < p->variables[i].n_strategies; k++) {
            at[k] = k == 0;
        }
        at += p->variables[i].n_strategies;
    }
    return keep_explained(ctx, p, keep, err);
}

/* The plan itself; *found = false when it is no selection of p. */
static dtp_status keep_chosen(const dtp_explaining *e, const dtp_tensor_problem *p, bool *keep,
                              bool *found, dtp_err *err)
{
    const dtp_sharding *s = &e->request->plan->sharding;
    int32_t *selection = dtp_arena_alloc(e->arena, (size_t)p->n_variables, sizeof *selection);
    *found = false;
    if (selection == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
    }
    if (dtp_sharding_has_replicas(
            s)) { /* else replicas are chosen by prices, which are not there yet */
        DTP_TRY(dtp_tensor_assignment(p, s, selection, found, err));
    }
    for (int32_t i = 0; i < p->n_variables && *found; i++) {
        *found = selection[i] >= 0;
        keep[*found ? selection[i] : 0] = true;
        keep += p->variables[i].n_strategies;
    }
    return DTP_OK;
}

static bool fills_memory(const dtp_plan *plan)
{
    return plan->memory_limit_bytes > 0 &&
           plan->predicted.peak_bytes > plan->memory_limit_bytes / 10 * 9;
}

/* Those that the plan's bounds do not exclude, if it has bounds of this problem. */
static dtp_status keep_near(void *ctx, const dtp_tensor_problem *p, bool *keep, dtp_err *err)
{
    dtp_explaining *e = ctx;
    bool found = false;
    if (dtp_plan_bounds_match(e->bounds, p)) {
        e->others_above = dtp_plan_bounds_keep(
            e->bounds, fills_memory(e->request->plan) ? NEAR_OPTIONS_FULL : NEAR_OPTIONS, keep);
        DTP_TRY(keep_chosen(e, p, keep, &found, err));
    }
    if (!found) {
        e->bounds = NULL;
        return keep_one(e, p, keep, err);
    }
    return keep_explained(e, p, keep, err);
}

/* ---- problems -----------------------------------------------------------------------------------
 */

typedef dtp_status (*option_filter)(void *, const dtp_tensor_problem *, bool *, dtp_err *);

static dtp_status create_problem(dtp_explaining *e, int32_t runs, int32_t n_pins,
                                 option_filter filter, dtp_tensor_problem **out, dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = runs;
    options.uneven = e->request->plan->uneven;
    options.memory_bytes = e->request->plan->memory_limit_bytes;
    options.n_pins = n_pins;
    options.pins = e->pins.pins;
    options.filter = (dtp_strategy_filter){.run = filter, .ctx = e};
    DTP_TRY(dtp_tensor_problem_create(e->request->graph, &e->pricer, &options, out, err));
    return *out != NULL ? follow_tensor(e, *out, err)
                        : DTP_FAIL(err, DTP_INTERNAL, "a selection problem is missing");
}

/* Problems and the plan's selection in them, when both have it. */
static dtp_status try_problems(dtp_explaining *e, int32_t runs, option_filter filter, bool *found,
                               dtp_err *err)
{
    dtp_explain__forget_problems(e);
    DTP_TRY(create_problem(e, runs, e->pins.n_pins, filter, &e->problem, err));
    e->free = e->problem;
    if (e->pins.n_pins > 0) {
        e->free = NULL;
        DTP_TRY(create_problem(e, runs, 0, keep_one, &e->free, err));
    }
    const size_t n = (size_t)e->problem->n_variables;
    e->selection = dtp_arena_alloc(e->arena, n, sizeof *e->selection);
    e->other = dtp_arena_alloc(e->arena, n, sizeof *e->other);
    if (e->selection == NULL || e->other == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
    }
    return dtp_tensor_assignment(e->problem, &e->request->plan->sharding, e->selection, found, err);
}

void dtp_explain__forget_problems(dtp_explaining *e)
{
    dtp_tensor_problem_destroy(e->problem != e->free ? e->problem : NULL);
    dtp_tensor_problem_destroy(e->free);
    e->problem = e->free = NULL;
}

static void count_left_out(const dtp_explaining *e)
{
    const int64_t kept = e->problem->select->first[e->problem->n_variables];
    e->out->n_left_out = e->bounds->first[e->bounds->n] - (int32_t)kept;
    e->out->left_out_from = e->others_above - e->bounds->cost_ps;
}

/* Bounds of another problem, or at other prices, are of no use. */
static dtp_status try_bounds(dtp_explaining *e, bool *found, dtp_err *err)
{
    const dtp_explain_request *r = e->request;
    const dtp_plan_strategy_bounds *bounds = &r->plan->strategy_bounds;
    dtp_problem_value value = {0};
    e->others_above = INT64_MAX;
    *found = false;
    if (bounds->n == 0 || !r->plan_is_current || r->exact) {
        return DTP_OK;
    }
    e->bounds = bounds;
    e->out->runs = bounds->runs;
    DTP_TRY(try_problems(e, bounds->runs, keep_near, found, err));
    *found = *found && e->bounds != NULL;
    if (*found) {
        DTP_TRY(dtp_problem_evaluate(e->problem->select, e->selection, &value, err));
        *found = value.feasible && value.cost == bounds->cost_ps;
    }
    return DTP_OK;
}

/* The first decision of the plan that the problem without tying does not have. */
static dtp_status fail_selection(const dtp_explaining *e, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_plan *plan = e->request->plan;
    const char *what = "a copy", *name = "some tensor";
    char text[DTP_STRATEGY_TEXT_BYTES] = "in a layout";
    for (int32_t t = g->n_tensors - 1; t >= 0; t--) {
        const int32_t c = e->problem->variable_of_tensor[t];
        if (c >= 0 && e->selection[c] < 0) {
            what = "tensor";
            name = g->tensors[t].name;
            dtp_layout_print(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type, &g->dims,
                             text);
        }
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        if (e->selection[e->problem->variable_of_node[n]] < 0) {
            what = "node";
            name = g->nodes[n].name;
            dtp_strategy_print(g, n, &plan->mesh, &plan->sharding.strategies[n], text);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "the plan has what tensor mode does not choose from: %s '%.200s': %.300s", what,
                    name, text);
}

dtp_status dtp_explain__find_selection(dtp_explaining *e, dtp_err *err)
{
    const dtp_plan *plan = e->request->plan;
    bool found = false;
    DTP_TRY(dtp_pin_set_read(plan->n_pins, plan->pins, e->request->graph, &plan->mesh, e->arena,
                             &e->pins, err));
    DTP_TRY(try_bounds(e, &found, err));
    if (found) {
        count_left_out(e);
        return DTP_OK;
    }
    e->bounds = NULL;
    DTP_TRY(dtp_runs_needed(e->request->graph, &plan->sharding, MOST_RUNS, &e->out->runs, err));
    DTP_TRY(try_problems(e, e->out->runs, NULL, &found, err));
    if (!found && e->out->runs > 0) {
        e->out->runs = 0;
        DTP_TRY(try_problems(e, 0, NULL, &found, err));
    }
    return found ? DTP_OK : fail_selection(e, err);
}
