/* The problem becomes a reduced problem. The memory constraint holds at every time; rows are made
 * of few of them, which imply the others:
 *
 *   1. maximal cliques of intervals: the last begin before an end. Every other time has a subset of
 *      the intervals of such a time;
 *   2. of these, without the rows whose usage is the mean of two others (below): tied layers;
 *   3. of these, only those that may exceed the limit (memory_rows.c).
 */
#include "planner/solver/reduced/load.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"

/* Of every interval: the rows first..last - 1 in which it is. */
typedef struct row_range {
    int32_t first, last;
} row_range;

/* ---- linear rows ---- */

/* Rows of repeated blocks. Instances of a block that decide together use memory in the same way one
 * after the other: from one instance to the next, usage at one place of the block changes by the
 * same amount, whatever is chosen. So it is linear in the number of the instance, and largest in
 * the first or the last one.
 *
 * change[r] is what begins and ends between rows r - 1 and r. If change[r] = change[r - d] for all
 * r in [a, b], then use[r] - use[r - d] is one and the same for all r in [a - 1, b], and
 *
 *   use[r] = (use[r - d] + use[r + d]) / 2   for all r in [a - 1, b - d],
 *
 * which are dropped. Were all rows of largest usage dropped, so would be the one d before the
 * first of them, or it would be kept: either way it is one of them, which it cannot be. */

typedef struct signature {
    uint64_t hash;
    int32_t row;
} signature;

typedef struct changes {
    int32_t n_rows;
    int64_t *first; /* by row, and two more: in list */
    int64_t *list;  /* by row, in order: usages that begin (even) or end (odd) */
    signature *by_hash;
    int32_t *period; /* by row: d such that its change is that of d rows before; 0 = none */
} changes;

static int compare_i64(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int compare_signatures(const void *a, const void *b)
{
    const signature *x = a, *y = b;
    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash)
                              : (x->row > y->row) - (x->row < y->row);
}

/* By counting; first[r + 1] is where row r is filled up to meanwhile. */
static void list_changes(changes *c, const dtp_problem *p, const row_range *span)
{
    const int32_t n = dtp_problem_n_intervals(p);
    for (int32_t i = 0; i < n; i++) {
        if (span[i].first < span[i].last) {
            c->first[span[i].first + 2]++;
            c->first[span[i].last + 2]++;
        }
    }
    for (int32_t r = 0; r <= c->n_rows; r++) {
        c->first[r + 2] += c->first[r + 1];
    }
    for (int32_t i = 0; i < n; i++) {
        if (span[i].first < span[i].last) {
            const int64_t usages =
                i < p->n_variables ? p->first[i]
                                   : p->first[p->n_variables] + p->extra_first[i - p->n_variables];
            const int64_t what = 2 * usages;
            c->list[c->first[span[i].first + 1]++] = what;
            c->list[c->first[span[i].last + 1]++] = what + 1;
        }
    }
}

/* Rows of the same change stand together once they are sorted by its hash. */
static void find_periods(changes *c)
{
    for (int32_t r = 0; r < c->n_rows; r++) {
        int64_t *list = c->list + c->first[r];
        const int64_t n = c->first[r + 1] - c->first[r];
        uint64_t hash = (uint64_t)n;
        if (n > 1) {
            qsort(list, (size_t)n, sizeof *list, compare_i64);
        }
        for (int64_t i = 0; i < n; i++) {
            hash = (hash ^ (uint64_t)list[i]) * UINT64_C(0x9E3779B97F4A7C15);
            hash ^= hash >> 29;
        }
        c->by_hash[r] = (signature){hash, r};
    }
    qsort(c->by_hash, (size_t)c->n_rows, sizeof *c->by_hash, compare_signatures);
    for (int32_t i = 1; i < c->n_rows; i++) {
        const signature *x = &c->by_hash[i];
        const int32_t a = x[-1].row, b = x->row;
        const int64_t n = c->first[b + 1] - c->first[b];
        if (x[-1].hash == x->hash && n == c->first[a + 1] - c->first[a] &&
            memcmp(c->list + c->first[a], c->list + c->first[b], (size_t)n * sizeof *c->list) ==
                0) {
            c->period[b] = b - a;
        }
    }
}

/* Marks them in `dropped`. */
static dtp_status drop_linear_rows(const dtp_problem *p, const row_range *span, int32_t n_rows,
                                   dtp_arena *arena, bool *dropped, dtp_err *err)
{
    const int64_t n = (int64_t)n_rows + 3;
    changes c = {.n_rows = n_rows};
    DTP_TRY(DTP_NEW(arena, c.first, n, err));
    DTP_TRY(DTP_NEW(arena, c.list, 2 * (int64_t)dtp_problem_n_intervals(p) + 1, err));
    DTP_TRY(DTP_NEW(arena, c.by_hash, n, err));
    DTP_TRY(DTP_NEW(arena, c.period, n, err));
    list_changes(&c, p, span);
    find_periods(&c);
    for (int32_t a = 1, b; a < n_rows; a = b + 1) {
        const int32_t d = c.period[a];
        for (b = a; b + 1 < n_rows && c.period[b + 1] == d && d > 0; b++) {
        }
        for (int32_t r = a - 1; d > 0 && r + d <= b; r++) {
            dropped[r] = r >= d || dropped[r];
        }
    }
    return DTP_OK;
}

/* ---- rows ---- */

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

/* Begins or ends of the intervals with usage, in order. */
static void sort_times(const solver_reduced *w, const row_range *span, bool begin, dtp_keyed *list,
                       int64_t *times)
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
static void find_spans(solver_reduced *w, int64_t *times, dtp_keyed *list, row_range *span)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    int64_t *begins = times + n, *ends = begins + n;
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        bool any = false;
        for (int32_t s = 0; s < w->variables[x.variable].k && !any; s++) {
            any = x.usage[s] > 0;
        }
        span[i].last = any && x.begin < x.end ? 1 : 0;
        used += span[i].last;
    }
    sort_times(w, span, true, list, begins);
    sort_times(w, span, false, list, ends);
    w->n_rows = clique_times(begins, ends, used, times, !w->options.memory_rows);
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        if (span[i].last > 0) {
            span[i].first = row_at(times, w->n_rows, x.begin);
            span[i].last = row_at(times, w->n_rows, x.end);
        }
    }
}

/* Leaves out the rows that are marked; to: scratch, by row and one more. */
static void leave_out(solver_reduced *w, const bool *dropped, int64_t *times, row_range *span,
                      int32_t *to)
{
    int32_t kept = 0;
    for (int32_t r = 0; r < w->n_rows; r++) {
        to[r] = kept;
        times[kept] = times[r];
        kept += dropped[r] ? 0 : 1;
    }
    to[w->n_rows] = kept;
    for (int32_t i = 0; i < dtp_problem_n_intervals(w->p); i++) {
        span[i] = (row_range){to[span[i].first], to[span[i].last]};
    }
    w->report.dropped_rows += w->n_rows - kept;
    w->n_rows = kept;
}

/* arena: scratch. */
static dtp_status create_memory(solver_reduced *w, dtp_arena *arena, dtp_err *err)
{
    const int32_t n = dtp_problem_n_intervals(w->p);
    int64_t *times;
    dtp_keyed *list;
    row_range *span;
    DTP_TRY(DTP_NEW(arena, times, 3 * (int64_t)n, err));
    DTP_TRY(DTP_NEW(arena, list, 2 * (int64_t)n, err));
    DTP_TRY(DTP_NEW(arena, span, n, err));
    find_spans(w, times, list, span);
    if (w->options.memory_rows) {
        bool *dropped;
        int32_t *to;
        DTP_TRY(DTP_NEW(arena, dropped, w->n_rows, err));
        DTP_TRY(DTP_NEW(arena, to, (int64_t)w->n_rows + 1, err));
        DTP_TRY(drop_linear_rows(w->p, span, w->n_rows, arena, dropped, err));
        leave_out(w, dropped, times, span, to);
    }
    w->time = malloc(((size_t)w->n_rows + 1) * sizeof *w->time);
    w->base = calloc((size_t)w->n_rows + 1, sizeof *w->base);
    w->multiplier = calloc((size_t)w->n_rows + 1, sizeof *w->multiplier);
    DTP_TRY(DTP_MEMORY(err, w->time, w->base, w->multiplier));
    memcpy(w->time, times, (size_t)w->n_rows * sizeof *w->time);
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(w->p, i);
        if (span[i].first >= span[i].last) {
            continue;
        }
        const int32_t k = w->variables[x.variable].k;
        assert(k > 0); /* each variable has a choice */
        int64_t *use = malloc((size_t)k * sizeof *use);
        DTP_TRY(DTP_MEMORY(err, use));
        memcpy(use, x.usage, (size_t)k * sizeof *use);
        DTP_TRY(solver_add_piece(w, x.variable, span[i].first, span[i].last, use, err));
    }
    return DTP_OK;
}

/* ---- variables and edges ---- */

static dtp_status load_variables(solver_reduced *w, dtp_err *err)
{
    const dtp_problem *p = w->p;
    for (int32_t i = 0; i < w->n_variables; i++) {
        solver_variable *x = &w->variables[i];
        x->k = dtp_problem_n_strategies(p, i);
        x->alive = x->changed = x->memory_changed = true;
        x->cost = malloc((size_t)x->k * sizeof *x->cost);
        DTP_TRY(DTP_MEMORY(err, x->cost));
        for (int32_t s = 0; s < x->k; s++) {
            const int64_t cost = p->cost[p->first[i] + s];
            x->cost[s] = cost < DTP_FORBIDDEN ? cost : DTP_FORBIDDEN;
            x->n_live += cost < DTP_FORBIDDEN ? 1 : 0;
        }
        w->infeasible = w->infeasible || x->n_live == 0;
    }
    return DTP_OK;
}

dtp_status solver_reduced_create(const dtp_problem *p, const dtp_presolve_options *options,
                                 const dtp_solver_parameters *parameters, solver_reduced **out,
                                 dtp_err *err)
{
    solver_reduced *w = calloc(1, sizeof *w);
    DTP_TRY(DTP_MEMORY(err, w));
    w->p = p;
    w->options = *options;
    w->parameters = parameters;
    w->n_variables = p->n_variables;
    w->limit = p->usage_limit;
    w->cutoff = DTP_FORBIDDEN;
    w->arena = dtp_arena_create();
    w->variables = calloc((size_t)p->n_variables + 1, sizeof *w->variables);
    dtp_arena *scratch = dtp_arena_create();
    dtp_status s = DTP_MEMORY(err, w->arena, w->variables, scratch);
    s = s == DTP_OK ? load_variables(w, err) : s;
    for (int32_t e = 0; e < p->n_edges && s == DTP_OK; e++) {
        s = solver_add_borrowed(w, p->edge_a[e], p->edge_b[e], p->edge_cost + p->edge_first[e],
                                err);
    }
    s = s == DTP_OK ? create_memory(w, scratch, err) : s;
    dtp_arena_destroy(scratch);
    if (s != DTP_OK) {
        solver_reduced_destroy(w);
        return s;
    }
    w->report.before = solver_size(w);
    *out = w;
    return DTP_OK;
}
