/* The variables with their strategies, without edges. In this order:
 *
 *   op       the strategies of its class (strategies.c)
 *   tensor   the layouts that divide it evenly, and partial sums where its producer leaves them
 *   replica  the tensor's own layouts, and those that readers of the phase want
 *
 * A group of tied nodes or tensors has one variable. Pins take strategies away.
 */
#include <string.h>

#include "planner/problem/tensors/tensor_internal.h"

const class_strategies *dtp_tensor__class_of(const tensor_build *b, int32_t group)
{
    return &b->options[b->classes.of_node[b->node_groups[group].example]];
}

/* ---- pins ---- */

static dtp_status fail_pin(const tensor_build *b, const dtp_pin *pin, dtp_err *err)
{
    char text[DTP_LAYOUT_TEXT_BYTES];
    const dtp_graph_tensor *t = &b->g->tensors[pin->tensor];
    dtp_layout_print(&pin->layout, b->mesh, &t->type, &b->g->dims, text);
    return pin->node < 0 ? DTP_FAIL(err, DTP_INVALID, "pin: tensor '%s' cannot be kept as (%s)",
                                    t->name, text)
                         : DTP_FAIL(err, DTP_INVALID, "pin: node '%s' cannot read '%s' as (%s)",
                                    b->g->nodes[pin->node].name, t->name, text);
}

/* Whether a strategy of a node keeps a pin of something that the node reads. */
static bool strategy_keeps(const tensor_build *b, int32_t group, int32_t strategy,
                           const dtp_pin *pin)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const tensor_group *tensor = &b->tensor_groups[b->group_of_tensor[pin->tensor]];
    const bool here = pin->node >= 0 ? b->group_of_node[pin->node] == group : tensor->follows;
    const dtp_node_id id = pin->node >= 0 ? pin->node
                           : here         ? b->readers.node[b->readers.first[pin->tensor]]
                                          : -1;
    if (!here || b->group_of_node[id] != group) {
        return true;
    }
    const dtp_node *node = &b->g->nodes[id];
    for (int32_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == pin->tensor &&
            !dtp_pin_agrees(pin, &c->in[i].items[c->in_of[i][strategy]])) {
            return false;
        }
    }
    return true;
}

/* Removes what contradicts pins; the last pin that took something away is blamed if nothing is
 * left. */
static dtp_status filter_options(const tensor_build *b, int32_t g, dtp_err *err)
{
    node_group *group = &b->node_groups[g];
    for (int32_t i = 0; i < b->p->options.n_pins; i++) {
        const dtp_pin *pin = &b->p->options.pins[i];
        int32_t n = 0;
        for (int32_t k = 0; k < group->n_strategies; k++) {
            if (strategy_keeps(b, g, group->strategy[k], pin)) {
                group->strategy[n++] = group->strategy[k];
            }
        }
        group->n_strategies = n;
        if (n == 0) {
            return fail_pin(b, pin, err);
        }
    }
    return DTP_OK;
}

/* Removes what reads in layouts of which something is lost; what reads them whole stays. */
static void filter_reads(const tensor_build *b, int32_t g)
{
    const dtp_form_space *space = b->p->options.space;
    node_group *group = &b->node_groups[g];
    const dtp_node *node = &b->g->nodes[group->example];
    const class_strategies *c = dtp_tensor__class_of(b, g);
    for (int32_t i = 0; space != NULL && node->phase == DTP_FORWARD && i < node->n_in; i++) {
        const dtp_tensor_id t = dtp_uses_of_layouts_tensor(b->g, node, i);
        int32_t n = 0;
        for (int32_t k = 0; k < group->n_strategies; k++) {
            const dtp_layout *l = &c->in[i].items[c->in_of[i][group->strategy[k]]];
            if (t < 0 || dtp_form_takes_layout(space, t, l, false)) {
                group->strategy[n++] = group->strategy[k];
            }
        }
        group->n_strategies = n;
        n = 0;
        for (int32_t k = 0; k < group->n_strategies && t >= 0; k++) {
            const int32_t own = group->strategy[k];
            if (dtp_form_has_data(space, t, &c->in[i].items[c->in_of[i][own]], false)) {
                group->strategy[k] = group->strategy[n]; /* the others stay behind them */
                group->strategy[n++] = own;
            }
        }
        group->n_strategies = n > 0 ? n : group->n_strategies;
    }
}

/* ---- variables ---- */

/* Room for the strategies of a variable that is not there yet, zeroed. */
static dtp_status begin_strategies(tensor_build *b, int32_t n, dtp_tensor_strategy **out,
                                   dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(b->arena, &b->list, 0, n, &b->cap_list, sizeof *b->list, err));
    memset(b->list, 0, (size_t)n * sizeof *b->list);
    *out = b->list;
    return DTP_OK;
}

static bool same_strategies(const dtp_tensor_strategy *x, const dtp_tensor_strategy *y, int32_t n)
{
    bool same = true;
    for (int32_t i = 0; i < n && same; i++) {
        same = x[i].own == y[i].own && dtp_layout_equal(&x[i].layout, &y[i].layout) &&
               memcmp(&x[i].strategy, &y[i].strategy, sizeof x[i].strategy) == 0;
    }
    return same;
}

/* Adds a variable with the first n strategies of b->list. Variables with equal lists share one, so
 * that lists are compared by their addresses. */
static dtp_status add_variable(tensor_build *b, dtp_tensor_variable variable, int32_t n,
                               dtp_err *err)
{
    dtp_tensor_problem *p = b->p;
    uint64_t h = (uint64_t)n;
    int32_t like;
    for (int32_t i = 0; i < n; i++) {
        h = dtp_hash_word(h, dtp_tensor__hash_layout(&b->list[i].layout));
        h = dtp_hash_bytes(h, &b->list[i].strategy, sizeof b->list[i].strategy);
    }
    const uint32_t hash = dtp_hash_fold(h);
    uint32_t at = hash;
    do {
        like = dtp_hash_table_next(&b->lists, hash, &at);
    } while (like >= 0 && (p->variables[like].n_strategies != n ||
                           !same_strategies(p->variables[like].strategies, b->list, n)));
    variable.n_strategies = n;
    if (like >= 0) {
        variable.strategies = p->variables[like].strategies;
    } else {
        dtp_tensor_strategy *list = dtp_arena_alloc(p->arena, (size_t)n, sizeof *list);
        DTP_TRY(DTP_MEMORY(err, list));
        memcpy(list, b->list, (size_t)n * sizeof *list);
        variable.strategies = list;
        DTP_TRY(dtp_hash_table_add(&b->lists, b->arena, hash, p->n_variables, err));
    }
    p->variables[p->n_variables++] = variable;
    return DTP_OK;
}

static dtp_status add_op(tensor_build *b, int32_t g, dtp_err *err)
{
    node_group *group = &b->node_groups[g];
    const class_strategies *c = dtp_tensor__class_of(b, g);
    dtp_tensor_strategy *options;
    group->n_strategies = c->n;
    DTP_TRY(DTP_NEW(b->arena, group->strategy, c->n, err));
    for (int32_t i = 0; i < c->n; i++) {
        group->strategy[i] = i;
    }
    DTP_TRY(filter_options(b, g, err));
    filter_reads(b, g);
    group->variable = b->p->n_variables;
    const dtp_tensor_variable variable = {
        .kind = DTP_DECIDE_OP, .node = group->example, .tensor = -1};
    DTP_TRY(begin_strategies(b, group->n_strategies, &options, err));
    for (int32_t i = 0; i < group->n_strategies; i++) {
        options[i].strategy = c->strategy[group->strategy[i]];
    }
    return add_variable(b, variable, group->n_strategies, err);
}

/* The mesh dims over which the producer of a value can leave it as a partial sum. */
static dtp_mesh_set partial_dims(const tensor_build *b, dtp_tensor_id t)
{
    const dtp_graph_tensor *tensor = &b->g->tensors[t];
    dtp_mesh_set set = 0;
    if (tensor->producer < 0) {
        return 0;
    }
    const layout_list *outs =
        &dtp_tensor__class_of(b, b->group_of_node[tensor->producer])->out[tensor->out_index];
    for (int32_t i = 0; i < outs->n; i++) {
        for (int32_t m = 0; m < b->mesh->n_dims; m++) {
            const dtp_placement *p = &outs->items[i].placement[m];
            set |= p->kind == DTP_PARTIAL && p->op == DTP_REDUCE_SUM ? 1U << m : 0U;
        }
    }
    return set;
}

/* Removes layouts of which something is lost. */
static void filter_kept(const tensor_build *b, const tensor_group *group, layout_list *list)
{
    int32_t n = 0;
    for (int32_t k = 0; k < list->n; k++) {
        if (dtp_form_takes_layout(b->p->options.space, group->example, &list->items[k], true)) {
            list->items[n++] = list->items[k];
        }
    }
    list->n = n;
    n = 0;
    for (int32_t k = 0; k < list->n; k++) {
        const dtp_layout own = list->items[k];
        if (dtp_form_has_data(b->p->options.space, group->example, &own, true)) {
            list->items[k] = list->items[n]; /* the others stay behind them */
            list->items[n++] = own;
        }
    }
    list->n = n > 0 ? n : list->n;
}

/* `list`: scratch. */
static dtp_status add_tensor(tensor_build *b, int32_t g, layout_list *list, dtp_err *err)
{
    tensor_group *group = &b->tensor_groups[g];
    const dtp_graph_tensor *tensor = &b->g->tensors[group->example];
    const bool needed = group->read || group->survives || tensor->kind == DTP_TENSOR_PARAM;
    dtp_tensor_strategy *options;
    if (group->follows || group->passes || group->same_as >= 0 || !needed) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor__domain(b, &tensor->type, partial_dims(b, group->example), list, err));
    if (b->p->options.space != NULL) {
        filter_kept(b, group, list);
    }
    for (int32_t i = 0; i < b->p->options.n_pins; i++) {
        const dtp_pin *pin = &b->p->options.pins[i];
        const int32_t owner = b->group_of_tensor[pin->tensor];
        int32_t kept = 0;
        if (pin->node >= 0 || (owner != g && b->tensor_groups[owner].same_as != g)) {
            continue;
        }
        for (int32_t k = 0; k < list->n; k++) {
            if (dtp_pin_agrees(pin, &list->items[k])) {
                list->items[kept++] = list->items[k];
            }
        }
        list->n = kept;
        if (kept == 0) {
            return fail_pin(b, pin, err);
        }
    }
    group->variable = b->p->n_variables;
    const dtp_tensor_variable variable = {
        .kind = DTP_DECIDE_TENSOR, .node = -1, .tensor = group->example};
    DTP_TRY(begin_strategies(b, list->n, &options, err));
    for (int32_t i = 0; i < list->n; i++) {
        options[i].layout = list->items[i];
    }
    return add_variable(b, variable, list->n, err);
}

/* ---- replicas ---- */

/* What readers want of the members of a group in a phase. */
typedef struct wishes {
    layout_set set;
    int32_t round;  /* of the group and phase */
    int32_t *asked; /* by group of nodes and operand: the last round */
    bool *seen;     /* by layout of an operand: scratch */
} wishes;

/* The operands of a node that are the tensor; nodes of one group want the same. */
static dtp_status add_reader(tensor_build *b, dtp_tensor_id t, dtp_node_id reader, wishes *w,
                             dtp_err *err)
{
    const int32_t g = b->group_of_node[reader];
    const dtp_node *node = &b->g->nodes[reader];
    for (int32_t i = 0; i < node->n_in; i++) {
        int32_t *asked = &w->asked[g * DTP_MAX_OP_IN + i];
        if (node->in[i] != t || *asked == w->round) {
            continue;
        }
        *asked = w->round;
        const node_group *group = &b->node_groups[g];
        const class_strategies *c = dtp_tensor__class_of(b, g);
        memset(w->seen, 0, (size_t)c->in[i].n * sizeof *w->seen);
        for (int32_t k = 0; k < group->n_strategies; k++) {
            const int32_t which = c->in_of[i][group->strategy[k]];
            const dtp_layout *l = &c->in[i].items[which];
            if (!w->seen[which] && !dtp_layout_has_partial(l) &&
                dtp_tensor__find_layout(&w->set, l) < 0) {
                DTP_TRY(dtp_tensor__add_layout(b, &w->set, l, err));
            }
            w->seen[which] = true;
        }
    }
    return DTP_OK;
}

static dtp_status add_view(tensor_build *b, int32_t g, dtp_phase phase, const layout_list *wanted,
                           dtp_err *err)
{
    tensor_group *group = &b->tensor_groups[g];
    const dtp_tensor_variable own = b->p->variables[group->variable];
    const dtp_tensor_variable variable = {
        .kind = DTP_DECIDE_REPLICA, .node = -1, .tensor = group->example, .phase = phase};
    dtp_tensor_strategy *options;
    group->view[phase] = b->p->n_variables;
    DTP_TRY(begin_strategies(b, own.n_strategies + wanted->n, &options, err));
    for (int32_t i = 0; i < own.n_strategies; i++) {
        options[i] = (dtp_tensor_strategy){.layout = own.strategies[i].layout, .own = true};
    }
    for (int32_t i = 0; i < wanted->n; i++) {
        options[own.n_strategies + i].layout = wanted->items[i];
    }
    return add_variable(b, variable, own.n_strategies + wanted->n, err);
}

/* What the readers of a phase want of a tensor that two or more of them read. */
static dtp_status add_shared(tensor_build *b, dtp_tensor_id t, int phase, wishes *w, dtp_err *err)
{
    if (dtp_tensor__count_readers(b, t, phase) < 2) {
        return DTP_OK;
    }
    for (int32_t r = b->readers.first[t]; r < b->readers.first[t + 1]; r++) {
        if ((int)b->g->nodes[b->readers.node[r]].phase == phase) {
            DTP_TRY(add_reader(b, t, b->readers.node[r], w, err));
        }
    }
    return DTP_OK;
}

/* A replica where two nodes of a phase read some tensor of the kind; a single reader takes the
 * tensor from where it is kept. What a reader of one of them wants, all of them offer: so an
 * assignment of the tied problem is one without tying too. */
static dtp_status add_replicas(tensor_build *b, const dtp_tensor_id *kind, int32_t n, wishes *w,
                               dtp_err *err)
{
    for (int phase = 0; phase < DTP_N_PHASES; phase++) {
        w->round++;
        dtp_tensor__clear_layouts(&w->set);
        for (int32_t k = 0; k < n; k++) {
            DTP_TRY(add_shared(b, kind[k], phase, w, err));
        }
        for (int32_t k = 0; k < n && w->set.list.n > 0; k++) {
            const tensor_group *group = &b->tensor_groups[b->group_of_tensor[kind[k]]];
            if (group->variable >= 0 && group->view[phase] < 0 &&
                dtp_tensor__count_readers(b, kind[k], phase) > 1) {
                DTP_TRY(
                    add_view(b, b->group_of_tensor[kind[k]], (dtp_phase)phase, &w->set.list, err));
            }
        }
    }
    return DTP_OK;
}

static dtp_status begin_wishes(const tensor_build *b, wishes *w, dtp_err *err)
{
    int32_t most = 0;
    for (int32_t k = 0; k < b->classes.n; k++) {
        for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
            const int32_t n = b->options[k].in[i].n;
            most = n > most ? n : most;
        }
    }
    *w = (wishes){0};
    w->seen = dtp_arena_alloc(b->arena, (size_t)most, sizeof *w->seen);
    w->asked =
        dtp_arena_alloc(b->arena, (size_t)b->n_node_groups, DTP_MAX_OP_IN * sizeof *w->asked);
    return w->seen != NULL && w->asked != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for what %d groups of nodes read",
                          b->n_node_groups);
}

/* The tensors by kind: members[first[k]..first[k + 1] - 1]. */
static dtp_status add_all_views(tensor_build *b, dtp_err *err)
{
    const int32_t n = b->g->n_tensors;
    int32_t *first = dtp_arena_alloc(b->arena, (size_t)b->n_kinds + 2, sizeof *first);
    dtp_tensor_id *members = dtp_arena_alloc(b->arena, (size_t)n, sizeof *members);
    wishes w;
    DTP_TRY(begin_wishes(b, &w, err));
    DTP_TRY(DTP_MEMORY(err, first, members));
    for (dtp_tensor_id t = 0; t < n; t++) {
        first[b->kind_of_tensor[t] + 2]++;
    }
    for (int32_t k = 0; k < b->n_kinds; k++) {
        first[k + 2] += first[k + 1];
    }
    for (dtp_tensor_id t = 0; t < n; t++) {
        members[first[b->kind_of_tensor[t] + 1]++] = t;
    }
    for (int32_t k = 0; k < b->n_kinds; k++) {
        DTP_TRY(add_replicas(b, members + first[k], first[k + 1] - first[k], &w, err));
    }
    return DTP_OK;
}

/* ---- all ---- */

/* Graph order: sources, then every node with what it makes, then the replicas. */
dtp_status dtp_tensor__variables(tensor_build *b, dtp_err *err)
{
    const dtp_graph *g = b->g;
    layout_list list = {0};
    dtp_tensor_problem *p = b->p;
    const size_t n_nodes = (size_t)b->g->n_nodes, n_tensors = (size_t)b->g->n_tensors;
    const size_t most = (size_t)b->n_node_groups + (DTP_N_PHASES + 1) * (size_t)b->n_tensor_groups;
    p->variables = dtp_arena_alloc(p->arena, most, sizeof *p->variables);
    p->variable_of_node = dtp_arena_alloc(p->arena, n_nodes, sizeof *p->variable_of_node);
    p->variable_of_tensor = dtp_arena_alloc(p->arena, n_tensors, sizeof *p->variable_of_tensor);
    bool ok = p->variables != NULL && p->variable_of_node != NULL && p->variable_of_tensor != NULL;
    for (int phase = 0; phase < DTP_N_PHASES; phase++) {
        p->variable_of_replica[phase] = dtp_arena_alloc(p->arena, n_tensors, sizeof(int32_t));
        ok = ok && p->variable_of_replica[phase] != NULL;
    }
    DTP_TRY(ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu choices", most));
    for (int32_t i = 0; i < b->p->options.n_pins; i++) {
        const dtp_pin *pin = &b->p->options.pins[i];
        if (pin->tensor < 0 || pin->tensor >= g->n_tensors || pin->node >= g->n_nodes ||
            pin->layout.n_mesh != b->mesh->n_dims) {
            return DTP_FAIL(err, DTP_INVALID, "pin %d: no such tensor, node or mesh", i);
        }
    }
    for (int32_t i = 0; i < b->n_tensor_groups; i++) {
        if (g->tensors[b->tensor_groups[i].example].producer < 0) {
            DTP_TRY(add_tensor(b, i, &list, err));
        }
    }
    for (int32_t i = 0; i < b->n_node_groups; i++) {
        const dtp_node *node = &g->nodes[b->node_groups[i].example];
        DTP_TRY(add_op(b, i, err));
        for (int32_t o = 0; o < node->n_out; o++) {
            DTP_TRY(add_tensor(b, b->group_of_tensor[node->out[o]], &list, err));
        }
    }
    DTP_TRY(add_all_views(b, err));
    for (int32_t i = 0; i < b->n_tensor_groups; i++) {
        tensor_group *tensors = &b->tensor_groups[i];
        if (tensors->same_as >= 0) {
            tensors->variable = b->tensor_groups[tensors->same_as].variable;
        }
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        p->variable_of_node[n] = b->node_groups[b->group_of_node[n]].variable;
    }
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        const tensor_group *tensors = &b->tensor_groups[b->group_of_tensor[t]];
        p->variable_of_tensor[t] = tensors->variable;
        for (int phase = 0; phase < DTP_N_PHASES; phase++) {
            const bool shared = dtp_tensor__count_readers(b, t, phase) > 1;
            p->variable_of_replica[phase][t] = shared ? tensors->view[phase] : -1;
        }
    }
    return DTP_OK;
}
