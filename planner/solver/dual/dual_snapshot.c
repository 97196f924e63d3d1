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

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "planner/solver/reduced/bound.h"

/* Costs are only moved while their sums stay below this. */
static const double MOST_MOVED = 1e17;

/* Variables in the order of the reduced problem. order has room for all that are alive; number: by
 * variable of the reduced problem. */
static void number_variables(const solver_reduced *w, int32_t *order, int32_t *number)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        number[i] = w->variables[i].alive ? n : -1;
        if (w->variables[i].alive) {
            order[n++] = i;
        }
    }
}

static dtp_status allocate(solver_dual *d, const solver_reduced *w, dtp_err *err)
{
    int64_t strategies = 0, pieces = 0, uses = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        if (x->alive) {
            d->n_variables++;
            d->most = x->k > d->most ? x->k : d->most;
            strategies += x->k;
            pieces += x->n_pieces;
            uses += (int64_t)x->n_pieces * x->k;
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            d->n_edges++;
            d->n_phi += w->variables[edge->u].k + w->variables[edge->v].k;
        }
    }
    const int64_t variables = d->n_variables, rows = (int64_t)d->n_rows + 1;
    DTP_TRY(DTP_NEW(d->arena, d->origin, variables, err));
    DTP_TRY(DTP_NEW(d->arena, d->first, variables + 1, err));
    DTP_TRY(DTP_NEW(d->arena, d->piece_first, variables + 1, err));
    DTP_TRY(DTP_NEW(d->arena, d->adj_first, variables + 2, err));
    DTP_TRY(DTP_NEW(d->arena, d->adj_higher, variables + 1, err));
    DTP_TRY(DTP_NEW(d->arena, d->adj, 2 * (int64_t)d->n_edges, err));
    DTP_TRY(DTP_NEW(d->arena, d->cost, strategies, err));
    DTP_TRY(DTP_NEW(d->arena, d->edges, d->n_edges, err));
    DTP_TRY(DTP_NEW(d->arena, d->pieces, pieces, err));
    DTP_TRY(DTP_NEW(d->arena, d->use, uses, err));
    DTP_TRY(DTP_NEW(d->arena, d->room, d->n_rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->reduced_phi, w->n_edges, err));
    DTP_TRY(DTP_NEW(d->arena, d->phi, d->n_phi, err));
    DTP_TRY(DTP_NEW(d->arena, d->best_phi, d->n_phi, err));
    DTP_TRY(DTP_NEW(d->arena, d->multiplier, d->n_rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->best_multiplier, d->n_rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->sums, rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->excess, rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->direction, d->n_rows, err));
    DTP_TRY(DTP_NEW(d->arena, d->theta, d->most, err));
    DTP_TRY(DTP_NEW(d->arena, d->least, d->most, err));
    return DTP_OK;
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
        assert(found < 0 || list->items != NULL);
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
    DTP_TRY(DTP_MEMORY(err, list.arena));
    const dtp_status s = place_edges(d, w, number, &list, &entries, err);
    dtp_arena_destroy(list.arena);
    DTP_TRY(s);
    DTP_TRY(DTP_NEW(d->arena, d->by_lo, entries, err));
    DTP_TRY(DTP_NEW(d->arena, d->by_hi, entries, err));
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

dtp_status solver_dual_create(const solver_reduced *w, solver_dual **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    solver_dual *d = dtp_arena_alloc(arena, 1, sizeof *d);
    int32_t *number = dtp_arena_alloc(arena, (size_t)w->n_variables, sizeof *number);
    dtp_status s = DTP_MEMORY(err, d, number);
    if (s == DTP_OK) {
        *d = (solver_dual){.arena = arena,
                           .parameters = w->parameters,
                           .n_rows = w->n_rows,
                           .constant = (double)w->constant,
                           .per_usage = 1.0 / ((double)w->limit + 1.0),
                           .unit = w->unit,
                           .best = -INFINITY,
                           .rounds = w->ascended,
                           .most_origin = w->n_variables};
        s = allocate(d, w, err);
    }
    if (s == DTP_OK) {
        number_variables(w, d->origin, number);
        load_variables(d, w);
        s = load_edges(d, w, number, err);
    }
    if (s != DTP_OK) {
        dtp_arena_destroy(arena);
        return s;
    }
    load_adjacency(d);
    for (int32_t r = 0; r < w->n_rows; r++) {
        d->room[r] = (double)(w->limit - w->base[r]) * d->per_usage;
        d->multiplier[r] = w->multiplier[r] / d->per_usage;
    }
    *out = d;
    return DTP_OK;
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
    int32_t *of, *count, *number; /* of: by edge, the one of `like`, -1 = none */
    DTP_TRY(DTP_NEW(d->arena, of, d->n_edges, err));
    DTP_TRY(DTP_NEW(d->arena, count, (int64_t)like->n_edges + 1, err));
    DTP_TRY(DTP_NEW(d->arena, number, like->most_origin, err));
    for (int32_t i = 0; i < like->n_variables; i++) {
        number[like->origin[i]] = i;
    }
    for (int32_t e = 0; e < d->n_edges; e++) {
        const int32_t a = variable[d->origin[d->edges[e].lo]];
        const int32_t b = variable[d->origin[d->edges[e].hi]];
        of[e] = -1;
        if (a >= 0 && b >= 0 && a != b) {
            const int32_t x = number[a], y = number[b];
            for (int64_t i = like->adj_first[x]; i < like->adj_first[x + 1] && of[e] < 0; i++) {
                const dual_edge *l = &like->edges[like->adj[i]];
                const bool found = (l->lo == x && l->hi == y) || (l->lo == y && l->hi == x);
                of[e] = found ? like->adj[i] : -1;
            }
        }
        count[of[e] >= 0 ? of[e] : like->n_edges]++;
    }
    for (int32_t e = 0; e < d->n_edges; e++) {
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
    return DTP_OK;
}

void solver_dual_destroy(solver_dual *d)
{
    if (d != NULL) {
        dtp_arena_destroy(d->arena);
    }
}

/* ---- back into the reduced problem ---- */

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

/* Costs become reduced costs, whole numbers; the sum of what they lose goes to the constant. */
static dtp_status move_costs(const solver_dual *d, solver_reduced *w, dtp_err *err)
{
    for (int32_t e = 0; e < w->n_edges; e++) {
        solver_edge *edge = &w->edges[e];
        if (!edge->alive) {
            continue;
        }
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
