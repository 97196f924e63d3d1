/* The arithmetic of reductions against element-wise oracles, and the list of lent memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "executor/comm/communicator_internal.h"
#include "executor/comm/free_list.h"

static uint64_t next_random(uint64_t *seed)
{
    uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- 16-bit floats, by their definition: sign, exponent bits, mantissa bits ---- */

typedef struct narrow {
    dtp_dtype dtype;
    int exponent_bits, mantissa_bits;
} narrow;

static const narrow BF16 = {DTP_BF16, 8, 7}, F16 = {DTP_F16, 5, 10};

static double value_of(const narrow *t, uint16_t bits)
{
    int top = (1 << t->exponent_bits) - 1, bias = top / 2;
    int exponent = bits >> t->mantissa_bits & top;
    double fraction = ldexp(bits & ((1 << t->mantissa_bits) - 1), -t->mantissa_bits);
    double sign = (bits >> 15) != 0 ? -1.0 : 1.0;
    if (exponent == top) {
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign *
           (exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias));
}

/* The nearest of all finite values and infinities, ties to the even pattern; by search. */
static uint16_t nearest(const narrow *t, double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    int low = 0, high = ((1 << t->exponent_bits) - 1) << t->mantissa_bits; /* infinity */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (value_of(t, (uint16_t)middle) <= a) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = value_of(t, (uint16_t)low), above = value_of(t, (uint16_t)high);
    if (isinf(above)) { /* rounds as if the exponents went on */
        above = 2 * ldexp(1.0, (1 << (t->exponent_bits - 1)) - 1);
    }
    bool up = a - below > above - a || (a - below == above - a && (low & 1) != 0);
    return (uint16_t)(sign | (isinf(a) || up ? high : low));
}

static double fold(dtp_reduce_op op, double a, double b)
{
    if (op == DTP_REDUCE_MIN || op == DTP_REDUCE_MAX) {
        if (isnan(a) || isnan(b)) {
            return (double)NAN;
        }
        return (op == DTP_REDUCE_MIN ? b < a : b > a) ? b : a;
    }
    return op == DTP_REDUCE_SUM ? a + b : a * b;
}

static const dtp_reduce_op OPS[] = {DTP_REDUCE_SUM, DTP_REDUCE_PROD, DTP_REDUCE_MIN,
                                    DTP_REDUCE_MAX};

/* The sum and the product of two such numbers are exact in double; rounded to f32 first as the
 * arithmetic is that of f32. */
static void check_narrow(const narrow *t, uint64_t seed)
{
    enum { N = 3000 };
    static uint16_t acc[N], in[N], before[N];
    for (size_t o = 0; o < 4; o++) {
        for (int i = 0; i < N; i++) {
            uint64_t r = next_random(&seed);
            before[i] = acc[i] = (uint16_t)r;
            in[i] = (uint16_t)(i % 3 == 0 ? (r & 0xff80) + (r >> 40 & 0x3ff) : r >> 16);
        }
        dtp_comm__combine(OPS[o], t->dtype, acc, in, N);
        for (int i = 0; i < N; i++) {
            float exact = (float)fold(OPS[o], value_of(t, before[i]), value_of(t, in[i]));
            if (isnan(exact)) {
                assert_true(isnan(value_of(t, acc[i])));
            } else if (acc[i] != nearest(t, (double)exact)) {
                fail_msg("%s %s: %04x and %04x give %04x, expected %04x", dtp_dtype_name(t->dtype),
                         dtp_reduce_op_name(OPS[o]), before[i], in[i], acc[i],
                         nearest(t, (double)exact));
            }
        }
    }
}

static void test_combine__narrow_floats_round_once_to_even(void **state)
{
    (void)state;
    check_narrow(&BF16, 1);
    check_narrow(&F16, 2);
}

static void test_combine__nan_stays_in_extremes(void **state)
{
    (void)state;
    for (size_t o = 2; o < 4; o++) {
        float f[] = {1, NAN, NAN, 2}, g[] = {NAN, 1, NAN, 3};
        double d[] = {1, (double)NAN, (double)NAN, 2}, e[] = {(double)NAN, 1, (double)NAN, 3};
        dtp_comm__combine(OPS[o], DTP_F32, f, g, 4);
        dtp_comm__combine(OPS[o], DTP_F64, d, e, 4);
        for (int i = 0; i < 3; i++) {
            assert_true(isnan(f[i]) && isnan(d[i]));
        }
        assert_true(f[3] == (OPS[o] == DTP_REDUCE_MIN ? 2.0F : 3.0F));
        assert_true(d[3] == (OPS[o] == DTP_REDUCE_MIN ? 2.0 : 3.0));
    }
}

static void test_combine__integers_wrap_around(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 1000; i++) {
        uint64_t a = next_random(&seed), b = next_random(&seed), x = a;
        uint32_t y = (uint32_t)a;
        dtp_comm__combine(DTP_REDUCE_SUM, DTP_I64, &x, &b, 1);
        assert_true(x == a + b);
        x = a;
        dtp_comm__combine(DTP_REDUCE_PROD, DTP_I64, &x, &b, 1);
        assert_true(x == a * b);
        uint32_t b32 = (uint32_t)b;
        dtp_comm__combine(DTP_REDUCE_SUM, DTP_I32, &y, &b32, 1);
        assert_true(y == (uint32_t)(a + b));
        y = (uint32_t)a;
        dtp_comm__combine(DTP_REDUCE_PROD, DTP_I32, &y, &b32, 1);
        assert_true(y == (uint32_t)(a * b));
        int64_t low = (int64_t)a, high = (int64_t)a;
        dtp_comm__combine(DTP_REDUCE_MIN, DTP_I64, &low, &b, 1);
        dtp_comm__combine(DTP_REDUCE_MAX, DTP_I64, &high, &b, 1);
        assert_true(low <= high && low <= (int64_t)b && high >= (int64_t)b &&
                    (low == (int64_t)a || low == (int64_t)b) &&
                    (uint64_t)low + (uint64_t)high == a + b);
    }
}

static void test_combine__bools_are_and_and_or(void **state)
{
    (void)state;
    uint8_t all[] = {0, 0, 1, 1}, least[] = {0, 0, 1, 1}, any[] = {0, 0, 1, 7};
    const uint8_t in[] = {0, 1, 0, 2};
    dtp_comm__combine(DTP_REDUCE_PROD, DTP_BOOL, all, in, 4);
    dtp_comm__combine(DTP_REDUCE_MIN, DTP_BOOL, least, in, 4);
    dtp_comm__combine(DTP_REDUCE_MAX, DTP_BOOL, any, in, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(all[i], i == 3);
        assert_int_equal(least[i], i == 3);
        assert_int_equal(any[i], i > 0);
    }
}

static void test_reductions__sum_of_bools_and_averages_are_refused(void **state)
{
    (void)state;
    dtp_coll sum = {.kind = DTP_ALL_REDUCE, .op = DTP_REDUCE_SUM, .dtype = DTP_BOOL};
    dtp_coll avg = {.kind = DTP_REDUCE_SCATTER, .op = DTP_REDUCE_AVG, .dtype = DTP_F32};
    dtp_coll moved = {.kind = DTP_ALL_GATHER, .op = DTP_REDUCE_SUM, .dtype = DTP_BOOL};
    dtp_err err = {0};
    assert_int_equal(dtp_comm__can_reduce(&sum, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "'sum' reduction of bool"));
    assert_int_equal(dtp_comm__can_reduce(&avg, NULL), DTP_UNSUPPORTED);
    assert_int_equal(dtp_comm__can_reduce(&moved, NULL), DTP_OK);
}

/* ---- copies of parts ---- */

/* Every pair of cuts of two buffers, from and to any place, against element by element. */
static void test_copy__any_cut_to_any_cut(void **state)
{
    (void)state;
    enum { COUNT = 24, PARTS = 3 };
    static const int64_t outers[] = {1, 2, 3, 4, 8, 24};
    uint16_t from[COUNT * PARTS], to[COUNT * PARTS], want[COUNT * PARTS];
    uint64_t seed = 4;
    for (int i = 0; i < COUNT * PARTS; i++) {
        from[i] = (uint16_t)(1000 + i);
    }
    for (int k = 0; k < 5000; k++) {
        dtp_coll coll = {.kind = DTP_ALL_TO_ALL,
                         .dtype = DTP_BF16,
                         .count = COUNT,
                         .in_outer = outers[next_random(&seed) % 6],
                         .out_outer = outers[next_random(&seed) % 6]};
        int64_t p = (int64_t)(next_random(&seed) % PARTS);
        int64_t q = (int64_t)(next_random(&seed) % PARTS);
        int64_t n = (int64_t)(next_random(&seed) % (COUNT + 1));
        int64_t a = (int64_t)(next_random(&seed) % (uint64_t)(COUNT - n + 1));
        int64_t b = (int64_t)(next_random(&seed) % (uint64_t)(COUNT - n + 1));
        memset(to, 0, sizeof to);
        memset(want, 0, sizeof want);
        for (int64_t e = 0; e < n; e++) {
            int64_t in = COUNT / coll.in_outer, out = COUNT / coll.out_outer;
            want[((a + e) / out * PARTS + q) * out + (a + e) % out] =
                from[((b + e) / in * PARTS + p) * in + (b + e) % in];
        }
        dtp_comm__copy(to, dtp_comm__part_of(&coll, false, PARTS, q), 2 * a, from,
                       dtp_comm__part_of(&coll, true, PARTS, p), 2 * b, 2 * n);
        assert_memory_equal(to, want, sizeof to);
    }
}

/* ---- lent memory ---- */

static void test_ranges__never_overlap_and_come_back(void **state)
{
    (void)state;
    enum { BYTES = 4096, LIVE = 64 };
    dtp_comm__free_list r;
    int64_t start[LIVE], size[LIVE];
    int n = 0;
    uint64_t seed = 9;
    assert_true(dtp_comm__free_list_init(&r, BYTES));
    for (int k = 0; k < 20000; k++) {
        uint64_t x = next_random(&seed);
        if (n < LIVE && x % 2 == 0) {
            size[n] = 1 + (int64_t)(x >> 8) % 300;
            size[n] = size[n] > 0 ? size[n] : 1;
            start[n] = dtp_comm__free_list_take(&r, size[n]);
            assert_true(start[n] < 0 || start[n] + size[n] <= BYTES);
            for (int i = 0; i < n && start[n] >= 0; i++) {
                assert_true(start[i] + size[i] <= start[n] || start[n] + size[n] <= start[i]);
            }
            n += start[n] >= 0;
        } else if (n > 0) {
            int i = (int)(x >> 8) % n;
            i = i < 0 ? -i : i;
            assert_true(dtp_comm__free_list_release(&r, start[i]));
            assert_false(dtp_comm__free_list_release(&r, start[i]));
            start[i] = start[n - 1];
            size[i] = size[n - 1];
            n--;
        }
    }
    while (n > 0) {
        assert_true(dtp_comm__free_list_release(&r, start[--n]));
    }
    assert_int_equal(dtp_comm__free_list_take(&r, BYTES), 0);
    assert_int_equal(dtp_comm__free_list_take(&r, 1), -1);
    dtp_comm__free_list_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combine__narrow_floats_round_once_to_even),
        cmocka_unit_test(test_combine__nan_stays_in_extremes),
        cmocka_unit_test(test_combine__integers_wrap_around),
        cmocka_unit_test(test_combine__bools_are_and_and_or),
        cmocka_unit_test(test_reductions__sum_of_bools_and_averages_are_refused),
        cmocka_unit_test(test_copy__any_cut_to_any_cut),
        cmocka_unit_test(test_ranges__never_overlap_and_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
