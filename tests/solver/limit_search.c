/* The cheapest selection within the usage limit, found without the solvers. */
#include "tests/solver/limit_search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/problem/check.h"
#include "tests/solver/elimination.h"

enum { SCALE = 256 }; /* multipliers of usage are multiples of 1/256 */

/* An interval in terms of the times that count. */
typedef struct span {
    int32_t variable, from, to;
    const int64_t *usage;
    int64_t least; /* of the strategies that are left */
} span;

typedef struct search {
    const dtp_problem *p;
    const limit_options *options;
    int32_t n_times, n_spans;
    int64_t *times;                   /* at which intervals begin, ascending */
    span *spans;                      /* by variable */
    int32_t *first;                   /* by variable, and one more: its spans */
    int64_t *multiplier, *best_price; /* by time */
    int64_t *multipliers;             /* by strategy */
    elimination *reduced;             /* what does not depend on multipliers */
    elimination *e;                   /* with multipliers */
    int32_t *at;                      /* by variable: index among the strategies left */
    int32_t *assignment;              /* by variable: strategies of the problem */
    int64_t *load;                    /* by time: usage of what is decided, the least of the rest */
    int64_t most_usage;               /* sum of the largest usages of all intervals */
    int32_t n_silent; /* steps before the first of a variable that changes the usage */
    int64_t offset;   /* what is added to penalised costs: - sum of multiplier * limit */
    int64_t cap;      /* scaled; only selections with no more are looked at */
    int64_t best;     /* cost of the cheapest that keeps the limit */
    int64_t visited;
} search;

limit_options limit_options_init(void)
{
    return (limit_options){.rounds = 300, .most_cells = 1 << 16, .most_visited = 1 << 26};
}

static void *make(size_t n, size_t size)
{
    void *at = calloc(n > 0 ? n : 1, size);
    assert_non_null(at);
    return at;
}

/* ---- times ---- */

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The first time that is not before t. */
static int32_t time_index(const search *s, int64_t t)
{
    int32_t i = 0;
    while (i < s->n_times && s->times[i] < t) {
        i++;
    }
    return i;
}

static void find_times(search *s)
{
    const int32_t n = dtp_problem_n_intervals(s->p);
    int32_t kept = 0;
    s->times = make((size_t)n, sizeof *s->times);
    for (int32_t i = 0; i < n; i++) {
        s->times[i] = dtp_problem_interval_at(s->p, i).begin;
    }
    qsort(s->times, (size_t)n, sizeof *s->times, by_value);
    for (int32_t i = 0; i < n; i++) {
        if (kept == 0 || s->times[i] != s->times[kept - 1]) {
            s->times[kept++] = s->times[i];
        }
    }
    s->n_times = kept;
}

static int64_t most_usage(const dtp_problem *p, const dtp_problem_interval *x)
{
    int64_t most = 0;
    for (int32_t k = 0; k < dtp_problem_n_strategies(p, x->variable); k++) {
        most = x->usage[k] > most ? x->usage[k] : most;
    }
    return most;
}

static void find_spans(search *s)
{
    const int32_t n = dtp_problem_n_intervals(s->p);
    s->spans = make((size_t)n, sizeof *s->spans);
    s->first = make((size_t)s->p->n_variables + 1, sizeof *s->first);
    for (int32_t v = 0; v < s->p->n_variables; v++) {
        s->first[v] = s->n_spans;
        for (int32_t i = 0; i < n; i++) {
            const dtp_problem_interval x = dtp_problem_interval_at(s->p, i);
            if (x.variable == v && x.begin < x.end) {
                s->spans[s->n_spans++] =
                    (span){v, time_index(s, x.begin), time_index(s, x.end), x.usage, 0};
                s->most_usage += most_usage(s->p, &x);
            }
        }
    }
    s->first[s->p->n_variables] = s->n_spans;
}

/* Adds `sign` times the usage of a variable's strategy. */
static void use(const search *s, int32_t variable, int32_t strategy, int64_t sign, int64_t *load)
{
    for (int32_t i = s->first[variable]; i < s->first[variable + 1]; i++) {
        const span *x = &s->spans[i];
        for (int32_t t = x->from; t < x->to; t++) {
            load[t] += sign * x->usage[strategy];
        }
    }
}

/* ---- multipliers ---- */

/* Eliminates with the multipliers; returns the scaled bound. */
static int64_t price_all(search *s)
{
    const dtp_problem *p = s->p;
    int64_t *before = make((size_t)s->n_times + 1, sizeof *before);
    memset(s->multipliers, 0, (size_t)p->first[p->n_variables] * sizeof *s->multipliers);
    for (int32_t t = 0; t < s->n_times; t++) {
        before[t + 1] = before[t] + s->multiplier[t];
    }
    assert_true(before[s->n_times] <
                ELIMINATION_FORBIDDEN / 4 / (s->most_usage + p->usage_limit + 1));
    for (int32_t i = 0; i < s->n_spans; i++) {
        const span *x = &s->spans[i];
        for (int32_t k = 0; k < dtp_problem_n_strategies(p, x->variable); k++) {
            s->multipliers[p->first[x->variable] + k] +=
                (before[x->to] - before[x->from]) * x->usage[k];
        }
    }
    s->offset = -before[s->n_times] * p->usage_limit;
    free(before);
    elimination_destroy(s->e);
    s->e = elimination_finish(s->reduced, s->multipliers, s->options->most_cells);
    assert_true(s->e->least < ELIMINATION_FORBIDDEN);
    return s->e->least + s->offset;
}

/* The cheapest strategies of the first n variables that were eliminated, given those of the
 * others. */
static void follow(search *s, const elimination *e, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        const int32_t v = e->steps[i].variable;
        int64_t *cost = make((size_t)e->left[v], sizeof *cost);
        elimination_step_costs(e, &e->steps[i], s->at, cost);
        s->at[v] = 0;
        while (cost[s->at[v]] > 0) {
            s->at[v]++;
        }
        s->assignment[v] = e->strategy[v][s->at[v]];
        free(cost);
    }
}

static void follow_all(search *s)
{
    follow(s, s->e, s->e->n_steps);
    follow(s, s->reduced, s->reduced->n_steps);
}

/* A step along usage - limit of the cheapest selection; length in scaled cost. */
static void move_prices(search *s, double length)
{
    double norm = 0.0;
    memset(s->load, 0, (size_t)s->n_times * sizeof *s->load);
    for (int32_t v = 0; v < s->p->n_variables; v++) {
        use(s, v, s->assignment[v], 1, s->load);
    }
    for (int32_t t = 0; t < s->n_times; t++) {
        const double over = (double)(s->load[t] - s->p->usage_limit);
        norm += over > 0.0 || s->multiplier[t] > 0 ? over * over : 0.0;
    }
    for (int32_t t = 0; t < s->n_times && norm > 0.0; t++) {
        const double over = (double)(s->load[t] - s->p->usage_limit);
        const double multiplier = (double)s->multiplier[t] + length * over / norm;
        s->multiplier[t] = multiplier > 0.0 ? (int64_t)(multiplier + 0.5) : 0;
    }
}

/* Leaves the best multipliers and the elimination with them; returns the scaled bound. */
static int64_t lift_bound(search *s)
{
    double share = 0.05;
    int32_t idle = 0;
    int64_t best = -1;
    for (int32_t i = 0; i < s->options->rounds; i++) {
        const int64_t bound = price_all(s);
        follow_all(s);
        idle = bound > best ? 0 : idle + 1;
        if (bound > best) {
            best = bound;
            memcpy(s->best_price, s->multiplier, (size_t)s->n_times * sizeof *s->multiplier);
        } else if (idle % 8 == 0) {
            share *= 0.5;
            memcpy(s->multiplier, s->best_price, (size_t)s->n_times * sizeof *s->multiplier);
            (void)price_all(s);
            follow_all(s);
        }
        move_prices(s, share * (double)best);
    }
    memcpy(s->multiplier, s->best_price, (size_t)s->n_times * sizeof *s->multiplier);
    return price_all(s);
}

/* ---- selections ---- */

/* What the multipliers make of a selection without anything forbidden: its scaled cost and
 * multiplier * (usage - limit). */
static int64_t penalised(const search *s, int64_t cost)
{
    int64_t sum = cost * SCALE + s->offset;
    for (int32_t v = 0; v < s->p->n_variables; v++) {
        sum += s->multipliers[s->p->first[v] + s->assignment[v]];
    }
    return sum;
}

/* Every variable that changes the usage is decided: the first steps take what is cheapest, and
 * altogether it costs `cost` at the multipliers. */
static void look_at_selection(search *s, int64_t cost)
{
    dtp_problem_value value;
    follow(s, s->e, s->n_silent);
    follow(s, s->reduced, s->reduced->n_steps);
    assert_int_equal(dtp_problem_evaluate(s->p, s->assignment, &value, NULL), DTP_OK);
    assert_int_equal(penalised(s, value.cost), cost);
    if (value.feasible && value.cost < s->best) {
        s->best = value.cost;
        s->cap = value.cost * SCALE - 1 < s->cap ? value.cost * SCALE - 1 : s->cap;
    }
}

/* Decides for a strategy: its usage instead of the least. False when the limit is exceeded,
 * whatever the undecided variables take. */
static bool place(search *s, int32_t variable, int32_t strategy, int64_t sign)
{
    bool keeps = true;
    for (int32_t i = s->first[variable]; i < s->first[variable + 1]; i++) {
        const span *x = &s->spans[i];
        const int64_t more = sign * (x->usage[strategy] - x->least);
        for (int32_t t = x->from; t < x->to && more != 0; t++) {
            s->load[t] += more;
            keeps = keeps && s->load[t] <= s->p->usage_limit;
        }
    }
    return keeps;
}

/* Step i is the next to be decided, the later ones are; they cost `value` with the best rest. */
static void decide(search *s, int32_t i, int64_t value)
{
    if (i < s->n_silent) {
        look_at_selection(s, value);
        return;
    }
    const elimination_step *step = &s->e->steps[i];
    const int32_t v = step->variable;
    int64_t *cost = make((size_t)s->e->left[v], sizeof *cost);
    elimination_step_costs(s->e, step, s->at, cost);
    for (int32_t a = 0; a < s->e->left[v]; a++) {
        if (value + cost[a] > s->cap || s->visited >= s->options->most_visited) {
            continue;
        }
        s->visited++;
        s->at[v] = a;
        s->assignment[v] = s->e->strategy[v][a];
        if (place(s, v, s->assignment[v], 1)) {
            decide(s, i - 1, value + cost[a]);
        }
        (void)place(s, v, s->e->strategy[v][a], -1);
    }
    free(cost);
}

static void start_load(search *s)
{
    memset(s->load, 0, (size_t)s->n_times * sizeof *s->load);
    for (int32_t i = 0; i < s->n_spans; i++) {
        span *x = &s->spans[i];
        const int32_t *left = s->reduced->strategy[x->variable];
        x->least = x->usage[left[0]];
        for (int32_t k = 1; k < s->reduced->left[x->variable]; k++) {
            x->least = x->usage[left[k]] < x->least ? x->usage[left[k]] : x->least;
        }
        for (int32_t t = x->from; t < x->to; t++) {
            s->load[t] += x->least;
        }
    }
}

/* Raises the threshold until no selection below the best one is left out. */
static void search_selections(search *s, int64_t bound)
{
    int64_t above = bound / 65536 + SCALE, limit = bound + above;
    s->best = DTP_FORBIDDEN;
    start_load(s);
    s->n_silent = 0;
    while (s->n_silent < s->e->n_steps && !s->e->loud[s->e->steps[s->n_silent].variable]) {
        s->n_silent++;
    }
    while (s->visited < s->options->most_visited) {
        s->cap = limit;
        decide(s, s->e->n_steps - 1, bound);
        if (s->best < DTP_FORBIDDEN && (s->best - 1) * SCALE <= limit) {
            return;
        }
        above *= 2;
        limit = s->best < DTP_FORBIDDEN ? (s->best - 1) * SCALE : bound + above;
    }
}

static void search_free(search *s)
{
    elimination_destroy(s->reduced);
    elimination_destroy(s->e);
    free(s->times);
    free(s->spans);
    free(s->first);
    free(s->multiplier);
    free(s->best_price);
    free(s->multipliers);
    free(s->at);
    free(s->assignment);
    free(s->load);
}

limit_result limit_search(const dtp_problem *p, const limit_options *options)
{
    search s = {.p = p, .options = options};
    limit_result out = {0};
    find_times(&s);
    find_spans(&s);
    s.multiplier = make((size_t)s.n_times, sizeof *s.multiplier);
    s.best_price = make((size_t)s.n_times, sizeof *s.best_price);
    s.load = make((size_t)s.n_times, sizeof *s.load);
    s.multipliers = make((size_t)p->first[p->n_variables], sizeof *s.multipliers);
    s.at = make((size_t)p->n_variables, sizeof *s.at);
    s.assignment = make((size_t)p->n_variables, sizeof *s.assignment);
    s.reduced = elimination_create(p, SCALE, true);
    elimination_reduce(s.reduced, options->most_cells);
    const int64_t bound = lift_bound(&s);
    for (int32_t v = 0; v < p->n_variables; v++) {
        out.loud += s.e->loud[v] ? 1 : 0;
    }
    search_selections(&s, bound);
    out.found = s.visited < options->most_visited;
    out.cost = s.best;
    out.bound = (bound + SCALE - 1) / SCALE;
    out.visited = s.visited;
    search_free(&s);
    return out;
}
