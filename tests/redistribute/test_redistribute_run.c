/* Redistributions through everything that runs them: plan, program, its checker, runner and the sim
 * communicator, for random meshes, shapes, types, reductions and planners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/torch_cost.h"
#include "core/graph/ops/op_table.h"
#include "executor/verify/redistribute_check.h"
#include "spmd/program/program_check.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "spmd/redistribute/steps.h"
#include "tests/support/layout_list.h"
#include "tests/support/spmd_sim.h"
#include "interop/layout_forms.h"

enum { RUNS = 1500 };

typedef struct sample {
    dtp_graph *graph;
    dtp_mesh mesh;
    dtp_ttype type;
    dtp_layout from, to;
} sample;

static uint64_t below(uint64_t *seed, uint64_t n)
{
    return spmd_sim_random(seed) % n;
}

/* Sum and avg may share a layout: some of the summed mesh dims become averaged, alike in both. */
static void mix_averages(sample *s, uint64_t *seed)
{
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        dtp_placement *a = &s->from.placement[m], *b = &s->to.placement[m];
        bool average = below(seed, 2) == 0;
        if (average && a->kind == DTP_PARTIAL && a->op == DTP_REDUCE_SUM) {
            a->op = DTP_REDUCE_AVG;
        }
        if (average && b->kind == DTP_PARTIAL && b->op == DTP_REDUCE_SUM) {
            b->op = DTP_REDUCE_AVG;
        }
    }
}

static bool has_plan(const sample *s)
{
    for (int32_t m = 0; m < s->mesh.n_dims; m++) {
        const dtp_placement *a = &s->from.placement[m], *b = &s->to.placement[m];
        if (b->kind == DTP_PARTIAL &&
            (a->kind == DTP_SHARD || (b->op == DTP_REDUCE_PROD && a->kind == DTP_REPLICATE))) {
            return false;
        }
    }
    return true;
}

static sample draw(uint64_t *seed)
{
    static const char *const meshes[] = {"x:4",         "x:2;y:2",     "x:2;y:3",
                                         "x:2;y:2;z:2", "x:3;y:1;z:2", "x:5"};
    static const char *const names[] = {"a", "b", "c"};
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16};
    static const dtp_dtype types[] = {DTP_F32, DTP_F64, DTP_BF16, DTP_F16,
                                      DTP_I32, DTP_I64, DTP_BOOL};
    sample s = {.type = {.dtype = types[below(seed, 7)]}};
    dtp_reduce_op op = (dtp_reduce_op)below(seed, DTP_N_REDUCE_OPS);
    if (op == DTP_REDUCE_AVG && !dtp_dtype_is_float(s.type.dtype)) {
        op = DTP_REDUCE_SUM;
    }
    if (s.type.dtype == DTP_BOOL && op < DTP_REDUCE_MIN) {
        op = DTP_REDUCE_MAX;
    }
    assert_int_equal(dtp_mesh_parse(meshes[below(seed, 6)], &s.mesh, NULL), DTP_OK);
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &s.graph, NULL), DTP_OK);
    s.type.rank = 1 + (int32_t)below(seed, 3);
    for (int32_t i = 0; i < s.type.rank; i++) {
        s.type.dims[i].size = sizes[below(seed, 11)];
        assert_int_equal(dtp_dims_intern(&s.graph->dims, names[i], s.type.dims[i].size,
                                         &s.type.dims[i].id, NULL),
                         DTP_OK);
    }
    layout_list list = layout_list_all(s.type.rank, s.mesh.n_dims, true, op);
    do {
        s.from = list.items[below(seed, (uint64_t)list.n)];
        s.to = list.items[below(seed, (uint64_t)list.n)];
    } while (!has_plan(&s));
    if (dtp_dtype_is_float(s.type.dtype)) {
        mix_averages(&s, seed);
    }
    layout_list_free(&list);
    return s;
}

static void run(const sample *s, const dtp_redistributor *r, uint64_t seed)
{
    dtp_steps steps = {0};
    dtp_redistribute_job job = {0};
    dtp_redistribute_verdict v = {0};
    dtp_err err = {0};
    const dtp_target *target = seed % 3 == 0 ? &dtp_target_cpu : &dtp_target_cpu_packed;
    if (dtp_redistribute_by(r, &s->mesh, &s->type, &s->from, &s->to, &steps, &err) != DTP_OK ||
        dtp_redistribute_program(s->graph, &s->mesh, target, &s->type, &s->from, &steps, &job,
                                 &err) != DTP_OK ||
        dtp_program_check(job.program, &err) != DTP_OK ||
        dtp_redistribute_check(&job, seed % 2 == 0 ? "cpu" : "ref", seed, &v, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    if (v.wrong > 0) {
        dtp_strbuf trace = {0};
        dtp_steps_trace(&s->from, &steps, &trace);
        fail_msg("seed %llu, %s, sizes %lld...: %s: %lld of %lld elements wrong",
                 (unsigned long long)seed, dtp_dtype_name(s->type.dtype),
                 (long long)s->type.dims[0].size, dtp_strbuf_text(&trace), (long long)v.wrong,
                 (long long)v.checked);
    }
    assert_true(v.checked >= dtp_ttype_elems(&s->type));
    dtp_redistribute_job_free(&job);
}

static void test_redistribute_run__random_pairs_on_the_real_executor(void **state)
{
    (void)state;
    uint64_t seed = 31;
    dtp_redistribute_cache *cache;
    dtp_torch_planner greedy = {.options = {.price = dtp_torch_step_price}};
    dtp_torch_planner searched = {.options = {.min_cost = true, .price = dtp_torch_step_price}};
    dtp_redistributor torch[] = {dtp_torch_redistributor(&greedy),
                                 dtp_torch_redistributor(&searched)};
    assert_int_equal(dtp_redistribute_cache_create(dtp_redistributor_generic(), 0, &cache, NULL),
                     DTP_OK);
    for (int32_t k = 0; k < RUNS; k++) {
        uint64_t of_sample = spmd_sim_random(&seed);
        uint64_t at = of_sample;
        sample s = draw(&at);
        run(&s, k % 3 == 0 ? dtp_redistribute_cache_planner(cache) : &torch[k % 2], of_sample);
        dtp_graph_destroy(s.graph);
    }
    dtp_redistribute_cache_destroy(cache);
}

/* A result that is taken for another layout of the same local shape is found out. */
static void test_redistribute_check__sees_wrong_pieces(void **state)
{
    (void)state;
    static const char *const wrong[] = {"S0.1,S0", "S0,S0"};
    static const char *const right[] = {"S0,S0", "S0.1,S0"};
    for (int32_t k = 0; k < 2; k++) {
        sample s = {.type = {.dtype = DTP_F32, .rank = 1, .dims = {{.id = 0, .size = 8}}}};
        dtp_steps steps;
        dtp_redistribute_job job = {0};
        dtp_redistribute_verdict v = {0};
        assert_int_equal(dtp_mesh_parse("x:2;y:2", &s.mesh, NULL), DTP_OK);
        assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &s.graph, NULL), DTP_OK);
        assert_int_equal(dtp_dims_intern(&s.graph->dims, "a", 8, &s.type.dims[0].id, NULL), DTP_OK);
        assert_int_equal(
            dtp_layout_parse_any("P,P", &s.mesh, &s.type, &s.graph->dims, &s.from, NULL), DTP_OK);
        assert_int_equal(
            dtp_layout_parse_any(right[k], &s.mesh, &s.type, &s.graph->dims, &s.to, NULL), DTP_OK);
        assert_int_equal(dtp_redistribute_plan(&s.mesh, &s.type, &s.from, &s.to,
                                               dtp_step_generic_price, NULL, &steps, NULL),
                         DTP_OK);
        assert_int_equal(dtp_redistribute_program(s.graph, &s.mesh, &dtp_target_cpu, &s.type,
                                                  &s.from, &steps, &job, NULL),
                         DTP_OK);
        assert_int_equal(dtp_redistribute_check(&job, "cpu", 9, &v, NULL), DTP_OK);
        assert_int_equal(v.wrong, 0);
        assert_int_equal(v.index, -1);
        assert_int_equal(dtp_layout_parse_any(wrong[k], &s.mesh, &s.type, &s.graph->dims,
                                              &job.program->values[job.result].layout, NULL),
                         DTP_OK);
        assert_int_equal(dtp_redistribute_check(&job, "cpu", 9, &v, NULL), DTP_OK);
        assert_int_equal(v.wrong, 4); /* ranks 1 and 2 have each other's pieces */
        assert_int_equal(v.rank, 1);
        assert_true(v.index >= 0 && v.got != v.want);
        dtp_redistribute_job_free(&job);
        dtp_graph_destroy(s.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute_run__random_pairs_on_the_real_executor),
        cmocka_unit_test(test_redistribute_check__sees_wrong_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
