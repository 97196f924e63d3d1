/* Shared by the parts of the bench. */
#ifndef DTP_EXECUTOR_BENCH_MEASURE_H
#define DTP_EXECUTOR_BENCH_MEASURE_H

#include "core/base/json_writer.h"
#include "core/graph/graph.h"
#include "executor/bench/bench.h"
#include "executor/bench/recipes.h"
#include "spmd/target/target.h"

/* Device memory that operands are placed in. */
typedef struct dtp_bench_pool {
    void *data;
    size_t bytes;
} dtp_bench_pool;

/* Points on the compute queue between which times lie. */
typedef enum dtp_bench_event {
    DTP_BENCH_BEGIN,
    DTP_BENCH_MID,
    DTP_BENCH_END,
    DTP_N_BENCH_EVENTS
} dtp_bench_event;

typedef struct dtp_bench {
    dtp_comm *comm; /* NULL in a list, and so is the backend */
    dtp_backend *backend;
    const dtp_mesh *mesh;
    const dtp_target *target; /* whose workspaces and work calls have */
    bool device;              /* has queues: launches in a recording are measured too */
    bool tf32;                /* products of f32 round their operands now */
    dtp_json_writer *list;    /* samples go here, and none is measured; else NULL */
    dtp_bench_options options;
    const dtp_bench_scale *scale;
    dtp_samples *samples;
    double sample_s;                       /* time that one sample may take */
    dtp_event *events[DTP_N_BENCH_EVENTS]; /* of a queue; else NULL */
    dtp_bench_pool pools[DTP_N_BENCH_POOLS];
} dtp_bench;

enum { DTP_BENCH_BELOW = 256 };

/* Something to be timed; `repeat` counts the runs of one sample from 0. */
typedef dtp_status (*dtp_bench_action)(void *user, int32_t repeat, dtp_err *err);

/* Runs the action behind barriers on all ranks and adds the sample with its time. On a device with
 * a queue, and of collectives between hosts, many runs follow each other, and the time is that of
 * one of them. On the queue they are recorded as one but for collectives and DTP_SAMPLE_LAUNCH. */
dtp_status dtp_bench_measure(dtp_bench *b, dtp_bench_action action, void *user, dtp_sample sample,
                             dtp_err *err) DTP_MUST_CHECK;

/* Where `bytes` of a pool lie at a repeat: a multiple of 64 that wanders through the pool. */
char *dtp_bench_at(const dtp_bench *b, dtp_bench_pool_id pool, size_t bytes, int32_t repeat);

/* Measures the node of a recipe with floats of a dtype; DTP_UNSUPPORTED when the backend does not
 * take it. *done is false when it does not fit the pools, and with 16-bit floats where the first
 * operand, by which calls are priced, is none. `kind` GEMM is taken only when the op runs as one
 * matrix product. */
dtp_status dtp_bench_measure_recipe(dtp_bench *b, const dtp_bench_recipe *recipe,
                                    const dtp_bench_sizes *sizes, dtp_dtype dtype,
                                    dtp_sample_kind kind, bool *done, dtp_err *err) DTP_MUST_CHECK;

/* The parts. */
dtp_status dtp_bench_gemms(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_bench_ops(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;
/* What an op is held against: a copy of the largest size, and the largest cube of a product. */
dtp_status dtp_bench_peaks(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_bench_moves(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_bench_collectives(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;
/* Nothing where collectives end as they start. */
dtp_status dtp_bench_beside(dtp_bench *b, dtp_err *err) DTP_MUST_CHECK;

/* Times by the events of the compute queue (executor/bench/queue.c). */
bool dtp_bench_by_events(const dtp_bench *b, dtp_sample_kind kind);
/* Puts an event there. Before the first one, ranks whose collectives are on the queues run one, so
 * that none waits for another behind it. */
dtp_status dtp_bench_mark(dtp_bench *b, dtp_bench_event event, dtp_err *err) DTP_MUST_CHECK;
/* Seconds from the first event to this one; the queue is idle. */
dtp_status dtp_bench_seconds(dtp_bench *b, dtp_bench_event to, double *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Records `runs` of an action, whose first has this number. The recording is the caller's. */
dtp_status dtp_bench_record(dtp_bench *b, dtp_bench_action action, void *user, int32_t first,
                            int32_t runs, dtp_recording **out, dtp_err *err) DTP_MUST_CHECK;

/* A call, in the list of calls that another program measures (executor/bench/list.c). */
void dtp_bench_list_call(dtp_bench *b, const dtp_graph *g, const dtp_sample *sample);
void dtp_bench_list_move(dtp_bench *b, const dtp_sample *sample, int64_t rows, int64_t cols);
void dtp_bench_list_collective(dtp_bench *b, const dtp_sample *sample);

/* Adds a sample that has its values. */
dtp_status dtp_bench_add(dtp_bench *b, const dtp_sample *sample, dtp_err *err) DTP_MUST_CHECK;
/* Measures an action beside collectives over all ranks, in executor/bench/beside.c. */
dtp_status dtp_bench_measure_beside(dtp_bench *b, dtp_bench_action action, void *user,
                                    dtp_sample sample, dtp_err *err) DTP_MUST_CHECK;

#endif
