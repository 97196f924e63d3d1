/* Changes of an assignment of a selection problem, for a search by simulation. */
#include "planner/tensors/step_moves.h"

#include <stdlib.h>
#include <string.h>

/* Edge costs that are looked at, in all. */
static const int64_t MOST_WORK = 20000000;

static int32_t root_of(int32_t *parent, int32_t v)
{
    while (parent[v] != v) {
        parent[v] = parent[parent[v]];
        v = parent[v];
    }
    return v;
}

dtp_status dtp_step_groups(const dtp_problem *p, const int32_t *a, const int32_t *b, int32_t *group,
                           int32_t *n, dtp_err *err)
{
    int32_t *parent = calloc((size_t)p->n_variables + 1, sizeof *parent);
    DTP_TRY(DTP_MEMORY(err, parent));
    for (int32_t v = 0; v < p->n_variables; v++) {
        parent[v] = v;
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int32_t x = p->edge_a[e], y = p->edge_b[e];
        if (a[x] != b[x] && a[y] != b[y]) {
            const int32_t i = root_of(parent, x), k = root_of(parent, y);
            parent[i > k ? i : k] = i > k ? k : i; /* the first of a group is its root */
        }
    }
    *n = 0;
    for (int32_t v = 0; v < p->n_variables; v++) {
        const int32_t root = root_of(parent, v);
        group[v] = a[v] == b[v] ? -1 : root == v ? (*n)++ : group[root];
    }
    free(parent);
    return DTP_OK;
}

/* ---- moves ---- */

typedef struct walk {
    const dtp_problem *p;
    int32_t *now;          /* by variable */
    int32_t *first, *edge; /* edges of variable v: edge[first[v]] .. edge[first[v + 1] - 1] */
    int32_t n, changed[DTP_STEP_MOVE_VARIABLES];
    int64_t work;
} walk;

/* Of a variable and its edges. */
static int64_t cost_at(walk *w, int32_t v, int32_t strategy)
{
    const dtp_problem *p = w->p;
    int64_t cost = p->cost[p->first[v] + strategy];
    for (int32_t i = w->first[v]; i < w->first[v + 1]; i++) {
        const int32_t e = w->edge[i];
        const int64_t columns = dtp_problem_n_strategies(p, p->edge_b[e]);
        const int64_t row = p->edge_a[e] == v ? strategy : w->now[p->edge_a[e]];
        const int64_t column = p->edge_a[e] == v ? w->now[p->edge_b[e]] : strategy;
        cost = dtp_problem_add_cost(cost, p->edge_cost[p->edge_first[e] + row * columns + column]);
    }
    w->work += w->first[v + 1] - w->first[v] + 1;
    return cost;
}

/* False when too many variables have changed. */
static bool set(walk *w, int32_t v, int32_t strategy)
{
    int32_t i = 0;
    while (i < w->n && w->changed[i] != v) {
        i++;
    }
    if (i == DTP_STEP_MOVE_VARIABLES) {
        return false;
    }
    w->changed[i] = v;
    w->n = i == w->n ? i + 1 : w->n;
    w->now[v] = strategy;
    return true;
}

/* The neighbours of what has changed take their cheapest strategies; false when they are too many.
 */
static bool follow(walk *w)
{
    const dtp_problem *p = w->p;
    for (int32_t at = 0; at < w->n; at++) {
        const int32_t v = w->changed[at];
        for (int32_t i = w->first[v]; i < w->first[v + 1]; i++) {
            const int32_t e = w->edge[i];
            const int32_t u = p->edge_a[e] == v ? p->edge_b[e] : p->edge_a[e];
            int32_t best = w->now[u];
            int64_t least = u == w->changed[0] ? 0 : cost_at(w, u, best);
            for (int32_t k = 0; u != w->changed[0] && k < dtp_problem_n_strategies(p, u); k++) {
                const int64_t cost = cost_at(w, u, k);
                best = cost < least ? k : best;
                least = cost < least ? cost : least;
            }
            if (best != w->now[u] && !set(w, u, best)) {
                return false;
            }
        }
    }
    return true;
}

static int64_t total(walk *w)
{
    const dtp_problem *p = w->p;
    int64_t cost = 0;
    for (int32_t v = 0; v < p->n_variables; v++) {
        cost = dtp_problem_add_cost(cost, p->cost[p->first[v] + w->now[v]]);
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int64_t columns = dtp_problem_n_strategies(p, p->edge_b[e]);
        cost = dtp_problem_add_cost(
            cost,
            p->edge_cost[p->edge_first[e] + w->now[p->edge_a[e]] * columns + w->now[p->edge_b[e]]]);
    }
    w->work += p->n_edges;
    return cost;
}

static int compare(const void *a, const void *b)
{
    const dtp_step_move *x = a, *y = b;
    const int64_t xs[] = {x->more, x->variable[0], x->strategy[0]};
    const int64_t ys[] = {y->more, y->variable[0], y->strategy[0]};
    int order = 0;
    for (int i = 0; i < 3 && order == 0; i++) {
        order = (xs[i] > ys[i]) - (xs[i] < ys[i]);
    }
    return order;
}

dtp_status dtp_step_moves_find(const dtp_problem *p, const int32_t *assignment, dtp_step_moves *out,
                               dtp_err *err)
{
    walk w = {.p = p};
    *out =
        (dtp_step_moves){.items = calloc((size_t)p->first[p->n_variables] + 1, sizeof *out->items)};
    const size_t n = (size_t)p->n_variables;
    w.now = malloc((n + 1) * sizeof *w.now);
    w.first = calloc(n + 2, sizeof *w.first);
    w.edge = malloc((2 * (size_t)p->n_edges + 1) * sizeof *w.edge);
    const dtp_status s = DTP_MEMORY(err, out->items, w.now, w.first, w.edge);
    if (s == DTP_OK) {
        memcpy(w.now, assignment, n * sizeof *w.now);
        for (int32_t e = 0; e < p->n_edges; e++) {
            w.first[p->edge_a[e]]++;
            w.first[p->edge_b[e]]++;
        }
        for (size_t v = 0; v < n; v++) { /* their ends, and then their begins */
            w.first[v + 1] += w.first[v];
        }
        for (int32_t e = p->n_edges - 1; e >= 0; e--) {
            w.edge[--w.first[p->edge_a[e]]] = e;
            w.edge[--w.first[p->edge_b[e]]] = e;
        }
    }
    const int64_t here = s == DTP_OK ? total(&w) : 0;
    for (int32_t v = 0; v < p->n_variables && s == DTP_OK; v++) {
        const int64_t share = MOST_WORK / p->n_variables;
        w.work = 0;
        for (int32_t k = 0; k < dtp_problem_n_strategies(p, v) && w.work < share; k++) {
            w.n = 0;
            const bool few = k != assignment[v] && set(&w, v, k) && follow(&w);
            const int64_t cost = few ? total(&w) : DTP_FORBIDDEN;
            if (cost < DTP_FORBIDDEN) {
                dtp_step_move *move = &out->items[out->n++];
                *move = (dtp_step_move){.more = cost - here, .n = w.n};
                for (int32_t i = 0; i < w.n; i++) {
                    move->variable[i] = w.changed[i];
                    move->strategy[i] = w.now[w.changed[i]];
                }
            }
            for (int32_t i = 0; i < w.n; i++) {
                w.now[w.changed[i]] = assignment[w.changed[i]];
            }
        }
    }
    free(w.now);
    free(w.first);
    free(w.edge);
    if (s != DTP_OK) {
        dtp_step_moves_free(out);
        return s;
    }
    qsort(out->items, (size_t)out->n, sizeof *out->items, compare);
    return DTP_OK;
}

void dtp_step_moves_free(dtp_step_moves *moves)
{
    free(moves->items);
    *moves = (dtp_step_moves){0};
}
