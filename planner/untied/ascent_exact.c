#include "planner/untied/ascent_exact.h"

#include <math.h>
#include <string.h>

#include "core/base/safe_int.h"

#define INFINITE 1e30

/* 2^51: three integers up to this add up to one that is exact in double precision. */
#define MOST_EXACT 2251799813685248.0

enum { LANES = 16 };

/* ---- multipliers and matrices -------------------------------------------------------------------
 */

/* Any multipliers are good; these are whole and not too large. A float has both. */
static void round_multipliers(const ascent *a)
{
    for (int64_t k = 0; k < a->first_phi[a->n_edges]; k++) {
        const float whole = roundf(a->phi[k]);
        a->phi[k] = !(whole > -(float)MOST_EXACT) ? -(float)MOST_EXACT
                    : whole < (float)MOST_EXACT   ? whole
                                                  : (float)MOST_EXACT;
    }
}

/* Costs of one instance, rounded down. What is too large for an exact difference counts less. */
static void load_matrix(ascent_exact *x, int32_t edge)
{
    const ascent *a = x->a;
    const dtp_problem *s = a->p->select;
    const int64_t *m = s->edge_cost + s->edge_first[edge];
    const int64_t n = dtp_problem_edge_end(s, edge) - s->edge_first[edge];
    const int64_t count = a->tied ? 1 : a->p->edge_count[edge];
    for (int64_t k = 0; k < n && edge != x->of; k++) {
        const int64_t ps = count > 1 ? m[k] / count : m[k];
        const double most = ps < (int64_t)MOST_EXACT ? (double)ps : MOST_EXACT;
        x->matrix[k] = m[k] < DTP_FORBIDDEN ? most : INFINITE;
    }
    x->of = edge;
}

/* ---- minima -------------------------------------------------------------------------------------
 */

/* min_j (m[j] + add[j]) */
static double least_of(const double *restrict m, const double *restrict add, int32_t n)
{
    double lane[LANES], low = INFINITE;
    int32_t j = 0;
    for (int k = 0; k < LANES; k++) {
        lane[k] = INFINITE;
    }
    for (; j + LANES <= n; j += LANES) {
        for (int k = 0; k < LANES; k++) {
            const double at = m[j + k] + add[j + k];
            lane[k] = at < lane[k] ? at : lane[k];
        }
    }
    for (; j < n; j++) {
        const double at = m[j] + add[j];
        low = at < low ? at : low;
    }
    for (int k = 0; k < LANES; k++) {
        low = lane[k] < low ? lane[k] : low;
    }
    return low;
}

/* least[j] = min(least[j], m[j] + add) */
static void lower(double *restrict least, const double *restrict m, double add, int32_t n)
{
    for (int32_t j = 0; j < n; j++) {
        const double at = m[j] + add;
        least[j] = at < least[j] ? at : least[j];
    }
}

/* add[t] = extra[t] - phi[t] */
static void fill_added(const float *phi, const double *extra, int32_t n, double *add)
{
    for (int32_t t = 0; t < n; t++) {
        add[t] = (extra != NULL ? extra[t] : 0.0) - (double)phi[t];
    }
}

void dtp_ascent__exact_minima(ascent_exact *x, int32_t e, bool end_a, const double *extra,
                              double *out)
{
    const ascent *a = x->a;
    const dtp_unfolded_edge *edge = &a->edges[e];
    const int32_t rows = dtp_ascent__strategies(a, edge->a),
                  cols = dtp_ascent__strategies(a, edge->b);
    const float *phi_a = a->phi + a->first_phi[e], *phi_b = phi_a + rows;
    load_matrix(x, edge->edge);
    fill_added(end_a ? phi_b : phi_a, extra, end_a ? cols : rows, x->row);
    for (int32_t j = 0; j < cols && !end_a; j++) {
        out[j] = INFINITE;
    }
    for (int32_t i = 0; i < rows; i++) {
        const double *m = x->matrix + (int64_t)i * cols;
        if (end_a) {
            out[i] = least_of(m, x->row, cols) - (double)phi_a[i];
        } else {
            lower(out, m, x->row[i], cols);
        }
    }
    for (int32_t j = 0; j < cols && !end_a; j++) {
        out[j] -= (double)phi_b[j];
    }
}

/* ---- the sum ------------------------------------------------------------------------------------
 */

static void add_end(ascent_exact *x, int32_t node, const float *phi)
{
    for (int32_t s = 0; s < dtp_ascent__strategies(x->a, node); s++) {
        int64_t *to = &x->theta[node][s];
        x->ok = dtp_add_i64(*to, (int64_t)phi[s], to) && x->ok;
    }
}

static void add_edge(ascent_exact *x, int32_t e)
{
    const ascent *a = x->a;
    const dtp_unfolded_edge *edge = &a->edges[e];
    const int32_t rows = dtp_ascent__strategies(a, edge->a);
    const float *phi_a = a->phi + a->first_phi[e];
    double least = INFINITE;
    dtp_ascent__exact_minima(x, e, true, NULL, x->column);
    add_end(x, edge->a, phi_a);
    add_end(x, edge->b, phi_a + rows);
    for (int32_t i = 0; i < rows; i++) {
        least = x->column[i] < least ? x->column[i] : least;
    }
    x->least_edge[e] = least;
    x->ok = x->ok && least < 4 * MOST_EXACT && dtp_add_i64(x->bound, (int64_t)least, &x->bound);
}

static void add_node(ascent_exact *x, int32_t node)
{
    const ascent *a = x->a;
    int64_t least = INT64_MAX;
    if (a->assignment[node] < 0) {
        return;
    }
    for (int32_t k = 0; k < dtp_ascent__strategies(a, node); k++) {
        const bool dead = a->cost[node][k] >= DTP_FORBIDDEN;
        least = !dead && x->theta[node][k] < least ? x->theta[node][k] : least;
    }
    x->least_node[node] = least;
    x->ok = x->ok && dtp_add_i64(x->bound, least, &x->bound);
}

static dtp_status allocate(ascent_exact *x, dtp_arena *arena, dtp_err *err)
{
    const ascent *a = x->a;
    const dtp_problem *s = a->p->select;
    int64_t entries = 1, most = 1;
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int64_t n = dtp_problem_edge_end(s, e) - s->edge_first[e];
        entries = n > entries ? n : entries;
    }
    x->theta = dtp_arena_alloc(arena, (size_t)a->n, sizeof *x->theta);
    bool ok = x->theta != NULL;
    for (int32_t i = 0; i < a->n && ok; i++) {
        const int64_t k = a->assignment[i] >= 0 ? dtp_ascent__strategies(a, i) : 0;
        most = k > most ? k : most;
        x->theta[i] = dtp_arena_alloc(arena, (size_t)k, sizeof **x->theta);
        ok = x->theta[i] != NULL;
        if (ok && k > 0) {
            memcpy(x->theta[i], a->cost[i], (size_t)k * sizeof **x->theta);
        }
    }
    x->least_node = dtp_arena_alloc(arena, (size_t)a->n, sizeof *x->least_node);
    x->least_edge = dtp_arena_alloc(arena, (size_t)a->n_edges, sizeof *x->least_edge);
    x->matrix = dtp_arena_alloc(arena, (size_t)entries, sizeof *x->matrix);
    x->row = dtp_arena_alloc(arena, (size_t)most, sizeof *x->row);
    x->column = dtp_arena_alloc(arena, (size_t)most, sizeof *x->column);
    return ok && x->least_node != NULL && x->least_edge != NULL && x->matrix != NULL &&
                   x->row != NULL && x->column != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
}

dtp_status dtp_ascent__exact(const ascent *a, dtp_arena *arena, ascent_exact *x, dtp_err *err)
{
    *x = (ascent_exact){.a = a, .of = -1, .ok = true};
    DTP_TRY(allocate(x, arena, err));
    round_multipliers(a);
    for (int32_t e = 0; e < a->n_edges && x->ok; e++) {
        add_edge(x, e);
    }
    for (int32_t i = 0; i < a->n && x->ok; i++) {
        add_node(x, i);
    }
    return DTP_OK;
}
