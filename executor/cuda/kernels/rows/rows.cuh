/* Kernels over rows. Teams of threads (one, a warp, a block) treat a row each. There are two kinds
 * of kernel:
 *   - a map, Op::run<V, Team>(job, row, params), does all of a row;
 *   - a fold is an Op object made from (job, row, params) with N values of type T: start(a),
 *     add<V>(i, a) for the group of V elements from i on, of(a, b) to combine, finish(a) to write.
 *     A row may be cut into parts whose values a second kernel combines, always in one order.
 * V is 1 or DTP_CUDA_GROUP. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_CUH

#include "executor/cuda/kernels/rows/rows.h"
#include "executor/cuda/kernels/vector.cuh"

enum { DTP_ROWS_MAX_BLOCK = 512 };

/* One row, or one part of one: elements [begin, end); where it begins in each view. */
struct dtp_row {
    int64_t index, begin, end, at[DTP_CUDA_VIEWS];
};

static __device__ __forceinline__ dtp_row dtp_row_make(const dtp_cuda_rows &job, int64_t index,
                                                       int64_t begin, int64_t end)
{
    dtp_row row = {index, begin, end, {}};
    dtp_offsets(job.rows, index, row.at);
    return row;
}

/* The elements of a view in a row. */
struct dtp_row_view {
    void *data;
    int64_t at, step; /* of the row's first element; between neighbours of the inner dim */
    int v, dtype;
};

static __device__ __forceinline__ dtp_row_view dtp_row_of(const dtp_cuda_rows &job,
                                                          const dtp_row &row, int v)
{
    return {job.data[v], row.at[v], job.over.stride[v][job.over.rank - 1], v, job.dtype[v]};
}

/* Offset of element i of a row. Rows of groups have one dim. */
template <int V>
static __device__ __forceinline__ int64_t dtp_row_at(const dtp_cuda_rows &job,
                                                     const dtp_row_view &x, int64_t i)
{
    return x.at + (V > 1 || job.over.rank == 1 ? i * x.step : dtp_offset(job.over, x.v, i));
}

template <int V>
static __device__ __forceinline__ void dtp_row_load(const dtp_cuda_rows &job, const dtp_row_view &x,
                                                    int64_t i, float (&out)[V])
{
    dtp_load_floats(out, x.data, x.dtype, dtp_row_at<V>(job, x, i), x.step);
}

/* C: int64_t or uint64_t. */
template <int V, class C>
static __device__ __forceinline__ void dtp_row_load(const dtp_cuda_rows &job, const dtp_row_view &x,
                                                    int64_t i, C (&out)[V])
{
    DTP_UNROLL
    for (int k = 0; k < V; k++) {
        out[k] = (C)dtp_load_int(x.data, x.dtype, dtp_row_at<V>(job, x, i + k));
    }
}

template <int V>
static __device__ __forceinline__ void
dtp_row_store(const dtp_cuda_rows &job, const dtp_row_view &x, int64_t i, const float (&in)[V])
{
    dtp_store_floats(x.data, x.dtype, dtp_row_at<V>(job, x, i), x.step, in);
}

template <int V, class C>
static __device__ __forceinline__ void
dtp_row_store(const dtp_cuda_rows &job, const dtp_row_view &x, int64_t i, const C (&in)[V])
{
    DTP_UNROLL
    for (int k = 0; k < V; k++) {
        dtp_store_int(x.data, x.dtype, dtp_row_at<V>(job, x, i + k), (int64_t)in[k]);
    }
}

/* Of a view that has one element per row. */
static __device__ __forceinline__ float dtp_row_value(const dtp_cuda_rows &job, const dtp_row &row,
                                                      int v)
{
    return dtp_load(job.data[v], job.dtype[v], row.at[v]);
}

static __device__ __forceinline__ void dtp_row_put(const dtp_cuda_rows &job, const dtp_row &row,
                                                   int v, float value)
{
    dtp_store(job.data[v], job.dtype[v], row.at[v], value);
}

static __device__ __forceinline__ void dtp_row_put_int(const dtp_cuda_rows &job, const dtp_row &row,
                                                       int v, int64_t value)
{
    dtp_store_int(job.data[v], job.dtype[v], row.at[v], value);
}

/* teams: numbers of threads; fold: every thread gets the result; scan: what the threads before
 * hold, combined, and the total of all; mirror: the value of the thread as far from the last one as
 * this from the first. `of` is associative with identity `none`. ---- */

struct dtp_add {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a + b;
    }
};
struct dtp_mul {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a * b;
    }
};
struct dtp_larger {
    template <class T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a > b || a != a ? a : b;
    }
};

struct dtp_thread_team {
    static __device__ __forceinline__ int lane(void)
    {
        return 0;
    }
    static __device__ __forceinline__ int lanes(void)
    {
        return 1;
    }
    static __device__ __forceinline__ int64_t number(void)
    {
        return dtp_thread();
    }
    static __device__ __forceinline__ int64_t count(void)
    {
        return dtp_threads();
    }
    template <class T, class F> static __device__ __forceinline__ T fold(T x, T none, F of)
    {
        (void)none;
        (void)of;
        return x;
    }
    template <class T, class F>
    static __device__ __forceinline__ T scan(T x, T none, F of, T *total)
    {
        (void)of;
        *total = x;
        return none;
    }
    static __device__ __forceinline__ float mirror(float x)
    {
        return x;
    }
};

struct dtp_warp_team {
    static __device__ __forceinline__ int lane(void)
    {
        return (int)threadIdx.x % DTP_CUDA_WARP;
    }
    static __device__ __forceinline__ int lanes(void)
    {
        return DTP_CUDA_WARP;
    }
    static __device__ __forceinline__ int64_t number(void)
    {
        return dtp_thread() / DTP_CUDA_WARP;
    }
    static __device__ __forceinline__ int64_t count(void)
    {
        return dtp_threads() / DTP_CUDA_WARP;
    }
    template <class T, class F> static __device__ __forceinline__ T fold(T x, T none, F of)
    {
        (void)none;
        for (int by = DTP_CUDA_WARP / 2; by > 0; by /= 2) {
            x = of(x, __shfl_xor_sync(0xffffffffu, x, by));
        }
        return x;
    }
    template <class T, class F>
    static __device__ __forceinline__ T scan(T x, T none, F of, T *total)
    {
        for (int by = 1; by < DTP_CUDA_WARP; by *= 2) {
            const T before = __shfl_up_sync(0xffffffffu, x, (unsigned)by);
            x = lane() >= by ? of(before, x) : x;
        }
        *total = __shfl_sync(0xffffffffu, x, DTP_CUDA_WARP - 1);
        const T before = __shfl_up_sync(0xffffffffu, x, 1u);
        return lane() == 0 ? none : before;
    }
    static __device__ __forceinline__ float mirror(float x)
    {
        return __shfl_xor_sync(0xffffffffu, x, DTP_CUDA_WARP - 1);
    }
};

struct dtp_block_team {
    static __device__ __forceinline__ int lane(void)
    {
        return (int)threadIdx.x;
    }
    static __device__ __forceinline__ int lanes(void)
    {
        return (int)blockDim.x;
    }
    static __device__ __forceinline__ int64_t number(void)
    {
        return (int64_t)blockIdx.x;
    }
    static __device__ __forceinline__ int64_t count(void)
    {
        return (int64_t)gridDim.x;
    }
    template <class T, class F> static __device__ __forceinline__ T fold(T x, T none, F of)
    {
        DTP_SHARED(T, of_warp, DTP_CUDA_WARP);
        const int warp_lane = dtp_warp_team::lane(), warps = lanes() / DTP_CUDA_WARP;
        x = dtp_warp_team::fold(x, none, of);
        if (warp_lane == 0) {
            of_warp[lane() / DTP_CUDA_WARP] = x;
        }
        __syncthreads();
        x = dtp_warp_team::fold(warp_lane < warps ? of_warp[warp_lane] : none, none, of);
        __syncthreads();
        return x;
    }
    template <class T, class F>
    static __device__ __forceinline__ T scan(T x, T none, F of, T *total)
    {
        DTP_SHARED(T, of_warp, DTP_CUDA_WARP);
        const int warp_lane = dtp_warp_team::lane(), warp = lane() / DTP_CUDA_WARP;
        T sum;
        x = dtp_warp_team::scan(x, none, of, &sum);
        if (warp_lane == 0) {
            of_warp[warp] = sum;
        }
        __syncthreads();
        sum = warp_lane < lanes() / DTP_CUDA_WARP ? of_warp[warp_lane] : none;
        const T before = dtp_warp_team::scan(sum, none, of, total);
        x = of(__shfl_sync(0xffffffffu, before, warp), x);
        __syncthreads();
        return x;
    }
    static __device__ __forceinline__ float mirror(float x)
    {
        DTP_SHARED(float, of_thread, DTP_ROWS_MAX_BLOCK);
        of_thread[lane()] = x;
        __syncthreads();
        x = of_thread[lanes() - 1 - lane()];
        __syncthreads();
        return x;
    }
};

/* The elements i of a row, or part of it, that a thread of a team treats, in groups of V. */
#define DTP_ROW_EACH(i, V, Team, row)                                                              \
    DTP_ROLL                                                                                       \
    for (int64_t i = (row).begin + (int64_t)Team::lane() * (V); i < (row).end;                     \
         i += (int64_t)Team::lanes() * (V))

/* ---- kernels ---- */

template <class Op, class P, int V, class Team>
static __global__ void __launch_bounds__(DTP_ROWS_MAX_BLOCK, 1)
    dtp_rows_map_kernel(dtp_cuda_rows job, P params)
{
    for (int64_t r = Team::number(); r < job.rows.total; r += Team::count()) {
        Op::template run<V, Team>(job, dtp_row_make(job, r, 0, job.over.total), params);
    }
}

template <class Op, class P, int V, class Team>
static __global__ void __launch_bounds__(DTP_ROWS_MAX_BLOCK, 1)
    dtp_rows_fold_kernel(dtp_cuda_rows job, P params)
{
    for (int64_t u = Team::number(); u < job.rows.total * job.parts; u += Team::count()) {
        const int64_t part = u / job.rows.total, begin = part * job.part;
        const int64_t end = begin + job.part < job.over.total ? begin + job.part : job.over.total;
        const dtp_row row = dtp_row_make(job, u - part * job.rows.total, begin, end);
        Op op(job, row, params);
        typename Op::T a[Op::N], none[Op::N];
        op.start(a);
        op.start(none);
        DTP_ROW_EACH(i, V, Team, row)
        {
            op.template add<V>(i, a);
        }
        DTP_UNROLL
        for (int k = 0; k < Op::N; k++) {
            a[k] = Team::fold(a[k], none[k], op);
        }
        if (Team::lane() == 0 && job.parts == 1) {
            op.finish(a);
        } else if (Team::lane() == 0) {
            typename Op::T *to =
                (typename Op::T *)job.partial + (row.index * job.parts + part) * Op::N;
            DTP_UNROLL
            for (int k = 0; k < Op::N; k++) {
                to[k] = a[k];
            }
        }
    }
}

/* Combines the parts of rows, a warp per row. Where a row lies matters to `finish` alone. */
template <class Op, class P>
static __global__ void __launch_bounds__(DTP_ROWS_MAX_BLOCK, 1)
    dtp_rows_finish_kernel(dtp_cuda_rows job, P params)
{
    typedef dtp_warp_team Team;
    for (int64_t r = Team::number(); r < job.rows.total; r += Team::count()) {
        Op op(job, dtp_row{}, params);
        typename Op::T a[Op::N], none[Op::N];
        op.start(a);
        op.start(none);
        const typename Op::T *from = (const typename Op::T *)job.partial + r * job.parts * Op::N;
        for (int64_t p = Team::lane(); p < job.parts; p += Team::lanes()) {
            DTP_UNROLL
            for (int k = 0; k < Op::N; k++) {
                a[k] = op(a[k], from[p * Op::N + k]);
            }
        }
        DTP_UNROLL
        for (int k = 0; k < Op::N; k++) {
            a[k] = Team::fold(a[k], none[k], op);
        }
        if (Team::lane() == 0) {
            Op(job, dtp_row_make(job, r, 0, job.over.total), params).finish(a);
        }
    }
}

/* Blocks for so many teams. */
static inline unsigned dtp_rows_grid(int32_t team, int64_t teams, unsigned block)
{
    return team == DTP_TEAM_THREAD ? dtp_grid(teams, block, 1)
           : team == DTP_TEAM_WARP ? dtp_grid(teams, block / DTP_CUDA_WARP, 1)
                                   : dtp_grid(teams, 1, 1);
}

/* Defines NAME(queue, job, params), which launches `kernel` for an Op as the job says. */
#define DTP_ROWS_LAUNCH(NAME, kernel, teams)                                                       \
    template <class Op, class P>                                                                   \
    static cudaError_t NAME(cudaStream_t queue, const dtp_cuda_rows *job, P params)                \
    {                                                                                              \
        const unsigned block = (unsigned)job->block;                                               \
        const unsigned grid = dtp_rows_grid(job->team, teams, block);                              \
        if (job->rows.total == 0) {                                                                \
            return cudaSuccess;                                                                    \
        }                                                                                          \
        const bool whole = job->team == DTP_TEAM_BLOCK;                                            \
        void (*launched)(dtp_cuda_rows, P) =                                                       \
            job->grouped && whole        ? kernel<Op, P, DTP_CUDA_GROUP, dtp_block_team>           \
            : job->grouped               ? kernel<Op, P, DTP_CUDA_GROUP, dtp_warp_team>            \
            : whole                      ? kernel<Op, P, 1, dtp_block_team>                        \
            : job->team == DTP_TEAM_WARP ? kernel<Op, P, 1, dtp_warp_team>                         \
                                         : kernel<Op, P, 1, dtp_thread_team>;                      \
        return dtp_launch(launched, grid, block, 0, queue, *job, params);                          \
    }

DTP_ROWS_LAUNCH(dtp_rows_map, dtp_rows_map_kernel, job->rows.total)
DTP_ROWS_LAUNCH(dtp_rows_fold_parts, dtp_rows_fold_kernel, job->rows.total * job->parts)

template <class Op, class P>
static cudaError_t dtp_rows_fold(cudaStream_t queue, const dtp_cuda_rows *job, P params)
{
    const cudaError_t first = dtp_rows_fold_parts<Op, P>(queue, job, params);
    if (first != cudaSuccess || job->rows.total == 0 || job->parts == 1) {
        return first;
    }
    return dtp_launch(dtp_rows_finish_kernel<Op, P>,
                      dtp_rows_grid(DTP_TEAM_WARP, job->rows.total, DTP_CUDA_BLOCK), DTP_CUDA_BLOCK,
                      0, queue, *job, params);
}

#endif
