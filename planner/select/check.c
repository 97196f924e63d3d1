/* Usage over time by sweeping the begins and ends of the intervals in order of time; at one time,
 * ends come first, because intervals are half-open. */
#include "planner/select/check.h"

#include <stdlib.h>

#include "core/sort.h"

/* An interval begins or ends. */
typedef struct event {
    const int64_t *usage; /* by strategy of the node; borrowed */
    int64_t time;
    int32_t node;
    bool begin;
} event;

struct dtp_select_evaluator {
    const dtp_select_problem *p;
    event *events; /* in order */
    size_t n;
};

/* Begins or ends of all intervals; the item is the interval. */
static int64_t list_times(const dtp_select_problem *p, bool begin, dtp_keyed *list)
{
    const int32_t n_intervals = dtp_select_n_intervals(p);
    int64_t n = 0;
    for (int32_t i = 0; i < n_intervals; i++) {
        const dtp_select_interval x = dtp_select_interval_at(p, i);
        if (x.begin < x.end) {
            list[n++] = (dtp_keyed){dtp_sort_key(begin ? x.begin : x.end), i};
        }
    }
    return n;
}

/* Ends are listed before begins, which sorting keeps so at one time. */
static void put_in_order(dtp_select_evaluator *e, dtp_keyed *list, dtp_keyed *scratch)
{
    const int64_t ends = list_times(e->p, false, list);
    const int64_t n = ends + list_times(e->p, true, list + ends);
    for (int64_t i = ends; i < n; i++) {
        list[i].item = ~list[i].item;
    }
    dtp_sort_keyed(list, scratch, n);
    for (int64_t i = 0; i < n; i++) {
        const bool begin = list[i].item < 0;
        const int64_t interval = begin ? ~list[i].item : list[i].item;
        const dtp_select_interval x = dtp_select_interval_at(e->p, (int32_t)interval);
        e->events[i] = (event){x.usage, begin ? x.begin : x.end, x.node, begin};
    }
    e->n = (size_t)n;
}

dtp_status dtp_select_evaluator_create(const dtp_select_problem *p, dtp_select_evaluator **out,
                                       dtp_err *err)
{
    const size_t n = (size_t)dtp_select_n_intervals(p) * 2 + 1;
    dtp_select_evaluator *e = calloc(1, sizeof *e);
    event *events = calloc(n, sizeof *events);
    dtp_keyed *list = malloc(2 * n * sizeof *list);
    const bool ok = e != NULL && events != NULL && list != NULL;
    if (ok) {
        *e = (dtp_select_evaluator){.p = p, .events = events};
        put_in_order(e, list, list + n);
        *out = e;
    } else {
        free(e);
        free(events);
    }
    free(list);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu times", n);
}

void dtp_select_evaluator_destroy(dtp_select_evaluator *e)
{
    if (e != NULL) {
        free(e->events);
        free(e);
    }
}

static int64_t smallest(const dtp_select_problem *p, int32_t node, const int64_t *usage)
{
    int64_t least = INT64_MAX;
    for (int32_t s = 0; s < dtp_select_n_strategies(p, node); s++) {
        least = usage[s] < least ? usage[s] : least;
    }
    return least;
}

/* choice NULL: every interval with its smallest usage. */
static void sweep(const dtp_select_evaluator *e, const int32_t *choice, dtp_select_value *out)
{
    int64_t now = 0;
    for (size_t k = 0; k < e->n; k++) {
        const event *at = &e->events[k];
        const int64_t usage =
            choice != NULL ? at->usage[choice[at->node]] : smallest(e->p, at->node, at->usage);
        now += at->begin ? usage : -usage;
        if (now > out->peak) {
            out->peak = now;
            out->peak_at = at->time;
        }
    }
}

dtp_status dtp_select_evaluator_run(const dtp_select_evaluator *evaluator, const int32_t *choice,
                                    dtp_select_value *out, dtp_err *err)
{
    const dtp_select_problem *p = evaluator->p;
    *out = (dtp_select_value){0};
    for (int32_t i = 0; i < p->n_nodes; i++) {
        if (choice[i] < 0 || choice[i] >= dtp_select_n_strategies(p, i)) {
            return DTP_FAIL(err, DTP_INVALID, "node %d: strategy %d of %d", i, choice[i],
                            dtp_select_n_strategies(p, i));
        }
        out->cost = dtp_select_add_cost(out->cost, p->cost[p->first[i] + choice[i]]);
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int64_t row = choice[p->edge_a[e]], col = choice[p->edge_b[e]];
        const int64_t at = p->edge_first[e] + row * dtp_select_n_strategies(p, p->edge_b[e]) + col;
        out->cost = dtp_select_add_cost(out->cost, p->edge_cost[at]);
    }
    sweep(evaluator, choice, out);
    out->feasible = out->cost < DTP_SELECT_FORBIDDEN && out->peak <= p->usage_limit;
    return DTP_OK;
}

dtp_status dtp_select_evaluate(const dtp_select_problem *p, const int32_t *choice,
                               dtp_select_value *out, dtp_err *err)
{
    dtp_select_evaluator *e = NULL;
    DTP_TRY(dtp_select_evaluator_create(p, &e, err));
    const dtp_status status = dtp_select_evaluator_run(e, choice, out, err);
    dtp_select_evaluator_destroy(e);
    return status;
}

dtp_status dtp_select_least_peak(const dtp_select_problem *p, int64_t *out, dtp_err *err)
{
    dtp_select_evaluator *e = NULL;
    dtp_select_value value = {0};
    DTP_TRY(dtp_select_evaluator_create(p, &e, err));
    sweep(e, NULL, &value);
    dtp_select_evaluator_destroy(e);
    *out = value.peak;
    return DTP_OK;
}
