/* Expressions of products: which of them are the epilogue of the product, and that all have the
 * values of the reference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_emu.h"
#include "executor/bench/measure.h"
#include "executor/comm/communicator.h"
#include "executor/ref/ref.h"
#include "tests/cuda/product_cases.h"
#include "tests/ops/against_ref.h"

enum { N_FLOATS = PRODUCT_DTYPES };

static dtp_backend *cuda, *ref;
static int64_t alone; /* kernels beside a product without an expression: what sets the step */

static int make_backends(void **state)
{
    static const dtp_op_case product = {
        .op = "einsum", .in = {"a=6,b=5", "b=5,c=8"}, .out = "a=6,c=8"};
    (void)state;
    assert_int_equal(dtp_backend_create("cuda", 1, &cuda, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    const uint64_t before = cuda_emu_count().kernels;
    against_ref_case(&product, DTP_F32, cuda, ref);
    alone = (int64_t)(cuda_emu_count().kernels - before);
    return 0;
}

static int drop_backends(void **state)
{
    (void)state;
    assert_int_equal(cuda->allocated_bytes, 0);
    dtp_backend_destroy(cuda);
    dtp_backend_destroy(ref);
    return 0;
}

/* What ran since `before`; kernels beside it are none of its own. */
static void check_launches(int32_t i, dtp_dtype dtype, int32_t products,
                           const struct cuda_emu_counters *before, int64_t beside)
{
    const struct cuda_emu_counters now = cuda_emu_count();
    const int64_t kernels = (int64_t)(now.kernels - before->kernels) - beside,
                  n = (int64_t)(now.products - before->products);
    if (products > 0 ? kernels != 0 || n != products : kernels == 0 || n == 0) {
        fail_msg("case %d of %s: %lld products and %lld kernels", i, dtp_dtype_name(dtype),
                 (long long)n, (long long)kernels);
    }
}

static void test_products__have_epilogues(void **state)
{
    (void)state;
    for (int32_t i = 0; i < product_case_count * N_FLOATS; i++) {
        const struct cuda_emu_counters before = cuda_emu_count();
        against_ref_case(&PRODUCT_CASES[i / N_FLOATS].c, PRODUCT_FLOATS[i % N_FLOATS], cuda, ref);
        check_launches(
            i / N_FLOATS, PRODUCT_FLOATS[i % N_FLOATS],
            product_launches(&PRODUCT_CASES[i / N_FLOATS], PRODUCT_FLOATS[i % N_FLOATS], 0),
            &before, alone);
    }
}

/* Without an algorithm for the epilogue, or for the product alone. */
static void test_products__run_apart_without_an_algorithm(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * product_case_count; i++) {
        const struct cuda_emu_counters before = cuda_emu_count();
        const product_case *c = &PRODUCT_CASES[i / 2];
        const dtp_dtype dtype = PRODUCT_FLOATS[i / 2 % N_FLOATS];
        const int32_t launches = product_launches(c, dtype, 0);
        if (launches > 0) {
            cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 1 + (uint64_t)i % 2);
            against_ref_case(&c->c, dtype, cuda, ref);
            cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 0);
            check_launches(i / 2, dtype, i % 2 == 0 ? 0 : launches, &before, alone);
        }
    }
}

static void test_products__need_no_alignment(void **state)
{
    static double want[PRODUCT_MOST], got[PRODUCT_MOST];
    (void)state;
    for (int32_t i = 0; i < product_case_count * N_FLOATS; i++) {
        const product_case *c = &PRODUCT_CASES[i / N_FLOATS];
        product_run_once(&c->c, PRODUCT_FLOATS[i % N_FLOATS], ref, 0, want);
        const struct cuda_emu_counters before = cuda_emu_count();
        product_run_once(&c->c, PRODUCT_FLOATS[i % N_FLOATS], cuda, 1, got);
        check_launches(i / N_FLOATS, PRODUCT_FLOATS[i % N_FLOATS],
                       product_launches(c, PRODUCT_FLOATS[i % N_FLOATS], 1), &before, 0);
        product_check(&c->c, PRODUCT_FLOATS[i % N_FLOATS], want, got);
    }
}

/* Fused products bound with tf32 are other than those in f32, within the rounding of two operands;
 * those of 16 bits stay. */
static void test_products__round_to_tf32(void **state)
{
    static double f32[PRODUCT_MOST], tf32[PRODUCT_MOST];
    (void)state;
    for (int32_t i = 0; i < product_case_count * 2; i++) {
        const dtp_dtype dtype = PRODUCT_FLOATS[i % 2];
        product_run_once(&PRODUCT_CASES[i / 2].c, dtype, cuda, 0, f32);
        cuda->tf32 = true;
        product_run_once(&PRODUCT_CASES[i / 2].c, dtype, cuda, 0, tf32);
        cuda->tf32 = false;
        double most = 0.0, off = 0.0;
        for (int32_t k = 0; !isnan(f32[k]); k++) {
            most = fmax(most, fabs(f32[k]));
            off = fmax(off, fabs(f32[k] - tf32[k]));
        }
        if (!(off <= 0x1p-9 * most) || (off > 0.0) != (dtype == DTP_F32)) {
            fail_msg("case %d of %s: off by %g of %g", i / 2, dtp_dtype_name(dtype), off, most);
        }
    }
}

/* The bench measures products in tf32 as it does those of 16 bits. */
static void test_products__are_measured_in_tf32(void **state)
{
    enum { POOL_BYTES = 1 << 20 };
    (void)state;
    static const dtp_bench_scale small = {
        .gemm = {1, {16}}, .gemm_halves = {2, {16, 32}}, .gemm_volume = 1 << 20};
    dtp_samples samples = {0};
    dtp_err err = {0};
    int32_t products[DTP_N_ARITHMETICS] = {0};
    dtp_bench b = {.backend = cuda,
                   .target = &dtp_target_cuda,
                   .scale = &small,
                   .sample_s = 1e-6,
                   .samples = &samples};
    assert_int_equal(dtp_comm_self_create(&b.comm, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_N_BENCH_POOLS; i++) {
        b.pools[i].bytes = POOL_BYTES;
        assert_int_equal(cuda->ops->alloc(cuda, POOL_BYTES, &b.pools[i].data, NULL), DTP_OK);
    }
    for (int32_t i = 0; i < DTP_N_BENCH_EVENTS; i++) {
        assert_int_equal(cuda->ops->queue->event_create(cuda, &b.events[i], NULL), DTP_OK);
    }
    if (dtp_bench_gemms(&b, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < samples.n; i++) {
        products[samples.items[i].arithmetic]++;
    }
    assert_int_equal(products[DTP_F32], 3);
    assert_int_equal(products[DTP_BF16], 24);
    assert_int_equal(products[DTP_TF32], 24);
    assert_false(cuda->tf32);
    for (int32_t i = 0; i < DTP_N_BENCH_EVENTS; i++) {
        cuda->ops->queue->event_destroy(cuda, b.events[i]);
    }
    for (int32_t i = 0; i < DTP_N_BENCH_POOLS; i++) {
        cuda->ops->free(cuda, b.pools[i].data, POOL_BYTES);
    }
    dtp_bench_samples_free(&samples);
    dtp_comm_destroy(b.comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products__have_epilogues),
        cmocka_unit_test(test_products__run_apart_without_an_algorithm),
        cmocka_unit_test(test_products__need_no_alignment),
        cmocka_unit_test(test_products__round_to_tf32),
        cmocka_unit_test(test_products__are_measured_in_tf32),
    };
    return cmocka_run_group_tests(tests, make_backends, drop_backends);
}
