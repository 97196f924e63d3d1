/* Copies of a reduced problem that can be reduced further: of all of it, or of what matters once
 * one variable is decided. */
#include "planner/solver/reduced/copy.h"

#include <stdlib.h>
#include <string.h>

/* maps: by variable, the strategies that are copied (old indices), NULL: all of them; counts: how
 * many. Neither is there for a copy of everything. */
typedef struct selection {
    const int32_t **maps;
    int32_t *counts;
} selection;

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = calloc(bytes + 1, 1);
    if (copy != NULL && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

static int32_t size_of(const solver_reduced *w, const selection *s, int32_t variable)
{
    return s != NULL ? s->counts[variable] : w->variables[variable].k;
}

static const int32_t *map_of(const selection *s, int32_t variable)
{
    return s != NULL ? s->maps[variable] : NULL;
}

static int64_t *copy_line(const int64_t *from, int32_t n, const int32_t *map)
{
    int64_t *line = malloc(((size_t)n + 1) * sizeof *line);
    for (int32_t i = 0; line != NULL && i < n; i++) {
        line[i] = from[map != NULL ? map[i] : i];
    }
    return line;
}

static dtp_status copy_variable(solver_reduced *to, const solver_reduced *w, const selection *s,
                                int32_t i, dtp_err *err)
{
    const solver_variable *x = &w->variables[i];
    solver_variable *y = &to->variables[i];
    const int32_t k = size_of(w, s, i);
    if (!x->alive) {
        return DTP_OK;
    }
    *y = (solver_variable){.k = k, .alive = true, .kept = x->kept && s == NULL, .changed = true};
    y->cost = copy_line(x->cost, k, map_of(s, i));
    DTP_TRY(DTP_MEMORY(err, y->cost));
    for (int32_t t = 0; t < k; t++) {
        y->n_live += solver_dead(y, t) ? 0 : 1;
    }
    for (int32_t j = 0; j < x->n_pieces; j++) {
        int64_t *use = copy_line(x->pieces[j].use, k, map_of(s, i));
        DTP_TRY(DTP_MEMORY(err, use));
        DTP_TRY(solver_add_piece(to, i, x->pieces[j].first, x->pieces[j].last, use, err));
    }
    return map_of(s, i) != NULL
               ? solver_add_undo(to, (solver_undo){i, i, -1, 1, map_of(s, i), k}, err)
               : DTP_OK;
}

static dtp_status copy_edge(solver_reduced *to, const solver_reduced *w, const selection *s,
                            const solver_edge *e, dtp_err *err)
{
    const int32_t ku = size_of(w, s, e->u), kv = size_of(w, s, e->v);
    const int32_t *map_u = map_of(s, e->u);
    const int64_t *from = solver_matrix(e), cols = w->variables[e->v].k;
    if (ku == w->variables[e->u].k && kv == cols) {
        return solver_add_borrowed(to, e->u, e->v, from, err);
    }
    int64_t *m = malloc(((size_t)ku * (size_t)kv + 1) * sizeof *m);
    DTP_TRY(DTP_MEMORY(err, m));
    for (int32_t i = 0; i < ku; i++) {
        const int64_t *row = from + (map_u != NULL ? map_u[i] : i) * cols;
        const int32_t *map = map_of(s, e->v);
        for (int32_t j = 0; j < kv; j++) {
            m[(size_t)i * (size_t)kv + (size_t)j] = row[map != NULL ? map[j] : j];
        }
    }
    return solver_add_matrix(to, e->u, e->v, m, err);
}

/* All but the variables and edges. */
static dtp_status copy_rest(solver_reduced *to, const solver_reduced *w, dtp_err *err)
{
    *to = (solver_reduced){.p = w->p,
                           .n_variables = w->n_variables,
                           .n_rows = w->n_rows,
                           .limit = w->limit,
                           .unit = w->unit,
                           .ascended = w->ascended,
                           .constant = w->constant,
                           .cutoff = w->cutoff,
                           .stop = w->stop,
                           .infeasible = w->infeasible,
                           .options = w->options,
                           .parameters = w->parameters};
    to->arena = dtp_arena_create();
    to->variables = calloc((size_t)w->n_variables + 1, sizeof *to->variables);
    to->time = copy_of(w->time, (size_t)w->n_rows * sizeof *w->time);
    to->base = copy_of(w->base, (size_t)w->n_rows * sizeof *w->base);
    to->multiplier = copy_of(w->multiplier, (size_t)w->n_rows * sizeof *w->multiplier);
    to->undo = copy_of(w->undo, (size_t)w->n_undo * sizeof *w->undo);
    to->n_undo = to->cap_undo = to->undo != NULL ? w->n_undo : 0;
    const bool ok = to->arena != NULL && to->variables != NULL && to->time != NULL &&
                    to->base != NULL && to->multiplier != NULL && to->undo != NULL;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy");
}

static dtp_status copy_all(solver_reduced *to, const solver_reduced *w, const selection *s,
                           dtp_err *err)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        DTP_TRY(copy_variable(to, w, s, i, err));
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(copy_edge(to, w, s, &w->edges[e], err));
        }
    }
    return DTP_OK;
}

dtp_status solver_copy(const solver_reduced *w, solver_reduced **out, dtp_err *err)
{
    solver_reduced *to = calloc(1, sizeof *to);
    DTP_TRY(DTP_MEMORY(err, to));
    dtp_status s = copy_rest(to, w, err);
    s = s == DTP_OK ? copy_all(to, w, NULL, err) : s;
    if (s != DTP_OK) {
        solver_reduced_destroy(to);
        return s;
    }
    *out = to;
    return DTP_OK;
}

/* ---- one variable decided -------------------------------------------------------------------- */

/* Costs beside the decided variable, by strategy of all variables. */
typedef struct beside {
    int64_t *first; /* by variable: in cost */
    int64_t *cost;
    int64_t *least; /* by variable */
    int64_t sum;    /* no solution costs less */
} beside;

static void find_costs(const solver_reduced *w, int32_t variable, int32_t strategy, beside *b)
{
    int64_t at = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        b->first[i] = at;
        for (int32_t t = 0; x->alive && t < x->k; t++) {
            b->cost[at++] = i == variable && t != strategy ? DTP_FORBIDDEN : x->cost[t];
        }
    }
    for (int32_t a = 0; a < w->variables[variable].n_adj; a++) {
        const int32_t edge = w->variables[variable].adj[a];
        const solver_edge *e = &w->edges[edge];
        if (!e->alive || (e->u != variable && e->v != variable)) {
            continue;
        }
        const solver_view v = solver_view_from(w, edge, variable);
        int64_t *cost = b->cost + b->first[v.other];
        for (int32_t t = 0; t < w->variables[v.other].k; t++) {
            cost[t] = dtp_problem_add_cost(cost[t], v.m[strategy * v.row + t * v.col]);
        }
    }
    b->sum = w->constant;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        b->least[i] = DTP_FORBIDDEN;
        for (int32_t t = 0; x->alive && t < x->k; t++) {
            const int64_t cost = b->cost[b->first[i] + t];
            b->least[i] = cost < b->least[i] ? cost : b->least[i];
        }
        b->sum = x->alive ? dtp_problem_add_cost(b->sum, b->least[i]) : b->sum;
    }
}

/* scratch: for what the copy does not keep. */
static dtp_status copy_selected(solver_reduced *to, const solver_reduced *w, int32_t variable,
                                int32_t strategy, dtp_arena *scratch, dtp_err *err)
{
    beside b = {0};
    selection s = {0};
    int64_t n = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        n += w->variables[i].alive ? w->variables[i].k : 0;
    }
    DTP_TRY(DTP_NEW(scratch, b.first, w->n_variables, err));
    DTP_TRY(DTP_NEW(scratch, b.least, w->n_variables, err));
    DTP_TRY(DTP_NEW(scratch, b.cost, n, err));
    DTP_TRY(DTP_NEW(scratch, s.maps, w->n_variables, err));
    DTP_TRY(DTP_NEW(scratch, s.counts, w->n_variables, err));
    find_costs(w, variable, strategy, &b);
    DTP_TRY(copy_rest(to, w, err));
    to->infeasible = to->infeasible || b.sum >= w->cutoff;
    if (to->infeasible) {
        return DTP_OK;
    }
    /* what does not lift the sum to the cutoff on its own */
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        int32_t *map = NULL;
        if (x->alive) {
            DTP_TRY(DTP_NEW(to->arena, map, x->k, err));
        }
        for (int32_t t = 0; x->alive && t < x->k; t++) {
            const int64_t cost = b.cost[b.first[i] + t];
            if (cost < DTP_FORBIDDEN && b.sum - b.least[i] + cost < w->cutoff) {
                map[s.counts[i]++] = t;
            }
        }
        s.maps[i] = map;
    }
    return copy_all(to, w, &s, err);
}

dtp_status solver_copy_with(const solver_reduced *w, int32_t variable, int32_t strategy,
                            solver_reduced **out, dtp_err *err)
{
    solver_reduced *to = calloc(1, sizeof *to);
    dtp_arena *scratch = dtp_arena_create();
    dtp_status status = DTP_MEMORY(err, to, scratch);
    if (status == DTP_OK) {
        status = copy_selected(to, w, variable, strategy, scratch, err);
    }
    dtp_arena_destroy(scratch);
    if (status != DTP_OK) {
        solver_reduced_destroy(to);
        return status;
    }
    *out = to;
    return DTP_OK;
}
