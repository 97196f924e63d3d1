/* Every op case on a CUDA device, the emulated one or a card, in f32, bf16 and f16 against the
 * reference backend in f64 on the same values, and the kernel run in place against itself. A
 * missing kernel is a failure. All failures are listed at the end. Of several processes each takes
 * its part of the cases. Usage: test_cuda_ops [part/parts] [seed [op...]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "executor/ref/ref.h"
#include "tests/cuda/device_controls.h"
#include "tests/ops/against_ref.h"

static const dtp_dtype FLOATS[] = {DTP_F32, DTP_BF16, DTP_F16};
enum { N_FLOATS = sizeof FLOATS / sizeof FLOATS[0] };

static int32_t n_wanted;
static char **wanted;
static dtp_backend *cuda, *ref;

static int32_t part = 1, parts = 1, n_met, n_mine; /* this process; all; cases met by it, run */

/* Whether the next case is one of this process. */
static bool is_mine(void)
{
    const bool mine = n_met++ % parts == part - 1;
    n_mine += mine ? 1 : 0;
    return mine;
}

/* Whether every name that is wanted is one of an op with cases. */
static bool are_ops(void)
{
    bool all = true;
    for (int32_t i = 0; i < n_wanted; i++) {
        bool found = false;
        for (int32_t k = 0; k < DTP_OP_CASE_COUNT; k++) {
            found = found || strcmp(wanted[i], DTP_OP_CASES[k].op) == 0;
        }
        if (!found) {
            (void)fprintf(stderr, "FAIL: '%s' is no op with cases\n", wanted[i]);
        }
        all = all && found;
    }
    return all;
}

static bool is_wanted(const char *op)
{
    bool found = n_wanted == 0;
    for (int32_t i = 0; i < n_wanted; i++) {
        found = found || strcmp(wanted[i], op) == 0;
    }
    return found;
}

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
    assert_true(cuda->allocated_bytes == 0 || against_ref_failures() > 0);
    dtp_backend_destroy(cuda);
    dtp_backend_destroy(ref);
    return 0;
}

static void check_cases(int32_t n, const dtp_op_case *cases)
{
    const int32_t before = against_ref_failures();
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < N_FLOATS && is_wanted(cases[i].op); k++) {
            if (is_mine()) {
                against_ref_case(&cases[i], FLOATS[k], cuda, ref);
            }
        }
    }
    against_ref_judge(before);
}

static void test_cuda__equals_ref(void **state)
{
    (void)state;
    check_cases(DTP_OP_CASE_COUNT, DTP_OP_CASES);
}

static void test_cuda__equals_ref_where_it_is_not_finite(void **state)
{
    (void)state;
    const int32_t before = against_ref_failures();
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        for (int32_t k = 0; k < N_FLOATS && is_wanted(DTP_OP_CASES[i].op); k++) {
            if (is_mine()) {
                against_ref_feeds(&DTP_OP_CASES[i], FLOATS[k], cuda, ref);
            }
        }
    }
    against_ref_judge(before);
}

/* Heads as wide as models have them: several tiles, several launches, sizes that fill no tile. */
static const dtp_op_case WIDE[] = {
    {.op = "attention",
     .in = {"s=70,f=130", "s=70,f=130", "s=70,f=130"},
     .attrs = "query=s; feature=f"},
    {.op = "attention",
     .in = {"q=33,f=256", "k=65,f=256", "k=65,v=72"},
     .attrs = "query=q; key=k; feature=f; value=v; causal=0"},
    {.op = "attention",
     .in = {"g=2,q=70,f=24", "k=131,f=24", "k=131,f=24", "k=131,g=2,q=70 mask"},
     .attrs = "query=q; key=k; feature=f; causal=0"},
    {.op = "attention_grad",
     .in = {"g=2,q=70,f=24", "k=131,f=24", "k=131,f=24", "g=2,q=70,f=24", "g=2,q=70 pos",
            "g=2,q=70,f=24", "g=2,q=70,k=131 bool"},
     .attrs = "query=q; key=k; feature=f"},
    {.op = "attention_grad",
     .in = {"s=35,f=136", "s=35,f=136", "s=35,v=256", "s=35,v=256", "s=35 pos", "s=35,v=256"},
     .attrs = "query=s; feature=f; value=v"},
    {.op = "attention_grad",
     .in = {"s=66,f=64", "s=66,f=64", "s=66,v=80", "s=66,v=80", "s=66 pos", "s=66,v=80"},
     .attrs = "query=s; feature=f; value=v"},
    {.op = "einsum", .in = {"b=3,s=9,h=2,m=24", "h=2,m=24,b=3,t=10"}, .out = "b=3,h=2,s=9,t=10"},
};

static void test_cuda__equals_ref_on_wide_heads(void **state)
{
    (void)state;
    check_cases(sizeof WIDE / sizeof WIDE[0], WIDE);
}

static void test_cuda__runs_in_place(void **state)
{
    (void)state;
    const int32_t before = against_ref_failures();
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        const int32_t n_out =
            is_wanted(DTP_OP_CASES[i].op) ? dtp_op_find(DTP_OP_CASES[i].op)->n_out : 0;
        for (int32_t k = 0; k < 2 * n_out; k++) {
            if (is_mine()) {
                against_ref_in_place(&DTP_OP_CASES[i], FLOATS[k % 2], cuda, k / 2);
            }
        }
    }
    against_ref_judge(before);
}

static void test_cuda__refuses_ids_out_of_range(void **state)
{
    (void)state;
    const int32_t before = against_ref_failures();
    if (n_wanted == 0 && is_mine()) {
        against_ref_refuses(cuda, DTP_F32);
    }
    against_ref_judge(before);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda__equals_ref),
        cmocka_unit_test(test_cuda__equals_ref_where_it_is_not_finite),
        cmocka_unit_test(test_cuda__equals_ref_on_wide_heads),
        cmocka_unit_test(test_cuda__runs_in_place),
        cmocka_unit_test(test_cuda__refuses_ids_out_of_range),
    };
    if (argc > 1 && strchr(argv[1], '/') != NULL) {
        part = sscanf(argv[1], "%d/%d", &part, &parts) == 2 ? part : 0;
        if (part < 1 || part > parts) {
            (void)fprintf(stderr, "%s: part %d of %d\n", argv[0], part, parts);
            return 2;
        }
        argc--;
        argv++;
    }
    if (argc > 1) {
        against_ref_seed = strtoull(argv[1], NULL, 10);
    }
    n_wanted = argc > 2 ? argc - 2 : 0;
    wanted = argv + 2;
    printf("seed %llu, part %d of %d\n", (unsigned long long)against_ref_seed, part, parts);
    if (!are_ops()) {
        return 2;
    }
    const int skipped = skip_without_card();
    if (skipped != 0) {
        return skipped;
    }
    against_ref_go_on();
    const int failed = cmocka_run_group_tests(tests, make_backends, drop_backends);
    against_ref_list();
    printf("%d of %d cases\n", n_mine, n_met);
    return failed;
}
