/* Measures the machine on the real ranks: GEMMs, memory-bound ops, staging copies and collectives.
 *
 * All ranks call it together and run every sample at the same time behind a barrier, so that a
 * kernel is measured while its neighbours load the memory as they will in a training step. A sample
 * is the lower decile over its repeats (other processes only ever disturb one way), of collectives
 * between hosts the median, of the slowest rank. Operands move through a pool larger than the
 * private caches from repeat to repeat: like in a training step, they were last touched a while
 * ago.
 *
 * On a device with queues, times are those between events of its compute queue. Kernels and copies
 * are recorded there and run as the runner runs them, as a CUDA graph; the launch outside of one is
 * measured too.
 */
#ifndef DTP_EXECUTOR_BENCH_BENCH_H
#define DTP_EXECUTOR_BENCH_BENCH_H

#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "executor/device/backend.h"
#include "executor/comm/communicator.h"
#include "spmd/program/samples.h"
#include "spmd/target/target.h"

enum { DTP_BENCH_GRID = 8 };

typedef struct dtp_bench_grid {
    int32_t n;
    int64_t sizes[DTP_BENCH_GRID];
} dtp_bench_grid;

/* Memory of the device. Operands are read from the first four, by their element type. */
typedef enum dtp_bench_pool_id {
    DTP_BENCH_FLOATS, /* f32 in (0, 1], read only apart from in-place updates */
    DTP_BENCH_HALVES, /* 16-bit floats: bits that are numbers in [1, 2) of either type */
    DTP_BENCH_INTS,   /* i32 in [0, DTP_BENCH_BELOW) */
    DTP_BENCH_BOOLS,  /* bytes 0 and 1 */
    DTP_BENCH_RESULTS,
    DTP_BENCH_WORKSPACE,
    DTP_N_BENCH_POOLS
} dtp_bench_pool_id;

/* How much a device is given to do (executor/bench/scale.c). */
typedef struct dtp_bench_scale {
    int32_t pool_mib[DTP_N_BENCH_POOLS];
    dtp_bench_grid gemm, gemm_halves; /* m, n and k, of f32; of 16-bit floats and tf32 */
    /* Products of one call, and their m, n and k. None where a call takes as long as its products
     * one by one. */
    dtp_bench_grid batches, gemm_batched;
    int64_t gemm_volume; /* most multiply-adds of one call */
    int32_t row;         /* most runs in a row */
    dtp_bench_grid op_elems;
    int64_t coll_least, coll_bytes;    /* least and most of a collective */
    int64_t coll_factor;               /* from one size of a collective to the next */
    int64_t beside_bytes, beside_size; /* of each collective and of the products beside them */
} dtp_bench_scale;

/* The scale of hosts and of devices with a queue, with coarser grids or not. */
const dtp_bench_scale *dtp_bench_scale_of(bool device, bool quick);
/* Sizes of collectives, or of the largest operand of an op, from `least` bytes to `most`, and pools
 * that hold them; products as usual. 1 <= least <= most <= DTP_BENCH_MOST_BYTES. */
enum { DTP_BENCH_MOST_BYTES = 1 << 30 };
dtp_bench_scale dtp_bench_scale_between(const dtp_bench_scale *usual, int64_t least, int64_t most);
/* The least from which a machine can be fitted: for tests of the bench itself. */
extern const dtp_bench_scale dtp_bench_scale_tiny;

typedef struct dtp_bench_options {
    double budget_s;              /* about how long all of it may take */
    bool quick;                   /* coarser grids */
    const dtp_bench_scale *scale; /* NULL: that of the backend */
    bool no_kernels;              /* only moves and collectives */
    /* Of an op or a kind of collective (dtp_coll_name) alone, with a copy and, of an op, a product
     * to hold it against; NULL: everything. */
    const char *op, *collective;
    /* Called on every rank before each part with its name and the samples so far; NULL: silent. */
    void (*progress)(void *user, const char *part, int32_t samples);
    void *user;
} dtp_bench_options;

/* Everything, 60 s; with quick 20 s. */
dtp_bench_options dtp_bench_options_init(bool quick);

/* Collective over all ranks; all get the same samples. Groups are those over the sets of mesh dims
 * of the communicator, one per group size. Failures of kernels and communicator come back as they
 * are. */
dtp_status dtp_bench_run(dtp_comm *comm, dtp_backend *backend, const dtp_bench_options *options,
                         dtp_samples *out, dtp_err *err) DTP_MUST_CHECK;
void dtp_bench_samples_free(dtp_samples *samples);

/* What dtp_bench_run would measure for a target on such ranks, none of it measured: samples without
 * times, and as member "samples" of an object that is open in `w` an object of each: kind, name,
 * operands. `device`: on the scale of cards. For a runtime that runs them itself. */
dtp_status dtp_bench_list(const dtp_target *target, const dtp_mesh *mesh, bool device,
                          const dtp_bench_options *options, dtp_json_writer *w, dtp_samples *out,
                          dtp_err *err) DTP_MUST_CHECK;
/* The times of such samples, in their order: seconds, or null of a sample that was not measured,
 * which goes. Of products beside collectives [seconds, factor of products, of collectives].
 * DTP_INVALID. */
dtp_status dtp_bench_take(dtp_samples *samples, const dtp_json *times, dtp_err *err) DTP_MUST_CHECK;

#endif
