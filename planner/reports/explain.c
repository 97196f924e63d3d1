#include "planner/reports/explain.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cost_models/plan_lowering.h"
#include "planner/candidate.h"
#include "planner/reports/explain_internal.h"
#include "planner/styles/glob.h"
#include "planner/node_price.h"
#include "spmd/node_layouts.h"

enum { NEAR = 4 };

/* ---- names --------------------------------------------------------------------------------------
 */

static dtp_status fail_name(const dtp_explain_request *r, dtp_err *err)
{
    const dtp_graph *g = r->graph;
    const char *nearest = NULL;
    int32_t best = NEAR;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const int32_t d = dtp_name_distance(r->name, g->tensors[t].name, best);
        if (d < best) {
            best = d;
            nearest = g->tensors[t].name;
        }
    }
    return DTP_FAIL(err, DTP_NOT_FOUND, "the model '%s' has no %s '%.200s'%s%s%s", g->name,
                    r->node ? "node" : "tensor or node", r->name,
                    nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "");
}

static dtp_status find_name(dtp_explaining *e, dtp_err *err)
{
    const dtp_explain_request *r = e->request;
    const dtp_graph *g = r->graph;
    e->tensor = r->node ? -1 : dtp_graph_find(g, r->name);
    e->node = -1;
    for (int32_t n = 0; n < g->n_nodes && e->tensor < 0 && e->node < 0; n++) {
        e->node = strcmp(g->nodes[n].name, r->name) == 0 ? n : -1;
    }
    return e->tensor >= 0 || e->node >= 0 ? DTP_OK : fail_name(r, err);
}

/* A tensor that is kept as an op leaves or reads it: that op decides. */
static dtp_status follow_tensor(dtp_explaining *e, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_tensor_id t = e->tensor;
    if (t < 0 || e->problem->choice_of_tensor[t] >= 0) {
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

/* ---- the plan as a selection --------------------------------------------------------------------
 */

static dtp_status create_problem(dtp_explaining *e, bool fold, int32_t n_pins,
                                 dtp_tensor_problem **out, dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    options.fold = fold;
    options.uneven = e->request->plan->uneven;
    options.memory_bytes = e->request->plan->memory_limit_bytes;
    options.n_pins = n_pins;
    options.pins = e->pins.pins;
    return dtp_tensor_problem_create(e->request->graph, &e->pricer, &options, out, err);
}

/* Problems and the plan's selection in them, when both have it. */
static dtp_status try_problems(dtp_explaining *e, bool fold, bool *found, dtp_err *err)
{
    const dtp_sharding *s = &e->request->plan->sharding;
    dtp_tensor_problem_destroy(e->problem != e->free ? e->problem : NULL);
    dtp_tensor_problem_destroy(e->free);
    e->problem = e->free = NULL;
    DTP_TRY(create_problem(e, fold, 0, &e->free, err));
    e->problem = e->free;
    if (e->pins.n_pins > 0) {
        DTP_TRY(create_problem(e, fold, e->pins.n_pins, &e->problem, err));
    }
    if (e->free == NULL || e->problem == NULL) {
        return DTP_FAIL(err, DTP_INTERNAL, "a selection problem is missing");
    }
    const size_t n = (size_t)e->free->n_choices;
    e->selection = dtp_arena_alloc(e->arena, n, sizeof *e->selection);
    e->other = dtp_arena_alloc(e->arena, n, sizeof *e->other);
    if (e->selection == NULL || e->other == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
    }
    return dtp_tensor_selection(e->problem, s, e->selection, found, err);
}

/* The first decision of the plan that the problem without folding does not have. */
static dtp_status fail_selection(const dtp_explaining *e, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    const dtp_plan *plan = e->request->plan;
    const char *what = "a copy", *name = "some tensor";
    char text[DTP_STRATEGY_TEXT_BYTES] = "in a layout";
    for (int32_t t = g->n_tensors - 1; t >= 0; t--) {
        const int32_t c = e->problem->choice_of_tensor[t];
        if (c >= 0 && e->selection[c] < 0) {
            what = "tensor";
            name = g->tensors[t].name;
            dtp_layout_print(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type, &g->dims,
                             text);
        }
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        if (e->selection[e->problem->choice_of_node[n]] < 0) {
            what = "node";
            name = g->nodes[n].name;
            dtp_strategy_print(g, n, &plan->mesh, &plan->sharding.strategies[n], text);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "the plan has what tensor mode does not choose from: %s '%.200s': %.300s", what,
                    name, text);
}

static dtp_status find_selection(dtp_explaining *e, dtp_err *err)
{
    const dtp_plan *plan = e->request->plan;
    bool found = false;
    DTP_TRY(dtp_pin_set_read(plan->n_pins, plan->pins, e->request->graph, &plan->mesh, e->arena,
                             &e->pins, err));
    DTP_TRY(try_problems(e, true, &found, err));
    if (!found) {
        DTP_TRY(try_problems(e, false, &found, err));
    }
    return found ? DTP_OK : fail_selection(e, err);
}

/* ---- alternatives -------------------------------------------------------------------------------
 */

dtp_status dtp_explain__add(dtp_explaining *e, const char *text, const char *excluded,
                            dtp_alternative **out, dtp_err *err)
{
    dtp_explanation *x = e->out;
    DTP_TRY(dtp_arena_grow(e->arena, &x->alternatives, x->n, x->n + 1, &e->capacity,
                           sizeof *x->alternatives, err));
    *out = &x->alternatives[x->n++];
    **out = (dtp_alternative){.text = dtp_arena_strdup(e->arena, text), .excluded = excluded};
    return (*out)->text != NULL ? DTP_OK
                                : DTP_FAIL(err, DTP_NOMEM, "out of memory for alternatives");
}

static int32_t deciding_choice(const dtp_explaining *e, const dtp_tensor_problem *p)
{
    return e->tensor >= 0 ? p->choice_of_tensor[e->tensor] : p->choice_of_node[e->node];
}

static void print_option(const dtp_explaining *e, const dtp_option *o,
                         char out[DTP_STRATEGY_TEXT_BYTES])
{
    const dtp_graph *g = e->request->graph;
    const dtp_mesh *mesh = &e->request->plan->mesh;
    if (e->tensor >= 0) {
        dtp_layout_print(&o->layout, mesh, &g->tensors[e->tensor].type, &g->dims, out);
    } else {
        dtp_strategy_print(g, e->node, mesh, &o->strategy, out);
    }
}

/* The cost of option k of node v, everything else as in the selection. */
static int64_t local_cost(const dtp_select_problem *s, const int32_t *selection, int32_t v,
                          int32_t k)
{
    int64_t sum = s->cost[s->first[v] + k];
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int32_t a = s->edge_a[e], b = s->edge_b[e];
        if (a == v || b == v) {
            const int64_t row = a == v ? k : selection[a], col = b == v ? k : selection[b];
            const int64_t at = s->edge_first[e] + row * dtp_select_n_strategies(s, b) + col;
            sum = dtp_select_add_cost(sum, s->edge_cost[at]);
        }
    }
    return sum;
}

/* The copies of a tensor follow it in the cheapest way. */
static void settle_views(const dtp_tensor_problem *p, int32_t tensor_choice, int32_t *selection)
{
    for (int32_t v = 0; v < p->n_choices; v++) {
        const dtp_choice *c = &p->choices[v];
        int64_t best = INT64_MAX;
        if (c->kind != DTP_DECIDE_VIEW || p->choice_of_tensor[c->tensor] != tensor_choice) {
            continue;
        }
        for (int32_t k = 0; k < c->n_options; k++) {
            const int64_t cost = local_cost(p->select, selection, v, k);
            if (cost < best) {
                best = cost;
                selection[v] = k;
            }
        }
    }
}

/* Kernel time of the deciding node in an option, all instances. */
static dtp_status kernel_time(const dtp_explaining *e, dtp_node_pricer *np, const dtp_option *o,
                              int64_t *out, dtp_err *err)
{
    const dtp_graph *g = e->request->graph;
    dtp_call_types types;
    dtp_layout whole[DTP_MAX_OP_IN];
    dtp_node_layouts l;
    dtp_node_price price;
    const dtp_op_call call = dtp_node_call(g, &g->nodes[e->node], &types);
    for (int32_t i = 0; i < call.n_in; i++) {
        whole[i] = dtp_layout_replicated(call.in[i].rank, e->pricer.mesh.n_dims);
    }
    DTP_TRY(
        dtp_node_layouts_find(&e->pricer.mesh, &call, NULL, &o->strategy, whole, NULL, &l, err));
    DTP_TRY(dtp_node_pricer_price(np, e->node, &o->strategy, l.in, l.out, &price, err));
    *out = price.kernel_ps * e->out->instances;
    return DTP_OK;
}

typedef struct evaluation {
    const dtp_tensor_problem *problem;
    int32_t choice;
    int32_t *plan;          /* the plan's selection in this problem */
    dtp_select_value value; /* of it */
    dtp_select_evaluator *evaluator;
    dtp_node_pricer *np; /* NULL: a tensor decides */
    int64_t kernel_ps;   /* of the plan's option */
} evaluation;

/* e->other becomes the plan with option k. */
static dtp_status evaluate_alone(const dtp_explaining *e, const evaluation *v, int32_t k,
                                 dtp_alternative *a, dtp_err *err)
{
    const dtp_tensor_problem *p = v->problem;
    dtp_select_value value;
    int64_t node_cost, kernel = v->kernel_ps;
    memcpy(e->other, v->plan, (size_t)p->n_choices * sizeof *e->other);
    e->other[v->choice] = k;
    if (e->tensor >= 0) {
        settle_views(p, v->choice, e->other);
    }
    DTP_TRY(dtp_select_evaluator_run(v->evaluator, e->other, &value, err));
    a->priced = true;
    a->apart = value.cost >= DTP_SELECT_FORBIDDEN;
    if (a->apart) {
        return DTP_OK;
    }
    node_cost = p->select->cost[p->select->first[v->choice] + k] -
                p->select->cost[p->select->first[v->choice] + v->plan[v->choice]];
    if (v->np != NULL) {
        DTP_TRY(kernel_time(e, v->np, &p->choices[v->choice].options[k], &kernel, err));
        a->alone.compute = kernel - v->kernel_ps;
        a->alone.communication = node_cost - a->alone.compute;
    }
    a->alone.redistribution =
        value.cost - v->value.cost - a->alone.compute - a->alone.communication;
    a->alone_memory = value.peak - v->value.peak;
    a->alone_fits = e->out->limit_bytes == 0 || value.peak <= e->out->limit_bytes;
    return DTP_OK;
}

static void read_marginal(const evaluation *v, const dtp_select_marginal *m, dtp_alternative *a)
{
    a->none = m->bound >= DTP_SELECT_FORBIDDEN;
    if (!a->none) {
        a->at_least = m->bound - v->value.cost;
        a->at_least_is_best = m->bound == m->cost;
        a->known = m->cost < DTP_SELECT_FORBIDDEN;
        a->at_most = m->cost - v->value.cost;
    } else {
        a->excluded = "nothing within the memory limit and the pins has it";
    }
}

static dtp_status find_marginals(dtp_explaining *e, const evaluation *v, dtp_err *err)
{
    const int32_t k = v->problem->choices[v->choice].n_options;
    dtp_marginal_options options = dtp_marginal_options_init(v->choice, v->plan);
    dtp_select_marginal *m = dtp_arena_alloc(e->arena, (size_t)k, sizeof *m);
    if (m == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d alternatives", k);
    }
    for (int32_t i = 0; i < k; i++) {
        const dtp_alternative *a = &e->out->alternatives[i];
        m[i].cost = !a->apart && a->alone_fits ? v->value.cost + dtp_cost_split_sum(&a->alone)
                                               : DTP_SELECT_FORBIDDEN;
    }
    options.exact = e->request->exact;
    DTP_TRY(dtp_select_marginals(v->problem->select, &options, m, err));
    for (int32_t i = 0; i < k; i++) {
        read_marginal(v, &m[i], &e->out->alternatives[i]);
        e->out->bound_ps = i == 0 || m[i].bound < e->out->bound_ps ? m[i].bound : e->out->bound_ps;
    }
    return DTP_OK;
}

/* The first alternatives are the options of the choice, in their order. */
static dtp_status add_options(dtp_explaining *e, const evaluation *v, dtp_err *err)
{
    const dtp_choice *c = &v->problem->choices[v->choice];
    for (int32_t k = 0; k < c->n_options; k++) {
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_alternative *a;
        print_option(e, &c->options[k], text);
        DTP_TRY(dtp_explain__add(e, text, NULL, &a, err));
        a->chosen = k == v->plan[v->choice];
        DTP_TRY(evaluate_alone(e, v, k, a, err));
        if (a->chosen) {
            e->out->chosen = a->text;
        }
    }
    return find_marginals(e, v, err);
}

/* The certificate's bound, if it speaks of this problem and says more. */
static void use_certificate(dtp_explaining *e)
{
    const dtp_plan *plan = e->request->plan;
    dtp_explanation *x = e->out;
    const int64_t bound = plan->certificate.bound;
    if (!e->request->plan_is_current || plan->rules_mode || plan->objective != DTP_OBJECTIVE_TIME ||
        bound <= x->bound_ps || bound > x->cost_ps) {
        return;
    }
    x->bound_ps = bound;
    for (int32_t i = 0; i < x->n; i++) {
        dtp_alternative *a = &x->alternatives[i];
        if (a->priced && !a->none && a->at_least < bound - x->cost_ps) {
            a->at_least = bound - x->cost_ps;
        }
    }
}

static void count_instances(dtp_explaining *e, int32_t choice)
{
    const dtp_graph *g = e->request->graph;
    for (int32_t t = 0; t < g->n_tensors && e->tensor >= 0; t++) {
        e->out->instances += e->problem->choice_of_tensor[t] == choice &&
                                     g->tensors[t].kind == g->tensors[e->tensor].kind
                                 ? 1
                                 : 0;
    }
    for (int32_t n = 0; n < g->n_nodes && e->tensor < 0; n++) {
        e->out->instances += e->problem->choice_of_node[n] == choice ? 1 : 0;
    }
}

static dtp_status list_alternatives(dtp_explaining *e, evaluation *v, dtp_err *err)
{
    dtp_explanation *x = e->out;
    DTP_TRY(dtp_select_evaluator_create(v->problem->select, &v->evaluator, err));
    DTP_TRY(dtp_select_evaluator_run(v->evaluator, v->plan, &v->value, err));
    if (!v->value.feasible) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "the plan needs %" PRId64 " bytes, or breaks a pin, where its limit is "
                        "%" PRId64 " bytes",
                        v->value.peak, e->request->plan->memory_limit_bytes);
    }
    x->cost_ps = v->value.cost;
    x->peak_bytes = v->value.peak;
    x->limit_bytes = e->request->plan->memory_limit_bytes;
    count_instances(e, v->choice);
    if (v->np != NULL) {
        DTP_TRY(kernel_time(e, v->np, &v->problem->choices[v->choice].options[v->plan[v->choice]],
                            &v->kernel_ps, err));
    }
    DTP_TRY(add_options(e, v, err));
    use_certificate(e);
    return dtp_explain__excluded(e, err);
}

/* ---- order --------------------------------------------------------------------------------------
 */

static int64_t rank_of(const dtp_alternative *a)
{
    return a->apart || !a->priced ? INT64_MAX : dtp_cost_split_sum(&a->alone);
}

/* Allowed before excluded, then by what they cost alone, then by their text. */
static int compare_alternatives(const void *x, const void *y)
{
    const dtp_alternative *a = x, *b = y;
    const int excluded = (a->excluded != NULL) - (b->excluded != NULL);
    if (excluded != 0 || a->chosen != b->chosen) {
        return excluded != 0 ? excluded : (a->chosen ? -1 : 1);
    }
    const int64_t p = rank_of(a), q = rank_of(b);
    return p != q ? (p < q ? -1 : 1) : strcmp(a->text, b->text);
}

/* The steps of a plan in tensor mode are the cheapest on its own machine only, those of other plans
 * need not be on any. On its own machine the certificate says what it costs. */
static dtp_status price_plan(const dtp_explaining *e, dtp_err *err)
{
    const dtp_plan *plan = e->request->plan;
    dtp_plan_lowering lowering;
    if (e->request->plan_is_current && plan->objective == DTP_OBJECTIVE_TIME) {
        e->out->plan_ps = plan->certificate.cost;
        return DTP_OK;
    }
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    return dtp_additive_cost(e->request->graph, &e->pricer, &plan->sharding, lowering.redistributor,
                             &e->out->plan_ps, err);
}

static dtp_status explain(dtp_explaining *e, dtp_err *err)
{
    DTP_TRY(find_name(e, err));
    DTP_TRY(dtp_pricer_init(e->request->machine, &e->request->plan->mesh, &e->pricer, err));
    DTP_TRY(find_selection(e, err));
    DTP_TRY(price_plan(e, err));
    DTP_TRY(follow_tensor(e, err));
    evaluation v = {
        .problem = e->problem, .choice = deciding_choice(e, e->problem), .plan = e->selection};
    if (e->tensor < 0) {
        DTP_TRY(dtp_node_pricer_create(e->request->graph, &e->pricer,
                                       dtp_tensor_redistributor(e->problem), &v.np, err));
    }
    dtp_status s = list_alternatives(e, &v, err);
    dtp_select_evaluator_destroy(v.evaluator);
    dtp_node_pricer_destroy(v.np);
    if (s == DTP_OK) {
        qsort(e->out->alternatives, (size_t)e->out->n, sizeof *e->out->alternatives,
              compare_alternatives);
    }
    return s;
}

dtp_status dtp_explain(const dtp_explain_request *request, dtp_arena *arena, dtp_explanation *out,
                       dtp_err *err)
{
    dtp_explaining e = {.request = request, .arena = arena, .out = out};
    memset(out, 0, sizeof *out);
    out->name = request->name;
    dtp_status s = explain(&e, err);
    out->node = e.tensor < 0;
    dtp_tensor_problem_destroy(e.problem != e.free ? e.problem : NULL);
    dtp_tensor_problem_destroy(e.free);
    return s;
}
