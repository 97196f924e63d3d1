/* A bound of the problem without folding, which is never built: dual ascent over all instances,
 * which share the matrices of the folded problem. The multipliers of an ascent on the folded
 * problem, divided among its instances, are the start. Memory enters by prices of times: usage(s)
 * times price in the cost of a node, the limit times price off the sum.
 */
#include <math.h>
#include <string.h>

#include "core/safe_int.h"
#include "planner/tensor/ascent.h"
#include "planner/tensor/tensor_internal.h"

enum { PRICE_BITS = 20 }; /* binary places of a price per byte */

/* When a node of the unfolded graph is decided: ops at their place, tensors behind their makers. */
static int64_t time_of(const dtp_tensor_problem *p, int32_t node)
{
    const dtp_graph *g = p->graph;
    if (node < g->n_nodes) {
        return 4 * (int64_t)node + 1;
    }
    const int32_t x = node - g->n_nodes - g->n_tensors;
    const dtp_tensor_id t = x < 0 ? node - g->n_nodes : x / 3;
    return g->tensors[t].producer >= 0 ? 4 * (int64_t)g->tensors[t].producer + (x < 0 ? 2 : 3)
                                       : (x < 0 ? -1 : 0);
}

/* ---- costs with memory -------------------------------------------------------------------------
 */

typedef struct priced {
    int32_t n;             /* prices, in order of time */
    int64_t *time, *price; /* price: sum up to and with this time, fixed point */
} priced;

static int64_t price_between(const priced *x, int64_t begin, int64_t end)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < x->n; i++) {
        sum += begin <= x->time[i] && x->time[i] < end ? x->price[i] : 0;
    }
    return sum;
}

/* Adds what a byte costs; false when it does not fit. */
static bool add_usage(const dtp_select_interval *interval, const priced *x, int32_t k,
                      int64_t *cost)
{
    const int64_t price = price_between(x, interval->begin, interval->end);
    bool ok = true;
    for (int32_t s = 0; s < k && price > 0 && ok; s++) {
        int64_t all;
        ok = dtp_mul_i64(interval->usage[s], price, &all);
        if (ok && cost[s] < DTP_SELECT_FORBIDDEN) {
            cost[s] += all >> PRICE_BITS;
        }
    }
    return ok;
}

/* Costs of the unfolded nodes; *off: what the limit takes off the bound. *fits false: prices and
 * bytes are too large for integers. */
static dtp_status price_nodes(const ascent *a, const priced *x, dtp_arena *arena, int64_t **cost,
                              int64_t *off, bool *fits, dtp_err *err)
{
    const dtp_select_problem *s = a->p->select;
    *off = 0;
    *fits = true;
    for (int32_t i = 0; i < a->n; i++) {
        const size_t k = a->choice[i] >= 0 ? (size_t)dtp_ascent__strategies(a, i) : 0;
        const int64_t *unit = k > 0 ? a->p->unit_cost + s->first[a->choice[i]] : NULL;
        cost[i] = dtp_arena_alloc(arena, k, sizeof **cost);
        if (cost[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu costs", k);
        }
        const int32_t t = i - a->p->graph->n_nodes;
        const bool counts =
            t < 0 || (t < a->p->graph->n_tensors && dtp_tensor__survives(a->p->graph, t));
        for (size_t n = 0; n < k && counts; n++) {
            cost[i][n] = unit[n];
        }
    }
    for (int32_t i = 0; i < dtp_select_n_intervals(s) && x->n > 0; i++) {
        const dtp_select_interval interval = dtp_select_interval_at(s, i);
        const int32_t k = dtp_select_n_strategies(s, interval.node);
        if (interval.begin < interval.end) {
            *fits = add_usage(&interval, x, k, cost[a->p->interval_owner[i]]) && *fits;
        }
    }
    for (int32_t i = 0; i < x->n && *fits; i++) {
        int64_t all;
        *fits = dtp_mul_i64(s->usage_limit, x->price[i], &all) &&
                dtp_add_i64(*off, (all >> PRICE_BITS) + 1, off);
    }
    return DTP_OK;
}

/* ---- the two ascents ---------------------------------------------------------------------------
 */

/* Good multipliers of the folded problem, memory left out, as a start. */
static dtp_status ascend_folded(const dtp_tensor_problem *p, int32_t rounds, dtp_arena *arena,
                                ascent *a, dtp_err *err)
{
    const dtp_select_problem *s = p->select;
    const size_t n = (size_t)s->n_nodes;
    int32_t *choice = dtp_arena_alloc(arena, n, sizeof *choice);
    ascent_place *places = dtp_arena_alloc(arena, n, sizeof *places);
    const int64_t **cost = dtp_arena_alloc(arena, n, sizeof *cost);
    dtp_unfolded_edge *edges = dtp_arena_alloc(arena, (size_t)s->n_edges, sizeof *edges);
    if (choice == NULL || places == NULL || cost == NULL || edges == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu nodes", n);
    }
    *a = (ascent){.p = p, .n = s->n_nodes, .n_edges = s->n_edges, .folded = true};
    for (int32_t i = 0; i < s->n_nodes; i++) {
        const dtp_choice *c = &p->choices[i];
        const int32_t node = c->kind == DTP_DECIDE_OP ? c->node
                             : c->kind == DTP_DECIDE_TENSOR
                                 ? p->graph->n_nodes + c->tensor
                                 : p->graph->n_nodes + p->graph->n_tensors + 3 * c->tensor;
        choice[i] = i;
        cost[i] = s->cost + s->first[i];
        places[i] = (ascent_place){time_of(p, node), i};
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        edges[e] = (dtp_unfolded_edge){e, s->edge_a[e], s->edge_b[e]};
    }
    a->choice = choice;
    a->cost = cost;
    a->edges = edges;
    DTP_TRY(dtp_ascent__prepare(a, places, arena, err));
    dtp_ascent__run(a, rounds);
    return DTP_OK;
}

static void fill_choices(const dtp_tensor_problem *p, int32_t *choice, ascent_place *places,
                         int32_t n)
{
    const dtp_graph *g = p->graph;
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = i - g->n_nodes, x = t - g->n_tensors;
        choice[i] = t < 0   ? p->choice_of_node[i]
                    : x < 0 ? p->choice_of_tensor[t]
                            : p->choice_of_view[x % 3][x / 3];
        places[i] = (ascent_place){time_of(p, i), i};
    }
    for (int32_t i = 0; i < g->n_updates; i++) { /* decided with their targets */
        choice[g->n_nodes + g->updates[i].value] = -1;
    }
}

static void share_multipliers(const ascent *folded, const ascent *a)
{
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int32_t from = a->edges[e].edge;
        const int64_t n = a->first_phi[e + 1] - a->first_phi[e];
        const double count = (double)a->p->edge_count[from];
        for (int64_t k = 0; k < n; k++) {
            a->phi[a->first_phi[e] + k] = folded->phi[folded->first_phi[from] + k] / count;
        }
    }
}

static dtp_status bound_unfolded(const dtp_tensor_problem *p, int32_t rounds, const priced *prices,
                                 dtp_arena *arena, int64_t *bound, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    ascent folded, a = {.p = p, .n_edges = p->n_unfolded, .edges = p->unfolded};
    a.n = g->n_nodes + 4 * g->n_tensors;
    int32_t *choice = dtp_arena_alloc(arena, (size_t)a.n, sizeof *choice);
    ascent_place *places = dtp_arena_alloc(arena, (size_t)a.n, sizeof *places);
    int64_t **cost = dtp_arena_alloc(arena, (size_t)a.n, sizeof *cost), off;
    bool fits;
    if (choice == NULL || places == NULL || cost == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a.n);
    }
    fill_choices(p, choice, places, a.n);
    a.choice = choice;
    a.cost = (const int64_t *const *)cost;
    DTP_TRY(price_nodes(&a, prices, arena, cost, &off, &fits, err));
    DTP_TRY(ascend_folded(p, rounds, arena, &folded, err));
    DTP_TRY(dtp_ascent__prepare(&a, places, arena, err));
    share_multipliers(&folded, &a);
    dtp_ascent__run(&a, rounds);
    DTP_TRY(dtp_ascent__bound(&a, bound, err));
    *bound = fits && *bound > off ? *bound - off : 0;
    return DTP_OK;
}

dtp_status dtp_tensor_unfolded_bound(const dtp_tensor_problem *p, int32_t rounds, int32_t n_prices,
                                     const dtp_time_price *prices, int64_t *bound, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    priced x = {.n = n_prices};
    dtp_status s = DTP_OK;
    if (arena != NULL) {
        x.time = dtp_arena_alloc(arena, (size_t)n_prices, sizeof *x.time);
        x.price = dtp_arena_alloc(arena, (size_t)n_prices, sizeof *x.price);
    }
    if (arena == NULL || x.time == NULL || x.price == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    }
    for (int32_t i = 0; i < n_prices; i++) {
        const double price = ldexp(prices[i].ps_per_byte, PRICE_BITS);
        x.time[i] = prices[i].time;
        x.price[i] = price > 0.0 && price < 1e15 ? (int64_t)price : 0;
    }
    s = bound_unfolded(p, rounds, &x, arena, bound, err);
    dtp_arena_destroy(arena);
    return s;
}
