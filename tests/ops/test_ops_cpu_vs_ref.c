/* Every op case on the cpu backend in f32, bf16 and f16 against the reference backend in f64 on the
 * same values, and the cpu kernel run in place against itself. A missing kernel is a failure. So is
 * more than one rounding of a 16-bit result, of either backend.
 * Usage: test_cpu_vs_ref [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "tests/ops/against_ref.h"
#include "dtp/device_mesh.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

enum { N_HALVES = 2 };

static const dtp_dtype HALVES[N_HALVES] = {DTP_BF16, DTP_F16};

static void run_all(int32_t threads)
{
    dtp_backend *cpu = NULL, *ref = NULL;
    assert_int_equal(dtp_backend_cpu_create(threads, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        against_ref_case(&DTP_OP_CASES[i], DTP_F32, cpu, ref);
        for (int32_t k = 0; k < N_HALVES; k++) {
            against_ref_case(&DTP_OP_CASES[i], HALVES[k], cpu, ref);
            against_ref_case(&DTP_OP_CASES[i], HALVES[k], ref, ref);
        }
    }
    assert_int_equal(cpu->allocated_bytes, 0);
    assert_int_equal(ref->allocated_bytes, 0);
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

static void test_cpu__equals_ref_on_one_thread(void **state)
{
    (void)state;
    run_all(1);
}

static void test_cpu__equals_ref_on_two_threads(void **state)
{
    (void)state;
    run_all(2);
}

static void test_cpu__equals_ref_where_it_is_not_finite(void **state)
{
    (void)state;
    dtp_backend *cpu = NULL, *ref = NULL;
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        against_ref_feeds(&DTP_OP_CASES[i], DTP_F32, cpu, ref);
        for (int32_t k = 0; k < N_HALVES; k++) {
            against_ref_feeds(&DTP_OP_CASES[i], HALVES[k], cpu, ref);
        }
    }
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

static void test_kernels__run_in_place(void **state)
{
    (void)state;
    dtp_backend *cpu = NULL, *ref = NULL;
    assert_int_equal(dtp_backend_cpu_create(2, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        int32_t n_out = dtp_op_find(DTP_OP_CASES[i].op)->n_out;
        for (int32_t o = 0; o < n_out; o++) {
            against_ref_in_place(&DTP_OP_CASES[i], DTP_F32, cpu, o);
            against_ref_in_place(&DTP_OP_CASES[i], DTP_BF16, cpu, o);
            against_ref_in_place(&DTP_OP_CASES[i], DTP_F64, ref, o);
        }
    }
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

static void test_kernels__refuse_ids_out_of_range(void **state)
{
    (void)state;
    dtp_backend *cpu = NULL, *ref = NULL;
    assert_int_equal(dtp_backend_cpu_create(1, &cpu, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    against_ref_refuses(ref, DTP_F64);
    against_ref_refuses(cpu, DTP_F32);
    dtp_backend_destroy(cpu);
    dtp_backend_destroy(ref);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu__equals_ref_on_one_thread),
        cmocka_unit_test(test_cpu__equals_ref_on_two_threads),
        cmocka_unit_test(test_cpu__equals_ref_where_it_is_not_finite),
        cmocka_unit_test(test_kernels__run_in_place),
        cmocka_unit_test(test_kernels__refuse_ids_out_of_range),
    };
    if (argc > 1) {
        against_ref_seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)against_ref_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
