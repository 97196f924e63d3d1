/* Sums of src by id, without atomics. The ids are sorted by what they add to, then by place: a
 * bitonic sort of tiles in shared memory, then merges of pairs of runs, in which every entry finds
 * its place by a binary search of the other run. Items that add to one element are then a segment
 * of the list. The list is cut into chunks; a thread adds what a chunk has for one element of the
 * rest. A segment in one chunk goes to `out`; of one in several chunks the parts go to the
 * workspace and are added in order. So the work is even however often an id occurs, and the order
 * of additions depends on the ids alone. */
#include "executor/cuda/kernels/common.cuh"
#include "executor/cuda/kernels/lookup.h"
#include "spmd/target/cuda_workspace.h"

enum { TILE = 1024, LEAST_TILE = 2 * DTP_CUDA_WARP, BATCH = 4 };

/* An entry of the list: key, then item. */
#define NOWHERE 0xffffffffu

static __device__ __forceinline__ uint32_t key_of(uint64_t entry)
{
    return (uint32_t)(entry >> 32);
}

static __device__ __forceinline__ int64_t item_of(uint64_t entry)
{
    return (int64_t)(uint32_t)entry;
}

static __device__ uint64_t entry_of(const dtp_cuda_scatter_call &c, const dtp_bound_ids &ids,
                                    int64_t item)
{
    int64_t off[DTP_CUDA_SCATTER_VIEWS];
    dtp_offsets(c.items, item, off);
    const int64_t id = dtp_load_int(ids.data, ids.dtype, off[DTP_CUDA_SCATTER_ITEMS]);
    const int64_t here = id - ids.first;
    uint32_t key = NOWHERE;
    if (id < 0 || id >= ids.size) {
        dtp_refuse(ids.error, DTP_DATA_ID, ids.operand, id, ids.size);
    } else if (here >= 0 && here < ids.local && id != ids.skip) {
        key = (uint32_t)(off[DTP_CUDA_SCATTER_GROUP] * ids.local + here);
    }
    return (uint64_t)key << 32 | (uint64_t)item;
}

/* A block sorts `tile` entries, a power of two, two per thread. */
static __global__ void sort_kernel(dtp_cuda_scatter_call c, dtp_bound_ids ids, int tile,
                                   uint64_t *out)
{
    DTP_SHARED(uint64_t, list, TILE);
    const int64_t base = (int64_t)blockIdx.x * tile;
    const int me = (int)threadIdx.x;
    for (int j = me; j < tile; j += (int)blockDim.x) {
        list[j] = base + j < c.items.total ? entry_of(c, ids, base + j) : ~(uint64_t)0;
    }
    for (int size = 2; size <= tile; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            const int low = me / step * 2 * step + me % step;
            const uint64_t a = list[low], b = list[low + step];
            if ((a > b) == ((low & size) == 0)) {
                list[low] = b;
                list[low + step] = a;
            }
        }
    }
    __syncthreads();
    for (int j = me; j < tile && base + j < c.items.total; j += (int)blockDim.x) {
        out[base + j] = list[j];
    }
}

/* Number of entries of a sorted list below x. */
static __device__ __forceinline__ int64_t below(const uint64_t *list, int64_t n, uint64_t x)
{
    int64_t first = 0;
    while (n > 0) {
        const int64_t half = n / 2;
        const bool right = list[first + half] < x;
        first += right ? half + 1 : 0;
        n = right ? n - half - 1 : half;
    }
    return first;
}

/* Merges the runs of each pair; no entry occurs twice. */
static __global__ void merge_kernel(int64_t n, int64_t run, const uint64_t *in, uint64_t *out)
{
    for (int64_t i = dtp_thread(); i < n; i += dtp_threads()) {
        const int64_t mine = i / run * run, pair = i / (2 * run) * (2 * run);
        const int64_t other = mine == pair ? pair + run : pair;
        const int64_t left = n - other, length = left < 0 ? 0 : left < run ? left : run;
        out[pair + (i - mine) + below(in + other, length, in[i])] = in[i];
    }
}

/* ---- sums: floats in f32, integers modulo 2^64 ---- */

static __device__ __forceinline__ void load(const void *data, int dtype, int64_t i, float *x)
{
    *x = dtp_load(data, dtype, i);
}

static __device__ __forceinline__ void load(const void *data, int dtype, int64_t i, uint64_t *x)
{
    *x = (uint64_t)dtp_load_int(data, dtype, i);
}

static __device__ __forceinline__ void store(void *data, int dtype, int64_t i, float x)
{
    dtp_store(data, dtype, i, x);
}

static __device__ __forceinline__ void store(void *data, int dtype, int64_t i, uint64_t x)
{
    dtp_store_int(data, dtype, i, (int64_t)x);
}

/* Offset in `out` that an entry adds to, for element 0 of the rest. */
static __device__ __forceinline__ int64_t out_of(const dtp_cuda_scatter_call &c,
                                                 const dtp_bound_ids &ids, uint64_t entry)
{
    return dtp_offset(c.items, DTP_CUDA_SCATTER_OUT, item_of(entry)) +
           (int64_t)key_of(entry) % ids.local * ids.stride;
}

/* What a sum needs. Element d of the rest in a chunk has sums head[chunk * rest + d], of a segment
 * from the chunk before, and tail[..], of one that begins here and goes on. */
template <class A> struct sums {
    const uint64_t *list;
    const void *src;
    void *out;
    A *head, *tail;
};

template <class A>
static __global__ void sum_kernel(dtp_cuda_scatter_call c, dtp_bound_ids ids, int64_t threads,
                                  sums<A> s)
{
    for (int64_t t = dtp_thread(); t < threads; t += dtp_threads()) {
        const int64_t d = t % c.rest.total, begin = t / c.rest.total * DTP_CUDA_SCATTER_CHUNK;
        const int64_t left = c.items.total - begin;
        const int n = left < DTP_CUDA_SCATTER_CHUNK ? (int)left : (int)DTP_CUDA_SCATTER_CHUNK;
        int64_t rest[2];
        dtp_offsets(c.rest, d, rest);
        uint64_t last = s.list[begin];
        bool from_before = begin > 0 && key_of(s.list[begin - 1]) == key_of(last);
        A sum = 0;
        for (int i = 0; i < n; i += BATCH) {
            uint64_t entry[BATCH];
            A term[BATCH];
            DTP_UNROLL
            for (int j = 0; j < BATCH; j++) {
                entry[j] = s.list[begin + (i + j < n ? i + j : n - 1)];
            }
            DTP_UNROLL
            for (int j = 0; j < BATCH; j++) {
                term[j] = 0;
                if (key_of(entry[j]) != NOWHERE) {
                    load(s.src, c.src_dtype,
                         dtp_offset(c.items, DTP_CUDA_SCATTER_SRC, item_of(entry[j])) + rest[0],
                         &term[j]);
                }
            }
            DTP_UNROLL
            for (int j = 0; j < BATCH; j++) {
                if (key_of(entry[j]) != key_of(last)) {
                    if (from_before) {
                        s.head[t] = sum;
                    } else {
                        store(s.out, c.out_dtype, out_of(c, ids, last) + rest[1], sum);
                    }
                    from_before = false;
                    sum = 0;
                }
                sum += i + j < n ? term[j] : (A)0;
                last = entry[j];
            }
        }
        if (key_of(last) == NOWHERE) {
            continue;
        }
        if (from_before) {
            s.head[t] = sum;
        } else if (left > n && key_of(s.list[begin + n]) == key_of(last)) {
            s.tail[t] = sum;
        } else {
            store(s.out, c.out_dtype, out_of(c, ids, last) + rest[1], sum);
        }
    }
}

/* Whether the entry before and at `i` belong to one segment. */
static __device__ __forceinline__ bool goes_on(const uint64_t *list, int64_t n, int64_t i)
{
    return i > 0 && i < n && key_of(list[i]) != NOWHERE && key_of(list[i - 1]) == key_of(list[i]);
}

/* Adds the parts of segments of several chunks; the thread of the first chunk does. */
template <class A>
static __global__ void join_kernel(dtp_cuda_scatter_call c, dtp_bound_ids ids, int64_t threads,
                                   sums<A> s)
{
    for (int64_t t = dtp_thread(); t < threads; t += dtp_threads()) {
        const int64_t d = t % c.rest.total, n = c.items.total;
        const int64_t begin = t / c.rest.total * DTP_CUDA_SCATTER_CHUNK;
        int64_t end = begin + DTP_CUDA_SCATTER_CHUNK, at = t;
        if (!goes_on(s.list, n, end) ||
            (goes_on(s.list, n, begin) && key_of(s.list[begin]) == key_of(s.list[end]))) {
            continue;
        }
        const uint64_t entry = s.list[end];
        A sum = s.tail[t];
        do {
            at += c.rest.total;
            sum += s.head[at];
            end += DTP_CUDA_SCATTER_CHUNK;
        } while (goes_on(s.list, n, end) && key_of(s.list[end]) == key_of(entry));
        store(s.out, c.out_dtype, out_of(c, ids, entry) + dtp_offset(c.rest, 1, d), sum);
    }
}

template <class A>
static cudaError_t add(cudaStream_t queue, const dtp_cuda_scatter_call *c, const dtp_bound_ids *ids,
                       const uint64_t *list, void *out, const void *src, void *parts)
{
    const int64_t chunks = (c->items.total + DTP_CUDA_SCATTER_CHUNK - 1) / DTP_CUDA_SCATTER_CHUNK;
    const int64_t threads = chunks * c->rest.total;
    const unsigned grid = dtp_grid(threads, DTP_CUDA_BLOCK, 1);
    const sums<A> s = {list, src, out, (A *)parts, (A *)parts + threads};
    const cudaError_t code =
        dtp_launch(sum_kernel<A>, grid, DTP_CUDA_BLOCK, 0, queue, *c, *ids, threads, s);
    return code != cudaSuccess || chunks == 1
               ? code
               : dtp_launch(join_kernel<A>, grid, DTP_CUDA_BLOCK, 0, queue, *c, *ids, threads, s);
}

cudaError_t dtp_cuda_scatter_run(cudaStream_t queue, const dtp_cuda_scatter_call *c,
                                 const dtp_bound_ids *ids, void *out, const void *src,
                                 void *workspace)
{
    const int64_t n = c->items.total;
    uint64_t *from = (uint64_t *)workspace, *to = from + n;
    int tile = LEAST_TILE;
    while (tile < TILE && tile < n) {
        tile *= 2;
    }
    cudaError_t code = cudaMemsetAsync(out, 0, (size_t)c->out_bytes, queue);
    if (code != cudaSuccess || n == 0) {
        return code;
    }
    code = dtp_launch(sort_kernel, (unsigned)((n + tile - 1) / tile), (unsigned)tile / 2, 0, queue,
                      *c, *ids, tile, from);
    for (int64_t run = tile; code == cudaSuccess && run < n; run *= 2) {
        code = dtp_launch(merge_kernel, dtp_grid(n, DTP_CUDA_BLOCK, 1), DTP_CUDA_BLOCK, 0, queue, n,
                          run, from, to);
        uint64_t *const sorted = to;
        to = from;
        from = sorted;
    }
    if (code != cudaSuccess || c->rest.total == 0) {
        return code;
    }
    void *const parts = (uint64_t *)workspace + 2 * n;
    return c->out_dtype == DTP_I32 || c->out_dtype == DTP_I64
               ? add<uint64_t>(queue, c, ids, from, out, src, parts)
               : add<float>(queue, c, ids, from, out, src, parts);
}
