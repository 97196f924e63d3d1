/* Sequential tree-reweighted message passing (Kolmogorov 2006, in the form of SRMP 2015) as a
 * reparametrisation: phi shifts costs between edges and variables. A sweep visits the variables in
 * order. At a variable x:
 *   pull  for every edge to a variable visited before: the least cost of every row (by strategy of
 *         x) goes from the edge into theta_x;
 *   push  equal shares of theta_x go to the edges to variables that are visited later.
 * No step lowers the bound for the multipliers given. */
#include "planner/solver/dual/dual_data.h"

#include <math.h>
#include <string.h>

#include "core/base/clones.h"

/* least[j] = min(least[j], m[i][j] - from[i]) over rows i; four rows at a time spare most of the
 * traffic of `least`. */
DTP_CPU_CLONES static void lower(const float *restrict m, int32_t n_from, int32_t n_to,
                                 const float *restrict from, float *restrict least)
{
    int32_t i = 0;
    for (; i + 4 <= n_from; i += 4) {
        const float *a = m + (int64_t)i * n_to, *b = a + n_to, *c = b + n_to, *d = c + n_to;
        for (int32_t j = 0; j < n_to; j++) {
            const float x = a[j] - from[i], y = b[j] - from[i + 1], z = c[j] - from[i + 2],
                        u = d[j] - from[i + 3];
            const float xy = x < y ? x : y, zu = z < u ? z : u, all = xy < zu ? xy : zu;
            least[j] = all < least[j] ? all : least[j];
        }
    }
    for (; i < n_from; i++) {
        const float *row = m + (int64_t)i * n_to;
        for (int32_t j = 0; j < n_to; j++) {
            const float at = row[j] - from[i];
            least[j] = at < least[j] ? at : least[j];
        }
    }
}

/* to[j] = min_i (m[i][j] - from[i]), 0 where all is forbidden. */
static void pull(const float *restrict m, int32_t n_from, int32_t n_to, const float *restrict from,
                 float *restrict to, float *restrict least)
{
    for (int32_t j = 0; j < n_to; j++) {
        least[j] = SOLVER_DUAL_FORBIDDEN;
    }
    lower(m, n_from, n_to, from, least);
    for (int32_t j = 0; j < n_to; j++) {
        to[j] = least[j] < 0.1F * SOLVER_DUAL_FORBIDDEN ? least[j] : 0.0F;
    }
}

static int32_t size_of(const solver_dual *d, int32_t variable)
{
    return (int32_t)(d->first[variable + 1] - d->first[variable]);
}

static float *phi_at(solver_dual *d, int32_t edge, int32_t variable)
{
    const dual_edge *e = &d->edges[edge];
    return d->phi + (e->lo == variable ? e->phi_lo : e->phi_hi);
}

/* Costs and multipliers of a variable's strategies, in d->theta. */
static void add_costs(solver_dual *d, int32_t variable)
{
    const int32_t k = size_of(d, variable);
    memcpy(d->theta, d->cost + d->first[variable], (size_t)k * sizeof *d->theta);
    for (int64_t i = d->piece_first[variable]; i < d->piece_first[variable + 1]; i++) {
        const dual_piece *piece = &d->pieces[i];
        const float multiplier = (float)(d->sums[piece->last] - d->sums[piece->first]);
        const float *use = d->use + piece->use;
        for (int32_t s = 0; multiplier > 0.0F && s < k; s++) {
            d->theta[s] += multiplier * use[s];
        }
    }
}

static void collect_theta(solver_dual *d, int32_t variable)
{
    const int32_t k = size_of(d, variable);
    add_costs(d, variable);
    for (int64_t i = d->adj_first[variable]; i < d->adj_first[variable + 1]; i++) {
        const float *phi = phi_at(d, d->adj[i], variable);
        for (int32_t s = 0; s < k; s++) {
            d->theta[s] += phi[s];
        }
    }
}

static float minimum(const float *x, int32_t n)
{
    float least = x[0];
    for (int32_t s = 1; s < n; s++) {
        least = x[s] < least ? x[s] : least;
    }
    return least;
}

/* Adds the usage of a variable that picks s with probability ~ exp(-theta(s) / temperature). */
static void expect_usage(solver_dual *d, int32_t variable, double temperature)
{
    const int32_t k = size_of(d, variable);
    const float least = minimum(d->theta, k), rate = (float)(-1.0 / temperature);
    double sum = 0.0;
    for (int32_t s = 0; s < k; s++) {
        const float x = rate * (d->theta[s] - least);
        d->least[s] = x > -40.0F ? expf(x) : 0.0F;
        sum += (double)d->least[s];
    }
    for (int64_t i = d->piece_first[variable]; i < d->piece_first[variable + 1]; i++) {
        const float *use = d->use + d->pieces[i].use;
        double mean = 0.0;
        for (int32_t s = 0; s < k; s++) {
            mean += (double)(d->least[s] * use[s]);
        }
        d->excess[d->pieces[i].first] += mean / sum;
        d->excess[d->pieces[i].last] -= mean / sum;
    }
}

typedef struct pass {
    bool down, expect;
    double temperature;
} pass;

static void visit(solver_dual *d, int32_t variable, const pass *p)
{
    const bool down = p->down;
    const int64_t begin = d->adj_first[variable], mid = d->adj_higher[variable],
                  end = d->adj_first[variable + 1];
    const int64_t pulls = down ? end - mid : mid - begin, pushes = down ? mid - begin : end - mid;
    const int32_t k = size_of(d, variable);
    for (int64_t i = down ? mid : begin; i < (down ? end : mid); i++) {
        const dual_edge *e = &d->edges[d->adj[i]];
        float *lo = d->phi + e->phi_lo, *hi = d->phi + e->phi_hi;
        if (down) {
            pull(d->by_hi + e->matrix, size_of(d, e->hi), k, hi, lo, d->least);
        } else {
            pull(d->by_lo + e->matrix, size_of(d, e->lo), k, lo, hi, d->least);
        }
    }
    collect_theta(d, variable);
    const int64_t most = pulls > pushes ? pulls : pushes;
    if (p->expect && d->piece_first[variable] < d->piece_first[variable + 1]) {
        expect_usage(d, variable, p->temperature * (double)(most > 0 ? most : 1));
    }
    const float share = most > 0 ? 1.0F / (float)most : 0.0F;
    for (int64_t i = down ? begin : mid; i < (down ? mid : end); i++) {
        float *phi = phi_at(d, d->adj[i], variable);
        for (int32_t s = 0; s < k; s++) {
            phi[s] -= share * d->theta[s];
        }
    }
}

void solver_dual_sweep(solver_dual *d, bool down, bool expect, double temperature)
{
    const pass p = {down, expect, temperature};
    for (int32_t r = 0; expect && r <= d->n_rows; r++) {
        d->excess[r] = 0.0;
    }
    for (int32_t i = 0; i < d->n_variables; i++) {
        visit(d, down ? d->n_variables - 1 - i : i, &p);
    }
    double sum = 0.0;
    for (int32_t r = 0; expect && r < d->n_rows; r++) {
        sum += d->excess[r];
        d->excess[r] = sum - d->room[r];
    }
}

double solver_dual_evaluate(solver_dual *d)
{
    double bound = d->constant;
    for (int32_t r = 0; r < d->n_rows; r++) {
        bound -= d->multiplier[r] * d->room[r];
    }
    for (int32_t i = 0; i < d->n_variables; i++) {
        collect_theta(d, i);
        bound += (double)minimum(d->theta, size_of(d, i));
    }
    for (int32_t e = 0; e < d->n_edges; e++) {
        const dual_edge *edge = &d->edges[e];
        const int32_t k_lo = size_of(d, edge->lo), k_hi = size_of(d, edge->hi);
        const float *lo = d->phi + edge->phi_lo, *hi = d->phi + edge->phi_hi;
        pull(d->by_lo + edge->matrix, k_lo, k_hi, lo, d->theta, d->least);
        float least = SOLVER_DUAL_FORBIDDEN;
        for (int32_t j = 0; j < k_hi; j++) {
            const float at = d->least[j] - hi[j];
            least = at < least ? at : least;
        }
        bound += (double)least;
    }
    return bound;
}
