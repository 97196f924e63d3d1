#include "executor/bench/bench.h"

#include <stdlib.h>

#include "executor/bench/measure.h"

enum { MIB = 1 << 20, EXPECTED_SAMPLES = 3000, EXPECTED_SAMPLES_QUICK = 1200 };

dtp_bench_options dtp_bench_options_init(bool quick)
{
    return (dtp_bench_options){.budget_s = quick ? 20.0 : 60.0, .quick = quick};
}

void dtp_bench_samples_free(dtp_samples *samples)
{
    free(samples->items);
    *samples = (dtp_samples){0};
}

static dtp_status pool_create(dtp_bench *b, size_t bytes, dtp_bench_pool *pool, dtp_err *err)
{
    DTP_TRY(b->backend->ops->alloc(b->backend, bytes, &pool->data, err));
    pool->bytes = bytes;
    return DTP_OK;
}

static void pool_destroy(dtp_bench *b, dtp_bench_pool *pool)
{
    if (pool->data != NULL) {
        b->backend->ops->free(b->backend, pool->data, pool->bytes);
    }
}

/* Element i of each pool, one period of it. */
enum { PERIOD = 1 << 16 };

static void pattern_f32(void *chunk)
{
    float *p = chunk;
    for (int32_t i = 0; i < PERIOD; i++) {
        p[i] = (float)(i * 37 % 1021 + 1) / 1024.0F;
    }
}

static void pattern_i32(void *chunk)
{
    int32_t *p = chunk;
    for (int32_t i = 0; i < PERIOD; i++) {
        p[i] = i * 37 % DTP_BENCH_BELOW;
    }
}

static void pattern_bool(void *chunk)
{
    unsigned char *p = chunk;
    for (int32_t i = 0; i < PERIOD; i++) {
        p[i] = (unsigned char)(i * 37 % 5 % 2);
    }
}

static dtp_status pool_fill(dtp_bench *b, dtp_bench_pool *pool, size_t elem,
                            void (*pattern)(void *), dtp_err *err)
{
    size_t period = elem * PERIOD;
    void *chunk = malloc(period);
    DTP_TRY(DTP_MEMORY(err, chunk));
    pattern(chunk);
    dtp_status status = DTP_OK;
    for (size_t at = 0; at < pool->bytes && status == DTP_OK; at += period) {
        size_t n = pool->bytes - at < period ? pool->bytes - at : period;
        status = b->backend->ops->upload(b->backend, (char *)pool->data + at, chunk, n, err);
    }
    free(chunk);
    return status;
}

static dtp_status run_parts(dtp_bench *b, dtp_err *err)
{
    const struct {
        const char *name;
        bool skip;
        dtp_status (*run)(dtp_bench *b, dtp_err *err);
    } parts[] = {{"gemm", b->options.no_gemm, dtp_bench_gemms},
                 {"ops", b->options.no_ops, dtp_bench_ops},
                 {"moves", b->options.no_moves, dtp_bench_moves},
                 {"collectives", b->options.no_collectives, dtp_bench_collectives}};
    if (b->comm->size > 1) {
        DTP_TRY(b->comm->ops->prepare(b->comm, (1U << b->comm->mesh.n_dims) - 1U, err));
    }
    DTP_TRY(pool_create(b, (size_t)96 * MIB, &b->floats, err));
    DTP_TRY(pool_create(b, (size_t)16 * MIB, &b->ints, err));
    DTP_TRY(pool_create(b, (size_t)8 * MIB, &b->bools, err));
    DTP_TRY(pool_create(b, (size_t)72 * MIB, &b->results, err));
    DTP_TRY(pool_create(b, (size_t)72 * MIB, &b->workspace, err));
    DTP_TRY(pool_fill(b, &b->floats, sizeof(float), pattern_f32, err));
    DTP_TRY(pool_fill(b, &b->ints, sizeof(int32_t), pattern_i32, err));
    DTP_TRY(pool_fill(b, &b->bools, 1, pattern_bool, err));
    DTP_TRY(pool_fill(b, &b->results, sizeof(float), pattern_f32, err));
    DTP_TRY(pool_fill(b, &b->workspace, sizeof(float), pattern_f32, err));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].skip) {
            DTP_TRY(parts[i].run(b, err));
            if (b->options.progress != NULL) {
                b->options.progress(b->options.user, parts[i].name, b->samples->n);
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_bench_run(dtp_comm *comm, dtp_backend *backend, const dtp_bench_options *options,
                         dtp_samples *out, dtp_err *err)
{
    *out = (dtp_samples){.ranks = comm->size, .threads = backend->threads};
    dtp_bench b = {.comm = comm, .backend = backend, .options = *options, .samples = out};
    b.sample_s = options->budget_s / (options->quick ? EXPECTED_SAMPLES_QUICK : EXPECTED_SAMPLES);
    dtp_status status = run_parts(&b, err);
    pool_destroy(&b, &b.floats);
    pool_destroy(&b, &b.ints);
    pool_destroy(&b, &b.bools);
    pool_destroy(&b, &b.results);
    pool_destroy(&b, &b.workspace);
    if (status != DTP_OK) {
        dtp_bench_samples_free(out);
    }
    return status;
}
