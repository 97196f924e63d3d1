/* The sizes that the bench measures. Operands wander through pools larger than the caches; the
 * largest product of a device is 2^38 multiply-adds, which takes it about a millisecond. */
#include "executor/bench/bench.h"

#include <math.h>

const dtp_bench_scale *dtp_bench_scale_of(bool device, bool quick)
{
    static const dtp_bench_scale host[2] = {
        {.pool_mib = {96, 48, 16, 8, 72, 72},
         .gemm = {7, {1, 4, 16, 64, 256, 1024, 4096}},
         .gemm_halves = {5, {1, 8, 64, 512, 4096}},
         .gemm_volume = INT64_C(1) << 28,
         .row = 100,
         .op_elems = {5, {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22}},
         .coll_least = 64,
         .coll_bytes = 32 << 20,
         .coll_factor = 4,
         .beside_bytes = 4 << 20,
         .beside_size = 256},
        {.pool_mib = {96, 48, 16, 8, 72, 72},
         .gemm = {5, {1, 8, 64, 512, 4096}},
         .gemm_halves = {5, {1, 8, 64, 512, 4096}},
         .gemm_volume = INT64_C(1) << 28,
         .row = 100,
         .op_elems = {4, {1 << 10, 1 << 14, 1 << 18, 1 << 21}},
         .coll_least = 64,
         .coll_bytes = 16 << 20,
         .coll_factor = 8,
         .beside_bytes = 4 << 20,
         .beside_size = 256}};
    static const dtp_bench_scale devices[2] = {
        {.pool_mib = {2048, 1024, 512, 256, 1536, 1024},
         .gemm = {7, {1, 16, 64, 256, 1024, 4096, 16384}},
         .gemm_halves = {8, {1, 16, 64, 256, 1024, 4096, 8192, 16384}},
         .batches = {2, {16, 256}},
         .gemm_batched = {5, {1, 16, 64, 256, 1024}},
         .gemm_volume = INT64_C(1) << 38,
         .row = 100,
         .op_elems = {6, {1 << 10, 1 << 14, 1 << 18, 1 << 21, 1 << 24, 1 << 26}},
         .coll_least = 64,
         .coll_bytes = 512 << 20,
         .coll_factor = 4,
         .beside_bytes = 64 << 20,
         .beside_size = 4096},
        {.pool_mib = {1024, 512, 256, 128, 768, 512},
         .gemm = {5, {1, 16, 256, 2048, 8192}},
         .gemm_halves = {6, {1, 16, 256, 1024, 4096, 8192}},
         .batches = {2, {16, 256}},
         .gemm_batched = {3, {1, 16, 256}},
         .gemm_volume = INT64_C(1) << 38,
         .row = 100,
         .op_elems = {4, {1 << 10, 1 << 16, 1 << 21, 1 << 25}},
         .coll_least = 64,
         .coll_bytes = 128 << 20,
         .coll_factor = 8,
         .beside_bytes = 16 << 20,
         .beside_size = 4096}};
    return &(device ? devices : host)[quick];
}

const dtp_bench_scale dtp_bench_scale_tiny = {.pool_mib = {8, 32, 2, 1, 8, 64},
                                              .gemm = {3, {1, 16, 128}},
                                              .gemm_halves = {3, {1, 16, 128}},
                                              .batches = {1, {4}},
                                              .gemm_batched = {2, {16, 128}},
                                              .gemm_volume = INT64_C(1) << 21,
                                              .row = 4,
                                              .op_elems = {2, {1 << 10, 1 << 13}},
                                              .coll_least = 64,
                                              .coll_bytes = 1 << 18,
                                              .coll_factor = 64,
                                              .beside_bytes = 1 << 20,
                                              .beside_size = 128};

/* More than is asked for, for ops whose smallest shapes take more, and for products. */
static int32_t mib_for(int64_t bytes, int32_t usual)
{
    return (int32_t)(bytes >> 20) + usual / 6;
}

dtp_bench_scale dtp_bench_scale_between(const dtp_bench_scale *usual, int64_t least, int64_t most)
{
    enum { OPERANDS = 4 }; /* of the largest size, read or written by an op */
    dtp_bench_scale s = *usual;
    const int64_t size = (int64_t)sizeof(float), pool = OPERANDS * most;
    const int64_t bytes_of[DTP_N_BENCH_POOLS] = {pool, pool / 2, pool, pool / size, pool, pool};
    int64_t factor = 2;
    while ((double)least * pow((double)factor, DTP_BENCH_GRID - 1) < (double)most) {
        factor *= 2;
    }
    s.op_elems.n = 0;
    for (int64_t bytes = least; bytes <= most && s.op_elems.n < DTP_BENCH_GRID; bytes *= factor) {
        s.op_elems.sizes[s.op_elems.n++] = bytes / size > 0 ? bytes / size : 1;
    }
    s.coll_least = least;
    s.coll_bytes = most;
    s.coll_factor = 2;
    for (int32_t p = 0; p < DTP_N_BENCH_POOLS; p++) {
        s.pool_mib[p] = mib_for(bytes_of[p], usual->pool_mib[p]);
    }
    return s;
}
