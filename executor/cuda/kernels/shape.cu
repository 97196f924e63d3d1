#include "executor/cuda/kernels/shape.h"
#include "executor/cuda/kernels/convert.cuh"

typedef struct pattern {
    uint8_t byte[16];
    uint4 word;
} pattern;

/* `aligned`: out, to 16 bytes. */
static __global__ void fill_kernel(int64_t bytes, pattern p, bool aligned, uint8_t *out)
{
    const int64_t words = aligned ? bytes / 16 : 0;
    for (int64_t i = dtp_thread(); i < words; i += dtp_threads()) {
        ((uint4 *)out)[i] = p.word;
    }
    for (int64_t i = 16 * words + dtp_thread(); i < bytes; i += dtp_threads()) {
        out[i] = p.byte[i % 16];
    }
}

cudaError_t dtp_cuda_fill(cudaStream_t queue, int64_t bytes, const uint8_t byte[16], void *out)
{
    pattern p;
    memcpy(p.byte, byte, sizeof p.byte);
    memcpy(&p.word, byte, sizeof p.word);
    return dtp_launch(fill_kernel, dtp_grid(bytes, DTP_CUDA_BLOCK, 16), DTP_CUDA_BLOCK, 0, queue,
                      bytes, p, (uintptr_t)out % 16 == 0, (uint8_t *)out);
}

static __global__ void iota_kernel(int64_t n, int64_t inner, int64_t size, int64_t first, int dtype,
                                   void *out)
{
    for (int64_t i = dtp_thread(); i < n; i += dtp_threads()) {
        const int64_t index = first + i / inner % size;
        if (dtp_is_int(dtype)) {
            dtp_store_int(out, dtype, i, index);
        } else {
            dtp_store_double(out, dtype, i, (double)index);
        }
    }
}

cudaError_t dtp_cuda_iota(cudaStream_t queue, int64_t n, int64_t inner, int64_t size, int64_t first,
                          int32_t dtype, void *out)
{
    return dtp_launch(iota_kernel, dtp_grid(n, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0, queue, n,
                      inner, size, first, dtype, out);
}

template <class T>
static __global__ void pad_kernel(int64_t n, dtp_cuda_pad_rows rows, T *out, const T *x)
{
    for (int64_t i = dtp_thread(); i < n; i += dtp_threads()) {
        const int64_t at = i % rows.to - rows.before;
        T value = {};
        if (at >= 0 && at < rows.n) {
            value = x[i / rows.to * rows.from + rows.skip + at];
        }
        out[i] = value;
    }
}

template <class T>
static cudaError_t pad(cudaStream_t queue, int64_t total, dtp_cuda_pad_rows rows, void *out,
                       const void *x)
{
    const int64_t bytes = (int64_t)sizeof(T);
    rows.to /= bytes;
    rows.from /= bytes;
    rows.before /= bytes;
    rows.skip /= bytes;
    rows.n /= bytes;
    return dtp_launch(pad_kernel<T>, dtp_grid(total / bytes, DTP_CUDA_BLOCK, 1), DTP_CUDA_BLOCK, 0,
                      queue, total / bytes, rows, (T *)out, (const T *)x);
}

cudaError_t dtp_cuda_pad(cudaStream_t queue, int64_t total, const dtp_cuda_pad_rows *rows,
                         int32_t elem_bytes, void *out, const void *x)
{
    const uint64_t all = (uint64_t)rows->to | (uint64_t)rows->from | (uint64_t)rows->before |
                         (uint64_t)rows->skip | (uint64_t)rows->n | (uintptr_t)out | (uintptr_t)x |
                         16u;
    const int64_t word = (int64_t)(all & (~all + 1u)); /* the largest power of 2 in all of them */
    switch (word < elem_bytes ? elem_bytes : word) {
    case 1:
        return pad<uint8_t>(queue, total, *rows, out, x);
    case 2:
        return pad<uint16_t>(queue, total, *rows, out, x);
    case 4:
        return pad<uint32_t>(queue, total, *rows, out, x);
    case 8:
        return pad<uint64_t>(queue, total, *rows, out, x);
    default:
        return pad<uint4>(queue, total, *rows, out, x);
    }
}
