/* Kernels over rows on a CUDA device, the emulated one or a card, in shapes that take each way
 * through them: a thread, a warp, a block and a large block per row; groups of elements and single
 * ones; elements of a row side by side and apart; rows in parts. In f32 and bf16 against the
 * reference backend in f64. Usage: test_cuda_rows [seed]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "executor/ref/ref.h"
#include "tests/cuda/device_controls.h"
#include "tests/ops/against_ref.h"
#include "tests/support/quarter.h"

/* The ops that take rows of any length: x has the dims X; its rows are over c, of the dims C, and
 * the others are R. */
#define ROWS(X, R, C)                                                                              \
    {.op = "reduce", .in = {X}, .attrs = "kind=sum; over=c"},                                      \
        {.op = "reduce", .in = {X}, .attrs = "kind=max; over=c"},                                  \
        {.op = "reduce", .in = {X " ids:9"}, .attrs = "kind=sum; over=c"},                         \
        {.op = "any", .in = {X " bool"}, .attrs = "over=c"},                                       \
        {.op = "logsumexp", .in = {X}, .attrs = "over=c"},                                         \
        {.op = "norm", .in = {X}, .attrs = "over=c; ord=2"},                                       \
        {.op = "norm", .in = {X}, .attrs = "over=c; ord=inf"},                                     \
        {.op = "std", .in = {X}, .attrs = "over=c"},                                               \
        {.op = "cumsum", .in = {X}, .attrs = "dim=c"},                                             \
        {.op = "cumsum", .in = {X}, .attrs = "dim=c; reverse=1"},                                  \
        {.op = "cumsum", .in = {X " ids:9"}, .attrs = "dim=c; reverse=1"},                         \
        {.op = "argmax", .in = {X}, .attrs = "over=c"},                                            \
        {.op = "argmin", .in = {X}, .attrs = "over=c; dtype=i64"},                                 \
        {.op = "topk", .in = {X}, .attrs = "over=c; k=5"},                                         \
        {.op = "topk", .in = {X}, .attrs = "over=c; k=3; largest=0"},                              \
        {.op = "softmax", .in = {X}, .attrs = "over=c"},                                           \
        {.op = "log_softmax", .in = {X}, .attrs = "over=c"},                                       \
        {.op = "softmax_grad", .in = {X, X}, .attrs = "over=c"},                                   \
        {.op = "log_softmax_grad", .in = {X, X}, .attrs = "over=c"},                               \
        {.op = "row_dot", .in = {X, X}, .attrs = "over=c"},                                        \
        {.op = "layer_norm", .in = {X, C, C}, .attrs = "over=c"},                                  \
        {.op = "rms_norm", .in = {X, C}, .attrs = "over=c"},                                       \
        {.op = "layer_norm_grad", .in = {X, C, R, R " pos", X}, .attrs = "over=c"},                \
        {.op = "rms_norm_grad", .in = {X, C, R " pos", X}, .attrs = "over=c"},                     \
        {.op = "moments", .in = {X, R}, .attrs = "over=c"},                                        \
    {                                                                                              \
        .op = "layer_norm_grad_sums", .in = {X, C, R, R " pos", X}, .attrs = "over=c"              \
    }

static const dtp_op_case CASES[] = {
    ROWS("r=3,c=64", "r=3", "c=64"),           /* warp, groups */
    ROWS("r=40,c=7", "r=40", "c=7"),           /* thread */
    ROWS("r=3,c=33", "r=3", "c=33"),           /* warp, single elements */
    ROWS("r=2,c=520", "r=2", "c=520"),         /* block, groups */
    ROWS("r=1,c=1001", "r=1", "c=1001"),       /* block, single elements */
    ROWS("r=1,c=16392", "r=1", "c=16392"),     /* large block */
    ROWS("q=3,c=20,r=5", "q=3,r=5", "c=20"),   /* thread, apart */
    ROWS("q=1,c=300,r=3", "q=1,r=3", "c=300"), /* block, apart */
    ROWS("c=260,r=12", "r=12", "c=260"),       /* rows apart in parts; few columns */
    {.op = "reduce", .in = {"r=5,c=4100"}, .attrs = "kind=mean; over=r,c"}, /* parts of a row */
    {.op = "reduce", .in = {"r=5,c=4100 ids:9"}, .attrs = "kind=max; over=r,c"},
    {.op = "reduce", .in = {"r=3,c=6,q=1500"}, .attrs = "kind=min; over=r,q"},
    {.op = "norm", .in = {"r=5,c=4096"}, .attrs = "over=r,c; ord=1"},
    {.op = "any", .in = {"r=5,c=4096 bool"}, .attrs = "over=r,c"},
    {.op = "rms_norm_grad",
     .in = {"r=264,c=1040", "c=1040", "r=264 pos", "r=264,c=1040"},
     .attrs = "over=c"}, /* a thread for a part of a column */
    {.op = "prod_grad", .in = {"r=2,c=40 pos", "r=2"}, .attrs = "over=c"},
    {.op = "prod_grad", .in = {"r=2,c=39 pos", "r=2"}, .attrs = "over=c"},
    {.op = "prod_grad", .in = {"r=1,c=264 pos", "r=1"}, .attrs = "over=c"},
};

static dtp_backend *cuda, *ref;

static int make_backends(void **state)
{
    dtp_err err;
    (void)state;
    if (dtp_backend_create("cuda", 1, &cuda, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
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

/* Every `each`-th case: another one of every shape. */
static void check_dtype(dtp_dtype dtype, size_t each)
{
    const int32_t before = against_ref_failures();
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i += each) {
        if (quarter_has((int64_t)i, sizeof CASES / sizeof CASES[0])) {
            against_ref_case(&CASES[i], dtype, cuda, ref);
        }
    }
    against_ref_judge(before);
}

static void test_cuda_rows__equal_ref_in_f32(void **state)
{
    (void)state;
    check_dtype(DTP_F32, 1);
}

static void test_cuda_rows__equal_ref_in_bf16(void **state)
{
    (void)state;
    check_dtype(DTP_BF16, 3);
}

static void test_cuda_rows__run_in_place(void **state)
{
    const int32_t before = against_ref_failures();
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i += 3) {
        const bool has = quarter_has((int64_t)i, sizeof CASES / sizeof CASES[0]);
        for (int32_t o = 0; has && o < dtp_op_find(CASES[i].op)->n_out; o++) {
            against_ref_in_place(&CASES[i], DTP_F32, cuda, o);
        }
    }
    against_ref_judge(before);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_rows__equal_ref_in_f32),
        cmocka_unit_test(test_cuda_rows__equal_ref_in_bf16),
        cmocka_unit_test(test_cuda_rows__run_in_place),
    };
    if (argc > 1) {
        against_ref_seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)against_ref_seed);
    const int skipped = skip_without_card();
    if (skipped != 0) {
        return skipped;
    }
    against_ref_go_on();
    const int failed = cmocka_run_group_tests(tests, make_backends, drop_backends);
    against_ref_list();
    return failed;
}
