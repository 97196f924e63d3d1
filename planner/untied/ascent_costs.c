#include "planner/untied/ascent_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "planner/problem/tensors/tensor_internal.h"

static int compare_prices(const void *x, const void *y)
{
    const dtp_memory_multiplier *p = x, *q = y;
    return p->time != q->time ? (p->time < q->time ? -1 : 1)
                              : (p->multiplier > q->multiplier) - (p->multiplier < q->multiplier);
}

static bool is_price(double price)
{
    return price > 0.0 && price < 1e12;
}

/* All prices together times the largest usage, or the limit, take 61 bits. */
static int32_t choose_bits(const dtp_problem *s, int32_t n, const dtp_memory_multiplier *prices)
{
    double sum = 1e-30, most = (double)s->usage_limit + 1.0;
    for (int32_t i = 0; i < n; i++) {
        sum += is_price(prices[i].multiplier) ? prices[i].multiplier : 0.0;
    }
    for (int32_t i = 0; i < dtp_problem_n_intervals(s); i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(s, i);
        for (int32_t k = 0; k < dtp_problem_n_strategies(s, x.variable); k++) {
            most = (double)x.usage[k] > most ? (double)x.usage[k] : most;
        }
    }
    const int32_t bits = 60 - ilogb(sum * most);
    return bits < 0 ? 0 : bits > 60 ? 60 : bits;
}

dtp_status dtp_ascent__read_prices(const dtp_problem *s, int32_t n,
                                   const dtp_memory_multiplier *prices, dtp_arena *arena,
                                   ascent_prices *x, dtp_err *err)
{
    dtp_memory_multiplier *sorted = dtp_arena_alloc(arena, (size_t)n, sizeof *sorted);
    *x = (ascent_prices){.n = n, .bits = choose_bits(s, n, prices)};
    x->time = dtp_arena_alloc(arena, (size_t)n, sizeof *x->time);
    x->sum = dtp_arena_alloc(arena, (size_t)n + 1, sizeof *x->sum);
    if (sorted == NULL || x->time == NULL || x->sum == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d prices", n);
    }
    if (n > 0) {
        memcpy(sorted, prices, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, compare_prices);
    }
    for (int32_t i = 0; i < n; i++) {
        const double price =
            is_price(sorted[i].multiplier) ? ldexp(sorted[i].multiplier, x->bits) : 0.0;
        x->time[i] = sorted[i].time;
        x->sum[i + 1] = x->sum[i] + (price < 1e18 ? (int64_t)price : 0);
    }
    return DTP_OK;
}

/* The first price at or after a time. */
static int32_t price_at(const ascent_prices *x, int64_t time)
{
    int32_t lo = 0, hi = x->n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (x->time[mid] < time) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Adds what a byte costs, rounded down; false when it does not fit. */
static bool add_usage(const dtp_problem_interval *interval, const ascent_prices *x, int32_t k,
                      int64_t *cost)
{
    const int64_t price = x->sum[price_at(x, interval->end)] - x->sum[price_at(x, interval->begin)];
    bool ok = true;
    for (int32_t s = 0; s < k && price > 0 && ok; s++) {
        int64_t all;
        ok = dtp_mul_i64(interval->usage[s], price, &all);
        if (ok && cost[s] < DTP_FORBIDDEN) {
            cost[s] = dtp_problem_add_cost(cost[s], all >> x->bits);
            ok = cost[s] < DTP_FORBIDDEN;
        }
    }
    return ok;
}

/* Costs of one graph's nodes, without memory. */
static dtp_status copy_costs(const ascent *a, dtp_arena *arena, int64_t **cost, dtp_err *err)
{
    const dtp_problem *s = a->p->select;
    const int64_t *of = a->tied ? s->cost : a->p->unit_cost;
    for (int32_t i = 0; i < a->n; i++) {
        const size_t k = a->assignment[i] >= 0 ? (size_t)dtp_ascent__strategies(a, i) : 0;
        cost[i] = dtp_arena_alloc(arena, k, sizeof **cost);
        if (cost[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu costs", k);
        }
        const int32_t t = i - a->p->graph->n_nodes;
        const bool counts = a->tied || t < 0 ||
                            (t < a->p->graph->n_tensors && dtp_tensor__survives(a->p->graph, t));
        if (k > 0 && counts) {
            memcpy(cost[i], of + s->first[a->assignment[i]], k * sizeof **cost);
        }
    }
    return DTP_OK;
}

/* *off: what the limit takes off the bound; false: prices and bytes are too large for integers. */
static bool add_memory(const ascent *a, const ascent_prices *x, int64_t *const *cost, int64_t *off)
{
    const dtp_problem *s = a->p->select;
    int64_t all = 0;
    bool fits = dtp_mul_i64(s->usage_limit, x->sum[x->n], &all);
    *off = x->n > 0 && fits ? (all >> x->bits) + 1 : 0;
    for (int32_t i = 0; i < dtp_problem_n_intervals(s) && x->n > 0 && fits; i++) {
        const dtp_problem_interval interval = dtp_problem_interval_at(s, i);
        const int32_t k = dtp_problem_n_strategies(s, interval.variable);
        if (interval.begin < interval.end) {
            const int32_t owner = a->tied ? interval.variable : a->p->interval_owner[i];
            fits = add_usage(&interval, x, k, cost[owner]);
        }
    }
    return fits;
}

dtp_status dtp_ascent__find_costs(ascent *a, const ascent_prices *x, dtp_arena *arena, int64_t *off,
                                  bool *fits, dtp_err *err)
{
    int64_t **cost = dtp_arena_alloc(arena, (size_t)a->n, sizeof *cost);
    if (cost == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the costs of %d nodes", a->n);
    }
    a->cost = (const int64_t *const *)cost;
    DTP_TRY(copy_costs(a, arena, cost, err));
    *fits = add_memory(a, x, cost, off);
    return DTP_OK;
}
