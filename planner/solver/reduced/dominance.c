/* Goldstein's criterion: t can always be replaced by s when c_s - c_t + sum over the edges of
 * max_j (e_sj - e_tj) <= 0 and s uses no more than t in every contended row. */
#include "planner/solver/reduced/presolve_internal.h"

#include <stdlib.h>

#include "core/base/safe_int.h"

/* The most that s can cost more than t over one edge; false when s excludes what t allows. */
static bool edge_excess(const solver_reduced *w, int32_t edge, int32_t x, int32_t s, int32_t t,
                        int64_t *out)
{
    const solver_view v = solver_view_from(w, edge, x);
    const solver_variable *y = &w->variables[v.other];
    bool any = false;
    int64_t most = 0;
    for (int32_t j = 0; j < y->k; j++) {
        const int64_t with_s = v.m[s * v.row + j * v.col], with_t = v.m[t * v.row + j * v.col];
        if (with_t >= DTP_FORBIDDEN || solver_dead(y, j)) {
            continue;
        }
        if (with_s >= DTP_FORBIDDEN) {
            return false;
        }
        most = !any || with_s - with_t > most ? with_s - with_t : most;
        any = true;
    }
    *out = most;
    return true;
}

static bool dominates(const solver_reduced *w, int32_t variable, int32_t s, int32_t t)
{
    const solver_variable *x = &w->variables[variable];
    int64_t excess = x->cost[s] - x->cost[t];
    for (int32_t i = 0; i < x->n_pieces; i++) {
        if (x->pieces[i].use[s] > x->pieces[i].use[t]) {
            return false;
        }
    }
    for (int32_t i = 0; i < x->n_adj; i++) {
        int64_t more = 0;
        if (!edge_excess(w, x->adj[i], variable, s, t, &more) ||
            !dtp_add_i64(excess, more, &excess)) {
            return false;
        }
    }
    return excess <= 0;
}

/* By edge of the variable: where t is cheapest, -1 = nowhere. */
static void find_witnesses(const solver_reduced *w, int32_t variable, int32_t t, int32_t *witness)
{
    const solver_variable *x = &w->variables[variable];
    for (int32_t i = 0; i < x->n_adj; i++) {
        const solver_view v = solver_view_from(w, x->adj[i], variable);
        const solver_variable *y = &w->variables[v.other];
        int64_t least = DTP_FORBIDDEN;
        witness[i] = -1;
        for (int32_t j = 0; j < y->k; j++) {
            const int64_t cost = v.m[t * v.row + j * v.col];
            if (cost < least && !solver_dead(y, j)) {
                least = cost;
                witness[i] = j;
            }
        }
    }
}

/* At the witnesses alone s already costs more than t. */
static bool refuted(const solver_reduced *w, int32_t variable, int32_t s, int32_t t,
                    const int32_t *witness)
{
    const solver_variable *x = &w->variables[variable];
    int64_t excess = x->cost[s] - x->cost[t];
    for (int32_t i = 0; i < x->n_adj; i++) {
        if (witness[i] >= 0) {
            const solver_view v = solver_view_from(w, x->adj[i], variable);
            const int64_t *at = v.m + witness[i] * v.col;
            if (at[s * v.row] >= DTP_FORBIDDEN ||
                !dtp_add_i64(excess, at[s * v.row] - at[t * v.row], &excess)) {
                return true;
            }
        }
    }
    return excess > 0;
}

static dtp_status check_variable(solver_reduced *w, int32_t variable, int32_t *witness,
                                 dtp_err *err)
{
    const solver_variable *x = &w->variables[variable];
    for (int32_t t = 0; t < x->k; t++) {
        if (solver_dead(x, t)) {
            continue;
        }
        find_witnesses(w, variable, t, witness);
        for (int32_t s = 0; s < x->k && !solver_dead(x, t); s++) {
            if (s != t && !solver_dead(x, s) && !refuted(w, variable, s, t, witness) &&
                dominates(w, variable, s, t)) {
                DTP_TRY(solver_kill(w, variable, t, &w->report.dominated, err));
            }
        }
    }
    return DTP_OK;
}

dtp_status solver_dominance(solver_reduced *w, dtp_err *err)
{
    int32_t most = 1;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const int32_t degree = w->variables[i].alive ? solver_purge(w, i) : 0;
        most = degree > most ? degree : most;
    }
    int32_t *witness = calloc((size_t)most + 1, sizeof *witness);
    DTP_TRY(DTP_MEMORY(err, witness));
    dtp_status s = DTP_OK;
    for (int32_t i = 0;
         i < w->n_variables && w->options.dominance && s == DTP_OK && !dtp_stopped(w->stop); i++) {
        solver_variable *x = &w->variables[i];
        if (x->alive && x->changed && !x->memory_changed && x->n_live > 1) {
            x->changed = false;
            s = check_variable(w, i, witness, err);
        }
    }
    free(witness);
    return s;
}
