/* The memory plan: an offset for every buffer such that buffers needed at the same time do not
 * overlap, with a low peak. (Dynamic storage allocation: minimising the peak is NP-hard.)
 *
 * Offline first fit: buffers are placed one after the other, each at the lowest offset at which it
 * meets no buffer already placed that is needed at a common time. Several orders are tried (large
 * first, long-lived bulk first, by time) and the lowest peak wins; the search stops at once when
 * the peak equals the largest sum of simultaneously needed bytes, below which nothing fits.
 * Resident buffers come first, packed from offset 0: they are needed always.
 */
#include <stdlib.h>

#include "core/base/safe_int.h"
#include "spmd/lower/first_fit.h"
#include "spmd/program/program_internal.h"
#include "spmd/lower/memplan.h"

static int64_t aligned(int64_t bytes)
{
    return (bytes + DTP_BUFFER_ALIGN - 1) / DTP_BUFFER_ALIGN * DTP_BUFFER_ALIGN;
}

/* ---- lower bound --------------------------------------------------------------------------------
 */

typedef struct event {
    int32_t time;
    int64_t delta;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return x->delta < y->delta ? -1 : (x->delta > y->delta ? 1 : 0);
}

int64_t dtp_memplan__bound(const dtp_interval *items, int32_t n, dtp_err *err)
{
    event *events = malloc((2 * (size_t)n + 1) * sizeof *events);
    int64_t sum = 0, most = 0;
    if (events == NULL) {
        (void)DTP_FAIL(err, DTP_NOMEM, "out of memory for %d buffers", n);
        return -1;
    }
    for (int32_t i = 0; i < n; i++) {
        events[2 * i] = (event){items[i].first, aligned(items[i].bytes)};
        events[2 * i + 1] = (event){items[i].last + 1, -aligned(items[i].bytes)};
    }
    qsort(events, 2 * (size_t)n, sizeof *events, compare_events);
    for (int32_t i = 0; i < 2 * n; i++) {
        sum += events[i].delta;
        most = sum > most ? sum : most;
    }
    free(events);
    return most;
}

/* ---- first fit ----------------------------------------------------------------------------------
 */

/* A buffer in some order of placement. */
typedef struct block {
    int64_t key;
    int32_t first, item;
} block;

/* Larger keys first; ties by time, then by id, so that the result is the same everywhere. */
static int compare_blocks(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->key != y->key) {
        return x->key > y->key ? -1 : 1;
    }
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->item < y->item ? -1 : (x->item > y->item ? 1 : 0);
}

typedef enum fit_order { BY_SIZE, BY_AREA, BY_LENGTH, BY_TIME, N_ORDERS } fit_order;

static int64_t sort_key(const dtp_interval *item, fit_order by)
{
    int64_t length = (int64_t)item->last - item->first + 1, area;
    switch (by) {
    case BY_SIZE:
        return item->bytes;
    case BY_AREA:
        return dtp_mul_i64(item->bytes, length, &area) ? area : INT64_MAX;
    case BY_LENGTH:
        return length;
    default:
        return -(int64_t)item->first;
    }
}

/* One placement, offset by item; returns its peak. */
static int64_t place_all(const dtp_interval *items, int32_t n, fit_order by, block *order,
                         dtp_first_fit *fit, int64_t *offset)
{
    int64_t peak = 0;
    for (int32_t i = 0; i < n; i++) {
        order[i] = (block){.key = sort_key(&items[i], by), .first = items[i].first, .item = i};
    }
    qsort(order, (size_t)n, sizeof *order, compare_blocks);
    dtp_first_fit_clear(fit);
    for (int32_t i = 0; i < n; i++) {
        const dtp_interval *x = &items[order[i].item];
        const int64_t bytes = aligned(x->bytes);
        const int64_t at = dtp_first_fit_place(fit, bytes, x->first, x->last);
        offset[order[i].item] = at;
        peak = at + bytes > peak ? at + bytes : peak;
    }
    return peak;
}

static dtp_status check_total(const dtp_interval *items, int32_t n, dtp_err *err)
{
    int64_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        if (items[i].bytes > INT64_MAX - DTP_BUFFER_ALIGN ||
            !dtp_add_i64(total, aligned(items[i].bytes), &total)) {
            return DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
        }
    }
    return DTP_OK;
}

dtp_status dtp_memplan__place(dtp_interval *items, int32_t n, int64_t *peak, dtp_err *err)
{
    dtp_first_fit *fit = NULL;
    DTP_TRY(check_total(items, n, err));
    DTP_TRY(dtp_first_fit_create(n, &fit, err));
    block *order = malloc(((size_t)n + 1) * sizeof *order);
    int64_t *offset = malloc(((size_t)n + 1) * sizeof *offset);
    const int64_t bound = order != NULL && offset != NULL ? dtp_memplan__bound(items, n, err) : -1;
    *peak = INT64_MAX;
    for (int by = 0; bound >= 0 && by<N_ORDERS && * peak> bound; by++) {
        const int64_t got = place_all(items, n, (fit_order)by, order, fit, offset);
        for (int32_t i = 0; i < n && got < *peak; i++) {
            items[i].offset = offset[i];
        }
        *peak = got < *peak ? got : *peak;
    }
    free(order);
    free(offset);
    dtp_first_fit_destroy(fit);
    return bound >= 0 ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d buffers", n);
}

/* ---- programs
 * ------------------------------------------------------------------------------------
 */

/* The time in which the buffer of each root is needed: that of everything inside it. */
static void find_spans(const dtp_program *p, dtp_interval *spans)
{
    for (int32_t v = 0; v < p->n_values; v++) {
        spans[v] = (dtp_interval){.bytes = p->values[v].bytes, .first = INT32_MAX, .last = -1};
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        dtp_interval *span = &spans[dtp_value_root(p, v)];
        if (value->first < 0) {
            continue;
        }
        span->first = value->first < span->first ? value->first : span->first;
        span->last = value->last > span->last ? value->last : span->last;
    }
}

static dtp_status place_program(dtp_program *p, dtp_interval *spans, dtp_value_id *ids,
                                dtp_err *err)
{
    int64_t base = 0, peak;
    int32_t n = 0;
    find_spans(p, spans);
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].offset = -1;
        if (p->values[v].parent >= 0 || spans[v].last < 0 || p->values[v].external) {
            continue;
        }
        if (p->values[v].kind == DTP_VALUE_RESIDENT) {
            p->values[v].offset = base;
            if (p->values[v].bytes > INT64_MAX - DTP_BUFFER_ALIGN ||
                !dtp_add_i64(base, aligned(p->values[v].bytes), &base)) {
                return DTP_FAIL(err, DTP_RANGE, "parameters and state exceed 2^63 bytes");
            }
            continue;
        }
        ids[n] = v;
        spans[n++] = spans[v];
    }
    DTP_TRY(dtp_memplan__place(spans, n, &peak, err));
    for (int32_t i = 0; i < n; i++) {
        p->values[ids[i]].offset = base + spans[i].offset;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        int64_t inside = 0;
        for (dtp_value_id up = v; p->values[up].parent >= 0; up = p->values[up].parent) {
            inside += p->values[up].parent_offset;
        }
        int64_t offset = p->values[dtp_value_root(p, v)].offset;
        if (p->values[v].parent >= 0 && offset >= 0) {
            p->values[v].offset = offset + inside;
        }
    }
    return dtp_add_i64(base, peak, &p->peak_bytes)
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
}

dtp_status dtp_program__plan_memory(dtp_program *p, dtp_err *err)
{
    dtp_interval *spans = malloc(((size_t)p->n_values + 1) * sizeof *spans);
    dtp_value_id *ids = malloc(((size_t)p->n_values + 1) * sizeof *ids);
    dtp_status status = spans == NULL || ids == NULL
                            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for %d values", p->n_values)
                            : place_program(p, spans, ids, err);
    free(spans);
    free(ids);
    return status;
}
