/* Presolve: reductions in turn to a fixed point. Soft arc consistency and incumbent filtering are
 * here, the other reductions in files of their own (presolve_internal.h).
 *
 * Soft arc consistency of one edge at a time, to a fixed point: a strategy without a partner across
 * an edge is dropped, and the smallest cost of every row and column moves into the variable, so
 * that the lower bound is the sum of the minima of variables and edges. An edge that is zero
 * afterwards is separable and goes. Incumbent filtering: entries that lift the lower bound to the
 * cutoff are forbidden. */
#include "planner/solver/reduced/presolve.h"

#include "planner/solver/reduced/memory_rows.h"
#include "planner/solver/reduced/presolve_internal.h"

dtp_presolve_options dtp_presolve_options_init(void)
{
    return (dtp_presolve_options){true, true, true, true, true, true};
}

/* ---- soft arc consistency ---- */

typedef struct side {
    int32_t variable, other;
    int64_t step, other_step; /* in the matrix, from one strategy to the next */
} side;

/* The smallest cost of every line moves into the variable. */
static dtp_status clean_side(solver_reduced *w, int32_t edge, const side *d, dtp_err *err)
{
    const solver_variable *x = &w->variables[d->variable], *y = &w->variables[d->other];
    for (int32_t i = 0; i < x->k && !w->infeasible; i++) {
        const int64_t *line = solver_matrix(&w->edges[edge]) + i * d->step;
        int64_t least = solver_dead(x, i) ? 0 : DTP_FORBIDDEN; /* or what shows: not above 0 */
        for (int32_t j = 0; j < y->k && least > 0; j++) {
            const int64_t at = line[j * d->other_step];
            least = at < least && !solver_dead(y, j) ? at : least;
        }
        if (least >= DTP_FORBIDDEN) {
            DTP_TRY(solver_kill(w, d->variable, i, &w->report.inconsistent, err));
        } else if (least > 0) {
            DTP_TRY(solver_own(w, edge, err));
            int64_t *own = w->edges[edge].m + i * d->step;
            for (int32_t j = 0; j < y->k; j++) {
                int64_t *at = &own[j * d->other_step];
                *at = *at >= DTP_FORBIDDEN || solver_dead(y, j) ? DTP_FORBIDDEN : *at - least;
            }
            DTP_TRY(solver_add_cost(w, d->variable, i, least, err));
        }
    }
    return DTP_OK;
}

static bool is_zero(const solver_reduced *w, const solver_edge *e)
{
    const solver_variable *x = &w->variables[e->u], *y = &w->variables[e->v];
    const int64_t *m = solver_matrix(e);
    for (int32_t i = 0; i < x->k; i++) {
        for (int32_t j = 0; j < y->k; j++) {
            if (m[(int64_t)i * y->k + j] != 0 && !solver_dead(x, i) && !solver_dead(y, j)) {
                return false;
            }
        }
    }
    return true;
}

dtp_status solver_propagate(solver_reduced *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->dirty.n && !w->infeasible; i++) {
        const int32_t edge = w->dirty.items[i];
        const solver_edge *e = &w->edges[edge];
        w->edges[edge].dirty = false;
        if (!e->alive || !w->options.soft_arc_consistency) {
            continue;
        }
        const int64_t cols = w->variables[e->v].k;
        const side rows_side = {e->u, e->v, cols, 1}, cols_side = {e->v, e->u, 1, cols};
        DTP_TRY(clean_side(w, edge, &rows_side, err));
        DTP_TRY(clean_side(w, edge, &cols_side, err));
        if (!w->infeasible && is_zero(w, e)) {
            solver_drop_edge(w, edge);
            w->report.separable_edges++;
        }
    }
    w->dirty.n = 0;
    return DTP_OK;
}

/* ---- incumbent filtering ---- */

/* Forbids the finite entries of an edge that are above its smallest by `room` or more. */
static dtp_status cap_edge(solver_reduced *w, int32_t edge, int64_t room, dtp_err *err)
{
    const solver_edge *e = &w->edges[edge];
    const int64_t *m = solver_matrix(e);
    const int64_t n = (int64_t)w->variables[e->u].k * w->variables[e->v].k;
    int64_t least = DTP_FORBIDDEN, largest = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        least = m[i] < least ? m[i] : least;
        largest = m[i] > largest && m[i] < DTP_FORBIDDEN ? m[i] : largest;
    }
    const int64_t most = dtp_problem_add_cost(least, room);
    if (largest < most) {
        return DTP_OK;
    }
    DTP_TRY(solver_own(w, edge, err));
    for (int64_t i = 0; i < n; i++) {
        if (e->m[i] >= most && e->m[i] < DTP_FORBIDDEN) {
            e->m[i] = DTP_FORBIDDEN;
            w->report.filtered_entries++;
        }
    }
    return solver_touch(w, edge, err);
}

static dtp_status filter_by_incumbent(solver_reduced *w, dtp_err *err)
{
    const int64_t bound = solver_lower_bound(w);
    if (bound >= w->cutoff) {
        w->infeasible = true;
        return DTP_OK;
    }
    const int64_t room = w->cutoff - bound;
    for (int32_t i = 0; i < w->n_variables && !w->infeasible; i++) {
        const solver_variable *x = &w->variables[i];
        const int64_t most = x->alive ? dtp_problem_add_cost(solver_least_cost(x), room) : 0;
        for (int32_t s = 0; x->alive && s < x->k && !w->infeasible; s++) {
            if (x->cost[s] >= most && !solver_dead(x, s)) {
                DTP_TRY(solver_kill(w, i, s, &w->report.filtered, err));
            }
        }
    }
    for (int32_t e = 0; e < w->n_edges && !w->infeasible; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(cap_edge(w, e, room, err));
        }
    }
    return DTP_OK;
}

/* ---- the order ---- */

/* Consistency and merges until neither finds work; variables are compact afterwards. */
static dtp_status settle(solver_reduced *w, dtp_err *err)
{
    do {
        DTP_TRY(solver_propagate(w, err));
        DTP_TRY(solver_compact(w, err));
        if (!w->infeasible) {
            DTP_TRY(solver_merge_dependent(w, err));
        }
    } while (!w->infeasible && w->dirty.n > 0);
    return DTP_OK;
}

dtp_status solver_presolve(solver_reduced *w, dtp_err *err)
{
    int64_t before = -1;
    while (!w->infeasible && !dtp_stopped(w->stop)) {
        DTP_TRY(settle(w, err));
        if (w->options.incumbent_filter && !w->infeasible) {
            DTP_TRY(filter_by_incumbent(w, err));
            DTP_TRY(settle(w, err));
        }
        const dtp_presolve_size size = solver_size(w);
        const int64_t now = size.variables + size.strategies + size.edges;
        if (w->infeasible || now == before) {
            break;
        }
        before = now;
        DTP_TRY(solver_memory_refresh(w, err));
        DTP_TRY(settle(w, err));
        if (!w->infeasible) {
            DTP_TRY(solver_eliminate(w, err));
            DTP_TRY(settle(w, err));
        }
        if (!w->infeasible) {
            DTP_TRY(solver_memory_refresh(w, err));
            DTP_TRY(settle(w, err));
            DTP_TRY(solver_dominance(w, err));
        }
    }
    if (!w->infeasible) {
        DTP_TRY(solver_memory_refresh(w, err));
        DTP_TRY(settle(w, err));
    }
    w->report.after = solver_size(w);
    return DTP_OK;
}
