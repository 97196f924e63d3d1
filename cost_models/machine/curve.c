/* Evaluation and fitting of measured curves (dtp_curve of cost_models/machine/machine.h). */
#include "cost_models/machine/curve.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"

double dtp_curve_at(const dtp_curve *curve, double x)
{
    assert(curve->n > 0);
    int32_t last = curve->n - 1;
    if (!(x > curve->x[0])) {
        return curve->y[0];
    }
    if (x >= curve->x[last]) {
        return curve->y[last] * (x / curve->x[last]);
    }
    int32_t lo = 0;
    int32_t hi = last;
    while (hi - lo > 1) {
        int32_t mid = lo + (hi - lo) / 2;
        if (curve->x[mid] <= x) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    if (curve->y[lo] == curve->y[hi]) {
        return curve->y[lo];
    }
    double u = log(x / curve->x[lo]) / log(curve->x[hi] / curve->x[lo]);
    return curve->y[lo] * exp(u * log(curve->y[hi] / curve->y[lo]));
}

typedef struct sample {
    double x, log_y;
} sample;

static int by_x(const void *a, const void *b)
{
    const sample *p = a;
    const sample *q = b;
    return p->x < q->x ? -1 : p->x > q->x;
}

/* A run of points that share one fitted value: the lower median of theirs. */
typedef struct block {
    int32_t first, points;
    double median;
} block;

/* Merges each block into its left neighbour while their medians descend. Writes the fitted values.
 */
static void pool_adjacent(int32_t n, const double *log_y, block *blocks, double *scratch,
                          double *fitted)
{
    int32_t n_blocks = 0;
    for (int32_t i = 0; i < n; i++) {
        blocks[n_blocks++] = (block){i, 1, log_y[i]};
        while (n_blocks > 1 && blocks[n_blocks - 2].median > blocks[n_blocks - 1].median) {
            blocks[n_blocks - 2].points += blocks[n_blocks - 1].points;
            n_blocks--;
            block *b = &blocks[n_blocks - 1];
            memcpy(scratch, log_y + b->first, (size_t)b->points * sizeof *scratch);
            qsort(scratch, (size_t)b->points, sizeof *scratch, dtp_compare_doubles);
            b->median = scratch[(b->points - 1) / 2];
        }
    }
    for (int32_t b = 0; b < n_blocks; b++) {
        for (int32_t k = 0; k < blocks[b].points; k++) {
            fitted[blocks[b].first + k] = exp(blocks[b].median);
        }
    }
}

/* Sorts the samples and merges those of equal x into means; returns how many are left. */
static int32_t merge_equal(int32_t n, sample *samples, double *x, double *mean, double *weight)
{
    qsort(samples, (size_t)n, sizeof *samples, by_x);
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (m == 0 || samples[i].x > x[m - 1]) {
            x[m] = samples[i].x;
            mean[m] = 0.0;
            weight[m++] = 0.0;
        }
        mean[m - 1] += samples[i].log_y;
        weight[m - 1] += 1.0;
    }
    for (int32_t i = 0; i < m; i++) {
        mean[i] /= weight[i];
    }
    return m;
}

dtp_status dtp_curve_from_samples(dtp_arena *arena, int32_t n, const double *x, const double *y,
                                  dtp_curve *out, dtp_err *err)
{
    assert(n > 0);
    size_t count = (size_t)n;
    double *cx = dtp_arena_alloc(arena, count, sizeof *cx);
    double *cy = dtp_arena_alloc(arena, count, sizeof *cy);
    double *measured = dtp_arena_alloc(arena, count, sizeof *measured);
    double *weight = malloc(count * sizeof *weight);
    sample *samples = malloc(count * sizeof *samples);
    block *blocks = malloc(count * sizeof *blocks);
    dtp_status status = DTP_OK;
    if (cx == NULL || cy == NULL || measured == NULL || weight == NULL || samples == NULL ||
        blocks == NULL) {
        status = DTP_FAIL(err, DTP_NOMEM, "curve of %d samples: out of memory", n);
    } else {
        for (int32_t i = 0; i < n; i++) {
            assert(x[i] > 0.0 && y[i] > 0.0);
            samples[i] = (sample){x[i], log(y[i])};
        }
        int32_t m = merge_equal(n, samples, cx, measured, weight);
        pool_adjacent(m, measured, blocks, weight, cy);
        *out = (dtp_curve){.n = m, .x = cx, .y = cy, .measured = measured};
        for (int32_t i = 0; i < m; i++) {
            measured[i] = exp(measured[i]);
            out->fit_error = fmax(out->fit_error, fabs(measured[i] / cy[i] - 1.0));
        }
    }
    free(weight);
    free(samples);
    free(blocks);
    return status;
}
