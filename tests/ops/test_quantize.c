/* Quantization on every backend against tables of all 256 codes of the two 8-bit formats (OCP 8-bit
 * Floating Point Specification, revision 1.0), made by decoding the codes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/ops/cpu_harness.h"

enum { N_CODES = 256, MOST = 4096 };

typedef struct format {
    const char *op;
    int digits, bias;
    double largest, least; /* number; above 0 */
} format;

static const format FORMATS[] = {{"quantize_e4m3", 3, 7, 448.0, 0x1p-9},
                                 {"quantize_e5m2", 2, 15, 57344.0, 0x1p-16}};
static const char *const BACKENDS[] = {"ref", "cpu"};

/* NaN of codes that are no number. */
static double decode(const format *f, int code)
{
    const int fields = code & 0x7f, e = fields >> f->digits, m = fields & ((1 << f->digits) - 1);
    const double sign = code >= 128 ? -1.0 : 1.0, one = (double)(1 << f->digits);
    if (f->digits == 3 ? fields == 0x7f : e == 31) {
        return (double)NAN;
    }
    return sign * (e == 0 ? ldexp(m / one, 1 - f->bias) : ldexp(1.0 + m / one, e - f->bias));
}

/* The nearest number of the format, of two the one with the even code. */
static double nearest(const format *f, double x)
{
    int best = -1;
    const double size = fmin(fabs(x), f->largest);
    for (int code = 0; code < 128; code++) {
        const double value = decode(f, code);
        const double d = fabs(value - size),
                     least = best < 0 ? HUGE_VAL : fabs(decode(f, best) - size);
        if (!isnan(value) && (d < least || (d == least && code % 2 == 0))) {
            best = code;
        }
    }
    return copysign(decode(f, best), x);
}

static double expected(const format *f, double x, double amax)
{
    int k = 300;
    if (isnan(x) || !isfinite(amax)) {
        return (double)NAN;
    }
    while (ldexp(fmax(fabs(amax), 0x1p-40), k) > f->largest) {
        k--;
    }
    return ldexp(nearest(f, ldexp(x, k)), -k);
}

static void check(const format *f, int32_t n, const float *x, float amax)
{
    for (size_t b = 0; b < sizeof BACKENDS / sizeof *BACKENDS; b++) {
        char dims[32];
        cpu_case c;
        void *out[8];
        (void)snprintf(dims, sizeof dims, "a=%d", n);
        cpu_case_start(&c, f->op);
        cpu_floats(&c, dims);
        cpu_floats(&c, "");
        memcpy(c.data[0], x, (size_t)n * sizeof *x);
        memcpy(c.data[1], &amax, sizeof amax);
        cpu_infer(&c, NULL);
        cpu_run(&c, BACKENDS[b], 1, out);
        for (int32_t i = 0; i < n; i++) {
            const float have = ((const float *)out[0])[i], want = (float)expected(f, x[i], amax);
            const bool same =
                isnan(want) ? isnan(have) != 0 : have == want && !signbit(have) == !signbit(want);
            if (!same) {
                fail_msg("%s %s: x %a, amax %a: %a, expected %a", BACKENDS[b], f->op, (double)x[i],
                         (double)amax, (double)have, (double)want);
            }
        }
        cpu_release(&c, out);
        cpu_case_free(&c);
    }
}

static void test_tables__have_the_numbers_of_the_specification(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const format *f = &FORMATS[i];
        double most = 0.0, least = HUGE_VAL;
        int32_t numbers = 0;
        for (int code = 0; code < N_CODES; code++) {
            const double x = decode(f, code);
            numbers += isfinite(x) ? 1 : 0;
            most = isfinite(x) ? fmax(most, x) : most;
            least = x > 0.0 ? fmin(least, x) : least;
        }
        assert_int_equal(numbers, i == 0 ? 254 : 248);
        assert_true(most == f->largest && least == f->least);
    }
}

/* Each stays what it is, at any scale. */
static void test_quantize__keeps_all_codes(void **state)
{
    (void)state;
    static const int scales[] = {0, 1, -1, 60, -40, 100, -50};
    for (size_t i = 0; i < 2; i++) {
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
            float x[N_CODES];
            int32_t n = 0;
            for (int code = 0; code < N_CODES; code++) {
                const double value = decode(&FORMATS[i], code);
                x[n] = (float)ldexp(value, scales[s]);
                n += isfinite(value) ? 1 : 0;
            }
            check(&FORMATS[i], n, x, (float)ldexp(FORMATS[i].largest, scales[s]));
        }
    }
}

/* Between two neighbours: the middle, a bit more and a bit less. */
static void test_quantize__takes_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const format *f = &FORMATS[i];
        float x[MOST];
        int32_t n = 0;
        for (int code = 0; code < 127 && isfinite(decode(f, code + 1)); code++) {
            const float middle = (float)(0.5 * (decode(f, code) + decode(f, code + 1)));
            for (int sign = -1; sign <= 1; sign += 2) {
                x[n++] = (float)sign * middle;
                x[n++] = (float)sign * nextafterf(middle, 0.0f);
                x[n++] = (float)sign * nextafterf(middle, FLT_MAX);
            }
        }
        check(f, n, x, (float)f->largest);
        for (int32_t k = 0; k < n; k++) {
            x[k] *= 0x1p-30f;
        }
        check(f, n, x, (float)f->largest * 0x1p-30f);
    }
}

/* Amax decides the power of two; what is larger saturates. */
static void test_quantize__scales_by_amax(void **state)
{
    (void)state;
    static const float amax[] = {0.0f,     1e-30f,    0x1p-40f, 1.0f,   1.75f,    1.7500001f,
                                 -1.75f,   447.0f,    448.0f,   449.0f, 3e38f,    FLT_MAX,
                                 INFINITY, -INFINITY, NAN,      -NAN,   57344.0f, 57345.0f};
    for (size_t i = 0; i < 2; i++) {
        for (size_t a = 0; a < sizeof amax / sizeof *amax; a++) {
            float x[MOST] = {0.0f,    -0.0f,    NAN,     INFINITY, -INFINITY,
                             FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-149f};
            uint32_t random = 1;
            int32_t n = 9;
            for (; n < 400; n++) {
                random = random * 1664525u + 1013904223u;
                const float size = isfinite(amax[a]) && amax[a] != 0.0f ? amax[a] : 1e-12f;
                x[n] = size * ((float)(random >> 8) * 0x1p-23f - 1.0f) *
                       ldexpf(1.0f, (n % 5 == 0 ? 2 : -4 * (n % 7)));
                x[n] = isnan(x[n]) ? 0.0f : x[n];
            }
            check(&FORMATS[i], n, x, amax[a]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables__have_the_numbers_of_the_specification),
        cmocka_unit_test(test_quantize__keeps_all_codes),
        cmocka_unit_test(test_quantize__takes_the_nearest),
        cmocka_unit_test(test_quantize__scales_by_amax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
