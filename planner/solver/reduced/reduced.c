/* The reduced problem as a data structure, for the reductions (planner/solver/reduced/presolve.h).
 *
 * Edges are found by their pair of variables in a hash table, and lie in the `adj` lists of both
 * ends. Both are cleaned late: an edge that died or moved stays in them until it is met
 * (slot_valid, solver_purge). Whoever changes a matrix calls solver_touch, which queues the edge
 * for soft arc consistency (`dirty`) and for the search for functional dependencies (`check`).
 * Matrices are borrowed from the problem until they change (solver_own).
 *
 * Undo records are tables from strategies of what is left to the strategy of a variable that is
 * gone. Read backwards they complete an assignment (solver_restore); read forwards they project one
 * of the original problem (solver_project).
 */
#include "planner/solver/reduced/reduced.h"

#include <stdlib.h>
#include <string.h>

/* ---- edges by pair: open addressing; entries of edges that died or moved are stale ---- */

static uint64_t pair_key(int32_t a, int32_t b)
{
    const uint32_t lo = (uint32_t)(a < b ? a : b), hi = (uint32_t)(a < b ? b : a);
    return (uint64_t)hi << 32 | lo;
}

static uint64_t slot_of(const solver_reduced *w, uint64_t key)
{
    return (key * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (w->n_slots - 1);
}

static bool slot_valid(const solver_reduced *w, const solver_slot *s)
{
    const solver_edge *e = &w->edges[s->edge];
    return e->alive && pair_key(e->u, e->v) == s->key;
}

static int32_t find_edge(const solver_reduced *w, int32_t a, int32_t b)
{
    const uint64_t key = pair_key(a, b);
    if (w->n_slots == 0) {
        return -1;
    }
    for (uint64_t at = slot_of(w, key); w->slots[at].edge >= 0; at = (at + 1) & (w->n_slots - 1)) {
        if (w->slots[at].key == key && slot_valid(w, &w->slots[at])) {
            return w->slots[at].edge;
        }
    }
    return -1;
}

static void put_slot(solver_reduced *w, solver_slot entry)
{
    uint64_t at = slot_of(w, entry.key);
    while (w->slots[at].edge >= 0) {
        at = (at + 1) & (w->n_slots - 1);
    }
    w->slots[at] = entry;
    w->n_used++;
}

static dtp_status insert_edge(solver_reduced *w, int32_t edge, dtp_err *err)
{
    if (2 * (w->n_used + 1) > w->n_slots) {
        const uint64_t old_n = w->n_slots;
        solver_slot *old = w->slots;
        w->n_slots = old_n == 0 ? 1024 : 2 * old_n;
        w->slots = calloc(w->n_slots, sizeof *w->slots);
        if (w->slots == NULL) {
            w->slots = old;
            w->n_slots = old_n;
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for the edges of presolve");
        }
        w->n_used = 0;
        for (uint64_t i = 0; i < w->n_slots; i++) {
            w->slots[i].edge = -1;
        }
        for (uint64_t i = 0; i < old_n; i++) {
            if (old[i].edge >= 0 && slot_valid(w, &old[i])) {
                put_slot(w, old[i]);
            }
        }
        free(old);
    }
    put_slot(w, (solver_slot){pair_key(w->edges[edge].u, w->edges[edge].v), edge});
    return DTP_OK;
}

/* ---- edges ---- */

solver_view solver_view_from(const solver_reduced *w, int32_t edge, int32_t from)
{
    const solver_edge *e = &w->edges[edge];
    const int64_t cols = w->variables[e->v].k;
    return e->u == from ? (solver_view){solver_matrix(e), cols, 1, e->v}
                        : (solver_view){solver_matrix(e), 1, cols, e->u};
}

static dtp_status push(solver_queue *q, int32_t item, dtp_err *err)
{
    DTP_TRY(
        dtp_problem__reserve(&q->items, (int64_t)q->n + 1, &q->capacity, sizeof *q->items, err));
    q->items[q->n++] = item;
    return DTP_OK;
}

dtp_status solver_touch(solver_reduced *w, int32_t edge, dtp_err *err)
{
    solver_edge *e = &w->edges[edge];
    w->variables[e->u].changed = w->variables[e->v].changed = true;
    if (!e->dirty) {
        e->dirty = true;
        DTP_TRY(push(&w->dirty, edge, err));
    }
    if (!e->check) {
        e->check = true;
        DTP_TRY(push(&w->check, edge, err));
    }
    return DTP_OK;
}

dtp_status solver_own(solver_reduced *w, int32_t edge, dtp_err *err)
{
    solver_edge *e = &w->edges[edge];
    const size_t n = (size_t)w->variables[e->u].k * (size_t)w->variables[e->v].k;
    if (e->m != NULL) {
        return DTP_OK;
    }
    e->m = malloc((n + 1) * sizeof *e->m);
    DTP_TRY(DTP_MEMORY(err, e->m));
    memcpy(e->m, e->borrowed, n * sizeof *e->m);
    return DTP_OK;
}

dtp_status solver_own_all(solver_reduced *w, dtp_err *err)
{
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(solver_own(w, e, err));
        }
    }
    return DTP_OK;
}

int32_t solver_purge(solver_reduced *w, int32_t variable)
{
    solver_variable *x = &w->variables[variable];
    int32_t n = 0;
    for (int32_t i = 0; i < x->n_adj; i++) {
        const solver_edge *e = &w->edges[x->adj[i]];
        if (e->alive && (e->u == variable || e->v == variable)) {
            x->adj[n++] = x->adj[i];
        }
    }
    x->n_adj = n;
    return n;
}

void solver_drop_edge(solver_reduced *w, int32_t edge)
{
    solver_edge *e = &w->edges[edge];
    free(e->m);
    e->m = NULL;
    e->alive = false;
    w->variables[e->u].changed = w->variables[e->v].changed = true;
}

static dtp_status attach(solver_reduced *w, int32_t variable, int32_t edge, dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    DTP_TRY(dtp_problem__reserve(&x->adj, (int64_t)x->n_adj + 1, &x->cap_adj, sizeof *x->adj, err));
    x->adj[x->n_adj++] = edge;
    return DTP_OK;
}

/* Adds m to the matrix of an edge between a and b. */
static dtp_status add_into(solver_reduced *w, int32_t edge, int32_t a, const int64_t *m,
                           dtp_err *err)
{
    solver_edge *e = &w->edges[edge];
    const int64_t ku = w->variables[e->u].k, kv = w->variables[e->v].k;
    DTP_TRY(solver_own(w, edge, err));
    for (int64_t i = 0; i < ku; i++) {
        for (int64_t j = 0; j < kv; j++) {
            int64_t *to = &e->m[i * kv + j];
            *to = dtp_problem_add_cost(*to, e->u == a ? m[i * kv + j] : m[j * ku + i]);
        }
    }
    return solver_touch(w, edge, err);
}

/* Owns e.m from here on, even if it fails. */
static dtp_status new_edge(solver_reduced *w, solver_edge e, dtp_err *err)
{
    const dtp_status room = dtp_problem__reserve(&w->edges, (int64_t)w->n_edges + 1, &w->cap_edges,
                                                 sizeof *w->edges, err);
    if (room != DTP_OK) {
        free(e.m);
        return room;
    }
    const int32_t id = w->n_edges++;
    w->edges[id] = e;
    DTP_TRY(insert_edge(w, id, err));
    DTP_TRY(attach(w, e.u, id, err));
    DTP_TRY(attach(w, e.v, id, err));
    return solver_touch(w, id, err);
}

dtp_status solver_add_matrix(solver_reduced *w, int32_t a, int32_t b, int64_t *m, dtp_err *err)
{
    const int32_t found = find_edge(w, a, b);
    if (found < 0) {
        return new_edge(w, (solver_edge){.u = a, .v = b, .m = m, .alive = true}, err);
    }
    const dtp_status s = add_into(w, found, a, m, err);
    free(m);
    return s;
}

dtp_status solver_add_borrowed(solver_reduced *w, int32_t a, int32_t b, const int64_t *m,
                               dtp_err *err)
{
    const int32_t found = find_edge(w, a, b);
    return found >= 0
               ? add_into(w, found, a, m, err)
               : new_edge(w, (solver_edge){.u = a, .v = b, .borrowed = m, .alive = true}, err);
}

/* ---- strategies ---- */

dtp_status solver_kill(solver_reduced *w, int32_t variable, int32_t strategy, int64_t *counter,
                       dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    x->cost[strategy] = DTP_FORBIDDEN;
    x->changed = x->memory_changed = true;
    (*counter)++;
    if (--x->n_live == 0) {
        w->infeasible = true;
        return DTP_OK;
    }
    const int32_t degree = solver_purge(w, variable);
    for (int32_t i = 0; i < degree; i++) {
        DTP_TRY(solver_touch(w, x->adj[i], err));
    }
    return DTP_OK;
}

dtp_status solver_fix(solver_reduced *w, int32_t variable, int32_t strategy, dtp_err *err)
{
    int64_t killed = 0;
    for (int32_t s = 0; s < w->variables[variable].k && !w->infeasible; s++) {
        if (s != strategy && !solver_dead(&w->variables[variable], s)) {
            DTP_TRY(solver_kill(w, variable, s, &killed, err));
        }
    }
    return DTP_OK;
}

dtp_status solver_add_cost(solver_reduced *w, int32_t variable, int32_t strategy, int64_t cost,
                           dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    const int64_t sum = dtp_problem_add_cost(x->cost[strategy], cost);
    x->changed = x->changed || cost != 0;
    if (sum >= DTP_FORBIDDEN && !solver_dead(x, strategy)) {
        return solver_kill(w, variable, strategy, &w->report.inconsistent, err);
    }
    x->cost[strategy] = sum;
    return DTP_OK;
}

dtp_status solver_add_piece(solver_reduced *w, int32_t variable, int32_t first, int32_t last,
                            int64_t *use, dtp_err *err)
{
    solver_variable *x = &w->variables[variable];
    dtp_status s = dtp_problem__reserve(&x->pieces, (int64_t)x->n_pieces + 1, &x->cap_pieces,
                                        sizeof *x->pieces, err);
    if (s != DTP_OK) {
        free(use);
        return s;
    }
    x->pieces[x->n_pieces++] = (solver_piece){first, last, use};
    x->memory_changed = true;
    return DTP_OK;
}

dtp_status solver_add_undo(solver_reduced *w, solver_undo record, dtp_err *err)
{
    DTP_TRY(DTP_MEMORY(err, record.table));
    DTP_TRY(dtp_problem__reserve(&w->undo, w->n_undo + 1, &w->cap_undo, sizeof *w->undo, err));
    w->undo[w->n_undo++] = record;
    return DTP_OK;
}

void solver_restore_from(const solver_reduced *w, int64_t n_undo, int32_t *assignment)
{
    for (int64_t i = n_undo - 1; i >= 0; i--) {
        const solver_undo *u = &w->undo[i];
        const int64_t row = u->a >= 0 ? assignment[u->a] : 0;
        assignment[u->variable] = u->table[row * u->kb + (u->b >= 0 ? assignment[u->b] : 0)];
    }
}

void solver_restore(const solver_reduced *w, int32_t *assignment)
{
    solver_restore_from(w, w->n_undo, assignment);
}

void solver_project(const solver_reduced *w, int32_t *assignment)
{
    for (int64_t i = 0; i < w->n_undo; i++) {
        const solver_undo *u = &w->undo[i];
        int32_t at = -1;
        if (u->a != u->variable) {
            continue;
        }
        for (int32_t s = 0; s < u->kept; s++) {
            at = u->table[s] == assignment[u->variable] ? s : at;
        }
        assignment[u->variable] = at;
    }
}

/* ---- sizes and bounds ---- */

dtp_presolve_size solver_size(solver_reduced *w)
{
    dtp_presolve_size n = {.rows = w->n_rows};
    for (int32_t i = 0; i < w->n_variables; i++) {
        n.variables += w->variables[i].alive ? 1 : 0;
        n.strategies += w->variables[i].alive ? w->variables[i].n_live : 0;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        n.edges += edge->alive ? 1 : 0;
        n.entries +=
            edge->alive ? (int64_t)w->variables[edge->u].n_live * w->variables[edge->v].n_live : 0;
    }
    return n;
}

int64_t solver_least_cost(const solver_variable *x)
{
    int64_t least = DTP_FORBIDDEN;
    for (int32_t s = 0; s < x->k; s++) {
        least = x->cost[s] < least ? x->cost[s] : least;
    }
    return least;
}

int64_t solver_lower_bound(const solver_reduced *w)
{
    int64_t sum = w->constant;
    for (int32_t i = 0; i < w->n_variables; i++) {
        sum = w->variables[i].alive ? dtp_problem_add_cost(sum, solver_least_cost(&w->variables[i]))
                                    : sum;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        const int64_t *m = solver_matrix(edge);
        const int64_t n = (int64_t)w->variables[edge->u].k * w->variables[edge->v].k;
        int64_t least = DTP_FORBIDDEN;
        for (int64_t i = 0; edge->alive && i < n; i++) {
            least = m[i] < least ? m[i] : least;
        }
        sum = edge->alive ? dtp_problem_add_cost(sum, least) : sum;
    }
    return sum;
}

/* ---- compaction ---- */

/* map_u, map_v: new index -> old index, NULL = unchanged. */
static dtp_status compact_edge(solver_reduced *w, int32_t edge, const int32_t *map_u,
                               const int32_t *map_v, dtp_err *err)
{
    solver_edge *e = &w->edges[edge];
    const int32_t ku = w->variables[e->u].n_live, kv = w->variables[e->v].n_live;
    const int64_t old = w->variables[e->v].k;
    const size_t bytes = ((size_t)ku * (size_t)kv + 1) * sizeof *e->m;
    int64_t *m = e->m != NULL ? e->m : malloc(bytes), *to = m; /* never overtakes what is read */
    DTP_TRY(DTP_MEMORY(err, m));
    for (int32_t i = 0; i < ku; i++) {
        const int64_t *row = solver_matrix(e) + (map_u != NULL ? map_u[i] : i) * old;
        for (int32_t j = 0; j < kv; j++) {
            *to++ = row[map_v != NULL ? map_v[j] : j];
        }
    }
    int64_t *smaller = e->m != NULL ? realloc(m, bytes) : NULL;
    e->m = smaller != NULL ? smaller : m;
    return DTP_OK;
}

dtp_status solver_compact(solver_reduced *w, dtp_err *err)
{
    const int32_t **maps = calloc((size_t)w->n_variables + 1, sizeof *maps);
    DTP_TRY(DTP_MEMORY(err, maps));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < w->n_variables && s == DTP_OK && !w->infeasible; i++) {
        const solver_variable *x = &w->variables[i];
        if (x->alive && x->n_live < x->k) {
            int32_t *map = dtp_arena_alloc(w->arena, (size_t)x->n_live, sizeof *map);
            int32_t n = 0;
            for (int32_t t = 0; map != NULL && t < x->k; t++) {
                if (!solver_dead(x, t)) {
                    map[n++] = t;
                }
            }
            maps[i] = map;
            s = solver_add_undo(w, (solver_undo){i, i, -1, 1, map, x->n_live}, err);
        }
    }
    for (int32_t e = 0; e < w->n_edges && s == DTP_OK && !w->infeasible; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive && (maps[edge->u] != NULL || maps[edge->v] != NULL)) {
            s = compact_edge(w, e, maps[edge->u], maps[edge->v], err);
        }
    }
    for (int32_t i = 0; i < w->n_variables && s == DTP_OK; i++) {
        solver_variable *x = &w->variables[i];
        for (int32_t t = 0; maps[i] != NULL && t < x->n_live; t++) {
            x->cost[t] = x->cost[maps[i][t]];
            for (int32_t j = 0; j < x->n_pieces; j++) {
                x->pieces[j].use[t] = x->pieces[j].use[maps[i][t]];
            }
        }
        x->k = maps[i] != NULL ? x->n_live : x->k;
    }
    free(maps);
    return s;
}

/* ---- life ---- */

void solver_free_variable(solver_variable *x)
{
    for (int32_t i = 0; i < x->n_pieces; i++) {
        free(x->pieces[i].use);
    }
    free(x->pieces);
    free(x->cost);
    free(x->adj);
    *x = (solver_variable){0};
}

void solver_retire(solver_reduced *w)
{
    for (int32_t i = 0; w->variables != NULL && i < w->n_variables; i++) {
        solver_free_variable(&w->variables[i]);
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        free(w->edges[e].m);
    }
    free(w->variables);
    free(w->edges);
    free(w->slots);
    free(w->undo);
    free(w->dirty.items);
    free(w->check.items);
    free(w->time);
    free(w->base);
    free(w->multiplier);
    *w = (solver_reduced){.arena = w->arena};
}

void solver_reduced_destroy(solver_reduced *w)
{
    if (w == NULL) {
        return;
    }
    solver_retire(w);
    dtp_arena_destroy(w->arena);
    free(w);
}
