#include "cost_models/machine/gemm.h"

#include <math.h>

enum { N_VARIANTS = 4 };

typedef struct axis {
    int32_t n;
    double log_size[DTP_GEMM_MAX_AXIS]; /* ascending */
} axis;

/* The grid of one arithmetic. */
typedef struct table {
    dtp_arithmetic arithmetic;
    axis axes[3];              /* m, n, k */
    double *log_t[N_VARIANTS]; /* row-major over (m, n, k); shared by variants without points */
} table;

struct dtp_gemm_grid {
    table *of[DTP_N_ARITHMETICS]; /* NULL: not measured */
};

static int32_t variant_of(bool trans_a, bool trans_b)
{
    return (trans_a ? 2 : 0) + (trans_b ? 1 : 0);
}

static int64_t node_of(const table *g, const int32_t at[3])
{
    return ((int64_t)at[0] * g->axes[1].n + at[1]) * g->axes[2].n + at[2];
}

static int32_t axis_find(const axis *a, double log_size)
{
    int32_t i = 0;
    while (i < a->n && a->log_size[i] < log_size) {
        i++;
    }
    return i;
}

static dtp_status axis_add(axis *a, int64_t size, const char *name, dtp_err *err)
{
    double v = log((double)size);
    int32_t i = axis_find(a, v);
    if (i < a->n && !(a->log_size[i] > v)) {
        return DTP_OK;
    }
    if (a->n == DTP_GEMM_MAX_AXIS) {
        return DTP_FAIL(err, DTP_RANGE, "gemm: more than %d distinct values of %s",
                        DTP_GEMM_MAX_AXIS, name);
    }
    for (int32_t j = a->n; j > i; j--) {
        a->log_size[j] = a->log_size[j - 1];
    }
    a->log_size[i] = v;
    a->n++;
    return DTP_OK;
}

static double point_log_volume(const dtp_gemm_point *p)
{
    return log(2.0) + log((double)p->m) + log((double)p->n) + log((double)p->k);
}

/* log of 1 / rate of the measured node nearest to the one at the logs `x`. */
static double nearest_log_cost(const dtp_machine *m, dtp_arithmetic arithmetic, int32_t variant,
                               const double x[3])
{
    double best = INFINITY;
    double cost = 0.0;
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        if (p->arithmetic != arithmetic || variant_of(p->trans_a, p->trans_b) != variant) {
            continue;
        }
        double dm = log((double)p->m) - x[0];
        double dn = log((double)p->n) - x[1];
        double dk = log((double)p->k) - x[2];
        double distance = dm * dm + dn * dn + dk * dk;
        if (distance < best) {
            best = distance;
            cost = -log(p->flops);
        }
    }
    return cost;
}

/* Visits all nodes; writes log t of measured ones and fills the others. */
static void fill_nodes(const dtp_machine *m, const table *g, int32_t variant, double *log_t)
{
    int64_t nodes = (int64_t)g->axes[0].n * g->axes[1].n * g->axes[2].n;
    for (int64_t i = 0; i < nodes; i++) {
        log_t[i] = NAN;
    }
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        if (p->arithmetic == g->arithmetic && variant_of(p->trans_a, p->trans_b) == variant) {
            int32_t at[3] = {axis_find(&g->axes[0], log((double)p->m)),
                             axis_find(&g->axes[1], log((double)p->n)),
                             axis_find(&g->axes[2], log((double)p->k))};
            log_t[node_of(g, at)] = point_log_volume(p) - log(p->flops);
        }
    }
    for (int64_t i = 0; i < nodes; i++) {
        if (isnan(log_t[i])) {
            int32_t nk = g->axes[2].n;
            int32_t nn = g->axes[1].n;
            double x[3] = {g->axes[0].log_size[i / nk / nn], g->axes[1].log_size[i / nk % nn],
                           g->axes[2].log_size[i % nk]};
            log_t[i] =
                log(2.0) + x[0] + x[1] + x[2] + nearest_log_cost(m, g->arithmetic, variant, x);
        }
    }
}

/* Running minimum from large to small sizes, in place. */
static void clip_to_larger(const table *g, double *log_t)
{
    int64_t nk = g->axes[2].n;
    int64_t stride[3] = {g->axes[1].n * nk, nk, 1};
    for (int64_t i = g->axes[0].n * stride[0] - 1; i >= 0; i--) {
        int64_t at[3] = {i / stride[0], i / nk % g->axes[1].n, i % nk};
        for (int32_t d = 0; d < 3; d++) {
            if (at[d] + 1 < g->axes[d].n) {
                log_t[i] = fmin(log_t[i], log_t[i + stride[d]]);
            }
        }
    }
}

/* The table of the arithmetic; none without points. */
static dtp_status build_table(dtp_machine *m, dtp_arithmetic arithmetic, table **out, dtp_err *err)
{
    table *g = NULL;
    bool present[N_VARIANTS] = {false};
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        if (p->arithmetic != arithmetic) {
            continue;
        }
        if (g == NULL) {
            DTP_TRY(DTP_NEW(m->arena, g, 1, err));
            g->arithmetic = arithmetic;
        }
        DTP_TRY(axis_add(&g->axes[0], p->m, "m", err));
        DTP_TRY(axis_add(&g->axes[1], p->n, "n", err));
        DTP_TRY(axis_add(&g->axes[2], p->k, "k", err));
        present[variant_of(p->trans_a, p->trans_b)] = true;
    }
    double *first = NULL;
    for (int32_t v = 0; v < N_VARIANTS; v++) {
        if (g != NULL && present[v]) {
            size_t nodes = (size_t)g->axes[0].n * (size_t)g->axes[1].n * (size_t)g->axes[2].n;
            double *log_t;
            DTP_TRY(DTP_NEW(m->arena, log_t, nodes, err));
            fill_nodes(m, g, v, log_t);
            clip_to_larger(g, log_t);
            g->log_t[v] = log_t;
            first = first == NULL ? g->log_t[v] : first;
        }
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
    m->gemm_grid = NULL;
    m->gemm_fit_error = 0.0;
    if (m->n_gemm == 0) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(m->arena, g, 1, err));
    for (dtp_arithmetic a = 0; a < DTP_N_ARITHMETICS; a++) {
        DTP_TRY(build_table(m, a, &g->of[a], err));
    }
    m->gemm_grid = g;
    double worst = 0.0;
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        dtp_work w = {
            .m = p->m, .n = p->n, .k = p->k, .trans_a = p->trans_a, .trans_b = p->trans_b};
        double measured = exp(point_log_volume(p)) / p->flops;
        worst = fmax(worst, fabs(measured / dtp_gemm_grid_time(g, p->arithmetic, &w) - 1.0));
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
    place p[3] = {locate(&grid->axes[0], work->m), locate(&grid->axes[1], work->n),
                  locate(&grid->axes[2], work->k)};
    const double *log_t = grid->log_t[variant_of(work->trans_a, work->trans_b)];
    double sum = p[0].beyond + p[1].beyond + p[2].beyond;
    for (int32_t corner = 0; corner < 8; corner++) {
        double weight = 1.0;
        int32_t at[3];
        for (int32_t d = 0; d < 3; d++) {
            bool up = (corner >> d & 1) != 0;
            weight *= up ? p[d].fraction : 1.0 - p[d].fraction;
            at[d] = p[d].node + (up ? 1 : 0);
        }
        if (weight > 0.0) {
            sum += weight * log_t[node_of(grid, at)];
        }
    }
    return exp(sum);
}
