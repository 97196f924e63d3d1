#include "executor/cuda/kernels/rows/cross_entropy.h"
#include "executor/cuda/kernels/vector.cuh"

/* A row is treated by a warp, or by a block when it is long. */
enum { BLOCK = 256, LONG_ROW = 1024, TOTAL_BLOCK = 1024, WORD = 16 };

template <int W, class Op> static __device__ __forceinline__ float reduce(float x)
{
    return W == DTP_CUDA_WARP ? dtp_warp_reduce<Op>(x) : dtp_block_reduce<Op>(x);
}

static __device__ __forceinline__ float number(const dtp_cuda_numbers &numbers, int64_t at)
{
    return dtp_load(numbers.data, numbers.dtype, at);
}

static __device__ __forceinline__ void put(const dtp_cuda_numbers &numbers, int64_t at, double x)
{
    dtp_store(numbers.data, numbers.dtype, at, (float)x);
}

/* ---- terms of a row ---- */

/* Of a label: its class as a local index, its weight, and that times 1 - smoothing; ignored or
 * refused labels have no terms. */
struct label_terms {
    int64_t at;
    double weight, hit;
    bool counts;
};

static __device__ label_terms terms_of(const dtp_cuda_loss_call &c, int64_t row)
{
    const dtp_cuda_numbers &labels = c.view[DTP_LOSS_LABELS];
    const int64_t label = dtp_load_int(labels.data, labels.dtype, row);
    label_terms t = {-1, 0.0, 0.0, false};
    if (c.has_ignore && label == c.ignore) {
        return t;
    }
    if (label < 0 || label >= c.size) {
        dtp_refuse(c.error, DTP_DATA_LABEL, c.operand, label, c.size);
        return t;
    }
    t.at = label - c.first;
    t.weight = c.weights.data == NULL ? 1.0 : (double)number(c.weights, label);
    t.hit = (1.0 - c.smoothing) * t.weight;
    t.counts = true;
    return t;
}

/* Mean weight of all classes, where smoothing needs it; for threads of number `lane` of W. */
template <int W> static __device__ double mean_weight(const dtp_cuda_loss_call &c, int lane)
{
    if (c.smoothing == 0.0 || c.weights.data == NULL) {
        return 1.0;
    }
    float sum = 0.0f;
    for (int64_t i = lane; i < c.size; i += W) {
        sum += number(c.weights, i);
    }
    return (double)reduce<W, dtp_sum>(sum) / (double)c.size;
}

/* What smoothing adds to the picked logit of a row. */
template <class T, int W>
static __device__ double smoothed(const dtp_cuda_loss_call &c, const T *x, int lane)
{
    if (c.smoothing == 0.0) {
        return 0.0;
    }
    float sum = 0.0f;
    for (int64_t i = lane; i < c.local; i += W) {
        const float w = c.weights.data == NULL ? 1.0f : number(c.weights, c.first + i);
        sum += w * dtp_widen(x[i * c.step[DTP_LOSS_LOGITS]]);
    }
    return c.smoothing / (double)c.size * (double)reduce<W, dtp_sum>(sum);
}

template <class T>
static __device__ double picked(const dtp_cuda_loss_call &c, const label_terms &t, const T *x)
{
    const bool here = t.at >= 0 && t.at < c.local && t.hit != 0.0;
    return here ? t.hit * (double)dtp_widen(x[t.at * c.step[DTP_LOSS_LOGITS]]) : 0.0;
}

/* ---- loss ---- */

/* Sum of exp(x - top) of the elements so far; top, the largest, is not NaN. */
struct exp_sum {
    float top, sum;
};

/* What is subtracted: there is no difference from an infinite maximum. */
static __device__ __forceinline__ float base_of(float top)
{
    return isinf(top) ? 0.0f : top;
}

template <int N> static __device__ __forceinline__ void add(exp_sum *e, const float (&x)[N])
{
    float top = e->top;
    DTP_UNROLL
    for (int j = 0; j < N; j++) {
        top = x[j] > top ? x[j] : top;
    }
    const float base = base_of(top);
    float sum = e->sum * expf(e->top - base);
    DTP_UNROLL
    for (int j = 0; j < N; j++) {
        sum += expf(x[j] - base);
    }
    e->top = top;
    e->sum = sum;
}

/* How a row of n elements is cut: groups of V that lie in one aligned word, behind `head` others.
 */
template <class T> struct cut {
    static constexpr int V = WORD / (int)sizeof(T);
    int64_t head, groups;
    __device__ cut(const T *x, int64_t n, bool contiguous)
    {
        const int64_t skip = (int64_t)((uintptr_t)x % WORD / sizeof(T));
        head = skip == 0 ? 0 : V - skip;
        groups = contiguous && n > head ? (n - head) / V : 0;
    }
    /* Element number j of those in no group. */
    __device__ __forceinline__ int64_t single(int64_t j) const
    {
        return j < head ? j : j + groups * V;
    }
};

template <class T, int W>
static __device__ exp_sum exp_sum_of(const T *x, int64_t n, int64_t step, int lane)
{
    const cut<T> parts(x, n, step == 1);
    exp_sum mine = {-INFINITY, 0.0f};
    for (int64_t g = lane; g < parts.groups; g += W) {
        float group[cut<T>::V];
        dtp_load_values(group, x + parts.head + g * cut<T>::V, 1, cut<T>::V, true);
        add(&mine, group);
    }
    for (int64_t j = lane; j < n - parts.groups * cut<T>::V; j += W) {
        const float one[1] = {dtp_widen(x[parts.single(j) * step])};
        add(&mine, one);
    }
    const float top = reduce<W, dtp_max>(mine.top);
    const float sum = reduce<W, dtp_sum>(mine.sum * expf(mine.top - base_of(top)));
    return exp_sum{top, sum};
}

template <class T, int W> static __global__ void forward_kernel(dtp_cuda_loss_call c)
{
    const int lane = (int)threadIdx.x % W;
    const double mean = mean_weight<W>(c, lane);
    for (int64_t row = dtp_thread() / W; row < c.rows.total; row += dtp_threads() / W) {
        int64_t off[DTP_LOSS_VIEWS];
        dtp_offsets(c.rows, row, off);
        const T *x = (const T *)c.view[DTP_LOSS_LOGITS].data + off[DTP_LOSS_LOGITS];
        const exp_sum e = exp_sum_of<T, W>(x, c.local, c.step[DTP_LOSS_LOGITS], lane);
        const double of_all = smoothed<T, W>(c, x, lane);
        if (lane != 0) {
            continue;
        }
        const label_terms t = terms_of(c, off[DTP_LOSS_LABELS]);
        const double lse = (double)e.top + log((double)e.sum);
        const double a = t.hit + c.smoothing * mean;
        const double loss = t.counts && a != 0.0 ? a * lse - (picked(c, t, x) + of_all) : 0.0;
        put(c.view[DTP_LOSS_LSE], off[DTP_LOSS_LSE], lse);
        if (c.row_loss != NULL) {
            c.row_loss[row] = (float)loss;
            c.row_weight[row] = (float)t.weight;
        } else {
            put(c.view[DTP_LOSS_LOSS], off[DTP_LOSS_LOSS], loss);
        }
    }
}

/* ---- gradient ---- */

/* dx = exp(x - lse) * scale a - scale * (smoothing and hit); a scale that is not finite is no
 * factor of the terms, but that of their sum: `after`. */
struct row_grad {
    float lse, of_exp, of_class, of_hit, after;
    int64_t at;
    bool counts;
};

static __device__ __forceinline__ float grad_of(const dtp_cuda_loss_call &c, const row_grad &r,
                                                float x, int64_t i)
{
    if (!r.counts) {
        return 0.0f;
    }
    float dx = expf(x - r.lse) * r.of_exp;
    if (c.smoothing != 0.0) {
        dx -= r.of_class * (c.weights.data == NULL ? 1.0f : number(c.weights, c.first + i));
    }
    return (i == r.at ? dx - r.of_hit : dx) * r.after;
}

static __device__ row_grad row_grad_of(const dtp_cuda_loss_call &c,
                                       const int64_t (&off)[DTP_LOSS_VIEWS], double mean)
{
    const label_terms t = terms_of(c, off[DTP_LOSS_LABELS]);
    const double factor = c.total.data == NULL ? c.factor : 1.0 / (double)number(c.total, 0);
    const double scale = (double)number(c.view[DTP_LOSS_LOSS], off[DTP_LOSS_LOSS]) * factor;
    row_grad r;
    r.lse = number(c.view[DTP_LOSS_LSE], off[DTP_LOSS_LSE]);
    const double by = isfinite(scale) ? scale : 1.0, a = t.hit + c.smoothing * mean;
    r.of_exp = (float)(by * a);
    r.of_class = (float)(by * c.smoothing / (double)c.size);
    r.of_hit = (float)(by * t.hit);
    r.after = isfinite(scale) ? 1.0f : (float)scale;
    r.at = t.at;
    r.counts = t.counts && a != 0.0;
    return r;
}

template <class T, int W> static __global__ void backward_kernel(dtp_cuda_loss_call c)
{
    const int lane = (int)threadIdx.x % W;
    const int64_t step = c.step[DTP_LOSS_LOGITS], step_dx = c.step[DTP_LOSS_DX];
    const double mean = mean_weight<W>(c, lane);
    for (int64_t row = dtp_thread() / W; row < c.rows.total; row += dtp_threads() / W) {
        int64_t off[DTP_LOSS_VIEWS];
        dtp_offsets(c.rows, row, off);
        const row_grad r = row_grad_of(c, off, mean);
        const T *x = (const T *)c.view[DTP_LOSS_LOGITS].data + off[DTP_LOSS_LOGITS];
        T *dx = (T *)c.view[DTP_LOSS_DX].data + off[DTP_LOSS_DX];
        const bool alike = step == 1 && step_dx == 1 && ((uintptr_t)x - (uintptr_t)dx) % WORD == 0;
        const cut<T> parts(x, c.local, alike);
        for (int64_t g = lane; g < parts.groups; g += W) {
            const int64_t first = parts.head + g * cut<T>::V;
            float group[cut<T>::V];
            dtp_load_values(group, x + first, 1, cut<T>::V, true);
            DTP_UNROLL
            for (int j = 0; j < cut<T>::V; j++) {
                group[j] = grad_of(c, r, group[j], first + j);
            }
            dtp_store_values(dx + first, group, 1, cut<T>::V, true);
        }
        for (int64_t j = lane; j < c.local - parts.groups * cut<T>::V; j += W) {
            const int64_t i = parts.single(j);
            dtp_narrow(grad_of(c, r, dtp_widen(x[i * step]), i), &dx[i * step_dx]);
        }
    }
}

/* ---- parts ---- */

template <class T, int W> static __global__ void pick_kernel(dtp_cuda_loss_call c)
{
    const int lane = (int)threadIdx.x % W;
    for (int64_t row = dtp_thread() / W; row < c.rows.total; row += dtp_threads() / W) {
        int64_t off[DTP_LOSS_VIEWS];
        dtp_offsets(c.rows, row, off);
        const T *x = (const T *)c.view[DTP_LOSS_LOGITS].data + off[DTP_LOSS_LOGITS];
        const double of_all = smoothed<T, W>(c, x, lane);
        if (lane == 0) {
            const label_terms t = terms_of(c, off[DTP_LOSS_LABELS]);
            put(c.view[DTP_LOSS_LOSS], off[DTP_LOSS_LOSS],
                t.counts ? picked(c, t, x) + of_all : 0.0);
        }
    }
}

static __global__ void label_weight_kernel(dtp_cuda_loss_call c)
{
    const double mean = mean_weight<BLOCK>(c, (int)threadIdx.x);
    for (int64_t row = dtp_thread(); row < c.rows.total; row += dtp_threads()) {
        int64_t off[DTP_LOSS_VIEWS];
        dtp_offsets(c.rows, row, off);
        const label_terms t = terms_of(c, off[DTP_LOSS_LABELS]);
        put(c.view[DTP_LOSS_LOSS], off[DTP_LOSS_LOSS], t.counts ? t.hit + c.smoothing * mean : 0.0);
        c.row_weight[row] = (float)t.weight;
    }
}

static __global__ void finish_kernel(dtp_cuda_finish_call c)
{
    enum { M, S, T, A, LSE, LOSS };
    for (int64_t row = dtp_thread(); row < c.rows.total; row += dtp_threads()) {
        int64_t off[DTP_CUDA_FINISH_VIEWS];
        dtp_offsets(c.rows, row, off);
        const double m = (double)number(c.view[M], off[M]);
        const double lse = isinf(m) ? m : m + log((double)number(c.view[S], off[S]));
        const double a = c.view[A].data == NULL ? 1.0 : (double)number(c.view[A], off[A]);
        const double loss = a == 0.0 ? 0.0 : a * lse - (double)number(c.view[T], off[T]);
        put(c.view[LSE], off[LSE], lse);
        if (c.row_loss != NULL) {
            c.row_loss[row] = (float)loss;
        } else {
            put(c.view[LOSS], off[LOSS], loss);
        }
    }
}

/* Of a block of TOTAL_BLOCK threads; in thread 0. */
static __device__ double block_sum(double x)
{
    DTP_SHARED(double, of_warp, DTP_CUDA_WARP);
    const int me = (int)threadIdx.x;
    for (int by = DTP_CUDA_WARP / 2; by > 0; by /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, by);
    }
    if (me % DTP_CUDA_WARP == 0) {
        of_warp[me / DTP_CUDA_WARP] = x;
    }
    __syncthreads();
    double sum = 0.0;
    for (int i = 0; me == 0 && i < TOTAL_BLOCK / DTP_CUDA_WARP; i++) {
        sum += of_warp[i];
    }
    __syncthreads();
    return sum;
}

/* One block. */
static __global__ void total_kernel(dtp_cuda_loss_sum s)
{
    double loss = 0.0, weight = 0.0;
    for (int64_t i = threadIdx.x; i < s.rows; i += TOTAL_BLOCK) {
        loss += (double)s.losses[i];
        weight += s.weights == NULL ? 0.0 : (double)s.weights[i];
    }
    loss = block_sum(loss);
    weight = s.weights == NULL ? 1.0 : block_sum(weight);
    if (threadIdx.x == 0) {
        const double by = s.total.data == NULL ? weight : (double)number(s.total, 0);
        put(s.loss, 0, loss * s.factor / by);
    }
}

/* ---- launches ---- */

/* A kernel of rows that W threads treat, for the type of the logits. */
#define LAUNCH_ROWS(kernel, W, queue, call)                                                        \
    ((call)->view[DTP_LOSS_LOGITS].dtype == DTP_F32                                                \
         ? launch_rows<W>(kernel<float, W>, queue, call)                                           \
     : (call)->view[DTP_LOSS_LOGITS].dtype == DTP_BF16                                             \
         ? launch_rows<W>(kernel<__nv_bfloat16, W>, queue, call)                                   \
         : launch_rows<W>(kernel<__half, W>, queue, call))

template <int W>
static cudaError_t launch_rows(void (*kernel)(dtp_cuda_loss_call), cudaStream_t queue,
                               const dtp_cuda_loss_call *call)
{
    return dtp_launch(kernel, dtp_grid(call->rows.total, BLOCK / W, 1), BLOCK, 0, queue, *call);
}

cudaError_t dtp_cuda_loss_forward(cudaStream_t queue, const dtp_cuda_loss_call *call)
{
    return call->local < LONG_ROW ? LAUNCH_ROWS(forward_kernel, DTP_CUDA_WARP, queue, call)
                                  : LAUNCH_ROWS(forward_kernel, BLOCK, queue, call);
}

cudaError_t dtp_cuda_loss_backward(cudaStream_t queue, const dtp_cuda_loss_call *call)
{
    return call->local < LONG_ROW ? LAUNCH_ROWS(backward_kernel, DTP_CUDA_WARP, queue, call)
                                  : LAUNCH_ROWS(backward_kernel, BLOCK, queue, call);
}

cudaError_t dtp_cuda_loss_pick(cudaStream_t queue, const dtp_cuda_loss_call *call)
{
    return LAUNCH_ROWS(pick_kernel, DTP_CUDA_WARP, queue, call);
}

cudaError_t dtp_cuda_loss_label_weight(cudaStream_t queue, const dtp_cuda_loss_call *call)
{
    return launch_rows<1>(label_weight_kernel, queue, call);
}

cudaError_t dtp_cuda_loss_finish(cudaStream_t queue, const dtp_cuda_finish_call *call)
{
    return dtp_launch(finish_kernel, dtp_grid(call->rows.total, BLOCK, 1), BLOCK, 0, queue, *call);
}

cudaError_t dtp_cuda_loss_total(cudaStream_t queue, const dtp_cuda_loss_sum *sum)
{
    return dtp_launch(total_kernel, 1, TOTAL_BLOCK, 0, queue, *sum);
}
