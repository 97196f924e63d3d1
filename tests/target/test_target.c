/* Targets by name, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/target/target.h"

static void test_target__found_by_name_and_listed_when_unknown(void **state)
{
    (void)state;
    int32_t n = 0;
    for (; dtp_target_at(n) != NULL; n++) {
        const dtp_target *found = NULL;
        assert_int_equal(dtp_target_find(dtp_target_at(n)->name, &found, NULL), DTP_OK);
        assert_ptr_equal(found, dtp_target_at(n));
    }
    assert_int_equal(n, 9);
    const dtp_target *none = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_target_find("gpu", &none, &err), DTP_INVALID);
    assert_string_equal(err.msg,
                        "there is no target 'gpu'; targets are cpu, cpu_packed, ref, cuda, torch, "
                        "torch_compile, megatron, megatron_overlap, nanotron");
    assert_null(none);
}

static void test_target__runs_on_its_backends_alone(void **state)
{
    (void)state;
    dtp_err err = {0};
    assert_int_equal(dtp_target_runs_on(&dtp_target_cpu_packed, "cpu", &err), DTP_OK);
    assert_int_equal(dtp_target_runs_on(&dtp_target_cpu_packed, "ref", &err), DTP_OK);
    assert_int_equal(dtp_target_runs_on(&dtp_target_ref, "cpu", &err), DTP_INVALID);
    assert_string_equal(err.msg, "the program is for target 'ref', which runs on backend ref, not "
                                 "on 'cpu'");
    assert_int_equal(dtp_target_runs_on(&dtp_target_cpu, "cuda", &err), DTP_INVALID);
    assert_string_equal(err.msg, "the program is for target 'cpu', which runs on backend cpu, ref, "
                                 "not on 'cuda'");
}

/* A product of two matrices in a dtype. */
/* What PyTorch runs is refused in words that say what to do. */
static void test_target__of_a_framework_runs_on_no_backend(void **state)
{
    (void)state;
    dtp_err err = {0};
    static const char *const backends[] = {"cpu", "ref", "cuda"};
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        assert_int_equal(dtp_target_runs_on(&dtp_target_torch, backends[i], &err), DTP_INVALID);
        assert_true(dtp_target_of_backend(backends[i]) != &dtp_target_torch);
    }
    assert_string_equal(err.msg, "the program is for target 'torch', which PyTorch runs, not "
                                 "backend 'cuda'; plan for the target of a backend to run it here");
}

static dtp_graph *product(dtp_dtype dtype)
{
    dtp_graph *g = NULL;
    dtp_dim_id dims[3];
    dtp_tensor_id in[2];
    static const char *const names[] = {"m", "k", "n"};
    assert_int_equal(dtp_graph_create("product", dtp_builtin_ops(), &g, NULL), DTP_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(dtp_dims_intern(&g->dims, names[i], 8, &dims[i], NULL), DTP_OK);
    }
    for (int32_t i = 0; i < 2; i++) {
        const dtp_graph_tensor t = {
            .name = i == 0 ? "a" : "b",
            .kind = DTP_TENSOR_INPUT,
            .type = {.dtype = dtype, .rank = 2, .dims = {{dims[i], 8}, {dims[i + 1], 8}}}};
        assert_int_equal(dtp_graph_add_tensor(g, &t, &in[i], NULL), DTP_OK);
    }
    const dtp_ttype out = {.dtype = dtype, .rank = 2, .dims = {{dims[0], 8}, {dims[2], 8}}};
    const dtp_node_spec spec = {
        .name = "c", .op = "einsum", .n_in = 2, .in = in, .out = &out, .origin = -1};
    dtp_tensor_id result;
    assert_int_equal(dtp_graph_add_node(g, &spec, &result, NULL), DTP_OK);
    return g;
}

static void test_target__refuses_dtypes_without_kernels(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *f32 = product(DTP_F32), *f64 = product(DTP_F64);
    for (int32_t i = 0; dtp_target_at(i) != NULL; i++) {
        assert_int_equal(dtp_target_takes_graph(dtp_target_at(i), f32, &err), DTP_OK);
    }
    assert_int_equal(dtp_target_takes_graph(&dtp_target_ref, f64, &err), DTP_OK);
    assert_int_equal(dtp_target_takes_graph(&dtp_target_cpu, f64, &err), DTP_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "node 'c': target 'cpu' has no kernel of 'einsum' for f64, only for f32, "
                        "bf16, f16");
    dtp_graph_destroy(f32);
    dtp_graph_destroy(f64);
}

static void test_target__has_tf32_or_refuses_it(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *g = product(DTP_F32);
    g->tf32 = true;
    assert_int_equal(dtp_target_takes_graph(&dtp_target_cuda, g, &err), DTP_OK);
    for (int32_t i = 0; dtp_target_at(i) != NULL; i++) {
        assert_int_equal(dtp_target_takes_graph(dtp_target_at(i), g, &err),
                         dtp_target_at(i)->tf32 ? DTP_OK : DTP_UNSUPPORTED);
    }
    assert_int_equal(dtp_target_takes_precision(&dtp_target_cpu, g, &err), DTP_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "precision 'tf32': target 'cpu' has no such products, only target cuda, "
                        "torch, torch_compile, megatron, megatron_overlap, nanotron");
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target__found_by_name_and_listed_when_unknown),
        cmocka_unit_test(test_target__runs_on_its_backends_alone),
        cmocka_unit_test(test_target__of_a_framework_runs_on_no_backend),
        cmocka_unit_test(test_target__refuses_dtypes_without_kernels),
        cmocka_unit_test(test_target__has_tf32_or_refuses_it),
    };
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
