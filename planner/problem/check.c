/* Usage over time by sweeping the begins and ends of the intervals in order of time; at one time,
 * ends come first, because intervals are half-open. Those that follow each other and do not depend
 * on an assignment are one step of the sweep. */
#include "planner/problem/check.h"

#include <stdlib.h>

#include "core/base/sort.h"

/* An interval begins or ends, or several do that are the same with every assignment. */
typedef struct usage_event {
    const int64_t *usage; /* by strategy of the variable; borrowed; NULL: of several */
    int64_t time;         /* of several: when most is used */
    int64_t net, top;     /* of several: what they add, and at most on the way */
    int32_t variable;
    bool begin;
} usage_event;

struct dtp_evaluator {
    const dtp_problem *p;
    usage_event *events; /* in order */
    size_t n;
};

/* Begins or ends of all intervals; the item is the interval. */
static int64_t list_times(const dtp_problem *p, bool begin, dtp_keyed *list)
{
    const int32_t n_intervals = dtp_problem_n_intervals(p);
    int64_t n = 0;
    for (int32_t i = 0; i < n_intervals; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        if (x.begin < x.end) {
            list[n++] = (dtp_keyed){dtp_sort_key(begin ? x.begin : x.end), i};
        }
    }
    return n;
}

static void add_event(dtp_evaluator *e, const dtp_problem_interval *x, bool begin)
{
    const int64_t time = begin ? x->begin : x->end;
    bool fixed = true;
    for (int32_t s = 1; s < dtp_problem_n_strategies(e->p, x->variable) && fixed; s++) {
        fixed = x->usage[s] == x->usage[0];
    }
    if (!fixed) {
        e->events[e->n++] =
            (usage_event){.usage = x->usage, .time = time, .variable = x->variable, .begin = begin};
        return;
    }
    if (e->n == 0 || e->events[e->n - 1].usage != NULL) {
        e->events[e->n++] = (usage_event){.time = time, .top = INT64_MIN};
    }
    usage_event *several = &e->events[e->n - 1];
    several->net += begin ? x->usage[0] : -x->usage[0];
    if (several->net > several->top) {
        several->top = several->net;
        several->time = time;
    }
}

/* Ends are listed before begins, which sorting keeps so at one time. */
static void put_in_order(dtp_evaluator *e, dtp_keyed *list, dtp_keyed *scratch)
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
        const dtp_problem_interval x = dtp_problem_interval_at(e->p, (int32_t)interval);
        add_event(e, &x, begin);
    }
}

dtp_status dtp_evaluator_create(const dtp_problem *p, dtp_evaluator **out, dtp_err *err)
{
    const size_t n = (size_t)dtp_problem_n_intervals(p) * 2 + 1;
    dtp_evaluator *e = calloc(1, sizeof *e);
    usage_event *events = calloc(n, sizeof *events);
    dtp_keyed *list = malloc(2 * n * sizeof *list);
    const bool ok = e != NULL && events != NULL && list != NULL;
    if (ok) {
        *e = (dtp_evaluator){.p = p, .events = events};
        put_in_order(e, list, list + n);
        *out = e;
    } else {
        free(e);
        free(events);
    }
    free(list);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu times", n);
}

void dtp_evaluator_destroy(dtp_evaluator *e)
{
    if (e != NULL) {
        free(e->events);
        free(e);
    }
}

static int64_t smallest(const dtp_problem *p, int32_t variable, const int64_t *usage)
{
    int64_t least = INT64_MAX;
    for (int32_t s = 0; s < dtp_problem_n_strategies(p, variable); s++) {
        least = usage[s] < least ? usage[s] : least;
    }
    return least;
}

static int64_t usage_of(const dtp_evaluator *e, const usage_event *at, const int32_t *assignment)
{
    return assignment != NULL ? at->usage[assignment[at->variable]]
                              : smallest(e->p, at->variable, at->usage);
}

/* assignment NULL: every interval with its smallest usage. */
static void sweep(const dtp_evaluator *e, const int32_t *assignment, dtp_problem_value *out)
{
    int64_t now = 0;
    for (size_t k = 0; k < e->n; k++) {
        const usage_event *at = &e->events[k];
        const int64_t usage = at->usage != NULL ? usage_of(e, at, assignment) : 0;
        const int64_t net = at->usage == NULL ? at->net : at->begin ? usage : -usage;
        const int64_t top = at->usage == NULL ? at->top : net;
        if (now + top > out->peak) {
            out->peak = now + top;
            out->peak_at = at->time;
        }
        now += net;
    }
}

dtp_status dtp_evaluator_cost(const dtp_evaluator *evaluator, const int32_t *assignment,
                              int64_t *cost, dtp_err *err)
{
    const dtp_problem *p = evaluator->p;
    *cost = 0;
    for (int32_t i = 0; i < p->n_variables; i++) {
        if (assignment[i] < 0 || assignment[i] >= dtp_problem_n_strategies(p, i)) {
            return DTP_FAIL(err, DTP_INVALID, "node %d: strategy %d of %d", i, assignment[i],
                            dtp_problem_n_strategies(p, i));
        }
        *cost = dtp_problem_add_cost(*cost, p->cost[p->first[i] + assignment[i]]);
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int64_t row = assignment[p->edge_a[e]], col = assignment[p->edge_b[e]];
        const int64_t at = p->edge_first[e] + row * dtp_problem_n_strategies(p, p->edge_b[e]) + col;
        *cost = dtp_problem_add_cost(*cost, p->edge_cost[at]);
    }
    return DTP_OK;
}

dtp_status dtp_evaluator_run(const dtp_evaluator *evaluator, const int32_t *assignment,
                             dtp_problem_value *out, dtp_err *err)
{
    *out = (dtp_problem_value){0};
    DTP_TRY(dtp_evaluator_cost(evaluator, assignment, &out->cost, err));
    sweep(evaluator, assignment, out);
    out->feasible = out->cost < DTP_FORBIDDEN && out->peak <= evaluator->p->usage_limit;
    return DTP_OK;
}

dtp_status dtp_problem_evaluate(const dtp_problem *p, const int32_t *assignment,
                                dtp_problem_value *out, dtp_err *err)
{
    dtp_evaluator *e = NULL;
    DTP_TRY(dtp_evaluator_create(p, &e, err));
    const dtp_status status = dtp_evaluator_run(e, assignment, out, err);
    dtp_evaluator_destroy(e);
    return status;
}

dtp_status dtp_minimum_peak(const dtp_problem *p, int64_t *out, dtp_err *err)
{
    dtp_evaluator *e = NULL;
    dtp_problem_value value = {0};
    DTP_TRY(dtp_evaluator_create(p, &e, err));
    sweep(e, NULL, &value);
    dtp_evaluator_destroy(e);
    *out = value.peak;
    return DTP_OK;
}
