/* Packing a reduced problem for dual ascent, and writing the multipliers back.
 *
 * create   numbers the variables that are alive, copies costs, pieces, matrices and rows into the
 *          arrays of dual_data.h in single precision. Matrices lie twice, by rows of either end; a
 *          matrix that several edges borrow is copied once. phi starts at 0, lambda at
 *          w->multiplier.
 * start    phi of another snapshot as the start: edges that stand for one edge there get equal
 *          parts of its phi.
 * bound    the best phi and lambda as an exact bound (reduced/bound.h).
 * apply    the same, then phi, rounded to integers, moves costs of w from edges to variables, and
 *          the minima of both to the constant. No cost of a solution changes.
 */
#include "planner/solver/dual/dual_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/hash_table.h"
#include "planner/solver/reduced/bound.h"

/* Costs are only moved while their sums stay below this. */
static const double MOST_MOVED = 1e17;

typedef struct sizes {
    int64_t strategies, pieces, uses;
} sizes;

/* From the root outwards, then those that are joined to none of them. order has room for all
 * variables that are alive; number: by variable of the reduced problem, -1 before. */
static int32_t number_outwards(const solver_reduced *w, int32_t root, int32_t *order,
                               int32_t *number)
{
    int32_t n = 0;
    number[root] = 0;
    order[n++] = root;
    for (int32_t at = 0; at < n; at++) {
        const solver_variable *x = &w->variables[order[at]];
        for (int32_t a = 0; a < x->n_adj; a++) {
            const solver_edge *e = &w->edges[x->adj[a]];
            const int32_t to = e->u == order[at] ? e->v : e->u;
            if (e->alive && (e->u == order[at] || e->v == order[at]) && number[to] < 0) {
                number[to] = n;
                order[n++] = to;
            }
        }
    }
    return n;
}

/* Variables in the order of the reduced problem, or with a root those farthest from it first, so
 * that it is the last one. */
static void number_variables(const solver_reduced *w, int32_t root, int32_t *order, int32_t *number)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        number[i] = -1;
    }
    int32_t n = root >= 0 ? number_outwards(w, root, order, number) : 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive && number[i] < 0) {
            order[n++] = i;
        }
    }
    for (int32_t i = 0; root >= 0 && i < n / 2; i++) {
        const int32_t other = order[i];
        order[i] = order[n - 1 - i];
        order[n - 1 - i] = other;
    }
    for (int32_t i = 0; i < n; i++) {
        number[order[i]] = i;
    }
}

static sizes measure(solver_dual *d, const solver_reduced *w)
{
    sizes n = {0};
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        if (x->alive) {
            d->n_variables++;
            d->most = x->k > d->most ? x->k : d->most;
            n.strategies += x->k;
            n.pieces += x->n_pieces;
            n.uses += (int64_t)x->n_pieces * x->k;
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            d->n_edges++;
            d->n_phi += w->variables[edge->u].k + w->variables[edge->v].k;
        }
    }
    return n;
}

/* Zeroed; not NULL for want of elements. */
static void *zeroed(bool *ok, int64_t n, size_t size)
{
    void *block = *ok ? calloc((size_t)n + 1, size) : NULL;
    *ok = block != NULL;
    return block;
}

static bool allocate(solver_dual *d, const sizes *n, int32_t n_work_edges)
{
    const int64_t variables = d->n_variables, rows = d->n_rows;
    bool ok = true;
    d->origin = zeroed(&ok, variables, sizeof *d->origin);
    d->first = zeroed(&ok, variables, sizeof *d->first);
    d->piece_first = zeroed(&ok, variables, sizeof *d->piece_first);
    d->adj_first = zeroed(&ok, variables + 1, sizeof *d->adj_first);
    d->adj_higher = zeroed(&ok, variables, sizeof *d->adj_higher);
    d->adj = zeroed(&ok, 2 * (int64_t)d->n_edges, sizeof *d->adj);
    d->cost = zeroed(&ok, n->strategies, sizeof *d->cost);
    d->edges = zeroed(&ok, d->n_edges, sizeof *d->edges);
    d->pieces = zeroed(&ok, n->pieces, sizeof *d->pieces);
    d->use = zeroed(&ok, n->uses, sizeof *d->use);
    d->room = zeroed(&ok, rows, sizeof *d->room);
    d->reduced_phi = zeroed(&ok, n_work_edges, sizeof *d->reduced_phi);
    d->phi = zeroed(&ok, d->n_phi, sizeof *d->phi);
    d->best_phi = zeroed(&ok, d->n_phi, sizeof *d->best_phi);
    d->multiplier = zeroed(&ok, rows, sizeof *d->multiplier);
    d->best_multiplier = zeroed(&ok, rows, sizeof *d->best_multiplier);
    d->sums = zeroed(&ok, rows, sizeof *d->sums);
    d->excess = zeroed(&ok, rows, sizeof *d->excess);
    d->direction = zeroed(&ok, rows, sizeof *d->direction);
    d->theta = zeroed(&ok, d->most, sizeof *d->theta);
    d->least = zeroed(&ok, d->most, sizeof *d->least);
    return ok;
}

static float single(int64_t cost)
{
    return cost >= DTP_FORBIDDEN ? SOLVER_DUAL_FORBIDDEN : (float)cost;
}

static void load_variables(solver_dual *d, const solver_reduced *w)
{
    int64_t strategy = 0, piece = 0, use = 0;
    for (int32_t variable = 0; variable < d->n_variables; variable++) {
        const solver_variable *x = &w->variables[d->origin[variable]];
        for (int32_t s = 0; s < x->k; s++) {
            d->cost[strategy++] = single(x->cost[s]);
        }
        for (int32_t j = 0; j < x->n_pieces; j++) {
            d->pieces[piece++] = (dual_piece){x->pieces[j].first, x->pieces[j].last, use};
            for (int32_t s = 0; s < x->k; s++) {
                d->use[use++] = (float)((double)x->pieces[j].use[s] * d->per_usage);
            }
        }
        d->first[variable + 1] = strategy;
        d->piece_first[variable + 1] = piece;
    }
}

/* The matrix both ways; the reduced problem may have the edge the other way round. */
static void load_matrix(solver_dual *d, const dual_edge *e, const int64_t *m, bool turned)
{
    const int64_t k_lo = d->first[e->lo + 1] - d->first[e->lo];
    const int64_t k_hi = d->first[e->hi + 1] - d->first[e->hi];
    for (int64_t i = 0; i < k_lo; i++) {
        for (int64_t j = 0; j < k_hi; j++) {
            const float cost = single(turned ? m[j * k_lo + i] : m[i * k_hi + j]);
            d->by_lo[e->matrix + i * k_hi + j] = cost;
            d->by_hi[e->matrix + j * k_lo + i] = cost;
        }
    }
}

/* A matrix that several edges borrow, seen from one side. */
typedef struct shared_matrix {
    const int64_t *m;
    bool turned;
    int64_t at; /* in by_lo, by_hi */
} shared_matrix;

typedef struct shared_matrices {
    dtp_arena *arena;
    dtp_hash_table table;
    shared_matrix *items;
    int32_t n, cap;
} shared_matrices;

/* Where the matrix of an edge lies: `end`, unless an edge before has the same one. */
static dtp_status place_matrix(shared_matrices *list, const solver_edge *edge, bool turned,
                               int64_t end, int64_t *at, dtp_err *err)
{
    const shared_matrix x = {edge->borrowed, turned, end};
    int32_t found;
    *at = end;
    if (edge->m != NULL) {
        return DTP_OK;
    }
    const uint32_t hash = dtp_hash_fold(dtp_hash_word(turned ? 1 : 0, (uintptr_t)edge->borrowed));
    uint32_t next = hash;
    do {
        found = dtp_hash_table_next(&list->table, hash, &next);
    } while (found >= 0 && (list->items[found].m != x.m || list->items[found].turned != turned));
    if (found >= 0) {
        *at = list->items[found].at;
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(list->arena, &list->items, list->n, list->n + 1, &list->cap,
                           sizeof *list->items, err));
    DTP_TRY(dtp_hash_table_add(&list->table, list->arena, hash, list->n, err));
    list->items[list->n++] = x;
    return DTP_OK;
}

/* *entries: of all different matrices. */
static dtp_status place_edges(solver_dual *d, const solver_reduced *w, const int32_t *number,
                              shared_matrices *list, int64_t *entries, dtp_err *err)
{
    int64_t phi = 0;
    int32_t n = 0;
    *entries = 0;
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (!edge->alive) {
            continue;
        }
        const int32_t ku = w->variables[edge->u].k, kv = w->variables[edge->v].k;
        const int32_t u = number[edge->u], v = number[edge->v];
        const bool turned = u > v;
        int64_t at;
        DTP_TRY(place_matrix(list, edge, turned, *entries, &at, err));
        d->edges[n++] = (dual_edge){.lo = turned ? v : u,
                                    .hi = turned ? u : v,
                                    .phi_lo = turned ? phi + ku : phi,
                                    .phi_hi = turned ? phi : phi + ku,
                                    .matrix = at};
        d->reduced_phi[e] = phi;
        phi += ku + kv;
        *entries += at == *entries ? (int64_t)ku * kv : 0;
    }
    return DTP_OK;
}

/* Edges that share a matrix share it here too. */
static dtp_status load_edges(solver_dual *d, const solver_reduced *w, const int32_t *number,
                             dtp_err *err)
{
    shared_matrices list = {.arena = dtp_arena_create()};
    int64_t entries = 0, end = 0;
    int32_t n = 0;
    bool ok = list.arena != NULL;
    const dtp_status s = ok ? place_edges(d, w, number, &list, &entries, err)
                            : DTP_FAIL(err, DTP_NOMEM, "out of memory for matrices");
    dtp_arena_destroy(list.arena);
    DTP_TRY(s);
    d->by_lo = zeroed(&ok, entries, sizeof *d->by_lo);
    d->by_hi = zeroed(&ok, entries, sizeof *d->by_hi);
    if (!ok) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld costs", (long long)entries);
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive && d->edges[n++].matrix == end) {
            load_matrix(d, &d->edges[n - 1], solver_matrix(edge),
                        number[edge->u] > number[edge->v]);
            end += (int64_t)w->variables[edge->u].k * w->variables[edge->v].k;
        }
    }
    return DTP_OK;
}

/* adj: by variable, first the edges to lower variables. */
static void load_adjacency(solver_dual *d)
{
    for (int32_t e = 0; e < d->n_edges; e++) {
        d->adj_first[d->edges[e].lo + 1]++;
        d->adj_first[d->edges[e].hi + 1]++;
        d->adj_higher[d->edges[e].hi]++;
    }
    for (int32_t i = 0; i < d->n_variables; i++) {
        d->adj_first[i + 1] += d->adj_first[i];
        d->adj_higher[i] += d->adj_first[i];
    }
    for (int32_t i = d->n_variables; i > 0;
         i--) { /* where the next lower one goes, one variable on */
        d->adj_first[i] = d->adj_first[i - 1];
    }
    for (int32_t e = 0; e < d->n_edges; e++) {
        d->adj[d->adj_higher[d->edges[e].lo]++] = e;
        d->adj[d->adj_first[d->edges[e].hi + 1]++] = e;
    }
    for (int32_t i = 0; i < d->n_variables; i++) { /* both are at the end of their stretch */
        const int64_t mid = d->adj_first[i + 1];
        d->adj_first[i + 1] = d->adj_higher[i];
        d->adj_higher[i] = mid;
    }
}

static void load_rows(solver_dual *d, const solver_reduced *w)
{
    for (int32_t r = 0; r < w->n_rows; r++) {
        d->room[r] = (double)(w->limit - w->base[r]) * d->per_usage;
        d->multiplier[r] = w->multiplier[r] / d->per_usage;
    }
}

dtp_status solver_dual_create_rooted(const solver_reduced *w, int32_t root, solver_dual **out,
                                     dtp_err *err)
{
    solver_dual *d = calloc(1, sizeof *d);
    int32_t *number = calloc((size_t)w->n_variables + 1, sizeof *number);
    bool ok = d != NULL && number != NULL;
    if (ok) {
        d->parameters = w->parameters;
        d->n_rows = w->n_rows;
        d->constant = (double)w->constant;
        d->per_usage = 1.0 / ((double)w->limit + 1.0);
        d->unit = w->unit;
        d->best = -INFINITY;
        d->rounds = w->ascended;
        d->most_origin = w->n_variables;
        const sizes n = measure(d, w);
        ok = allocate(d, &n, w->n_edges);
    }
    dtp_status s =
        ok ? DTP_OK
           : DTP_FAIL(err, DTP_NOMEM, "out of memory for the dual of %d nodes", w->n_variables);
    if (ok) {
        number_variables(w, root, d->origin, number);
        load_variables(d, w);
        s = load_edges(d, w, number, err);
    }
    free(number);
    if (s != DTP_OK) {
        solver_dual_destroy(d);
        return s;
    }
    load_adjacency(d);
    load_rows(d, w);
    *out = d;
    return DTP_OK;
}

dtp_status solver_dual_create(const solver_reduced *w, solver_dual **out, dtp_err *err)
{
    return solver_dual_create_rooted(w, -1, out, err);
}

/* The edge between two variables, in either order; -1 when there is none. */
static int32_t find_edge(const solver_dual *d, int32_t a, int32_t b)
{
    for (int64_t i = d->adj_first[a]; i < d->adj_first[a + 1]; i++) {
        const dual_edge *e = &d->edges[d->adj[i]];
        if ((e->lo == a && e->hi == b) || (e->lo == b && e->hi == a)) {
            return d->adj[i];
        }
    }
    return -1;
}

static int32_t size_of(const solver_dual *d, int32_t variable)
{
    return (int32_t)(d->first[variable + 1] - d->first[variable]);
}

/* The multipliers at the end of an edge that is a variable. */
static int64_t phi_of(const dual_edge *e, int32_t variable)
{
    return e->lo == variable ? e->phi_lo : e->phi_hi;
}

dtp_status solver_dual_start_like(solver_dual *d, const solver_dual *like, const int32_t *variable,
                                  dtp_err *err)
{
    int32_t *of = calloc((size_t)d->n_edges + 1, sizeof *of);
    int32_t *count = calloc((size_t)like->n_edges + 1, sizeof *count);
    int32_t *number = calloc((size_t)like->most_origin + 1, sizeof *number);
    const bool ok = of != NULL && count != NULL && number != NULL;
    for (int32_t i = 0; ok && i < like->n_variables; i++) {
        number[like->origin[i]] = i;
    }
    for (int32_t e = 0; ok && e < d->n_edges; e++) {
        const int32_t a = variable[d->origin[d->edges[e].lo]];
        const int32_t b = variable[d->origin[d->edges[e].hi]];
        of[e] = a >= 0 && b >= 0 && a != b ? find_edge(like, number[a], number[b]) : -1;
        count[of[e] >= 0 ? of[e] : like->n_edges]++;
    }
    for (int32_t e = 0; ok && e < d->n_edges; e++) {
        const int32_t ends[] = {d->edges[e].lo, d->edges[e].hi};
        for (int i = 0; i < 2 && of[e] >= 0; i++) {
            const int32_t other = number[variable[d->origin[ends[i]]]];
            const float *from = like->best_phi + phi_of(&like->edges[of[e]], other);
            float *to = d->phi + phi_of(&d->edges[e], ends[i]);
            const int32_t k = size_of(d, ends[i]) == size_of(like, other) ? size_of(d, ends[i]) : 0;
            for (int32_t s = 0; s < k; s++) {
                to[s] = from[s] / (float)count[of[e]];
            }
        }
    }
    free(of);
    free(count);
    free(number);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d edges", d->n_edges);
}

void solver_dual_destroy(solver_dual *d)
{
    if (d == NULL) {
        return;
    }
    free(d->origin);
    free(d->first);
    free(d->piece_first);
    free(d->adj_first);
    free(d->adj_higher);
    free(d->adj);
    free(d->cost);
    free(d->edges);
    free(d->by_lo);
    free(d->by_hi);
    free(d->pieces);
    free(d->use);
    free(d->room);
    free(d->reduced_phi);
    free(d->phi);
    free(d->best_phi);
    free(d->multiplier);
    free(d->best_multiplier);
    free(d->sums);
    free(d->excess);
    free(d->direction);
    free(d->theta);
    free(d->least);
    free(d);
}

/* ---- back into the reduced problem ----------------------------------------------------------- */

static double largest(const int64_t *cost, int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const bool finite = cost[i] < DTP_FORBIDDEN;
        most = finite && (double)cost[i] > most ? (double)cost[i] : most;
    }
    return most;
}

/* The sum of the largest costs and of the largest moves of every variable and edge. */
static double most_moved(const solver_dual *d, const solver_reduced *w)
{
    double sum = fabs((double)w->constant);
    for (int32_t i = 0; i < w->n_variables; i++) {
        sum += w->variables[i].alive ? largest(w->variables[i].cost, w->variables[i].k) : 0.0;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            const int64_t ku = w->variables[edge->u].k, kv = w->variables[edge->v].k;
            double most = 0.0;
            for (int64_t i = 0; i < ku + kv; i++) {
                most = fmax(most, fabs((double)d->best_phi[d->reduced_phi[e] + i]));
            }
            sum += largest(solver_matrix(edge), ku * kv) + 2.0 * most;
        }
    }
    return sum;
}

/* Subtracts the smallest finite cost, which it returns; 0 when there is none. */
static int64_t take_minimum(int64_t *cost, int64_t n)
{
    int64_t least = DTP_FORBIDDEN;
    for (int64_t i = 0; i < n; i++) {
        least = cost[i] < least ? cost[i] : least;
    }
    for (int64_t i = 0; i < n && least < DTP_FORBIDDEN; i++) {
        cost[i] -= cost[i] < DTP_FORBIDDEN ? least : 0;
    }
    return least < DTP_FORBIDDEN ? least : 0;
}

static dtp_status move_edge(const solver_dual *d, solver_reduced *w, int32_t e, dtp_err *err)
{
    solver_edge *edge = &w->edges[e];
    solver_variable *u = &w->variables[edge->u], *v = &w->variables[edge->v];
    const float *phi_u = d->best_phi + d->reduced_phi[e], *phi_v = phi_u + u->k;
    DTP_TRY(solver_own(w, e, err));
    for (int32_t i = 0; i < u->k; i++) {
        const int64_t to_u = llroundf(phi_u[i]);
        for (int32_t j = 0; j < v->k; j++) {
            int64_t *at = &edge->m[(int64_t)i * v->k + j];
            const bool dead = solver_dead(u, i) || solver_dead(v, j) || *at >= DTP_FORBIDDEN;
            *at = dead ? DTP_FORBIDDEN : *at - to_u - llroundf(phi_v[j]);
        }
    }
    w->constant += take_minimum(edge->m, (int64_t)u->k * v->k);
    for (int32_t i = 0; i < u->k; i++) {
        u->cost[i] += solver_dead(u, i) ? 0 : llroundf(phi_u[i]);
    }
    for (int32_t j = 0; j < v->k; j++) {
        v->cost[j] += solver_dead(v, j) ? 0 : llroundf(phi_v[j]);
    }
    return DTP_OK;
}

static dtp_status move_costs(const solver_dual *d, solver_reduced *w, dtp_err *err)
{
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(move_edge(d, w, e, err));
        }
    }
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive) {
            w->constant += take_minimum(w->variables[i].cost, w->variables[i].k);
        }
    }
    return DTP_OK;
}

dtp_status solver_dual_bound(const solver_dual *d, solver_reduced *w, bool fix, int64_t *bound,
                             dtp_err *err)
{
    solver_multipliers m = {.edge_phi = d->reduced_phi};
    m.phi = malloc(((size_t)d->n_phi + 1) * sizeof *m.phi);
    m.lambda = w->multiplier;
    if (m.phi == NULL) {
        return DTP_MEMORY(err, m.phi);
    }
    for (int64_t i = 0; i < d->n_phi; i++) {
        m.phi[i] = (double)d->best_phi[i];
    }
    for (int32_t r = 0; r < d->n_rows; r++) {
        w->multiplier[r] = d->best_multiplier[r] * d->per_usage;
    }
    const dtp_status s = solver_bound(w, &m, fix, bound, err);
    free(m.phi);
    return s;
}

dtp_status solver_dual_apply(const solver_dual *d, solver_reduced *w, bool fix, int64_t *bound,
                             dtp_err *err)
{
    w->unit = d->unit;
    w->ascended = d->rounds;
    DTP_TRY(solver_dual_bound(d, w, fix, bound, err));
    return !w->infeasible && most_moved(d, w) < MOST_MOVED ? move_costs(d, w, err) : DTP_OK;
}
