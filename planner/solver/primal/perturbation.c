#include "planner/solver/primal/perturbation.h"

#include <stdlib.h>

static const int32_t SIZES[] = {20, 60, 200}; /* nodes around the kicked one */

dtp_status sel_polish_create(const sel_graph *g, sel_forest *forest, sel_polish *out, dtp_err *err)
{
    sel_polish p = {.forest = forest};
    p.near = calloc((size_t)g->n + 1, sizeof *p.near);
    p.stamp = calloc((size_t)g->n + 1, sizeof *p.stamp);
    if (p.near == NULL || p.stamp == NULL) {
        sel_polish_destroy(&p);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a search over %d nodes", g->n);
    }
    *out = p;
    return DTP_OK;
}

void sel_polish_destroy(sel_polish *p)
{
    free(p->near);
    free(p->stamp);
    *p = (sel_polish){0};
}

static bool visit(sel_polish *p, int32_t node)
{
    const bool first = p->stamp[node] != p->now;
    p->stamp[node] = p->now;
    return first;
}

/* Breadth first from a node, which comes first; of a node with many neighbours, some at random. */
static int32_t neighbourhood(sel_polish *p, sel_walk *w, int32_t node, int32_t size)
{
    int32_t n = 0;
    p->now++;
    (void)visit(p, node);
    p->near[n++] = node;
    for (int32_t at = 0; at < n && n < size; at++) {
        const sel_vertex *x = &w->g->nodes[p->near[at]];
        const int32_t from = x->n_arcs > 0 ? sel_walk_random(w, x->n_arcs) : 0;
        for (int32_t a = 0; a < x->n_arcs && n < size; a++) {
            const int32_t y = x->arcs[(from + a) % x->n_arcs].other;
            if (visit(p, y)) {
                p->near[n++] = y;
            }
        }
    }
    w->work += 2 * n;
    return n;
}

static dtp_status adapt(sel_polish *p, sel_walk *w, int32_t n, bool with_kicked, dtp_err *err)
{
    const int32_t skip = with_kicked ? 0 : 1;
    sel_walk_shuffle(w, p->near + 1, n - 1);
    sel_forest_pick(p->forest, p->near + skip, n - skip);
    return sel_forest_solve(p->forest, w, w->theta, err);
}

dtp_status sel_polish_kick(sel_polish *p, sel_walk *w, bool *better, dtp_err *err)
{
    const int32_t node = sel_walk_random(w, w->g->n);
    const int32_t strategy = sel_walk_random(w, w->g->nodes[node].k);
    const int32_t n = neighbourhood(p, w, node, SIZES[sel_walk_random(w, 3)]);
    sel_walk_mark(w);
    DTP_TRY(sel_walk_set(w, node, strategy, err));
    DTP_TRY(adapt(p, w, n, false, err));
    DTP_TRY(adapt(p, w, n, false, err));
    DTP_TRY(adapt(p, w, n, true, err));
    *better = w->cost < w->marked_cost && sel_walk_feasible(w);
    if (w->cost > w->marked_cost || !sel_walk_feasible(w)) {
        sel_walk_undo(w);
    }
    return DTP_OK;
}
