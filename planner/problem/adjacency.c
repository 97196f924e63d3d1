#include "planner/problem/adjacency.h"

#include <stdlib.h>

dtp_status solver_adjacency_create(const dtp_problem *p, solver_adjacency *out, dtp_err *err)
{
    *out = (solver_adjacency){.first = calloc((size_t)p->n_variables + 1, sizeof *out->first),
                              .edge = calloc(2 * (size_t)p->n_edges + 1, sizeof *out->edge)};
    if (out->first == NULL || out->edge == NULL) {
        solver_adjacency_destroy(out);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the edges of %d nodes", p->n_variables);
    }
    /* Counts, sums up to the ends, and fills from behind, by which the ends become the begins. */
    solver_adjacency *x = out;
    for (int32_t e = 0; e < p->n_edges; e++) {
        x->first[p->edge_a[e]]++;
        x->first[p->edge_b[e]]++;
    }
    for (int32_t i = 0; i < p->n_variables; i++) {
        x->first[i + 1] += x->first[i];
    }
    for (int32_t e = p->n_edges - 1; e >= 0; e--) {
        x->edge[--x->first[p->edge_a[e]]] = e;
        x->edge[--x->first[p->edge_b[e]]] = e;
    }
    return DTP_OK;
}

void solver_adjacency_destroy(solver_adjacency *x)
{
    free(x->first);
    free(x->edge);
    *x = (solver_adjacency){0};
}
