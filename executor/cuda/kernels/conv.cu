#include "executor/cuda/kernels/conv.h"
#include "executor/cuda/kernels/common.cuh"

/* A block makes TILE x TILE results, a thread EACH x EACH of them, from STEP terms at a time. */
enum { TILE = 64, EACH = 4, SIDE = TILE / EACH, STEP = 16 };

/* An element of rows, columns or terms. */
struct conv_place {
    int64_t at[3]; /* in a, b, c */
    int64_t coordinate[DTP_CUDA_CONV_AXES];
    bool inside;
};

static __device__ conv_place place_of(const dtp_cuda_conv_index &index, int64_t i)
{
    conv_place p = {{0, 0, 0}, {0, 0, 0}, i < index.total};
    i = p.inside ? i : 0;
    DTP_ROLL
    for (int d = index.n - 1; d >= 0; d--) {
        const int64_t rest = i / index.size[d], here = i - rest * index.size[d];
        for (int v = 0; v < 3; v++) {
            p.at[v] += here * index.stride[v][d];
        }
        for (int v = 0; v < DTP_CUDA_CONV_AXES; v++) {
            p.coordinate[v] += index.axis[d] == v ? here * index.scale[d] : 0;
        }
        i = rest;
    }
    return p;
}

/* Whether b has an element for a term and a column, and where, from `at` on. */
static __device__ bool is_in_b(const dtp_cuda_conv_form &conv, const conv_place &k,
                               const conv_place &n, int64_t *at)
{
    bool inside = k.inside && n.inside;
    *at += k.at[1] + n.at[1];
    for (int i = 0; i < DTP_CUDA_CONV_AXES; i++) {
        const int64_t from = conv.first[i] + k.coordinate[i] + n.coordinate[i];
        const int64_t to = conv.every[i] == 1 ? from : from / conv.every[i];
        inside = inside && from >= 0 && to * conv.every[i] == from && to < conv.limit[i];
        *at += to * conv.step[i];
    }
    return inside;
}

/* What a block makes: results from (m, n) on of a group, of terms [k, end), part number `part`. */
struct conv_tile {
    int64_t group, m, n, part, k, end;
};

static __host__ __device__ int64_t tiles_of(const dtp_cuda_conv_index &index)
{
    return (index.total + TILE - 1) / TILE;
}

static __device__ conv_tile tile_of(const dtp_cuda_conv_form &conv, int64_t block)
{
    const int64_t m = tiles_of(conv.m), n = tiles_of(conv.n);
    const int64_t each = (conv.k.total + conv.parts - 1) / conv.parts;
    conv_tile t = {block / n / m / conv.parts,
                   block / n % m * TILE,
                   block % n * TILE,
                   block / n / m % conv.parts,
                   0,
                   0};
    t.k = t.part * each;
    t.end = t.k + each < conv.k.total ? t.k + each : conv.k.total;
    return t;
}

static __global__ void __launch_bounds__(SIDE *SIDE)
    conv_kernel(dtp_cuda_conv_form conv, const void *a, const void *b, void *c, float *space)
{
    DTP_SHARED(conv_place, rows, TILE);
    DTP_SHARED(conv_place, cols, TILE);
    DTP_SHARED(conv_place, terms, STEP);
    DTP_SHARED(float, of_a, STEP *TILE);
    DTP_SHARED(float, of_b, STEP *TILE);
    DTP_SHARED(int, odd, 1); /* a has elements that are not finite */
    const int me = (int)threadIdx.x, row = me / SIDE * EACH, col = me % SIDE;
    const int64_t all = conv.group.total * tiles_of(conv.m) * tiles_of(conv.n) * conv.parts;
    for (int64_t block = blockIdx.x; block < all; block += gridDim.x) {
        const conv_tile t = tile_of(conv, block);
        const conv_place of_group = place_of(conv.group, t.group);
        float sum[EACH][EACH] = {};
        __syncthreads();
        for (int i = me; i < TILE; i += SIDE * SIDE) {
            rows[i] = place_of(conv.m, t.m + i);
            cols[i] = place_of(conv.n, t.n + i);
        }
        __syncthreads(); /* for tiles without terms: of an empty shard */
        for (int64_t k0 = t.k; k0 < t.end; k0 += STEP) {
            if (me < STEP) {
                terms[me] = place_of(conv.k, k0 + me);
                terms[me].inside = k0 + me < t.end;
                odd[0] = 0;
            }
            __syncthreads();
            for (int i = me; i < STEP * TILE; i += SIDE * SIDE) {
                const conv_place &k = terms[i / TILE], &m = rows[i % TILE];
                of_a[i] = k.inside && m.inside
                              ? dtp_load(a, conv.dtype[0], of_group.at[0] + m.at[0] + k.at[0])
                              : 0.0f;
                int64_t at = of_group.at[1];
                of_b[i] =
                    is_in_b(conv, k, cols[i % TILE], &at) ? dtp_load(b, conv.dtype[1], at) : 0.0f;
                if (conv.skips && !isfinite(of_a[i])) {
                    odd[0] = 1;
                }
            }
            __syncthreads();
            for (int k = 0; k < STEP && odd[0] != 0; k++) {
                for (int i = 0; i < EACH * EACH; i++) {
                    const int m = row + i / EACH, n = col + i % EACH * SIDE;
                    int64_t at = 0;
                    sum[i / EACH][i % EACH] += is_in_b(conv, terms[k], cols[n], &at)
                                                   ? of_a[k * TILE + m] * of_b[k * TILE + n]
                                                   : 0.0f;
                }
            }
            for (int k = 0; k < STEP && odd[0] == 0; k++) {
                DTP_UNROLL
                for (int i = 0; i < EACH; i++) {
                    DTP_UNROLL
                    for (int j = 0; j < EACH; j++) {
                        sum[i][j] += of_a[k * TILE + row + i] * of_b[k * TILE + col + j * SIDE];
                    }
                }
            }
            __syncthreads();
        }
        for (int i = 0; i < EACH; i++) {
            for (int j = 0; j < EACH; j++) {
                const conv_place &m = rows[row + i], &n = cols[col + j * SIDE];
                if (!m.inside || !n.inside) {
                    continue;
                }
                if (conv.parts > 1) {
                    space[((t.part * conv.group.total + t.group) * conv.m.total + t.m + row + i) *
                              conv.n.total +
                          t.n + col + j * SIDE] = sum[i][j];
                } else {
                    dtp_store(c, conv.dtype[2], of_group.at[2] + m.at[2] + n.at[2], sum[i][j]);
                }
            }
        }
    }
}

/* Parts are added in order. */
static __global__ void conv_parts_kernel(dtp_cuda_conv_form conv, void *c, const float *space)
{
    const int64_t results = conv.group.total * conv.m.total * conv.n.total;
    for (int64_t i = dtp_thread(); i < results; i += dtp_threads()) {
        float sum = 0.0f;
        for (int64_t part = 0; part < conv.parts; part++) {
            sum += space[part * results + i];
        }
        const int64_t at = place_of(conv.n, i % conv.n.total).at[2] +
                           place_of(conv.m, i / conv.n.total % conv.m.total).at[2] +
                           place_of(conv.group, i / conv.n.total / conv.m.total).at[2];
        dtp_store(c, conv.dtype[2], at, sum);
    }
}

cudaError_t dtp_cuda_conv_run(cudaStream_t queue, const dtp_cuda_conv_form *conv, const void *a,
                              const void *b, void *c, float *space)
{
    const int64_t tiles = conv->group.total * tiles_of(conv->m) * tiles_of(conv->n) * conv->parts;
    const cudaError_t code = dtp_launch(conv_kernel, dtp_grid(tiles, 1, 1), SIDE * SIDE, 0, queue,
                                        *conv, a, b, c, space);
    if (code != cudaSuccess || conv->parts == 1) {
        return code;
    }
    return dtp_launch(
        conv_parts_kernel,
        dtp_grid(conv->group.total * conv->m.total * conv->n.total, DTP_CUDA_BLOCK, 1),
        DTP_CUDA_BLOCK, 0, queue, *conv, c, space);
}
