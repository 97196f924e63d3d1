/* Tensor mode: the layouts of single tensors as a selection problem (docs/tensor-problem.md). */
#include "planner/problem/tensors/tensor_problem.h"

#include <stdlib.h>
#include <string.h>

#include "cost_models/pipeline.h"
#include "planner/problem/tensors/tensor_internal.h"

_Static_assert(DTP_COST_LIMIT_PS == DTP_FORBIDDEN, "one limit of costs");

dtp_tensor_options dtp_tensor_options_init(void)
{
    return (dtp_tensor_options){.runs = 1};
}

/* ---- nodes of the selection problem ---- */

/* What the members of a group cost that go to other stages: a shard of each goes from a rank to the
 * rank of the same place. */
static dtp_status send_costs(tensor_build *b, const dtp_tensor_variable *variable, int64_t *cost,
                             dtp_err *err)
{
    const dtp_stages *stages = b->g->stages;
    dtp_pricer between;
    DTP_TRY(dtp_pipeline_between(b->p->pricer, stages->n, &between, err));
    for (int32_t i = 0; i < stages->n_transfers; i++) {
        const dtp_transfer *x = &stages->transfers[i];
        const dtp_tensor_id sent = x->into >= 0 ? x->into : x->tensor;
        for (int32_t k = 0; k < variable->n_strategies &&
                            b->group_of_tensor[sent] == b->group_of_tensor[variable->tensor];
             k++) {
            dtp_ttype local;
            dtp_layout_local_max(&variable->strategies[k].layout, b->mesh,
                                 &b->g->tensors[sent].type, &local);
            const double s = dtp_pipeline_send_s(&between, dtp_ttype_bytes(&local),
                                                 dtp_transfer_hops(stages, x->from, x->to));
            const int32_t runs = dtp_pipeline_sends(b->g, x);
            cost[k] = dtp_tensor__plus(b, cost[k], dtp_tensor__times(b, dtp_picoseconds(s), runs));
        }
    }
    return DTP_OK;
}

/* What survives the step is reduced at its end. */
static dtp_status tensor_costs(tensor_build *b, const dtp_tensor_variable *variable, int64_t *cost,
                               dtp_err *err)
{
    int32_t group = b->group_of_tensor[variable->tensor];
    int64_t count = 0;
    for (dtp_tensor_id t = 0; t < b->g->n_tensors && b->tensor_groups[group].survives; t++) {
        count += b->group_of_tensor[t] == group && b->uses.survives[t] ? 1 : 0;
    }
    const dtp_ttype *type = &b->g->tensors[variable->tensor].type;
    for (int32_t k = 0; k < variable->n_strategies && count > 0; k++) {
        const dtp_layout *kept = &variable->strategies[k].layout;
        dtp_layout reduced = *kept;
        for (int32_t m = 0; m < reduced.n_mesh; m++) {
            if (reduced.placement[m].kind == DTP_PARTIAL) {
                reduced.placement[m] = (dtp_placement){0};
            }
        }
        DTP_TRY(dtp_tensor__redistribution(b, type, kept, &reduced, &cost[k], err));
        cost[k] = dtp_tensor__times(b, cost[k], count);
    }
    return DTP_OK;
}

/* The costs are those of all members of a group together. */
static dtp_status add_node(tensor_build *b, int32_t i, int64_t *cost, const int64_t *usage,
                           int64_t *kernel_ps, dtp_err *err)
{
    const dtp_tensor_variable *variable = &b->p->variables[i];
    const int32_t n = variable->n_strategies;
    memset(cost, 0, (size_t)n * sizeof *cost);
    if (variable->kind == DTP_DECIDE_OP) {
        const int32_t g = b->group_of_node[variable->node];
        const node_group *group = &b->node_groups[g];
        const class_strategies *c = dtp_tensor__class_of(b, g);
        for (int32_t k = 0; k < n; k++) {
            const dtp_node_price *price = &c->price[group->strategy[k]];
            cost[k] = dtp_tensor__times(b, price->cost_ps, group->members);
            kernel_ps[k] = dtp_tensor__times(b, price->kernel_ps, group->members);
        }
    } else if (variable->kind == DTP_DECIDE_TENSOR) {
        DTP_TRY(tensor_costs(b, variable, cost, err));
        DTP_TRY(b->g->stages != NULL ? send_costs(b, variable, cost, err) : DTP_OK);
    }
    return dtp_problem_add_variable(b->p->select, 0, 0, n, cost, usage, err);
}

const dtp_redistributor *dtp_tensor_redistributor(const dtp_tensor_problem *p)
{
    return dtp_redistribution_pricer_redistributor(p->redistributions);
}

/* ---- sums ---- */

static int64_t largest(const int64_t *cost, int64_t first, int64_t end)
{
    int64_t most = 0;
    for (int64_t k = first; k < end; k++) {
        most = cost[k] < DTP_FORBIDDEN && cost[k] > most ? cost[k] : most;
    }
    return most;
}

/* The dearest assignment costs less than DTP_FORBIDDEN, so that none is excluded for its
 * sum. */
static dtp_status check_sum(const tensor_build *b, dtp_err *err)
{
    const dtp_problem *s = b->p->select;
    const dtp_dearest *node = dtp_node_pricer_dearest(b->nodes);
    const dtp_dearest *move = dtp_redistribution_pricer_dearest(b->p->redistributions);
    int64_t sum = b->dearest;
    bool fits = !b->too_large;
    for (int32_t i = 0; i < s->n_variables && fits; i++) {
        fits = dtp_cost_add(&sum, largest(s->cost, s->first[i], s->first[i + 1]), 1);
    }
    return fits ? DTP_OK
                : dtp_cost_fail(b->p->pricer, node->time_s > move->time_s ? node : move, err);
}

/* ---- life ---- */

static dtp_status build_all(tensor_build *b, dtp_err *err)
{
    dtp_tensor_problem *p = b->p;
    const int64_t limit = p->options.memory_bytes > 0 ? p->options.memory_bytes : INT64_MAX / 4;
    DTP_TRY(dtp_node_classes_find(b->g, b->arena, &b->classes, err));
    DTP_TRY(dtp_tensor__strategies(b, err));
    DTP_TRY(dtp_tensor__groups(b, err));
    DTP_TRY(dtp_tensor__variables(b, err));
    if (p->options.unpriced) {
        return DTP_OK;
    }
    DTP_TRY(dtp_problem_create(b->g->name, limit, &p->select, err));
    size_t most = 0, all = 0;
    for (int32_t i = 0; i < p->n_variables; i++) {
        const size_t n = (size_t)p->variables[i].n_strategies;
        most = n > most ? n : most;
        all += n;
    }
    DTP_TRY(DTP_NEW(p->arena, p->kernel_ps, all, err));
    int64_t *cost = dtp_arena_alloc(b->arena, most, sizeof *cost);
    int64_t *usage = dtp_arena_alloc(b->arena, most, sizeof *usage);
    DTP_TRY(DTP_MEMORY(err, cost, usage));
    for (int32_t i = 0, at = 0; i < p->n_variables; at += p->variables[i++].n_strategies) {
        DTP_TRY(add_node(b, i, cost, usage, p->kernel_ps + at, err));
    }
    DTP_TRY(dtp_stop_check(p->options.stop, err));
    DTP_TRY(dtp_tensor__memory(b, err));
    DTP_TRY(dtp_tensor__edges(b, err));
    DTP_TRY(check_sum(b, err));
    return dtp_problem_check(p->select, err);
}

static dtp_status build(dtp_tensor_problem *p, dtp_err *err)
{
    tensor_build b = {.p = p, .g = p->graph, .mesh = &p->pricer->mesh};
    b.arena = dtp_arena_create();
    dtp_status s =
        b.arena != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a problem");
    p->redistributions = p->options.redistributions;
    if (s == DTP_OK && p->redistributions == NULL) {
        s = dtp_redistribution_pricer_create(p->pricer, &p->redistributions, err);
    }
    s = s == DTP_OK ? dtp_node_pricer_create(p->graph, p->pricer, dtp_tensor_redistributor(p),
                                             &b.nodes, err)
                    : s;
    if (s == DTP_OK && p->pricer->of_bounds) {
        dtp_node_pricer_join(b.nodes);
    }
    s = s == DTP_OK ? build_all(&b, err) : s;
    dtp_node_pricer_destroy(b.nodes);
    dtp_arena_destroy(b.arena);
    return s;
}

static dtp_status copy_pins(dtp_tensor_problem *p, dtp_err *err)
{
    const size_t n = (size_t)p->options.n_pins;
    dtp_pin *pins = dtp_arena_alloc(p->arena, n, sizeof *pins);
    DTP_TRY(DTP_MEMORY(err, pins));
    if (n > 0) {
        memcpy(pins, p->options.pins, n * sizeof *pins);
    }
    p->options.pins = pins;
    return DTP_OK;
}

dtp_status dtp_tensor_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                     const dtp_tensor_options *options, dtp_tensor_problem **out,
                                     dtp_err *err)
{
    dtp_tensor_problem *p = calloc(1, sizeof *p);
    DTP_TRY(DTP_MEMORY(err, p));
    p->arena = dtp_arena_create();
    p->graph = g;
    p->pricer = pricer;
    p->options = options != NULL ? *options : dtp_tensor_options_init();
    dtp_status s = p->arena != NULL ? copy_pins(p, err)
                                    : DTP_FAIL(err, DTP_NOMEM, "out of memory for a problem");
    s = s == DTP_OK ? build(p, err) : s;
    if (s != DTP_OK) {
        dtp_tensor_problem_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void dtp_tensor_problem_destroy(dtp_tensor_problem *p)
{
    if (p == NULL) {
        return;
    }
    dtp_problem_destroy(p->select);
    if (p->options.redistributions == NULL) {
        dtp_redistribution_pricer_destroy(p->redistributions);
    }
    dtp_arena_destroy(p->arena);
    free(p);
}
