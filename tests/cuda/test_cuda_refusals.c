/* Products whose epilogues the library refuses, by any status, when an algorithm is looked for, or
 * when it runs, or at addresses that are not aligned: they are computed apart with the same
 * results, and the kernel says why. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_emu.h"
#include "executor/run/devices.h"
#include "executor/ref/ref.h"
#include "tests/cuda/product_cases.h"

enum { RUNS = 3, SEEDS = 40, ALL_KINDS = 7 };
static const int64_t SHIFTS[RUNS] = {0, 1, 0};

static dtp_backend *cuda, *ref;

static int make_backends(void **state)
{
    (void)state;
    assert_int_equal(dtp_backend_create("cuda", 1, &cuda, NULL), DTP_OK);
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
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

static int refuse_nothing(void **state)
{
    (void)state;
    cuda_emu_refuse(0, 0);
    cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 0);
    return 0;
}

/* Whether what ran since `before` are launches of the library alone, as many as do all. */
static bool ran_as_one(int32_t launches, const struct cuda_emu_counters *before)
{
    const struct cuda_emu_counters now = cuda_emu_count();
    const uint64_t kernels = now.kernels - before->kernels, n = now.products - before->products;
    return launches > 0 && kernels == 0 && n == (uint64_t)launches;
}

/* Runs a case at aligned addresses, at others and at aligned ones again. A kernel says why it runs
 * apart once it does, and else nothing. */
static void run_case(const product_case *c, dtp_dtype dtype, bool as_one[RUNS])
{
    static double want[PRODUCT_MOST], got[PRODUCT_MOST];
    bool apart = false;
    product_placed p;
    dtp_err err;
    product_run_once(&c->c, dtype, ref, 0, want);
    if (product_place(&p, &c->c, dtype, cuda, &err) != DTP_OK) {
        fail_msg("%s of %s: %s", c->c.op, dtp_dtype_name(dtype), err.msg);
    }
    for (int32_t r = 0; r < RUNS; r++) {
        const struct cuda_emu_counters before = cuda_emu_count();
        if (product_run(&p, SHIFTS[r], got, &err) != DTP_OK) {
            fail_msg("%s of %s, run %d: %s", c->c.op, dtp_dtype_name(dtype), r, err.msg);
        }
        product_check(&c->c, dtype, want, got);
        as_one[r] = ran_as_one(product_launches(c, dtype, SHIFTS[r]), &before);
        apart = apart || !as_one[r];
        const char *why = dtp_bound_kernel_why_apart(&p.kernel);
        assert_non_null(why);
        if ((why[0] != '\0') != apart) {
            fail_msg("%s of %s, run %d: '%s' where it %s", c->c.op, dtp_dtype_name(dtype), r, why,
                     apart ? "ran apart" : "ran as one");
        }
    }
    product_drop(&p);
}

/* Every case, with what runs as one where `aligned` or `others` can. */
static void run_all(unsigned kinds, bool aligned, bool others)
{
    for (int32_t i = 0; i < product_case_count * PRODUCT_DTYPES; i++) {
        const product_case *c = &PRODUCT_CASES[i / PRODUCT_DTYPES];
        const dtp_dtype dtype = PRODUCT_FLOATS[i % PRODUCT_DTYPES];
        bool as_one[RUNS];
        cuda_emu_refuse(kinds, 0);
        run_case(c, dtype, as_one);
        for (int32_t r = 0; r < RUNS; r++) {
            const bool can = SHIFTS[r] == 0 ? aligned : others;
            if (as_one[r] != (can && product_launches(c, dtype, SHIFTS[r]) > 0)) {
                fail_msg("case %d of %s, run %d: %s", i / PRODUCT_DTYPES, dtp_dtype_name(dtype), r,
                         as_one[r] ? "as one" : "apart");
            }
        }
    }
}

static void test_refusals__none(void **state)
{
    (void)state;
    run_all(0, true, true);
}

static void test_refusals__of_epilogues_whatever_the_status(void **state)
{
    (void)state;
    run_all(CUDA_EMU_REFUSE_EPILOGUES, false, false);
}

static void test_refusals__of_products_that_are_to_run(void **state)
{
    (void)state;
    run_all(CUDA_EMU_REFUSE_RUNS, false, false);
}

static void test_refusals__at_other_addresses_leave_aligned_ones(void **state)
{
    (void)state;
    run_all(CUDA_EMU_REFUSE_UNALIGNED, true, false);
}

static void test_refusals__by_a_switch(void **state)
{
    (void)state;
    const dtp_device_options options = {.switches = "no_epilogues"};
    const dtp_device *device = NULL;
    dtp_backend *usual = cuda;
    assert_int_equal(dtp_device_find("cuda", &device, NULL), DTP_OK);
    assert_int_equal(device->create(&options, &cuda, NULL), DTP_OK);
    run_all(0, false, false);
    dtp_backend_destroy(cuda);
    cuda = usual;
}

static void test_refusals__drawn_by_seed(void **state)
{
    uint64_t refused = 0, as_one = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        for (int32_t i = 0; i < product_case_count; i++) {
            const dtp_dtype dtype = PRODUCT_FLOATS[(seed + (uint64_t)i) % PRODUCT_DTYPES];
            bool one[RUNS];
            const uint64_t before = cuda_emu_count().refusals;
            cuda_emu_refuse(1 + (unsigned)(seed % ALL_KINDS), seed);
            run_case(&PRODUCT_CASES[i], dtype, one);
            refused += cuda_emu_count().refusals - before;
            as_one += one[0] && one[1] && one[2];
        }
    }
    print_message("%d refusals, %d cases as one\n", (int)refused, (int)as_one);
    assert_true(refused > SEEDS && as_one > SEEDS);
}

/* The product alone is refused as well: at once, or when its epilogue is refused in a run. */
static void test_refusals__of_both_say_both(void **state)
{
    static double got[PRODUCT_MOST];
    static const char algorithm[] = "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED";
    (void)state;
    for (int32_t late = 0; late < 2; late++) {
        product_placed p;
        dtp_err err = {0};
        cuda_emu_refuse(late == 0 ? CUDA_EMU_REFUSE_EPILOGUES : 0, 0);
        cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 2);
        dtp_status s = product_place(&p, &PRODUCT_CASES[0].c, DTP_BF16, cuda, &err);
        if (late == 1) {
            assert_int_equal(s, DTP_OK);
            cuda_emu_refuse(CUDA_EMU_REFUSE_RUNS, 0);
            s = product_run(&p, 0, got, &err);
        }
        product_drop(&p);
        assert_true(late == 0 ? s == DTP_UNSUPPORTED : s != DTP_OK);
        const char *apart = strstr(err.msg, algorithm), *one = strstr(err.msg, "as one: ");
        if (apart == NULL || one == NULL || one < apart || strlen(one) < 20) {
            fail_msg("'%s'", err.msg);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(test_refusals__##name, refuse_nothing)
    const struct CMUnitTest tests[] = {
        TEST(none),
        TEST(of_epilogues_whatever_the_status),
        TEST(of_products_that_are_to_run),
        TEST(at_other_addresses_leave_aligned_ones),
        TEST(by_a_switch),
        TEST(drawn_by_seed),
        TEST(of_both_say_both),
    };
    return cmocka_run_group_tests(tests, make_backends, drop_backends);
}
