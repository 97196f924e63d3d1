#include "executor/cuda/kernels/elementwise/random.h"
#include "executor/cuda/kernels/vector.cuh"

/* The four words of elements 4 block .. 4 block + 3: dtp_philox_block. */
static __device__ __forceinline__ void philox(uint64_t seed, uint32_t stream, uint32_t step,
                                              uint64_t block, uint32_t (&out)[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = stream;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    DTP_UNROLL
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* u = (word >> 8) 2^-24 is exact in f32. */
struct dropout {
    static __device__ __forceinline__ void of(const dtp_cuda_random_call &r,
                                              const uint32_t (&words)[4], const float (&x)[4],
                                              float (&y)[4])
    {
        DTP_UNROLL
        for (int j = 0; j < 4; j++) {
            y[j] = (float)(words[j] >> 8) * 0x1p-24f >= r.numbers.at_least ? x[j] * r.numbers.keep
                                                                           : 0.0f;
        }
    }
};

/* In double, fused, as the CPU's. */
struct uniform {
    static __device__ __forceinline__ void
    of(const dtp_cuda_random_call &r, const uint32_t (&words)[4], const float (&)[4], float (&y)[4])
    {
        DTP_UNROLL
        for (int j = 0; j < 4; j++) {
            y[j] = (float)fma(r.numbers.b - r.numbers.a, (double)(words[j] >> 8) * 0x1p-24,
                              r.numbers.a);
        }
    }
};

/* dtp_normal_block: Box-Muller in double on a pair of words, not fused. */
struct normal {
    static __device__ __forceinline__ void
    of(const dtp_cuda_random_call &r, const uint32_t (&words)[4], const float (&)[4], float (&y)[4])
    {
        DTP_UNROLL
        for (int j = 0; j < 4; j += 2) {
            const double u = ((double)words[j] + 1.0) * 0x1p-32; /* in (0, 1] */
            const double angle = 6.283185307179586 * ((double)words[j + 1] * 0x1p-32);
            const double radius = sqrt(-2.0 * log(u));
            y[j] = (float)__dadd_rn(r.numbers.a,
                                    __dmul_rn(r.numbers.b, __dmul_rn(radius, cos(angle))));
            y[j + 1] = (float)__dadd_rn(r.numbers.a,
                                        __dmul_rn(r.numbers.b, __dmul_rn(radius, sin(angle))));
        }
    }
};

/* `blocks`: groups of four elements are those of one Philox block. */
template <class T, class F>
static __global__ void random_kernel(dtp_cuda_random_call r, bool blocks,
                                     const dtp_step_record *record, T *y, const T *x)
{
    const uint64_t seed = record->seed;
    const uint32_t step = (uint32_t)(uint64_t)record->step;
    const int each = blocks ? 4 : 1;
    const int64_t groups = (r.nest.total + each - 1) / each;
    for (int64_t g = dtp_thread(); g < groups; g += dtp_threads()) {
        int64_t at[2];
        uint32_t words[4];
        float from[4] = {}, to[4];
        dtp_offsets(r.nest, g * each, at);
        const uint64_t index = (uint64_t)(r.first + at[1]);
        philox(seed, r.numbers.stream, step, index / 4, words);
        if (blocks) {
            const int n = dtp_group_size<4>(g * 4, r.nest.total);
            if (x != NULL) {
                dtp_load_values(from, x + at[0], 1, n, true);
            }
            F::of(r, words, from, to);
            dtp_store_values(y + at[0], to, 1, n, true);
        } else {
            const int place = (int)(index % 4);
            const float one = x != NULL ? dtp_widen(x[at[0]]) : 0.0f;
            DTP_UNROLL
            for (int j = 0; j < 4; j++) {
                from[j] = one;
            }
            F::of(r, words, from, to);
            dtp_narrow(place == 0   ? to[0]
                       : place == 1 ? to[1]
                       : place == 2 ? to[2]
                                    : to[3],
                       y + at[0]);
        }
    }
}

template <class T, class F>
static cudaError_t run(cudaStream_t queue, const dtp_cuda_random_call *r,
                       const dtp_step_record *record, void *y, const void *x)
{
    const dtp_cuda_nest *nest = &r->nest;
    const int last = nest->rank - 1;
    bool blocks = nest->stride[1][last] == 1 && r->first % 4 == 0 &&
                  dtp_grouped(nest, 0, y, sizeof(T), 4) &&
                  (x == NULL || dtp_grouped(nest, 0, x, sizeof(T), 4));
    for (int i = 0; i < last; i++) {
        blocks = blocks && nest->stride[1][i] % 4 == 0;
    }
    return dtp_launch(random_kernel<T, F>, dtp_grid(nest->total, DTP_CUDA_BLOCK, blocks ? 4 : 1),
                      DTP_CUDA_BLOCK, 0, queue, *r, blocks, record, (T *)y, (const T *)x);
}

template <class F>
static cudaError_t run_any(cudaStream_t queue, const dtp_cuda_random_call *r,
                           const dtp_step_record *record, void *y, const void *x)
{
    return r->numbers.dtype == DTP_F32    ? run<float, F>(queue, r, record, y, x)
           : r->numbers.dtype == DTP_BF16 ? run<__nv_bfloat16, F>(queue, r, record, y, x)
                                          : run<__half, F>(queue, r, record, y, x);
}

cudaError_t dtp_cuda_random_run(cudaStream_t queue, const dtp_cuda_random_call *r,
                                const dtp_step_record *record, void *y, const void *x)
{
    switch (r->numbers.distribution) {
    case DTP_DROPOUT:
        return run_any<dropout>(queue, r, record, y, x);
    case DTP_UNIFORM:
        return run_any<uniform>(queue, r, record, y, x);
    default:
        return run_any<normal>(queue, r, record, y, x);
    }
}
