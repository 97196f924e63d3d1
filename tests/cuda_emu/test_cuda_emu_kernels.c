/* Kernels and memory of the emulated device. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_emu.h"
#include "test_kernels.h"

#define OK(call) assert_int_equal(call, cudaSuccess)

enum { ROWS = 50, COLUMNS = 131 };

static cudaStream_t stream;

static int set_up(void **state)
{
    (void)state;
    cuda_emu_reset();
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
}

static void *device_copy(const void *host, size_t bytes)
{
    void *p;
    OK(cudaMalloc(&p, bytes));
    if (host) {
        OK(cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, stream));
    }
    return p;
}

static void fetch(void *host, const void *from, size_t bytes)
{
    OK(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
}

/* Runs `body` in a child without its messages; true if it ended with 0. */
static int survives(int (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* cmocka catches them */
        signal(SIGBUS, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(3);
        }
        _exit(body());
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)(i * 7 % 13);
    }
}

/* Rows with a wrong sum, or -1 when the device reports an error. */
static int wrong_rows(enum row_sum_kind kind, uint64_t seed)
{
    float x[ROWS * COLUMNS], y[ROWS];
    fill(x, ROWS * COLUMNS);
    cuda_emu_seed(seed);
    float *dx = device_copy(x, sizeof x), *dy = device_copy(NULL, sizeof y);
    OK(test_row_sum(kind, dx, dy, ROWS, COLUMNS, stream));
    if (cudaMemcpyAsync(y, dy, sizeof y, cudaMemcpyDeviceToHost, stream) != cudaSuccess) {
        return -1;
    }
    int wrong = 0;
    for (int r = 0; r < ROWS; r++) {
        float sum = 0;
        for (int c = 0; c < COLUMNS; c++) {
            sum += x[r * COLUMNS + c];
        }
        wrong += !(y[r] == sum);
    }
    OK(cudaFree(dx));
    OK(cudaFree(dy));
    return wrong;
}

static void test_kernel__row_sum_with_barriers_is_right(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        assert_int_equal(wrong_rows(ROW_SUM_SHARED, seed), 0);
        assert_int_equal(wrong_rows(ROW_SUM_SHUFFLE, seed), 0);
    }
}

static void test_kernel__missing_barrier_shows(void **state)
{
    (void)state;
    int seeds = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        seeds += wrong_rows(ROW_SUM_NO_BARRIER, seed) > 0;
    }
    assert_int_equal(seeds, 20);
}

static void test_kernel__dropped_barrier_shows(void **state)
{
    (void)state;
    cuda_emu_set_fault(CUDA_EMU_DROP_BARRIER, 1);
    assert_true(wrong_rows(ROW_SUM_SHARED, 1) > 0);
    cuda_emu_set_fault(CUDA_EMU_DROP_BARRIER, 0);
    assert_int_equal(wrong_rows(ROW_SUM_SHARED, 1), 0);
}

static void check_error(enum row_sum_kind kind, const char *text)
{
    cuda_emu_quiet(1);
    assert_int_equal(wrong_rows(kind, 3), -1);
    assert_non_null(strstr(cuda_emu_message(), text));
    assert_non_null(strstr(cuda_emu_message(), "row_sum"));
    /* The device is lost. */
    void *p;
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorLaunchFailure);
}

static void test_kernel__barrier_after_some_ended_is_an_error(void **state)
{
    (void)state;
    check_error(ROW_SUM_DIVERGENT, "32 of 64 threads have ended");
}

static void test_kernel__two_barriers_at_once_are_an_error(void **state)
{
    (void)state;
    check_error(ROW_SUM_TWO_LINES, "thread 7");
}

static void test_kernel__warp_operation_without_all_lanes_is_an_error(void **state)
{
    (void)state;
    check_error(ROW_SUM_LANE_GONE, "warp operation");
}

static int write_beyond_shared(void)
{
    cuda_emu_quiet(1);
    return wrong_rows(ROW_SUM_BEYOND, 3) == -1 ? 1 : 0;
}

static void test_kernel__write_beyond_a_shared_array_is_found(void **state)
{
    (void)state;
    assert_false(survives(write_beyond_shared));
}

static int copy_beyond(int beyond)
{
    float x[100] = {0};
    float *dx = device_copy(x, sizeof x), *dy = device_copy(NULL, sizeof x);
    cuda_emu_quiet(1);
    OK(test_copy(dx, dy, 100, beyond, stream));
    OK(cudaStreamSynchronize(stream));
    return cudaFree(dy) == cudaSuccess ? 0 : 1;
}

static int copy_exact(void)
{
    return copy_beyond(0);
}

static int copy_one_more(void)
{
    return copy_beyond(1);
}

static void test_kernel__write_beyond_an_allocation_is_found(void **state)
{
    (void)state;
    assert_true(survives(copy_exact));
    assert_false(survives(copy_one_more));
}

static void test_kernel__votes_and_shuffles(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        cuda_emu_seed(seed);
        unsigned out[16];
        unsigned *d = device_copy(NULL, sizeof out);
        OK(test_votes(d, 2, stream));
        fetch(out, d, sizeof out);
        for (unsigned w = 0; w < 2; w++) {
            unsigned first = w * 32;
            const unsigned expected[] = {0x49249249u,      1,         0,         32 * first + 496,
                                         (first + 3) * 10, first + 7, first + 9, 8};
            assert_memory_equal(out + w * 8, expected, sizeof expected);
        }
        OK(cudaFree(d));
    }
}

static void test_kernel__reductions_of_a_warp(void **state)
{
    (void)state;
    int out[32 * 4];
    int *d = device_copy(NULL, sizeof out);
    OK(test_reductions(d, stream));
    fetch(out, d, sizeof out);
    unsigned same[5] = {0};
    for (int lane = 0; lane < 32; lane++) {
        same[lane % 5] |= 1u << lane;
    }
    for (int lane = 0; lane < 32; lane++) {
        const int expected[] = {-3, 2, -2, (int)same[lane % 5]};
        assert_memory_equal(out + lane * 4, expected, sizeof expected);
    }
}

static void test_kernel__integers_saturate(void **state)
{
    (void)state;
    const float x[] = {2.5f, -1.25f, 3e9f, -3e9f, NAN, 0.5f};
    const int expected[] = {2,       2,       1000, -1, -2, 707, INT_MAX, INT_MAX, 0,
                            INT_MIN, INT_MIN, 0,    0,  0,  0,   0,       0,       1000};
    int out[18];
    float *dx = device_copy(x, sizeof x);
    int *d = device_copy(NULL, sizeof out);
    OK(test_integers(dx, d, 6, stream));
    fetch(out, d, sizeof out);
    assert_memory_equal(out, expected, sizeof expected);
}

static void test_kernel__trap_is_an_error(void **state)
{
    (void)state;
    cuda_emu_quiet(1);
    OK(test_trap(stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_non_null(strstr(cuda_emu_message(), "trap"));
}

static unsigned short bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (unsigned short)(bits >> 16);
}

/* Small integers, which bf16 holds. */
static void wmma_operands(float a[256], float b[256], unsigned short a16[256],
                          unsigned short b16[256])
{
    for (int i = 0; i < 256; i++) {
        a[i] = (float)(i % 11 - 5);
        b[i] = (float)(i % 7 - 3);
        a16[i] = bf16_of(a[i]);
        b16[i] = bf16_of(b[i]);
    }
}

static void test_wmma__product_for_any_lane_mapping(void **state)
{
    (void)state;
    float a[256], b[256], c[256], assumed[256];
    unsigned short a16[256], b16[256];
    wmma_operands(a, b, a16, b16);
    unsigned short *da = device_copy(a16, sizeof a16), *db = device_copy(b16, sizeof b16);
    float *dc = device_copy(NULL, sizeof c);
    int differs = 0;
    for (uint64_t seed = 0; seed < 5; seed++) {
        cuda_emu_seed(seed);
        OK(test_wmma_bf16(da, db, dc, stream));
        fetch(c, dc, sizeof c);
        OK(test_wmma_assumed(da, db, dc, stream));
        fetch(assumed, dc, sizeof assumed);
        for (int i = 0; i < 16; i++) {
            for (int j = 0; j < 16; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++) {
                    sum += a[i * 16 + k] * b[j * 16 + k];
                }
                assert_true(c[i * 16 + j] == 2 * sum);
                differs += assumed[i * 16 + j] != sum;
            }
        }
    }
    assert_true(differs > 500);
}

static void test_wmma__checks_alignment(void **state)
{
    (void)state;
    unsigned short a16[512] = {0};
    unsigned short *d = device_copy(a16, sizeof a16);
    float *dc = device_copy(NULL, 1024);
    cuda_emu_quiet(1);
    OK(test_wmma_bf16(d, d + 8, dc, stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_non_null(strstr(cuda_emu_message(), "32 bytes"));
}

static void test_wmma__half_and_tf32(void **state)
{
    (void)state;
    float a[256], b[256], c[256];
    unsigned short a16[256], b16[256];
    wmma_operands(a, b, a16, b16);
    float *da = device_copy(a, sizeof a), *dc = device_copy(NULL, sizeof c);
    float *db = device_copy(b, sizeof b);
    unsigned short *half = device_copy(NULL, sizeof a16), *other = device_copy(NULL, sizeof a16);
    OK(test_convert(da, other, half, 256, stream));
    OK(test_wmma_half(half, half, dc, stream));
    fetch(c, dc, sizeof c);
    float sum = 0;
    for (int k = 0; k < 16; k++) {
        sum += a[3 * 16 + k] * a[5 * 16 + k];
    }
    assert_true(c[3 * 16 + 5] == 2 * sum);
    OK(test_wmma_tf32(da, db, dc, stream));
    fetch(c, dc, sizeof c);
    sum = 0;
    for (int k = 0; k < 8; k++) {
        sum += a[3 * 8 + k] * b[k * 16 + 5];
    }
    assert_true(c[5 * 16 + 3] == sum);
}

static void test_convert__rounds_to_nearest_even(void **state)
{
    (void)state;
    const float x[] = {1.0f,     1.00390625f, 1.01171875f,   -2.5f,         65504.0f, 65519.0f,
                       65520.0f, 1e-7f,       5.9604645e-8f, 2.9802322e-8f, 6.1e-5f,  INFINITY,
                       NAN,      1e30f,       0.3333f,       -0.0f};
    const unsigned short bf16[] = {0x3f80, 0x3f80, 0x3f82, 0xc020, 0x4780, 0x4780, 0x4780, 0x33d7,
                                   0x3380, 0x3300, 0x3880, 0x7f80, 0x7fff, 0x714a, 0x3eab, 0x8000};
    const unsigned short fp16[] = {0x3c00, 0x3c04, 0x3c0c, 0xc100, 0x7bff, 0x7bff, 0x7c00, 0x0002,
                                   0x0001, 0x0000, 0x03ff, 0x7c00, 0x7fff, 0x7c00, 0x3555, 0x8000};
    enum { N = sizeof x / sizeof x[0] };
    unsigned short got_bf16[N], got_fp16[N];
    float *dx = device_copy(x, sizeof x);
    unsigned short *d = device_copy(NULL, sizeof got_bf16), *h = device_copy(NULL, sizeof got_fp16);
    OK(test_convert(dx, d, h, N, stream));
    fetch(got_bf16, d, sizeof got_bf16);
    fetch(got_fp16, h, sizeof got_fp16);
    for (int i = 0; i < N; i++) {
        assert_int_equal(got_bf16[i], bf16[i]);
        assert_int_equal(got_fp16[i], fp16[i]);
    }
}

static void test_shared__dynamic_beyond_48_KiB_needs_the_attribute(void **state)
{
    (void)state;
    enum { N = 20000 };
    float *y = device_copy(NULL, N * sizeof(float)), *host = malloc(N * sizeof(float));
    assert_non_null(host);
    cuda_emu_quiet(1);
    assert_int_equal(test_dynamic(y, N, N * sizeof(float), 0, stream), cudaErrorInvalidValue);
    OK(test_dynamic(y, N, N * sizeof(float), 1, stream));
    fetch(host, y, N * sizeof(float));
    for (int i = 0; i < N; i++) {
        assert_true(host[i] == (float)(N - 1 - i));
    }
    assert_int_equal(test_dynamic(y, N, (227 << 10) + 1, 1, stream), cudaErrorInvalidValue);
    free(host);
}

static void test_shared__static_beyond_48_KiB_is_an_error(void **state)
{
    (void)state;
    float *y = device_copy(NULL, 32 * sizeof(float));
    cuda_emu_quiet(1);
    OK(test_too_much_static(y, stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_non_null(strstr(cuda_emu_message(), "48 KiB"));
}

static void test_memory__starts_as_nan(void **state)
{
    (void)state;
    float y[32], z[32];
    float *d = device_copy(NULL, sizeof y);
    fetch(y, d, sizeof y);
    OK(test_uninitialised(d, stream));
    fetch(z, d, sizeof z);
    for (int i = 0; i < 32; i++) {
        assert_true(isnan(y[i]) && isnan(z[i]));
    }
}

static void test_kernel__atomics(void **state)
{
    (void)state;
    struct {
        int counter;
        unsigned most;
    } host = {0, 0}, *d = device_copy(&host, sizeof host);
    OK(test_atomics(&d->counter, &d->most, 7, 96, stream));
    fetch(&host, d, sizeof host);
    assert_int_equal(host.counter, 7 * 96);
    assert_int_equal(host.most, 7 * 96 - 1);
}

static void test_launch__refuses_host_and_freed_addresses(void **state)
{
    (void)state;
    float host[4] = {0};
    float *heap = malloc(1 << 20), *gone = device_copy(NULL, 64), *d = device_copy(NULL, 64),
          *pinned;
    OK(cudaFree(gone));
    OK(cudaMallocHost((void **)&pinned, 64));
    cuda_emu_quiet(1);
    assert_int_equal(test_copy(host, d, 1, 0, stream), cudaErrorIllegalAddress);
    assert_non_null(strstr(cuda_emu_message(), "copy: the arguments hold the host address"));
    /* a word whose lower half is small passes for a number beside padding */
    assert_int_equal(test_copy(d, heap + (1 << 17), 1, 0, stream), cudaErrorIllegalAddress);
    assert_int_equal(test_copy(gone, d, 1, 0, stream), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    OK(cudaGetLastError());
    *pinned = 3;
    OK(test_copy(pinned, d, 1, 0, stream));
    fetch(host, d, 4);
    assert_true(host[0] == 3);
    OK(cudaFreeHost(pinned));
    free(heap);
}

static void test_launch__checks_its_configuration(void **state)
{
    (void)state;
    cuda_emu_quiet(1);
    assert_int_equal(test_empty(1, 1025, stream), cudaErrorInvalidConfiguration);
    assert_int_equal(test_empty(0, 32, stream), cudaErrorInvalidConfiguration);
    assert_int_equal(test_empty(1, 32, NULL), cudaErrorInvalidResourceHandle);
    cuda_emu_set_fault(CUDA_EMU_FAIL_LAUNCH, 2);
    OK(test_empty(1, 32, stream));
    OK(cudaStreamSynchronize(stream));
    OK(test_empty(1, 32, stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
}

static int touch_device_memory(void)
{
    float *d = device_copy(NULL, 64);
    OK(test_add(d, 1, 16, stream));
    OK(cudaStreamSynchronize(stream));
    return *(volatile float *)d == 0;
}

static int touch_pinned_memory(void)
{
    float *p;
    OK(cudaMallocHost((void **)&p, 64));
    *(volatile float *)p = 0;
    return *(volatile float *)p != 0;
}

static void test_memory__host_must_not_touch_device_memory(void **state)
{
    (void)state;
    assert_false(survives(touch_device_memory));
    assert_true(survives(touch_pinned_memory));
}

static void test_memory__copies_check_kinds_and_bounds(void **state)
{
    (void)state;
    float host[16];
    float *d = device_copy(NULL, sizeof host);
    cuda_emu_quiet(1);
    assert_int_equal(cudaMemcpyAsync(d, host, 65, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(d + 1, host, 64, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(d, host, 64, cudaMemcpyDeviceToHost, stream),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(host, 0, 64, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemsetAsync(d, 0, 65, stream), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy2DAsync(d, 4, host, 8, 8, 2, cudaMemcpyHostToDevice, stream),
                     cudaErrorInvalidPitchValue);
    OK(cudaMemsetAsync(d, 0, 64, stream));
    for (int i = 0; i < 16; i++) {
        host[i] = (float)i;
    }
    /* Columns 1 and 2 of a 4 x 4 matrix. */
    OK(cudaMemcpy2DAsync(d, 8, host + 1, 16, 8, 4, cudaMemcpyHostToDevice, stream));
    fetch(host, d, sizeof host);
    const float expected[] = {1, 2, 5, 6, 9, 10, 13, 14, 0};
    assert_memory_equal(host, expected, sizeof expected);
}

static void test_memory__is_limited_and_counted(void **state)
{
    (void)state;
    size_t left, total;
    void *p, *q;
    cuda_emu_memory(1 << 20);
    OK(cudaMalloc(&p, 1 << 19));
    OK(cudaMemGetInfo(&left, &total));
    assert_int_equal(left, 1 << 19);
    assert_int_equal(total, 1 << 20);
    assert_int_equal(cudaMalloc(&q, (1 << 19) + 1), cudaErrorMemoryAllocation);
    struct cuda_emu_counters c = cuda_emu_count();
    assert_int_equal(c.live_device, 1);
    assert_int_equal(c.device_bytes, 1 << 19);
    OK(cudaFree(p));
    cuda_emu_set_fault(CUDA_EMU_FAIL_MALLOC, 1);
    assert_int_equal(cudaMalloc(&q, 4), cudaErrorMemoryAllocation);
    c = cuda_emu_count();
    assert_int_equal(c.live_device, 0);
    assert_int_equal(c.device_peak, 1 << 19);
}

static void test_devices__none_and_peers(void **state)
{
    (void)state;
    int n;
    void *p, *q;
    float x;
    cuda_emu_quiet(1);
    cuda_emu_devices(2);
    OK(cudaGetDeviceCount(&n));
    assert_int_equal(n, 2);
    OK(cudaMalloc(&p, 4));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&q, 4));
    cudaStream_t other;
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    assert_int_equal(test_copy(p, q, 1, 0, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(test_copy(p, q, 1, 0, other), cudaErrorIllegalAddress);
    OK(cudaDeviceEnablePeerAccess(0, 0));
    OK(cudaMemset(q, 0, 4));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpyPeerAsync(p, 0, q, 1, 4, other));
    OK(test_copy(p, q, 1, 0, other));
    OK(cudaMemcpyAsync(&x, q, 4, cudaMemcpyDeviceToHost, other));
    assert_true(x == 0);
    struct cudaDeviceProp prop;
    OK(cudaGetDeviceProperties(&prop, 1));
    assert_string_equal(prop.name, "emulated device");
    cuda_emu_reset();
    cuda_emu_devices(0);
    assert_int_equal(cudaGetDeviceCount(&n), cudaErrorNoDevice);
    assert_int_equal(cudaMalloc(&p, 4), cudaErrorNoDevice);
    assert_int_equal(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaErrorNoDevice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_kernel__row_sum_with_barriers_is_right, set_up),
        cmocka_unit_test_setup(test_kernel__missing_barrier_shows, set_up),
        cmocka_unit_test_setup(test_kernel__dropped_barrier_shows, set_up),
        cmocka_unit_test_setup(test_kernel__barrier_after_some_ended_is_an_error, set_up),
        cmocka_unit_test_setup(test_kernel__two_barriers_at_once_are_an_error, set_up),
        cmocka_unit_test_setup(test_kernel__warp_operation_without_all_lanes_is_an_error, set_up),
        cmocka_unit_test_setup(test_kernel__write_beyond_a_shared_array_is_found, set_up),
        cmocka_unit_test_setup(test_kernel__write_beyond_an_allocation_is_found, set_up),
        cmocka_unit_test_setup(test_kernel__votes_and_shuffles, set_up),
        cmocka_unit_test_setup(test_kernel__reductions_of_a_warp, set_up),
        cmocka_unit_test_setup(test_kernel__integers_saturate, set_up),
        cmocka_unit_test_setup(test_kernel__trap_is_an_error, set_up),
        cmocka_unit_test_setup(test_wmma__product_for_any_lane_mapping, set_up),
        cmocka_unit_test_setup(test_wmma__checks_alignment, set_up),
        cmocka_unit_test_setup(test_wmma__half_and_tf32, set_up),
        cmocka_unit_test_setup(test_convert__rounds_to_nearest_even, set_up),
        cmocka_unit_test_setup(test_shared__dynamic_beyond_48_KiB_needs_the_attribute, set_up),
        cmocka_unit_test_setup(test_shared__static_beyond_48_KiB_is_an_error, set_up),
        cmocka_unit_test_setup(test_memory__starts_as_nan, set_up),
        cmocka_unit_test_setup(test_kernel__atomics, set_up),
        cmocka_unit_test_setup(test_launch__refuses_host_and_freed_addresses, set_up),
        cmocka_unit_test_setup(test_launch__checks_its_configuration, set_up),
        cmocka_unit_test_setup(test_memory__host_must_not_touch_device_memory, set_up),
        cmocka_unit_test_setup(test_memory__copies_check_kinds_and_bounds, set_up),
        cmocka_unit_test_setup(test_memory__is_limited_and_counted, set_up),
        cmocka_unit_test_setup(test_devices__none_and_peers, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
