#include "executor/cuda/kernels/elementwise/optimizer.h"
#include "executor/cuda/kernels/vector.cuh"
#include "spmd/target/cuda_workspace.h"

enum {
    V = 4,
    CHUNK = 4096 /* elements of a block */
};

typedef struct update_list {
    int32_t n;
    int32_t first_block[DTP_CUDA_UPDATES + 1];
    dtp_bound_update of[DTP_CUDA_UPDATES];
} update_list;

/* What an update needs of the step. Adam: rate = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t).
 */
typedef struct step_factors {
    float lr, rate, root, gradient;
    bool skip;  /* outputs are the operands */
    bool first; /* accumulate: the sum is what is added */
} step_factors;

static __device__ step_factors factors_of(const dtp_bound_update &u, const dtp_step_record *record)
{
    const double lr = u.lr * record->lr_scale;
    step_factors f = {};
    f.lr = (float)lr;
    f.gradient = u.factor != NULL ? dtp_load(u.factor, u.dtype, 0) : 1.0f;
    f.skip = f.gradient == 0.0f;
    f.first = record->microbatch == 0;
    if (u.rule == DTP_UPDATE_ADAM || u.rule == DTP_UPDATE_ADAMW) {
        const double t = (double)(record->step + 1);
        f.rate = (float)(lr / (1.0 - pow(u.beta1, t)));
        f.root = (float)(1.0 / sqrt(1.0 - pow(u.beta2, t)));
    }
    return f;
}

static __device__ __forceinline__ void adam(const dtp_bound_update &u, const step_factors &f,
                                            float (&p)[V], const float (&g)[V], float (&m)[V],
                                            float (&v)[V])
{
    const float b1 = (float)u.beta1, b2 = (float)u.beta2;
    const bool decoupled = u.rule == DTP_UPDATE_ADAMW;
    const float direct = f.lr * u.decay;
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        const float slope = decoupled ? g[j] : g[j] + u.decay * p[j];
        m[j] = b1 * m[j] + (1.0f - b1) * slope;
        v[j] = b2 * v[j] + (1.0f - b2) * slope * slope;
        const float step = f.rate * m[j] / (sqrtf(v[j]) * f.root + (float)u.eps);
        p[j] -= decoupled ? step + direct * p[j] : step;
    }
}

/* The step of V elements in place. */
static __device__ __forceinline__ void update(const dtp_bound_update &u, const step_factors &f,
                                              float (&p)[V], float (&g)[V], float (&m)[V],
                                              float (&v)[V])
{
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        g[j] *= f.gradient;
    }
    switch (u.rule) {
    case DTP_UPDATE_SGD:
        DTP_UNROLL
        for (int j = 0; j < V; j++) {
            p[j] -= f.lr * (g[j] + u.decay * p[j]);
        }
        break;
    case DTP_UPDATE_MOMENTUM:
        DTP_UNROLL
        for (int j = 0; j < V; j++) {
            m[j] = u.momentum * m[j] + g[j] + u.decay * p[j];
            p[j] -= f.lr * m[j];
        }
        break;
    case DTP_UPDATE_ACCUMULATE:
        DTP_UNROLL
        for (int j = 0; j < V; j++) {
            p[j] = f.first ? g[j] : p[j] + g[j];
        }
        break;
    default:
        adam(u, f, p, g, m, v);
        break;
    }
}

template <class T>
static __device__ void update_chunk(const dtp_bound_update &u, const step_factors &f, int64_t first)
{
    const uintptr_t all = (uintptr_t)u.p | (uintptr_t)u.g | (uintptr_t)u.m | (uintptr_t)u.v |
                          (uintptr_t)u.p_out | (uintptr_t)u.m_out | (uintptr_t)u.v_out;
    const bool packed = all % (sizeof(T) * V) == 0;
    const int64_t end = first + CHUNK < u.n ? first + CHUNK : u.n;
    for (int64_t i = first + (int64_t)threadIdx.x * V; i < end; i += (int64_t)blockDim.x * V) {
        const int n = dtp_group_size<V>(i, end);
        float p[V] = {}, g[V] = {}, m[V] = {}, v[V] = {};
        if (u.rule != DTP_UPDATE_ACCUMULATE || !f.first) {
            dtp_load_values(p, (const T *)u.p + i, 1, n, packed);
        }
        if (u.m != NULL) {
            dtp_load_values(m, (const T *)u.m + i, 1, n, packed);
        }
        if (u.v != NULL) {
            dtp_load_values(v, (const T *)u.v + i, 1, n, packed);
        }
        if (!f.skip) {
            dtp_load_values(g, (const T *)u.g + i, 1, n, packed);
            update(u, f, p, g, m, v);
        }
        dtp_store_values((T *)u.p_out + i, p, 1, n, packed);
        if (u.m != NULL) {
            dtp_store_values((T *)u.m_out + i, m, 1, n, packed);
        }
        if (u.v != NULL) {
            dtp_store_values((T *)u.v_out + i, v, 1, n, packed);
        }
    }
}

/* Integers, which `accumulate` alone takes. They wrap around. */
template <class T>
static __device__ void sum_ints(const dtp_bound_update &u, const step_factors &f, int64_t first)
{
    const int64_t end = first + CHUNK < u.n ? first + CHUNK : u.n;
    for (int64_t i = first + (int64_t)threadIdx.x; i < end; i += (int64_t)blockDim.x) {
        const T sum = f.first ? 0 : ((const T *)u.p)[i];
        ((T *)u.p_out)[i] = sum + ((const T *)u.g)[i];
    }
}

static __global__ void update_kernel(update_list list, const dtp_step_record *record)
{
    DTP_SHARED(step_factors, factors, 1);
    int at = 0;
    while (at + 1 < list.n && list.first_block[at + 1] <= (int32_t)blockIdx.x) {
        at++;
    }
    const dtp_bound_update &u = list.of[at];
    const int64_t first = (int64_t)((int32_t)blockIdx.x - list.first_block[at]) * CHUNK;
    if (threadIdx.x == 0) {
        factors[0] = factors_of(u, record);
    }
    __syncthreads();
    const step_factors f = factors[0];
    if (u.dtype == DTP_F32) {
        update_chunk<float>(u, f, first);
    } else if (u.dtype == DTP_BF16) {
        update_chunk<__nv_bfloat16>(u, f, first);
    } else if (u.dtype == DTP_I32) {
        sum_ints<uint32_t>(u, f, first);
    } else if (u.dtype == DTP_I64) {
        sum_ints<uint64_t>(u, f, first);
    } else {
        update_chunk<__half>(u, f, first);
    }
}

cudaError_t dtp_cuda_update_tensors(cudaStream_t queue, int32_t n, const dtp_bound_update *updates,
                                    const dtp_step_record *record)
{
    cudaError_t done = cudaSuccess;
    for (int32_t at = 0; at < n && done == cudaSuccess;) {
        update_list list;
        memset(&list, 0, sizeof list);
        while (at < n && list.n < DTP_CUDA_UPDATES) {
            const int64_t blocks = (updates[at].n + CHUNK - 1) / CHUNK;
            list.of[list.n] = updates[at++];
            list.first_block[list.n + 1] = list.first_block[list.n] + (int32_t)blocks;
            list.n++;
        }
        if (list.first_block[list.n] > 0) {
            done = dtp_launch(update_kernel, (unsigned)list.first_block[list.n], DTP_CUDA_BLOCK, 0,
                              queue, list, record);
        }
    }
    return done;
}

static __global__ void loss_scale_kernel(dtp_cuda_loss_scale s)
{
    const double scale = *s.in[0], good = *s.in[1], skipped = *s.in[2];
    const bool finite = isfinite(*s.in[3]);
    const bool grows = finite && good + 1.0 >= s.interval;
    *s.out[0] = (float)(scale * (!finite ? s.backoff : grows ? s.growth : 1.0));
    *s.out[1] = (float)(finite && !grows ? good + 1.0 : 0.0);
    *s.out[2] = (float)(skipped + (finite ? 0.0 : 1.0));
    *s.out[3] = (float)(finite ? 1.0 / scale : 0.0);
}

cudaError_t dtp_cuda_loss_scale_next(cudaStream_t queue, const dtp_cuda_loss_scale *s)
{
    return dtp_launch(loss_scale_kernel, 1, 1, 0, queue, *s);
}
