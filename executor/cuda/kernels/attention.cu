/* Flash attention (Dao 2023). A block holds a tile of rows and walks the tiles of columns; a warp
 * has 16 rows of scores, two lanes a row. Forward: rows are queries, a running maximum and sum per
 * query rescale the result from tile to tile (online softmax). Gradient: the same walk twice, with
 * rows of queries for dq and rows of keys for dk and dv, so that every sum has one owner and one
 * order. With d = dout . out: p = exp(s - lse); dv += p' dout; ds = p (dout v' - d); dq += ds k;
 * dk += ds' q. */
#include "executor/cuda/kernels/attention.h"
#include "executor/cuda/kernels/attention_tile.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * DTP_CUDA_WARP,
    SHARED_BYTES = 99 << 10 /* on every device from sm_80 on; sm_80 and sm_90 have more */
};

static __device__ __forceinline__ int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

template <class T> static __device__ __forceinline__ float weight_of(float x)
{
    return __expf(x);
}
template <> __device__ __forceinline__ float weight_of<float>(float x)
{
    return expf(x);
}

/* Hands out shared memory. */
struct pool {
    unsigned char *next;
    template <class T> __device__ __forceinline__ T *take(int n)
    {
        T *p = (T *)next;
        next += (size_t)n * sizeof(T);
        return p;
    }
};

/* Weights of 16-bit floats have memory of their own, others lie where the scores were. */
template <class T> static __device__ __forceinline__ T *take_weights(pool *p, int n, float *)
{
    return p->take<T>(n);
}
template <> __device__ __forceinline__ float *take_weights<float>(pool *, int, float *scores)
{
    return scores;
}

/* The head that a block works on is in shared memory: registers are for sums. */
static __device__ void set_head(dtp_head *h, const dtp_cuda_attention_call &a, int64_t shared,
                                int64_t group)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        *h = dtp_head_of(a, shared, group);
    }
    __syncthreads();
}

/* ---- forward ---- */

/* The running maximum of a row and a lane's half of its sum. */
struct row_state {
    float most, total;
};

/* Turns this lane's half of a row of scores into weights relative to the new maximum; the factor of
 * what is there goes to *shrink. */
template <class T>
static __device__ void weigh(row_state *row, const float *s, T *w, int cols, float scale,
                             int64_t query_at, const int64_t *key_at, float *shrink)
{
    const int half = (int)threadIdx.x % 2;
    float most = row->most, sum = 0.0f;
    for (int c = half; c < cols; c += 2) {
        most = key_at[c] <= query_at ? fmaxf(most, s[c] * scale) : most;
    }
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    const float by = row->most == -INFINITY ? 0.0f : weight_of<T>(row->most - most);
    for (int c = half; c < cols; c += 2) {
        const float p = key_at[c] <= query_at ? weight_of<T>(s[c] * scale - most) : 0.0f;
        sum += p;
        dtp_put(w + c, p);
    }
    row->total = row->total * by + sum;
    row->most = most;
    if (half == 0) {
        *shrink = by;
    }
    __syncwarp();
}

template <class T, int N>
static __global__ void __launch_bounds__(THREADS, 1)
    forward_kernel(dtp_cuda_attention_call a, dtp_tile_sizes t)
{
    DTP_DYNAMIC_SHARED(shared);
    pool memory = {shared};
    T *q = memory.take<T>(t.rows * t.ld_f);
    T *kv = memory.take<T>(t.cols * (t.ld_f > t.ld_v ? t.ld_f : t.ld_v));
    float *scores = memory.take<float>(t.rows * t.ld_s);
    T *weights = take_weights<T>(&memory, t.rows * t.ld_w, scores);
    int64_t *query_at = memory.take<int64_t>(t.rows), *key_at = memory.take<int64_t>(t.cols);
    dtp_head &h = *memory.take<dtp_head>(1);
    float *factor = memory.take<float>(t.rows);
    const int top = (int)threadIdx.x / DTP_CUDA_WARP * DTP_TILE; /* first row of the warp */
    const int row = top + (int)threadIdx.x % DTP_CUDA_WARP / 2;
    float *s = scores + top * t.ld_s;
    T *w = weights + top * t.ld_w;
    const int64_t tiles = (a.queries + t.rows - 1) / t.rows, groups = a.grouped.total;
    for (int64_t u = blockIdx.x; u < a.shared.total * groups * tiles; u += gridDim.x) {
        set_head(&h, a, u / tiles / groups, u / tiles % groups);
        const int64_t first = (tiles - 1 - u % tiles) * t.rows; /* many keys first */
        const int n = (int)least(t.rows, a.queries - first);
        row_state state = {-INFINITY, 0.0f};
        dtp_tile_sum<T, N> sum;
        dtp_tile_load(q, t.ld_f, t.rows, t.features,
                      {&a.q, h.at[DTP_CUDA_Q], first, n, a.features});
        for (int i = (int)threadIdx.x; i < t.rows; i += (int)blockDim.x) {
            query_at[i] = dtp_query_position(a, h, first + i);
        }
        sum.begin(s, t.ld_s);
        for (int64_t key = 0; key < a.keys; key += t.cols) {
            if (!dtp_tile_sees(a, h, first, n, key, t.cols)) {
                continue;
            }
            const int nk = (int)least(t.cols, a.keys - key);
            __syncthreads();
            dtp_tile_load(kv, t.ld_f, t.cols, t.features,
                          {&a.k, h.at[DTP_CUDA_K], key, nk, a.features});
            for (int i = (int)threadIdx.x; i < t.cols; i += (int)blockDim.x) {
                key_at[i] = dtp_key_position(a, h, key + i);
            }
            __syncthreads();
            dtp_tile_scores(s, t.ld_s, q + top * t.ld_f, kv, t.ld_f, t.cols, t.features);
            weigh(&state, scores + row * t.ld_s, weights + row * t.ld_w, t.cols, a.scale,
                  query_at[row], key_at, factor + row);
            __syncthreads();
            dtp_tile_load(kv, t.ld_v, t.cols, t.values,
                          {&a.v, h.at[DTP_CUDA_V], key, nk, a.values});
            __syncthreads();
            sum.scale_rows(factor + top);
            sum.add(w, t.ld_w, t.cols, kv + t.first, t.ld_v, t.values - t.first);
        }
        const float total = state.total + __shfl_xor_sync(0xffffffffu, state.total, 1);
        if (threadIdx.x % 2 == 0) {
            factor[row] = total > 0.0f || total != total ? 1.0f / total : 0.0f;
            if (row < n) {
                a.lse[h.at[DTP_CUDA_LSE] + (first + row) * a.lse_step] = state.most + logf(total);
            }
        }
        __syncwarp();
        sum.store(s, t.ld_s,
                  {&a.out, h.at[DTP_CUDA_ATTENTION_OUT] + t.first * a.out.col_step, first + top,
                   n - top, a.values - t.first, 1.0f, factor + top});
        __syncthreads();
    }
}

/* ---- gradient ---- */

/* dout . out: a warp per head and query. */
template <class T> static __global__ void dot_kernel(dtp_cuda_attention_call a)
{
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
    const int64_t total = a.shared.total * a.grouped.total * a.queries;
    for (int64_t i = dtp_thread() / DTP_CUDA_WARP; i < total; i += dtp_threads() / DTP_CUDA_WARP) {
        const int64_t head = i / a.queries, query = i % a.queries;
        const dtp_head h = dtp_head_of(a, head / a.grouped.total, head % a.grouped.total);
        const T *out =
            (const T *)a.out.data + h.at[DTP_CUDA_ATTENTION_OUT] + query * a.out.row_step;
        const T *dout = (const T *)a.dout.data + h.at[DTP_CUDA_DOUT] + query * a.dout.row_step;
        float sum = 0.0f;
        for (int v = lane; v < a.values; v += DTP_CUDA_WARP) {
            sum += dtp_float_of(out[v * a.out.col_step]) * dtp_float_of(dout[v * a.dout.col_step]);
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
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        const int64_t query = first + i;
        const bool there = query < a.queries;
        m.query_at[i] = dtp_query_position(a, h, query);
        m.lse[i] = there ? a.lse[h.at[DTP_CUDA_LSE] + query * a.lse_step] : 0.0f;
        m.dot[i] = there ? a.dot[h.index * a.queries + query] : 0.0f;
    }
}

static __device__ void mark_keys(const dtp_cuda_attention_call &a, const dtp_head &h, int64_t first,
                                 int n, const gradient_marks &m)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        m.key_at[i] = dtp_key_position(a, h, first + i);
    }
}

/* Weights p and gradients ds of this lane's half of a row; KEYS: rows are keys. */
template <class T, bool KEYS>
static __device__ void weigh_gradient(const float *s, const float *d, T *p, T *ds, int cols,
                                      float scale, int row, const gradient_marks &m)
{
    for (int c = (int)threadIdx.x % 2; c < cols; c += 2) {
        const int query = KEYS ? c : row, key = KEYS ? row : c;
        const bool seen = m.key_at[key] <= m.query_at[query];
        const float x = seen ? weight_of<T>(s[c] * scale - m.lse[query]) : 0.0f;
        const float y = seen ? x * (d[c] - m.dot[query]) : 0.0f;
        dtp_put(p + c, x);
        dtp_put(ds + c, y);
    }
    __syncwarp();
}

/* FIRST: dq, or dk with KEYS; SECOND: dv. */
template <class T, int N, bool KEYS, bool FIRST, bool SECOND>
static __global__ void __launch_bounds__(THREADS, 1)
    backward_kernel(dtp_cuda_attention_call a, dtp_tile_sizes t)
{
    DTP_DYNAMIC_SHARED(shared);
    pool memory = {shared};
    T *row_1 = memory.take<T>(t.rows * t.ld_f), *row_2 = memory.take<T>(t.rows * t.ld_v);
    T *col_1 = memory.take<T>(t.cols * t.ld_f), *col_2 = memory.take<T>(t.cols * t.ld_v);
    float *scores = memory.take<float>(t.rows * t.ld_s);
    float *grads = memory.take<float>(t.rows * t.ld_s);
    T *p = take_weights<T>(&memory, t.rows * t.ld_w, scores);
    T *ds = take_weights<T>(&memory, t.rows * t.ld_w, grads);
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
    const dtp_cuda_mat *of_row_1 = KEYS ? &a.k : &a.q, *of_row_2 = KEYS ? &a.v : &a.dout;
    const dtp_cuda_mat *of_col_1 = KEYS ? &a.q : &a.k, *of_col_2 = KEYS ? &a.dout : &a.v;
    const int64_t all_rows = KEYS ? a.keys : a.queries, all_cols = KEYS ? a.queries : a.keys;
    const int64_t tiles = (all_rows + t.rows - 1) / t.rows;
    const int64_t groups = KEYS ? a.grouped.total : 1, owners = KEYS ? 1 : a.grouped.total;
    for (int64_t u = blockIdx.x; u < a.shared.total * owners * tiles; u += gridDim.x) {
        const int64_t first = (KEYS ? u % tiles : tiles - 1 - u % tiles) * t.rows;
        const int n = (int)least(t.rows, all_rows - first);
        const int64_t of_shared = u / tiles / owners;
        set_head(&h, a, of_shared, u / tiles % owners);
        dtp_tile_sum<T, N> sum_1, sum_2;
        dtp_tile_load(row_1, t.ld_f, t.rows, t.features,
                      {of_row_1, h.at[KEYS ? DTP_CUDA_K : DTP_CUDA_Q], first, n, a.features});
        dtp_tile_load(row_2, t.ld_v, t.rows, t.values,
                      {of_row_2, h.at[KEYS ? DTP_CUDA_V : DTP_CUDA_DOUT], first, n, a.values});
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
                set_head(&h, a, of_shared, g);
            }
            for (int64_t col = 0; col < all_cols; col += t.cols) {
                if (!(KEYS ? dtp_tile_sees(a, h, col, t.cols, first, n)
                           : dtp_tile_sees(a, h, first, n, col, t.cols))) {
                    continue;
                }
                const int nc = (int)least(t.cols, all_cols - col);
                __syncthreads();
                dtp_tile_load(
                    col_1, t.ld_f, t.cols, t.features,
                    {of_col_1, h.at[KEYS ? DTP_CUDA_Q : DTP_CUDA_K], col, nc, a.features});
                dtp_tile_load(
                    col_2, t.ld_v, t.cols, t.values,
                    {of_col_2, h.at[KEYS ? DTP_CUDA_DOUT : DTP_CUDA_V], col, nc, a.values});
                if (KEYS) {
                    mark_queries(a, h, col, t.cols, marks);
                } else {
                    mark_keys(a, h, col, t.cols, marks);
                }
                __syncthreads();
                dtp_tile_scores(s, t.ld_s, row_1 + top * t.ld_f, col_1, t.ld_f, t.cols, t.features);
                dtp_tile_scores(d, t.ld_s, row_2 + top * t.ld_v, col_2, t.ld_v, t.cols, t.values);
                weigh_gradient<T, KEYS>(scores + row * t.ld_s, grads + row * t.ld_s,
                                        p + row * t.ld_w, ds + row * t.ld_w, t.cols, a.scale, row,
                                        marks);
                if (FIRST) {
                    sum_1.add(ds + top * t.ld_w, t.ld_w, t.cols, col_1 + t.first, t.ld_f,
                              t.features - t.first);
                }
                if (SECOND) {
                    sum_2.add(p + top * t.ld_w, t.ld_w, t.cols, col_2 + t.first, t.ld_v,
                              t.values - t.first);
                }
            }
        }
        if (FIRST) {
            const dtp_cuda_mat *to = KEYS ? &a.dk : &a.dq;
            sum_1.store(s, t.ld_s,
                        {to, h.at[KEYS ? DTP_CUDA_K : DTP_CUDA_DQ] + t.first * to->col_step,
                         first + top, n - top, a.features - t.first, a.scale, NULL});
        }
        if (SECOND) {
            sum_2.store(s, t.ld_s,
                        {&a.dv, h.at[DTP_CUDA_V] + t.first * a.dv.col_step, first + top, n - top,
                         a.values - t.first, 1.0f, NULL});
        }
        __syncthreads();
    }
}

/* ---- launches ---- */

static int padded(int n, int to)
{
    return (n + to - 1) / to * to;
}

template <class T>
static dtp_tile_sizes sizes_of(const dtp_cuda_attention_call *a, int rows, int cols, bool gradient)
{
    const int pad = (int)(16 / sizeof(T)),
              unit = sizeof(T) == 4 ? (int)DTP_CUDA_WARP : (int)DTP_TILE;
    const bool wide = sizeof(T) == 4; /* weights lie where scores were */
    dtp_tile_sizes t = {};
    t.rows = rows;
    t.cols = cols;
    t.features = padded(a->features, unit);
    t.values = padded(a->values, unit);
    t.ld_f = t.features + pad;
    t.ld_v = t.values + pad;
    t.ld_s = cols + 4;
    t.ld_w = wide ? t.ld_s : cols + pad;
    const size_t of_scores =
        (size_t)(rows * t.ld_s) * sizeof(float) + (wide ? 0 : (size_t)(rows * t.ld_w) * sizeof(T));
    const int both = t.ld_f + t.ld_v, more = t.ld_f > t.ld_v ? t.ld_f : t.ld_v;
    const int elems = gradient ? (rows + cols) * both : rows * t.ld_f + cols * more;
    const int side = rows > cols ? rows : cols;
    t.bytes = (size_t)elems * sizeof(T) + (gradient ? 2 : 1) * of_scores +
              (size_t)(rows + cols) * sizeof(int64_t) + sizeof(dtp_head) +
              (size_t)(2 * side) * sizeof(float);
    return t;
}

/* The largest tiles that fit everywhere, else the smallest. */
template <class T>
static dtp_tile_sizes choose_tiles(const dtp_cuda_attention_call *a, bool gradient)
{
    static const int sides[][2] = {{64, 64}, {64, 32}, {32, 32}};
    int i = 0;
    while (i < 2 && sizes_of<T>(a, sides[i][0], sides[i][1], gradient).bytes > SHARED_BYTES) {
        i++;
    }
    return sizes_of<T>(a, sides[i][0], sides[i][1], gradient);
}

typedef void (*tile_kernel)(dtp_cuda_attention_call, dtp_tile_sizes);

/* Tiles of columns of a sum in registers; wider sums take several launches. */
enum { NARROW = 4, WIDE = 8, NARROW_COLUMNS = NARROW * DTP_TILE, WIDE_COLUMNS = WIDE * DTP_TILE };

static cudaError_t launch(cudaStream_t queue, tile_kernel kernel, const dtp_cuda_attention_call *a,
                          dtp_tile_sizes t, int64_t units, int width)
{
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)t.bytes);
    for (; t.first < width && units > 0 && code == cudaSuccess; t.first += WIDE_COLUMNS) {
        code = dtp_launch(kernel, (unsigned)(units < INT32_MAX ? units : INT32_MAX),
                          (unsigned)(t.rows / DTP_TILE * DTP_CUDA_WARP), t.bytes, queue, *a, t);
    }
    return code;
}

static int64_t tiles_of(int64_t n, const dtp_tile_sizes &t)
{
    return (n + t.rows - 1) / t.rows;
}

template <class T> static cudaError_t forward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = choose_tiles<T>(a, false);
    const int64_t heads = a->shared.total * a->grouped.total;
    const tile_kernel kernel =
        a->values <= NARROW_COLUMNS ? forward_kernel<T, NARROW> : forward_kernel<T, WIDE>;
    return launch(queue, kernel, a, t, heads * tiles_of(a->queries, t), a->values);
}

/* The sums of dk and dv of wide heads do not fit the registers together. */
template <class T>
static cudaError_t backward_keys(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = choose_tiles<T>(a, true);
    const int64_t units = a->shared.total * tiles_of(a->keys, t);
    if (a->features <= NARROW_COLUMNS && a->values <= NARROW_COLUMNS) {
        return launch(queue, backward_kernel<T, NARROW, true, true, true>, a, t, units, 1);
    }
    const cudaError_t code =
        launch(queue, backward_kernel<T, WIDE, true, true, false>, a, t, units, a->features);
    return code != cudaSuccess
               ? code
               : launch(queue, backward_kernel<T, WIDE, true, false, true>, a, t, units, a->values);
}

template <class T> static cudaError_t backward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    const dtp_tile_sizes t = choose_tiles<T>(a, true);
    const int64_t heads = a->shared.total * a->grouped.total;
    const tile_kernel kernel = a->features <= NARROW_COLUMNS
                                   ? backward_kernel<T, NARROW, false, true, false>
                                   : backward_kernel<T, WIDE, false, true, false>;
    cudaError_t code = cudaSuccess;
    if (heads * a->queries > 0) {
        code = dtp_launch(dot_kernel<T>, dtp_grid(heads * a->queries, WARPS, 1), THREADS, 0, queue,
                          *a);
    }
    if (code == cudaSuccess) {
        code = launch(queue, kernel, a, t, heads * tiles_of(a->queries, t), a->features);
    }
    return code == cudaSuccess ? backward_keys<T>(queue, a) : code;
}

cudaError_t dtp_cuda_attention_forward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    return a->dtype == DTP_F32    ? forward<float>(queue, a)
           : a->dtype == DTP_BF16 ? forward<__nv_bfloat16>(queue, a)
                                  : forward<__half>(queue, a);
}

cudaError_t dtp_cuda_attention_backward(cudaStream_t queue, const dtp_cuda_attention_call *a)
{
    return a->dtype == DTP_F32    ? backward<float>(queue, a)
           : a->dtype == DTP_BF16 ? backward<__nv_bfloat16>(queue, a)
                                  : backward<__half>(queue, a);
}

/* ---- attention_merge: a warp per row; rows without keys have lse -inf and no share ---- */

static __device__ float share_of(float part, float all)
{
    return isinf(part) ? 0.0f : expf(part - all);
}

static __global__ void merge_kernel(dtp_cuda_attention_merge m)
{
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
    const int64_t step = dtp_threads() / DTP_CUDA_WARP;
    for (int64_t i = dtp_thread() / DTP_CUDA_WARP; i < m.rows.total; i += step) {
        int64_t row[6];
        for (int v = 0; v < 6; v++) {
            row[v] = dtp_offset(m.rows, v, i);
        }
        const float la = m.lse_a[row[3]], lb = m.lse_b[row[4]], most = fmaxf(la, lb);
        const float lse = isinf(most) ? most : most + logf(expf(la - most) + expf(lb - most));
        const float of_a = share_of(la, lse), of_b = share_of(lb, lse);
        for (int64_t k = lane; k < m.values.total; k += DTP_CUDA_WARP) {
            const float x = dtp_load(m.a, m.dtype, row[0] + dtp_offset(m.values, 0, k));
            const float y = dtp_load(m.b, m.dtype, row[1] + dtp_offset(m.values, 1, k));
            dtp_store(m.out, m.dtype, row[2] + dtp_offset(m.values, 2, k), of_a * x + of_b * y);
        }
        __syncwarp(); /* lse may lie where lse_a does */
        if (lane == 0) {
            m.lse[row[5]] = lse;
        }
    }
}

cudaError_t dtp_cuda_attention_merge_run(cudaStream_t queue, const dtp_cuda_attention_merge *m)
{
    return dtp_launch(merge_kernel, dtp_grid(m->rows.total, DTP_CUDA_BLOCK / DTP_CUDA_WARP, 1),
                      DTP_CUDA_BLOCK, 0, queue, *m);
}
