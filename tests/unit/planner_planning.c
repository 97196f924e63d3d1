/* Which of the candidates on one mesh are kept: the best, the fastest near the least sum of prices,
 * the fastest that was not selected. */
#include "planner/planning.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 4711, ROUNDS = 3000, MAX_CANDIDATES = 24, LIMIT = 1000 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* ---- fixture ------------------------------------------------------------------------------------
 */

static bool keeps_pins(const dtp_planning *p, const dtp_candidate *c)
{
    (void)p;
    return c->name == NULL || strcmp(c->name, "against a pin") != 0;
}

static const char tags[MAX_CANDIDATES]; /* candidate i: why = &tags[i] */
static const dtp_planner planner = {.keeps_pins = keeps_pins};

/* Few times and peaks, so that there are ties; sums from the least one to some percent above. */
static dtp_candidate random_candidate(uint64_t *random, int64_t least)
{
    return (dtp_candidate){
        .legal = true,
        .selected = draw(random, 2) == 0,
        .cost_ps = least + least / 1000 * (int64_t)draw(random, draw(random, 2) == 0 ? 11 : 100),
        .predicted = {.step_time_s = 1.0 + 0.01 * draw(random, 12),
                      .peak_bytes = LIMIT - (int64_t)draw(random, 4)},
    };
}

/* The least sum of all comes first. */
static int random_candidates(uint64_t *random, dtp_candidate *c)
{
    const int64_t least = 1000000 + (int64_t)draw(random, 1000000000);
    const int n = 1 + (int)draw(random, MAX_CANDIDATES);
    for (int i = 0; i < n; i++) {
        c[i] = random_candidate(random, least);
    }
    c[0].cost_ps = least;
    for (int i = 0; i < n; i++) {
        c[i].why = &tags[i];
    }
    return n;
}

/* One that must not count: it would be the best of all. */
static dtp_candidate random_excluded(uint64_t *random)
{
    dtp_candidate c = {.legal = true,
                       .selected = draw(random, 2) == 0,
                       .cost_ps = 1,
                       .predicted = {.step_time_s = 0.001, .peak_bytes = 1}};
    switch (draw(random, 3)) {
    case 0:
        c.legal = false;
        break;
    case 1:
        c.predicted.peak_bytes = LIMIT + 1;
        break;
    default:
        c.name = "against a pin";
    }
    return c;
}

static void check_excluded(dtp_planning *p, uint64_t *random)
{
    static dtp_planning before;
    const dtp_candidate c = random_excluded(random);
    memcpy(&before, p, sizeof before);
    dtp_planning_offer(p, &c);
    assert_memory_equal(&before, p, sizeof before);
}

/* ---- what is expected ---------------------------------------------------------------------------
 */

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* Whether b comes before a: a shorter time, or a smaller peak at the same time. */
static bool is_before(double tb, const dtp_candidate *b, double ta, const dtp_candidate *a)
{
    return same(ta, tb) ? b->predicted.peak_bytes < a->predicted.peak_bytes : tb < ta;
}

static double step_of(const dtp_candidate *c)
{
    return c->predicted.step_time_s;
}

/* What is beyond the sums near the least one counts twice. */
static double weighed(const dtp_candidate *c, int64_t near_least)
{
    const double near = (double)near_least;
    const double part = ((double)c->cost_ps - near) / near;
    return step_of(c) * (part > 0.0 ? 1.0 + 2.0 * part : 1.0);
}

static int64_t least_of(int n, const dtp_candidate *c)
{
    int64_t least = c[0].cost_ps;
    for (int i = 1; i < n; i++) {
        least = c[i].cost_ps < least ? c[i].cost_ps : least;
    }
    return least;
}

/* The kept one is among those that were not selected, and none of them comes before it. */
static void check_given(const dtp_planning *p, int n, const dtp_candidate *c)
{
    int given = 0;
    for (int i = 0; i < n; i++) {
        given += c[i].selected ? 0 : 1;
        assert_true(c[i].selected || (p->has_given && !is_before(step_of(&c[i]), &c[i],
                                                                 step_of(&p->given), &p->given)));
    }
    assert_true(p->has_given == (given > 0));
    assert_true(!p->has_given || !p->given.selected);
}

static void check_least(const dtp_planning *p, int n, const dtp_candidate *c)
{
    const int64_t least = least_of(n, c);
    assert_true(p->has_best);
    assert_int_equal(p->least_cost, least);
    assert_true(fabs((double)dtp_planning_near_least(p) - 1.005 * (double)least) <= 1.0);
    assert_true(p->near.cost_ps <= dtp_planning_near_least(p));
}

/* ---- objective time ----------------------------------------------------------------------------
 */

/* From the least sum on nothing that is near it changes its place. */
static void check_kept(const dtp_planning *p, int n, const dtp_candidate *c)
{
    const int64_t most = dtp_planning_near_least(p);
    const double best = weighed(&p->best, most);
    bool has_near = false, has_best = false;
    for (int i = 0; i < n; i++) {
        const bool near = c[i].cost_ps <= most;
        assert_false(near && is_before(step_of(&c[i]), &c[i], step_of(&p->near), &p->near));
        assert_false(is_before(weighed(&c[i], most), &c[i], best, &p->best));
        has_near = has_near || c[i].why == p->near.why;
        has_best = has_best || c[i].why == p->best.why;
    }
    assert_true(has_near && has_best);
}

static void test_planning__keeps_the_best_from_the_least_sum_on(void **state)
{
    (void)state;
    uint64_t random = SEED;
    int beyond = 0, not_near = 0;
    print_message("seed %d\n", SEED);
    dtp_plan_request request = dtp_plan_request_init();
    request.objective = DTP_OBJECTIVE_TIME;
    request.memory_limit_bytes = LIMIT;
    for (int round = 0; round < ROUNDS; round++) {
        dtp_candidate c[MAX_CANDIDATES];
        dtp_planning p;
        memset(&p, 0, sizeof p);
        p.request = &request;
        p.planner = &planner;
        const int n = random_candidates(&random, c);
        for (int i = 0; i < n; i++) {
            dtp_planning_offer(&p, &c[i]);
            check_excluded(&p, &random);
            check_least(&p, i + 1, c);
            check_given(&p, i + 1, c);
            check_kept(&p, i + 1, c);
        }
        beyond += p.best.cost_ps > dtp_planning_near_least(&p) ? 1 : 0;
        not_near += step_of(&p.near) > step_of(&p.best) ? 1 : 0;
    }
    print_message("%d rounds, best beyond the sums near the least: %d\n", ROUNDS, beyond);
    assert_true(beyond > ROUNDS / 100 && beyond < ROUNDS && not_near == beyond);
}

/* A plan beyond the sums near the least must gain twice what it costs more. */
static void test_planning__what_costs_more_must_gain_twice_as_much(void **state)
{
    (void)state;
    static const struct {
        int64_t cost_ps;
        double step_s;
        bool better;
    } cases[] = {
        {1004999, 0.999, true}, {1004999, 1.001, false}, {1015050, 0.990, false},
        {1015050, 0.979, true}, {1015050, 0.982, false}, {1105500, 0.840, false},
        {1105500, 0.830, true}, {1507500, 0.501, false}, {1507500, 0.499, true},
        {2010000, 0.333, true}, {2010000, 0.334, false},
    };
    const dtp_plan_request request = dtp_plan_request_init();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_planning p = {.request = &request, .planner = &planner};
        const dtp_candidate least = {
            .legal = true, .cost_ps = 1000000, .predicted = {.step_time_s = 1.0}};
        const dtp_candidate c = {.legal = true,
                                 .cost_ps = cases[i].cost_ps,
                                 .predicted = {.step_time_s = cases[i].step_s}};
        dtp_planning_offer(&p, &least);
        assert_in_range(dtp_planning_near_least(&p), 1004999, 1005000);
        dtp_planning_offer(&p, &c);
        if ((p.best.cost_ps == c.cost_ps) != cases[i].better) {
            fail_msg("case %zu", i);
        }
        assert_true((p.near.cost_ps == c.cost_ps) ==
                    (cases[i].better && cases[i].cost_ps <= 1004999));
    }
}

static void shuffle(uint64_t *random, int n, dtp_candidate *c)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = (int)draw(random, (uint32_t)i + 1);
        const dtp_candidate t = c[i];
        c[i] = c[j];
        c[j] = t;
    }
}

/* In any order there is one near the least sum so far, and what was not selected is kept. */
static void test_planning__one_is_near_the_least_sum_in_any_order(void **state)
{
    (void)state;
    uint64_t random = SEED + 1;
    print_message("seed %d\n", SEED + 1);
    dtp_plan_request request = dtp_plan_request_init();
    request.memory_limit_bytes = LIMIT;
    for (int round = 0; round < ROUNDS; round++) {
        dtp_candidate c[MAX_CANDIDATES];
        dtp_planning p;
        memset(&p, 0, sizeof p);
        p.request = &request;
        p.planner = &planner;
        const int n = random_candidates(&random, c);
        shuffle(&random, n, c);
        check_excluded(&p, &random);
        for (int i = 0; i < n; i++) {
            dtp_planning_offer(&p, &c[i]);
            check_excluded(&p, &random);
            check_least(&p, i + 1, c);
            check_given(&p, i + 1, c);
        }
    }
}

static void test_planning__sums_saturate(void **state)
{
    (void)state;
    const dtp_plan_request request = dtp_plan_request_init();
    dtp_planning p = {.request = &request, .planner = &planner};
    const dtp_candidate c = {
        .legal = true, .cost_ps = INT64_MAX - 1, .predicted = {.step_time_s = 1.0}};
    dtp_planning_offer(&p, &c);
    assert_true(p.has_best && p.near.cost_ps == INT64_MAX - 1);
    assert_true(dtp_planning_near_least(&p) == INT64_MAX);
}

/* ---- objective memory ---------------------------------------------------------------------------
 */

/* The least peak, then the least time. */
static void test_planning__objective_memory(void **state)
{
    (void)state;
    uint64_t random = SEED + 2;
    print_message("seed %d\n", SEED + 2);
    dtp_plan_request request = dtp_plan_request_init();
    request.objective = DTP_OBJECTIVE_MEMORY;
    request.memory_limit_bytes = LIMIT;
    for (int round = 0; round < ROUNDS; round++) {
        dtp_candidate c[MAX_CANDIDATES];
        dtp_planning p;
        memset(&p, 0, sizeof p);
        p.request = &request;
        p.planner = &planner;
        const int n = random_candidates(&random, c);
        shuffle(&random, n, c);
        for (int i = 0; i < n; i++) {
            dtp_planning_offer(&p, &c[i]);
            check_excluded(&p, &random);
        }
        for (int i = 0; i < n; i++) {
            const int64_t peak = c[i].predicted.peak_bytes, best = p.best.predicted.peak_bytes;
            assert_true(best <= peak);
            assert_true(best < peak || step_of(&p.best) <= step_of(&c[i]));
        }
        assert_int_equal(p.least_cost, least_of(n, c));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning__keeps_the_best_from_the_least_sum_on),
        cmocka_unit_test(test_planning__what_costs_more_must_gain_twice_as_much),
        cmocka_unit_test(test_planning__one_is_near_the_least_sum_in_any_order),
        cmocka_unit_test(test_planning__sums_saturate),
        cmocka_unit_test(test_planning__objective_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
