/* The multipliers of an ascent leave every node with what its strategies cost above the least one,
 * r(s), and every edge with what pairs cost above theirs, d(s, t). The bound of the problem and any
 * sum of these over a part of the graph without cycles is a lower bound of what a selection costs.
 * For a strategy s of node u that part is: u, its neighbours v, and what is next to those,
 *
 *     r(s) + sum over edges (u, v) of min_t (d(s, t) + r(t)
 *          + sum over other edges (v, w) of v of min_x (d(t, x) + r(x)))
 *
 * where the r of a node that is met again, and an edge that was used, are left out: as if there
 * were a second such node that costs nothing. */
#include "planner/tensors/strategy_bounds.h"

#include <string.h>

#include "planner/untied/ascent_exact.h"
#include "planner/untied/ascent_tied.h"

/* 2^48: some of these added up are exact in double precision, and less than 2^50. */
static const double MOST = 281474976710656.0;

/* Minima over the other end of an edge, by strategy at one end: without and with what strategies
 * there cost. */
typedef struct edge_end {
    double *bare, *full;
} edge_end;

typedef struct bounding {
    const ascent *a;
    ascent_exact exact;
    double **above;          /* by node: r */
    edge_end *end;           /* by edge: of end a, then of end b */
    int32_t *seen, *used;    /* by node, by edge: the last node whose sum has it; -1 */
    double *behind, *minima; /* scratch, by strategy */
} bounding;

static double at_most(double x)
{
    return x < MOST ? x : MOST;
}

/* ---- what is left on nodes and edges ------------------------------------------------------------
 */

static dtp_status find_above(bounding *b, dtp_arena *arena, dtp_err *err)
{
    const ascent *a = b->a;
    b->above = dtp_arena_alloc(arena, (size_t)a->n, sizeof *b->above);
    for (int32_t i = 0; i < a->n && b->above != NULL; i++) {
        const int32_t k = dtp_ascent__strategies(a, i);
        b->above[i] = dtp_arena_alloc(arena, (size_t)k, sizeof **b->above);
        if (b->above[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d bounds", k);
        }
        for (int32_t s = 0; s < k; s++) {
            const bool dead = a->cost[i][s] >= DTP_FORBIDDEN;
            const int64_t above = b->exact.theta[i][s] - b->exact.least_node[i];
            b->above[i][s] = dead || above > (int64_t)MOST ? MOST : (double)above;
        }
    }
    return b->above != NULL ? DTP_OK
                            : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d bounds", a->n);
}

/* Minima over the other end of an edge, above what the edge costs at least. */
static void find_minima(bounding *b, int32_t e, bool end_a, const double *extra, double *out)
{
    const ascent *a = b->a;
    const int32_t k = dtp_ascent__strategies(a, end_a ? a->edges[e].a : a->edges[e].b);
    dtp_ascent__exact_minima(&b->exact, e, end_a, extra, out);
    for (int32_t s = 0; s < k; s++) {
        out[s] = at_most(out[s] - b->exact.least_edge[e]);
    }
}

static dtp_status find_ends(bounding *b, dtp_arena *arena, dtp_err *err)
{
    const ascent *a = b->a;
    b->end = dtp_arena_alloc(arena, 2 * (size_t)a->n_edges, sizeof *b->end);
    for (int32_t x = 0; x < 2 * a->n_edges && b->end != NULL; x++) {
        const dtp_unfolded_edge *edge = &a->edges[x / 2];
        const bool end_a = x % 2 == 0;
        const size_t k = (size_t)dtp_ascent__strategies(a, end_a ? edge->a : edge->b);
        edge_end *end = &b->end[x];
        end->bare = dtp_arena_alloc(arena, k, sizeof *end->bare);
        end->full = dtp_arena_alloc(arena, k, sizeof *end->full);
        if (end->bare == NULL || end->full == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu bounds", k);
        }
        find_minima(b, x / 2, end_a, NULL, end->bare);
        find_minima(b, x / 2, end_a, b->above[end_a ? edge->b : edge->a], end->full);
    }
    return b->end != NULL ? DTP_OK
                          : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d edges", a->n_edges);
}

/* ---- sums ---------------------------------------------------------------------------------------
 */

static int32_t other_end(const ascent *a, int32_t e, int32_t node)
{
    return a->edges[e].a == node ? a->edges[e].b : a->edges[e].a;
}

/* b->behind: what is at neighbour v of u and behind it, by strategy of v. */
static void sum_behind(bounding *b, int32_t u, int32_t v)
{
    const ascent *a = b->a;
    const int32_t k = dtp_ascent__strategies(a, v);
    memcpy(b->behind, b->above[v], (size_t)k * sizeof *b->behind);
    for (int32_t x = a->first_arc[v]; x < a->first_arc[v + 1]; x++) {
        const int32_t e = a->arcs[x].edge, w = other_end(a, e, v);
        const edge_end *end = &b->end[2 * e + (a->edges[e].a == v ? 0 : 1)];
        const double *add = b->seen[w] == u ? end->bare : end->full;
        for (int32_t t = 0; t < k && b->used[e] != u; t++) {
            b->behind[t] = at_most(b->behind[t] + add[t]);
        }
        b->used[e] = u;
        b->seen[w] = u;
    }
}

/* The nodes next to u count once, with all that is behind them, at the first edge to them. */
static void mark_neighbours(bounding *b, int32_t u)
{
    const ascent *a = b->a;
    b->seen[u] = u;
    for (int32_t x = a->first_arc[u]; x < a->first_arc[u + 1]; x++) {
        b->used[a->arcs[x].edge] = u;
        b->seen[other_end(a, a->arcs[x].edge, u)] = u;
    }
}

/* An edge to a neighbour that an earlier edge leads to. */
static bool leads_to_known(const ascent *a, int32_t u, int32_t x)
{
    const int32_t v = other_end(a, a->arcs[x].edge, u);
    for (int32_t y = a->first_arc[u]; y < x; y++) {
        if (other_end(a, a->arcs[y].edge, u) == v) {
            return true;
        }
    }
    return false;
}

static void sum_around(bounding *b, int32_t u, int64_t *out)
{
    const ascent *a = b->a;
    const int32_t k = dtp_ascent__strategies(a, u);
    double *sum = b->above[u];
    mark_neighbours(b, u);
    for (int32_t s = 0; s < k; s++) {
        out[s] = (int64_t)sum[s];
    }
    for (int32_t x = a->first_arc[u]; x < a->first_arc[u + 1]; x++) {
        const int32_t e = a->arcs[x].edge;
        const bool known = leads_to_known(a, u, x);
        if (!known) {
            sum_behind(b, u, other_end(a, e, u));
        }
        find_minima(b, e, a->edges[e].a == u, known ? NULL : b->behind, b->minima);
        for (int32_t s = 0; s < k; s++) {
            out[s] = (int64_t)at_most((double)out[s] + b->minima[s]);
        }
    }
}

/* ---- all ----------------------------------------------------------------------------------------
 */

static dtp_status make_scratch(bounding *b, dtp_arena *arena, dtp_err *err)
{
    const ascent *a = b->a;
    size_t most = 1;
    for (int32_t i = 0; i < a->n; i++) {
        const size_t k = (size_t)dtp_ascent__strategies(a, i);
        most = k > most ? k : most;
    }
    b->seen = dtp_arena_alloc(arena, (size_t)a->n, sizeof *b->seen);
    b->used = dtp_arena_alloc(arena, (size_t)a->n_edges, sizeof *b->used);
    b->behind = dtp_arena_alloc(arena, most, sizeof *b->behind);
    b->minima = dtp_arena_alloc(arena, most, sizeof *b->minima);
    if (b->seen == NULL || b->used == NULL || b->behind == NULL || b->minima == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d bounds", a->n);
    }
    memset(b->seen, -1, (size_t)a->n * sizeof *b->seen);
    memset(b->used, -1, (size_t)a->n_edges * sizeof *b->used);
    return DTP_OK;
}

static dtp_status bound_all(const ascent *a, int64_t off, dtp_arena *arena,
                            dtp_strategy_bounds *out, dtp_err *err)
{
    bounding b = {.a = a};
    DTP_TRY(dtp_ascent__exact(a, arena, &b.exact, err));
    if (!b.exact.ok || b.exact.bound <= off) {
        return DTP_OK;
    }
    out->base = b.exact.bound - off;
    DTP_TRY(find_above(&b, arena, err));
    DTP_TRY(find_ends(&b, arena, err));
    DTP_TRY(make_scratch(&b, arena, err));
    for (int32_t u = 0; u < a->n; u++) {
        sum_around(&b, u, out->above + a->p->select->first[u]);
    }
    return DTP_OK;
}

static dtp_status find_bounds(const dtp_tensor_problem *p, int32_t n_prices,
                              const dtp_memory_multiplier *prices, dtp_arena *arena,
                              dtp_strategy_bounds *out, dtp_err *err)
{
    ascent a;
    ascent_prices x;
    int64_t off;
    bool fits;
    DTP_TRY(dtp_ascent__read_prices(p->select, n_prices, prices, arena, &x, err));
    DTP_TRY(dtp_ascent__tied(p, true, &x, arena, &a, &off, &fits, err));
    return fits ? bound_all(&a, off, arena, out, err) : DTP_OK;
}

dtp_status dtp_tensor_option_bounds(const dtp_tensor_problem *p, int32_t n_prices,
                                    const dtp_memory_multiplier *prices, dtp_arena *arena,
                                    dtp_strategy_bounds *out, dtp_err *err)
{
    const size_t n = (size_t)p->select->first[p->n_variables];
    dtp_arena *scratch = dtp_arena_create();
    *out = (dtp_strategy_bounds){.above = dtp_arena_alloc(arena, n, sizeof *out->above)};
    if (scratch == NULL || out->above == NULL) {
        dtp_arena_destroy(scratch);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu bounds", n);
    }
    const dtp_status s = find_bounds(p, n_prices, prices, scratch, out, err);
    dtp_arena_destroy(scratch);
    return s;
}
