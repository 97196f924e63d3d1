/* NCCL of the emulated device: ranks are threads, each with a device. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_emu.h"
#include "nccl.h"
#include "test_kernels.h"

enum { RANKS = 4, N = 96 };

/* What a rank knows; `fails` counts checks that failed, as cmocka knows one thread. */
struct rank {
    int me, fails;
    ncclUniqueId id;
    ncclComm_t comm;
    cudaStream_t stream;
    float *x, *y;
    float host[N * RANKS];
};

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_message("rank %d, line %d: %s\n", r->me, __LINE__, #condition);                  \
            r->fails++;                                                                            \
        }                                                                                          \
    } while (0)

static void open_rank(struct rank *r)
{
    CHECK(cudaSetDevice(r->me) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc((void **)&r->x, sizeof r->host) == cudaSuccess);
    CHECK(cudaMalloc((void **)&r->y, sizeof r->host) == cudaSuccess);
    CHECK(ncclCommInitRank(&r->comm, RANKS, r->id, r->me) == ncclSuccess);
}

static void close_rank(struct rank *r)
{
    CHECK(ncclCommDestroy(r->comm) == ncclSuccess);
    CHECK(cudaFree(r->x) == cudaSuccess);
    CHECK(cudaFree(r->y) == cudaSuccess);
    CHECK(cudaStreamDestroy(r->stream) == cudaSuccess);
}

/* x[i] = me + 1 + i everywhere. */
static void load(struct rank *r)
{
    for (int i = 0; i < N * RANKS; i++) {
        r->host[i] = (float)(r->me + 1 + i);
    }
    CHECK(cudaMemcpyAsync(r->x, r->host, sizeof r->host, cudaMemcpyHostToDevice, r->stream) ==
          cudaSuccess);
}

static void fetch(struct rank *r, const float *from)
{
    CHECK(cudaMemcpyAsync(r->host, from, sizeof r->host, cudaMemcpyDeviceToHost, r->stream) ==
          cudaSuccess);
    CHECK(cudaStreamSynchronize(r->stream) == cudaSuccess);
}

static void run_ranks(void *(*body)(void *), int ranks, int devices, uint64_t seed)
{
    static struct rank all[RANKS];
    pthread_t threads[RANKS];
    cuda_emu_reset();
    cuda_emu_seed(seed);
    cuda_emu_devices(devices);
    memset(all, 0, sizeof all);
    assert_int_equal(ncclGetUniqueId(&all[0].id), ncclSuccess);
    for (int i = 0; i < ranks; i++) {
        all[i].me = i;
        all[i].id = all[0].id;
        assert_int_equal(pthread_create(&threads[i], NULL, body, &all[i]), 0);
    }
    int fails = 0;
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        fails += all[i].fails;
    }
    assert_int_equal(fails, 0);
    struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.live_device + c.live_objects, 0);
}

static void *collectives(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    load(r);
    CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream) == ncclSuccess);
    fetch(r, r->y);
    CHECK(r->host[3] == 10 + 4 * 3 && r->host[N - 1] == 10 + 4 * (N - 1));
    CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclMax, r->comm, r->stream) == ncclSuccess);
    CHECK(ncclBroadcast(r->y, r->y, 1, ncclFloat, 2, r->comm, r->stream) == ncclSuccess);
    fetch(r, r->y);
    CHECK(r->host[3] == RANKS + 3);
    CHECK(ncclReduceScatter(r->x, r->y, N, ncclFloat, ncclAvg, r->comm, r->stream) == ncclSuccess);
    fetch(r, r->y);
    CHECK(r->host[5] == 2.5f + (float)(r->me * N + 5));
    /* in place */
    CHECK(ncclAllGather(r->x + r->me * N, r->x, N, ncclFloat, r->comm, r->stream) == ncclSuccess);
    fetch(r, r->x);
    for (int i = 0; i < RANKS; i++) {
        CHECK(r->host[i * N + 7] == (float)(i + 1 + i * N + 7));
    }
    close_rank(r);
    return NULL;
}

static void test_nccl__collectives_of_four_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        run_ranks(collectives, RANKS, RANKS, seed);
    }
}

/* All to all in a group, then around a ring. */
static void *messages(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    load(r);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < RANKS; i++) {
        CHECK(ncclSend(r->x + i * N, N, ncclFloat, i, r->comm, r->stream) == ncclSuccess);
        CHECK(ncclRecv(r->y + i * N, N, ncclFloat, i, r->comm, r->stream) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    fetch(r, r->y);
    for (int i = 0; i < RANKS; i++) {
        CHECK(r->host[i * N + 2] == (float)(i + 1 + r->me * N + 2));
    }
    int next = (r->me + 1) % RANKS, before = (r->me + RANKS - 1) % RANKS;
    if (r->me == 0) {
        CHECK(ncclSend(r->x, 1, ncclFloat, next, r->comm, r->stream) == ncclSuccess);
    }
    CHECK(ncclRecv(r->y, 1, ncclFloat, before, r->comm, r->stream) == ncclSuccess);
    CHECK(test_add(r->y, 1, 1, r->stream) == cudaSuccess);
    if (r->me > 0) {
        CHECK(ncclSend(r->y, 1, ncclFloat, next, r->comm, r->stream) == ncclSuccess);
    }
    fetch(r, r->y);
    CHECK(r->host[0] == 1 + (r->me == 0 ? RANKS : r->me));
    close_rank(r);
    return NULL;
}

static void test_nccl__messages(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        run_ranks(messages, RANKS, RANKS, seed);
    }
}

/* Rows and columns of a 2 x 2 mesh; buckets as groups; all in a captured graph. */
static void *split_and_capture(void *argument)
{
    struct rank *r = argument;
    ncclComm_t row, column, none;
    int n, me;
    open_rank(r);
    CHECK(ncclCommSplit(r->comm, r->me / 2, r->me % 2, &row, NULL) == ncclSuccess);
    CHECK(ncclCommSplit(r->comm, r->me % 2, -r->me, &column, NULL) == ncclSuccess);
    CHECK(ncclCommSplit(r->comm, r->me < 3 ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL) ==
          ncclSuccess);
    CHECK((none != NULL) == (r->me == 3));
    CHECK(ncclCommCount(row, &n) == ncclSuccess && n == 2);
    CHECK(ncclCommUserRank(column, &me) == ncclSuccess && me == 1 - r->me / 2);
    load(r);
    CHECK(cudaStreamSynchronize(r->stream) == cudaSuccess);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(r->x, r->x, 1, ncclFloat, ncclSum, row, r->stream) == ncclSuccess);
    CHECK(ncclAllReduce(r->x + 1, r->x + 1, 2, ncclFloat, ncclSum, row, r->stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclAllReduce(r->x, r->x, 3, ncclFloat, ncclSum, column, r->stream) == ncclSuccess);
    CHECK(cudaStreamEndCapture(r->stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, r->stream) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, r->stream) == cudaSuccess);
    fetch(r, r->x);
    CHECK(r->host[0] == 40 && r->host[2] == 72);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(ncclCommDestroy(row) == ncclSuccess);
    CHECK(ncclCommDestroy(column) == ncclSuccess);
    CHECK(!none || ncclCommDestroy(none) == ncclSuccess);
    close_rank(r);
    return NULL;
}

static void test_nccl__split_groups_and_capture(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        run_ranks(split_and_capture, RANKS, RANKS, seed);
    }
}

/* Waits for an error of the communicator, then aborts. */
static void expect_error(struct rank *r, ncclResult_t expected, const char *text)
{
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
        CHECK(ncclCommGetAsyncError(r->comm, &error) == ncclSuccess);
    }
    CHECK(error == expected);
    CHECK(strstr(ncclGetLastError(r->comm), text) != NULL);
}

static void close_aborted(struct rank *r)
{
    CHECK(ncclCommAbort(r->comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(r->stream) == cudaSuccess);
    CHECK(cudaFree(r->x) == cudaSuccess);
    CHECK(cudaFree(r->y) == cudaSuccess);
    CHECK(cudaStreamDestroy(r->stream) == cudaSuccess);
}

static void *other_count(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    cuda_emu_quiet(1);
    CHECK(ncclAllReduce(r->x, r->y, r->me == 2 ? N - 1 : N, ncclFloat, ncclSum, r->comm,
                        r->stream) == ncclSuccess);
    expect_error(r, ncclInvalidUsage, "differs between ranks");
    close_aborted(r);
    return NULL;
}

static void *other_order(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    cuda_emu_quiet(1);
    for (int i = 0; i < 2; i++) {
        if ((i == 0) == (r->me != 1)) {
            CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream) ==
                  ncclSuccess);
        } else {
            CHECK(ncclAllGather(r->x, r->y, N, ncclFloat, r->comm, r->stream) == ncclSuccess);
        }
    }
    expect_error(r, ncclInvalidUsage, "differs between ranks");
    close_aborted(r);
    return NULL;
}

/* Two communicators of the same ranks in one stream, in another order on rank 1. */
static void *crossed(void *argument)
{
    struct rank *r = argument;
    ncclComm_t second;
    open_rank(r);
    cuda_emu_quiet(1);
    CHECK(ncclCommSplit(r->comm, 0, r->me, &second, NULL) == ncclSuccess);
    for (int i = 0; i < 2; i++) {
        CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum,
                            (i == 0) == (r->me != 1) ? r->comm : second, r->stream) == ncclSuccess);
    }
    expect_error(r, ncclInvalidUsage, "different orders");
    CHECK(ncclCommAbort(second) == ncclSuccess);
    close_aborted(r);
    return NULL;
}

/* Rank 3 never calls; the others give up. */
static void *absent(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    if (r->me != 3) {
        CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream) == ncclSuccess);
        for (int i = 0; i < 50; i++) {
            CHECK(cudaStreamQuery(r->stream) == cudaErrorNotReady);
        }
    }
    close_aborted(r);
    return NULL;
}

/* Two calls of different kinds, which the fault swaps on rank 0. */
static void *swapped(void *argument)
{
    struct rank *r = argument;
    cuda_emu_quiet(1);
    cuda_emu_set_fault(CUDA_EMU_SWAP_CALLS, 1);
    open_rank(r);
    CHECK(ncclAllReduce(r->x, r->y, N, ncclFloat, ncclSum, r->comm, r->stream) == ncclSuccess);
    CHECK(ncclAllGather(r->x, r->y, N, ncclFloat, r->comm, r->stream) == ncclSuccess);
    expect_error(r, ncclInvalidUsage, "differs between ranks");
    close_aborted(r);
    return NULL;
}

static void test_nccl__mismatches_are_errors(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        run_ranks(other_count, RANKS, RANKS, seed);
        run_ranks(other_order, RANKS, RANKS, seed);
        run_ranks(crossed, RANKS, RANKS, seed);
        run_ranks(swapped, RANKS, RANKS, seed);
    }
}

static void test_nccl__absent_rank_blocks_until_abort(void **state)
{
    (void)state;
    run_ranks(absent, RANKS, RANKS, 1);
}

static void *one_device(void *argument)
{
    struct rank *r = argument;
    cuda_emu_quiet(1);
    CHECK(ncclCommInitRank(&r->comm, RANKS, r->id, r->me) == ncclInvalidUsage);
    CHECK(ncclCommAbort(r->comm) == ncclSuccess);
    return NULL;
}

static void *polled_init(void *argument)
{
    struct rank *r = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECK(cudaSetDevice(r->me) == cudaSuccess);
    ncclResult_t result = ncclCommInitRankConfig(&r->comm, RANKS, r->id, r->me, &config);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    while (result == ncclInProgress) {
        CHECK(ncclCommGetAsyncError(r->comm, &result) == ncclSuccess);
    }
    CHECK(result == ncclSuccess);
    CHECK(ncclCommDestroy(r->comm) == ncclSuccess);
    return NULL;
}

static void test_nccl__init(void **state)
{
    (void)state;
    run_ranks(one_device, RANKS, 1, 1);
    run_ranks(polled_init, RANKS, RANKS, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nccl__collectives_of_four_threads),
        cmocka_unit_test(test_nccl__messages),
        cmocka_unit_test(test_nccl__split_groups_and_capture),
        cmocka_unit_test(test_nccl__mismatches_are_errors),
        cmocka_unit_test(test_nccl__absent_rank_blocks_until_abort),
        cmocka_unit_test(test_nccl__init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
