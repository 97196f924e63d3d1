/* GEMM times from measured points. */
#include "cost_models/machine/gemm.h"

#include <math.h>

enum { N_VARIANTS = 4, N_SIZES = 4 }; /* m, n, k and batch */

typedef struct axis {
    int32_t n;
    double log_size[DTP_GEMM_MAX_AXIS]; /* ascending */
} axis;

/* The grid of one arithmetic. */
typedef struct table {
    dtp_arithmetic arithmetic;
    axis axes[N_SIZES];
    int64_t most;              /* products of the largest batch measured */
    double *log_t[N_VARIANTS]; /* row-major over the axes; shared by variants without points */
} table;

struct dtp_gemm_grid {
    table *of[DTP_N_ARITHMETICS]; /* NULL: not measured */
};

/* A measured node of a variant. */
typedef struct measured {
    double log_size[N_SIZES], log_cost; /* of 1 / rate */
} measured;

static int32_t variant_of(bool trans_a, bool trans_b)
{
    return (trans_a ? 2 : 0) + (trans_b ? 1 : 0);
}

static int64_t node_of(const table *g, const int32_t at[N_SIZES])
{
    int64_t node = 0;
    for (int32_t d = 0; d < N_SIZES; d++) {
        node = node * g->axes[d].n + at[d];
    }
    return node;
}

static void place_of(const table *g, int64_t node, int32_t at[N_SIZES])
{
    for (int32_t d = N_SIZES - 1; d >= 0; d--) {
        at[d] = (int32_t)(node % g->axes[d].n);
        node /= g->axes[d].n;
    }
}

static int64_t n_nodes(const table *g)
{
    return (int64_t)g->axes[0].n * g->axes[1].n * g->axes[2].n * g->axes[3].n;
}

static int32_t axis_find(const axis *a, double log_size)
{
    int32_t i = 0;
    while (i < a->n && a->log_size[i] < log_size) {
        i++;
    }
    return i;
}

static dtp_status axis_add(axis *a, double log_size, int32_t most, const char *name, dtp_err *err)
{
    int32_t i = axis_find(a, log_size);
    if (i < a->n && !(a->log_size[i] > log_size)) {
        return DTP_OK;
    }
    if (a->n == most) {
        return DTP_FAIL(err, DTP_RANGE, "gemm: more than %d distinct values of %s", most, name);
    }
    for (int32_t j = a->n; j > i; j--) {
        a->log_size[j] = a->log_size[j - 1];
    }
    a->log_size[i] = log_size;
    a->n++;
    return DTP_OK;
}

static measured measured_of(const dtp_gemm_point *p)
{
    return (measured){
        {log((double)p->m), log((double)p->n), log((double)p->k), log((double)p->batch)},
        -log(p->flops)};
}

static double log_volume(const double log_size[N_SIZES])
{
    return log(2.0) + log_size[0] + log_size[1] + log_size[2] + log_size[3];
}

/* log of 1 / rate of the measured node nearest to the one at the logs `x`. */
static double nearest_log_cost(const measured *points, int32_t n, const double x[N_SIZES])
{
    double best = INFINITY;
    double cost = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double distance = 0.0;
        for (int32_t d = 0; d < N_SIZES; d++) {
            const double apart = points[i].log_size[d] - x[d];
            distance += apart * apart;
        }
        if (distance < best) {
            best = distance;
            cost = points[i].log_cost;
        }
    }
    return cost;
}

/* Visits all nodes; writes log t of measured ones and fills the others. */
static void fill_nodes(const table *g, const measured *points, int32_t n, double *log_t)
{
    for (int64_t i = 0; i < n_nodes(g); i++) {
        log_t[i] = NAN;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t at[N_SIZES];
        for (int32_t d = 0; d < N_SIZES; d++) {
            at[d] = axis_find(&g->axes[d], points[i].log_size[d]);
        }
        log_t[node_of(g, at)] = log_volume(points[i].log_size) + points[i].log_cost;
    }
    for (int64_t i = 0; i < n_nodes(g); i++) {
        if (isnan(log_t[i])) {
            int32_t at[N_SIZES];
            double x[N_SIZES];
            place_of(g, i, at);
            for (int32_t d = 0; d < N_SIZES; d++) {
                x[d] = g->axes[d].log_size[at[d]];
            }
            log_t[i] = log_volume(x) + nearest_log_cost(points, n, x);
        }
    }
}

/* Running minimum from large to small sizes, in place. */
static void clip_to_larger(const table *g, double *log_t)
{
    for (int64_t i = n_nodes(g) - 1; i >= 0; i--) {
        int32_t at[N_SIZES];
        place_of(g, i, at);
        for (int32_t d = 0; d < N_SIZES; d++) {
            if (at[d] + 1 < g->axes[d].n) {
                int32_t larger[N_SIZES] = {at[0], at[1], at[2], at[3]};
                larger[d]++;
                log_t[i] = fmin(log_t[i], log_t[node_of(g, larger)]);
            }
        }
    }
}

/* Spans the axes with a point. */
static dtp_status add_point(table *g, const dtp_gemm_point *p, dtp_err *err)
{
    static const char *const NAMES[N_SIZES] = {"m", "n", "k", "batch"};
    const measured at = measured_of(p);
    for (int32_t d = 0; d < N_SIZES; d++) {
        const int32_t most = d == N_SIZES - 1 ? DTP_GEMM_MAX_BATCHES : DTP_GEMM_MAX_AXIS;
        DTP_TRY(axis_add(&g->axes[d], at.log_size[d], most, NAMES[d], err));
    }
    g->most = p->batch > g->most ? p->batch : g->most;
    return DTP_OK;
}

/* The table of a variant; none without points. `points` has room for all of the machine. */
static dtp_status build_variant(dtp_machine *m, const table *g, int32_t variant, measured *points,
                                double **out, dtp_err *err)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        if (p->arithmetic == g->arithmetic && variant_of(p->trans_a, p->trans_b) == variant) {
            points[n++] = measured_of(p);
        }
    }
    *out = NULL;
    if (n > 0) {
        DTP_TRY(DTP_NEW(m->arena, *out, (size_t)n_nodes(g), err));
        fill_nodes(g, points, n, *out);
        clip_to_larger(g, *out);
    }
    return DTP_OK;
}

/* The table of the arithmetic; none without points. */
static dtp_status build_table(dtp_machine *m, dtp_arithmetic arithmetic, measured *points,
                              table **out, dtp_err *err)
{
    table *g = NULL;
    for (int32_t i = 0; i < m->n_gemm; i++) {
        if (m->gemm[i].arithmetic != arithmetic) {
            continue;
        }
        if (g == NULL) {
            DTP_TRY(DTP_NEW(m->arena, g, 1, err));
            g->arithmetic = arithmetic;
        }
        DTP_TRY(add_point(g, &m->gemm[i], err));
    }
    double *first = NULL;
    for (int32_t v = 0; g != NULL && v < N_VARIANTS; v++) {
        DTP_TRY(build_variant(m, g, v, points, &g->log_t[v], err));
        first = first == NULL ? g->log_t[v] : first;
    }
    for (int32_t v = 0; g != NULL && v < N_VARIANTS; v++) {
        g->log_t[v] = g->log_t[v] == NULL ? first : g->log_t[v];
    }
    *out = g;
    return DTP_OK;
}

dtp_status dtp_gemm_grid_build(dtp_machine *m, dtp_err *err)
{
    dtp_gemm_grid *g;
    measured *points;
    m->gemm_grid = NULL;
    m->gemm_fit_error = 0.0;
    if (m->n_gemm == 0) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(m->arena, g, 1, err));
    DTP_TRY(DTP_NEW(m->arena, points, m->n_gemm, err));
    for (dtp_arithmetic a = 0; a < DTP_N_ARITHMETICS; a++) {
        DTP_TRY(build_table(m, a, points, &g->of[a], err));
    }
    m->gemm_grid = g;
    double worst = 0.0;
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        dtp_work w = {.batch = p->batch,
                      .m = p->m,
                      .n = p->n,
                      .k = p->k,
                      .trans_a = p->trans_a,
                      .trans_b = p->trans_b};
        const double time_s = exp(log_volume(measured_of(p).log_size)) / p->flops;
        worst = fmax(worst, fabs(time_s / dtp_gemm_grid_time(g, p->arithmetic, &w) - 1.0));
    }
    m->gemm_fit_error = worst;
    return DTP_OK;
}

bool dtp_gemm_grid_has(const dtp_gemm_grid *grid, dtp_arithmetic arithmetic)
{
    return grid != NULL && grid->of[arithmetic] != NULL;
}

/* Place of a size on an axis: node below, fraction of the way to the next one, and log of how far
 * the size lies beyond the end. */
typedef struct place {
    int32_t node;
    double fraction, beyond;
} place;

static place locate(const axis *a, int64_t size)
{
    double x = log((double)(size > 1 ? size : 1));
    int32_t last = a->n - 1;
    if (x <= a->log_size[0]) {
        return (place){0, 0.0, 0.0};
    }
    if (x >= a->log_size[last]) {
        return (place){last, 0.0, x - a->log_size[last]};
    }
    int32_t i = axis_find(a, x) - 1;
    return (place){i, (x - a->log_size[i]) / (a->log_size[i + 1] - a->log_size[i]), 0.0};
}

double dtp_gemm_grid_time(const dtp_gemm_grid *all, dtp_arithmetic arithmetic, const dtp_work *work)
{
    const table *grid = all->of[arithmetic];
    const int64_t batch = work->batch < grid->most ? work->batch : grid->most;
    const place p[N_SIZES] = {locate(&grid->axes[0], work->m), locate(&grid->axes[1], work->n),
                              locate(&grid->axes[2], work->k), locate(&grid->axes[3], batch)};
    const double *log_t = grid->log_t[variant_of(work->trans_a, work->trans_b)];
    double sum = p[0].beyond + p[1].beyond + p[2].beyond;
    for (int32_t corner = 0; corner < 1 << N_SIZES; corner++) {
        double weight = 1.0;
        int32_t at[N_SIZES];
        for (int32_t d = 0; d < N_SIZES; d++) {
            bool up = (corner >> d & 1) != 0;
            weight *= up ? p[d].fraction : 1.0 - p[d].fraction;
            at[d] = p[d].node + (up ? 1 : 0);
        }
        if (weight > 0.0) {
            sum += weight * log_t[node_of(grid, at)];
        }
    }
    return (double)work->batch / (double)batch * exp(sum);
}
