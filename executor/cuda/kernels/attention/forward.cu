/* Forward: rows are queries; a running maximum and sum per query rescale the result from tile to
 * tile (online softmax). */
#include "executor/cuda/kernels/attention/attention.h"
#include "executor/cuda/kernels/attention/block.cuh"

/* The running maximum of a row and a lane's half of its sum. */
struct row_state {
    float most, total;
};

/* Turns this lane's half of row r of a warp's scores into weights relative to the new maximum; the
 * factor of what is there goes to *shrink. Returns whether the warp sees all pairs. */
template <class T>
static __device__ bool weigh(row_state *row, float *s, T *w, int cols, float scale, int r,
                             const dtp_tile_pairs &pairs, float *shrink)
{
    const int half = (int)threadIdx.x % 2;
    const bool masked = pairs.head->mask.data != NULL;
    float most = row->most, sum = 0.0f;
    for (int c = half; c < cols; c += 2) {
        if (masked && pairs.placed(r, c)) {
            const float mask = pairs.mask(r, c);
            s[c] = mask == -INFINITY ? -INFINITY : s[c] * scale + mask;
        }
        most = pairs.placed(r, c) ? fmaxf(most, masked ? s[c] : s[c] * scale) : most;
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1)); /* NaN is in the sum */
    const float base = most == -INFINITY ? 0.0f : most;
    const float by = row->most == -INFINITY ? 0.0f : dtp_weight_of<T>(row->most - most);
    bool whole = true;
    for (int c = half; c < cols; c += 2) {
        const bool seen = pairs.seen(r, c);
        whole = whole && seen;
        const float p = seen ? dtp_weight_of<T>((masked ? s[c] : s[c] * scale) - base) : 0.0f;
        sum += p;
        dtp_put(w + c, p);
    }
    row->total = row->total * by + sum;
    row->most = most;
    if (half == 0) {
        *shrink = by;
    }
    __syncwarp();
    return __all_sync(0xffffffffu, whole);
}

template <class T, int N>
static __global__ void __launch_bounds__(DTP_ATTENTION_THREADS, 1)
    forward_kernel(dtp_cuda_attention_call a, dtp_tile_sizes t)
{
    DTP_DYNAMIC_SHARED(shared);
    dtp_shared_pool memory = {shared};
    T *q = memory.take<T>(t.rows * t.ld_f);
    T *kv = memory.take<T>(t.cols * (t.ld_f > t.ld_v ? t.ld_f : t.ld_v));
    float *scores = memory.take<float>(t.rows * t.ld_s);
    T *weights = dtp_take_weights<T>(&memory, t.rows * t.ld_w, scores);
    int64_t *query_at = memory.take<int64_t>(t.rows), *key_at = memory.take<int64_t>(t.cols);
    dtp_head &h = *memory.take<dtp_head>(1);
    float *factor = memory.take<float>(t.rows);
    const int top = (int)threadIdx.x / DTP_CUDA_WARP * DTP_TILE; /* first row of the warp */
    const int row = top + (int)threadIdx.x % DTP_CUDA_WARP / 2;
    float *s = scores + top * t.ld_s;
    T *w = weights + top * t.ld_w;
    const int64_t tiles = (a.shape.queries + t.rows - 1) / t.rows, groups = a.grouped.total;
    for (int64_t u = blockIdx.x; u < a.shared.total * groups * tiles; u += gridDim.x) {
        dtp_set_head(&h, a, u / tiles / groups, u / tiles % groups);
        const int64_t first = (tiles - 1 - u % tiles) * t.rows; /* many keys first */
        const int n = (int)dtp_least(t.rows, a.shape.queries - first);
        row_state state = {-INFINITY, 0.0f};
        dtp_tile_sum<T, N> sum;
        dtp_tile_load(q, t.ld_f, t.rows, t.features,
                      {&a.mats.q, h.at[DTP_ATTENTION_Q], first, n, a.features});
        DTP_ROLL
        for (int i = (int)threadIdx.x; i < t.rows; i += (int)blockDim.x) {
            query_at[i] = dtp_query_position(a, h, first + i);
        }
        sum.begin(s, t.ld_s);
        for (int64_t key = 0; key < a.shape.keys; key += t.cols) {
            if (!dtp_tile_sees(a, h, first, n, key, t.cols)) {
                continue;
            }
            const int nk = (int)dtp_least(t.cols, a.shape.keys - key);
            __syncthreads();
            dtp_tile_load(kv, t.ld_f, t.cols, t.features,
                          {&a.mats.k, h.at[DTP_ATTENTION_K], key, nk, a.features});
            DTP_ROLL
            for (int i = (int)threadIdx.x; i < t.cols; i += (int)blockDim.x) {
                key_at[i] = dtp_key_position(a, h, key + i);
            }
            __syncthreads();
            dtp_tile_scores(s, t.ld_s, q + top * t.ld_f, kv, t.ld_f, t.cols, t.features);
            const dtp_tile_pairs pairs = {query_at, key_at, top, false, &h, first, key};
            const bool whole = weigh(&state, scores + row * t.ld_s, weights + row * t.ld_w, t.cols,
                                     a.scale, row - top, pairs, factor + row);
            __syncthreads();
            dtp_tile_load(kv, t.ld_v, t.cols, t.values,
                          {&a.mats.v, h.at[DTP_ATTENTION_V], key, nk, a.values});
            __syncthreads();
            sum.scale_rows(factor + top);
            dtp_add_tile(&sum, whole || !dtp_hides(a), w, t.ld_w, t.cols, kv + t.first, t.ld_v,
                         t.values - t.first, s, t.ld_s, pairs);
        }
        const float total = state.total + __shfl_xor_sync(0xffffffffu, state.total, 1);
        if (threadIdx.x % 2 == 0) {
            factor[row] = total > 0.0f || total != total ? 1.0f / total : 0.0f;
            if (row < n) {
                a.mats.lse[h.at[DTP_ATTENTION_LSE] + (first + row) * a.mats.lse_step] =
                    state.most + logf(total);
            }
        }
        __syncwarp();
        sum.store(s, t.ld_s,
                  {&a.mats.out, h.at[DTP_ATTENTION_OUT] + t.first * a.mats.out.col_step,
                   first + top, n - top, a.values - t.first, 1.0f, factor + top});
        __syncthreads();
    }
}

template <class T> static cudaError_t forward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = dtp_choose_tiles<T>(a, false);
    const int64_t heads = a->shared.total * a->grouped.total;
    const dtp_tile_kernel kernel = a->values <= DTP_NARROW_COLUMNS ? forward_kernel<T, DTP_NARROW>
                                                                   : forward_kernel<T, DTP_WIDE>;
    return dtp_launch_tiles(queue, kernel, a, t, heads * dtp_tiles_of(a->shape.queries, t),
                            a->values);
}

cudaError_t dtp_cuda_attention_forward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    return a->dtype == DTP_F32    ? forward<float>(queue, a)
           : a->dtype == DTP_BF16 ? forward<__nv_bfloat16>(queue, a)
                                  : forward<__half>(queue, a);
}
