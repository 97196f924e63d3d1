/* How much products and collectives slow each other down while both run.
 *
 * In turn: products alone, collectives alone, and both, the collectives started before the products
 * and waited for after them. There are so many products that they take about half as long as the
 * collectives, so they run beside them from first to last. With k, c the times alone, k' that of
 * products beside collectives and t that of both, the collectives got k'/f done beside the products
 * and the rest alone: t = k' + c - k'/f.
 *
 * The collectives are reduce-scatters and all-gathers of middle size, as in steps: beside products,
 * ranks that begin one wait longer for each other, which a single large one would hide. */
#include <math.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/sort.h"
#include "executor/bench/measure.h"

enum { ROUNDS = 9, MAX_PRODUCTS = 400, COLLECTIVES = 12 };

static const double MOST = 100.0; /* of a factor */

typedef struct beside {
    dtp_bench *b;
    dtp_bench_action action;
    void *user;
    dtp_coll colls[2];
    int32_t products;
    bool events; /* of the compute queue tell the time */
} beside;

static dtp_status run_products(const beside *x, dtp_err *err)
{
    for (int32_t i = 0; i < x->products; i++) {
        DTP_TRY(x->action(x->user, i, err));
    }
    return DTP_OK;
}

/* One after the other, so in the same memory. */
static dtp_status start_collectives(const beside *x, dtp_request *requests, dtp_err *err)
{
    dtp_transport *t = &x->b->comm->transport;
    char *pool = x->b->pools[DTP_BENCH_HALVES].data; /* of products in f32 none */
    const dtp_coll_ends ends = {pool, pool + x->b->scale->beside_bytes};
    for (int32_t i = 0; i < COLLECTIVES; i++) {
        DTP_TRY(t->ops->start(t, &x->colls[i % 2], &ends, &requests[i], err));
    }
    return DTP_OK;
}

static dtp_status wait_for_collectives(const beside *x, dtp_request *requests, dtp_err *err)
{
    dtp_transport *t = &x->b->comm->transport;
    for (int32_t i = 0; i < COLLECTIVES; i++) {
        DTP_TRY(t->ops->wait(t, &requests[i], err));
    }
    return DTP_OK;
}

static dtp_status sync(const beside *x, dtp_err *err)
{
    return x->b->backend->ops->sync != NULL ? x->b->backend->ops->sync(x->b->backend, err) : DTP_OK;
}

/* Seconds since `start`, or puts the event. */
static dtp_status mark(const beside *x, dtp_bench_event event, double start, double *time_s,
                       dtp_err *err)
{
    if (x->events) {
        return dtp_bench_mark(x->b, event, err);
    }
    DTP_TRY(sync(x, err));
    *time_s = dtp_now_s() - start;
    return DTP_OK;
}

/* Seconds until the products are done and until both are; of what is left out 0. */
static dtp_status run_round(const beside *x, bool products, bool collectives, double *products_s,
                            double *both_s, dtp_err *err)
{
    dtp_request requests[COLLECTIVES];
    DTP_TRY(x->b->comm->ops->barrier(x->b->comm, err));
    DTP_TRY(x->events ? dtp_bench_mark(x->b, DTP_BENCH_BEGIN, err) : DTP_OK);
    const double start = dtp_now_s();
    DTP_TRY(collectives ? start_collectives(x, requests, err) : DTP_OK);
    DTP_TRY(products ? run_products(x, err) : DTP_OK);
    DTP_TRY(mark(x, DTP_BENCH_MID, start, products_s, err));
    DTP_TRY(collectives ? wait_for_collectives(x, requests, err) : DTP_OK);
    DTP_TRY(mark(x, DTP_BENCH_END, start, both_s, err));
    if (x->events) {
        DTP_TRY(sync(x, err));
        DTP_TRY(dtp_bench_seconds(x->b, DTP_BENCH_MID, products_s, err));
        return dtp_bench_seconds(x->b, DTP_BENCH_END, both_s, err);
    }
    return DTP_OK;
}

/* The median of this rank, the longest of all ranks. */
static dtp_status settle_time(dtp_bench *b, double *times, double *out, dtp_err *err)
{
    qsort(times, ROUNDS, sizeof *times, dtp_compare_doubles);
    *out = fmax(times[ROUNDS / 2], 1e-9);
    return dtp_comm_all_reduce(b->comm, DTP_REDUCE_MAX, DTP_F64, 1, out, err);
}

static dtp_status choose_products(beside *x, dtp_err *err)
{
    double k, c, times[2][ROUNDS];
    x->products = 1;
    for (int32_t i = 0; i < ROUNDS; i++) {
        double unused;
        DTP_TRY(run_round(x, true, false, &times[0][i], &unused, err));
        DTP_TRY(run_round(x, false, true, &unused, &times[1][i], err));
    }
    DTP_TRY(settle_time(x->b, times[0], &k, err));
    DTP_TRY(settle_time(x->b, times[1], &c, err));
    const double n = fmax(1.0, c / 2.0 / k);
    x->products = n < (double)MAX_PRODUCTS ? (int32_t)n : MAX_PRODUCTS;
    return DTP_OK;
}

dtp_status dtp_bench_measure_beside(dtp_bench *b, dtp_bench_action action, void *user,
                                    dtp_sample sample, dtp_err *err)
{
    enum { ALONE, COLL, BESIDE, BOTH, N };
    double times[N][ROUNDS], of[N], unused;
    beside x = {.b = b, .action = action, .user = user};
    x.events = dtp_bench_by_events(b, DTP_SAMPLE_BESIDE);
    const dtp_mesh_set all = dtp_comm_all(b->comm);
    const int64_t elems = b->scale->beside_bytes / (int64_t)sizeof(float);
    for (int32_t i = 0; i < 2; i++) {
        x.colls[i] = (dtp_coll){.kind = i == 0 ? DTP_REDUCE_SCATTER : DTP_ALL_GATHER,
                                .set = all,
                                .op = DTP_REDUCE_SUM,
                                .dtype = DTP_F32,
                                .count = elems / dtp_mesh_set_size(&b->comm->mesh, all)};
    }
    DTP_TRY(choose_products(&x, err));
    for (int32_t i = 0; i < ROUNDS; i++) {
        DTP_TRY(run_round(&x, true, false, &times[ALONE][i], &unused, err));
        DTP_TRY(run_round(&x, false, true, &unused, &times[COLL][i], err));
        DTP_TRY(run_round(&x, true, true, &times[BESIDE][i], &times[BOTH][i], err));
    }
    for (int32_t k = 0; k < N; k++) {
        DTP_TRY(settle_time(b, times[k], &of[k], err));
    }
    const double done_s = of[BESIDE] + of[COLL] - of[BOTH]; /* of collectives, beside products */
    sample.slower[0] = fmin(fmax(of[BESIDE] / of[ALONE], 1.0), MOST);
    sample.slower[1] = done_s > of[BESIDE] / MOST ? fmax(of[BESIDE] / done_s, 1.0) : MOST;
    sample.time_s = of[BOTH];
    sample.repeats = ROUNDS;
    return dtp_bench_add(b, &sample, err);
}
