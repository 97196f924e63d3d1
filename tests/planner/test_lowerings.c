/* A candidate is lowered once: what is tried with its program (buckets, what runs once for all
 * microbatches, overlap, the additive cost) gives what other lowerings would, and planning lowers
 * nothing twice. Lowerings are counted where dtp_lower is linked. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/baselines/baselines.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/variant_search.h"
#include "tests/support/tensor_cases.h"

#define DIMS "batch=16 length=16 vocab=32 layers=3 heads=4 d_head=4"

enum { MOST = 256 };

/* Of candidates: the hashes of their plain programs, which say sharding and redistributions. */
static struct lowerings {
    int32_t all, n;
    bool of_baselines[MOST];
    uint64_t hashes[MOST];
} counted;
static bool in_baselines;

/* The names that ld's --wrap asks for. */
dtp_status __real_dtp_lower(const dtp_graph *g, const dtp_sharding *s, /* NOLINT */
                            const dtp_lower_options *options, dtp_program **out, dtp_err *err);
dtp_status __wrap_dtp_lower(const dtp_graph *g, const dtp_sharding *s, /* NOLINT */
                            const dtp_lower_options *options, dtp_program **out, dtp_err *err);
dtp_status __real_dtp_baselines_create(const dtp_graph *g, const dtp_pricer *pricer, /* NOLINT */
                                       const dtp_baseline_options *options, dtp_arena *arena,
                                       int32_t *n, dtp_candidate **out, dtp_err *err);
dtp_status __wrap_dtp_baselines_create(const dtp_graph *g, const dtp_pricer *pricer, /* NOLINT */
                                       const dtp_baseline_options *options, dtp_arena *arena,
                                       int32_t *n, dtp_candidate **out, dtp_err *err);

dtp_status __wrap_dtp_lower(const dtp_graph *g, const dtp_sharding *s, /* NOLINT */
                            const dtp_lower_options *options, dtp_program **out, dtp_err *err)
{
    const dtp_status status = __real_dtp_lower(g, s, options, out, err);
    if (s->regather != NULL) { /* tries what is gathered again: the same plain program */
        return status;
    }
    counted.all++;
    if (status == DTP_OK && options->kept && counted.n < MOST) {
        counted.of_baselines[counted.n] = in_baselines;
        counted.hashes[counted.n++] = dtp_program_hash((*out)->plain);
    }
    return status;
}

dtp_status __wrap_dtp_baselines_create(const dtp_graph *g, const dtp_pricer *pricer, /* NOLINT */
                                       const dtp_baseline_options *options, dtp_arena *arena,
                                       int32_t *n, dtp_candidate **out, dtp_err *err)
{
    in_baselines = true;
    const dtp_status s = __real_dtp_baselines_create(g, pricer, options, arena, n, out, err);
    in_baselines = false;
    return s;
}

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* ---- one program ---- */

static dtp_graph *changed_graph(const tensor_fixture *f, int32_t microbatches)
{
    const dtp_graph_variant variant = {.precision = {.compute = DTP_BF16, .gradients = DTP_F32},
                                       .microbatches = microbatches,
                                       .micro_dim = -1};
    dtp_graph *changed = NULL;
    dtp_err err = {0};
    must(dtp_graph_with_variant(f->model, &variant, 0, NULL, &changed, &err), &err);
    return changed;
}

/* The program, its prediction and its cost are those of lowerings with what was chosen. */
static void check_program(const tensor_fixture *f, const dtp_graph *g, const dtp_sharding *s,
                          int64_t limit, int32_t *n_once)
{
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_prediction predicted, same;
    dtp_program *p, *alone;
    dtp_err err = {0};
    int64_t cost, alone_cost;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    options.overlap.memory_bytes = limit;
    counted = (struct lowerings){0};
    must(dtp_sharding_program(g, &f->pricer, s, &options, &predicted, &p, &err), &err);
    must(dtp_program_additive_cost(&f->pricer, p, &cost, &err), &err);
    assert_int_equal(counted.all, 1);
    must(dtp_additive_cost(g, &f->pricer, s, options.redistributor, &alone_cost, &err), &err);
    assert_true(cost == alone_cost);
    must(dtp_lower(g, s, &options, &alone, &err), &err);
    must(dtp_predict(&f->pricer, alone, &same, &err), &err);
    assert_true(dtp_program_hash(p) == dtp_program_hash(alone));
    assert_int_equal(p->peak_bytes, alone->peak_bytes);
    assert_true(same.step_time_s == predicted.step_time_s);
    *n_once += options.overlap.once_bytes > 0 ? 1 : 0;
    dtp_program_destroy(p);
    dtp_program_destroy(alone);
}

static void test_program__is_lowered_once(void **state)
{
    const char *const meshes[] = {"x:4", "x:2;y:2"};
    int32_t n_once = 0;
    (void)state;
    for (int32_t i = 0; i < 4; i++) {
        tensor_fixture f;
        tensor_fixture_create(
            &(tensor_case){.model = TENSOR_GPT, .mesh = meshes[i % 2], .dims = DIMS}, &f);
        dtp_graph *g = changed_graph(&f, i < 2 ? 1 : 4);
        dtp_arena *arena = dtp_arena_create();
        const dtp_baseline_options all = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
        dtp_candidate *list;
        dtp_err err = {0};
        int32_t n;
        counted = (struct lowerings){0};
        must(dtp_baselines_create(g, &f.pricer, &all, arena, &n, &list, &err), &err);
        int32_t n_legal = 0;
        for (int32_t k = 0; k < n; k++) {
            n_legal += list[k].legal ? 1 : 0;
        }
        assert_int_equal(counted.n, n_legal); /* both redistributors are the same */
        for (int32_t k = 0; k < n; k++) {
            if (list[k].legal) {
                const int64_t peak = list[k].predicted.peak_bytes;
                check_program(&f, g, &list[k].sharding, 0, &n_once);
                check_program(&f, g, &list[k].sharding, peak - peak / 8, &n_once);
            }
        }
        dtp_arena_destroy(arena);
        dtp_graph_destroy(g);
        tensor_fixture_destroy(&f);
    }
    assert_true(n_once > 0);
}

/* ---- planning ---- */

/* Nothing that planning lowers is lowered again, but a baseline that a search finds as well. Gives
 * the bytes that the plan needs. */
static int64_t check_planning(dtp_plan_mode mode, const char *mesh, int64_t limit)
{
    tensor_fixture f;
    dtp_plan_result result;
    dtp_err err = {0};
    tensor_fixture_create(&(tensor_case){.model = TENSOR_GPT, .mesh = mesh, .dims = DIMS}, &f);
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &f.pricer.mesh;
    request.options.memory_limit_bytes = limit;
    counted = (struct lowerings){0};
    must(mode(f.model, f.machine, &request, &result, &err), &err);
    assert_non_null(result.plan);
    assert_int_equal(counted.all, counted.n);
    for (int32_t i = 0; i < counted.n - 1; i++) { /* the last one lists redistributions */
        for (int32_t k = 0; k < i; k++) {
            if (counted.hashes[i] == counted.hashes[k] &&
                counted.of_baselines[i] == counted.of_baselines[k]) {
                fail_msg("%s: lowering %" PRId32 " of %" PRId32 " is %" PRId32 " again", mesh, i,
                         counted.n, k);
            }
        }
    }
    const int64_t peak = result.plan->predicted.peak_bytes;
    dtp_plan_result_free(&result);
    tensor_fixture_destroy(&f);
    return peak;
}

static void test_planning__lowers_a_candidate_once(void **state)
{
    const char *const meshes[] = {"x:4", "x:2;y:2", "x:8"};
    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        const int64_t peak = check_planning(dtp_plan_tensor, meshes[i], 0);
        check_planning(dtp_plan_tensor, meshes[i], peak - 1);
        check_planning(dtp_plan_rules, meshes[i], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program__is_lowered_once),
        cmocka_unit_test(test_planning__lowers_a_candidate_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
