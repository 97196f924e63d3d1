/* Random selection problems small enough to enumerate: forbidden strategies and pairs, parallel
 * edges, memory, ties, empty intervals. */
#include "tests/solver/random_problems.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int64_t draw(random_source *r, int64_t n)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((r->state >> 33) % (uint64_t)n);
}

enum { TIES, SMALL, LARGE, HUGE_FORBIDDEN, OVERFLOWING };

/* Small costs for ties, large ones, or ones whose sum may be too large; sometimes forbidden. */
static int64_t draw_cost(random_source *r, int64_t kind)
{
    if (draw(r, 6) == 0) {
        return kind == HUGE_FORBIDDEN ? INT64_MAX - draw(r, 5) : DTP_FORBIDDEN;
    }
    if (kind == OVERFLOWING) {
        return draw(r, 4) * (DTP_FORBIDDEN / 8) + draw(r, 3);
    }
    return kind == TIES ? draw(r, 3) : kind == SMALL ? draw(r, 40) : draw(r, INT64_C(1) << 31);
}

/* An interval, empty at times. */
static dtp_status add_variable(random_source *r, dtp_problem *p, int32_t k, const int64_t *cost,
                               const int64_t *usage)
{
    const int64_t begin = draw(r, SELECT_MAX_TIME), length = draw(r, 7) - 1;
    return dtp_problem_add_variable(p, begin, begin + length < 0 ? 0 : begin + length, k, cost,
                                    usage, NULL);
}

static dtp_problem *problem_of(random_source *r, int64_t kind)
{
    dtp_problem *p = NULL;
    const int64_t n = 1 + draw(r, SELECT_MAX_NODES);
    const int64_t unit = kind == OVERFLOWING ? INT64_C(1) << 55 : 1;
    int64_t cost[SELECT_MAX_K * SELECT_MAX_K], usage[SELECT_MAX_K], most = 0;
    assert_int_equal(dtp_problem_create("random", 0, &p, NULL), DTP_OK);
    for (int64_t i = 0; i < n; i++) {
        const int32_t k = (int32_t)(1 + draw(r, SELECT_MAX_K));
        for (int32_t s = 0; s < k; s++) {
            cost[s] = draw(r, 8) == 0 ? draw_cost(r, kind) : draw_cost(r, kind) % 1000;
            usage[s] = draw(r, 3) == 0 ? 0 : draw(r, kind == LARGE ? 100000 : 8) * unit;
            most = usage[s] > most ? usage[s] : most;
        }
        assert_int_equal(add_variable(r, p, k, cost, usage), DTP_OK);
    }
    for (int64_t x = draw(r, 3) == 0 ? 1 + draw(r, 3) : 0; x > 0; x--) {
        const int32_t i = (int32_t)draw(r, n);
        const int64_t begin = draw(r, SELECT_MAX_TIME);
        for (int32_t s = 0; s < SELECT_MAX_K; s++) {
            usage[s] = draw(r, 4) * unit;
        }
        assert_int_equal(dtp_problem_add_interval(p, i, begin, begin + draw(r, 6), usage, NULL),
                         DTP_OK);
    }
    p->usage_limit = most + draw(r, 1 + most / unit) * unit;
    for (int64_t e = draw(r, 2 * n); n > 1 && e > 0; e--) {
        const int32_t a = (int32_t)draw(r, n), b = (int32_t)((a + 1 + draw(r, n - 1)) % n);
        const bool map = draw(r, 4) == 0; /* each row leaves one column */
        const int32_t ka = dtp_problem_n_strategies(p, a), kb = dtp_problem_n_strategies(p, b);
        for (int32_t i = 0; i < ka; i++) {
            const int64_t only = draw(r, kb);
            for (int32_t j = 0; j < kb; j++) {
                cost[i * kb + j] = map && j != only ? DTP_FORBIDDEN : draw_cost(r, kind);
            }
        }
        assert_int_equal(dtp_problem_add_edge(p, a, b, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

enum { ODD_NODES = 4, WIDE_K = 90 };

/* Those of all variables together are near 2^61, the most that is allowed. */
static const int64_t MOST_USAGE = INT64_C(1) << 59;

static void add_odd_variables(random_source *r, dtp_problem *p, int32_t n)
{
    const int64_t huge = draw(r, 2), empty = draw(r, 6);
    const int32_t wide = (int32_t)draw(r, n);
    int64_t cost[WIDE_K], usage[WIDE_K];
    for (int32_t i = 0; i < n; i++) {
        const int32_t k =
            (int32_t)(i == wide ? WIDE_K - draw(r, WIDE_K - 60) : 1 + draw(r, 2 * SELECT_MAX_K));
        const int64_t begin = draw(r, SELECT_MAX_TIME);
        for (int32_t s = 0; s < k; s++) {
            const bool most = huge == 1 && draw(r, 4) == 0;
            cost[s] = draw_cost(r, SMALL);
            usage[s] = most ? MOST_USAGE - draw(r, 3) : draw(r, 12);
        }
        usage[draw(r, k)] = 0;
        assert_int_equal(dtp_problem_add_variable(p, begin, begin + (empty == 0 ? 0 : draw(r, 8)),
                                                  k, cost, usage, NULL),
                         DTP_OK);
    }
}

dtp_problem *odd_problem(random_source *r)
{
    dtp_problem *p = NULL;
    const int32_t n = 2 + (int32_t)draw(r, ODD_NODES - 1);
    int64_t cost[WIDE_K * WIDE_K];
    assert_int_equal(dtp_problem_create("odd", 0, &p, NULL), DTP_OK);
    p->usage_limit = draw(r, 3) == 0 ? 0 : draw(r, 24);
    add_odd_variables(r, p, n);
    for (int64_t pair = draw(r, 2 * n); pair > 0; pair--) {
        const int32_t x = (int32_t)draw(r, n), y = (int32_t)((x + 1 + draw(r, n - 1)) % n);
        for (int64_t parallel = 1 + draw(r, 4); parallel > 0; parallel--) {
            const bool turned = draw(r, 2) == 0;
            const int64_t entries =
                (int64_t)dtp_problem_n_strategies(p, x) * dtp_problem_n_strategies(p, y);
            for (int64_t i = 0; i < entries; i++) {
                cost[i] = draw(r, 3) == 0 ? draw_cost(r, SMALL) : 0;
            }
            assert_int_equal(dtp_problem_add_edge(p, turned ? y : x, turned ? x : y, cost, NULL),
                             DTP_OK);
        }
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

dtp_problem *random_problem(random_source *r)
{
    return problem_of(r, draw(r, OVERFLOWING));
}

dtp_problem *overflowing_problem(random_source *r)
{
    return problem_of(r, OVERFLOWING);
}

int64_t plain_cost(const dtp_problem *p, const int32_t *assignment)
{
    int64_t sum = 0;
    for (int64_t t = 0; t < 2 * SELECT_MAX_TIME; t++) {
        int64_t room = p->usage_limit;
        for (int32_t i = 0; i < p->n_variables && room >= 0; i++) {
            const bool live = p->begin[i] <= t && t < p->end[i];
            room -= live ? p->usage[p->first[i] + assignment[i]] : 0;
        }
        for (int32_t x = 0; x < p->n_extra && room >= 0; x++) {
            const bool live = p->extra_begin[x] <= t && t < p->extra_end[x];
            const int64_t at = p->extra_first[x] + assignment[p->extra_variable[x]];
            room -= live ? p->extra_usage[at] : 0;
        }
        if (room < 0) {
            return -1;
        }
    }
    for (int32_t i = 0; i < p->n_variables; i++) {
        const int64_t cost = p->cost[p->first[i] + assignment[i]];
        if (cost >= DTP_FORBIDDEN) {
            return -1;
        }
        sum += cost;
    }
    for (int32_t e = 0; e < p->n_edges; e++) {
        const int32_t kb = dtp_problem_n_strategies(p, p->edge_b[e]);
        const int64_t at = assignment[p->edge_a[e]] * kb + assignment[p->edge_b[e]];
        const int64_t cost = p->edge_cost[p->edge_first[e] + at];
        if (cost >= DTP_FORBIDDEN) {
            return -1;
        }
        sum += cost;
    }
    return sum < DTP_FORBIDDEN ? sum : -1;
}

int64_t enumerate(const dtp_problem *p)
{
    int32_t assignment[SELECT_MAX_NODES] = {0};
    int64_t best = -1;
    for (int32_t i = 0; i < p->n_variables;) {
        const int64_t cost = plain_cost(p, assignment);
        best = cost >= 0 && (best < 0 || cost < best) ? cost : best;
        for (i = 0; i < p->n_variables && ++assignment[i] == dtp_problem_n_strategies(p, i); i++) {
            assignment[i] = 0;
        }
    }
    return best;
}

dtp_presolve_options combination(uint32_t bits)
{
    return (dtp_presolve_options){.soft_arc_consistency = (bits & 1U) == 0,
                                  .functional_dependency = (bits & 2U) == 0,
                                  .dominance = (bits & 4U) == 0,
                                  .pbqp = (bits & 8U) == 0,
                                  .memory_rows = (bits & 16U) == 0,
                                  .incumbent_filter = (bits & 32U) == 0};
}
