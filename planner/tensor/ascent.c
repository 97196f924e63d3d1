#include "planner/tensor/ascent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/safe_int.h"

#define INFINITE 1e30

int32_t dtp_ascent__strategies(const ascent *a, int32_t node)
{
    return a->p->choices[a->choice[node]].n_options;
}

/* ---- ascent ------------------------------------------------------------------------------------
 */

/* Moves the minima over the other end from an edge into its end a (or b). */
static void collect(const ascent *a, int32_t e, bool end_a)
{
    const dtp_unfolded_edge *edge = &a->edges[e];
    const int32_t rows = dtp_ascent__strategies(a, edge->a),
                  cols = dtp_ascent__strategies(a, edge->b);
    const double *m = a->matrix + a->p->select->edge_first[edge->edge];
    double *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    for (int32_t j = 0; j < cols; j++) {
        a->least[j] = INFINITE;
    }
    for (int32_t i = 0; i < rows; i++, m += cols) {
        double low = INFINITE;
        for (int32_t j = 0; end_a && j < cols; j++) {
            const double at = m[j] - phi_b[j];
            low = at < low ? at : low;
        }
        for (int32_t j = 0; !end_a && j < cols; j++) {
            const double at = m[j] - phi_a[i];
            a->least[j] = at < a->least[j] ? at : a->least[j];
        }
        phi_a[i] = low < INFINITE / 2 ? low : phi_a[i];
    }
    for (int32_t j = 0; !end_a && j < cols; j++) {
        phi_b[j] = a->least[j] < INFINITE / 2 ? a->least[j] : phi_b[j];
    }
}

static double *phi_of(const ascent *a, int32_t e, int32_t node)
{
    double *phi = a->phi + a->first_phi[e];
    return a->edges[e].a == node ? phi : phi + dtp_ascent__strategies(a, a->edges[e].a);
}

static void update(const ascent *a, int32_t node, bool forward)
{
    const int32_t k = dtp_ascent__strategies(a, node);
    int32_t ahead = 0, behind = 0;
    double low = INFINITE;
    for (int32_t s = 0; s < k; s++) {
        const int64_t cost = a->cost[node][s];
        a->theta[s] = cost < DTP_SELECT_FORBIDDEN ? (double)cost : INFINITE;
    }
    for (int32_t x = a->first_arc[node]; x < a->first_arc[node + 1]; x++) {
        const int32_t e = a->arcs[x].edge;
        collect(a, e, a->edges[e].a == node);
        const double *phi = phi_of(a, e, node);
        for (int32_t s = 0; s < k; s++) {
            a->theta[s] += phi[s];
        }
        *(a->arcs[x].ahead == forward ? &ahead : &behind) += 1;
    }
    for (int32_t s = 0; s < k; s++) {
        low = a->theta[s] < low ? a->theta[s] : low;
    }
    const double share = 1.0 / (double)(ahead > behind ? ahead : behind > 0 ? behind : 1);
    for (int32_t x = a->first_arc[node]; x < a->first_arc[node + 1]; x++) {
        double *phi = phi_of(a, a->arcs[x].edge, node);
        for (int32_t s = 0; a->arcs[x].ahead == forward && s < k; s++) {
            const double above = a->theta[s] - low;
            phi[s] -= above < INFINITE / 2 ? above * share : 0.0;
        }
    }
}

void dtp_ascent__run(const ascent *a, int32_t rounds)
{
    for (int32_t r = 0; r < rounds; r++) {
        for (int32_t i = 0; i < a->n; i++) {
            if (a->choice[a->order[i]] >= 0) {
                update(a, a->order[i], true);
            }
        }
        for (int32_t i = a->n - 1; i >= 0; i--) {
            if (a->choice[a->order[i]] >= 0) {
                update(a, a->order[i], false);
            }
        }
    }
}

/* ---- the exact sum -----------------------------------------------------------------------------
 */

/* False when a sum overflows. */
static bool add_edge_bound(const ascent *a, int32_t e, int64_t **theta, int64_t *total)
{
    const dtp_unfolded_edge *edge = &a->edges[e];
    const dtp_select_problem *s = a->p->select;
    const int32_t rows = dtp_ascent__strategies(a, edge->a),
                  cols = dtp_ascent__strategies(a, edge->b);
    const int64_t *m = s->edge_cost + s->edge_first[edge->edge];
    const int64_t count = a->folded ? 1 : a->p->edge_count[edge->edge];
    const double *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    int64_t least = INT64_MAX;
    bool ok = true;
    for (int32_t i = 0; i < rows; i++, m += cols) {
        const int64_t x = llround(phi_a[i]);
        ok = dtp_add_i64(theta[edge->a][i], x, &theta[edge->a][i]) && ok;
        for (int32_t j = 0; j < cols; j++) {
            const int64_t at = m[j] / count - x - llround(phi_b[j]);
            least = m[j] < DTP_SELECT_FORBIDDEN && at < least ? at : least;
        }
    }
    for (int32_t j = 0; j < cols; j++) {
        ok = dtp_add_i64(theta[edge->b][j], llround(phi_b[j]), &theta[edge->b][j]) && ok;
    }
    return ok && dtp_add_i64(*total, least, total);
}

static bool phi_is_small(const ascent *a)
{
    const int64_t n = a->first_phi[a->n_edges];
    bool small = true;
    for (int64_t i = 0; i < n && small; i++) {
        small = fabs(a->phi[i]) < 1e17;
    }
    return small;
}

/* Sum of the minima; 0 when numbers grow out of range. */
dtp_status dtp_ascent__bound(const ascent *a, int64_t *bound, dtp_err *err)
{
    int64_t **theta = calloc((size_t)a->n + 1, sizeof *theta), total = 0;
    bool ok = phi_is_small(a);
    dtp_status s = theta != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    for (int32_t i = 0; i < a->n && s == DTP_OK; i++) {
        const size_t k = a->choice[i] >= 0 ? (size_t)dtp_ascent__strategies(a, i) : 0;
        theta[i] = malloc((k + 1) * sizeof **theta);
        if (theta[i] == NULL) {
            s = DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
        } else if (k > 0) {
            memcpy(theta[i], a->cost[i], k * sizeof **theta);
        }
    }
    for (int32_t e = 0; e < a->n_edges && s == DTP_OK && ok; e++) {
        ok = add_edge_bound(a, e, theta, &total);
    }
    for (int32_t i = 0; i < a->n && s == DTP_OK && ok; i++) {
        int64_t least = INT64_MAX;
        for (int32_t k = 0; a->choice[i] >= 0 && k < dtp_ascent__strategies(a, i); k++) {
            const bool dead = a->cost[i][k] >= DTP_SELECT_FORBIDDEN;
            least = !dead && theta[i][k] < least ? theta[i][k] : least;
        }
        ok = a->choice[i] < 0 || dtp_add_i64(total, least, &total);
    }
    for (int32_t i = 0; theta != NULL && i < a->n; i++) {
        free(theta[i]);
    }
    free(theta);
    *bound = ok ? total : 0;
    return s;
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
    const dtp_select_problem *s = a->p->select;
    const int64_t n = s->edge_first[s->n_edges];
    a->matrix = dtp_arena_alloc(arena, (size_t)n, sizeof *a->matrix);
    if (a->matrix == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld prices", (long long)n);
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int64_t count = a->folded ? 1 : a->p->edge_count[e];
        for (int64_t k = s->edge_first[e]; k < s->edge_first[e + 1]; k++) {
            const int64_t ps = s->edge_cost[k] / count;
            a->matrix[k] = s->edge_cost[k] < DTP_SELECT_FORBIDDEN ? (double)ps : INFINITE;
        }
    }
    return DTP_OK;
}

static dtp_status make_scratch(ascent *a, dtp_arena *arena, dtp_err *err)
{
    size_t most = 1;
    for (int32_t i = 0; i < a->p->n_choices; i++) {
        const size_t n = (size_t)a->p->choices[i].n_options;
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
