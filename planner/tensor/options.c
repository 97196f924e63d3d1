/* Ways to run a class of nodes: all combinations of sharding rows over the mesh dims, as far as
 * they split evenly and do not contradict each other, each priced by lowering it alone between the
 * layouts that it wants and leaves. Of options with equal layouts only those stay that are best in
 * price or memory. Mesh dims of one rank are not used.
 */
#include <string.h>

#include "core/microbatch.h"
#include "planner/tensor/tensor_internal.h"

/* ---- lists of layouts --------------------------------------------------------------------------
 */

dtp_status dtp_tensor__add_layout(tensor_build *b, layout_list *list, const dtp_layout *layout,
                                  int32_t *index, dtp_err *err)
{
    for (int32_t i = 0; i < list->n; i++) {
        if (dtp_layout_equal(&list->items[i], layout)) {
            *index = i;
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_arena_grow(b->arena, &list->items, list->n, list->n + 1, &list->cap,
                           sizeof *list->items, err));
    list->items[list->n] = *layout;
    *index = list->n++;
    return DTP_OK;
}

/* ---- layouts of tensors ------------------------------------------------------------------------
 */

typedef struct domain_walk {
    tensor_build *b;
    const dtp_ttype *type;
    dtp_mesh_set partial;
    layout_list *out;
} domain_walk;

static dtp_status extend_layout(const domain_walk *w, dtp_layout at, int32_t m, dtp_err *err)
{
    const dtp_mesh *mesh = w->b->mesh;
    int32_t index;
    while (m < mesh->n_dims && mesh->sizes[m] == 1) {
        m++;
    }
    if (m == mesh->n_dims) {
        return dtp_tensor__add_layout(w->b, w->out, &at, &index, err);
    }
    DTP_TRY(extend_layout(w, at, m + 1, err));
    for (int32_t axis = 0; axis < w->type->rank; axis++) {
        dtp_layout next = at;
        dtp_layout_split(&next, m, axis);
        if (w->b->p->options.uneven || dtp_layout_is_even(&next, mesh, w->type)) {
            DTP_TRY(extend_layout(w, next, m + 1, err));
        }
    }
    if ((w->partial >> m & 1U) != 0) {
        at.place[m] = (dtp_place){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        return extend_layout(w, at, m + 1, err);
    }
    return DTP_OK;
}

dtp_status dtp_tensor__domain(tensor_build *b, const dtp_ttype *type, dtp_mesh_set partial,
                              layout_list *out, dtp_err *err)
{
    const domain_walk w = {b, type, partial, out};
    return extend_layout(&w, dtp_layout_replicated(type->rank, b->mesh->n_dims), 0, err);
}

/* ---- combinations of rows ----------------------------------------------------------------------
 */

typedef struct option_walk {
    tensor_build *b;
    class_options *out;
    dtp_node_id node;
    dtp_op_call call;
    dtp_rule_set rules;
    dtp_strategy strategy;
} option_walk;

/* Two rows over different mesh dims that give one dim two names, or one name to two dims. */
static bool contradict(const dtp_rule *a, const dtp_rule *b)
{
    return a->dim >= 0 && b->dim >= 0 && (a->dim == b->dim) != (a->out_dim == b->out_dim);
}

static bool renaming_fits(const option_walk *w, int32_t m, const dtp_rule *row)
{
    const dtp_mesh *mesh = w->b->mesh;
    int64_t parts = mesh->sizes[m];
    for (int32_t k = 0; k < m; k++) {
        parts *= w->rules.rows[w->strategy.row[k]].dim == row->dim ? mesh->sizes[k] : 1;
    }
    return dtp_renaming_fits(&w->call, row, parts);
}

static bool row_fits(const option_walk *w, int32_t m, int32_t r)
{
    const dtp_rule *row = &w->rules.rows[r];
    for (int32_t k = 0; k < m && r != 0; k++) {
        const dtp_rule *other = &w->rules.rows[w->strategy.row[k]];
        if (contradict(row, other) || (row->internal && other->linear) ||
            (row->linear && other->internal)) {
            return false;
        }
    }
    const bool renames = (w->call.op->flags & DTP_OP_RENAMES) != 0 && row->dim >= 0;
    return !renames || renaming_fits(w, m, row);
}

static bool all_fit(const option_walk *w, const dtp_layout *layouts, const dtp_ttype *types,
                    int32_t n)
{
    const dtp_mesh *mesh = w->b->mesh;
    for (int32_t i = 0; i < n; i++) {
        if (!w->b->p->options.uneven && !dtp_layout_is_even(&layouts[i], mesh, &types[i])) {
            return false;
        }
        if (dtp_layout_check(&layouts[i], mesh, &types[i], NULL) != DTP_OK) {
            return false;
        }
    }
    return true;
}

/* An op that rotates its split dim, but not by whole pieces, would gather it. */
static bool gathers(const option_walk *w, const dtp_node_layouts *l)
{
    int64_t step;
    return w->call.op->rotates != NULL && l->internal != 0 &&
           !w->call.op->rotates(&w->call, dtp_mesh_set_size(w->b->mesh, l->internal), &step);
}

/* Updates: a state leaves as it came, and neither it nor the parameter is partial. A sum over
 * microbatches leaves as its accumulator came, partial or not. */
static bool update_fits(const option_walk *w, const dtp_node_layouts *l)
{
    const dtp_node *node = &w->b->g->nodes[w->node];
    if (dtp_is_accumulate(w->b->g, node)) {
        return dtp_layout_equal(&l->in[0], &l->out[0]);
    }
    for (int32_t i = 0; i < node->n_in && (node->op->flags & DTP_OP_UPDATE) != 0; i++) {
        const dtp_tensor_kind kind = w->b->g->tensors[node->in[i]].kind;
        if ((kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE) &&
            dtp_layout_has_partial(&l->in[i])) {
            return false;
        }
    }
    for (int32_t o = 0; o < node->n_out && (node->op->flags & DTP_OP_UPDATE) != 0; o++) {
        const int32_t i = node->op->inplace_in[o] - 1;
        if (i >= 0 && i < node->n_in && !dtp_layout_equal(&l->out[o], &l->in[i])) {
            return false;
        }
    }
    return true;
}

static dtp_status reserve_option(option_walk *w, dtp_err *err)
{
    class_options *c = w->out;
    dtp_arena *arena = w->b->arena;
    const int32_t need = c->n + 1, cap = c->cap;
    if (need <= cap) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(arena, &c->strategy, c->n, need, &c->cap, sizeof *c->strategy, err));
    int32_t room = cap;
    DTP_TRY(dtp_arena_grow(arena, &c->price, c->n, c->cap, &room, sizeof *c->price, err));
    for (int32_t i = 0; i < w->call.n_in; i++) {
        room = cap;
        DTP_TRY(dtp_arena_grow(arena, &c->in_of[i], c->n, c->cap, &room, sizeof(int32_t), err));
    }
    for (int32_t i = 0; i < w->call.n_out; i++) {
        room = cap;
        DTP_TRY(dtp_arena_grow(arena, &c->out_of[i], c->n, c->cap, &room, sizeof(int32_t), err));
    }
    return DTP_OK;
}

static bool same_layouts(const option_walk *w, int32_t a, int32_t b)
{
    const class_options *c = w->out;
    bool same = true;
    for (int32_t i = 0; i < w->call.n_in && same; i++) {
        same = c->in_of[i][a] == c->in_of[i][b];
    }
    for (int32_t i = 0; i < w->call.n_out && same; i++) {
        same = c->out_of[i][a] == c->out_of[i][b];
    }
    return same;
}

/* Option `from` replaces option `to`. */
static void copy_option(const option_walk *w, int32_t from, int32_t to)
{
    class_options *c = w->out;
    c->strategy[to] = c->strategy[from];
    c->price[to] = c->price[from];
}

/* Enters option c->n unless one with the same layouts is as good; it may take the other's place. */
static void keep_option(option_walk *w)
{
    class_options *c = w->out;
    const dtp_node_price *new = &c->price[c->n];
    for (int32_t k = 0; k < c->n; k++) {
        const dtp_node_price *old = &c->price[k];
        if (!same_layouts(w, k, c->n)) {
            continue;
        }
        if (old->cost_ps <= new->cost_ps && old->sure_bytes <= new->sure_bytes) {
            return;
        }
        if (new->cost_ps <= old->cost_ps &&new->sure_bytes <= old->sure_bytes) {
            copy_option(w, c->n, k);
            return;
        }
    }
    c->n++;
}

static dtp_status add_option(option_walk *w, dtp_err *err)
{
    class_options *c = w->out;
    dtp_layout whole[DTP_MAX_OP_IN];
    dtp_node_layouts l;
    dtp_err why = {0};
    for (int32_t i = 0; i < w->call.n_in; i++) {
        whole[i] = dtp_layout_replicated(w->call.in[i].rank, w->b->mesh->n_dims);
    }
    if (dtp_node_layouts_find(w->b->mesh, &w->call, &w->rules, &w->strategy, whole, NULL, &l,
                              NULL) != DTP_OK ||
        !all_fit(w, l.in, w->call.in, w->call.n_in) ||
        !all_fit(w, l.out, w->call.out, w->call.n_out) || gathers(w, &l) || !update_fits(w, &l)) {
        return DTP_OK;
    }
    DTP_TRY(reserve_option(w, err));
    dtp_status s = dtp_node_pricer_price(w->b->nodes, w->node, &w->strategy, l.in, l.out,
                                         &c->price[c->n], &why);
    if (s != DTP_OK) {
        return dtp_status_is_input(s) ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
    }
    const int64_t kernel_ps = c->price[c->n].kernel_ps;
    c->least_kernel_ps =
        c->n == 0 || kernel_ps < c->least_kernel_ps ? kernel_ps : c->least_kernel_ps;
    c->strategy[c->n] = w->strategy;
    c->price[c->n].cost_ps = c->price[c->n].every_ps; /* what waits is a redistribution */
    for (int32_t i = 0; i < w->call.n_in; i++) {
        DTP_TRY(dtp_tensor__add_layout(w->b, &c->in[i], &l.in[i], &c->in_of[i][c->n], err));
    }
    for (int32_t i = 0; i < w->call.n_out; i++) {
        DTP_TRY(dtp_tensor__add_layout(w->b, &c->out[i], &l.out[i], &c->out_of[i][c->n], err));
    }
    keep_option(w);
    return DTP_OK;
}

static dtp_status extend_strategy(option_walk *w, int32_t m, dtp_err *err)
{
    const dtp_mesh *mesh = w->b->mesh;
    if (m == mesh->n_dims) {
        return add_option(w, err);
    }
    for (int32_t r = 0; r < w->rules.n && (r == 0 || mesh->sizes[m] > 1); r++) {
        if (row_fits(w, m, r)) {
            w->strategy.row[m] = (int16_t)r;
            DTP_TRY(extend_strategy(w, m + 1, err));
        }
    }
    w->strategy.row[m] = 0;
    return DTP_OK;
}

dtp_status dtp_tensor__options(tensor_build *b, dtp_err *err)
{
    b->options = dtp_arena_alloc(b->arena, (size_t)b->classes.n, sizeof *b->options);
    if (b->options == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d classes of nodes", b->classes.n);
    }
    for (int32_t k = 0; k < b->classes.n; k++) {
        dtp_call_types types;
        option_walk w = {.b = b, .out = &b->options[k], .node = b->classes.example[k]};
        w.call = dtp_node_call(b->g, &b->g->nodes[w.node], &types);
        dtp_op_rules(&w.call, true, &w.rules);
        DTP_TRY(extend_strategy(&w, 0, err));
        if (w.out->n == 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "node '%s' cannot be run on this mesh",
                            b->g->nodes[w.node].name);
        }
    }
    return DTP_OK;
}
