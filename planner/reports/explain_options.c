/* Alternatives among the strategies of the problem: what each costs alone, and at least when
 * everything else is chosen anew. */
#include "planner/reports/explain_internal.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/units.h"
#include "cost_models/node_price.h"
#include "core/plan/node_layouts.h"
#include "planner/solver/dual_bound.h"
#include "planner/tensors/plan_tensor.h"

int32_t dtp_explain__variable(const dtp_explaining *e, const dtp_tensor_problem *p)
{
    return e->tensor >= 0 ? p->variable_of_tensor[e->tensor] : p->variable_of_node[e->node];
}

void dtp_explain__print(const dtp_explaining *e, const dtp_tensor_strategy *o,
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

/* cost[k] of strategy k of variable v, everything else as in the assignment; cost: scratch. */
static void find_costs(const dtp_problem *s, const int32_t *assignment, int32_t v, int64_t *cost)
{
    const int32_t n = dtp_problem_n_strategies(s, v);
    memcpy(cost, s->cost + s->first[v], (size_t)n * sizeof *cost);
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int32_t a = s->edge_a[e], b = s->edge_b[e];
        const int64_t cols = dtp_problem_n_strategies(s, b);
        for (int32_t k = 0; (a == v || b == v) && k < n; k++) {
            const int64_t row = a == v ? k : assignment[a], col = b == v ? k : assignment[b];
            const int64_t at = s->edge_first[e] + row * cols + col;
            cost[k] = dtp_problem_add_cost(cost[k], s->edge_cost[at]);
        }
    }
}

/* The replicas of a tensor follow it at the least cost. */
static void settle_replicas(const dtp_tensor_problem *p, int32_t tensor_variable,
                            int32_t *assignment, int64_t *cost)
{
    for (int32_t v = 0; v < p->n_variables; v++) {
        const dtp_tensor_variable *c = &p->variables[v];
        int64_t best = INT64_MAX;
        if (c->kind != DTP_DECIDE_REPLICA || p->variable_of_tensor[c->tensor] != tensor_variable) {
            continue;
        }
        find_costs(p->select, assignment, v, cost);
        for (int32_t k = 0; k < c->n_strategies; k++) {
            if (cost[k] < best) {
                best = cost[k];
                assignment[v] = k;
            }
        }
    }
}

/* Kernel time of the deciding node in a strategy, all instances. */
static dtp_status kernel_time(const dtp_explaining *e, dtp_node_pricer *np,
                              const dtp_tensor_strategy *o, int64_t *out, dtp_err *err)
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
    *out = 0;
    return dtp_cost_add(out, price.kernel_ps, e->out->instances)
               ? DTP_OK
               : dtp_cost_fail(&e->pricer, dtp_node_pricer_dearest(np), err);
}

typedef struct evaluation {
    const dtp_tensor_problem *problem;
    int32_t variable;
    int32_t *plan;           /* the plan's assignment in this problem */
    dtp_problem_value value; /* of it */
    dtp_evaluator *evaluator;
    int64_t *cost;       /* scratch, by strategy of any variable */
    dtp_node_pricer *np; /* NULL: a tensor decides */
    int64_t kernel_ps;   /* of the plan's strategy */
} evaluation;

/* e->other becomes the plan with strategy k. */
static dtp_status evaluate_alone(const dtp_explaining *e, const evaluation *v, int32_t k,
                                 dtp_alternative *a, dtp_err *err)
{
    const dtp_tensor_problem *p = v->problem;
    dtp_problem_value value;
    int64_t node_cost, kernel = v->kernel_ps;
    memcpy(e->other, v->plan, (size_t)p->n_variables * sizeof *e->other);
    e->other[v->variable] = k;
    if (e->tensor >= 0) {
        settle_replicas(p, v->variable, e->other, v->cost);
    }
    DTP_TRY(dtp_evaluator_cost(v->evaluator, e->other, &value.cost, err));
    a->priced = true;
    a->apart = value.cost >= DTP_FORBIDDEN;
    if (a->apart) {
        return DTP_OK;
    }
    DTP_TRY(dtp_evaluator_run(v->evaluator, e->other, &value, err));
    node_cost = p->select->cost[p->select->first[v->variable] + k] -
                p->select->cost[p->select->first[v->variable] + v->plan[v->variable]];
    if (v->np != NULL) {
        DTP_TRY(kernel_time(e, v->np, &p->variables[v->variable].strategies[k], &kernel, err));
        a->alone.compute = kernel - v->kernel_ps;
        a->alone.communication = node_cost - a->alone.compute;
    }
    a->alone.redistribution =
        value.cost - v->value.cost - a->alone.compute - a->alone.communication;
    a->alone_memory = value.peak - v->value.peak;
    a->alone_fits = e->out->limit_bytes == 0 || value.peak <= e->out->limit_bytes;
    return DTP_OK;
}

/* The certificate's bound of this problem: what it says without tying, or of instances that are
 * tied as here; 0: it says nothing of it. */
static int64_t certified_bound(const dtp_explaining *e)
{
    const dtp_plan *plan = e->request->plan;
    const dtp_certificate *c = &plan->certificate;
    const bool speaks = e->request->plan_is_current && !plan->rules_mode &&
                        plan->objective == DTP_OBJECTIVE_TIME && c->solver != NULL;
    const char *const as_here = e->out->runs == 0   ? DTP_SOLVER_UNTIED
                                : e->out->runs == 1 ? DTP_SOLVER_TIED
                                                    : DTP_SOLVER_TWO_GROUPS;
    const bool same = speaks && (strcmp(c->solver, DTP_SOLVER_UNTIED) == 0 ||
                                 (strcmp(c->solver, as_here) == 0 && e->out->runs <= 2));
    const int64_t untied = speaks && c->has_untied ? c->untied_bound : 0;
    return same && c->bound > untied ? c->bound : untied;
}

/* The least difference with strategy k, everything else chosen anew. */
static dtp_status solve_with(const dtp_explaining *e, const evaluation *v, int32_t k,
                             dtp_alternative *a, dtp_err *err)
{
    dtp_problem *p = v->problem->select;
    const int32_t n = v->problem->variables[v->variable].n_strategies;
    int64_t *cost = p->cost + p->first[v->variable];
    dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result r;
    memcpy(e->other, v->plan, (size_t)p->n_variables * sizeof *e->other);
    e->other[v->variable] = k;
    options.start = e->other;
    memcpy(v->cost, cost, (size_t)n * sizeof *cost);
    for (int32_t i = 0; i < n; i++) {
        cost[i] = i == k ? cost[i] : DTP_FORBIDDEN;
    }
    const dtp_status s = dtp_solve(p, &options, &r, err);
    memcpy(cost, v->cost, (size_t)n * sizeof *cost);
    DTP_TRY(s);
    a->none = r.status == DTP_CERT_INFEASIBLE;
    if (r.bound - v->value.cost > a->at_least) {
        a->at_least = r.bound - v->value.cost;
    }
    a->at_least_is_best = r.status == DTP_CERT_OPTIMAL;
    dtp_solve_result_free(&r);
    return DTP_OK;
}

/* What every alternative costs at least. It is the difference where nothing else has to change. */
static dtp_status find_differences(dtp_explaining *e, const evaluation *v, dtp_err *err)
{
    dtp_explanation *x = e->out;
    const int32_t n = v->problem->variables[v->variable].n_strategies;
    const int64_t cost = v->value.cost, certified = certified_bound(e);
    int64_t *bound;
    DTP_TRY(DTP_NEW(e->arena, bound, n, err));
    DTP_TRY(dtp_strategy_bounds(v->problem->select, v->variable, bound, err));
    x->bound_ps = DTP_FORBIDDEN;
    for (int32_t i = 0; i < n; i++) {
        dtp_alternative *a = &x->alternatives[i];
        bound[i] = certified > bound[i] ? certified : bound[i];
        x->bound_ps = bound[i] < x->bound_ps ? bound[i] : x->bound_ps;
        a->none = bound[i] >= DTP_FORBIDDEN;
        a->at_least = bound[i] - cost;
        if (e->request->exact && !a->none) {
            DTP_TRY(solve_with(e, v, i, a, err));
        }
        a->at_least_is_best = a->at_least_is_best || (!a->apart && a->alone_fits &&
                                                      a->at_least == dtp_cost_split_sum(&a->alone));
        if (a->none) {
            a->excluded = "nothing within the memory limit and the pins has it";
        }
    }
    return DTP_OK;
}

static dtp_status evaluate_options(dtp_explaining *e, evaluation *v, dtp_err *err)
{
    dtp_explanation *x = e->out;
    dtp_problem *p = e->problem->select;
    DTP_TRY(DTP_NEW(e->arena, v->cost, (size_t)p->first[p->n_variables], err));
    DTP_TRY(dtp_problem_evaluate(p, v->plan, &v->value, err));
    /* A plan that is a baseline may be counted above its limit (plan_tensor.c). */
    if (e->request->plan->predicted.peak_bytes <= e->request->plan->memory_limit_bytes &&
        v->value.peak > p->usage_limit) {
        p->usage_limit = v->value.peak;
    }
    DTP_TRY(dtp_evaluator_create(p, &v->evaluator, err));
    DTP_TRY(dtp_evaluator_run(v->evaluator, v->plan, &v->value, err));
    if (!v->value.feasible) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "the plan needs %s, or breaks a pin, where its limit is %s",
                        dtp_byte_count((double)v->value.peak).text,
                        dtp_byte_count((double)e->request->plan->memory_limit_bytes).text);
    }
    x->cost_ps = v->value.cost;
    x->peak_bytes = v->value.peak;
    x->limit_bytes = e->request->plan->memory_limit_bytes;
    const dtp_graph *g = e->request->graph;
    for (int32_t t = 0; t < g->n_tensors && e->tensor >= 0; t++) {
        e->out->instances += e->problem->variable_of_tensor[t] == v->variable &&
                                     g->tensors[t].kind == g->tensors[e->tensor].kind
                                 ? 1
                                 : 0;
    }
    for (int32_t n = 0; n < g->n_nodes && e->tensor < 0; n++) {
        e->out->instances += e->problem->variable_of_node[n] == v->variable ? 1 : 0;
    }
    if (v->np != NULL) {
        DTP_TRY(kernel_time(e, v->np,
                            &v->problem->variables[v->variable].strategies[v->plan[v->variable]],
                            &v->kernel_ps, err));
    }
    /* The first alternatives are the strategies of the variable, in their order. */
    const dtp_tensor_variable *c = &v->problem->variables[v->variable];
    for (int32_t k = 0; k < c->n_strategies; k++) {
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_alternative *a;
        dtp_explain__print(e, &c->strategies[k], text);
        DTP_TRY(dtp_explain__add(e, text, NULL, &a, err));
        a->chosen = k == v->plan[v->variable];
        DTP_TRY(evaluate_alone(e, v, k, a, err));
        if (a->chosen) {
            e->out->chosen = a->text;
        }
    }
    return find_differences(e, v, err);
}

dtp_status dtp_explain__options(dtp_explaining *e, dtp_err *err)
{
    evaluation v = {.problem = e->problem,
                    .variable = dtp_explain__variable(e, e->problem),
                    .plan = e->assignment};
    if (e->tensor < 0) {
        DTP_TRY(dtp_node_pricer_create(e->request->graph, &e->pricer,
                                       dtp_tensor_redistributor(e->problem), &v.np, err));
    }
    const dtp_status s = evaluate_options(e, &v, err);
    dtp_evaluator_destroy(v.evaluator);
    dtp_node_pricer_destroy(v.np);
    return s;
}
