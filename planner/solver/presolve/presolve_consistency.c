/* Consistency of one edge at a time, to a fixed point: a strategy without a partner across an edge
 * is dropped, and the smallest cost of every row and column moves into the node, so that what a
 * node or an edge costs at least can be read off. An edge that is zero afterwards is separable and
 * goes. With a cutoff, entries that lift the sum of these minima to it are forbidden. */
#include "planner/solver/reduced/work.h"

typedef struct side {
    int32_t node, other;
    int64_t step, other_step; /* in the matrix, from one strategy to the next */
} side;

/* Of a line, or what shows that it is not above 0. */
static int64_t line_minimum(const solver_work *w, const int64_t *m, const side *d, int32_t i)
{
    const solver_node *y = &w->nodes[d->other];
    int64_t least = DTP_FORBIDDEN;
    for (int32_t j = 0; j < y->k && least > 0; j++) {
        const int64_t at = m[i * d->step + j * d->other_step];
        least = at < least && !solver_dead(y, j) ? at : least;
    }
    return least;
}

static dtp_status move_minimum(solver_work *w, int32_t edge, const side *d, int32_t i,
                               int64_t least, dtp_err *err)
{
    const solver_node *y = &w->nodes[d->other];
    DTP_TRY(solver_own(w, edge, err));
    int64_t *m = w->edges[edge].m;
    for (int32_t j = 0; j < y->k; j++) {
        int64_t *at = &m[i * d->step + j * d->other_step];
        *at = *at >= DTP_FORBIDDEN || solver_dead(y, j) ? DTP_FORBIDDEN : *at - least;
    }
    return solver_add_cost(w, d->node, i, least, err);
}

static dtp_status clean_side(solver_work *w, int32_t edge, const side *d, dtp_err *err)
{
    const solver_node *x = &w->nodes[d->node];
    for (int32_t i = 0; i < x->k && !w->infeasible; i++) {
        if (solver_dead(x, i)) {
            continue;
        }
        const int64_t least = line_minimum(w, solver_matrix(&w->edges[edge]), d, i);
        if (least >= DTP_FORBIDDEN) {
            DTP_TRY(solver_kill(w, d->node, i, &w->report.inconsistent, err));
        } else if (least > 0) {
            DTP_TRY(move_minimum(w, edge, d, i, least, err));
        }
    }
    return DTP_OK;
}

static bool is_zero(const solver_work *w, const solver_edge *e)
{
    const solver_node *x = &w->nodes[e->u], *y = &w->nodes[e->v];
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

static dtp_status clean(solver_work *w, int32_t edge, dtp_err *err)
{
    const solver_edge *e = &w->edges[edge];
    const int64_t cols = w->nodes[e->v].k;
    const side rows_side = {e->u, e->v, cols, 1}, cols_side = {e->v, e->u, 1, cols};
    DTP_TRY(clean_side(w, edge, &rows_side, err));
    DTP_TRY(clean_side(w, edge, &cols_side, err));
    if (!w->infeasible && is_zero(w, &w->edges[edge])) {
        solver_drop_edge(w, edge);
        w->report.separable_edges++;
    }
    return DTP_OK;
}

dtp_status solver_propagate(solver_work *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->dirty.n && !w->infeasible; i++) {
        const int32_t edge = w->dirty.items[i];
        w->edges[edge].dirty = false;
        if (w->edges[edge].alive && w->options.consistency) {
            DTP_TRY(clean(w, edge, err));
        }
    }
    w->dirty.n = 0;
    return DTP_OK;
}

/* ---- the cap -----------------------------------------------------------------------------------
 */

static int64_t node_minimum(const solver_node *x)
{
    int64_t least = DTP_FORBIDDEN;
    for (int32_t s = 0; s < x->k; s++) {
        least = x->cost[s] < least ? x->cost[s] : least;
    }
    return least;
}

static int64_t edge_minimum(const solver_work *w, const solver_edge *e)
{
    const int64_t *m = solver_matrix(e);
    const int64_t n = (int64_t)w->nodes[e->u].k * w->nodes[e->v].k;
    int64_t least = DTP_FORBIDDEN;
    for (int64_t i = 0; i < n; i++) {
        least = m[i] < least ? m[i] : least;
    }
    return least;
}

int64_t solver_lower_bound(const solver_work *w)
{
    int64_t sum = w->constant;
    for (int32_t i = 0; i < w->n_nodes; i++) {
        sum = w->nodes[i].alive ? dtp_problem_add_cost(sum, node_minimum(&w->nodes[i])) : sum;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        sum = w->edges[e].alive ? dtp_problem_add_cost(sum, edge_minimum(w, &w->edges[e])) : sum;
    }
    return sum;
}

/* Forbids the finite entries of an edge that are above its smallest by `room` or more. */
static dtp_status cap_edge(solver_work *w, int32_t edge, int64_t room, dtp_err *err)
{
    const solver_edge *e = &w->edges[edge];
    const int64_t *m = solver_matrix(e);
    const int64_t n = (int64_t)w->nodes[e->u].k * w->nodes[e->v].k;
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
            w->report.capped_entries++;
        }
    }
    return solver_touch(w, edge, err);
}

dtp_status solver_filter_by_incumbent(solver_work *w, dtp_err *err)
{
    const int64_t bound = solver_lower_bound(w);
    if (bound >= w->cutoff) {
        w->infeasible = true;
        return DTP_OK;
    }
    const int64_t room = w->cutoff - bound;
    for (int32_t i = 0; i < w->n_nodes && !w->infeasible; i++) {
        const solver_node *x = &w->nodes[i];
        const int64_t most = x->alive ? dtp_problem_add_cost(node_minimum(x), room) : 0;
        for (int32_t s = 0; x->alive && s < x->k && !w->infeasible; s++) {
            if (x->cost[s] >= most && !solver_dead(x, s)) {
                DTP_TRY(solver_kill(w, i, s, &w->report.capped, err));
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
