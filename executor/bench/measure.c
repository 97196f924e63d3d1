/* Shared by the parts of the bench. */
#include "executor/bench/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/sort.h"
#include "executor/device/step_state.h"

enum { MIN_REPEATS = 3, MAX_REPEATS = 40 };

/* Of runs in a row. On a device their launches are hidden behind each other. Between hosts a link
 * lets more pass after a pause than it keeps up (tokens of a shaper, buffers on the way). */
static const double ROW_S = 1e-3, LINK_ROW_S = 100e-3;

char *dtp_bench_at(const dtp_bench *b, dtp_bench_pool_id pool, size_t bytes, int32_t repeat)
{
    size_t room = (b->pools[pool].bytes - bytes) / 64 + 1;
    size_t step = bytes / 64 + 1;
    return (char *)b->pools[pool].data + (size_t)repeat * step % room * 64;
}

/* What is timed: `runs` in a row, recorded or not. */
typedef struct row {
    dtp_bench_action action;
    void *user;
    bool events; /* of the compute queue tell the time, else the clock of the host */
    int32_t runs;
    dtp_recording *recording; /* of all of them; NULL: none */
} row;

static dtp_status run_row(dtp_bench *b, const row *r, int32_t repeat, dtp_err *err)
{
    if (r->recording != NULL) {
        return b->backend->ops->queue->recording_put(b->backend, r->recording, err);
    }
    for (int32_t i = 0; i < r->runs; i++) {
        DTP_TRY(r->action(r->user, repeat * r->runs + i, err));
    }
    return DTP_OK;
}

/* Seconds of a run. */
static dtp_status timed_run(dtp_bench *b, const row *r, int32_t repeat, double *time_s,
                            dtp_err *err)
{
    DTP_TRY(b->comm->ops->barrier(b->comm, err));
    DTP_TRY(r->events ? dtp_bench_mark(b, DTP_BENCH_BEGIN, err) : DTP_OK);
    double start = dtp_now_s();
    DTP_TRY(run_row(b, r, repeat, err));
    DTP_TRY(r->events ? dtp_bench_mark(b, DTP_BENCH_END, err) : DTP_OK);
    if (b->backend->ops->sync != NULL) {
        DTP_TRY(b->backend->ops->sync(b->backend, err));
    }
    *time_s = dtp_now_s() - start;
    DTP_TRY(r->events ? dtp_bench_seconds(b, DTP_BENCH_END, time_s, err) : DTP_OK);
    *time_s /= r->runs;
    return DTP_OK;
}

static bool over_link(const dtp_bench *b, dtp_sample_kind kind)
{
    return kind == DTP_SAMPLE_COLL && b->backend->ops->queue == NULL &&
           b->comm->transport.caps.asynchronous;
}

/* The lower decile, as disturbances only add to a time. Those of a collective between hosts belong
 * to it: every rank waits for whichever was disturbed, in each of the many of a step. Median. */
static dtp_status measure_row(dtp_bench *b, const row *r, int32_t repeats, dtp_sample sample,
                              dtp_err *err)
{
    double times[MAX_REPEATS] = {0.0};
    for (int32_t i = 0; i < repeats; i++) {
        DTP_TRY(timed_run(b, r, i + 2, &times[i], err));
    }
    qsort(times, (size_t)repeats, sizeof times[0], dtp_compare_doubles);
    sample.time_s = fmax(times[repeats / (over_link(b, sample.kind) ? 2 : 10)], 1e-9);
    sample.repeats = repeats;
    DTP_TRY(dtp_comm_all_reduce(b->comm, DTP_REDUCE_MAX, DTP_F64, 1, &sample.time_s, err));
    return dtp_bench_add(b, &sample, err);
}

static double row_s(const dtp_bench *b, dtp_sample_kind kind)
{
    return b->backend->ops->queue != NULL ? ROW_S : over_link(b, kind) ? LINK_ROW_S : 0.0;
}

dtp_status dtp_bench_measure(dtp_bench *b, dtp_bench_action action, void *user, dtp_sample sample,
                             dtp_err *err)
{
    const dtp_queue_ops *queue = b->backend->ops->queue;
    row r = {
        .action = action, .user = user, .runs = 1, .events = dtp_bench_by_events(b, sample.kind)};
    double run_s = INFINITY, host_s = INFINITY;
    for (int32_t i = 0; i < 2; i++) {
        double time_s;
        const double start = dtp_now_s();
        DTP_TRY(timed_run(b, &r, i, &time_s, err));
        run_s = fmin(run_s, time_s);
        host_s = fmin(host_s, dtp_now_s() - start);
    }
    double first[] = {run_s, host_s};
    DTP_TRY(dtp_comm_all_reduce(b->comm, DTP_REDUCE_MAX, DTP_F64, 2, first, err));
    const double in_row = row_s(b, sample.kind) / fmax(first[0], 1e-9);
    r.runs = (int32_t)fmin(fmax(in_row, 1.0), (double)b->scale->row);
    double wanted = b->sample_s / fmax(first[1] * r.runs, 1e-9);
    int32_t repeats = wanted < MIN_REPEATS   ? MIN_REPEATS
                      : wanted > MAX_REPEATS ? MAX_REPEATS
                                             : (int32_t)wanted;
    if (queue != NULL && sample.kind != DTP_SAMPLE_COLL && sample.kind != DTP_SAMPLE_LAUNCH) {
        DTP_TRY(dtp_bench_record(b, action, user, 2 * r.runs, r.runs, &r.recording, err));
    }
    const dtp_status status = measure_row(b, &r, repeats, sample, err);
    if (queue != NULL && r.recording != NULL) {
        queue->recording_destroy(b->backend, r.recording);
    }
    return status;
}

/* A node bound to pool memory. */
typedef struct kernel_case {
    dtp_bench *b;
    dtp_op_call call;
    dtp_call_types types;
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    size_t need[DTP_N_BENCH_POOLS]; /* bytes */
    dtp_step_state state;
    dtp_bound_kernel kernel;
} kernel_case;

static dtp_bench_pool_id pool_of(const dtp_ttype *type)
{
    return type->dtype == DTP_F32                              ? DTP_BENCH_FLOATS
           : type->dtype == DTP_BF16 || type->dtype == DTP_F16 ? DTP_BENCH_HALVES
           : type->dtype == DTP_BOOL                           ? DTP_BENCH_BOOLS
                                                               : DTP_BENCH_INTS;
}

static size_t rounded_bytes(const dtp_ttype *type)
{
    return ((size_t)dtp_ttype_bytes(type) + 63) / 64 * 64;
}

/* Whether the pools have what the call needs of each. */
static bool fits(kernel_case *c)
{
    bool all = true;
    for (int32_t i = 0; i < c->call.n_in; i++) {
        c->need[pool_of(&c->types.in[i])] += rounded_bytes(&c->types.in[i]);
    }
    for (int32_t i = 0; i < c->call.n_out; i++) {
        c->need[DTP_BENCH_RESULTS] += rounded_bytes(&c->types.out[i]);
    }
    c->need[DTP_BENCH_WORKSPACE] = (size_t)dtp_target_workspace(c->b->target, &c->call);
    for (int32_t p = 0; p < DTP_N_BENCH_POOLS; p++) {
        all = all && c->need[p] <= c->b->pools[p].bytes;
    }
    return all;
}

static dtp_status run_kernel(void *user, int32_t repeat, dtp_err *err)
{
    kernel_case *c = user;
    char *at[DTP_BENCH_WORKSPACE];
    for (int32_t p = 0; p < DTP_BENCH_WORKSPACE; p++) {
        at[p] = dtp_bench_at(c->b, (dtp_bench_pool_id)p, c->need[p], repeat);
    }
    for (int32_t i = 0; i < c->call.n_in; i++) {
        char **next = &at[pool_of(&c->types.in[i])];
        c->in[i].data = *next;
        *next += rounded_bytes(&c->types.in[i]);
    }
    for (int32_t i = 0; i < c->call.n_out; i++) {
        bool in_place = (c->call.op->flags & DTP_OP_UPDATE) != 0 && c->call.op->inplace_in[i] > 0;
        c->out[i].data =
            in_place ? c->in[c->call.op->inplace_in[i] - 1].data : at[DTP_BENCH_RESULTS];
        at[DTP_BENCH_RESULTS] += rounded_bytes(&c->types.out[i]);
    }
    return dtp_bound_kernel_run(&c->kernel, err);
}

static dtp_status measure_node(dtp_bench *b, dtp_graph *g, dtp_sample_kind kind, bool *done,
                               dtp_err *err)
{
    kernel_case c = {.b = b};
    dtp_sample sample = {.kind = kind};
    c.call = dtp_node_call(g, &g->nodes[0], &c.types);
    sample.arithmetic =
        dtp_product_arithmetic(dtp_call_dtype(&c.call), kind == DTP_SAMPLE_GEMM && b->tf32);
    dtp_target_work(b->target, &c.call, &sample.work);
    /* A transposition is another thing than a sum, though both are einsums. */
    bool copies = (c.call.op->flags & DTP_OP_CONTRACTION) != 0 && !(sample.work.flops > 0.0);
    sample.name = copies ? "einsum.copy" : c.call.op->name;
    *done = fits(&c) && (kind != DTP_SAMPLE_GEMM || sample.work.cls == DTP_WORK_GEMM);
    if (!*done || b->list != NULL) {
        if (*done) {
            dtp_bench_list_call(b, g, &sample);
        }
        return *done ? dtp_bench_add(b, &sample, err) : DTP_OK;
    }
    b->backend->tf32 = b->tf32;
    for (int32_t i = 0; i < c.call.n_in; i++) {
        c.in[i] = dtp_view_whole(&c.types.in[i]);
    }
    for (int32_t i = 0; i < c.call.n_out; i++) {
        c.out[i] = dtp_view_whole(&c.types.out[i]);
    }
    dtp_kernel_args args = {.call = &c.call,
                            .in = c.in,
                            .out = c.out,
                            .workspace = b->pools[DTP_BENCH_WORKSPACE].data,
                            .workspace_bytes = (int64_t)c.need[DTP_BENCH_WORKSPACE]};
    DTP_TRY(dtp_step_state_init(&c.state, b->backend, 1, err));
    dtp_step_state_link(&c.state, &args);
    c.state.record.microbatch = 1; /* `accumulate` adds */
    dtp_status status = dtp_backend_bind(b->backend, &args, g->arena, &c.kernel, err);
    status = status == DTP_OK ? dtp_step_state_put(&c.state, err) : status;
    if (status != DTP_OK) {
        dtp_err_prefix(err, "bench");
    } else {
        status = kind == DTP_SAMPLE_BESIDE
                     ? dtp_bench_measure_beside(b, run_kernel, &c, sample, err)
                     : dtp_bench_measure(b, run_kernel, &c, sample, err);
    }
    dtp_step_state_free(&c.state);
    b->backend->tf32 = false;
    return status;
}

dtp_status dtp_bench_measure_recipe(dtp_bench *b, const dtp_bench_recipe *recipe,
                                    const dtp_bench_sizes *sizes, dtp_dtype dtype,
                                    dtp_sample_kind kind, bool *done, dtp_err *err)
{
    dtp_graph *g = NULL;
    const bool half = dtp_dtype_is_half(dtype);
    dtp_status status = dtp_bench_recipe_graph(recipe, sizes, dtype, DTP_BENCH_BELOW, &g, err);
    if (half && status == DTP_INVALID) { /* the op takes no 16-bit floats */
        dtp_err_clear(err);
        *done = false;
        return DTP_OK;
    }
    DTP_TRY(status);
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(g, &g->nodes[0], &types);
    *done = !half || dtp_dtype_is_half(dtp_call_dtype(&call));
    status = *done ? measure_node(b, g, kind, done, err) : DTP_OK;
    dtp_graph_destroy(g);
    return status;
}
