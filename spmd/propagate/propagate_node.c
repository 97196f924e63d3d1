/* The cheapest strategy of one node: every combination of rows over the mesh dims is tried. A
 * candidate costs what it takes to bring every operand to it, what is inside the op where that
 * communicates, and what it takes to bring pinned outputs to their layouts. The price of a
 * redistribution is worked out once per operand and target. Combinations over mesh dims of one row
 * each are enumerated in order, the last mesh dim fastest.
 *
 * Above MAX_COMBINATIONS the search is by descent: from the combination "what operand 0 has" and
 * from "all replicated", one mesh dim after the other takes its best row while the others stay,
 * until nothing improves.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/layout/placement_text.h"
#include "spmd/propagate/propagate_internal.h"
#include "core/graph/op_rules.h"

enum { MAX_COMBINATIONS = 32768, MAX_SWEEPS = 16, TIES_PER_MILLION = 1 };

typedef struct known_price {
    dtp_layout to; /* operands: the target; outputs: the source */
    dtp_redistribution_price price;
} known_price;

/* Redistributions of one tensor. */
typedef struct known_prices {
    int32_t n, capacity;
    known_price *items;
    dtp_hash_table by_layout;
} known_prices;

/* What a candidate takes. Compared field by field, smaller is better. */
typedef struct score {
    dtp_redistribution_price brought; /* and what is inside the op */
    double elems;                     /* local elements that the op reads and writes */
} score;

typedef struct strategy_search {
    const dtp_decision *d;
    dtp_arena *arena;
    dtp_sharding_rules rules;
    dtp_row_lists lists;
    const dtp_layout *in; /* present layouts, as dtp_node_layouts_find wants them */
    const dtp_layout *out;
    known_prices *in_prices, *out_prices;
    bool still; /* operands move only where a pin asks for it */
    bool found;
    score best;
    dtp_strategy strategy;
    dtp_node_layouts layouts;
} strategy_search;

/* ---- pins ---- */

/* Appends the splits of `from` over the mesh dims of `dims`, outer ones first. */
static void add_splits(dtp_layout *to, const dtp_layout *from, dtp_mesh_set dims)
{
    for (int32_t depth = 0; depth < from->n_mesh; depth++) {
        for (int32_t m = 0; m < from->n_mesh; m++) {
            const dtp_placement p = from->placement[m];
            if ((dims >> m & 1U) == 0) {
                continue;
            }
            if (p.kind == DTP_SHARD && p.order == depth) {
                dtp_layout_split(to, m, p.axis);
            } else if (p.kind == DTP_PARTIAL) {
                to->placement[m] = p;
            }
        }
    }
}

dtp_layout dtp_propagate__complete(const dtp_layout *pin, dtp_mesh_set dims, const dtp_layout *free)
{
    dtp_layout out = dtp_layout_replicated(pin->rank, pin->n_mesh);
    if (dims == 0) {
        return *pin;
    }
    add_splits(&out, free, ~dims);
    add_splits(&out, pin, dims);
    return out;
}

/* Whether a layout is as the pin says on the mesh dims it speaks of. */
static bool agrees(const dtp_layout *pin, dtp_mesh_set dims, const dtp_layout *l)
{
    if (dims == 0) {
        return dtp_layout_equal(pin, l);
    }
    for (int32_t m = 0; m < l->n_mesh; m++) {
        const dtp_placement a = pin->placement[m], b = l->placement[m];
        if ((dims >> m & 1U) != 0 && (a.kind != b.kind || a.axis != b.axis || a.op != b.op)) {
            return false;
        }
    }
    return true;
}

/* ---- prices ---- */

static dtp_status price_operand(const strategy_search *s, int32_t i, const dtp_layout *to,
                                dtp_redistribution_price *out, dtp_err *err)
{
    const dtp_operand *operand = &s->d->operands[i];
    for (int32_t v = 0; v < operand->n_versions; v++) {
        if (dtp_layout_equal(&operand->versions[v], to)) {
            *out = (dtp_redistribution_price){.possible = true};
            return DTP_OK;
        }
    }
    return dtp_propagate__price(s->d->options, s->d->mesh, &s->d->call->in[i], operand->at, to, out,
                                err);
}

static void add_price(dtp_redistribution_price *total, const dtp_redistribution_price *p)
{
    total->cost += p->cost;
    total->collectives += p->collectives;
    total->locals += p->locals;
}

static dtp_status look_up(strategy_search *s, known_prices *k, bool output, int32_t i,
                          const dtp_layout *other, dtp_redistribution_price *out, dtp_err *err)
{
    const uint32_t hash = dtp_hash_fold(dtp_hash_bytes(DTP_HASH_SEED, other, sizeof *other));
    uint32_t at = hash;
    for (int32_t known; (known = dtp_hash_table_next(&k->by_layout, hash, &at)) >= 0;) {
        if (dtp_layout_equal(&k->items[known].to, other)) {
            *out = k->items[known].price;
            return DTP_OK;
        }
    }
    DTP_TRY(
        dtp_arena_grow(s->arena, &k->items, k->n, k->n + 1, &k->capacity, sizeof *k->items, err));
    if (output) {
        const dtp_layout target =
            dtp_propagate__complete(s->d->wanted[i], s->d->wanted_dims[i], other);
        DTP_TRY(dtp_propagate__price(s->d->options, s->d->mesh, &s->d->call->out[i], other, &target,
                                     out, err));
    } else {
        /* The redistribution and, for numbers that are sent, the way of the gradient back to where
         * the operand is (whole where that is partial). */
        const dtp_ttype *type = &s->d->call->in[i];
        DTP_TRY(price_operand(s, i, other, out, err));
        if (s->d->options->there_and_back && out->possible && out->collectives > 0 &&
            dtp_dtype_is_float(type->dtype)) {
            const dtp_layout home = dtp_layout_without_partial(s->d->operands[i].at);
            dtp_redistribution_price back;
            DTP_TRY(
                dtp_propagate__price(s->d->options, s->d->mesh, type, other, &home, &back, err));
            add_price(out, &back);
        }
    }
    k->items[k->n] = (known_price){.to = *other, .price = *out};
    return dtp_hash_table_add(&k->by_layout, s->arena, hash, k->n++, err);
}

/* Whether the operand's pin speaks of every mesh dim that changes. */
static bool is_asked(const dtp_operand *operand, const dtp_layout *to)
{
    const dtp_mesh_set asked = operand->pinned_dims != 0 ? operand->pinned_dims : UINT32_MAX;
    for (int32_t m = 0; m < to->n_mesh && operand->pinned != NULL; m++) {
        const dtp_placement a = operand->at->placement[m], b = to->placement[m];
        if ((a.kind != b.kind || a.axis != b.axis) && (asked >> m & 1U) == 0) {
            return false;
        }
    }
    return operand->pinned != NULL;
}

static dtp_status price_redistributions(strategy_search *s, const dtp_node_layouts *l, score *out,
                                        bool *possible, dtp_err *err)
{
    const dtp_decision *d = s->d;
    dtp_redistribution_price p;
    for (int32_t i = 0; i < d->call->n_in && *possible; i++) {
        int32_t same = 0; /* the same tensor read twice in one layout is moved once */
        while (same < i && (d->operands[same].first != d->operands[i].first ||
                            !dtp_layout_equal(&l->in[same], &l->in[i]))) {
            same++;
        }
        if (same == i) {
            DTP_TRY(look_up(s, &s->in_prices[d->operands[i].first], false, i, &l->in[i], &p, err));
            add_price(&out->brought, &p);
            *possible = p.possible &&
                        !(s->still && p.collectives > 0 && !is_asked(&d->operands[i], &l->in[i]));
        }
    }
    for (int32_t i = 0; i < d->call->n_out && *possible; i++) {
        if (d->wanted[i] != NULL) {
            DTP_TRY(look_up(s, &s->out_prices[i], true, i, &l->out[i], &p, err));
            add_price(&out->brought, &p);
            *possible = p.possible;
        }
    }
    return DTP_OK;
}

/* ---- comparison ---- */

static int compare_counts(int32_t a, int32_t b)
{
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Negative when a is better. PyTorch looks at cost, then prefers what moves nothing. */
static int compare(const strategy_search *s, const score *a, const score *b)
{
    const double x = a->brought.cost, y = b->brought.cost;
    const double slack = 1e-6 * TIES_PER_MILLION * fmax(fabs(x), fabs(y));
    int c = x < y - slack ? -1 : x > y + slack ? 1 : 0;
    if (c == 0 && s->d->options->torch) {
        return compare_counts(a->brought.collectives + a->brought.locals > 0,
                              b->brought.collectives + b->brought.locals > 0);
    }
    c = c != 0 ? c : compare_counts(a->brought.collectives, b->brought.collectives);
    c = c != 0 ? c : compare_counts(a->brought.locals, b->brought.locals);
    return c != 0 ? c : a->elems < b->elems ? -1 : a->elems > b->elems ? 1 : 0;
}

/* ---- candidates ---- */

static bool is_even(const dtp_decision *d, const dtp_node_layouts *l)
{
    bool even = true;
    for (int32_t i = 0; i < d->call->n_in && even; i++) {
        even = dtp_layout_is_even(&l->in[i], d->mesh, &d->call->in[i]);
    }
    for (int32_t i = 0; i < d->call->n_out && even; i++) {
        const dtp_layout end =
            d->wanted[i] != NULL
                ? dtp_propagate__complete(d->wanted[i], d->wanted_dims[i], &l->out[i])
                : l->out[i];
        even = dtp_layout_is_even(&l->out[i], d->mesh, &d->call->out[i]) &&
               dtp_layout_is_even(&end, d->mesh, &d->call->out[i]);
    }
    return even;
}

static bool is_possible(const strategy_search *s, const dtp_strategy *strategy, dtp_node_layouts *l)
{
    const dtp_decision *d = s->d;
    if (dtp_node_layouts_find(d->mesh, d->call, &s->rules, strategy, s->in, s->out, l, NULL) !=
        DTP_OK) {
        return false;
    }
    for (int32_t i = 0; i < d->call->n_in; i++) {
        const dtp_operand *o = &d->operands[i];
        if (o->pinned != NULL && !agrees(o->pinned, o->pinned_dims, &l->in[i])) {
            return false;
        }
    }
    return (!d->options->torch || dtp_propagate__torch_fits(d, l)) &&
           (!d->options->even || is_even(d, l));
}

/* Prices a candidate and keeps it when it is the best. What is inside the op is priced only when
 * the candidate would be better without it. */
static dtp_status try_strategy(strategy_search *s, const dtp_strategy *strategy, bool *better,
                               dtp_err *err)
{
    const dtp_decision *d = s->d;
    dtp_node_layouts l;
    score rated = {.elems = 0};
    bool possible = is_possible(s, strategy, &l);
    double inner = 0;
    *better = false;
    if (possible) {
        DTP_TRY(price_redistributions(s, &l, &rated, &possible, err));
    }
    if (!possible) {
        return DTP_OK;
    }
    const dtp_op_call *call = s->d->call;
    dtp_ttype local;
    for (int32_t i = 0; i < call->n_in; i++) {
        dtp_layout_local_max(&l.in[i], s->d->mesh, &call->in[i], &local);
        rated.elems += (double)dtp_ttype_elems(&local);
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        dtp_layout_local_max(&l.out[i], s->d->mesh, &call->out[i], &local);
        rated.elems += (double)dtp_ttype_elems(&local);
    }
    if ((l.internal | l.windows) != 0 && (!s->found || compare(s, &rated, &s->best) < 0)) {
        DTP_TRY(dtp_propagate__inner(d->pricer, d->options, d->mesh, strategy, &l, &inner, err));
        rated.brought.cost += inner;
    }
    if (!s->found || compare(s, &rated, &s->best) < 0) {
        s->found = *better = true;
        s->best = rated;
        s->strategy = *strategy;
        s->layouts = l;
    }
    return DTP_OK;
}

static dtp_status try_all(strategy_search *s, dtp_err *err)
{
    const int32_t n_mesh = s->d->mesh->n_dims;
    int32_t at[DTP_MAX_MESH_DIMS] = {0};
    for (int32_t m = n_mesh; m >= 0;) {
        dtp_strategy strategy = {{0}};
        bool better;
        for (int32_t k = 0; k < n_mesh; k++) {
            strategy.row[k] = s->lists.rows[k][at[k]];
        }
        DTP_TRY(try_strategy(s, &strategy, &better, err));
        for (m = n_mesh - 1; m >= 0 && ++at[m] == s->lists.n[m]; m--) {
            at[m] = 0;
        }
    }
    return DTP_OK;
}

/* Improves `strategy` mesh dim by mesh dim. */
static dtp_status descend(strategy_search *s, dtp_strategy strategy, dtp_err *err)
{
    bool better, any = true;
    DTP_TRY(try_strategy(s, &strategy, &better, err));
    for (int32_t sweep = 0; sweep < MAX_SWEEPS && any; sweep++) {
        any = false;
        for (int32_t m = 0; m < s->d->mesh->n_dims; m++) {
            dtp_strategy base = s->found ? s->strategy : strategy;
            for (int32_t r = 0; r < s->lists.n[m]; r++) {
                base.row[m] = s->lists.rows[m][r];
                DTP_TRY(try_strategy(s, &base, &better, err));
                any = any || better;
            }
        }
    }
    return DTP_OK;
}

/* ---- outcome ---- */

static dtp_status check_strict(const strategy_search *s, dtp_err *err)
{
    const dtp_decision *d = s->d;
    for (int32_t i = 0; i < d->call->n_in; i++) {
        dtp_strbuf from = {0}, to = {0};
        dtp_redistribution_price p;
        DTP_TRY(price_operand(s, i, &s->layouts.in[i], &p, err));
        if (p.collectives == 0 || is_asked(&d->operands[i], &s->layouts.in[i])) {
            continue;
        }
        dtp_placements_print(d->operands[i].at, &from);
        dtp_placements_print(&s->layouts.in[i], &to);
        const dtp_status status =
            DTP_FAIL(err, DTP_INVALID,
                     "%s: operand %d would have to move from '%s' to '%s', which strict mode does "
                     "not allow",
                     d->call->op->name, i, dtp_strbuf_text(&from), dtp_strbuf_text(&to));
        dtp_strbuf_free(&from);
        dtp_strbuf_free(&to);
        return status;
    }
    return DTP_OK;
}

static dtp_status refuse(const dtp_decision *d, dtp_err *err)
{
    char text[DTP_LAYOUT_TEXT_BYTES];
    for (int32_t i = 0; i < d->call->n_in; i++) {
        if (d->operands[i].pinned != NULL) {
            dtp_layout_print(d->operands[i].pinned, d->mesh, &d->call->in[i], d->call->dims, text);
            return DTP_FAIL(err, DTP_INVALID, "%s: no strategy reads operand %d as '%s'",
                            d->call->op->name, i, text);
        }
    }
    for (int32_t i = 0; i < d->call->n_out; i++) {
        if (d->wanted[i] != NULL) {
            dtp_layout_print(d->wanted[i], d->mesh, &d->call->out[i], d->call->dims, text);
            return DTP_FAIL(err, DTP_INVALID, "%s: no strategy leads to output %d as '%s'",
                            d->call->op->name, i, text);
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: no strategy is possible on these layouts",
                    d->call->op->name);
}

static dtp_status find(strategy_search *s, dtp_err *err)
{
    int64_t combinations = 1;
    s->found = false;
    for (int32_t m = 0; m < s->d->mesh->n_dims; m++) {
        combinations *= s->lists.n[m];
    }
    if (combinations <= MAX_COMBINATIONS) {
        return try_all(s, err);
    }
    for (int32_t i = 0; i < s->d->call->n_in; i++) {
        /* Rows under which operand `i` stays where it is, as far as there are any. */
        dtp_strategy out = {{0}};
        for (int32_t m = 0; m < s->d->mesh->n_dims; m++) {
            const dtp_placement at = s->in[i].placement[m];
            for (int32_t r = s->rules.n - 1; r > 0; r--) {
                const dtp_placement p = s->rules.rows[r].in[i];
                const bool same = p.kind == at.kind && p.axis == at.axis && p.op == at.op;
                out.row[m] = at.kind != DTP_REPLICATE && same ? (int16_t)r : out.row[m];
            }
        }
        DTP_TRY(descend(s, out, err));
    }
    return descend(s, (dtp_strategy){{0}}, err);
}

/* In strict mode a strategy that moves nothing is taken even if a move would be cheaper;
 * when there is none, the error tells what the cheapest one would move. */
static dtp_status choose(strategy_search *s, dtp_err *err)
{
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    const dtp_decision *d = s->d;
    DTP_TRY(DTP_NEW(s->arena, s->in_prices, d->call->n_in, err));
    DTP_TRY(DTP_NEW(s->arena, s->out_prices, d->call->n_out, err));
    for (int32_t i = 0; i < d->call->n_in; i++) {
        in[i] = *d->operands[i].at;
    }
    for (int32_t i = 0; i < d->call->n_out; i++) {
        out[i] = d->wanted[i] != NULL
                     ? *d->wanted[i]
                     : dtp_layout_replicated(d->call->out[i].rank, d->mesh->n_dims);
    }
    s->in = in;
    s->out = out;
    dtp_sharding_rules_of(d->call, true, &s->rules);
    (d->options->torch ? dtp_propagate__torch_rows : dtp_propagate__rows)(d, &s->rules, &s->lists);
    DTP_TRY(find(s, err));
    if (!s->found) {
        return refuse(s->d, err);
    }
    const bool update = (s->d->call->op->flags & DTP_OP_UPDATE) != 0;
    if (!s->d->options->strict || update) {
        return DTP_OK;
    }
    const dtp_status strict = check_strict(s, err);
    if (strict != DTP_INVALID) {
        return strict;
    }
    const strategy_search cheapest = *s;
    s->still = true;
    DTP_TRY(find(s, err));
    return s->found ? DTP_OK : check_strict(&cheapest, err);
}

dtp_status dtp_propagate__choose(const dtp_decision *d, dtp_strategy *strategy,
                                 dtp_node_layouts *layouts, dtp_err *err)
{
    strategy_search s = {.d = d, .arena = dtp_arena_create()};
    DTP_TRY(DTP_MEMORY(err, s.arena));
    dtp_status status = choose(&s, err);
    dtp_arena_destroy(s.arena);
    *strategy = s.strategy;
    *layouts = s.layouts;
    return status;
}
