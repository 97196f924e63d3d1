/* Streams, events and graphs of the emulated device. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_emu.h"
#include "test_kernels.h"

#define OK(call) assert_int_equal(call, cudaSuccess)

enum { N = 64, SEEDS = 20 };

static cudaStream_t a, b;
static cudaEvent_t ready, done;
static float *x, *y, *pinned;

static int set_up(void **state)
{
    (void)state;
    cuda_emu_reset();
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, -1));
    OK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&x, N * sizeof *x));
    OK(cudaMalloc((void **)&y, N * sizeof *y));
    OK(cudaMallocHost((void **)&pinned, N * sizeof *pinned));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFreeHost(pinned));
    OK(cudaEventDestroy(ready));
    OK(cudaEventDestroy(done));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.live_device + c.live_host + c.live_objects, 0);
    return 0;
}

static void zero(float *of)
{
    OK(cudaMemset(of, 0, N * sizeof *of));
    OK(cudaDeviceSynchronize());
}

/* A producer in one stream, a consumer in another; true when the result is right. */
static int produce_and_consume(int with_wait)
{
    zero(x);
    OK(test_add(x, 1, N, a));
    OK(test_add(x, 2, N, a));
    OK(cudaEventRecord(ready, a));
    if (with_wait) {
        OK(cudaStreamWaitEvent(b, ready, 0));
    }
    OK(test_copy(x, y, N, 0, b));
    OK(cudaMemcpyAsync(pinned, y, N * sizeof *y, cudaMemcpyDeviceToHost, b));
    OK(cudaEventRecord(done, b));
    OK(cudaEventSynchronize(done));
    int right = 1;
    for (int i = 0; i < N; i++) {
        right = right && pinned[i] == 3;
    }
    OK(cudaStreamSynchronize(a));
    return right;
}

static void test_streams__event_orders_them(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        for (int i = 0; i < 20; i++) {
            assert_true(produce_and_consume(1));
        }
    }
}

static void test_streams__missing_wait_shows(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        wrong += !produce_and_consume(0);
    }
    print_message("%d of %d seeds\n", wrong, SEEDS);
    assert_true(wrong > 5);
}

/* A fill that names no stream comes before or after work of a stream that does not block. */
static void test_streams__a_fill_without_a_stream_waits_for_none(void **state)
{
    int early = 0, late = 0;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        zero(x);
        const uint64_t syncs = cuda_emu_count().host_syncs;
        OK(cudaMemset(x, 0x40, N * sizeof *x));
        assert_int_equal(cuda_emu_count().host_syncs, syncs);
        OK(cudaMemcpyAsync(pinned, x, N * sizeof *x, cudaMemcpyDeviceToHost, a));
        OK(cudaStreamSynchronize(a));
        early += pinned[0] != 0;
        late += pinned[0] == 0;
        OK(cudaMemcpy(pinned, x, sizeof *x, cudaMemcpyDeviceToHost)); /* in the order of fills */
        assert_true(pinned[0] != 0);
    }
    print_message("%d early, %d late\n", early, late);
    assert_true(early > 0 && late > 0);
}

static void test_streams__dropped_wait_shows(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        cuda_emu_set_fault(CUDA_EMU_DROP_WAIT, 1);
        wrong += !produce_and_consume(1);
    }
    cuda_emu_set_fault(CUDA_EMU_DROP_WAIT, 0);
    print_message("%d of %d seeds\n", wrong, SEEDS);
    assert_true(wrong > 5);
}

/* Changes the source of a copy too early: whether the device got the value of the call. */
static int copy_sees_the_call(float *host)
{
    float got = 0;
    for (int i = 0; i < N; i++) {
        host[i] = 1;
    }
    OK(cudaMemcpyAsync(x, host, N * sizeof *x, cudaMemcpyHostToDevice, a));
    host[0] = 2;
    OK(cudaStreamSynchronize(a));
    OK(cudaMemcpy(&got, x, sizeof got, cudaMemcpyDeviceToHost));
    return got == 1;
}

static void test_streams__pinned_memory_is_read_late(void **state)
{
    (void)state;
    float pageable[N];
    int early = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        assert_true(copy_sees_the_call(pageable));
        early += copy_sees_the_call(pinned);
    }
    assert_true(early < SEEDS);
}

static void test_streams__queries_make_progress(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        OK(test_empty(1, 1, a));
    }
    OK(cudaEventRecord(ready, a));
    int n = 0;
    while (cudaEventQuery(ready) == cudaErrorNotReady) {
        assert_true(n++ < 1000);
    }
    OK(cudaStreamQuery(a));
    assert_int_equal(cuda_emu_count().host_syncs, 0);
    OK(cudaGetLastError());
}

/* A call on a full stream blocks until the device has ended an operation, which is no wait of the
 * host's own. */
static void test_streams__a_launch_queue_is_finite(void **state)
{
    (void)state;
    enum { HOLDS = 8, CALLS = 100 };
    uint64_t most = 0;
    for (int limited = 0; limited < 2; limited++) {
        most = 0;
        cuda_emu_launch_queue(limited ? HOLDS : 0);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            cuda_emu_seed(seed);
            const uint64_t before = cuda_emu_count().kernels;
            for (uint64_t i = 1; i <= CALLS; i++) {
                OK(test_empty(1, 1, a));
                const uint64_t held = i - (cuda_emu_count().kernels - before);
                most = held > most ? held : most;
            }
            OK(cudaStreamSynchronize(a));
        }
        assert_true(limited ? most == HOLDS : most > HOLDS);
    }
    assert_int_equal(cuda_emu_count().host_syncs, 2 * SEEDS);
}

static void increment(void *value)
{
    ++*(int *)value;
}

static void test_streams__host_functions_and_clock(void **state)
{
    (void)state;
    int value = 0;
    cudaEvent_t start, end;
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(start, a));
    OK(cudaLaunchHostFunc(a, increment, &value));
    OK(test_empty(1, 1, a));
    OK(cudaLaunchHostFunc(a, increment, &value));
    OK(cudaEventRecord(end, a));
    OK(cudaEventSynchronize(end));
    assert_int_equal(value, 2);
    float ms = 0;
    OK(cudaEventElapsedTime(&ms, start, end));
    assert_true(ms > 0.012f && ms < 0.020f);
    assert_int_equal(cudaEventElapsedTime(&ms, start, ready), cudaErrorInvalidResourceHandle);
    /* launches cost less in a graph */
    float of_graph = 0;
    enum { MANY = 8 };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < MANY; i++) {
        OK(test_empty(1, 1, a));
    }
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaEventRecord(start, a));
    for (int i = 0; i < MANY; i++) {
        OK(test_empty(1, 1, a));
    }
    OK(cudaEventRecord(end, a));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    OK(cudaEventRecord(start, a));
    OK(cudaGraphLaunch(exec, a));
    OK(cudaEventRecord(end, a));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&of_graph, start, end));
    assert_true(of_graph > 0.001f * MANY && of_graph < 0.5f * ms);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
}

static void test_streams__in_order_mode_leaves_nothing_late(void **state)
{
    (void)state;
    cuda_emu_in_order(1);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        assert_true(produce_and_consume(0));
    }
}

/* x += 3 by way of y: forked from `a` to `b` and joined. */
static cudaGraphExec_t captured(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    size_t nodes;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(test_add(x, 1, N, a));
    OK(cudaEventRecord(ready, a));
    OK(cudaStreamWaitEvent(b, ready, 0));
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(b, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    OK(test_copy(x, y, N, 0, b));
    OK(test_add(y, 2, N, b));
    OK(cudaEventRecord(done, b));
    OK(test_empty(1, 1, a));
    OK(cudaStreamWaitEvent(a, done, 0));
    OK(test_copy(y, x, N, 0, a));
    OK(cudaMemcpyAsync(pinned, x, N * sizeof *x, cudaMemcpyDeviceToHost, a));
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaStreamIsCapturing(b, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    assert_int_equal(nodes, 6);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

static void test_graphs__replay_in_any_order_of_the_edges(void **state)
{
    (void)state;
    zero(x);
    cudaGraphExec_t exec = captured();
    assert_int_equal(cuda_emu_count().kernels, 0);
    float expected = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        for (int i = 0; i < 3; i++) {
            OK(cudaGraphLaunch(exec, i == 1 ? b : a));
            if (i == 1) {
                OK(cudaEventRecord(ready, b));
                OK(cudaStreamWaitEvent(a, ready, 0));
            } else if (i == 0) {
                OK(cudaEventRecord(ready, a));
                OK(cudaStreamWaitEvent(b, ready, 0));
            }
            expected += 3;
        }
        OK(cudaStreamSynchronize(a));
        assert_true(pinned[0] == expected && pinned[N - 1] == expected);
    }
    struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.graph_launches, 3 * SEEDS);
    assert_int_equal(c.launches, 5);
    assert_int_equal(c.kernels, 5 * 3 * SEEDS);
    OK(cudaGraphExecDestroy(exec));
}

static void test_graphs__missing_join_edge_shows(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cuda_emu_seed(seed);
        zero(x);
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
        OK(cudaEventRecord(ready, a));
        OK(cudaStreamWaitEvent(b, ready, 0));
        OK(test_add(x, 1, N, a));
        OK(test_copy(x, y, N, 0, b)); /* is to wait for the addition */
        OK(cudaEventRecord(done, b));
        OK(cudaStreamWaitEvent(a, done, 0));
        OK(cudaStreamEndCapture(a, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, a));
        OK(cudaMemcpyAsync(pinned, y, N * sizeof *y, cudaMemcpyDeviceToHost, a));
        OK(cudaStreamSynchronize(a));
        wrong += pinned[0] != 1;
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }
    print_message("%d of %d seeds\n", wrong, SEEDS);
    assert_true(wrong > 5);
}

static void end_with(cudaError_t expected)
{
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(a, &graph), expected);
    assert_null(graph);
}

static void test_graphs__captures_forbid_waiting(void **state)
{
    (void)state;
    cuda_emu_quiet(1);
    float host[N] = {0};
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    assert_int_equal(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(test_empty(1, 1, a), cudaErrorStreamCaptureInvalidated);
    end_with(cudaErrorStreamCaptureInvalidated);
    void *p;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
    end_with(cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamSynchronize(b), cudaErrorStreamCaptureUnsupported);
    end_with(cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamSynchronize(b));
    assert_int_equal(cudaMemcpyAsync(x, host, 4, cudaMemcpyHostToDevice, a),
                     cudaErrorStreamCaptureUnsupported);
    end_with(cudaErrorStreamCaptureInvalidated);
}

static void test_graphs__captures_are_joined_and_closed(void **state)
{
    (void)state;
    cuda_emu_quiet(1);
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(ready, a));
    OK(cudaStreamWaitEvent(b, ready, 0));
    OK(test_empty(1, 1, b));
    assert_int_equal(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
    end_with(cudaErrorStreamCaptureUnjoined);
    /* The event belongs to that capture. */
    assert_int_equal(cudaStreamWaitEvent(b, ready, 0), cudaErrorCapturedEvent);
    OK(cudaEventRecord(ready, b));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamWaitEvent(a, ready, 0), cudaErrorStreamCaptureIsolation);
    end_with(cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamSynchronize(b));
}

static void *issue_from_thread(void *result)
{
    *(int *)result = (int)test_add(x, 1, N, b);
    return NULL;
}

static void test_streams__work_of_one_thread_runs_on_another(void **state)
{
    (void)state;
    pthread_t thread;
    int result = -1;
    zero(x);
    assert_int_equal(pthread_create(&thread, NULL, issue_from_thread, &result), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, 0);
    OK(cudaStreamSynchronize(b));
    OK(cudaMemcpy(pinned, x, sizeof *x, cudaMemcpyDeviceToHost));
    assert_true(pinned[0] == 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_streams__event_orders_them),
        TEST(test_streams__missing_wait_shows),
        TEST(test_streams__a_fill_without_a_stream_waits_for_none),
        TEST(test_streams__dropped_wait_shows),
        TEST(test_streams__pinned_memory_is_read_late),
        TEST(test_streams__queries_make_progress),
        TEST(test_streams__a_launch_queue_is_finite),
        TEST(test_streams__host_functions_and_clock),
        TEST(test_streams__in_order_mode_leaves_nothing_late),
        TEST(test_streams__work_of_one_thread_runs_on_another),
        TEST(test_graphs__replay_in_any_order_of_the_edges),
        TEST(test_graphs__missing_join_edge_shows),
        TEST(test_graphs__captures_forbid_waiting),
        TEST(test_graphs__captures_are_joined_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
