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
#include "executor/device/convert.h"
#include "executor/ref/ref.h"
#include "tests/ops/against_ref.h"
#include "tests/ops/eval.h"

#define BIAS "step0=1000100"
#define GELU "step0=17000000"
#define BIAS_GELU "step0=1000100; step1=17060000"
#define KEPT BIAS_GELU "; also=0"
#define GELU_GRAD "step0=31010000"

static const dtp_dtype FLOATS[] = {DTP_F32, DTP_BF16, DTP_F16};
enum { N_FLOATS = sizeof FLOATS / sizeof FLOATS[0], ROOM = 64 };

/* `products`: launches of the library that do all; 0: they do not. `shifted`: the same of tensors
 * that lie one element behind an aligned address. */
static const struct product_case {
    int32_t products, shifted;
    dtp_op_case c;
} CASES[] = {
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "c=24"},
      .out = "a=6,c=24",
      .attrs = BIAS}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=7", "c=7"},
      .out = "a=6,c=7",
      .attrs = BIAS_GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"b=5,a=6", "c=4,d=8,b=5", "c=4,d=8"},
      .out = "a=6,c=4,d=8",
      .attrs = BIAS}},
    {1,
     1,
     {.op = "fused_product", .in = {"a=6,b=5", "b=5,c=24"}, .out = "a=6,c=24", .attrs = GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "a=6"},
      .out = "c=24,a=6",
      .attrs = BIAS_GELU}},
    {1,
     1,
     {.op = "fused_product",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = BIAS}},
    {2,
     2,
     {.op = "fused_product",
      .in = {"b=3,s=9,h=2,m=24", "h=2,m=24,b=3,t=16", "t=16"},
      .out = "b=3,h=2,s=9,t=16",
      .attrs = BIAS_GELU}},
    {1,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=24", "c=24"},
      .out = "a=6,c=24",
      .attrs = KEPT}},
    {1,
     0,
     {.op = "fused_product2",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = KEPT}},
    {2,
     0,
     {.op = "fused_product2",
      .in = {"b=3,s=9,h=2,m=24", "h=2,m=24,b=3,t=16", "t=16"},
      .out = "b=3,h=2,s=9,t=16",
      .attrs = KEPT}},
    {1,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=24", "a=6,c=24"},
      .out = "a=6,c=24",
      .attrs = GELU_GRAD}},
    {1,
     0,
     {.op = "fused_product_sum",
      .in = {"a=6,b=5", "b=5,c=24", "a=6,c=24"},
      .out = "a=6,c=24",
      .attrs = GELU_GRAD}},
    {1, 1, {.op = "fused_operand_sum", .in = {"a=3,e=2,b=5", "a=3,e=2,c=24"}, .out = "b=5,c=24"}},
    {1, 1, {.op = "fused_operand_sum", .in = {"a=6,b=5", "a=6,c=4,d=3"}, .out = "c=4,d=3,b=5"}},
    /* rows of the kept matrix, a bias of columns, of batches, other functions, a result that is
     * copied into place */
    {0,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=12", "c=12"},
      .out = "a=6,c=12",
      .attrs = KEPT}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=12", "a=6,c=12"},
      .out = "a=6,c=12",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product", .in = {"a=6,b=5", "b=5,c=8", "a=6"}, .out = "a=6,c=8", .attrs = BIAS}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"e=3,a=6,b=5", "e=3,b=5,c=16", "e=3,c=16"},
      .out = "e=3,a=6,c=16",
      .attrs = BIAS}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=6,b=5", "b=5,c=8", "a=6,c=8"},
      .out = "a=6,c=8",
      .attrs = "step0=3000100"}},
    {0,
     0,
     {.op = "fused_product2",
      .in = {"a=6,b=5", "b=5,c=8", "c=8"},
      .out = "a=6,c=8",
      .attrs = BIAS "; step1=18060000; also=0"}},
    {0,
     0,
     {.op = "fused_product",
      .in = {"a=3,d=4,b=5", "b=5,c=6", "d=4"},
      .out = "a=3,c=6,d=4",
      .attrs = BIAS}},
    /* sums in a batch, of a result whose rows are not kept, of an operand that is copied */
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"g=2,a=6,b=5", "g=2,b=5,c=24", "g=2,a=6,c=24"},
      .out = "g=2,a=6,c=24",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"b=5,c=8", "a=6,b=5", "a=6,c=8"},
      .out = "a=6,c=8",
      .attrs = GELU_GRAD}},
    {0,
     0,
     {.op = "fused_product_sum",
      .in = {"a=6,b=5", "b=5,c=8", "c=8"},
      .out = "a=6,c=8",
      .attrs = BIAS}},
    {0, 0, {.op = "fused_operand_sum", .in = {"g=2,a=6,b=5", "g=2,a=6,c=8"}, .out = "g=2,b=5,c=8"}},
    {0, 0, {.op = "fused_operand_sum", .in = {"a=6,b=5", "c=4,a=6,d=3"}, .out = "b=5,c=4,d=3"}},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

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

/* What ran since `before`. */
static void check_launches(int32_t i, dtp_dtype dtype, int32_t products,
                           const struct cuda_emu_counters *before)
{
    const struct cuda_emu_counters now = cuda_emu_count();
    const int64_t kernels = (int64_t)(now.kernels - before->kernels) - alone,
                  n = (int64_t)(now.products - before->products);
    if (products > 0 ? kernels != 0 || n != products : kernels == 0 || n == 0) {
        fail_msg("case %d of %s: %lld products and %lld kernels", i, dtp_dtype_name(dtype),
                 (long long)n, (long long)kernels);
    }
}

static void test_products__have_epilogues(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES * N_FLOATS; i++) {
        const struct cuda_emu_counters before = cuda_emu_count();
        against_ref_case(&CASES[i / N_FLOATS].c, FLOATS[i % N_FLOATS], cuda, ref);
        check_launches(i / N_FLOATS, FLOATS[i % N_FLOATS], CASES[i / N_FLOATS].products, &before);
    }
}

/* Without an algorithm for aligned or for other addresses. */
static void test_products__run_apart_without_an_algorithm(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 2 * N_CASES; i++) {
        const struct cuda_emu_counters before = cuda_emu_count();
        if (CASES[i / 2].products > 0) {
            cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 1 + (uint64_t)i % 2);
            against_ref_case(&CASES[i / 2].c, FLOATS[i / 2 % N_FLOATS], cuda, ref);
            cuda_emu_set_fault(CUDA_EMU_NO_ALGORITHM, 0);
            check_launches(i / 2, FLOATS[i / 2 % N_FLOATS], 0, &before);
        }
    }
}

/* The results of a case, whose tensors lie `shift` elements behind aligned addresses. */
static void run_shifted(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *b, int64_t shift,
                        double *out)
{
    dtp_case_graph cg;
    dtp_call_types types;
    dtp_view views[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    void *memory[DTP_MAX_OP_IN + DTP_MAX_OP_OUT], *host;
    dtp_err err;
    case_build(c, dtype, against_ref_seed, &cg);
    const dtp_op_call call = dtp_node_call(cg.g, &cg.g->nodes[cg.node], &types);
    const int32_t n_views = call.n_in + call.n_out;
    for (int32_t i = 0; i < n_views; i++) {
        const dtp_ttype *type = i < call.n_in ? &types.in[i] : &types.out[i - call.n_in];
        const size_t bytes = (size_t)dtp_ttype_bytes(type) + ROOM;
        host = calloc(1, bytes);
        assert_non_null(host);
        for (int64_t k = 0; k < dtp_ttype_elems(type) && i < call.n_in; k++) {
            dtp_element_set(dtype, host, shift + k, cg.values[i][k]);
        }
        assert_int_equal(b->ops->alloc(b, bytes, &memory[i], NULL), DTP_OK);
        assert_int_equal(b->ops->upload(b, memory[i], host, bytes, NULL), DTP_OK);
        views[i] = eval_view(type, (char *)memory[i] + shift * dtp_dtype_bytes(dtype));
        free(host);
    }
    if (eval_kernel(b, &call, views, views + call.n_in, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < n_views; i++) {
        const dtp_ttype *type = &views[i].local;
        host = malloc((size_t)dtp_ttype_bytes(type));
        assert_non_null(host);
        assert_int_equal(
            b->ops->download(b, host, views[i].data, (size_t)dtp_ttype_bytes(type), NULL), DTP_OK);
        for (int64_t k = 0; k < dtp_ttype_elems(type) && i >= call.n_in; k++) {
            *out++ = dtp_element(dtype, host, k);
        }
        free(host);
        b->ops->free(b, memory[i], (size_t)dtp_ttype_bytes(type) + ROOM);
    }
    dtp_case_free(&cg);
    *out = (double)NAN;
}

static void test_products__need_no_alignment(void **state)
{
    static const double TOLERANCE[] = {1e-5, 0x1p-6, 0x1p-9};
    enum { MOST = 4096 };
    static double want[MOST], got[MOST];
    (void)state;
    for (int32_t i = 0; i < N_CASES * N_FLOATS; i++) {
        const struct product_case *c = &CASES[i / N_FLOATS];
        run_shifted(&c->c, FLOATS[i % N_FLOATS], ref, 0, want);
        const struct cuda_emu_counters before = cuda_emu_count();
        run_shifted(&c->c, FLOATS[i % N_FLOATS], cuda, 1, got);
        check_launches(i / N_FLOATS, FLOATS[i % N_FLOATS], c->shifted, &before);
        int32_t n = 0;
        double most = 0.0;
        for (; !isnan(want[n]); n++) {
            most = fmax(most, fabs(want[n]));
        }
        for (int32_t k = 0; k < n; k++) {
            if (!(fabs(got[k] - want[k]) <= TOLERANCE[i % N_FLOATS] * most)) {
                fail_msg("case %d of %s: %g at %d, not %g", i / N_FLOATS,
                         dtp_dtype_name(FLOATS[i % N_FLOATS]), got[k], k, want[k]);
            }
        }
        assert_true(n > 0 && isnan(got[n]));
    }
}

/* Fused products bound with tf32 are other than those in f32, within the rounding of two operands;
 * those of 16 bits stay. */
static void test_products__round_to_tf32(void **state)
{
    enum { MOST = 4096 };
    static double f32[MOST], tf32[MOST];
    (void)state;
    for (int32_t i = 0; i < N_CASES * 2; i++) {
        const dtp_dtype dtype = FLOATS[i % 2];
        run_shifted(&CASES[i / 2].c, dtype, cuda, 0, f32);
        cuda->tf32 = true;
        run_shifted(&CASES[i / 2].c, dtype, cuda, 0, tf32);
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
