/* What the kernels of attention do with tiles in shared memory: loads, products of a warp of 16
 * rows, places and positions. Products of 16-bit floats are those of tensor cores with f32 sums;
 * how a warp holds a fragment is not known, so the row of each of its elements is read from one
 * that holds numbers of rows. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_TILE_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_TILE_CUH

#include <mma.h>

#include "executor/cuda/kernels/attention/attention.h"
#include "executor/cuda/kernels/common.cuh"

enum { DTP_TILE = 16, DTP_TILE_STEP = 32 }; /* rows of a warp; columns of scores at a time */

/* Sizes of a block's tiles: rows x cols scores; features and values filled up with zeros, and
 * leading dims: of those, of scores (f32) and of weights. */
struct dtp_tile_sizes {
    int rows, cols, features, values, ld_f, ld_v, ld_s, ld_w;
    int first; /* column of features or values from which a launch sums */
    size_t bytes;
};

static __device__ __forceinline__ float dtp_float_of(float x)
{
    return x;
}
static __device__ __forceinline__ float dtp_float_of(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float dtp_float_of(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ void dtp_put(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void dtp_put(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}
static __device__ __forceinline__ void dtp_put(__half *to, float x)
{
    *to = __float2half_rn(x);
}

/* Rows of a matrix of one head from row `first` on: n of them, `cols` wide. */
struct dtp_tile_source {
    const dtp_attention_mat *mat;
    int64_t at, first;
    int n, cols;
};

/* to[rows][cols] with leading dim ld, by all threads of the block; zeros where there is nothing. */
template <class T>
static __device__ void dtp_tile_load(T *to, int ld, int rows, int cols, const dtp_tile_source &s)
{
    enum { VECTOR = 16 / sizeof(T) };
    const int64_t row_step = s.mat->row_step, col_step = s.mat->col_step;
    const T *from = (const T *)s.mat->data + s.at + s.first * row_step;
    const bool whole = col_step == 1 && s.cols % VECTOR == 0 && row_step % VECTOR == 0 &&
                       (uintptr_t)from % 16 == 0;
    const int per_row = whole ? cols / VECTOR : cols;
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < rows * per_row; i += (int)blockDim.x) {
        const bool down =
            !whole && row_step < col_step; /* neighbours of a row step are neighbours */
        const int r = down ? i % rows : i / per_row, c = down ? i / rows : i % per_row;
        if (whole) {
            uint4 x = {0, 0, 0, 0};
            if (r < s.n && c * VECTOR < s.cols) {
                x = *(const uint4 *)(from + r * row_step + c * VECTOR);
            }
            *(uint4 *)(to + r * ld + c * VECTOR) = x;
        } else {
            const bool there = r < s.n && c < s.cols;
            dtp_put(to + r * ld + c,
                    there ? dtp_float_of(from[r * row_step + c * col_step]) : 0.0f);
        }
    }
}

/* Where a warp's result goes: rows from `first` on, times scale and, if given, factor[row]. */
struct dtp_tile_target {
    const dtp_attention_mat *mat;
    int64_t at, first;
    int n, cols; /* those that there are */
    float scale;
    const float *factor;
};

template <class T>
static __device__ __forceinline__ void dtp_tile_put(const dtp_tile_target &t, int row, int col,
                                                    float x)
{
    if (row < t.n && col < t.cols) {
        T *to = (T *)t.mat->data + t.at + (t.first + row) * t.mat->row_step;
        x *= t.factor == NULL ? t.scale : t.scale * t.factor[row];
        dtp_put(to + col * t.mat->col_step, x);
    }
}

/* s[16][cols] = a[16][depth] b[cols][depth]', by a warp. */
template <class T>
static __device__ void dtp_tile_scores(float *s, int ld_s, const T *a, const T *b, int ld, int cols,
                                       int depth)
{
    using namespace nvcuda;
#pragma unroll 1
    for (int c = 0; c < cols; c += DTP_TILE_STEP) {
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
        wmma::fill_fragment(sum[0], 0.0f);
        wmma::fill_fragment(sum[1], 0.0f);
#pragma unroll 1
        for (int k = 0; k < depth; k += DTP_TILE) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> x;
            wmma::load_matrix_sync(x, a + k, (unsigned)ld);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> y;
                wmma::load_matrix_sync(y, b + (c + j * DTP_TILE) * ld + k, (unsigned)ld);
                wmma::mma_sync(sum[j], x, y, sum[j]);
            }
        }
        for (int j = 0; j < 2; j++) {
            wmma::store_matrix_sync(s + c + j * DTP_TILE, sum[j], (unsigned)ld_s,
                                    wmma::mem_row_major);
        }
    }
    __syncwarp();
}

static __device__ __forceinline__ float dtp_dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* f32: a column per lane. */
static __device__ void dtp_tile_scores(float *s, int ld_s, const float *a, const float *b, int ld,
                                       int cols, int depth)
{
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
#pragma unroll 1
    for (int c = lane; c < cols; c += DTP_TILE_STEP) {
        float sum[DTP_TILE] = {};
#pragma unroll 1
        for (int k = 0; k < depth; k += 4) {
            const float4 y = *(const float4 *)(b + c * ld + k);
#pragma unroll
            for (int r = 0; r < DTP_TILE; r++) {
                sum[r] = dtp_dot4(*(const float4 *)(a + r * ld + k), y, sum[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < DTP_TILE; r++) {
            s[r * ld_s + c] = sum[r];
        }
    }
    __syncwarp();
}

enum { DTP_N_HEAD_VIEWS = DTP_ATTENTION_DQ + 1 };

/* A head of queries: first elements in the views, number, places of its query 0 and key 0; the
 * mask, NULL: none. */
struct dtp_head {
    int64_t at[DTP_N_HEAD_VIEWS], index, query, key;
    dtp_attention_mat mask;
    int mask_dtype;
};

/* Which pairs a tile has: row r of the warp, whose first one is `top`, and column k. */
struct dtp_tile_pairs {
    const int64_t *query_at, *key_at;
    int top;
    bool keys; /* rows are keys */
    const dtp_head *head;
    int64_t query, key; /* the first ones of the tile */

    /* What the mask adds to the score of a pair; -inf: it is not seen. */
    __device__ __forceinline__ float mask(int r, int k) const
    {
        if (head->mask.data == NULL) {
            return 0.0f;
        }
        const int64_t at = head->at[DTP_ATTENTION_MASK] +
                           (query + (keys ? k : top + r)) * head->mask.row_step +
                           (key + (keys ? top + r : k)) * head->mask.col_step;
        const void *data = head->mask.data;
        return head->mask_dtype == DTP_BOOL   ? (((const uint8_t *)data)[at] ? 0.0f : -INFINITY)
               : head->mask_dtype == DTP_F32  ? ((const float *)data)[at]
               : head->mask_dtype == DTP_BF16 ? dtp_float_of(((const __nv_bfloat16 *)data)[at])
                                              : dtp_float_of(((const __half *)data)[at]);
    }
    /* Whether the query sees the key by their places, which the mask is not there for beyond the
     * last ones. */
    __device__ __forceinline__ bool placed(int r, int k) const
    {
        return key_at[keys ? top + r : k] <= query_at[keys ? k : top + r];
    }
    __device__ __forceinline__ bool seen(int r, int k) const
    {
        return placed(r, k) && mask(r, k) != -INFINITY;
    }
};

/* Is all of b[depth][width] finite? */
template <class T>
static __device__ bool dtp_tile_is_finite(const T *b, int ld_b, int depth, int width)
{
    float zero = 0.0f;
    DTP_ROLL
    for (int i = (int)threadIdx.x % DTP_CUDA_WARP; i < depth * width; i += DTP_CUDA_WARP) {
        zero += 0.0f * dtp_float_of(b[i / width * ld_b + i % width]);
    }
    return __all_sync(0xffffffffu, zero == 0.0f);
}

/* A sum of products, 16 rows x up to 16 N columns, in the registers of a warp. */
template <class T, int N> struct dtp_tile_sum {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum[N], row;

    /* Zero. `scratch`: 16 rows of leading dim ld of this warp. */
    __device__ __forceinline__ void begin(float *scratch, int ld)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
        __syncwarp();
        DTP_ROLL
        for (int i = lane; i < DTP_TILE * DTP_TILE; i += DTP_CUDA_WARP) {
            scratch[i / DTP_TILE * ld + i % DTP_TILE] = (float)(i / DTP_TILE);
        }
        __syncwarp();
        nvcuda::wmma::load_matrix_sync(row, scratch, (unsigned)ld, nvcuda::wmma::mem_row_major);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < N; j++) {
            nvcuda::wmma::fill_fragment(sum[j], 0.0f);
        }
    }

    __device__ __forceinline__ void scale_rows(const float *factor)
    {
#pragma unroll
        for (int i = 0; i < (int)row.num_elements; i++) {
            const float by = factor[(int)row.x[i]];
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j].x[i] *= by;
            }
        }
    }

    /* += w[16][depth] b[depth][width]. */
    __device__ __forceinline__ void add(const T *w, int ld_w, int depth, const T *b, int ld_b,
                                        int width)
    {
        using namespace nvcuda;
#pragma unroll 1
        for (int k = 0; k < depth; k += DTP_TILE) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> x;
            wmma::load_matrix_sync(x, w + k, (unsigned)ld_w);
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (j * DTP_TILE < width) {
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> y;
                    wmma::load_matrix_sync(y, b + k * ld_b + j * DTP_TILE, (unsigned)ld_b);
                    wmma::mma_sync(sum[j], x, y, sum[j]);
                }
            }
        }
    }

    /* The same from pairs that are seen alone: others have weight 0, which is no factor of what is
     * not finite. */
    __device__ void add_seen(const T *w, int ld_w, int depth, const T *b, int ld_b, int width,
                             float *scratch, int ld, const dtp_tile_pairs &pairs)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
        nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> more;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j * DTP_TILE < width) {
                __syncwarp();
                DTP_ROLL
                for (int i = lane; i < DTP_TILE * DTP_TILE; i += DTP_CUDA_WARP) {
                    const int r = i / DTP_TILE, c = i % DTP_TILE;
                    float x = 0.0f;
                    DTP_ROLL
                    for (int k = 0; k < depth; k++) {
                        if (pairs.seen(r, k)) {
                            x += dtp_float_of(w[r * ld_w + k]) *
                                 dtp_float_of(b[k * ld_b + j * DTP_TILE + c]);
                        }
                    }
                    scratch[r * ld + c] = x;
                }
                __syncwarp();
                nvcuda::wmma::load_matrix_sync(more, scratch, (unsigned)ld,
                                               nvcuda::wmma::mem_row_major);
#pragma unroll
                for (int i = 0; i < (int)more.num_elements; i++) {
                    sum[j].x[i] += more.x[i];
                }
            }
        }
        __syncwarp();
    }

    __device__ __forceinline__ void store(float *scratch, int ld, const dtp_tile_target &to)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (j * DTP_TILE < to.cols) {
                __syncwarp();
                nvcuda::wmma::store_matrix_sync(scratch, sum[j], (unsigned)ld,
                                                nvcuda::wmma::mem_row_major);
                __syncwarp();
                DTP_ROLL
                for (int i = lane; i < DTP_TILE * DTP_TILE; i += DTP_CUDA_WARP) {
                    const int r = i / DTP_TILE, c = i % DTP_TILE;
                    dtp_tile_put<T>(to, r, j * DTP_TILE + c, scratch[r * ld + c]);
                }
            }
        }
        __syncwarp();
    }
};

/* f32: lane l holds columns l, l + 32, .. */
template <int N> struct dtp_tile_sum<float, N> {
    float sum[N / 2][DTP_TILE];

    __device__ __forceinline__ void begin(float *, int)
    {
#pragma unroll
        for (int j = 0; j < N / 2; j++) {
#pragma unroll
            for (int r = 0; r < DTP_TILE; r++) {
                sum[j][r] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void scale_rows(const float *factor)
    {
#pragma unroll
        for (int r = 0; r < DTP_TILE; r++) {
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                sum[j][r] *= factor[r];
            }
        }
    }

    __device__ __forceinline__ void add(const float *w, int ld_w, int depth, const float *b,
                                        int ld_b, int width)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
#pragma unroll 1
        for (int k = 0; k < depth; k += 4) {
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                const float *from = b + k * ld_b + lane + j * DTP_CUDA_WARP;
                if (j * DTP_CUDA_WARP < width) {
                    const float4 y = {from[0], from[ld_b], from[2 * ld_b], from[3 * ld_b]};
#pragma unroll
                    for (int r = 0; r < DTP_TILE; r++) {
                        sum[j][r] = dtp_dot4(*(const float4 *)(w + r * ld_w + k), y, sum[j][r]);
                    }
                }
            }
        }
    }

    __device__ void add_seen(const float *w, int ld_w, int depth, const float *b, int ld_b,
                             int width, float *, int, const dtp_tile_pairs &pairs)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
        DTP_ROLL
        for (int k = 0; k < depth; k++) {
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                if (j * DTP_CUDA_WARP < width) {
                    const float y = b[k * ld_b + lane + j * DTP_CUDA_WARP];
#pragma unroll
                    for (int r = 0; r < DTP_TILE; r++) {
                        sum[j][r] =
                            pairs.seen(r, k) ? fmaf(w[r * ld_w + k], y, sum[j][r]) : sum[j][r];
                    }
                }
            }
        }
    }

    /* By way of memory of the lane's own: a sum in registers has no row r of a rolled loop. */
    __device__ __forceinline__ void store(float *scratch, int ld, const dtp_tile_target &to)
    {
        const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
        __syncwarp();
#pragma unroll
        for (int j = 0; j < N / 2; j++) {
#pragma unroll
            for (int r = 0; r < DTP_TILE; r++) {
                scratch[r * ld + lane] = sum[j][r];
            }
            DTP_ROLL
            for (int r = 0; r < DTP_TILE; r++) {
                dtp_tile_put<float>(to, r, j * DTP_CUDA_WARP + lane, scratch[r * ld + lane]);
            }
        }
        __syncwarp();
    }
};

/* ---- places and positions ---- */

static __device__ int64_t dtp_position(const dtp_cuda_attention_call &a, int64_t place)
{
    if (a.shape.order.run == a.shape.order.size) {
        return place;
    }
    const int64_t r = place / a.shape.order.run;
    const int64_t run = r % 2 == 0 ? r / 2 : a.shape.order.size / a.shape.order.run - 1 - r / 2;
    return run * a.shape.order.run + place % a.shape.order.run;
}

/* Query i sees key j where the second is not larger than the first. Beyond the last ones no query
 * sees a key and no key is seen. */
static __device__ int64_t dtp_query_position(const dtp_cuda_attention_call &a, const dtp_head &h,
                                             int64_t query)
{
    const int64_t place = h.query + query;
    return query >= a.shape.queries ? -1
           : !a.shape.causal        ? INT64_MAX - 1
           : a.shape.ahead == 0     ? dtp_position(a, place)
                                    : place + a.shape.ahead;
}

static __device__ int64_t dtp_key_position(const dtp_cuda_attention_call &a, const dtp_head &h,
                                           int64_t key)
{
    return key >= a.shape.keys ? INT64_MAX : !a.shape.causal ? 0 : dtp_position(a, h.key + key);
}

/* Whether any query of [query, query + nq) sees a key of [key, key + nk). */
static __device__ bool dtp_tile_sees(const dtp_cuda_attention_call &a, const dtp_head &h,
                                     int64_t query, int nq, int64_t key, int nk)
{
    const bool runs = a.shape.order.run != a.shape.order.size;
    const int64_t end_q = query + nq < a.shape.queries ? query + nq : a.shape.queries;
    const int64_t end_k = key + nk < a.shape.keys ? key + nk : a.shape.keys;
    int64_t highest = -1, lowest = INT64_MAX, next;
    DTP_ROLL
    for (; query < end_q; query = next) {
        next = runs ? query + a.shape.order.run - (h.query + query) % a.shape.order.run : end_q;
        const int64_t p = dtp_query_position(a, h, (next < end_q ? next : end_q) - 1);
        highest = p > highest ? p : highest;
    }
    DTP_ROLL
    for (; key < end_k; key = next) {
        next = runs ? key + a.shape.order.run - (h.key + key) % a.shape.order.run : end_k;
        const int64_t p = dtp_key_position(a, h, key);
        lowest = p < lowest ? p : lowest;
    }
    return lowest <= highest;
}

#endif
