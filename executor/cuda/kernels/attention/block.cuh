/* What the kernels of attention share (Dao 2023, flash attention). A block holds a tile of rows and
 * walks the tiles of columns; a warp has 16 rows of scores, two lanes a row. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_BLOCK_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_BLOCK_CUH

#include "executor/cuda/kernels/attention/tile.cuh"

enum {
    DTP_ATTENTION_WARPS = 4,
    DTP_ATTENTION_THREADS = DTP_ATTENTION_WARPS * DTP_CUDA_WARP,
    DTP_ATTENTION_SHARED = 99 << 10 /* on every device from sm_80 on; sm_80 and sm_90 have more */
};

/* Whether there may be pairs that are not seen. */
static __device__ __forceinline__ bool dtp_hides(const dtp_cuda_attention_call &a)
{
    return a.shape.causal || a.mats.mask.data != NULL;
}

static __device__ __forceinline__ int64_t dtp_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

template <class T> static __device__ __forceinline__ float dtp_weight_of(float x)
{
    return __expf(x);
}
template <> __device__ __forceinline__ float dtp_weight_of<float>(float x)
{
    return expf(x);
}

/* Hands out shared memory. */
struct dtp_shared_pool {
    unsigned char *next;
    template <class T> __device__ __forceinline__ T *take(int n)
    {
        T *p = (T *)next;
        next += (size_t)n * sizeof(T);
        return p;
    }
};

/* Weights of 16-bit floats have memory of their own, others lie where the scores were. */
template <class T>
static __device__ __forceinline__ T *dtp_take_weights(dtp_shared_pool *p, int n, float *)
{
    return p->take<T>(n);
}
template <>
__device__ __forceinline__ float *dtp_take_weights<float>(dtp_shared_pool *, int, float *scores)
{
    return scores;
}

/* The head that a block works on is in shared memory: registers are for sums. */
static __device__ void dtp_set_head(dtp_head *h, const dtp_cuda_attention_call &a, int64_t shared,
                                    int64_t group)
{
    __syncthreads();
    if (threadIdx.x < DTP_N_HEAD_VIEWS) {
        const int view = (int)threadIdx.x;
        h->at[view] = dtp_offset(a.shared, view, shared) + dtp_offset(a.grouped, view, group);
    }
    if (threadIdx.x == 0) {
        const int64_t chunk =
            a.shape.first_chunk + shared / (a.shared.total / a.shape.local_chunks);
        h->index = shared * a.grouped.total + group;
        h->query = chunk * a.shape.global_queries + a.shape.first_query;
        h->mask = a.mats.mask;
        h->mask_dtype = a.mats.mask.dtype;
        h->key = (chunk - a.shape.shift + a.shape.chunks) % a.shape.chunks * a.shape.keys;
    }
    __syncthreads();
}

static int dtp_padded(int n, int to)
{
    return (n + to - 1) / to * to;
}

template <class T>
static dtp_tile_sizes dtp_tile_sizes_of(const dtp_cuda_attention_call *a, int rows, int cols,
                                        bool gradient)
{
    const int pad = (int)(16 / sizeof(T)),
              unit = sizeof(T) == 4 ? (int)DTP_CUDA_WARP : (int)DTP_TILE;
    const bool wide = sizeof(T) == 4; /* weights lie where scores were */
    dtp_tile_sizes t = {};
    t.rows = rows;
    t.cols = cols;
    t.features = dtp_padded(a->features, unit);
    t.values = dtp_padded(a->values, unit);
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
static dtp_tile_sizes dtp_choose_tiles(const dtp_cuda_attention_call *a, bool gradient)
{
    static const int sides[][2] = {{64, 64}, {64, 32}, {32, 32}};
    int i = 0;
    while (i < 2 && dtp_tile_sizes_of<T>(a, sides[i][0], sides[i][1], gradient).bytes >
                        DTP_ATTENTION_SHARED) {
        i++;
    }
    return dtp_tile_sizes_of<T>(a, sides[i][0], sides[i][1], gradient);
}

/* sum += w b, where `whole` says whether the warp sees all pairs. */
template <class Sum, class T>
static __device__ __forceinline__ void
dtp_add_tile(Sum *sum, bool whole, const T *w, int ld_w, int depth, const T *b, int ld_b, int width,
             float *scratch, int ld, const dtp_tile_pairs &pairs)
{
    if (whole || dtp_tile_is_finite(b, ld_b, depth, width)) {
        sum->add(w, ld_w, depth, b, ld_b, width);
    } else {
        sum->add_seen(w, ld_w, depth, b, ld_b, width, scratch, ld, pairs);
    }
}

typedef void (*dtp_tile_kernel)(dtp_cuda_attention_call, dtp_tile_sizes);

/* Tiles of columns of a sum in registers; wider sums take several launches. */
enum {
    DTP_NARROW = 4,
    DTP_WIDE = 8,
    DTP_NARROW_COLUMNS = DTP_NARROW * DTP_TILE,
    DTP_WIDE_COLUMNS = DTP_WIDE * DTP_TILE
};

static cudaError_t dtp_launch_tiles(cudaStream_t queue, dtp_tile_kernel kernel,
                                    const dtp_cuda_attention_call *a, dtp_tile_sizes t,
                                    int64_t units, int width)
{
    cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)t.bytes);
    for (; t.first < width && units > 0 && code == cudaSuccess; t.first += DTP_WIDE_COLUMNS) {
        code = dtp_launch(kernel, (unsigned)(units < INT32_MAX ? units : INT32_MAX),
                          (unsigned)(t.rows / DTP_TILE * DTP_CUDA_WARP), t.bytes, queue, *a, t);
    }
    return code;
}

static int64_t dtp_tiles_of(int64_t n, const dtp_tile_sizes &t)
{
    return (n + t.rows - 1) / t.rows;
}

#endif
