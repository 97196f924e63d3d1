/* A bound of the problem without folding, which is never built: all instances share the matrices of
 * the folded problem.
 *
 * For any numbers phi, one per edge, end and strategy there,
 *
 *     sum over nodes of min_s (cost(s) + sum of phi(e, s) over its edges e)
 *   + sum over edges of min_{s,t} (cost(s, t) - phi(e, s) - phi(e, t))
 *
 * is at most the cost of every selection. Memory enters by prices of times: usage(s) times price in
 * the cost of a node, the limit times price off the sum. Good phi are found by walking over the
 * nodes in the order of the graph and back: a node takes the minima of its edges over, and hands
 * what is above its own minimum on to the edges that lie ahead (V. Kolmogorov, A new look at
 * reweighted message passing, 2015). This is done in floating point, first on the folded problem,
 * whose phi are then shared by its instances; the sum at the end is made of integers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/safe_int.h"
#include "planner/tensor/tensor_internal.h"

#define INFINITE 1e30

enum { PRICE_BITS = 20 }; /* binary places of a price per byte */

typedef struct arc {
    int32_t edge; /* of the ascent */
    bool ahead;   /* the other end comes later */
} arc;

/* A graph of nodes with costs and edges with matrices. */
typedef struct ascent {
    const dtp_tensor_problem *p;
    int32_t n, n_edges;
    const int32_t *choice;          /* by node; -1: no such node */
    const dtp_unfolded_edge *edges; /* ends are nodes; .edge: of the selection problem */
    const int64_t *const *cost;     /* by node: of its strategies */
    bool folded;                    /* matrices as they are; else divided by their counts */
    int32_t *order, *rank;          /* nodes in the order of the walk; the inverse */
    int32_t *first_arc;             /* by node, and one more */
    arc *arcs;
    int64_t *first_phi; /* by edge: those of a, then those of b */
    double *phi;
    const double *matrix;  /* by entry of the selection problem, of one instance or of all */
    double *theta, *least; /* scratch, by strategy */
} ascent;

static int32_t strategies(const ascent *a, int32_t node)
{
    return a->p->choices[a->choice[node]].n_options;
}

/* ---- ascent ------------------------------------------------------------------------------------
 */

/* Moves the minima over the other end from an edge into its end a (or b). */
static void collect(const ascent *a, int32_t e, bool end_a)
{
    const dtp_unfolded_edge *edge = &a->edges[e];
    const int32_t rows = strategies(a, edge->a), cols = strategies(a, edge->b);
    const double *m = a->matrix + a->p->select->edge_first[edge->edge];
    double *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    for (int32_t j = 0; j < cols; j++) {
        a->least[j] = INFINITE;
    }
    for (int32_t i = 0; i < rows; i++, m += cols) {
        double low = INFINITE;
        for (int32_t j = 0; end_a && j < cols; j++) {
            const double at = m[j] - phi_b[j];
            low = at < low ? at : low;
        }
        for (int32_t j = 0; !end_a && j < cols; j++) {
            const double at = m[j] - phi_a[i];
            a->least[j] = at < a->least[j] ? at : a->least[j];
        }
        phi_a[i] = low < INFINITE / 2 ? low : phi_a[i];
    }
    for (int32_t j = 0; !end_a && j < cols; j++) {
        phi_b[j] = a->least[j] < INFINITE / 2 ? a->least[j] : phi_b[j];
    }
}

static double *phi_of(const ascent *a, int32_t e, int32_t node)
{
    double *phi = a->phi + a->first_phi[e];
    return a->edges[e].a == node ? phi : phi + strategies(a, a->edges[e].a);
}

static void update(const ascent *a, int32_t node, bool forward)
{
    const int32_t k = strategies(a, node);
    int32_t ahead = 0, behind = 0;
    double low = INFINITE;
    for (int32_t s = 0; s < k; s++) {
        const int64_t cost = a->cost[node][s];
        a->theta[s] = cost < DTP_SELECT_FORBIDDEN ? (double)cost : INFINITE;
    }
    for (int32_t x = a->first_arc[node]; x < a->first_arc[node + 1]; x++) {
        const int32_t e = a->arcs[x].edge;
        collect(a, e, a->edges[e].a == node);
        const double *phi = phi_of(a, e, node);
        for (int32_t s = 0; s < k; s++) {
            a->theta[s] += phi[s];
        }
        *(a->arcs[x].ahead == forward ? &ahead : &behind) += 1;
    }
    for (int32_t s = 0; s < k; s++) {
        low = a->theta[s] < low ? a->theta[s] : low;
    }
    const double share = 1.0 / (double)(ahead > behind ? ahead : behind > 0 ? behind : 1);
    for (int32_t x = a->first_arc[node]; x < a->first_arc[node + 1]; x++) {
        double *phi = phi_of(a, a->arcs[x].edge, node);
        for (int32_t s = 0; a->arcs[x].ahead == forward && s < k; s++) {
            const double above = a->theta[s] - low;
            phi[s] -= above < INFINITE / 2 ? above * share : 0.0;
        }
    }
}

static void ascend(const ascent *a, int32_t rounds)
{
    for (int32_t r = 0; r < rounds; r++) {
        for (int32_t i = 0; i < a->n; i++) {
            if (a->choice[a->order[i]] >= 0) {
                update(a, a->order[i], true);
            }
        }
        for (int32_t i = a->n - 1; i >= 0; i--) {
            if (a->choice[a->order[i]] >= 0) {
                update(a, a->order[i], false);
            }
        }
    }
}

/* ---- the exact sum -----------------------------------------------------------------------------
 */

/* False when a sum overflows. */
static bool add_edge_bound(const ascent *a, int32_t e, int64_t **theta, int64_t *total)
{
    const dtp_unfolded_edge *edge = &a->edges[e];
    const dtp_select_problem *s = a->p->select;
    const int32_t rows = strategies(a, edge->a), cols = strategies(a, edge->b);
    const int64_t *m = s->edge_cost + s->edge_first[edge->edge];
    const int64_t count = a->folded ? 1 : a->p->edge_count[edge->edge];
    const double *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    int64_t least = INT64_MAX;
    bool ok = true;
    for (int32_t i = 0; i < rows; i++, m += cols) {
        const int64_t x = llround(phi_a[i]);
        ok = dtp_add_i64(theta[edge->a][i], x, &theta[edge->a][i]) && ok;
        for (int32_t j = 0; j < cols; j++) {
            const int64_t at = m[j] / count - x - llround(phi_b[j]);
            least = m[j] < DTP_SELECT_FORBIDDEN && at < least ? at : least;
        }
    }
    for (int32_t j = 0; j < cols; j++) {
        ok = dtp_add_i64(theta[edge->b][j], llround(phi_b[j]), &theta[edge->b][j]) && ok;
    }
    return ok && dtp_add_i64(*total, least, total);
}

static bool phi_is_small(const ascent *a)
{
    const int64_t n = a->first_phi[a->n_edges];
    bool small = true;
    for (int64_t i = 0; i < n && small; i++) {
        small = fabs(a->phi[i]) < 1e17;
    }
    return small;
}

/* Sum of the minima; 0 when numbers grow out of range. */
static dtp_status evaluate(const ascent *a, int64_t *bound, dtp_err *err)
{
    int64_t **theta = calloc((size_t)a->n + 1, sizeof *theta), total = 0;
    bool ok = phi_is_small(a);
    dtp_status s = theta != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    for (int32_t i = 0; i < a->n && s == DTP_OK; i++) {
        const size_t k = a->choice[i] >= 0 ? (size_t)strategies(a, i) : 0;
        theta[i] = malloc((k + 1) * sizeof **theta);
        if (theta[i] == NULL) {
            s = DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
        } else if (k > 0) {
            memcpy(theta[i], a->cost[i], k * sizeof **theta);
        }
    }
    for (int32_t e = 0; e < a->n_edges && s == DTP_OK && ok; e++) {
        ok = add_edge_bound(a, e, theta, &total);
    }
    for (int32_t i = 0; i < a->n && s == DTP_OK && ok; i++) {
        int64_t least = INT64_MAX;
        for (int32_t k = 0; a->choice[i] >= 0 && k < strategies(a, i); k++) {
            const bool dead = a->cost[i][k] >= DTP_SELECT_FORBIDDEN;
            least = !dead && theta[i][k] < least ? theta[i][k] : least;
        }
        ok = a->choice[i] < 0 || dtp_add_i64(total, least, &total);
    }
    for (int32_t i = 0; theta != NULL && i < a->n; i++) {
        free(theta[i]);
    }
    free(theta);
    *bound = ok ? total : 0;
    return s;
}

/* ---- graphs ------------------------------------------------------------------------------------
 */

typedef struct place {
    int64_t at;
    int32_t node;
} place;

static int compare_places(const void *x, const void *y)
{
    const place *p = x, *q = y;
    if (p->at != q->at) {
        return p->at < q->at ? -1 : 1;
    }
    return p->node < q->node ? -1 : p->node > q->node;
}

/* The nodes of an ascent by `at`. */
static dtp_status sort_nodes(ascent *a, place *places, dtp_arena *arena, dtp_err *err)
{
    a->order = dtp_arena_alloc(arena, (size_t)a->n, sizeof *a->order);
    a->rank = dtp_arena_alloc(arena, (size_t)a->n, sizeof *a->rank);
    if (a->order == NULL || a->rank == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a->n);
    }
    qsort(places, (size_t)a->n, sizeof *places, compare_places);
    for (int32_t i = 0; i < a->n; i++) {
        a->order[i] = places[i].node;
        a->rank[places[i].node] = i;
    }
    return DTP_OK;
}

static dtp_status link_nodes(ascent *a, dtp_arena *arena, dtp_err *err)
{
    int64_t n_phi = 0;
    a->first_arc = dtp_arena_alloc(arena, (size_t)a->n + 2, sizeof *a->first_arc);
    a->arcs = dtp_arena_alloc(arena, 2 * (size_t)a->n_edges, sizeof *a->arcs);
    a->first_phi = dtp_arena_alloc(arena, (size_t)a->n_edges + 1, sizeof *a->first_phi);
    if (a->first_arc == NULL || a->arcs == NULL || a->first_phi == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d edges", a->n_edges);
    }
    for (int32_t e = 0; e < a->n_edges; e++) {
        a->first_phi[e] = n_phi;
        n_phi += strategies(a, a->edges[e].a) + strategies(a, a->edges[e].b);
        a->first_arc[a->edges[e].a + 2]++;
        a->first_arc[a->edges[e].b + 2]++;
    }
    a->first_phi[a->n_edges] = n_phi;
    for (int32_t i = 0; i < a->n; i++) {
        a->first_arc[i + 2] += a->first_arc[i + 1];
    }
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int32_t u = a->edges[e].a, v = a->edges[e].b;
        a->arcs[a->first_arc[u + 1]++] = (arc){e, a->rank[v] > a->rank[u]};
        a->arcs[a->first_arc[v + 1]++] = (arc){e, a->rank[u] > a->rank[v]};
    }
    a->phi = dtp_arena_alloc(arena, (size_t)n_phi, sizeof *a->phi);
    return a->phi != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld multipliers", (long long)n_phi);
}

/* Costs of one instance, or of all, in floating point. */
static dtp_status make_matrices(const dtp_tensor_problem *p, bool folded, dtp_arena *arena,
                                double **out, dtp_err *err)
{
    const dtp_select_problem *s = p->select;
    const int64_t n = s->edge_first[s->n_edges];
    *out = dtp_arena_alloc(arena, (size_t)n, sizeof **out);
    if (*out == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld prices", (long long)n);
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int64_t count = folded ? 1 : p->edge_count[e];
        for (int64_t k = s->edge_first[e]; k < s->edge_first[e + 1]; k++) {
            const bool forbidden = s->edge_cost[k] >= DTP_SELECT_FORBIDDEN;
            (*out)[k] = forbidden ? INFINITE : (double)(s->edge_cost[k] / count);
        }
    }
    return DTP_OK;
}

static dtp_status make_scratch(ascent *a, dtp_arena *arena, dtp_err *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < a->p->n_choices; i++) {
        const size_t n = (size_t)a->p->choices[i].n_options;
        most = n > most ? n : most;
    }
    a->theta = dtp_arena_alloc(arena, most, sizeof *a->theta);
    a->least = dtp_arena_alloc(arena, most, sizeof *a->least);
    return a->theta != NULL && a->least != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
}

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
        const size_t k = a->choice[i] >= 0 ? (size_t)strategies(a, i) : 0;
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
    place *places = dtp_arena_alloc(arena, n, sizeof *places);
    const int64_t **cost = dtp_arena_alloc(arena, n, sizeof *cost);
    dtp_unfolded_edge *edges = dtp_arena_alloc(arena, (size_t)s->n_edges, sizeof *edges);
    double *matrix;
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
        places[i] = (place){time_of(p, node), i};
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        edges[e] = (dtp_unfolded_edge){e, s->edge_a[e], s->edge_b[e]};
    }
    a->choice = choice;
    a->cost = cost;
    a->edges = edges;
    DTP_TRY(make_matrices(p, true, arena, &matrix, err));
    a->matrix = matrix;
    DTP_TRY(make_scratch(a, arena, err));
    DTP_TRY(sort_nodes(a, places, arena, err));
    DTP_TRY(link_nodes(a, arena, err));
    ascend(a, rounds);
    return DTP_OK;
}

static void fill_choices(const dtp_tensor_problem *p, int32_t *choice, place *places, int32_t n)
{
    const dtp_graph *g = p->graph;
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = i - g->n_nodes, x = t - g->n_tensors;
        choice[i] = t < 0   ? p->choice_of_node[i]
                    : x < 0 ? p->choice_of_tensor[t]
                            : p->choice_of_view[x % 3][x / 3];
        places[i] = (place){time_of(p, i), i};
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
    place *places = dtp_arena_alloc(arena, (size_t)a.n, sizeof *places);
    int64_t **cost = dtp_arena_alloc(arena, (size_t)a.n, sizeof *cost), off;
    double *matrix;
    bool fits;
    if (choice == NULL || places == NULL || cost == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a.n);
    }
    fill_choices(p, choice, places, a.n);
    a.choice = choice;
    a.cost = (const int64_t *const *)cost;
    DTP_TRY(price_nodes(&a, prices, arena, cost, &off, &fits, err));
    DTP_TRY(ascend_folded(p, rounds, arena, &folded, err));
    DTP_TRY(make_matrices(p, false, arena, &matrix, err));
    a.matrix = matrix;
    DTP_TRY(make_scratch(&a, arena, err));
    DTP_TRY(sort_nodes(&a, places, arena, err));
    DTP_TRY(link_nodes(&a, arena, err));
    share_multipliers(&folded, &a);
    ascend(&a, rounds);
    DTP_TRY(evaluate(&a, bound, err));
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
