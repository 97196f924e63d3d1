/* The plan as an assignment of the problem that it was made from, tied in as many groups as it
 * needs. */
#include <string.h>

#include "planner/reports/explain_internal.h"
#include "planner/problem/tensors/tying_groups.h"

/* Beyond so many groups (planner/problem/tensors/tying_groups.h) every instance decides on its
 * own. */
enum { MOST_RUNS = 4 };

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

int32_t dtp_explain__variable(const dtp_explaining *e, const dtp_tensor_problem *p)
{
    return e->tensor >= 0 ? p->variable_of_tensor[e->tensor] : p->variable_of_node[e->node];
}

/* ---- problems -----------------------------------------------------------------------------------
 */

static dtp_status create_problem(dtp_explaining *e, int32_t runs, bool pinned,
                                 dtp_tensor_problem **out, dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = runs;
    options.uneven = e->request->plan->uneven;
    options.memory_bytes = e->request->plan->memory_limit_bytes;
    options.n_pins = pinned ? e->pins.n_pins : 0;
    options.pins = e->pins.pins;
    options.unpriced = !pinned;
    DTP_TRY(dtp_tensor_problem_create(e->request->graph, &e->pricer, &options, out, err));
    return *out != NULL ? follow_tensor(e, *out, err)
                        : DTP_FAIL(err, DTP_INTERNAL, "a selection problem is missing");
}

/* Problems and the plan's assignment in them, when both have it. */
static dtp_status try_problems(dtp_explaining *e, int32_t runs, bool *found, dtp_err *err)
{
    dtp_explain__forget_problems(e);
    DTP_TRY(create_problem(e, runs, true, &e->problem, err));
    e->free = e->problem;
    if (e->pins.n_pins > 0) {
        e->free = NULL;
        DTP_TRY(create_problem(e, runs, false, &e->free, err));
    }
    const size_t n = (size_t)e->problem->n_variables;
    DTP_TRY(DTP_NEW(e->arena, e->assignment, n, err));
    DTP_TRY(DTP_NEW(e->arena, e->other, n, err));
    return dtp_tensor_assignment(e->problem, &e->request->plan->sharding, e->assignment, found,
                                 err);
}

void dtp_explain__forget_problems(dtp_explaining *e)
{
    dtp_tensor_problem_destroy(e->problem != e->free ? e->problem : NULL);
    dtp_tensor_problem_destroy(e->free);
    e->problem = e->free = NULL;
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
        if (c >= 0 && e->assignment[c] < 0) {
            what = "tensor";
            name = g->tensors[t].name;
            dtp_layout_print(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type, &g->dims,
                             text);
        }
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        if (e->assignment[e->problem->variable_of_node[n]] < 0) {
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
    DTP_TRY(dtp_runs_needed(e->request->graph, &plan->sharding, MOST_RUNS, &e->out->runs, err));
    DTP_TRY(try_problems(e, e->out->runs, &found, err));
    if (!found && e->out->runs > 0) {
        e->out->runs = 0;
        DTP_TRY(try_problems(e, 0, &found, err));
    }
    return found ? DTP_OK : fail_selection(e, err);
}
