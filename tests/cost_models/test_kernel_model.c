/* Times of products and attention by shape (cost_models/machine/kernel_model.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op.h"
#include "core/graph/ops/op_table.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/kernel_model.h"
#include "cost_models/machine/machine_scale.h"
#include "cost_models/price.h"

#define HEAD                                                                                       \
    "{\"format\": \"dtp.machine/1\", \"name\": \"card\", \"device\": {\"kind\": \"cuda\", "        \
    "\"memory_bytes\": 1024, \"mem_bw_Bps\": 1e12, \"launch_s\": 4e-6, \"flops\": {\"bf16\": "     \
    "4e12, \"f16\": 4e12, \"tf32\": 2e12, \"f32\": 1e11, \"fp8\": 8e12}"
#define MODELS                                                                                     \
    ", \"multiprocessors\": 4, \"products\": {\"bf16\": {\"rate\": 0.5, \"burst\": 2, \"ramp\": "  \
    "100, \"start_s\": 1e-6, \"memory\": 0.8}, \"fp8\": {\"rate\": 0.5, \"ramp\": 100, "           \
    "\"start_s\": 2e-6, \"memory\": 0.5, \"quantize\": 5}}, \"attention\": {\"fa2\": {\"rate\": "  \
    "0.5, \"grad\": 0.25, \"score\": 44, \"start_s\": 3e-6, \"memory\": 0.5}}"
#define SETS                                                                                       \
    "}, \"levels\": [], \"efficiency\": {\"torch\": {\"products\": 0.5, \"memory\": 0.25, "        \
    "\"attention\": 0.8, \"attention_grad\": 0.4, \"kernel\": \"fa2\", \"host_s\": 0, "            \
    "\"provenance\": {\"how\": \"fitted\"}}}, "
#define END "\"provenance\": {\"how\": \"datasheet\"}}"

static dtp_status try_parse(const char *models, const char *rest, dtp_machine **out, dtp_err *err)
{
    char text[4096];
    (void)snprintf(text, sizeof text, HEAD "%s%s" END, models, rest);
    return dtp_machine_parse("card.json", text, strlen(text), out, err);
}

static dtp_machine *parse(const char *models, const char *rest)
{
    dtp_machine *m = NULL;
    dtp_err err = {0};
    if (try_parse(models, rest, &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return m;
}

static void near_to(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g is not %.17g", value, expected);
    }
}

static dtp_work product(int64_t batch, int64_t m, int64_t n, int64_t k)
{
    const double b = (double)batch, x = (double)m, y = (double)n, z = (double)k;
    return (dtp_work){.cls = DTP_WORK_GEMM,
                      .flops = 2.0 * b * x * y * z,
                      .bytes = 2.0 * b * (x * z + z * y + x * y),
                      .batch = batch,
                      .m = m,
                      .n = n,
                      .k = k};
}

static double time_of(const dtp_machine *m, dtp_arithmetic a, dtp_work w)
{
    return dtp_price_work(m, dtp_op_find("einsum"), a, &w);
}

/* A multiprocessor makes 0.5e12 FLOP/s. */
static void test_products__are_priced_by_tiles_ramp_and_bytes(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS);
    const double step_s = 2.0 * 256.0 * 128.0 / 0.5e12; /* of a tile, of 1 of k */
    /* Eight tiles of 256 x 128 in two waves; splitting k shares no better. */
    near_to(time_of(m, DTP_BF16, product(1, 1024, 256, 900)), 1e-6 + 2.0 * (900 + 100) * step_s);
    /* One tile in one wave would leave three of four idle: k in four parts, in one wave. */
    near_to(time_of(m, DTP_BF16, product(1, 256, 128, 4000)),
            1e-6 + (1000 + 100) * step_s + 4 * 0.25e-6);
    /* Four of them in one call fill the device. */
    near_to(time_of(m, DTP_BF16, product(4, 256, 128, 4000)), 1e-6 + (4000 + 100) * step_s);
    /* A fifth takes another wave; with k in four parts, a quarter of one. */
    near_to(time_of(m, DTP_BF16, product(5, 256, 128, 4000)),
            1e-6 + 5.0 * (1000 + 100) * step_s + 4 * 0.25e-6);
    /* Bytes decide a product of few FLOPs: 2 (mk + kn + mn) at 0.8 of the bandwidth. */
    dtp_work bytes = product(1, 256, 128, 8);
    bytes.bytes = 1e9;
    near_to(time_of(m, DTP_BF16, bytes), 1e-6 + 1e9 / 0.8e12);
    /* Quantizing moves 5 bytes for an element of the first operand. */
    near_to(time_of(m, DTP_FP8, product(1, 1024, 256, 900)),
            2e-6 + 2.0 * 1000 * 0.5 * step_s + 5.0 * 1024 * 900 / 0.5e12);
    /* f16 and tf32 by bf16's model at their own peaks, f32 by the peaks. */
    const dtp_work w = product(1, 1024, 256, 900);
    near_to(time_of(m, DTP_F16, w), time_of(m, DTP_BF16, w));
    near_to(time_of(m, DTP_TF32, w), 1e-6 + 2.0 * (time_of(m, DTP_BF16, w) - 1e-6));
    near_to(time_of(m, DTP_F32, w), 4e-6 + w.flops / 1e11);
    dtp_machine_destroy(m);
}

/* Alone, twice as fast for a millisecond. */
static void test_products__that_run_alone_are_faster_for_a_millisecond(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS);
    const double step_s = 2.0 * 256.0 * 128.0 / 0.5e12;
    near_to(dtp_product_alone_s(m, DTP_BF16, 1024, 256, 900), 1e-6 + 1000 * step_s);
    const double fast_s = 40000 * step_s; /* 2 waves at twice the rate: 5.2 ms */
    near_to(dtp_product_alone_s(m, DTP_BF16, 1024, 256, 39900), 1e-6 + 2.0 * fast_s - 1e-3);
    near_to(dtp_product_alone_s(m, DTP_FP8, 1024, 256, 900),
            time_of(m, DTP_FP8, product(1, 1024, 256, 900)));
    dtp_machine_destroy(m);
}

static int64_t below(uint64_t *seed, int64_t n)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U; /* Knuth's MMIX generator */
    return (int64_t)(*seed >> 33) % n;
}

/* No size makes a product cheaper, no part of p is cheaper than the whole divided by p, and no
 * product is faster than rate and bandwidth. */
static void test_products__parts_cost_at_least_their_share(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS);
    uint64_t seed = 50;
    m->multiprocessors = 132;
    for (int32_t i = 0; i < 4000; i++) {
        int64_t s[4];
        for (int32_t d = 0; d < 4; d++) {
            s[d] = 1 + below(&seed, d == 0 ? 12 : i % 2 == 0 ? 400 : 9000);
        }
        const int32_t d = (int32_t)below(&seed, 4);
        const int64_t parts = 2 + below(&seed, 15);
        const double part_s = time_of(m, DTP_BF16, product(s[0], s[1], s[2], s[3]));
        s[d] *= parts;
        const dtp_work whole = product(s[0], s[1], s[2], s[3]);
        const double whole_s = time_of(m, DTP_BF16, whole);
        if (!(part_s <= whole_s && whole_s <= (double)parts * part_s * (1 + 1e-12) &&
              whole_s >= whole.flops / 2e12 && whole_s >= whole.bytes / 0.8e12)) {
            fail_msg("%lld x (%lld, %lld, %lld): %g s, of %lld parts along %d %g s",
                     (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3], whole_s,
                     (long long)parts, d, part_s);
        }
    }
    dtp_machine_destroy(m);
}

/* Causal attention of 2 x 1 heads, 512 queries and keys, 64 features. */
static dtp_work attention(int64_t heads, int64_t length, bool grad)
{
    const double h = (double)heads, l = (double)length, products = grad ? 5.0 * 64 : 2.0 * 64;
    return (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = 2.0 * h * l * 0.5 * l * (products + DTP_SCORE_MULTIPLY_ADDS),
                      .bytes = 1e6,
                      .batch = heads,
                      .m = length,
                      .n = length,
                      .k = (int64_t)products};
}

static double attention_s(const dtp_machine *m, const char *op, dtp_work w)
{
    return dtp_price_work(m, dtp_op_find(op), DTP_BF16, &w);
}

static void test_attention__is_priced_by_the_kernel_of_the_runtime(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS), *twice = NULL;
    const dtp_work w = attention(2, 512, false), few = attention(1, 128, false);
    const double peaks_s = attention_s(m, "attention", w);
    near_to(peaks_s, 4e-6 + w.flops / 4e12); /* no runtime, no kernel */
    const uint64_t peaks = dtp_machine_hash(m);
    assert_int_equal(dtp_machine_set_runtime(m, "torch", NULL), DTP_OK);
    assert_true(dtp_machine_hash(m) != peaks);
    /* A query sees 256 keys and half a tile more; 8 tiles on 4 multiprocessors. Bytes are at half
     * of the peak, whatever share memory-bound ops reach. */
    const double pairs = 2.0 * 512 * (256 + 64), rate = 0.5 * 0.8 * 4e12;
    near_to(attention_s(m, "attention", w), 3e-6 + 2.0 * pairs * (128 + 44) / rate + 1e6 / 0.5e12);
    near_to(attention_s(m, "attention_part", w), attention_s(m, "attention", w));
    near_to(attention_s(m, "attention_grad", attention(2, 512, true)),
            3e-6 + 2.0 * pairs * (320 + 44) / (0.25 * 0.4 * 4e12) + 1e6 / 0.5e12);
    /* One tile: three of four multiprocessors wait. */
    near_to(attention_s(m, "attention", few),
            3e-6 + 4.0 * 2.0 * 128 * 128 * (128 + 44) / rate + 1e6 / 0.5e12);
    /* Products at the share of their model, with bytes at the model's share of the peak. */
    near_to(time_of(m, DTP_BF16, product(1, 1024, 256, 900)),
            1e-6 + 2.0 * 1000 * 2.0 * 256 * 128 / 0.25e12);
    /* A scaled copy is of the same runtime. */
    const dtp_machine_param flops = {DTP_MACHINE_FLOPS, -1, "flops", 1.0};
    assert_int_equal(dtp_machine_scaled(m, &flops, 2.0, &twice, NULL), DTP_OK);
    near_to(attention_s(twice, "attention", w), 3e-6 + pairs * (128 + 44) / rate + 1e6 / 0.5e12);
    dtp_machine_destroy(twice);
    dtp_machine_destroy(m);
}

static void test_attention__longer_or_more_heads_cost_more(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS);
    m->multiprocessors = 132;
    assert_int_equal(dtp_machine_set_runtime(m, "torch", NULL), DTP_OK);
    for (int64_t heads = 1; heads <= 512; heads *= 2) {
        for (int64_t length = 64; length <= 4096; length += 64) {
            const double one_s = attention_s(m, "attention", attention(heads, length, false));
            const double two_s = attention_s(m, "attention", attention(2 * heads, length, false));
            const double longer_s =
                attention_s(m, "attention", attention(heads, length + 1, false));
            assert_true(one_s <= two_s && two_s <= 2.0 * one_s && one_s <= longer_s);
            assert_true(attention_s(m, "attention_grad", attention(heads, length, true)) > one_s);
        }
    }
    dtp_machine_destroy(m);
}

static void test_models__read_back_and_are_borrowed_with_the_sets(void **state)
{
    (void)state;
    dtp_machine *a = parse(MODELS, SETS), *b = NULL, *bare = parse("", "}, \"levels\": [], ");
    char *first = NULL, *second = NULL;
    assert_int_equal(dtp_machine_write(a, &first, NULL), DTP_OK);
    assert_int_equal(dtp_machine_parse("card.json", first, strlen(first), &b, NULL), DTP_OK);
    assert_int_equal(dtp_machine_write(b, &second, NULL), DTP_OK);
    assert_string_equal(first, second);
    assert_true(dtp_machine_hash(a) == dtp_machine_hash(b));
    assert_true(dtp_machine_hash(a) != dtp_machine_hash(bare));
    bare->flops[DTP_FP8] = 0.0; /* has no such products */
    assert_int_equal(dtp_efficiency_borrow(bare, a, NULL), DTP_OK);
    assert_int_equal(dtp_machine_set_runtime(a, "torch", NULL), DTP_OK);
    assert_int_equal(dtp_machine_set_runtime(bare, "torch", NULL), DTP_OK);
    const dtp_work w = product(1, 777, 555, 333), at = attention(3, 700, true);
    near_to(time_of(bare, DTP_BF16, w), time_of(a, DTP_BF16, w));
    near_to(attention_s(bare, "attention_grad", at), attention_s(a, "attention_grad", at));
    assert_true(bare->products[DTP_FP8].rate <= 0.0);
    free(first);
    free(second);
    dtp_machine_destroy(a);
    dtp_machine_destroy(b);
    dtp_machine_destroy(bare);
}

static void test_models__what_is_none_is_refused_with_its_place(void **state)
{
    (void)state;
#define BF16 "\"multiprocessors\": 4, \"products\": {\"bf16\": {"
#define REST "\"ramp\": 1, \"start_s\": 0, \"memory\": 1}}"
    static const struct {
        const char *models, *message;
    } cases[] = {
        {", \"products\": {}", "device: the key 'multiprocessors' is missing"},
        {", \"multiprocessors\": 0", "device.multiprocessors: 0 is not in 1..65536"},
        {", \"multiprocessors\": 4, \"products\": []", "device.products: expected an object"},
        {", \"multiprocessors\": 4, \"products\": {\"int3\": {}}", "int3"},
        {", \"multiprocessors\": 4, \"products\": {\"nvfp4\": {}}",
         "device.products.nvfp4: device.flops states no rate of nvfp4"},
        {", " BF16 REST, "device.products.bf16: the key 'rate' is missing"},
        {", " BF16 "\"rate\": 3, " REST,
         "device.products.bf16.rate: expected a number in [0.001, 2]"},
        {", " BF16 "\"rate\": 1, \"burst\": 0.5, " REST,
         "bf16.burst: expected a number in [1, 100]"},
        {", " BF16 "\"rate\": 1, \"rump\": 0.5, " REST, "unknown key 'rump'"},
        {", " BF16 "\"rate\": 1, \"quantize\": -1, " REST,
         "bf16.quantize: expected a number in [0, 1e+06]"},
        {", \"multiprocessors\": 4, \"attention\": {\"fa9\": {}}", "unknown key 'fa9'"},
        {", \"multiprocessors\": 4, \"attention\": {\"fa3\": {\"rate\": 1}}",
         "device.attention.fa3: the key 'grad' is missing"},
        {", \"multiprocessors\": 4",
         "efficiency.torch.kernel: device.attention has no kernel 'fa2'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_machine *m = NULL;
        dtp_err err = {0};
        assert_int_equal(try_parse(cases[i].models, SETS, &m, &err), DTP_INVALID);
        assert_null(m);
        if (strstr(err.msg, cases[i].message) == NULL ||
            strncmp(err.msg, "card.json:1:", 12) != 0) {
            fail_msg("case %zu: '%s' does not say '%s'", i, err.msg, cases[i].message);
        }
    }
}

static void test_models__the_least_rate_and_no_work_have_a_price(void **state)
{
    (void)state;
    dtp_machine *m = parse(MODELS, SETS);
    m->products[DTP_BF16].ramp = 1e6;
    m->flops[DTP_BF16] = 1.0;
    assert_true(isfinite(time_of(m, DTP_BF16, product(1 << 20, 1 << 20, 1 << 20, 1 << 20))));
    dtp_work none = {.cls = DTP_WORK_GEMM, .batch = 1};
    near_to(time_of(m, DTP_BF16, none), 1e-6);
    dtp_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products__are_priced_by_tiles_ramp_and_bytes),
        cmocka_unit_test(test_products__that_run_alone_are_faster_for_a_millisecond),
        cmocka_unit_test(test_products__parts_cost_at_least_their_share),
        cmocka_unit_test(test_attention__is_priced_by_the_kernel_of_the_runtime),
        cmocka_unit_test(test_attention__longer_or_more_heads_cost_more),
        cmocka_unit_test(test_models__read_back_and_are_borrowed_with_the_sets),
        cmocka_unit_test(test_models__what_is_none_is_refused_with_its_place),
        cmocka_unit_test(test_models__the_least_rate_and_no_work_have_a_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
