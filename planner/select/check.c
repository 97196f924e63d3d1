/* Usage over time by sweeping the begins and ends of the intervals in order of time; at one time,
 * ends come first, because intervals are half-open. */
#include "planner/select/check.h"

#include <stdlib.h>

typedef struct event {
    int64_t time, change;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    return (x->change > y->change) - (x->change < y->change);
}

static dtp_status sweep(const dtp_select_problem *p, const int32_t *choice, dtp_select_value *out,
                        dtp_err *err)
{
    const int32_t n_intervals = dtp_select_n_intervals(p);
    event *events = malloc(((size_t)n_intervals * 2 + 1) * sizeof *events);
    size_t n = 0;
    if (events == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d intervals", n_intervals);
    }
    for (int32_t i = 0; i < n_intervals; i++) {
        const dtp_select_interval x = dtp_select_interval_at(p, i);
        if (x.begin < x.end) {
            const int64_t usage = x.usage[choice[x.node]];
            events[n++] = (event){x.begin, usage};
            events[n++] = (event){x.end, -usage};
        }
    }
    qsort(events, n, sizeof *events, compare_events);
    int64_t now = 0;
    for (size_t k = 0; k < n; k++) {
        now += events[k].change;
        if (now > out->peak) {
            out->peak = now;
            out->peak_at = events[k].time;
        }
    }
    free(events);
    return DTP_OK;
}

dtp_status dtp_select_evaluate(const dtp_select_problem *p, const int32_t *choice,
                               dtp_select_value *out, dtp_err *err)
{
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
    DTP_TRY(sweep(p, choice, out, err));
    out->feasible = out->cost < DTP_SELECT_FORBIDDEN && out->peak <= p->usage_limit;
    return DTP_OK;
}
