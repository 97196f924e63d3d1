/* Functional merges: where every strategy of x leaves exactly one finite strategy of its neighbour
 * y, the assignment of y follows from that of x, and y joins x. Edges that become parallel are
 * added, which makes new maps. */
#include "planner/solver/reduced/presolve_internal.h"

#include <stdlib.h>
#include <string.h>

/* Fills map with the partner of every strategy of x across the edge; false when one has none or
 * several. Expects live strategies only. */
static bool find_map(const solver_reduced *w, int32_t edge, int32_t x, int32_t *map)
{
    const solver_view v = solver_view_from(w, edge, x);
    const int32_t ky = w->variables[v.other].k;
    for (int32_t s = 0; s < w->variables[x].k; s++) {
        map[s] = -1;
        for (int32_t t = 0; t < ky; t++) {
            if (v.m[s * v.row + t * v.col] < DTP_FORBIDDEN) {
                if (map[s] >= 0) {
                    return false;
                }
                map[s] = t;
            }
        }
        if (map[s] < 0) {
            return false;
        }
    }
    return true;
}

/* Entries that the matrices of y's other edges gain when its strategies are replaced by those of x.
 */
static int64_t growth(solver_reduced *w, int32_t x, int32_t y)
{
    const int64_t more = w->variables[x].k - w->variables[y].k;
    const int32_t degree = solver_purge(w, y);
    int64_t sum = 0;
    for (int32_t i = 0; more > 0 && i < degree; i++) {
        const int32_t z = solver_view_from(w, w->variables[y].adj[i], y).other;
        sum += z != x ? more * w->variables[z].k : 0;
    }
    return sum;
}

static dtp_status move_edge(solver_reduced *w, int32_t edge, int32_t y, int32_t x,
                            const int32_t *map, dtp_err *err)
{
    const solver_view v = solver_view_from(w, edge, y);
    const int32_t kx = w->variables[x].k, kz = w->variables[v.other].k;
    int64_t *m = malloc((size_t)kx * (size_t)kz * sizeof *m);
    DTP_TRY(DTP_MEMORY(err, m));
    for (int32_t s = 0; s < kx; s++) {
        for (int32_t j = 0; j < kz; j++) {
            m[(int64_t)s * kz + j] = v.m[map[s] * v.row + j * v.col];
        }
    }
    solver_drop_edge(w, edge);
    return solver_add_matrix(w, x, v.other, m, err);
}

/* y joins x; `map` comes from the arena. */
static dtp_status merge(solver_reduced *w, int32_t edge, int32_t x, int32_t y, const int32_t *map,
                        dtp_err *err)
{
    const solver_view v = solver_view_from(w, edge, x);
    DTP_TRY(solver_add_undo(w, (solver_undo){y, x, -1, 1, map, 0}, err));
    for (int32_t s = 0; s < w->variables[x].k; s++) {
        const int64_t pair = v.m[s * v.row + map[s] * v.col];
        DTP_TRY(solver_add_cost(w, x, s, pair, err));
        DTP_TRY(solver_add_cost(w, x, s, w->variables[y].cost[map[s]], err));
    }
    solver_drop_edge(w, edge);
    const int32_t degree = solver_purge(w, y);
    for (int32_t i = 0; i < degree; i++) {
        DTP_TRY(move_edge(w, w->variables[y].adj[i], y, x, map, err));
    }
    for (int32_t i = 0; i < w->variables[y].n_pieces; i++) {
        const solver_piece *piece = &w->variables[y].pieces[i];
        int64_t *use = malloc((size_t)w->variables[x].k * sizeof *use);
        DTP_TRY(DTP_MEMORY(err, use));
        for (int32_t s = 0; s < w->variables[x].k; s++) {
            use[s] = piece->use[map[s]];
        }
        DTP_TRY(solver_add_piece(w, x, piece->first, piece->last, use, err));
    }
    solver_free_variable(&w->variables[y]);
    w->report.merged_variables++;
    return DTP_OK;
}

static dtp_status try_merge(solver_reduced *w, int32_t edge, int32_t x, int32_t y, bool *done,
                            dtp_err *err)
{
    const int64_t kx = w->variables[x].k, ky = w->variables[y].k;
    *done = false;
    if (kx < ky && w->options.soft_arc_consistency) {
        return DTP_OK; /* in the second case some strategy of y would be without partner */
    }
    int32_t *map = malloc((size_t)kx * sizeof *map);
    DTP_TRY(DTP_MEMORY(err, map));
    if (find_map(w, edge, x, map) &&
        growth(w, x, y) <= w->parameters->merge_growth * kx * ky + w->parameters->merge_entries) {
        int32_t *kept = dtp_arena_alloc(w->arena, (size_t)kx, sizeof *kept);
        if (kept != NULL) {
            memcpy(kept, map, (size_t)kx * sizeof *kept);
        }
        free(map);
        *done = true;
        return kept != NULL ? merge(w, edge, x, y, kept, err)
                            : DTP_FAIL(err, DTP_NOMEM, "out of memory for undo records");
    }
    free(map);
    return DTP_OK;
}

/* Expects compact variables. Merges may leave strategies without partner, for solver_propagate. */
dtp_status solver_merge_dependent(solver_reduced *w, dtp_err *err)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < w->check.n && !w->infeasible; i++) {
        const int32_t edge = w->check.items[i];
        bool done = false;
        w->edges[edge].check = false;
        if (!w->edges[edge].alive || !w->options.functional_dependency || dtp_stopped(w->stop)) {
            continue;
        }
        int32_t x = w->edges[edge].u, y = w->edges[edge].v;
        if (w->variables[x].n_live < w->variables[x].k ||
            w->variables[y].n_live < w->variables[y].k) {
            w->edges[edge].check = true; /* once the variables are compact again */
            w->check.items[kept++] = edge;
            continue;
        }
        if (w->variables[x].n_adj < w->variables[y].n_adj) { /* the smaller one moves */
            x = w->edges[edge].v;
            y = w->edges[edge].u;
        }
        DTP_TRY(try_merge(w, edge, x, y, &done, err));
        if (!done) {
            DTP_TRY(try_merge(w, edge, y, x, &done, err));
        }
    }
    w->check.n = kept;
    return DTP_OK;
}
