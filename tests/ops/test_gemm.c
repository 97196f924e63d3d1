/* Every provider of matrix products against a naive product in f64: random shapes, types, strides,
 * batches and threads; several callers at once; conversions of 16-bit floats bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/loops/widen.h"
#include "executor/device/convert.h"
#include "tests/ops/cpu_harness.h"

static const char *const PROVIDERS[] = {"openblas", "onednn", "widened"};
enum { N_PROVIDERS = sizeof PROVIDERS / sizeof PROVIDERS[0] };

static const dtp_dtype TYPES[][2] = {{DTP_F32, DTP_F32},
                                     {DTP_BF16, DTP_BF16},
                                     {DTP_BF16, DTP_F32},
                                     {DTP_F16, DTP_F16},
                                     {DTP_F16, DTP_F32}};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

typedef struct draws {
    uint64_t seed, at;
} draws;

/* In [0, n). */
static int64_t draw(draws *d, int64_t n)
{
    d->at = d->at * 6364136223846793005U + d->seed * 2U + 1U;
    return (int64_t)((d->at >> 33) % (uint64_t)n);
}

/* A matrix with room behind its rows and between the products of a batch. */
typedef struct matrix {
    dtp_dtype type;
    int64_t rows, cols, ld, elems;
    void *data;
} matrix;

static matrix make_matrix(draws *d, dtp_dtype type, int64_t rows, int64_t cols, int64_t elems)
{
    matrix x = {.type = type, .rows = rows, .cols = cols, .ld = cols, .elems = elems};
    x.data = malloc((size_t)(elems * dtp_dtype_bytes(type)) + 1);
    assert_non_null(x.data);
    for (int64_t i = 0; i < elems; i++) {
        dtp_element_set(type, x.data, i, (double)(draw(d, 2001) - 1000) / 512.0);
    }
    return x;
}

/* One random case. */
typedef struct sample {
    dtp_gemm_desc g;
    dtp_gemm_batch batch;
    int64_t n_batch;
    matrix a, b, c;
    int32_t threads;
} sample;

static int64_t draw_size(draws *d)
{
    static const int64_t least[] = {1, 2, 17, 100, 250}, range[] = {2, 16, 80, 150, 300};
    const int64_t i = draw(d, 5);
    return least[i] + draw(d, range[i]);
}

/* Strides of a batch of blocks of `block` elements, innermost last; returns the elements of all. */
static int64_t batch_strides(draws *d, const dtp_gemm_batch *batch, int64_t block, int64_t *stride)
{
    int64_t all = block;
    for (int32_t i = batch->n - 1; i >= 0; i--) {
        stride[i] = all + draw(d, 9);
        all += stride[i] * (batch->size[i] - 1);
    }
    return all;
}

static sample make_sample(draws *d, const dtp_dtype types[2])
{
    static const float scales[] = {1.0f, 0.5f, -1.25f}, betas[] = {0.0f, 1.0f, 0.75f};
    sample s = {.threads = (int32_t)draw(d, CPU_TEAM) + 1, .n_batch = 1};
    dtp_gemm_desc *g = &s.g;
    do {
        g->m = draw_size(d);
        g->n = draw_size(d);
        g->k = draw(d, 40) == 0 ? 0 : draw_size(d);
    } while (g->m * g->n * g->k > 6000000);
    const bool small = g->m * g->n * g->k < 100000;
    s.batch.n = small ? (int32_t)draw(d, 3) : 0;
    for (int32_t i = 0; i < s.batch.n; i++) {
        s.batch.size[i] = 1 + draw(d, 5);
        s.n_batch *= s.batch.size[i];
    }
    g->ab_type = types[0];
    g->c_type = types[1];
    g->trans_a = draw(d, 2) == 1;
    g->trans_b = draw(d, 2) == 1;
    g->alpha = scales[draw(d, 3)];
    g->beta = betas[draw(d, 3)];
    const int64_t rows[] = {g->trans_a ? g->k : g->m, g->trans_b ? g->n : g->k, g->m};
    const int64_t cols[] = {g->trans_a ? g->m : g->k, g->trans_b ? g->k : g->n, g->n};
    int64_t *const ld[] = {&g->lda, &g->ldb, &g->ldc};
    matrix *const parts[] = {&s.a, &s.b, &s.c};
    for (int i = 0; i < 3; i++) {
        *ld[i] = cols[i] + (draw(d, 2) == 1 ? draw(d, 20) : 0);
        const int64_t all = batch_strides(d, &s.batch, rows[i] * *ld[i], s.batch.stride[i]);
        *parts[i] = make_matrix(d, types[i == 2 ? 1 : 0], rows[i], cols[i], all);
        parts[i]->ld = *ld[i];
    }
    return s;
}

static void drop_sample(sample *s)
{
    free(s->a.data);
    free(s->b.data);
    free(s->c.data);
}

/* Starts of the product `index`. */
static void starts(const dtp_gemm_batch *b, int64_t index, int64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    for (int32_t i = b->n - 1; i >= 0; i--) {
        for (int p = 0; p < 3; p++) {
            at[p] += index % b->size[i] * b->stride[p][i];
        }
        index /= b->size[i];
    }
}

/* What lies between the rows of A and B, and between their products, is NaN: no element of C may
 * depend on it, not even times zero. */
static void spoil_gaps(sample *s)
{
    matrix *const parts[] = {&s->a, &s->b};
    for (int p = 0; p < 2; p++) {
        matrix *x = parts[p];
        char *inside = calloc((size_t)x->elems + 1, 1);
        assert_non_null(inside);
        for (int64_t t = 0; t < s->n_batch; t++) {
            int64_t at[3];
            starts(&s->batch, t, at);
            for (int64_t i = 0; i < x->rows * x->cols; i++) {
                inside[at[p] + i / x->cols * x->ld + i % x->cols] = 1;
            }
        }
        for (int64_t e = 0; e < x->elems; e++) {
            if (!inside[e]) {
                dtp_element_set(x->type, x->data, e, (double)NAN);
            }
        }
        free(inside);
    }
}

/* Unit roundoff of a type. */
static double roundoff(dtp_dtype type)
{
    return type == DTP_BF16 ? 0x1p-8 : type == DTP_F16 ? 0x1p-11 : 0x1p-24;
}

static double *doubles(const matrix *x)
{
    double *out = malloc((size_t)x->elems * sizeof *out + 1);
    assert_non_null(out);
    for (int64_t i = 0; i < x->elems; i++) {
        out[i] = dtp_element(x->type, x->data, i);
    }
    return out;
}

/* What C must be: |c - want| is at most (k + 8) u32 of the absolute sum, and once the roundoff of
 * its type. `got` holds C after the run, `c` before it. Returns the largest part of the bound that
 * was used; elements outside of C must not have changed. */
static double worst_error(const sample *s, const void *got)
{
    const dtp_gemm_desc *g = &s->g;
    double *a = doubles(&s->a), *b = doubles(&s->b), worst = 0.0;
    const int64_t bytes = dtp_dtype_bytes(g->c_type);
    char *inside = calloc((size_t)s->c.elems + 1, 1);
    assert_non_null(inside);
    for (int64_t t = 0; t < s->n_batch; t++) {
        int64_t at[3];
        starts(&s->batch, t, at);
        for (int64_t i = 0; i < g->m * g->n; i++) {
            const int64_t r = i / g->n, q = i % g->n, e = at[2] + r * g->ldc + q;
            double sum = 0.0, size = 0.0;
            for (int64_t l = 0; l < g->k; l++) {
                const double term = a[at[0] + (g->trans_a ? l * g->lda + r : r * g->lda + l)] *
                                    b[at[1] + (g->trans_b ? q * g->ldb + l : l * g->ldb + q)];
                sum += term;
                size += fabs(term);
            }
            const double alpha = (double)g->alpha, beta = (double)g->beta;
            const double old = beta > 0.0 ? beta * dtp_element(g->c_type, s->c.data, e) : 0.0;
            const double want = alpha * sum + old, out = dtp_element(g->c_type, got, e);
            const double bound = (double)(g->k + 8) * 0x1p-24 * (fabs(alpha) * size + fabs(old)) +
                                 1.01 * roundoff(g->c_type) * fabs(want) + 0x1p-25;
            worst = isfinite(out) ? fmax(worst, fabs(out - want) / bound) : (double)INFINITY;
            inside[e] = 1;
        }
    }
    for (int64_t e = 0; e < s->c.elems; e++) {
        const size_t from = (size_t)(e * bytes);
        if (!inside[e] &&
            memcmp((const char *)got + from, (char *)s->c.data + from, (size_t)bytes) != 0) {
            worst = (double)INFINITY;
        }
    }
    free(inside);
    free(a);
    free(b);
    return worst;
}

/* A copy of C in which the product ran; what beta = 0 ignores is NaN. */
static void *run_once(const sample *s, const dtp_gemm_plan *plan)
{
    const size_t bytes = (size_t)(s->c.elems * dtp_dtype_bytes(s->g.c_type));
    void *out = malloc(bytes + 1);
    assert_non_null(out);
    memcpy(out, s->c.data, bytes);
    for (int64_t t = 0; t < s->n_batch && !(s->g.beta > 0.0f); t++) {
        int64_t at[3];
        starts(&s->batch, t, at);
        for (int64_t i = 0; i < s->g.m * s->g.n; i++) {
            dtp_element_set(s->g.c_type, out, at[2] + i / s->g.n * s->g.ldc + i % s->g.n,
                            (double)NAN);
        }
    }
    dtp_gemm_plan_run(plan, s->a.data, s->b.data, out);
    return out;
}

static void check_sample(const sample *s, const char *provider, uint64_t seed, int *taken)
{
    dtp_scratch scratch = {0};
    const dtp_gemm_options options = {
        .threads = s->threads, .provider = provider, .scratch = &scratch};
    dtp_gemm_plan *plan = NULL;
    dtp_err err = {0};
    const dtp_status status = dtp_gemm_plan_create(&s->g, &s->batch, &options, &plan, &err);
    if (status == DTP_UNSUPPORTED) {
        return;
    }
    assert_int_equal(status, DTP_OK);
    assert_string_equal(dtp_gemm_plan_provider(plan), provider);
    ++*taken;
    void *first = run_once(s, plan), *second = run_once(s, plan);
    const double worst = worst_error(s, first);
    const size_t bytes = (size_t)(s->c.elems * dtp_dtype_bytes(s->g.c_type));
    if (worst > 1.0 || memcmp(first, second, bytes) != 0) {
        fail_msg("seed %llu, %s, %s to %s, m %lld n %lld k %lld, trans %d %d, alpha %g beta %g, "
                 "%lld products, %d threads: %g of the bound",
                 (unsigned long long)seed, provider, dtp_dtype_name(s->g.ab_type),
                 dtp_dtype_name(s->g.c_type), (long long)s->g.m, (long long)s->g.n,
                 (long long)s->g.k, s->g.trans_a, s->g.trans_b, (double)s->g.alpha,
                 (double)s->g.beta, (long long)s->n_batch, s->threads, worst);
    }
    free(first);
    free(second);
    dtp_gemm_plan_destroy(plan);
    dtp_scratch_free(&scratch);
}

static void test_gemm__providers_against_naive(void **unused)
{
    (void)unused;
    const char *text = getenv("DTP_TEST_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 1;
    int taken[N_PROVIDERS] = {0};
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 60; i++) {
        for (int t = 0; t < N_TYPES; t++) {
            draws d = {.seed = seed + (uint64_t)(i * N_TYPES + t), .at = seed};
            sample s = make_sample(&d, TYPES[t]);
            spoil_gaps(&s);
            for (int p = 0; p < N_PROVIDERS; p++) {
                check_sample(&s, PROVIDERS[p], d.seed, &taken[p]);
            }
            drop_sample(&s);
        }
    }
    print_message("openblas %d, onednn %d, widened %d\n", taken[0], taken[1], taken[2]);
    assert_int_equal(taken[0], 60);
    assert_int_equal(taken[2], 240);
}

/* ---- the rule ---- */

static const char *provider_of(const dtp_gemm_desc *g, int32_t threads, const char *asked,
                               dtp_scratch *scratch)
{
    const dtp_gemm_options options = {.threads = threads, .provider = asked, .scratch = scratch};
    dtp_gemm_plan *plan = NULL;
    if (dtp_gemm_plan_create(g, NULL, &options, &plan, NULL) != DTP_OK) {
        return "none";
    }
    const char *name = dtp_gemm_plan_provider(plan);
    dtp_gemm_plan_destroy(plan);
    return name;
}

static dtp_gemm_desc square(int64_t n, dtp_dtype ab, dtp_dtype c)
{
    return (dtp_gemm_desc){.m = n,
                           .n = n,
                           .k = n,
                           .alpha = 1.0f,
                           .lda = n,
                           .ldb = n,
                           .ldc = n,
                           .ab_type = ab,
                           .c_type = c};
}

static void test_gemm__rule(void **unused)
{
    (void)unused;
    dtp_scratch scratch = {0};
    for (int64_t n = 1; n < 3000; n = n * 3 + 1) {
        const dtp_gemm_desc f32 = square(n, DTP_F32, DTP_F32), f16 = square(n, DTP_F16, DTP_F32);
        const dtp_gemm_desc bf16 = square(n, DTP_BF16, DTP_BF16);
        assert_string_equal(provider_of(&f32, 1, NULL, &scratch), "openblas");
        assert_string_equal(provider_of(&f16, 1, NULL, &scratch), "widened");
        const bool has_onednn = strcmp(provider_of(&f32, 1, "onednn", &scratch), "onednn") == 0;
#if defined(__x86_64__)
        const bool bf16_too = has_onednn && __builtin_cpu_supports("avx512bf16");
        assert_string_equal(provider_of(&bf16, 1, NULL, &scratch), bf16_too ? "onednn" : "widened");
#endif
        assert_string_equal(provider_of(&f16, 1, "onednn", &scratch), "none");
        assert_string_equal(provider_of(&bf16, 1, "openblas", &scratch), "none");
    }
    dtp_scratch_free(&scratch);
}

static void test_gemm__unsupported(void **unused)
{
    (void)unused;
    const dtp_gemm_options options = {.threads = 1};
    dtp_gemm_plan *plan = NULL;
    dtp_err err = {0};
    const dtp_gemm_desc f64 = square(4, DTP_F64, DTP_F64), mixed = square(4, DTP_BF16, DTP_F16);
    assert_int_equal(dtp_gemm_plan_create(&f64, NULL, &options, &plan, &err), DTP_UNSUPPORTED);
    assert_string_equal(err.msg, "no matrix product of f64 to f64 on this processor");
    assert_int_equal(dtp_gemm_plan_create(&mixed, NULL, &options, &plan, &err), DTP_UNSUPPORTED);
    assert_string_equal(err.msg, "no matrix product of bf16 to f16 on this processor");
}

/* f32 needs no scratch memory, 16-bit products so much that oneDNN is never given up for it. */
static void test_gemm__scratch_is_bounded(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {1, 30, 700, 8192, 50257};
    for (int i = 0; i < 125 * 4 * 3; i++) {
        dtp_scratch scratch = {0};
        const int32_t threads = 1 << i % 3 * 2;
        dtp_gemm_desc g = square(1, DTP_BF16, i / 3 % 2 == 0 ? DTP_BF16 : DTP_F32);
        g.m = sizes[i / 12 % 5];
        g.n = sizes[i / 60 % 5];
        g.k = sizes[i / 300];
        g.trans_a = i / 6 % 2 == 1;
        g.trans_b = i % 7 < 3;
        g.lda = g.trans_a ? g.m : g.k;
        g.ldb = g.trans_b ? g.k : g.n;
        g.ldc = g.n;
        const char *expected = provider_of(&g, 1, "onednn", &scratch);
        expected = strcmp(expected, "none") == 0 ? "widened" : expected;
        assert_string_equal(provider_of(&g, threads, NULL, &scratch), expected);
        assert_true(scratch.bytes > 0 && scratch.bytes <= (size_t)threads * DTP_GEMM_SCRATCH_MOST);
        g.ab_type = g.c_type = DTP_F32;
        assert_string_equal(provider_of(&g, threads, NULL, NULL), "openblas");
        dtp_scratch_free(&scratch);
    }
}

/* ---- several callers ---- */

enum { CALLERS = 6, ROUNDS = 20 };

typedef struct caller {
    sample s;
    const char *provider;
    bool wrong;
} caller;

static void *run_rounds(void *user)
{
    caller *c = user;
    const size_t bytes = (size_t)(c->s.c.elems * dtp_dtype_bytes(c->s.g.c_type));
    void *first = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        dtp_scratch scratch = {0};
        const dtp_gemm_options options = {.threads = c->s.threads, .scratch = &scratch};
        dtp_gemm_plan *plan = NULL;
        if (dtp_gemm_plan_create(&c->s.g, &c->s.batch, &options, &plan, NULL) != DTP_OK) {
            c->wrong = true;
            break;
        }
        void *out = run_once(&c->s, plan);
        c->wrong = c->wrong || (first != NULL && memcmp(first, out, bytes) != 0);
        free(i > 0 ? out : NULL);
        first = i == 0 ? out : first;
        dtp_gemm_plan_destroy(plan);
        dtp_scratch_free(&scratch);
    }
    c->wrong = c->wrong || first == NULL || worst_error(&c->s, first) > 1.0;
    free(first);
    return NULL;
}

static void test_gemm__many_callers_at_once(void **unused)
{
    (void)unused;
    for (int t = 0; t < N_TYPES; t++) {
        caller callers[CALLERS] = {0};
        pthread_t id[CALLERS];
        for (int i = 0; i < CALLERS; i++) {
            draws d = {.seed = (uint64_t)(100 + i), .at = 7};
            callers[i].s = make_sample(&d, TYPES[t]);
            assert_int_equal(pthread_create(&id[i], NULL, run_rounds, &callers[i]), 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            assert_int_equal(pthread_join(id[i], NULL), 0);
            assert_false(callers[i].wrong);
            drop_sample(&callers[i].s);
        }
    }
}

/* ---- conversions ---- */

static void test_gemm__conversions(void **unused)
{
    (void)unused;
    for (uint32_t h = 0; h < 1U << 16; h++) {
        const uint16_t bits = (uint16_t)h;
        const float bf16 = (float)dtp_element(DTP_BF16, &bits, 0);
        const float f16 = (float)dtp_element(DTP_F16, &bits, 0);
        if (!isnan(bf16)) {
            assert_int_equal(dtp_bits_of_float(dtp_from_bf16(bits)), dtp_bits_of_float(bf16));
        }
        assert_int_equal(dtp_bits_of_float(dtp_from_f16(bits)), dtp_bits_of_float(f16));
    }
    for (uint64_t i = 0; i < 1U << 22; i++) {
        /* all exponents, with mantissas around halves of both types */
        const uint32_t bits = (uint32_t)(i << 10) + (uint32_t)(i % 7) - 3U;
        const float f = dtp_float_of_bits(bits);
        uint16_t bf16 = 0, f16 = 0;
        dtp_element_set(DTP_BF16, &bf16, 0, (double)f);
        dtp_element_set(DTP_F16, &f16, 0, (double)f);
        if (!isnan(f)) {
            assert_int_equal(dtp_to_bf16(f), bf16);
            assert_int_equal(dtp_to_f16(f), f16);
        }
        assert_int_equal(isnan(f) != 0, isnan(dtp_from_bf16(dtp_to_bf16(f))) != 0);
        assert_int_equal(isnan(f) != 0, isnan(dtp_from_f16(dtp_to_f16(f))) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm__conversions),
        cmocka_unit_test(test_gemm__rule),
        cmocka_unit_test(test_gemm__unsupported),
        cmocka_unit_test(test_gemm__providers_against_naive),
        cmocka_unit_test(test_gemm__many_callers_at_once),
        cmocka_unit_test(test_gemm__scratch_is_bounded),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
