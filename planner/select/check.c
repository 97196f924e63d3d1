/* Usage over time by sweeping the begins and ends of the intervals in order of time; at one time,
 * ends come first, because intervals are half-open. */
#include "planner/select/check.h"

#include <stdlib.h>

typedef struct event {
    int64_t time;
    int32_t interval;
    bool begin;
} event;

struct dtp_select_evaluator {
    const dtp_select_problem *p;
    event *events; /* in order */
    size_t n;
};

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    if (x->begin != y->begin) {
        return x->begin ? 1 : -1;
    }
    return (x->interval > y->interval) - (x->interval < y->interval);
}

dtp_status dtp_select_evaluator_create(const dtp_select_problem *p, dtp_select_evaluator **out,
                                       dtp_err *err)
{
    const int32_t n_intervals = dtp_select_n_intervals(p);
    dtp_select_evaluator *e = calloc(1, sizeof *e);
    event *events = malloc(((size_t)n_intervals * 2 + 1) * sizeof *events);
    if (e == NULL || events == NULL) {
        free(e);
        free(events);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d intervals", n_intervals);
    }
    *e = (dtp_select_evaluator){.p = p, .events = events};
    for (int32_t i = 0; i < n_intervals; i++) {
        const dtp_select_interval x = dtp_select_interval_at(p, i);
        if (x.begin < x.end) {
            events[e->n++] = (event){x.begin, i, true};
            events[e->n++] = (event){x.end, i, false};
        }
    }
    qsort(events, e->n, sizeof *events, compare_events);
    *out = e;
    return DTP_OK;
}

void dtp_select_evaluator_destroy(dtp_select_evaluator *e)
{
    if (e != NULL) {
        free(e->events);
        free(e);
    }
}

static int64_t smallest(const dtp_select_problem *p, const dtp_select_interval *x)
{
    int64_t least = INT64_MAX;
    for (int32_t s = 0; s < dtp_select_n_strategies(p, x->node); s++) {
        least = x->usage[s] < least ? x->usage[s] : least;
    }
    return least;
}

/* choice NULL: every interval with its smallest usage. */
static void sweep(const dtp_select_evaluator *e, const int32_t *choice, dtp_select_value *out)
{
    int64_t now = 0;
    for (size_t k = 0; k < e->n; k++) {
        const event *at = &e->events[k];
        const dtp_select_interval x = dtp_select_interval_at(e->p, at->interval);
        const int64_t usage = choice != NULL ? x.usage[choice[x.node]] : smallest(e->p, &x);
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
