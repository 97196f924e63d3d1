/* A bound of the problem without folding, which is never built: dual ascent over all instances,
 * which share the matrices of the folded problem. The multipliers of an ascent on the folded
 * problem, divided among its instances, are the start. Memory enters by prices of times: usage(s)
 * times price in the cost of a node, the limit times price off the sum.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/safe_int.h"
#include "planner/tensor/ascent.h"
#include "planner/tensor/tensor_internal.h"

/* Rounds of the ascent on the folded problem, and the gain, as a share of the bound, below which
 * an ascent ends. */
enum { FOLDED_ROUNDS = 60 };
static const double LEAST_GAIN = 1e-5;

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

/* Prices as integers, of 2^-bits cost units per byte. */
typedef struct priced {
    int32_t n, bits;
    int64_t *time; /* in order */
    int64_t *sum;  /* prices before time i; one more */
} priced;

static int compare_prices(const void *x, const void *y)
{
    const dtp_time_price *p = x, *q = y;
    return p->time != q->time ? (p->time < q->time ? -1 : 1)
                              : (p->price > q->price) - (p->price < q->price);
}

static bool is_price(double price)
{
    return price > 0.0 && price < 1e12;
}

/* All prices together times the largest usage, or the limit, take 61 bits. */
static int32_t choose_bits(const dtp_select_problem *s, int32_t n, const dtp_time_price *prices)
{
    double sum = 1e-30, most = (double)s->usage_limit + 1.0;
    for (int32_t i = 0; i < n; i++) {
        sum += is_price(prices[i].price) ? prices[i].price : 0.0;
    }
    for (int32_t i = 0; i < dtp_select_n_intervals(s); i++) {
        const dtp_select_interval x = dtp_select_interval_at(s, i);
        for (int32_t k = 0; k < dtp_select_n_strategies(s, x.node); k++) {
            most = (double)x.usage[k] > most ? (double)x.usage[k] : most;
        }
    }
    const int32_t bits = 60 - ilogb(sum * most);
    return bits < 0 ? 0 : bits > 60 ? 60 : bits;
}

static dtp_status read_prices(const dtp_select_problem *s, int32_t n, const dtp_time_price *prices,
                              dtp_arena *arena, priced *x, dtp_err *err)
{
    dtp_time_price *sorted = dtp_arena_alloc(arena, (size_t)n, sizeof *sorted);
    *x = (priced){.n = n, .bits = choose_bits(s, n, prices)};
    x->time = dtp_arena_alloc(arena, (size_t)n, sizeof *x->time);
    x->sum = dtp_arena_alloc(arena, (size_t)n + 1, sizeof *x->sum);
    if (sorted == NULL || x->time == NULL || x->sum == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d prices", n);
    }
    if (n > 0) {
        memcpy(sorted, prices, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, compare_prices);
    }
    for (int32_t i = 0; i < n; i++) {
        const double price = is_price(sorted[i].price) ? ldexp(sorted[i].price, x->bits) : 0.0;
        x->time[i] = sorted[i].time;
        x->sum[i + 1] = x->sum[i] + (price < 1e18 ? (int64_t)price : 0);
    }
    return DTP_OK;
}

/* The first price at or after a time. */
static int32_t price_at(const priced *x, int64_t time)
{
    int32_t lo = 0, hi = x->n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (x->time[mid] < time) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Adds what a byte costs, rounded down; false when it does not fit. */
static bool add_usage(const dtp_select_interval *interval, const priced *x, int32_t k,
                      int64_t *cost)
{
    const int64_t price = x->sum[price_at(x, interval->end)] - x->sum[price_at(x, interval->begin)];
    bool ok = true;
    for (int32_t s = 0; s < k && price > 0 && ok; s++) {
        int64_t all;
        ok = dtp_mul_i64(interval->usage[s], price, &all);
        if (ok && cost[s] < DTP_SELECT_FORBIDDEN) {
            cost[s] = dtp_select_add_cost(cost[s], all >> x->bits);
        }
    }
    return ok;
}

/* Costs of one graph's nodes, without memory. */
static dtp_status copy_costs(const ascent *a, dtp_arena *arena, int64_t **cost, dtp_err *err)
{
    const dtp_select_problem *s = a->p->select;
    const int64_t *of = a->folded ? s->cost : a->p->unit_cost;
    for (int32_t i = 0; i < a->n; i++) {
        const size_t k = a->choice[i] >= 0 ? (size_t)dtp_ascent__strategies(a, i) : 0;
        cost[i] = dtp_arena_alloc(arena, k, sizeof **cost);
        if (cost[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu costs", k);
        }
        const int32_t t = i - a->p->graph->n_nodes;
        const bool counts = a->folded || t < 0 ||
                            (t < a->p->graph->n_tensors && dtp_tensor__survives(a->p->graph, t));
        if (k > 0 && counts) {
            memcpy(cost[i], of + s->first[a->choice[i]], k * sizeof **cost);
        }
    }
    return DTP_OK;
}

/* *off: what the limit takes off the bound; false: prices and bytes are too large for integers. */
static bool add_memory(const ascent *a, const priced *x, int64_t **cost, int64_t *off)
{
    const dtp_select_problem *s = a->p->select;
    int64_t all = 0;
    bool fits = dtp_mul_i64(s->usage_limit, x->sum[x->n], &all);
    *off = x->n > 0 && fits ? (all >> x->bits) + 1 : 0;
    for (int32_t i = 0; i < dtp_select_n_intervals(s) && x->n > 0 && fits; i++) {
        const dtp_select_interval interval = dtp_select_interval_at(s, i);
        const int32_t k = dtp_select_n_strategies(s, interval.node);
        if (interval.begin < interval.end) {
            const int32_t owner = a->folded ? interval.node : a->p->interval_owner[i];
            fits = add_usage(&interval, x, k, cost[owner]);
        }
    }
    return fits;
}

/* ---- the two ascents ---------------------------------------------------------------------------
 */

/* Good multipliers of the folded problem as a start. */
static dtp_status ascend_folded(const dtp_tensor_problem *p, int32_t rounds, const priced *prices,
                                dtp_arena *arena, ascent *a, dtp_err *err)
{
    const dtp_select_problem *s = p->select;
    const size_t n = (size_t)s->n_nodes;
    int32_t *choice = dtp_arena_alloc(arena, n, sizeof *choice);
    ascent_place *places = dtp_arena_alloc(arena, n, sizeof *places);
    int64_t **cost = dtp_arena_alloc(arena, n, sizeof *cost), off;
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
        places[i] = (ascent_place){time_of(p, node), i};
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        edges[e] = (dtp_unfolded_edge){e, s->edge_a[e], s->edge_b[e]};
    }
    a->choice = choice;
    a->cost = (const int64_t *const *)cost;
    a->edges = edges;
    DTP_TRY(copy_costs(a, arena, cost, err));
    (void)add_memory(a, prices, cost, &off);
    DTP_TRY(dtp_ascent__prepare(a, places, arena, err));
    dtp_ascent__run(a, rounds > 0 ? FOLDED_ROUNDS : 0, LEAST_GAIN);
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
    for (int32_t i = 0; i < g->n_updates;
         i++) { /* decided with their targets; accumulators are not */
        const dtp_update *u = &g->updates[i];
        if (p->choice_of_tensor[u->value] == p->choice_of_tensor[u->target]) {
            choice[g->n_nodes + u->value] = -1;
        }
    }
}

static void share_multipliers(const ascent *folded, const ascent *a)
{
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int32_t from = a->edges[e].edge;
        const int64_t n = a->first_phi[e + 1] - a->first_phi[e];
        const float count = (float)a->p->edge_count[from];
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
    if (choice == NULL || places == NULL || cost == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a.n);
    }
    fill_choices(p, choice, places, a.n);
    a.choice = choice;
    a.cost = (const int64_t *const *)cost;
    DTP_TRY(copy_costs(&a, arena, cost, err));
    if (!add_memory(&a, prices, cost, &off)) {
        *bound = 0;
        return DTP_OK;
    }
    DTP_TRY(ascend_folded(p, rounds, prices, arena, &folded, err));
    DTP_TRY(dtp_ascent__prepare(&a, places, arena, err));
    share_multipliers(&folded, &a);
    dtp_ascent__run(&a, rounds, LEAST_GAIN);
    DTP_TRY(dtp_ascent__bound(&a, arena, bound, err));
    *bound = *bound > off ? *bound - off : 0;
    return DTP_OK;
}

dtp_status dtp_tensor_unfolded_bound(const dtp_tensor_problem *p, int32_t rounds, int32_t n_prices,
                                     const dtp_time_price *prices, int64_t *bound, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    priced x;
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    }
    dtp_status s = read_prices(p->select, n_prices, prices, arena, &x, err);
    s = s == DTP_OK ? bound_unfolded(p, rounds, &x, arena, bound, err) : s;
    dtp_arena_destroy(arena);
    return s;
}
