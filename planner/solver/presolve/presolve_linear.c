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
#include "planner/solver/reduced/work.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- changes ------------------------------------------------------------------------------------
 */

/* Where the usages of an interval lie. */
static int64_t usages_of(const dtp_problem *p, int32_t interval)
{
    return interval < p->n_nodes ? p->first[interval]
                                 : p->first[p->n_nodes] + p->extra_first[interval - p->n_nodes];
}

/* By counting; first[r + 1] is where row r is filled up to meanwhile. */
static void list_changes(changes *c, const dtp_problem *p, const solver_row_range *span)
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
            const int64_t what = 2 * usages_of(p, i);
            c->list[c->first[span[i].first + 1]++] = what;
            c->list[c->first[span[i].last + 1]++] = what + 1;
        }
    }
}

static void sign(changes *c)
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
}

static bool same_change(const changes *c, int32_t a, int32_t b)
{
    const int64_t n = c->first[a + 1] - c->first[a];
    return n == c->first[b + 1] - c->first[b] &&
           memcmp(c->list + c->first[a], c->list + c->first[b], (size_t)n * sizeof *c->list) == 0;
}

static void find_periods(changes *c)
{
    sign(c);
    for (int32_t i = 1; i < c->n_rows; i++) {
        const signature *x = &c->by_hash[i];
        if (x[-1].hash == x->hash && same_change(c, x[-1].row, x->row)) {
            c->period[x->row] = x->row - x[-1].row;
        }
    }
}

static void drop_between(const changes *c, bool *dropped)
{
    for (int32_t a = 1, b; a < c->n_rows; a = b + 1) {
        const int32_t d = c->period[a];
        for (b = a; b + 1 < c->n_rows && c->period[b + 1] == d && d > 0; b++) {
        }
        for (int32_t r = a - 1; d > 0 && r + d <= b; r++) {
            dropped[r] = r >= d || dropped[r];
        }
    }
}

dtp_status solver_drop_linear_rows(const dtp_problem *p, const solver_row_range *span,
                                   int32_t n_rows, bool *dropped, dtp_err *err)
{
    const size_t n = (size_t)n_rows + 3, n_intervals = (size_t)dtp_problem_n_intervals(p);
    changes c = {.n_rows = n_rows,
                 .first = calloc(n, sizeof *c.first),
                 .list = malloc((2 * n_intervals + 1) * sizeof *c.list),
                 .by_hash = malloc(n * sizeof *c.by_hash),
                 .period = calloc(n, sizeof *c.period)};
    const bool ok = c.first != NULL && c.list != NULL && c.by_hash != NULL && c.period != NULL;
    if (ok) {
        list_changes(&c, p, span);
        find_periods(&c);
        drop_between(&c, dropped);
    }
    free(c.first);
    free(c.list);
    free(c.by_hash);
    free(c.period);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d memory rows", n_rows);
}
