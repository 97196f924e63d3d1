/* Strategies of a class of nodes: all combinations of sharding rules over the mesh dims, as far as
 * they split evenly and do not contradict each other, each priced by lowering it alone between the
 * layouts that it wants and leaves. Of strategies with equal layouts only those stay that no other
 * one beats in both price and memory. Mesh dims of one rank are not used.
 *
 * The price of a strategy that runs as one kernel on even shards depends on the sizes of the shards
 * alone, which follow from the number of shards into which each rule splits its dim: such prices
 * are found once.
 */
#include <string.h>

#include "core/transform/microbatch.h"
#include "planner/problem/tensors/tensor_internal.h"
#include "core/graph/op_rules.h"
#include "core/plan/sharding_microbatch.h"

/* What a kernel on even pieces costs. */
typedef struct kernel_price {
    uint64_t pieces[DTP_MAX_MESH_DIMS]; /* row << 32 | pieces, ascending, 0: none */
    dtp_node_price price;
} kernel_price;

enum { MAX_ENDS = DTP_MAX_OP_IN + DTP_MAX_OP_OUT };

/* A strategy of a class. */
typedef struct priced_strategy {
    dtp_strategy strategy;
    dtp_node_price price;
    int32_t layout[MAX_ENDS]; /* by end (operands, then outputs): index into its layouts */
} priced_strategy;

typedef struct strategy_walk {
    tensor_build *b;
    dtp_node_id node;
    dtp_op_call call;
    dtp_sharding_rules rules;
    dtp_strategy strategy;
    dtp_layout whole[DTP_MAX_OP_IN];
    /* The strategies of the class so far; the room is used for one class after the other. */
    int32_t n, cap;
    priced_strategy *strategies;
    int64_t least_kernel_ps;
    dtp_hash_table by_layouts; /* strategies */
    layout_set layouts[MAX_ENDS];
    int32_t n_kernels, cap_kernels;
    kernel_price *kernels;
    dtp_hash_table by_pieces; /* prices of kernels */
} strategy_walk;

/* ---- combinations of rows ---- */

static bool renaming_fits(const strategy_walk *w, int32_t m, const dtp_sharding_rule *row)
{
    const dtp_mesh *mesh = w->b->mesh;
    int64_t parts = mesh->sizes[m];
    for (int32_t k = 0; k < m; k++) {
        parts *= w->rules.rows[w->strategy.row[k]].dim == row->dim ? mesh->sizes[k] : 1;
    }
    return dtp_renaming_fits(&w->call, row, parts);
}

static bool row_fits(const strategy_walk *w, int32_t m, int32_t r)
{
    const dtp_sharding_rule *row = &w->rules.rows[r];
    for (int32_t k = 0; k < m && r != 0; k++) {
        const dtp_sharding_rule *other = &w->rules.rows[w->strategy.row[k]];
        if ((row->dim >= 0 && other->dim >= 0 &&
             (row->dim == other->dim) != (row->out_dim == other->out_dim)) ||
            (row->internal && other->linear) || (row->linear && other->internal)) {
            return false;
        }
    }
    const bool renames = (w->call.op->flags & DTP_OP_RENAMES) != 0 && row->dim >= 0;
    return !renames || renaming_fits(w, m, row);
}

static bool layout_fits(const strategy_walk *w, const dtp_layout *layout, const dtp_ttype *type)
{
    const dtp_mesh *mesh = w->b->mesh;
    return dtp_layout_may_hold(layout, mesh, type, w->b->p->options.uneven) &&
           dtp_layout_check(layout, mesh, type, NULL) == DTP_OK;
}

static int32_t count_ends(const strategy_walk *w)
{
    return w->call.n_in + w->call.n_out;
}

static const dtp_layout *layout_at(const strategy_walk *w, const dtp_node_layouts *l, int32_t end)
{
    return end < w->call.n_in ? &l->in[end] : &l->out[end - w->call.n_in];
}

/* Whether the layouts of a strategy divide what they split. Those that earlier ones have do; new
 * ones (index -1) are listed when the strategy is priced. */
static bool find_layouts(const strategy_walk *w, const dtp_node_layouts *l, priced_strategy *out)
{
    bool fit = true;
    for (int32_t i = 0; i < count_ends(w) && fit; i++) {
        const dtp_layout *layout = layout_at(w, l, i);
        out->layout[i] = dtp_tensor__find_layout(&w->layouts[i], layout);
        fit = out->layout[i] >= 0 ||
              layout_fits(w, layout,
                          i < w->call.n_in ? &w->call.in[i] : &w->call.out[i - w->call.n_in]);
    }
    return fit;
}

/* Updates: a state leaves as it came, and neither it nor the parameter is partial. A sum over
 * microbatches leaves as its accumulator came, partial or not. */
static bool update_fits(const strategy_walk *w, const dtp_node_layouts *l)
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

/* Whether a strategy is as good as another one with the same layouts. In bounds kernels and
 * communication have weights of their own. */
static bool as_good(const strategy_walk *w, const dtp_node_price *a, const dtp_node_price *b)
{
    const bool apart = w->b->p->pricer->of_bounds;
    return a->cost_ps <= b->cost_ps && a->sure_bytes <= b->sure_bytes &&
           (!apart || (a->kernel_ps <= b->kernel_ps &&
                       a->cost_ps - a->kernel_ps <= b->cost_ps - b->kernel_ps));
}

/* Enters a strategy unless one with the same layouts is as good; it may take the other's place. */
static dtp_status keep_strategy(strategy_walk *w, const priced_strategy *offer, dtp_err *err)
{
    uint64_t h = 0;
    for (int32_t i = 0; i < count_ends(w); i++) {
        h = dtp_hash_word(h, (uint64_t)offer->layout[i]);
    }
    const uint32_t hash = dtp_hash_fold(h);
    uint32_t at = hash;
    int32_t k;
    while ((k = dtp_hash_table_next(&w->by_layouts, hash, &at)) >= 0) {
        priced_strategy *old = &w->strategies[k];
        if (memcmp(old->layout, offer->layout, (size_t)count_ends(w) * sizeof *old->layout) != 0) {
            continue;
        }
        if (as_good(w, &old->price, &offer->price)) {
            return DTP_OK;
        }
        if (as_good(w, &offer->price, &old->price)) {
            *old = *offer;
            return DTP_OK;
        }
    }
    DTP_TRY(dtp_arena_grow(w->b->arena, &w->strategies, w->n, w->n + 1, &w->cap,
                           sizeof *w->strategies, err));
    w->strategies[w->n] = *offer;
    return dtp_hash_table_add(&w->by_layouts, w->b->arena, hash, w->n++, err);
}

/* ---- prices ---- */

/* Into how many pieces each row splits its dim; the same for mesh dims of one size in any order.
 * `pieces` is zeroed. */
static void count_pieces(const strategy_walk *w, uint64_t pieces[DTP_MAX_MESH_DIMS])
{
    const dtp_mesh *mesh = w->b->mesh;
    int32_t n = 0;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        const uint64_t row = (uint64_t)w->strategy.row[m];
        int32_t at = n;
        if (row == 0 || w->rules.rows[row].linear) {
            continue;
        }
        while (at > 0 && pieces[at - 1] >> 32 >= row) {
            at--;
        }
        if (at < n && pieces[at] >> 32 == row) {
            pieces[at] = row << 32 | (pieces[at] & UINT32_MAX) * (uint64_t)mesh->sizes[m];
            continue;
        }
        memmove(&pieces[at + 1], &pieces[at], (size_t)(n++ - at) * sizeof *pieces);
        pieces[at] = row << 32 | (uint64_t)mesh->sizes[m];
    }
}

/* *runs: the class can be run so. Results are as they are left then: a decomposition leaves them
 * otherwise than the rules of the op. */
static dtp_status find_price(const strategy_walk *w, dtp_node_layouts *l, dtp_node_price *out,
                             bool *runs, dtp_err *err)
{
    dtp_err why = {0};
    const dtp_status s = dtp_node_pricer_price(w->b->nodes, w->node, &w->strategy, l->in,
                                               l->internal == 0 ? l->out : NULL, out, &why);
    *runs = s == DTP_OK;
    for (int32_t i = 0; i < w->call.n_out && *runs && l->internal != 0; i++) {
        l->out[i] = *dtp_node_pricer_left(w->b->nodes, w->node, i);
    }
    return *runs || dtp_lowering_refuses(s) ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
}

static dtp_status find_kernel_price(strategy_walk *w, dtp_node_layouts *l, dtp_node_price *out,
                                    bool *runs, dtp_err *err)
{
    kernel_price new = {0};
    uint64_t h = 0;
    count_pieces(w, new.pieces);
    for (int32_t i = 0; i < w->b->mesh->n_dims; i++) {
        h = dtp_hash_word(h, new.pieces[i]);
    }
    const uint32_t hash = dtp_hash_fold(h);
    uint32_t at = hash;
    int32_t k;
    while ((k = dtp_hash_table_next(&w->by_pieces, hash, &at)) >= 0) {
        if (memcmp(w->kernels[k].pieces, new.pieces, sizeof new.pieces) == 0) {
            *out = w->kernels[k].price;
            *runs = true;
            return DTP_OK;
        }
    }
    DTP_TRY(find_price(w, l, out, runs, err));
    if (!*runs) {
        return DTP_OK;
    }
    new.price = *out;
    DTP_TRY(dtp_arena_grow(w->b->arena, &w->kernels, w->n_kernels, w->n_kernels + 1,
                           &w->cap_kernels, sizeof *w->kernels, err));
    w->kernels[w->n_kernels] = new;
    return dtp_hash_table_add(&w->by_pieces, w->b->arena, hash, w->n_kernels++, err);
}

/* ---- all ---- */

static dtp_status add_option(strategy_walk *w, dtp_err *err)
{
    dtp_node_layouts l;
    priced_strategy new;
    bool runs;
    if (dtp_node_layouts_find(w->b->mesh, &w->call, &w->rules, &w->strategy, w->whole, NULL, &l,
                              NULL) != DTP_OK ||
        !find_layouts(w, &l, &new) || !update_fits(w, &l)) {
        return DTP_OK;
    }
    const bool kernel = l.internal == 0 && l.windows == 0 && !w->b->p->options.uneven;
    DTP_TRY(kernel ? find_kernel_price(w, &l, &new.price, &runs, err)
                   : find_price(w, &l, &new.price, &runs, err));
    runs = runs && (!new.price.fills || w->b->p->pricer->target->margins);
    if (!runs || (l.internal != 0 && !find_layouts(w, &l, &new))) {
        return DTP_OK;
    }
    if (w->n == 0 || new.price.kernel_ps < w->least_kernel_ps) {
        w->least_kernel_ps = new.price.kernel_ps;
    }
    new.price.cost_ps = new.price.every_ps; /* what waits is a redistribution */
    new.strategy = w->strategy;
    for (int32_t i = 0; i < count_ends(w); i++) {
        if (new.layout[i] < 0) {
            new.layout[i] = w->layouts[i].list.n;
            DTP_TRY(dtp_tensor__add_layout(w->b, &w->layouts[i], layout_at(w, &l, i), err));
        }
    }
    return keep_strategy(w, &new, err);
}

static dtp_status extend_strategy(strategy_walk *w, int32_t m, dtp_err *err)
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

/* The walk starts anew. */
static void begin_class(strategy_walk *w, int32_t class, dtp_call_types *types)
{
    const tensor_build *b = w->b;
    w->node = b->classes.example[class];
    w->call = dtp_node_call(b->g, &b->g->nodes[w->node], types);
    dtp_sharding_rules_of(&w->call, true, &w->rules);
    w->strategy = (dtp_strategy){0};
    for (int32_t i = 0; i < w->call.n_in; i++) {
        w->whole[i] = dtp_layout_replicated(w->call.in[i].rank, b->mesh->n_dims);
    }
    for (int32_t i = 0; i < count_ends(w); i++) {
        dtp_tensor__clear_layouts(&w->layouts[i]);
    }
    dtp_hash_table_clear(&w->by_layouts);
    dtp_hash_table_clear(&w->by_pieces);
    w->n = w->n_kernels = 0;
}

/* The layouts at one end, and which of them every strategy has. */
static dtp_status copy_layouts(const strategy_walk *w, int32_t end, layout_list *list, int32_t **of,
                               dtp_err *err)
{
    const layout_list *from = &w->layouts[end].list;
    list->n = list->cap = from->n;
    list->items = dtp_arena_alloc(w->b->arena, (size_t)from->n, sizeof *list->items);
    *of = dtp_arena_alloc(w->b->arena, (size_t)w->n, sizeof **of);
    DTP_TRY(DTP_MEMORY(err, list->items, *of));
    memcpy(list->items, from->items, (size_t)from->n * sizeof *list->items);
    for (int32_t k = 0; k < w->n; k++) {
        (*of)[k] = w->strategies[k].layout[end];
    }
    return DTP_OK;
}

static dtp_status end_class(const strategy_walk *w, class_strategies *out, dtp_err *err)
{
    dtp_arena *arena = w->b->arena;
    out->n = w->n;
    out->least_kernel_ps = w->least_kernel_ps;
    DTP_TRY(DTP_NEW(arena, out->strategy, w->n, err));
    DTP_TRY(DTP_NEW(arena, out->price, w->n, err));
    for (int32_t k = 0; k < w->n; k++) {
        out->strategy[k] = w->strategies[k].strategy;
        out->price[k] = w->strategies[k].price;
    }
    for (int32_t i = 0; i < w->call.n_in; i++) {
        DTP_TRY(copy_layouts(w, i, &out->in[i], &out->in_of[i], err));
    }
    for (int32_t i = 0; i < w->call.n_out; i++) {
        DTP_TRY(copy_layouts(w, w->call.n_in + i, &out->out[i], &out->out_of[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_tensor__strategies(tensor_build *b, dtp_err *err)
{
    strategy_walk w = {.b = b};
    DTP_TRY(DTP_NEW(b->arena, b->options, b->classes.n, err));
    for (int32_t k = 0; k < b->classes.n; k++) {
        dtp_call_types types;
        DTP_TRY(dtp_stop_check(b->p->options.stop, err));
        begin_class(&w, k, &types);
        DTP_TRY(extend_strategy(&w, 0, err));
        if (w.n == 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "node '%s' cannot be run on this mesh",
                            b->g->nodes[w.node].name);
        }
        DTP_TRY(end_class(&w, &b->options[k], err));
    }
    return DTP_OK;
}
