/* The selection problem: every variable picks one of its strategies. */
#include "planner/problem/problem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"

int32_t dtp_problem_n_strategies(const dtp_problem *p, int32_t variable)
{
    return (int32_t)(p->first[variable + 1] - p->first[variable]);
}

int64_t dtp_problem_edge_end(const dtp_problem *p, int32_t edge)
{
    return p->edge_first[edge] + (int64_t)dtp_problem_n_strategies(p, p->edge_a[edge]) *
                                     dtp_problem_n_strategies(p, p->edge_b[edge]);
}

int64_t dtp_problem_n_entries(const dtp_problem *p)
{
    int64_t n = 0;
    for (int32_t e = 0; e < p->n_edges; e++) {
        n += dtp_problem_edge_end(p, e) - p->edge_first[e];
    }
    return n;
}

int32_t dtp_problem_n_intervals(const dtp_problem *p)
{
    return p->n_variables + p->n_extra;
}

dtp_problem_interval dtp_problem_interval_at(const dtp_problem *p, int32_t index)
{
    const int32_t x = index - p->n_variables;
    return x < 0 ? (dtp_problem_interval){index, p->begin[index], p->end[index],
                                          p->usage + p->first[index]}
                 : (dtp_problem_interval){p->extra_variable[x], p->extra_begin[x], p->extra_end[x],
                                          p->extra_usage + p->extra_first[x]};
}

dtp_status dtp_problem__reserve(void *array, int64_t need, int64_t *capacity, size_t size,
                                dtp_err *err)
{
    void *old;
    if (need <= *capacity) {
        return DTP_OK;
    }
    int64_t room = *capacity > need / 2 ? *capacity * 2 : need + 16;
    size_t bytes;
    memcpy(&old, array, sizeof old);
    void *grown = need < INT64_MAX / 4 && dtp_mul_size((size_t)room, size, &bytes)
                      ? realloc(old, bytes)
                      : NULL;
    DTP_TRY(DTP_MEMORY(err, grown));
    memcpy(array, &grown, sizeof grown);
    *capacity = room;
    return DTP_OK;
}

static dtp_status reserve_variables(dtp_problem *p, int32_t need, dtp_err *err)
{
    int64_t begin = p->cap_variables, end = begin, first = begin > 0 ? begin + 1 : 0;
    if (need <= p->cap_variables) {
        return DTP_OK;
    }
    DTP_TRY(dtp_problem__reserve(&p->begin, need, &begin, sizeof *p->begin, err));
    DTP_TRY(dtp_problem__reserve(&p->end, begin, &end, sizeof *p->end, err));
    DTP_TRY(dtp_problem__reserve(&p->first, begin + 1, &first, sizeof *p->first, err));
    p->cap_variables = (int32_t)(begin < end ? begin : end);
    p->cap_variables = (int32_t)(first - 1 < p->cap_variables ? first - 1 : p->cap_variables);
    return DTP_OK;
}

static dtp_status reserve_edges(dtp_problem *p, int32_t need, dtp_err *err)
{
    int64_t a = p->cap_edges, b = a, first = a;
    if (need <= p->cap_edges) {
        return DTP_OK;
    }
    DTP_TRY(dtp_problem__reserve(&p->edge_a, need, &a, sizeof *p->edge_a, err));
    DTP_TRY(dtp_problem__reserve(&p->edge_b, a, &b, sizeof *p->edge_b, err));
    DTP_TRY(dtp_problem__reserve(&p->edge_first, a, &first, sizeof *p->edge_first, err));
    p->cap_edges = (int32_t)a;
    return DTP_OK;
}

static dtp_status reserve_extra(dtp_problem *p, int32_t need, dtp_err *err)
{
    int64_t variable = p->cap_extra, begin = variable, end = variable, first = variable;
    if (need <= p->cap_extra) {
        return DTP_OK;
    }
    DTP_TRY(
        dtp_problem__reserve(&p->extra_variable, need, &variable, sizeof *p->extra_variable, err));
    DTP_TRY(dtp_problem__reserve(&p->extra_begin, variable, &begin, sizeof *p->extra_begin, err));
    DTP_TRY(dtp_problem__reserve(&p->extra_end, variable, &end, sizeof *p->extra_end, err));
    DTP_TRY(dtp_problem__reserve(&p->extra_first, variable, &first, sizeof *p->extra_first, err));
    p->cap_extra = (int32_t)variable;
    return DTP_OK;
}

dtp_status dtp_problem_create(const char *name, int64_t usage_limit, dtp_problem **out,
                              dtp_err *err)
{
    dtp_problem *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->name = strdup(name);
        p->usage_limit = usage_limit;
        if (p->name != NULL && reserve_variables(p, 1, err) == DTP_OK &&
            reserve_edges(p, 1, err) == DTP_OK) {
            p->first[0] = 0;
            *out = p;
            return DTP_OK;
        }
    }
    dtp_problem_destroy(p);
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for a selection problem");
}

void dtp_problem_destroy(dtp_problem *p)
{
    if (p == NULL) {
        return;
    }
    free(p->name);
    free(p->begin);
    free(p->end);
    free(p->first);
    free(p->cost);
    free(p->usage);
    free(p->edge_a);
    free(p->edge_b);
    free(p->edge_first);
    free(p->edge_cost);
    free(p->extra_variable);
    free(p->extra_begin);
    free(p->extra_end);
    free(p->extra_first);
    free(p->extra_usage);
    free(p);
}

dtp_status dtp_problem_add_variable(dtp_problem *p, int64_t begin, int64_t end, int32_t k,
                                    const int64_t *cost, const int64_t *usage, dtp_err *err)
{
    if (p->n_variables >= INT32_MAX / 4 || k < 1 || k > DTP_MAX_STRATEGIES) {
        return DTP_FAIL(err, DTP_RANGE, "node %d with %d strategies (1 to %d)", p->n_variables, k,
                        DTP_MAX_STRATEGIES);
    }
    const int64_t at = p->first[p->n_variables];
    int64_t cost_room = p->cap_strategies, usage_room = p->cap_strategies;
    DTP_TRY(reserve_variables(p, p->n_variables + 1, err));
    DTP_TRY(dtp_problem__reserve(&p->cost, at + k, &cost_room, sizeof *p->cost, err));
    DTP_TRY(dtp_problem__reserve(&p->usage, at + k, &usage_room, sizeof *p->usage, err));
    p->cap_strategies = usage_room;
    memcpy(p->cost + at, cost, (size_t)k * sizeof *cost);
    memcpy(p->usage + at, usage, (size_t)k * sizeof *usage);
    p->begin[p->n_variables] = begin;
    p->end[p->n_variables++] = end;
    p->first[p->n_variables] = at + k;
    return DTP_OK;
}

/* Usages of a further interval: shared with the last one of the same variable if equal. */
static dtp_status place_usage(dtp_problem *p, int32_t variable, const int64_t *usage,
                              int64_t *first, dtp_err *err)
{
    const int64_t k = dtp_problem_n_strategies(p, variable);
    const int32_t last = p->n_extra - 1;
    if (last >= 0 && p->extra_variable[last] == variable &&
        memcmp(p->extra_usage + p->extra_first[last], usage, (size_t)k * sizeof *usage) == 0) {
        *first = p->extra_first[last];
        return DTP_OK;
    }
    DTP_TRY(dtp_problem__reserve(&p->extra_usage, p->n_extra_usage + k, &p->cap_extra_usage,
                                 sizeof *usage, err));
    memcpy(p->extra_usage + p->n_extra_usage, usage, (size_t)k * sizeof *usage);
    *first = p->n_extra_usage;
    p->n_extra_usage += k;
    return DTP_OK;
}

dtp_status dtp_problem_add_interval(dtp_problem *p, int32_t variable, int64_t begin, int64_t end,
                                    const int64_t *usage, dtp_err *err)
{
    if (variable < 0 || variable >= p->n_variables || p->n_extra >= INT32_MAX / 4) {
        return DTP_FAIL(err, DTP_INVALID, "interval %d is of node %d of %d", p->n_extra, variable,
                        p->n_variables);
    }
    DTP_TRY(reserve_extra(p, p->n_extra + 1, err));
    DTP_TRY(place_usage(p, variable, usage, &p->extra_first[p->n_extra], err));
    p->extra_variable[p->n_extra] = variable;
    p->extra_begin[p->n_extra] = begin;
    p->extra_end[p->n_extra++] = end;
    return DTP_OK;
}

/* An edge whose matrix begins at `first`. */
static dtp_status add_edge_at(dtp_problem *p, int32_t a, int32_t b, int64_t first, dtp_err *err)
{
    if (a < 0 || b < 0 || a >= p->n_variables || b >= p->n_variables ||
        p->n_edges >= INT32_MAX / 4) {
        return DTP_FAIL(err, DTP_INVALID, "edge %d joins %d and %d of %d nodes", p->n_edges, a, b,
                        p->n_variables);
    }
    DTP_TRY(reserve_edges(p, p->n_edges + 1, err));
    p->edge_a[p->n_edges] = a;
    p->edge_b[p->n_edges] = b;
    p->edge_first[p->n_edges++] = first;
    return DTP_OK;
}

dtp_status dtp_problem_add_edge(dtp_problem *p, int32_t a, int32_t b, const int64_t *cost,
                                dtp_err *err)
{
    DTP_TRY(add_edge_at(p, a, b, p->n_stored, err));
    const int64_t n = dtp_problem_edge_end(p, p->n_edges - 1) - p->n_stored;
    DTP_TRY(
        dtp_problem__reserve(&p->edge_cost, p->n_stored + n, &p->cap_entries, sizeof *cost, err));
    memcpy(p->edge_cost + p->n_stored, cost, (size_t)n * sizeof *cost);
    p->n_stored += n;
    return DTP_OK;
}

dtp_status dtp_problem_add_edge_like(dtp_problem *p, int32_t a, int32_t b, int32_t edge,
                                     dtp_err *err)
{
    return add_edge_at(p, a, b, p->edge_first[edge], err);
}

/* ---- checks ---- */

static dtp_status check_list(const char *what, int32_t index, const int64_t *values, int64_t n,
                             dtp_err *err)
{
    for (int64_t k = 0; k < n; k++) {
        if (values[k] < 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s[%d][%" PRId64 "] is %" PRId64 ", below 0", what,
                            index, k, values[k]);
        }
    }
    return DTP_OK;
}

/* Adds the largest usage of an interval to the total, which must stay far from overflow. */
static dtp_status check_total(const dtp_problem *p, const char *what, int32_t index,
                              const dtp_problem_interval *interval, int64_t *total, dtp_err *err)
{
    const int32_t n = dtp_problem_n_strategies(p, interval->variable);
    int64_t most = 0;
    DTP_TRY(check_list(what, index, interval->usage, n, err));
    for (int32_t s = 0; s < n; s++) {
        most = interval->usage[s] > most ? interval->usage[s] : most;
    }
    if (!dtp_add_i64(*total, most, total) || *total > INT64_MAX / 4) {
        return DTP_FAIL(err, DTP_RANGE, "%s[%d]: the usages add up to 2^61 or more", what, index);
    }
    return DTP_OK;
}

dtp_status dtp_problem_check(const dtp_problem *p, dtp_err *err)
{
    if (p->usage_limit < 0 || p->usage_limit > INT64_MAX / 4) {
        return DTP_FAIL(err, DTP_RANGE, "usage_limit is %" PRId64 " (0 to 2^61 - 1)",
                        p->usage_limit);
    }
    int64_t total = 0;
    for (int32_t i = 0; i < p->n_variables; i++) {
        const int64_t at = p->first[i], n = p->first[i + 1] - at;
        if (n < 1 || n > DTP_MAX_STRATEGIES) {
            return DTP_FAIL(err, DTP_INVALID,
                            "nodes.costs[%d] has %" PRId64 " strategies (1 to %d)", i, n,
                            DTP_MAX_STRATEGIES);
        }
        DTP_TRY(check_list("nodes.costs", i, p->cost + at, n, err));
        const dtp_problem_interval own = dtp_problem_interval_at(p, i);
        DTP_TRY(check_total(p, "nodes.usages", i, &own, &total, err));
    }
    for (int32_t x = 0; x < p->n_extra; x++) {
        const dtp_problem_interval more = dtp_problem_interval_at(p, p->n_variables + x);
        DTP_TRY(check_total(p, "intervals.usages", x, &more, &total, err));
    }
    int64_t seen = 0; /* matrices lie in the order of the edges that have them first */
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int32_t a = p->edge_a[e], b = p->edge_b[e];
        if (a < 0 || b < 0 || a >= p->n_variables || b >= p->n_variables || a == b) {
            return DTP_FAIL(err, DTP_INVALID,
                            "edges.nodes[%d] joins %d and %d: not two of the %d nodes", e, a, b,
                            p->n_variables);
        }
        const int64_t first = p->edge_first[e], n = dtp_problem_edge_end(p, e) - first;
        const int32_t rows = dtp_problem_n_strategies(p, a), cols = dtp_problem_n_strategies(p, b);
        if (first < 0 || n > p->n_stored - first) {
            return DTP_FAIL(err, DTP_INVALID,
                            "edges.costs[%d] has %" PRId64 " entries, nodes %d and %d have %d x %d "
                            "strategies",
                            e, n, a, b, rows, cols);
        }
        if (first >= seen) {
            DTP_TRY(check_list("edges.costs", e, p->edge_cost + first, n, err));
            seen = first + n;
        }
    }
    return DTP_OK;
}
