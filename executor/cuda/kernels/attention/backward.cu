/* The gradient walks twice, with rows of queries for dq and rows of keys for dk and dv, so that
 * every sum has one owner and one order. With d = dout . out: p = exp(s - lse); dv += p' dout;
 * ds = p (dout v' - d); dq += ds k; dk += ds' q. */
#include "executor/cuda/kernels/attention/attention.h"
#include "executor/cuda/kernels/attention/block.cuh"

/* dout . out: a warp per head and query. */
template <class T> static __global__ void dot_kernel(dtp_cuda_attention_call a)
{
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
    const int64_t total = a.shared.total * a.grouped.total * a.shape.queries;
    for (int64_t i = dtp_thread() / DTP_CUDA_WARP; i < total; i += dtp_threads() / DTP_CUDA_WARP) {
        const int64_t head = i / a.shape.queries, query = i % a.shape.queries;
        int64_t at[DTP_N_HEAD_VIEWS], in_group[DTP_N_HEAD_VIEWS];
        dtp_offsets(a.shared, head / a.grouped.total, at);
        dtp_offsets(a.grouped, head % a.grouped.total, in_group);
        const T *out = (const T *)a.mats.out.data + at[DTP_ATTENTION_OUT] +
                       in_group[DTP_ATTENTION_OUT] + query * a.mats.out.row_step;
        const T *dout = (const T *)a.mats.dout.data + at[DTP_ATTENTION_DOUT] +
                        in_group[DTP_ATTENTION_DOUT] + query * a.mats.dout.row_step;
        float sum = 0.0f;
        for (int v = lane; v < a.values; v += DTP_CUDA_WARP) {
            sum += dtp_float_of(out[v * a.mats.out.col_step]) *
                   dtp_float_of(dout[v * a.mats.dout.col_step]);
        }
        sum = dtp_warp_reduce<dtp_sum>(sum);
        if (lane == 0) {
            a.dot[i] = sum;
        }
    }
}

/* Of the queries of a tile: position, lse, dout . out. Keys have a position. */
struct gradient_marks {
    int64_t *query_at, *key_at;
    float *lse, *dot;
};

static __device__ void mark_queries(const dtp_cuda_attention_call &a, const dtp_head &h,
                                    int64_t first, int n, const gradient_marks &m)
{
    DTP_ROLL
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        const int64_t query = first + i;
        const bool there = query < a.shape.queries;
        m.query_at[i] = dtp_query_position(a, h, query);
        m.lse[i] = there ? a.mats.lse[h.at[DTP_ATTENTION_LSE] + query * a.mats.lse_step] : 0.0f;
        m.dot[i] = there ? a.dot[h.index * a.shape.queries + query] : 0.0f;
    }
}

static __device__ void mark_keys(const dtp_cuda_attention_call &a, const dtp_head &h, int64_t first,
                                 int n, const gradient_marks &m)
{
    DTP_ROLL
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        m.key_at[i] = dtp_key_position(a, h, first + i);
    }
}

/* Weights p and gradients ds of this lane's half of row r of the warp; rows of pairs with keys are
 * keys. Returns whether the warp sees all pairs. */
template <class T>
static __device__ bool weigh_gradient(const float *s, const float *d, T *p, T *ds, int cols,
                                      float scale, int r, const dtp_tile_pairs &pairs,
                                      const gradient_marks &m)
{
    bool whole = true;
    for (int c = (int)threadIdx.x % 2; c < cols; c += 2) {
        const int query = pairs.keys ? c : pairs.top + r;
        const float mask = pairs.placed(r, c) ? pairs.mask(r, c) : -INFINITY;
        const bool seen = mask != -INFINITY;
        whole = whole && seen;
        const float lse = m.lse[query];
        const float x =
            seen && lse != -INFINITY ? dtp_weight_of<T>(s[c] * scale + mask - lse) : 0.0f;
        const float y = seen ? x * (d[c] - m.dot[query]) : 0.0f;
        dtp_put(p + c, x);
        dtp_put(ds + c, y);
    }
    __syncwarp();
    return __all_sync(0xffffffffu, whole);
}

/* FIRST: dq, or dk with KEYS; SECOND: dv. */
template <class T, int N, bool KEYS, bool FIRST, bool SECOND>
static __global__ void __launch_bounds__(DTP_ATTENTION_THREADS, 1)
    backward_kernel(dtp_cuda_attention_call a, dtp_tile_sizes t)
{
    DTP_DYNAMIC_SHARED(shared);
    dtp_shared_pool memory = {shared};
    T *row_1 = memory.take<T>(t.rows * t.ld_f), *row_2 = memory.take<T>(t.rows * t.ld_v);
    T *col_1 = memory.take<T>(t.cols * t.ld_f), *col_2 = memory.take<T>(t.cols * t.ld_v);
    float *scores = memory.take<float>(t.rows * t.ld_s);
    float *grads = memory.take<float>(t.rows * t.ld_s);
    T *p = dtp_take_weights<T>(&memory, t.rows * t.ld_w, scores);
    T *ds = dtp_take_weights<T>(&memory, t.rows * t.ld_w, grads);
    const int n_queries = KEYS ? t.cols : t.rows, n_keys = KEYS ? t.rows : t.cols;
    gradient_marks marks;
    marks.query_at = memory.take<int64_t>(n_queries);
    marks.key_at = memory.take<int64_t>(n_keys);
    dtp_head &h = *memory.take<dtp_head>(1);
    marks.lse = memory.take<float>(n_queries);
    marks.dot = memory.take<float>(n_queries);
    const int top = (int)threadIdx.x / DTP_CUDA_WARP * DTP_TILE;
    const int row = top + (int)threadIdx.x % DTP_CUDA_WARP / 2;
    float *s = scores + top * t.ld_s, *d = grads + top * t.ld_s;
    const dtp_attention_mat *of_row_1 = KEYS ? &a.mats.k : &a.mats.q,
                            *of_row_2 = KEYS ? &a.mats.v : &a.mats.dout;
    const dtp_attention_mat *of_col_1 = KEYS ? &a.mats.q : &a.mats.k,
                            *of_col_2 = KEYS ? &a.mats.dout : &a.mats.v;
    const int64_t all_rows = KEYS ? a.shape.keys : a.shape.queries,
                  all_cols = KEYS ? a.shape.queries : a.shape.keys;
    const int64_t tiles = (all_rows + t.rows - 1) / t.rows;
    const int64_t groups = KEYS ? a.grouped.total : 1, owners = KEYS ? 1 : a.grouped.total;
    for (int64_t u = blockIdx.x; u < a.shared.total * owners * tiles; u += gridDim.x) {
        const int64_t first = (KEYS ? u % tiles : tiles - 1 - u % tiles) * t.rows;
        const int n = (int)dtp_least(t.rows, all_rows - first);
        const int64_t of_shared = u / tiles / owners;
        dtp_set_head(&h, a, of_shared, u / tiles % owners);
        dtp_tile_sum<T, N> sum_1, sum_2;
        dtp_tile_load(
            row_1, t.ld_f, t.rows, t.features,
            {of_row_1, h.at[KEYS ? DTP_ATTENTION_K : DTP_ATTENTION_Q], first, n, a.features});
        dtp_tile_load(
            row_2, t.ld_v, t.rows, t.values,
            {of_row_2, h.at[KEYS ? DTP_ATTENTION_V : DTP_ATTENTION_DOUT], first, n, a.values});
        if (KEYS) {
            mark_keys(a, h, first, t.rows, marks);
        } else {
            mark_queries(a, h, first, t.rows, marks);
        }
        if (FIRST) {
            sum_1.begin(s, t.ld_s);
        }
        if (SECOND) {
            sum_2.begin(s, t.ld_s);
        }
        for (int64_t g = 0; g < groups; g++) {
            if (KEYS) {
                dtp_set_head(&h, a, of_shared, g);
            }
            for (int64_t col = 0; col < all_cols; col += t.cols) {
                if (!(KEYS ? dtp_tile_sees(a, h, col, t.cols, first, n)
                           : dtp_tile_sees(a, h, first, n, col, t.cols))) {
                    continue;
                }
                const int nc = (int)dtp_least(t.cols, all_cols - col);
                __syncthreads();
                dtp_tile_load(col_1, t.ld_f, t.cols, t.features,
                              {of_col_1, h.at[KEYS ? DTP_ATTENTION_Q : DTP_ATTENTION_K], col, nc,
                               a.features});
                dtp_tile_load(col_2, t.ld_v, t.cols, t.values,
                              {of_col_2, h.at[KEYS ? DTP_ATTENTION_DOUT : DTP_ATTENTION_V], col, nc,
                               a.values});
                if (KEYS) {
                    mark_queries(a, h, col, t.cols, marks);
                } else {
                    mark_keys(a, h, col, t.cols, marks);
                }
                __syncthreads();
                dtp_tile_scores(s, t.ld_s, row_1 + top * t.ld_f, col_1, t.ld_f, t.cols, t.features);
                dtp_tile_scores(d, t.ld_s, row_2 + top * t.ld_v, col_2, t.ld_v, t.cols, t.values);
                const dtp_tile_pairs pairs = {marks.query_at,     marks.key_at,      top, KEYS, &h,
                                              KEYS ? col : first, KEYS ? first : col};
                const bool seen =
                    weigh_gradient(scores + row * t.ld_s, grads + row * t.ld_s, p + row * t.ld_w,
                                   ds + row * t.ld_w, t.cols, a.scale, row - top, pairs, marks);
                const bool whole = seen || !dtp_hides(a);
                if (FIRST) {
                    dtp_add_tile(&sum_1, whole, ds + top * t.ld_w, t.ld_w, t.cols, col_1 + t.first,
                                 t.ld_f, t.features - t.first, s, t.ld_s, pairs);
                }
                if (SECOND) {
                    dtp_add_tile(&sum_2, whole, p + top * t.ld_w, t.ld_w, t.cols, col_2 + t.first,
                                 t.ld_v, t.values - t.first, s, t.ld_s, pairs);
                }
            }
        }
        if (FIRST) {
            const dtp_attention_mat *to = KEYS ? &a.mats.dk : &a.mats.dq;
            sum_1.store(s, t.ld_s,
                        {to,
                         h.at[KEYS ? DTP_ATTENTION_K : DTP_ATTENTION_DQ] + t.first * to->col_step,
                         first + top, n - top, a.features - t.first, a.scale, NULL});
        }
        if (SECOND) {
            sum_2.store(s, t.ld_s,
                        {&a.mats.dv, h.at[DTP_ATTENTION_V] + t.first * a.mats.dv.col_step,
                         first + top, n - top, a.values - t.first, 1.0f, NULL});
        }
        __syncthreads();
    }
}

/* The sums of dk and dv of wide heads do not fit the registers together. */
template <class T>
static cudaError_t backward_keys(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = dtp_choose_tiles<T>(a, true);
    const int64_t units = a->shared.total * dtp_tiles_of(a->shape.keys, t);
    if (a->features <= DTP_NARROW_COLUMNS && a->values <= DTP_NARROW_COLUMNS) {
        return dtp_launch_tiles(queue, backward_kernel<T, DTP_NARROW, true, true, true>, a, t,
                                units, 1);
    }
    const cudaError_t code = dtp_launch_tiles(
        queue, backward_kernel<T, DTP_WIDE, true, true, false>, a, t, units, a->features);
    return code != cudaSuccess
               ? code
               : dtp_launch_tiles(queue, backward_kernel<T, DTP_WIDE, true, false, true>, a, t,
                                  units, a->values);
}

template <class T> static cudaError_t backward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = dtp_choose_tiles<T>(a, true);
    const int64_t heads = a->shared.total * a->grouped.total;
    const dtp_tile_kernel kernel = a->features <= DTP_NARROW_COLUMNS
                                       ? backward_kernel<T, DTP_NARROW, false, true, false>
                                       : backward_kernel<T, DTP_WIDE, false, true, false>;
    cudaError_t code = cudaSuccess;
    if (heads * a->shape.queries > 0) {
        code = dtp_launch(dot_kernel<T>, dtp_grid(heads * a->shape.queries, DTP_ATTENTION_WARPS, 1),
                          DTP_ATTENTION_THREADS, 0, queue, *a);
    }
    if (code == cudaSuccess) {
        code = dtp_launch_tiles(queue, kernel, a, t, heads * dtp_tiles_of(a->shape.queries, t),
                                a->features);
    }
    return code == cudaSuccess ? backward_keys<T>(queue, a) : code;
}

cudaError_t dtp_cuda_attention_backward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    return a->dtype == DTP_F32    ? backward<float>(queue, a)
           : a->dtype == DTP_BF16 ? backward<__nv_bfloat16>(queue, a)
                                  : backward<__half>(queue, a);
}
