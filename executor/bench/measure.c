#include "executor/bench/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

enum { MIN_REPEATS = 3, MAX_REPEATS = 40 };

size_t dtp_bench_offset(const dtp_bench_pool *pool, size_t bytes, int32_t repeat)
{
    size_t room = (pool->bytes - bytes) / 64 + 1;
    size_t step = bytes / 64 + 1;
    return (size_t)repeat * step % room * 64;
}

static dtp_status timed_run(dtp_bench *b, dtp_bench_action action, void *user, int32_t repeat,
                            double *time_s, dtp_err *err)
{
    DTP_TRY(b->comm->ops->barrier(b->comm, err));
    double start = dtp_now_s();
    DTP_TRY(action(user, repeat, err));
    if (b->backend->ops->sync != NULL) {
        DTP_TRY(b->backend->ops->sync(b->backend, err));
    }
    *time_s = dtp_now_s() - start;
    return DTP_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

dtp_status dtp_bench_measure(dtp_bench *b, dtp_bench_action action, void *user, dtp_sample sample,
                             dtp_err *err)
{
    double times[MAX_REPEATS];
    double first = 0.0;
    DTP_TRY(timed_run(b, action, user, 0, &first, err));
    DTP_TRY(timed_run(b, action, user, 1, &first, err));
    DTP_TRY(dtp_comm_all_reduce(b->comm, DTP_REDUCE_MAX, DTP_F64, 1, &first, err));
    double wanted = b->sample_s / fmax(first, 1e-9);
    int32_t repeats = wanted < MIN_REPEATS   ? MIN_REPEATS
                      : wanted > MAX_REPEATS ? MAX_REPEATS
                                             : (int32_t)wanted;
    for (int32_t i = 0; i < repeats; i++) {
        DTP_TRY(timed_run(b, action, user, i + 2, &times[i], err));
    }
    qsort(times, (size_t)repeats, sizeof times[0], ascending);
    sample.time_s = fmax(times[repeats / 10], 1e-9);
    sample.repeats = repeats;
    DTP_TRY(dtp_comm_all_reduce(b->comm, DTP_REDUCE_MAX, DTP_F64, 1, &sample.time_s, err));
    if (b->samples->n == b->samples->capacity) {
        int32_t capacity = b->samples->capacity > 0 ? 2 * b->samples->capacity : 256;
        dtp_sample *items = realloc(b->samples->items, (size_t)capacity * sizeof *items);
        DTP_TRY(DTP_MEMORY(err, items));
        b->samples->items = items;
        b->samples->capacity = capacity;
    }
    b->samples->items[b->samples->n++] = sample;
    return DTP_OK;
}

/* A node bound to pool memory. */
typedef struct kernel_case {
    dtp_bench *b;
    dtp_kernel_fn kernel;
    dtp_op_call call;
    dtp_call_types types;
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_kernel_args args;
} kernel_case;

static dtp_bench_pool *pool_of(dtp_bench *b, const dtp_ttype *type)
{
    return type->dtype == DTP_F32 ? &b->floats : type->dtype == DTP_BOOL ? &b->bools : &b->ints;
}

static size_t rounded_bytes(const dtp_ttype *type)
{
    return ((size_t)dtp_ttype_bytes(type) + 63) / 64 * 64;
}

/* Bytes of the inputs in one pool, or of the outputs (pool NULL). */
static size_t need_bytes(kernel_case *c, const dtp_bench_pool *pool)
{
    size_t sum = 0;
    if (pool == NULL) {
        for (int32_t i = 0; i < c->call.n_out; i++) {
            sum += rounded_bytes(&c->types.out[i]);
        }
        return sum;
    }
    for (int32_t i = 0; i < c->call.n_in; i++) {
        sum += pool_of(c->b, &c->types.in[i]) == pool ? rounded_bytes(&c->types.in[i]) : 0;
    }
    return sum;
}

static bool fits(kernel_case *c)
{
    dtp_bench *b = c->b;
    int64_t workspace = c->call.op->workspace != NULL ? c->call.op->workspace(&c->call) : 0;
    c->args.workspace_bytes = workspace;
    return need_bytes(c, &b->floats) <= b->floats.bytes &&
           need_bytes(c, &b->ints) <= b->ints.bytes && need_bytes(c, &b->bools) <= b->bools.bytes &&
           need_bytes(c, NULL) <= b->results.bytes && (uint64_t)workspace <= b->workspace.bytes;
}

static void place_inputs(kernel_case *c, dtp_bench_pool *pool, int32_t repeat)
{
    char *at = (char *)pool->data + dtp_bench_offset(pool, need_bytes(c, pool), repeat);
    for (int32_t i = 0; i < c->call.n_in; i++) {
        if (pool_of(c->b, &c->types.in[i]) == pool) {
            c->in[i].data = at;
            at += rounded_bytes(&c->types.in[i]);
        }
    }
}

static dtp_status run_kernel(void *user, int32_t repeat, dtp_err *err)
{
    kernel_case *c = user;
    dtp_bench *b = c->b;
    place_inputs(c, &b->floats, repeat);
    place_inputs(c, &b->ints, repeat);
    place_inputs(c, &b->bools, repeat);
    char *at = (char *)b->results.data + dtp_bench_offset(&b->results, need_bytes(c, NULL), repeat);
    for (int32_t i = 0; i < c->call.n_out; i++) {
        bool in_place = (c->call.op->flags & DTP_OP_UPDATE) != 0 && c->call.op->inplace_in[i] > 0;
        c->out[i].data = in_place ? c->in[c->call.op->inplace_in[i] - 1].data : at;
        at += rounded_bytes(&c->types.out[i]);
    }
    c->args.workspace = b->workspace.data;
    return c->kernel(&c->args, err);
}

static dtp_status measure_node(dtp_bench *b, const dtp_graph *g, dtp_sample_kind kind, bool *done,
                               dtp_err *err)
{
    kernel_case c = {.b = b};
    dtp_sample sample = {.kind = kind};
    c.call = dtp_node_call(g, &g->nodes[0], &c.types);
    c.kernel = dtp_backend_kernel(b->backend, c.call.op->name);
    if (c.kernel == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "bench: the '%s' backend has no kernel for op '%s'",
                        b->backend->ops->name, c.call.op->name);
    }
    DTP_TRY(dtp_backend_check(b->backend, &c.call, err));
    dtp_call_work(&c.call, &sample.work);
    /* A transposition is another thing than a sum, though both are einsums. */
    bool copies = (c.call.op->flags & DTP_OP_CONTRACTION) != 0 && !(sample.work.flops > 0.0);
    sample.name = copies ? "einsum.copy" : c.call.op->name;
    *done = fits(&c) && (kind != DTP_SAMPLE_GEMM || sample.work.cls == DTP_WORK_GEMM);
    if (!*done) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < c.call.n_in; i++) {
        c.in[i] = dtp_view_whole(&c.types.in[i]);
    }
    for (int32_t i = 0; i < c.call.n_out; i++) {
        c.out[i] = dtp_view_whole(&c.types.out[i]);
    }
    int64_t workspace_bytes = c.args.workspace_bytes;
    c.args = (dtp_kernel_args){.call = &c.call,
                               .in = c.in,
                               .out = c.out,
                               .workspace_bytes = workspace_bytes,
                               .threads = b->backend->threads};
    return dtp_bench_measure(b, run_kernel, &c, sample, err);
}

dtp_status dtp_bench_measure_recipe(dtp_bench *b, const dtp_bench_recipe *recipe,
                                    const dtp_bench_sizes *sizes, dtp_sample_kind kind, bool *done,
                                    dtp_err *err)
{
    dtp_graph *g = NULL;
    DTP_TRY(dtp_bench_recipe_graph(recipe, sizes, DTP_BENCH_BELOW, &g, err));
    dtp_status status = measure_node(b, g, kind, done, err);
    dtp_graph_destroy(g);
    return status;
}
