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

/* Over one edge: where a strategy is cheapest, -1 = nowhere, and what it costs there. */
typedef struct witness {
    int64_t cost;
    int32_t at;
} witness;

/* By edge and strategy of the variable; in the order of the matrix. */
static void find_witnesses(const solver_reduced *w, int32_t variable, witness *out)
{
    const solver_variable *x = &w->variables[variable];
    for (int32_t i = 0; i < x->n_adj; i++) {
        const solver_view v = solver_view_from(w, x->adj[i], variable);
        const solver_variable *y = &w->variables[v.other];
        const bool across = v.row < v.col;
        const int32_t lines = across ? y->k : x->k, n = across ? x->k : y->k;
        witness *best = out + (int64_t)i * x->k;
        for (int32_t t = 0; t < x->k; t++) {
            best[t] = (witness){DTP_FORBIDDEN, -1};
        }
        for (int32_t a = 0; a < lines; a++) {
            const int64_t *line = v.m + (int64_t)a * n;
            for (int32_t b = 0; b < n; b++) {
                const int32_t t = across ? b : a, j = across ? a : b;
                if (line[b] < best[t].cost && !solver_dead(y, j)) {
                    best[t] = (witness){line[b], j};
                }
            }
        }
    }
}

/* At the witnesses of t alone s already costs more than t. Costs are not negative, so `left`, what
 * t costs at those that are not looked at yet, is the most that s can be cheaper there. */
static bool refuted(const solver_reduced *w, int32_t variable, int32_t s, int32_t t,
                    const witness *of, int64_t left)
{
    const solver_variable *x = &w->variables[variable];
    int64_t excess = x->cost[s] - x->cost[t];
    for (int32_t i = 0; i < x->n_adj && excess <= left; i++) {
        const witness *here = &of[(int64_t)i * x->k + t];
        if (here->at >= 0) {
            const solver_view v = solver_view_from(w, x->adj[i], variable);
            const int64_t cost = v.m[s * v.row + here->at * v.col];
            if (cost >= DTP_FORBIDDEN || !dtp_add_i64(excess, cost - here->cost, &excess)) {
                return true;
            }
            left -= here->cost;
        }
    }
    return excess > 0;
}

static dtp_status check_variable(solver_reduced *w, int32_t variable, witness *of, dtp_err *err)
{
    const solver_variable *x = &w->variables[variable];
    find_witnesses(w, variable, of);
    for (int32_t t = 0; t < x->k; t++) {
        int64_t least = 0;
        for (int32_t i = 0; i < x->n_adj; i++) {
            const witness *here = &of[(int64_t)i * x->k + t];
            least = here->at >= 0 ? dtp_problem_add_cost(least, here->cost) : least;
        }
        for (int32_t s = 0; s < x->k && !solver_dead(x, t); s++) {
            if (s != t && !solver_dead(x, s) && !refuted(w, variable, s, t, of, least) &&
                dominates(w, variable, s, t)) {
                DTP_TRY(solver_kill(w, variable, t, &w->report.dominated, err));
            }
        }
    }
    return DTP_OK;
}

dtp_status solver_dominance(solver_reduced *w, dtp_err *err)
{
    int64_t most = 1;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const int32_t degree = w->variables[i].alive ? solver_purge(w, i) : 0;
        most =
            degree * (int64_t)w->variables[i].k > most ? degree * (int64_t)w->variables[i].k : most;
    }
    witness *of = calloc((size_t)most + 1, sizeof *of);
    DTP_TRY(DTP_MEMORY(err, of));
    dtp_status s = DTP_OK;
    for (int32_t i = 0;
         i < w->n_variables && w->options.dominance && s == DTP_OK && !dtp_stopped(w->stop); i++) {
        solver_variable *x = &w->variables[i];
        if (x->alive && x->changed && !x->memory_changed && x->n_live > 1) {
            x->changed = false;
            s = check_variable(w, i, of, err);
        }
    }
    free(of);
    return s;
}
