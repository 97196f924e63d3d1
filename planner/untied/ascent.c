#include "planner/untied/ascent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INFINITE 1e30F

enum { LANES = 16 };

int32_t dtp_ascent__strategies(const ascent *a, int32_t node)
{
    return a->p->variables[a->assignment[node]].n_strategies;
}

/* ---- ascent ------------------------------------------------------------------------------------
 */

/* min_j (m[j] - phi[j]) */
static float least_of(const float *restrict m, const float *restrict phi, int32_t n)
{
    float lane[LANES], low = INFINITE;
    int32_t j = 0;
    for (int k = 0; k < LANES; k++) {
        lane[k] = INFINITE;
    }
    for (; j + LANES <= n; j += LANES) {
        for (int k = 0; k < LANES; k++) {
            const float at = m[j + k] - phi[j + k];
            lane[k] = at < lane[k] ? at : lane[k];
        }
    }
    for (; j < n; j++) {
        const float at = m[j] - phi[j];
        low = at < low ? at : low;
    }
    for (int k = 0; k < LANES; k++) {
        low = lane[k] < low ? lane[k] : low;
    }
    return low;
}

/* least[j] = min(least[j], m[j] - phi) */
static void lower(float *restrict least, const float *restrict m, float phi, int32_t n)
{
    for (int32_t j = 0; j < n; j++) {
        const float at = m[j] - phi;
        least[j] = at < least[j] ? at : least[j];
    }
}

/* Moves the minima over the other end from an edge into its end a (or b). */
static void collect(const ascent *a, int32_t e, bool end_a)
{
    const dtp_unfolded_edge *edge = &a->edges[e];
    const int32_t rows = dtp_ascent__strategies(a, edge->a),
                  cols = dtp_ascent__strategies(a, edge->b);
    const float *m = a->matrix + a->p->select->edge_first[edge->edge];
    float *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    if (end_a) {
        for (int32_t i = 0; i < rows; i++, m += cols) {
            const float low = least_of(m, phi_b, cols);
            phi_a[i] = low < INFINITE / 2 ? low : phi_a[i];
        }
        return;
    }
    for (int32_t j = 0; j < cols; j++) {
        a->least[j] = INFINITE;
    }
    for (int32_t i = 0; i < rows; i++, m += cols) {
        lower(a->least, m, phi_a[i], cols);
    }
    for (int32_t j = 0; j < cols; j++) {
        phi_b[j] = a->least[j] < INFINITE / 2 ? a->least[j] : phi_b[j];
    }
}

static float *phi_of(const ascent *a, int32_t e, int32_t node)
{
    float *phi = a->phi + a->first_phi[e];
    return a->edges[e].a == node ? phi : phi + dtp_ascent__strategies(a, a->edges[e].a);
}

/* Costs and multipliers of a node's strategies into a->theta. Edges that lie ahead hold what was
 * taken over in the walk before, unless this is the first one. */
static void gather(const ascent *a, int32_t node, bool forward, bool first)
{
    const int32_t k = dtp_ascent__strategies(a, node);
    for (int32_t s = 0; s < k; s++) {
        const int64_t cost = a->cost[node][s];
        a->theta[s] = cost < DTP_FORBIDDEN ? (float)cost : INFINITE;
    }
    for (int32_t x = a->first_arc[node]; x < a->first_arc[node + 1]; x++) {
        const int32_t e = a->arcs[x].edge;
        if (first || a->arcs[x].ahead != forward) {
            collect(a, e, a->edges[e].a == node);
        }
        const float *phi = phi_of(a, e, node);
        for (int32_t s = 0; s < k; s++) {
            a->theta[s] += phi[s];
        }
    }
}

/* Returns the node's minimum, which stays with it. */
static double update(const ascent *a, int32_t node, bool forward, bool first)
{
    const int32_t k = dtp_ascent__strategies(a, node);
    const int32_t begin = a->first_arc[node], end = a->first_arc[node + 1];
    int32_t ahead = 0;
    float low = INFINITE;
    gather(a, node, forward, first);
    for (int32_t x = begin; x < end; x++) {
        ahead += a->arcs[x].ahead == forward ? 1 : 0;
    }
    for (int32_t s = 0; s < k; s++) {
        low = a->theta[s] < low ? a->theta[s] : low;
    }
    const int32_t behind = end - begin - ahead, most = ahead > behind ? ahead : behind;
    const float share = 1.0F / (float)(most > 0 ? most : 1);
    for (int32_t x = begin; x < end; x++) {
        float *phi = phi_of(a, a->arcs[x].edge, node);
        for (int32_t s = 0; a->arcs[x].ahead == forward && s < k; s++) {
            const float above = a->theta[s] - low;
            phi[s] -= above < INFINITE / 2 ? above * share : 0.0F;
        }
    }
    return (double)low;
}

/* Walks back leave nothing on the edges: the sum of the nodes' minima is the bound. */
void dtp_ascent__run(const ascent *a, int32_t rounds, double least_gain)
{
    double before = 0.0, gain = INFINITY;
    for (int32_t r = 0; r < rounds && gain >= least_gain; r++) {
        double bound = 0.0;
        for (int32_t i = 0; i < a->n; i++) {
            if (a->assignment[a->order[i]] >= 0) {
                (void)update(a, a->order[i], true, r == 0);
            }
        }
        for (int32_t i = a->n - 1; i >= 0; i--) {
            bound += a->assignment[a->order[i]] >= 0 ? update(a, a->order[i], false, false) : 0.0;
        }
        gain = r > 0 ? (bound - before) / (fabs(bound) + 1.0) : (double)INFINITY;
        before = bound;
    }
}

/* ---- graphs ------------------------------------------------------------------------------------
 */

static int compare_places(const void *x, const void *y)
{
    const ascent_place *p = x, *q = y;
    if (p->at != q->at) {
        return p->at < q->at ? -1 : 1;
    }
    return p->node < q->node ? -1 : p->node > q->node;
}

/* The nodes of an ascent by `at`. */
static dtp_status sort_nodes(ascent *a, ascent_place *places, dtp_arena *arena, dtp_err *err)
{
    a->order = dtp_arena_alloc(arena, (size_t)a->n, sizeof *a->order);
    a->rank = dtp_arena_alloc(arena, (size_t)a->n, sizeof *a->rank);
    if (a->order == NULL || a->rank == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a->n);
    }
    qsort(places, (size_t)a->n, sizeof *places, compare_places);
    for (int32_t i = 0; i < a->n; i++) {
        a->order[i] = places[i].node;
        a->rank[places[i].node] = i;
    }
    return DTP_OK;
}

static dtp_status link_nodes(ascent *a, dtp_arena *arena, dtp_err *err)
{
    int64_t n_phi = 0;
    a->first_arc = dtp_arena_alloc(arena, (size_t)a->n + 2, sizeof *a->first_arc);
    a->arcs = dtp_arena_alloc(arena, 2 * (size_t)a->n_edges, sizeof *a->arcs);
    a->first_phi = dtp_arena_alloc(arena, (size_t)a->n_edges + 1, sizeof *a->first_phi);
    if (a->first_arc == NULL || a->arcs == NULL || a->first_phi == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d edges", a->n_edges);
    }
    for (int32_t e = 0; e < a->n_edges; e++) {
        a->first_phi[e] = n_phi;
        n_phi +=
            dtp_ascent__strategies(a, a->edges[e].a) + dtp_ascent__strategies(a, a->edges[e].b);
        a->first_arc[a->edges[e].a + 2]++;
        a->first_arc[a->edges[e].b + 2]++;
    }
    a->first_phi[a->n_edges] = n_phi;
    for (int32_t i = 0; i < a->n; i++) {
        a->first_arc[i + 2] += a->first_arc[i + 1];
    }
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int32_t u = a->edges[e].a, v = a->edges[e].b;
        a->arcs[a->first_arc[u + 1]++] = (ascent_arc){e, a->rank[v] > a->rank[u]};
        a->arcs[a->first_arc[v + 1]++] = (ascent_arc){e, a->rank[u] > a->rank[v]};
    }
    a->phi = dtp_arena_alloc(arena, (size_t)n_phi, sizeof *a->phi);
    return a->phi != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld multipliers", (long long)n_phi);
}

/* Costs of one instance, or of all, in floating point. */
static dtp_status make_matrices(ascent *a, dtp_arena *arena, dtp_err *err)
{
    const dtp_problem *s = a->p->select;
    const int64_t n = s->n_stored;
    a->matrix = dtp_arena_alloc(arena, (size_t)n, sizeof *a->matrix);
    if (a->matrix == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld prices", (long long)n);
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int64_t count = a->tied ? 1 : a->p->edge_count[e];
        for (int64_t k = s->edge_first[e]; k < dtp_problem_edge_end(s, e); k++) {
            const int64_t ps = s->edge_cost[k] / count;
            a->matrix[k] = s->edge_cost[k] < DTP_FORBIDDEN ? (float)ps : INFINITE;
        }
    }
    return DTP_OK;
}

static dtp_status make_scratch(ascent *a, dtp_arena *arena, dtp_err *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < a->p->n_variables; i++) {
        const size_t n = (size_t)a->p->variables[i].n_strategies;
        most = n > most ? n : most;
    }
    a->theta = dtp_arena_alloc(arena, most, sizeof *a->theta);
    a->least = dtp_arena_alloc(arena, most, sizeof *a->least);
    return a->theta != NULL && a->least != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
}

dtp_status dtp_ascent__prepare(ascent *a, ascent_place *places, dtp_arena *arena, dtp_err *err)
{
    DTP_TRY(make_matrices(a, arena, err));
    DTP_TRY(make_scratch(a, arena, err));
    DTP_TRY(sort_nodes(a, places, arena, err));
    return link_nodes(a, arena, err);
}
