/* Plans of tensor mode by the simulated step, on machines that overlap communication and compute:
 *
 *   - random small graphs on one mesh dim and on two: the least step of all assignments of the
 *     selection problem, each lowered and simulated, beside that of the plan and the bound on it;
 *   - what holds by nature: a finer mesh over the same ranks of one level, a faster link and a
 *     larger memory are not slower.
 *
 * Without arguments: N_CASES graphs, in quarters. By hand, COUNT graphs from a seed on; of those
 * whose plan is slower the seeds are printed:
 *
 *     build/dev/bin/test_step_search 1 1000
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/predict.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/tensors/step_bound.h"
#include "tests/support/quarter.h"
#include "tests/support/random_graphs.h"
#include "tests/support/tensor_cases.h"

enum { N_CASES = 200, MOST_ASSIGNMENTS = 1000, MOST_VISITED = 20000 };

static const double SLOWER = 1.01, NOT_SLOWER = 1.005;

/* ---- all assignments of small graphs ---- */

typedef struct enumeration {
    const tensor_fixture *f;
    const dtp_tensor_problem *p;
    int32_t *assignment;
    int32_t n;       /* assignments */
    int32_t visited; /* parts of assignments */
    bool count_only;
    double least_s;
} enumeration;

static void enumerate(enumeration *e, int32_t v)
{
    if (v == e->p->n_variables) {
        e->n++;
        if (e->count_only) {
            return;
        }
        dtp_sharding sharding;
        dtp_prediction predicted;
        dtp_arena *arena = dtp_arena_create();
        dtp_lower_options options = dtp_lower_options_init(dtp_tensor_redistributor(e->p));
        options.target = e->f->pricer.target;
        options.overlap.depth = DTP_OVERLAP_CHOOSE;
        assert_int_equal(dtp_tensor_sharding(e->p, e->assignment, arena, &sharding, NULL), DTP_OK);
        assert_int_equal(dtp_sharding_predict(e->f->graph, &e->f->pricer, &sharding, &options,
                                              &predicted, NULL, NULL),
                         DTP_OK);
        e->least_s = fmin(e->least_s, predicted.step_time_s);
        dtp_arena_destroy(arena);
        return;
    }
    e->n = e->visited++ > MOST_VISITED ? MOST_ASSIGNMENTS + 1 : e->n;
    for (int32_t k = 0; k < dtp_problem_n_strategies(e->p->select, v) && e->n <= MOST_ASSIGNMENTS;
         k++) {
        const dtp_problem *s = e->p->select;
        bool allowed = s->cost[s->first[v] + k] < DTP_FORBIDDEN;
        e->assignment[v] = k;
        for (int32_t i = 0; i < s->n_edges && allowed; i++) {
            const int32_t a = s->edge_a[i], b = s->edge_b[i];
            const bool known = (a > b ? a : b) == v; /* both ends */
            const int64_t row =
                known ? e->assignment[a] * (int64_t)dtp_problem_n_strategies(s, b) : 0;
            allowed =
                !known || s->edge_cost[s->edge_first[i] + row + e->assignment[b]] < DTP_FORBIDDEN;
        }
        if (allowed) {
            enumerate(e, v + 1);
        }
    }
}

/* Few solves, each from the solution before, give a bound, too, and about as high a one. */
static void check_brief_bound(const dtp_tensor_problem *p, double least_s, double bound_s)
{
    const dtp_solve_options options = dtp_solve_options_init();
    int64_t brief_ps;
    assert_int_equal(dtp_step_bound_find(p, &options, true, &brief_ps, NULL), DTP_OK);
    assert_true(1e-12 * (double)brief_ps <= least_s * (1.0 + 1e-9));
    assert_true(1e-12 * (double)brief_ps >= 0.9 * bound_s);
}

/* The step of the plan over the least one; 0 when there are too many assignments. *bound: that of
 * the plan's certificate over the least step, never above 1. */
static double compare(uint64_t seed, double *bound)
{
    char *text = NULL, machine[720];
    uint64_t draw = seed;
    const bool hosts = seed % 8 == 0; /* two lanes of collectives */
    dtp_graph *g = random_graph(seed, &text);
    assert_non_null(g);
    dtp_graph_destroy(g);
    snprintf(
        machine, sizeof machine,
        "{\"format\": \"dtp.machine/1\", \"name\": \"m\", \"provenance\": {\"how\": "
        "\"datasheet\"}, \"device\": {\"kind\": \"cuda\", \"memory_bytes\": "
        "1000000000, \"mem_bw_Bps\": 1e%d, \"launch_s\": 1e-7, \"flops\": {\"f32\": 1e%d}, "
        "\"overlap\": true}, \"levels\": [{\"name\": \"l\", \"size\": %d, \"latency_s\": 1e-%d, "
        "\"bw_Bps\": 1e%d}%s]}",
        7 + random_below(&draw, 3), 6 + random_below(&draw, 4), hosts ? 2 : 4,
        6 + random_below(&draw, 3), 6 + random_below(&draw, 4),
        hosts ? ", {\"name\": \"h\", \"size\": 2, \"latency_s\": 1e-7, \"bw_Bps\": 1e8}" : "");
    const tensor_case c = {.model = text,
                           .mesh = seed % 4 == 0 ? "x:2;y:2" : "x:4",
                           .dims = "",
                           .machine = machine,
                           .target = hosts ? &dtp_target_torch : &dtp_target_cuda};
    tensor_fixture f;
    dtp_tensor_options options = dtp_tensor_options_init();
    double ratio = 0.0;
    tensor_fixture_create(&c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    enumeration e = {.f = &f, .p = p, .least_s = INFINITY, .count_only = true};
    e.assignment = calloc((size_t)p->n_variables + 1, sizeof *e.assignment);
    assert_non_null(e.assignment);
    enumerate(&e, 0);
    if (e.n <= MOST_ASSIGNMENTS) {
        const dtp_plan_request request = tensor_fixture_request(&f);
        dtp_plan_result r = tensor_fixture_plan(&f, &request);
        assert_non_null(r.plan);
        e.count_only = false;
        e.n = e.visited = 0;
        enumerate(&e, 0);
        const double bound_s = 1e-12 * (double)r.plan->certificate.step_bound;
        if (bound_s > e.least_s * (1.0 + 1e-9)) {
            print_message("seed %" PRIu64 ": %.6g s are the least, %.6g s the bound\n", seed,
                          e.least_s, bound_s);
        }
        assert_true(bound_s <= e.least_s * (1.0 + 1e-9));
        check_brief_bound(p, e.least_s, bound_s);
        *bound = e.least_s > 0.0 ? bound_s / e.least_s : 1.0;
        ratio = e.least_s > 0.0 ? r.plan->predicted.step_time_s / e.least_s : 1.0;
        if (ratio > SLOWER) {
            print_message("seed %" PRIu64 ": %.3g s, the least of %d is %.3g s, %+.2f %%\n", seed,
                          r.plan->predicted.step_time_s, e.n, e.least_s, 100.0 * (ratio - 1.0));
        }
        dtp_plan_result_free(&r);
    }
    free(e.assignment);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
    free(text);
    return ratio;
}

static int32_t compare_many(uint64_t seed, int32_t n, bool quarters)
{
    int32_t compared = 0, slower = 0;
    double bounds = 0.0;
    for (int32_t i = 0; compared < n; i++) {
        if (quarters && !quarter_has(i, N_CASES)) {
            continue;
        }
        double bound = 0.0;
        const double ratio = compare(seed + (uint64_t)i, &bound);
        bounds += bound;
        compared += ratio > 0.0 ? 1 : 0;
        slower += ratio > SLOWER ? 1 : 0;
    }
    print_message(
        "%d graphs, the plans of %d take over 1 %% longer than the least step; bounds are "
        "%.1f %% of it in the mean\n",
        compared, slower, 100.0 * bounds / (double)compared);
    return slower;
}

static void test_step_search__finds_the_least_step_of_small_graphs(void **state)
{
    (void)state;
    const int32_t n = quarter_of(N_CASES);
    assert_true(compare_many(1, n, true) * 20 <= n);
}

/* ---- what holds by nature ---- */

/* The step of the plan where links are `faster` times as fast, never below its bound.
 * *memory_bytes: the limit, 0: none; becomes the peak of the plan. Infinite: no plan fits. */
static double step_of(const tensor_case *c, double faster, int64_t *memory_bytes)
{
    tensor_fixture f;
    tensor_fixture_create(c, &f);
    for (int32_t l = 0; l < f.machine->n_levels; l++) {
        dtp_level *level = &f.machine->levels[l];
        level->bw_Bps *= faster;
        level->latency_s /= faster;
        for (int k = 0; k < DTP_N_COLLS; k++) {
            level->rates[k].start_s /= faster;
            level->rates[k].rank_s /= faster;
        }
    }
    dtp_plan_request request = tensor_fixture_request(&f);
    request.options.memory_limit_bytes = *memory_bytes;
    dtp_plan_result r = tensor_fixture_plan(&f, &request);
    double step_s = INFINITY;
    if (r.plan != NULL) {
        step_s = r.plan->predicted.step_time_s;
        *memory_bytes = r.plan->predicted.peak_bytes;
        assert_true(1e-12 * (double)r.plan->certificate.step_bound <= step_s * (1.0 + 1e-9));
    }
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&f);
    return step_s;
}

/* Where one collective may go over several mesh dims. */
static void test_step_search__finer_meshes_are_not_slower(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:8", "x:2;y:4", "x:4;y:2"};
    static const char *const models[][2] = {
        {"bert_large.json", "batch=8 layers=4"},
        {"llama3_8b.json", "batch=8 length=4096 layers=4"},
        {"vit_b16.json", "batch=8 layers=4"},
        {"gpt2_small.json", "batch=8"},
        {"gpt2_small.json", "batch=16 layers=2"},
        {"mixtral_8x7b.json", "batch=8 length=1024 layers=2"},
        {"gpt_bytes.json", "batch=16"},
        {"llama3_8b.json", "batch=1 length=8192 layers=4"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        double coarse_s = 0.0;
        const size_t n = quarter_has((int64_t)i, 8) ? sizeof meshes / sizeof meshes[0] : 0;
        for (size_t k = 0; k < n; k++) {
            const tensor_case c = {.model = models[i][0],
                                   .mesh = meshes[k],
                                   .dims = models[i][1],
                                   .machine = "h100_64.json",
                                   .precision = "bf16",
                                   .target = &dtp_target_cuda};
            int64_t memory_bytes = 0;
            const double step_s = step_of(&c, 1.0, &memory_bytes);
            print_message("%s on %s: %.4g ms\n", models[i][0], meshes[k], 1e3 * step_s);
            coarse_s = k == 0 ? step_s : coarse_s;
            assert_true(step_s <= NOT_SLOWER * coarse_s);
        }
    }
}

/* Models of few layers, one in each quarter of the tests. One for which a larger memory is slower
 * is known: gpt2_small of two layers on x:8 for target cuda, by 1.0 % beside a limit that is its
 * own peak. */
static const struct {
    const char *model, *dims, *mesh;
    const dtp_target *target;
} OF_QUARTER[] = {
    {"bert_large.json", "batch=8 layers=2", "x:8", &dtp_target_torch},
    {"llama3_8b.json", "batch=8 length=4096 layers=2", "x:8", &dtp_target_cuda},
    {"gpt2_small.json", "batch=8 layers=4", "x:8", &dtp_target_torch},
    {"mixtral_8x7b.json", "batch=8 length=1024 layers=2", "x:8", &dtp_target_torch},
};
enum { N_OF_QUARTER = sizeof OF_QUARTER / sizeof OF_QUARTER[0] };

static tensor_case of_quarter(int32_t i)
{
    return (tensor_case){.model = OF_QUARTER[i].model,
                         .mesh = OF_QUARTER[i].mesh,
                         .dims = OF_QUARTER[i].dims,
                         .machine = "h100_64.json",
                         .precision = "bf16",
                         .target = OF_QUARTER[i].target};
}

static void test_step_search__faster_links_are_not_slower(void **state)
{
    (void)state;
    static const double faster[] = {0.25, 0.5, 1.0, 2.0, 4.0};
    for (int32_t i = 0; i < N_OF_QUARTER; i++) {
        const tensor_case c = of_quarter(i);
        double before_s = INFINITY;
        for (size_t k = 0; k < sizeof faster / sizeof faster[0] && quarter_has(i, N_OF_QUARTER);
             k++) {
            int64_t memory_bytes = 0;
            const double step_s = step_of(&c, faster[k], &memory_bytes);
            print_message("%s, links %g times as fast: %.4g ms\n", c.model, faster[k],
                          1e3 * step_s);
            assert_true(step_s <= NOT_SLOWER * before_s);
            before_s = step_s;
        }
    }
}

static void test_step_search__more_memory_is_not_slower(void **state)
{
    (void)state;
    static const int64_t limits[] = {800000000, 2000000000, 0};
    const tensor_case gpt2 = of_quarter(2);
    double before_s = INFINITY;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0] && quarter_has(2, N_OF_QUARTER); i++) {
        int64_t memory_bytes = limits[i];
        const double step_s = step_of(&gpt2, 1.0, &memory_bytes);
        print_message("within %" PRId64 " bytes: %.4g ms\n", limits[i], 1e3 * step_s);
        assert_true(isfinite(step_s) && step_s <= NOT_SLOWER * before_s);
        before_s = step_s;
    }
    for (int32_t i = 0; i < N_OF_QUARTER; i++) {
        if (i == 2 || !quarter_has(i, N_OF_QUARTER)) {
            continue;
        }
        const tensor_case c = of_quarter(i);
        int64_t memory_bytes = 0;
        const double more_s = step_of(&c, 1.0, &memory_bytes);
        const double step_s = step_of(&c, 1.0, &memory_bytes);
        print_message("%s: %.4g ms, within its peak %.4g ms\n", c.model, 1e3 * more_s,
                      1e3 * step_s);
        assert_true(isfinite(more_s) && more_s <= NOT_SLOWER * step_s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_search__finds_the_least_step_of_small_graphs),
        cmocka_unit_test(test_step_search__finer_meshes_are_not_slower),
        cmocka_unit_test(test_step_search__faster_links_are_not_slower),
        cmocka_unit_test(test_step_search__more_memory_is_not_slower),
    };
    if (argc == 3) {
        compare_many(strtoull(argv[1], NULL, 10), (int32_t)strtol(argv[2], NULL, 10), false);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
