/* Copies: wide words where both sides are contiguous, tiles in shared memory where each side is
 * along another dim. */
#include "executor/cuda/kernels/copy.h"
#include "executor/cuda/kernels/vector.cuh"

template <class T, int V>
static __global__ void copy_kernel(dtp_cuda_nest nest, T *dst, const T *src)
{
    const int64_t to = nest.stride[0][nest.rank - 1], from = nest.stride[1][nest.rank - 1];
    const int64_t groups = (nest.total + V - 1) / V;
    for (int64_t g = dtp_thread(); g < groups; g += dtp_threads()) {
        const int n = dtp_group_size<V>(g * V, nest.total);
        int64_t at[2];
        T x[V];
        dtp_offsets(nest, g * V, at);
        dtp_load_group(x, src + at[1], from, n, false);
        dtp_store_group(dst + at[0], x, to, n, true);
    }
}

/* dst has step 1; groups of 16 bytes of it are aligned, and none reaches beyond a row. */
template <class T>
static cudaError_t copy(cudaStream_t queue, const dtp_cuda_nest *nest, void *dst, const void *src)
{
    enum { V = 16 / sizeof(T) };
    const bool wide =
        V > 1 && nest->stride[0][nest->rank - 1] == 1 && dtp_grouped(nest, 0, dst, sizeof(T), V);
    return dtp_launch(wide ? copy_kernel<T, V> : copy_kernel<T, 1>,
                      dtp_grid(nest->total, DTP_CUDA_BLOCK, wide ? V : 1), DTP_CUDA_BLOCK, 0, queue,
                      *nest, (T *)dst, (const T *)src);
}

static cudaError_t copy_words(cudaStream_t queue, const dtp_cuda_nest *nest, int32_t bytes,
                              void *dst, const void *src)
{
    switch (bytes) {
    case 1:
        return copy<uint8_t>(queue, nest, dst, src);
    case 2:
        return copy<uint16_t>(queue, nest, dst, src);
    case 4:
        return copy<uint32_t>(queue, nest, dst, src);
    case 8:
        return copy<uint64_t>(queue, nest, dst, src);
    default:
        return copy<uint4>(queue, nest, dst, src);
    }
}

/* ---- transposition ---- */

/* A matrix for each element of a nest: rows x columns, columns side by side in dst, rows in src. */
typedef struct transposition {
    dtp_cuda_nest batch;
    int64_t rows, columns;
    int64_t dst_row, src_column; /* strides */
} transposition;

template <class T> static __global__ void transpose_kernel(transposition t, T *dst, const T *src)
{
    enum { TILE = sizeof(T) < 4 ? 64 : 32, EACH = DTP_CUDA_BLOCK / TILE };
    DTP_SHARED(T, tile, TILE * (TILE + 1));
    const int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    const int64_t down = (t.rows + TILE - 1) / TILE, across = (t.columns + TILE - 1) / TILE;
    for (int64_t i = blockIdx.x; i < t.batch.total * down * across; i += gridDim.x) {
        const int64_t column = i % across * TILE, row = i / across % down * TILE;
        int64_t at[2];
        dtp_offsets(t.batch, i / across / down, at);
        for (int k = y; k < TILE; k += EACH) {
            if (column + k < t.columns && row + x < t.rows) {
                tile[k * (TILE + 1) + x] = src[at[1] + (column + k) * t.src_column + row + x];
            }
        }
        __syncthreads();
        for (int k = y; k < TILE; k += EACH) {
            if (row + k < t.rows && column + x < t.columns) {
                dst[at[0] + (row + k) * t.dst_row + column + x] = tile[x * (TILE + 1) + k];
            }
        }
        __syncthreads();
    }
}

template <class T>
static cudaError_t transpose(cudaStream_t queue, const transposition *t, void *dst, const void *src)
{
    const int64_t tile = sizeof(T) < 4 ? 64 : 32;
    const int64_t tiles =
        t->batch.total * ((t->rows + tile - 1) / tile) * ((t->columns + tile - 1) / tile);
    return dtp_launch(transpose_kernel<T>, dtp_grid(tiles, 1, 1), DTP_CUDA_BLOCK, 0, queue, *t,
                      (T *)dst, (const T *)src);
}

/* Takes dims `rows` and the last one out of the nest. */
static transposition transposition_of(const dtp_cuda_nest *nest, int rows)
{
    const int last = nest->rank - 1;
    transposition t = {};
    t.rows = nest->size[rows];
    t.columns = nest->size[last];
    t.dst_row = nest->stride[0][rows];
    t.src_column = nest->stride[1][last];
    t.batch.n_views = 2;
    t.batch.total = 1;
    t.batch.rank = 0;
    for (int i = 0; i < last; i++) {
        if (i != rows) {
            const int r = t.batch.rank++;
            t.batch.size[r] = nest->size[i];
            t.batch.total *= nest->size[i];
            t.batch.stride[0][r] = nest->stride[0][i];
            t.batch.stride[1][r] = nest->stride[1][i];
        }
    }
    if (t.batch.rank == 0) {
        t.batch.rank = 1;
        t.batch.size[0] = 1;
    }
    return t;
}

static cudaError_t transpose_any(cudaStream_t queue, const transposition *t, int32_t bytes,
                                 void *dst, const void *src)
{
    switch (bytes) {
    case 1:
        return transpose<uint8_t>(queue, t, dst, src);
    case 2:
        return transpose<uint16_t>(queue, t, dst, src);
    case 4:
        return transpose<uint32_t>(queue, t, dst, src);
    default:
        return transpose<uint64_t>(queue, t, dst, src);
    }
}

/* ---- choice ---- */

/* Elements per word of at most 16 bytes that every run of both sides consists of; 1 when runs are
 * no runs. */
static int64_t words_of(const dtp_cuda_nest *nest, int32_t bytes, const void *dst, const void *src)
{
    const int last = nest->rank - 1;
    int64_t v = 16 / bytes;
    bool fits = false;
    while (v > 1 && !fits) {
        fits = nest->stride[0][last] == 1 && nest->stride[1][last] == 1 &&
               nest->size[last] % v == 0 && dtp_grouped(nest, 0, dst, (size_t)bytes, (int)v) &&
               dtp_grouped(nest, 1, src, (size_t)bytes, (int)v);
        v = fits ? v : v / 2;
    }
    return v;
}

cudaError_t dtp_cuda_copy(cudaStream_t queue, const dtp_cuda_nest *nest, int32_t elem_bytes,
                          void *dst, const void *src)
{
    enum { LEAST = 16 }; /* rows and columns that are worth a tile */
    const int last = nest->rank - 1;
    const int64_t v = words_of(nest, elem_bytes, dst, src);
    int rows = 0;
    if (v > 1) {
        dtp_cuda_nest words = *nest;
        words.size[last] /= v;
        words.total /= v;
        for (int i = 0; i < last; i++) {
            words.stride[0][i] /= v;
            words.stride[1][i] /= v;
        }
        return copy_words(queue, &words, elem_bytes * (int32_t)v, dst, src);
    }
    while (rows < last && nest->stride[1][rows] != 1) {
        rows++;
    }
    if (rows < last && nest->stride[0][last] == 1 && nest->stride[1][last] != 0 &&
        nest->size[rows] >= LEAST && nest->size[last] >= LEAST) {
        const transposition t = transposition_of(nest, rows);
        return transpose_any(queue, &t, elem_bytes, dst, src);
    }
    return copy_words(queue, nest, elem_bytes, dst, src);
}

static __global__ void record_kernel(dtp_step_record record, dtp_step_record *dst)
{
    *dst = record;
}

cudaError_t dtp_cuda_put_record(cudaStream_t queue, const dtp_step_record *record,
                                dtp_step_record *dst)
{
    return dtp_launch(record_kernel, 1, 1, 0, queue, *record, dst);
}

static __global__ void word_kernel(uint64_t word, uint64_t *dst)
{
    DTP_PUT_WORD(dst, word);
}

cudaError_t dtp_cuda_put_word(cudaStream_t queue, uint64_t word, void *dst)
{
    return dtp_launch(word_kernel, 1, 1, 0, queue, word, (uint64_t *)dst);
}
