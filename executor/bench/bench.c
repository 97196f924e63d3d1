/* Measures the machine on the real ranks: GEMMs, memory-bound ops, staging copies and
 * collectives. */
#include "executor/bench/bench.h"

#include <stdlib.h>

#include "executor/bench/measure.h"

enum { EXPECTED_SAMPLES = 4000, EXPECTED_SAMPLES_QUICK = 1600 };

dtp_bench_options dtp_bench_options_init(bool quick)
{
    return (dtp_bench_options){.budget_s = quick ? 20.0 : 60.0, .quick = quick};
}

/* Element i of a pool is that of its pattern. */
static void fill_pattern(dtp_dtype dtype, int32_t n, void *chunk)
{
    for (int32_t i = 0; i < n; i++) {
        if (dtype == DTP_F32) {
            ((float *)chunk)[i] = (float)(i * 37 % 1021 + 1) / 1024.0F;
        } else if (dtype == DTP_BF16) {
            ((uint16_t *)chunk)[i] = (uint16_t)(0x3f80 + i * 37 % 128); /* in f16 1.875 to 2 */
        } else if (dtype == DTP_I32) {
            ((int32_t *)chunk)[i] = i * 37 % DTP_BENCH_BELOW;
        } else {
            ((unsigned char *)chunk)[i] = (unsigned char)(i * 37 % 5 % 2);
        }
    }
}

/* Allocates a pool and repeats one period of its pattern in it. */
static dtp_status make_pool(dtp_bench *b, size_t bytes, dtp_dtype dtype, dtp_bench_pool *pool,
                            dtp_err *err)
{
    enum { PERIOD = 1 << 16 };
    const size_t period = (size_t)dtp_dtype_bytes(dtype) * PERIOD;
    DTP_TRY(b->backend->ops->alloc(b->backend, bytes, &pool->data, err));
    pool->bytes = bytes;
    void *chunk = malloc(period);
    DTP_TRY(DTP_MEMORY(err, chunk));
    fill_pattern(dtype, PERIOD, chunk);
    dtp_status status = DTP_OK;
    for (size_t at = 0; at < bytes && status == DTP_OK; at += period) {
        const size_t n = bytes - at < period ? bytes - at : period;
        status = b->backend->ops->upload(b->backend, (char *)pool->data + at, chunk, n, err);
    }
    free(chunk);
    return status;
}

static dtp_status run_parts(dtp_bench *b, dtp_err *err)
{
    const bool op = b->options.op != NULL, coll = b->options.collective != NULL, all = !op && !coll;
    const struct {
        const char *name;
        bool skip;
        dtp_status (*run)(dtp_bench *b, dtp_err *err);
    } parts[] = {{"gemm", b->options.no_kernels || !all, dtp_bench_gemms},
                 {"peaks", !op, dtp_bench_peaks},
                 {"ops", b->options.no_kernels || coll, dtp_bench_ops},
                 {"moves", !all, dtp_bench_moves},
                 {"collectives", op, dtp_bench_collectives},
                 {"overlap", !all, dtp_bench_beside}};
    static const dtp_dtype of_pool[DTP_N_BENCH_POOLS] = {
        [DTP_BENCH_FLOATS] = DTP_F32,  [DTP_BENCH_HALVES] = DTP_BF16,
        [DTP_BENCH_INTS] = DTP_I32,    [DTP_BENCH_BOOLS] = DTP_BOOL,
        [DTP_BENCH_RESULTS] = DTP_F32, [DTP_BENCH_WORKSPACE] = DTP_F32};
    if (b->comm != NULL && b->comm->size > 1) {
        dtp_transport *t = &b->comm->transport;
        DTP_TRY(t->ops->prepare(t, dtp_comm_all(b->comm), err));
    }
    for (int32_t i = 0; b->backend != NULL && b->device && i < DTP_N_BENCH_EVENTS; i++) {
        DTP_TRY(b->backend->ops->queue->event_create(b->backend, &b->events[i], err));
    }
    for (int32_t i = 0; i < DTP_N_BENCH_POOLS; i++) {
        b->pools[i].bytes = (size_t)b->scale->pool_mib[i] << 20;
        DTP_TRY(b->backend != NULL ? make_pool(b, b->pools[i].bytes, of_pool[i], &b->pools[i], err)
                                   : DTP_OK);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].skip) {
            if (b->options.progress != NULL) {
                b->options.progress(b->options.user, parts[i].name, b->samples->n);
            }
            DTP_TRY(parts[i].run(b, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_bench_run(dtp_comm *comm, dtp_backend *backend, const dtp_bench_options *options,
                         dtp_samples *out, dtp_err *err)
{
    *out = (dtp_samples){.ranks = comm->size, .threads = backend->threads};
    dtp_bench b = {.comm = comm,
                   .backend = backend,
                   .mesh = &comm->mesh,
                   .device = backend->ops->queue != NULL,
                   .target = dtp_target_of_backend(backend->ops->name),
                   .options = *options,
                   .scale = options->scale,
                   .samples = out};
    if (b.scale == NULL) {
        b.scale = dtp_bench_scale_of(backend->ops->queue != NULL, options->quick);
    }
    b.sample_s = options->budget_s / (options->quick ? EXPECTED_SAMPLES_QUICK : EXPECTED_SAMPLES);
    dtp_status status = run_parts(&b, err);
    for (int32_t i = 0; i < DTP_N_BENCH_POOLS; i++) {
        if (b.pools[i].data != NULL) {
            backend->ops->free(backend, b.pools[i].data, b.pools[i].bytes);
        }
    }
    for (int32_t i = 0; i < DTP_N_BENCH_EVENTS; i++) {
        if (b.events[i] != NULL) {
            backend->ops->queue->event_destroy(backend, b.events[i]);
        }
    }
    if (status != DTP_OK) {
        dtp_bench_samples_free(out);
    }
    return status;
}

dtp_status dtp_bench_list(const dtp_target *target, const dtp_mesh *mesh, bool device,
                          const dtp_bench_options *options, dtp_json_writer *w, dtp_samples *out,
                          dtp_err *err)
{
    *out = (dtp_samples){.ranks = dtp_mesh_ranks(mesh)};
    dtp_bench b = {.mesh = mesh,
                   .target = target,
                   .device = device,
                   .options = *options,
                   .scale = options->scale != NULL ? options->scale
                                                   : dtp_bench_scale_of(device, options->quick),
                   .samples = out,
                   .list = w};
    dtp_json_begin_array(w, "samples", false);
    const dtp_status s = run_parts(&b, err);
    dtp_json_end_array(w);
    if (s != DTP_OK) {
        dtp_bench_samples_free(out);
    }
    return s;
}
