/* What is planned on a coarser mesh means the same on the finer one: layouts have the same shards
 * on every rank; programs of random selections cost, take and need the same, and compute what one
 * device computes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/predict.h"
#include "planner/tensors/coarser_mesh.h"
#include "tests/support/quarter.h"
#include "tests/support/random_graphs.h"
#include "tests/support/tensor_cases.h"
#include "tests/support/verify_case.h"

/* One level: every mesh of it has coarser ones. */
static const char FLAT[] =
    "{\"format\": \"dtp.machine/1\", \"name\": \"flat\", \"device\": {\"kind\": \"cuda\","
    " \"memory_bytes\": 1000000000, \"mem_bw_Bps\": 1e9, \"launch_s\": 1e-7,"
    " \"flops\": {\"f32\": 1e9}}, \"levels\": [{\"name\": \"l\", \"size\": 8,"
    " \"latency_s\": 1e-7, \"bw_Bps\": 2e9}], \"provenance\": {\"how\": \"datasheet\"}}";

static dtp_layout random_layout(const dtp_mesh *mesh, int32_t rank, uint64_t *seed)
{
    dtp_layout layout = dtp_layout_replicated(rank, mesh->n_dims);
    int32_t order[DTP_MAX_MESH_DIMS];
    for (int32_t m = 0; m < mesh->n_dims; m++) { /* splits in any order of the mesh dims */
        const int32_t at = (int32_t)tensor_draw(seed, (uint64_t)m + 1);
        order[m] = order[at];
        order[at] = m;
    }
    for (int32_t i = 0; i < mesh->n_dims; i++) {
        const int32_t m = order[i];
        const uint64_t kind = tensor_draw(seed, 4);
        if (kind < 2) {
            dtp_layout_split(&layout, m, (int32_t)tensor_draw(seed, (uint64_t)rank));
        } else if (kind == 2) {
            layout.placement[m].kind = DTP_PARTIAL;
        }
    }
    return layout;
}

static void check_layouts(const dtp_mesh *fine, const dtp_coarser_mesh *c, uint64_t *seed)
{
    const dtp_ttype type = {.rank = 3, .dims = {{0, 128}, {1, 384}, {2, 640}}};
    for (int32_t i = 0; i < 50; i++) {
        dtp_layout back;
        const dtp_layout coarse = random_layout(&c->mesh, type.rank, seed);
        const dtp_layout finer = dtp_finer_layout(c, &coarse);
        assert_int_equal(dtp_layout_check(&finer, fine, &type, NULL), DTP_OK);
        assert_true(dtp_coarser_layout(c, &finer, &back));
        assert_true(dtp_layout_equal(&back, &coarse));
        for (int32_t rank = 0; rank < dtp_mesh_ranks(fine); rank++) {
            dtp_ttype a, b;
            int64_t x[DTP_MAX_RANK] = {0}, y[DTP_MAX_RANK] = {0};
            dtp_layout_local(&coarse, &c->mesh, &type, rank, &a, x);
            dtp_layout_local(&finer, fine, &type, rank, &b, y);
            for (int32_t axis = 0; axis < type.rank; axis++) {
                assert_int_equal(a.dims[axis].size, b.dims[axis].size);
                assert_int_equal(x[axis], y[axis]);
            }
        }
        const dtp_layout other = random_layout(fine, type.rank, seed);
        if (dtp_coarser_layout(c, &other, &back)) {
            const dtp_layout again = dtp_finer_layout(c, &back);
            assert_true(dtp_layout_equal(&again, &other));
        }
    }
}

static void test_coarser_mesh__layouts_have_the_same_shards(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2;y:4", "x:2;y:2;z:2", "x:4;y:2;z:8", "x:8;y:4;z:2"};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        tensor_fixture f;
        tensor_fixture_create(&(tensor_case){.model = TENSOR_MLP,
                                             .mesh = meshes[i],
                                             .dims = TENSOR_MLP_DIMS,
                                             .machine = "h100_64.json"},
                              &f);
        const int32_t n = dtp_coarser_meshes(&f.pricer);
        static const int32_t expected[] = {1, 3, 1, 1}; /* hosts have eight devices */
        assert_int_equal(n, expected[i]);
        for (int32_t k = 1; k <= n; k++) {
            dtp_coarser_mesh c;
            dtp_coarser_mesh_make(&f.pricer, k, &c);
            assert_int_equal(dtp_mesh_ranks(&c.mesh), dtp_mesh_ranks(&f.pricer.mesh));
            check_layouts(&f.pricer.mesh, &c, &seed);
        }
        tensor_fixture_destroy(&f);
    }
}

/* ---- programs ---- */

static dtp_prediction predict(const tensor_fixture *f, const dtp_sharding *s,
                              const dtp_redistributor *by, int64_t *cost_ps)
{
    dtp_prediction p;
    dtp_err err = {0};
    dtp_lower_options options = dtp_lower_options_init(by);
    options.target = f->pricer.target;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    if (dtp_sharding_predict(f->graph, &f->pricer, s, &options, &p, cost_ps, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

static void compare(const tensor_fixture *fine, const tensor_fixture *coarse,
                    const dtp_coarser_steps *steps, const dtp_sharding *s, bool runs)
{
    dtp_sharding finer;
    int64_t fine_ps, coarse_ps;
    dtp_arena *arena = dtp_arena_create();
    assert_non_null(arena);
    assert_int_equal(
        dtp_finer_sharding(&steps->coarser, &fine->pricer.mesh, s, arena, &finer, NULL), DTP_OK);
    assert_int_equal(dtp_sharding_check(fine->graph, &finer, NULL), DTP_OK);
    const dtp_prediction a = predict(coarse, s, coarse->redistributor, &coarse_ps);
    const dtp_prediction b = predict(fine, &finer, &steps->redistributor, &fine_ps);
    assert_int_equal(coarse_ps, fine_ps);
    assert_int_equal(a.peak_bytes, b.peak_bytes);
    assert_true(fabs(a.step_time_s - b.step_time_s) <= 1e-9 * a.step_time_s);
    if (runs) {
        verify_case c = verify_case_init("finer mesh");
        dtp_lower_options options = dtp_lower_options_init(&steps->redistributor);
        options.target = fine->pricer.target;
        c.options.reference_graph = fine->model;
        c.options.tolerance = 5e-5;
        c.options.steps = 2;
        verify_sharding(fine->graph, &finer, &options, &c);
    }
    dtp_arena_destroy(arena);
}

/* Random selections of the problems of all coarser meshes. */
static void check_case(const tensor_case *of, int32_t n_random, bool runs)
{
    tensor_fixture fine;
    uint64_t seed = 17;
    tensor_fixture_create(of, &fine);
    const int32_t n = dtp_coarser_meshes(&fine.pricer);
    assert_true(n > 0);
    for (int32_t k = 1; k <= n; k++) {
        tensor_fixture coarse;
        dtp_coarser_steps steps;
        dtp_coarser_mesh c;
        char mesh[DTP_MESH_TEXT_BYTES];
        tensor_case there = *of;
        dtp_coarser_mesh_make(&fine.pricer, k, &c);
        dtp_mesh_print(&c.mesh, mesh);
        there.mesh = mesh;
        tensor_fixture_create(&there, &coarse);
        dtp_coarser_steps_init(&steps, &c, coarse.redistributor, fine.redistributor);
        dtp_tensor_problem *p = tensor_fixture_problem(&coarse, NULL);
        int32_t *selection = calloc((size_t)p->n_variables + 1, sizeof *selection);
        assert_non_null(selection);
        for (int32_t i = 0; i < n_random; i++) {
            dtp_sharding s;
            dtp_arena *arena = dtp_arena_create();
            assert_non_null(arena);
            if (tensor_random_selection(p, &seed, selection) && quarter_has(i, n_random)) {
                assert_int_equal(dtp_tensor_sharding(p, selection, arena, &s, NULL), DTP_OK);
                compare(&fine, &coarse, &steps, &s, runs);
            }
            dtp_arena_destroy(arena);
        }
        free(selection);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&coarse);
    }
    tensor_fixture_destroy(&fine);
}

static void test_coarser_mesh__programs_take_as_long(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2;y:4", "x:4;y:2", "x:2;y:2;z:2"};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        check_case(&(tensor_case){.model = "gpt2_small.json",
                                  .mesh = meshes[i],
                                  .dims = "batch=16 layers=2",
                                  .machine = "h100_64.json",
                                  .precision = "bf16",
                                  .microbatches = i == 0 ? 2 : 1,
                                  .target = &dtp_target_cuda},
                   20, false);
    }
    check_case(&(tensor_case){.model = "mixtral_8x7b.json",
                              .mesh = "x:2;y:4",
                              .dims = "batch=8 length=1024 layers=2",
                              .machine = "h100_64.json",
                              .target = &dtp_target_cuda},
               20, false);
}

static void test_coarser_mesh__programs_compute_the_same(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2;y:2", "x:2;y:2", "x:2;y:2;z:2"};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        check_case(&(tensor_case){.model = i == 0 ? TENSOR_MLP : TENSOR_GPT,
                                  .mesh = meshes[i],
                                  .dims = i == 0 ? TENSOR_MLP_DIMS : TENSOR_GPT_DIMS,
                                  .machine = FLAT,
                                  .target = i == 2 ? &dtp_target_cpu_packed : &dtp_target_cpu},
                   i == 0 ? 20 : 8, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coarser_mesh__layouts_have_the_same_shards),
        cmocka_unit_test(test_coarser_mesh__programs_take_as_long),
        cmocka_unit_test(test_coarser_mesh__programs_compute_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
