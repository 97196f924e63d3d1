/* Matrix products of one training step of models/gpt2_small.json (batch 4, length 256) in f32 and
 * in 16-bit floats, by every provider of executor/cpu/gemm/gemm.h, measured in turn in one run. Not
 * a test: prints a table. One thread is timed by its processor time, which other programs on the
 * machine do not stretch; more threads by the clock. bench_precision [THREADS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executor/cpu/gemm/blas.h"
#include "executor/cpu/gemm/gemm.h"

enum { TOKENS = 4 * 256, WIDTH = 768, FF = 4 * WIDTH, VOCAB = 50257, LAYERS = 12, ROUNDS = 5 };

typedef struct product {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
    int32_t count; /* in a step */
} product;

/* y = x w, dx = dy w', dw = x' dy; four projections of attention. */
static const product PRODUCTS[] = {
    {"projection", TOKENS, WIDTH, WIDTH, false, false, 4 * LAYERS},
    {"projection, dx", TOKENS, WIDTH, WIDTH, false, true, 4 * LAYERS},
    {"projection, dw", WIDTH, WIDTH, TOKENS, true, false, 4 * LAYERS},
    {"up", TOKENS, FF, WIDTH, false, false, LAYERS},
    {"up, dx", TOKENS, WIDTH, FF, false, true, LAYERS},
    {"up, dw", WIDTH, FF, TOKENS, true, false, LAYERS},
    {"down", TOKENS, WIDTH, FF, false, false, LAYERS},
    {"down, dx", TOKENS, FF, WIDTH, false, true, LAYERS},
    {"down, dw", FF, WIDTH, TOKENS, true, false, LAYERS},
    {"logits", TOKENS, VOCAB, WIDTH, false, true, 1},
    {"logits, dx", TOKENS, WIDTH, VOCAB, false, false, 1},
    {"logits, dw", VOCAB, WIDTH, TOKENS, true, false, 1},
};
enum { N_PRODUCTS = sizeof PRODUCTS / sizeof PRODUCTS[0] };

typedef struct way {
    const char *provider; /* NULL: by the rule */
    dtp_dtype type;
    const char *title;
} way;

static const way WAYS[] = {
    {"openblas", DTP_F32, "f32 openblas"}, {NULL, DTP_BF16, "bf16 by the rule"},
    {"onednn", DTP_F32, "f32 onednn"},     {"onednn", DTP_BF16, "bf16 onednn"},
    {"widened", DTP_BF16, "bf16 widened"}, {"widened", DTP_F16, "f16 widened"}};
enum { N_WAYS = sizeof WAYS / sizeof WAYS[0] };

static void fail(const char *message)
{
    (void)fprintf(stderr, "bench_precision: %s\n", message);
    exit(1);
}

static double now_s(int32_t threads)
{
    struct timespec t;
    (void)clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small numbers of a type. */
static void *make(dtp_dtype type, int64_t n)
{
    void *data = aligned_alloc(64, (size_t)(n * dtp_dtype_bytes(type) + 63) / 64 * 64);
    if (data == NULL) {
        fail("out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        if (type == DTP_F32) {
            ((float *)data)[i] = (float)(i % 17) / 16.0f;
        } else {
            ((uint16_t *)data)[i] = (uint16_t)(0x3c00 + i % 17); /* a normal number of both types */
        }
    }
    return data;
}

/* Least time of each way; below 0 where the processor cannot. */
static void measure(const product *p, int32_t threads, double least[N_WAYS])
{
    dtp_scratch scratch = {0};
    dtp_gemm_plan *plans[N_WAYS] = {NULL};
    void *a[DTP_N_DTYPES] = {NULL}, *b[DTP_N_DTYPES] = {NULL}, *c[DTP_N_DTYPES] = {NULL};
    for (int w = 0; w < N_WAYS; w++) {
        const dtp_dtype type = WAYS[w].type;
        const dtp_gemm_desc g = {.trans_a = p->trans_a,
                                 .trans_b = p->trans_b,
                                 .m = p->m,
                                 .n = p->n,
                                 .k = p->k,
                                 .alpha = 1.0f,
                                 .lda = p->trans_a ? p->m : p->k,
                                 .ldb = p->trans_b ? p->k : p->n,
                                 .ldc = p->n,
                                 .ab_type = type,
                                 .c_type = type};
        const dtp_gemm_options options = {threads, WAYS[w].provider, &scratch};
        dtp_err err = {0};
        const dtp_status s = dtp_gemm_plan_create(&g, NULL, &options, &plans[w], &err);
        if (s != DTP_OK && s != DTP_UNSUPPORTED) {
            fail(err.msg);
        }
        plans[w] = s == DTP_OK ? plans[w] : NULL;
        least[w] = s == DTP_OK ? 1e9 : -1.0;
        if (a[type] == NULL) {
            a[type] = make(type, p->m * p->k);
            b[type] = make(type, p->k * p->n);
            c[type] = make(type, p->m * p->n);
        }
    }
    for (int i = 0; i < ROUNDS * N_WAYS; i++) {
        const int w = i % N_WAYS;
        const dtp_dtype type = WAYS[w].type;
        if (plans[w] != NULL) {
            double t = now_s(threads);
            dtp_gemm_plan_run(plans[w], a[type], b[type], c[type]);
            t = now_s(threads) - t;
            least[w] = t < least[w] ? t : least[w];
        }
    }
    for (int d = 0; d < DTP_N_DTYPES; d++) {
        free(a[d]);
        free(b[d]);
        free(c[d]);
    }
    for (int w = 0; w < N_WAYS; w++) {
        dtp_gemm_plan_destroy(plans[w]);
    }
    dtp_scratch_free(&scratch);
}

int main(int argc, char **argv)
{
    const int32_t threads = argc > 1 ? atoi(argv[1]) : 1;
    dtp_err err;
    if (threads < 1 || dtp_blas_load(&err) != DTP_OK) {
        fail(threads < 1 ? "bench_precision [THREADS]" : err.msg);
    }
    double steps[N_WAYS] = {0.0};
    printf("threads %d, OpenBLAS %s; GFLOP/s, in brackets the time relative to f32 by OpenBLAS\n\n",
           threads, dtp_blas_get()->corename());
    printf("%-16s %6s %6s %6s", "product", "m", "n", "k");
    for (int w = 0; w < N_WAYS; w++) {
        printf("  %16s", WAYS[w].title);
    }
    printf("\n");
    for (int i = 0; i < N_PRODUCTS; i++) {
        const product *p = &PRODUCTS[i];
        const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
        double least[N_WAYS];
        measure(p, threads, least);
        printf("%-16s %6lld %6lld %6lld", p->name, (long long)p->m, (long long)p->n,
               (long long)p->k);
        for (int w = 0; w < N_WAYS; w++) {
            if (least[w] < 0.0) {
                printf("  %16s", "-");
            } else {
                printf("  %8.1f (%5.2f)", flops / least[w] * 1e-9, least[w] / least[0]);
            }
            steps[w] = least[w] < 0.0 ? -1.0 : steps[w] + least[w] * p->count;
        }
        printf("\n");
        (void)fflush(stdout);
    }
    printf("%-37s", "all products of a step, ms");
    for (int w = 0; w < N_WAYS; w++) {
        if (steps[w] < 0.0) {
            printf("  %16s", "-");
        } else {
            printf("  %8.1f (%5.2f)", steps[w] * 1e3, steps[w] / steps[0]);
        }
    }
    printf("\n\n%s\n", steps[3] > 0.0
                           ? "bf16 runs on the processor's bf16 dot products, by oneDNN"
                           : "bf16 is no faster than f32 here: the processor has no bf16 dot "
                             "products (AVX512-BF16), or the program was built without oneDNN");
    return 0;
}
