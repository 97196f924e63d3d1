/* The best assignment of the variables of a forest, everything else fixed, under penalised
 * costs: min-sum along the trees. */
#include "planner/solver/primal/primal_tree.h"

#include <stdlib.h>

#include "planner/solver/primal/primal_messages.h"

struct solver_forest {
    const solver_graph *g;
    int32_t *root;   /* union-find; -1 = not in the forest */
    int32_t *order;  /* variables: parents before children */
    int32_t *parent; /* -1 = a root of a tree, -2 = not reached */
    int32_t n;
    int32_t *seen; /* scratch: roots of one variable's neighbours */
    double *best;  /* by strategy: cost of the best subtree below it */
};

dtp_status solver_forest_create(const solver_graph *g, solver_forest **out, dtp_err *err)
{
    solver_forest *f = calloc(1, sizeof *f);
    const size_t n = (size_t)g->n + 1;
    if (f != NULL) {
        f->g = g;
        f->root = malloc(n * sizeof *f->root);
        f->order = malloc(n * sizeof *f->order);
        f->parent = malloc(n * sizeof *f->parent);
        f->seen = malloc(n * sizeof *f->seen);
        f->best = malloc(((size_t)g->n_strategies + 1) * sizeof *f->best);
    }
    if (f == NULL || f->root == NULL || f->order == NULL || f->parent == NULL || f->seen == NULL ||
        f->best == NULL) {
        solver_forest_destroy(f);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a forest of %d nodes", g->n);
    }
    for (int32_t i = 0; i < g->n; i++) {
        f->root[i] = -1;
    }
    *out = f;
    return DTP_OK;
}

void solver_forest_destroy(solver_forest *f)
{
    if (f != NULL) {
        free(f->root);
        free(f->order);
        free(f->parent);
        free(f->seen);
        free(f->best);
        free(f);
    }
}

const int32_t *solver_forest_variables(const solver_forest *f, int32_t *n)
{
    *n = f->n;
    return f->order;
}

static int32_t find(solver_forest *f, int32_t x)
{
    while (f->root[x] != x) {
        f->root[x] = f->root[f->root[x]];
        x = f->root[x];
    }
    return x;
}

/* Joins x to the trees of its neighbours unless two of them are in one tree. */
static bool try_variable(solver_forest *f, int32_t x)
{
    const solver_vertex *v = &f->g->vertices[x];
    int32_t n = 0;
    bool tree = true;
    for (int32_t a = 0; a < v->n_arcs && tree; a++) {
        const int32_t y = v->arcs[a].other;
        if (f->root[y] < 0) {
            continue;
        }
        const int32_t r = find(f, y);
        for (int32_t i = 0; i < n && tree; i++) {
            tree = f->seen[i] != r;
        }
        f->seen[n++] = r;
    }
    if (tree) {
        f->root[x] = x;
        for (int32_t i = 0; i < n; i++) {
            f->root[f->seen[i]] = x;
        }
    }
    return tree;
}

void solver_forest_pick(solver_forest *f, const int32_t *candidates, int32_t n)
{
    for (int32_t i = 0; i < f->n; i++) {
        f->root[f->order[i]] = -1;
    }
    f->n = 0;
    for (int32_t i = 0; i < n; i++) {
        if (f->root[candidates[i]] < 0 && try_variable(f, candidates[i])) {
            f->parent[candidates[i]] = -2;
            f->order[f->n++] = candidates[i];
        }
    }
    /* parents before children; overwrites the order of picking */
    int32_t *picked = f->seen;
    int32_t end = 0;
    for (int32_t i = 0; i < f->n; i++) {
        picked[i] = f->order[i];
    }
    for (int32_t i = 0; i < f->n; i++) {
        if (f->parent[picked[i]] != -2) {
            continue;
        }
        int32_t at = end;
        f->parent[picked[i]] = -1;
        f->order[end++] = picked[i];
        for (; at < end; at++) {
            const int32_t x = f->order[at];
            const solver_vertex *v = &f->g->vertices[x];
            for (int32_t a = 0; a < v->n_arcs; a++) {
                const int32_t y = v->arcs[a].other;
                if (f->root[y] >= 0 && f->parent[y] == -2) {
                    f->parent[y] = x;
                    f->order[end++] = y;
                }
            }
        }
    }
}

/* best[s] of the parent grows by min_t best[t] of the child + m[t][s]. */
static void add_message(const double *below, int32_t k_below, const double *m, int32_t k,
                        double *message, double *best)
{
    solver_min_plus(below, k_below, m, k, message);
    for (int32_t s = 0; s < k; s++) {
        best[s] += message[s];
    }
}

static void collect(solver_forest *f, solver_point *w, const double *theta, int32_t x,
                    double *message)
{
    const solver_vertex *v = &f->g->vertices[x];
    double *best = f->best + v->at;
    for (int32_t s = 0; s < v->k; s++) {
        best[s] = theta[v->at + s];
    }
    for (int32_t a = 0; a < v->n_arcs; a++) {
        const int32_t y = v->arcs[a].other;
        if (f->root[y] < 0) {
            const double *line = v->arcs[a].m + (int64_t)w->assignment[y] * v->k;
            for (int32_t s = 0; s < v->k; s++) {
                best[s] += line[s];
            }
            w->work += v->k;
        } else if (f->parent[y] == x) {
            const solver_vertex *c = &f->g->vertices[y];
            add_message(f->best + c->at, c->k, v->arcs[a].m, v->k, message, best);
            w->work += (int64_t)v->k * c->k;
        }
    }
}

/* The strategy of x, that of its parent being chosen; ties go to the present one. */
static int32_t decide(const solver_forest *f, const solver_point *w, int32_t x)
{
    const solver_vertex *v = &f->g->vertices[x];
    const double *best = f->best + v->at;
    const double *line = NULL;
    for (int32_t a = 0; f->parent[x] >= 0 && a < v->n_arcs && line == NULL; a++) {
        if (v->arcs[a].other == f->parent[x]) {
            line = v->arcs[a].m + (int64_t)w->assignment[f->parent[x]] * v->k;
        }
    }
    int32_t least = w->assignment[x];
    for (int32_t s = 0; s < v->k; s++) {
        const double here = best[s] + (line != NULL ? line[s] : 0.0);
        const double there = best[least] + (line != NULL ? line[least] : 0.0);
        least = here < there ? s : least;
    }
    return least;
}

dtp_status solver_forest_solve(solver_forest *f, solver_point *w, const double *theta, dtp_err *err)
{
    double message[64] = {0}, *wide = NULL;
    if (f->g->max_k > 64) {
        wide = malloc((size_t)f->g->max_k * sizeof *wide);
        DTP_TRY(DTP_MEMORY(err, wide));
    }
    for (int32_t i = f->n - 1; i >= 0; i--) {
        collect(f, w, theta, f->order[i], wide != NULL ? wide : message);
    }
    free(wide);
    for (int32_t i = 0; i < f->n; i++) {
        DTP_TRY(solver_point_set(w, f->order[i], decide(f, w, f->order[i]), err));
    }
    return DTP_OK;
}
