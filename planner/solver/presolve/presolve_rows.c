/* Which times become rows: maximal cliques of intervals, the last begin before an end, and of those
 * only the ones that solver_drop_linear_rows leaves. */
#include "planner/solver/reduced/work.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"

/* The times of the maximal cliques, in order: begins b such that some end lies in (b, next begin].
 */
static int32_t clique_times(const int64_t *begins, const int64_t *ends, int32_t n, int64_t *times,
                            bool all)
{
    int32_t n_times = 0, e = 0;
    for (int32_t b = 0; b < n; b++) {
        if (b + 1 < n && begins[b + 1] == begins[b]) {
            continue;
        }
        while (e < n && ends[e] <= begins[b]) {
            e++;
        }
        const bool maximal = b + 1 == n || (e < n && ends[e] <= begins[b + 1]);
        if (maximal || all) {
            times[n_times++] = begins[b];
        }
    }
    return n_times;
}

/* The first row at or after a time. */
static int32_t row_at(const int64_t *times, int32_t n, int64_t time)
{
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (times[mid] < time) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static bool uses_memory(const solver_work *w, const dtp_problem_interval *x)
{
    bool any = false;
    for (int32_t s = 0; s < w->nodes[x->node].k && !any; s++) {
        any = x->usage[s] > 0;
    }
    return any && x->begin < x->end;
}

static dtp_status add_pieces(solver_work *w, const solver_row_range *span, dtp_err *err)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        if (span[i].first >= span[i].last) {
            continue;
        }
        const size_t bytes = (size_t)w->nodes[x.node].k * sizeof(int64_t);
        int64_t *use = malloc(bytes);
        if (use == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for usages");
        }
        memcpy(use, x.usage, bytes);
        DTP_TRY(solver_add_piece(w, x.node, span[i].first, span[i].last, use, err));
    }
    return DTP_OK;
}

/* Begins or ends of the intervals with usage, in order. */
static void sort_times(const solver_work *w, const solver_row_range *span, bool begin,
                       dtp_keyed *list, int64_t *times)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        if (span[i].last > 0) {
            list[used++].key = dtp_sort_key(begin ? x.begin : x.end);
        }
    }
    dtp_sort_keyed(list, list + n, used);
    for (int32_t i = 0; i < used; i++) {
        times[i] = dtp_sort_value(list[i].key);
    }
}

/* The rows of every interval, none without usage. times: scratch, three for every interval; list:
 * two. */
static void find_spans(solver_work *w, int64_t *times, dtp_keyed *list, solver_row_range *span)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    int64_t *begins = times + n, *ends = begins + n;
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        span[i].last = uses_memory(w, &x) ? 1 : 0;
        used += span[i].last;
    }
    sort_times(w, span, true, list, begins);
    sort_times(w, span, false, list, ends);
    w->n_rows = clique_times(begins, ends, used, times, !w->options.rows);
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        if (span[i].last > 0) {
            span[i].first = row_at(times, w->n_rows, x.begin);
            span[i].last = row_at(times, w->n_rows, x.end);
        }
    }
}

/* Leaves out the rows that are marked. */
static dtp_status leave_out(solver_work *w, const bool *dropped, int64_t *times,
                            solver_row_range *span, dtp_err *err)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    int32_t kept = 0;
    int32_t *to = malloc(((size_t)w->n_rows + 1) * sizeof *to);
    if (to == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d memory rows", w->n_rows);
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        to[r] = kept;
        times[kept] = times[r];
        kept += dropped[r] ? 0 : 1;
    }
    to[w->n_rows] = kept;
    for (int32_t i = 0; i < n; i++) {
        span[i] = (solver_row_range){to[span[i].first], to[span[i].last]};
    }
    w->report.dropped_rows += w->n_rows - kept;
    w->n_rows = kept;
    free(to);
    return DTP_OK;
}

static dtp_status create_rows(solver_work *w, int64_t *times, solver_row_range *span, dtp_err *err)
{
    if (w->options.rows) {
        bool *dropped = calloc((size_t)w->n_rows + 1, sizeof *dropped);
        if (dropped == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d memory rows", w->n_rows);
        }
        dtp_status s = solver_drop_linear_rows(w->p, span, w->n_rows, dropped, err);
        s = s == DTP_OK ? leave_out(w, dropped, times, span, err) : s;
        free(dropped);
        DTP_TRY(s);
    }
    w->time = malloc(((size_t)w->n_rows + 1) * sizeof *w->time);
    w->base = calloc((size_t)w->n_rows + 1, sizeof *w->base);
    w->multiplier = calloc((size_t)w->n_rows + 1, sizeof *w->multiplier);
    if (w->time == NULL || w->base == NULL || w->multiplier == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d memory rows", w->n_rows);
    }
    memcpy(w->time, times, (size_t)w->n_rows * sizeof *w->time);
    return add_pieces(w, span, err);
}

dtp_status solver_memory_create(solver_work *w, dtp_err *err)
{
    const size_t n = (size_t)dtp_problem_n_intervals(w->p) + 1;
    int64_t *times = malloc(3 * n * sizeof *times);
    dtp_keyed *list = calloc(2 * n, sizeof *list);
    solver_row_range *span = calloc(n, sizeof *span);
    dtp_status s = times != NULL && list != NULL && span != NULL
                       ? DTP_OK
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for the times of intervals");
    if (s == DTP_OK) {
        find_spans(w, times, list, span);
        s = create_rows(w, times, span, err);
    }
    free(times);
    free(list);
    free(span);
    return s;
}
