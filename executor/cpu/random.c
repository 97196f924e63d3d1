/* dropout, uniform and normal. Values belong to global row-major element indices
 * (core/base/philox.h); a local run of elements that is also a run globally takes its words from
 * many Philox blocks at once, with the same bits as dtp_uniform_at. */
#include <math.h>
#include <string.h>

#include "core/base/philox.h"
#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/bound/random.h"

enum { BLOCKS = 64, WORDS = 4 * BLOCKS };

/* Counter words 2, 3 and key of a stream at a step. */
typedef struct random_key {
    uint64_t seed;
    uint32_t stream, step;
} random_key;

/* The words of BLOCKS blocks from `first` on: dtp_philox_block for each. */
DTP_CPU_CLONES static void philox_words(const random_key *key, uint64_t first, uint32_t *out)
{
    uint32_t stream = key->stream, step = key->step;
    uint32_t key0 = (uint32_t)key->seed, key1 = (uint32_t)(key->seed >> 32);
    uint32_t w0[BLOCKS], w1[BLOCKS], w2[BLOCKS], w3[BLOCKS];
#pragma omp simd
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint64_t block = first + i;
        uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = step, c3 = stream;
        uint32_t k0 = key0, k1 = key1;
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
            c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)p1;
            c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        w0[i] = c0;
        w1[i] = c1;
        w2[i] = c2;
        w3[i] = c3;
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        out[4 * i] = w0[i];
        out[4 * i + 1] = w1[i];
        out[4 * i + 2] = w2[i];
        out[4 * i + 3] = w3[i];
    }
}

typedef struct random_job {
    random_key key;
    int64_t first; /* global index of local element 0 */
    int64_t step;  /* global distance of neighbours within a run */
    dtp_random_numbers of;
    const void *x;
    void *y;
    dtp_dtype dtype; /* of both: f32 or 16-bit */
} random_job;

DTP_CPU_CLONES static void drop_run(int64_t n, const uint32_t *words, const random_job *job,
                                    const float *x, float *y)
{
    float keep = job->of.keep, threshold = job->of.at_least;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float u = (float)(int32_t)(words[i] >> 8) * 0x1p-24f, v = x[i] * keep;
        y[i] = u >= threshold ? v : 0.0f;
    }
}

DTP_CPU_CLONES static void uniform_run(int64_t n, const uint32_t *words, const random_job *job,
                                       float *y)
{
    double low = job->of.a, width = job->of.b - job->of.a;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)(low + width * ((double)(int32_t)(words[i] >> 8) * 0x1p-24));
    }
}

/* Calls for up to WORDS elements with the words of the elements. */
static void bits_piece(const random_job *job, int64_t n, int64_t local, int64_t global)
{
    uint32_t words[WORDS];
    while (n > 0) {
        float x[WORDS], y[WORDS];
        uint64_t skip = (uint64_t)global % 4;
        int64_t take = n < WORDS - (int64_t)skip ? n : WORDS - (int64_t)skip;
        const bool half = dtp_dtype_is_half(job->dtype);
        float *to = half ? y : (float *)job->y + local;
        philox_words(&job->key, (uint64_t)global / 4, words);
        if (job->x != NULL) {
            drop_run(take, words + skip, job, dtp_floats(job->dtype, take, job->x, local, x), to);
        } else {
            uniform_run(take, words + skip, job, to);
        }
        if (half) {
            dtp_narrow(job->dtype, take, y, (uint16_t *)job->y + local, 1);
        }
        n -= take;
        local += take;
        global += take;
    }
}

static void random_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const random_job *job = user;
    int64_t global = job->first + off[1];
    if (job->step == 1) {
        bits_piece(job, n, off[0], global);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        bits_piece(job, 1, off[0] + i, global + i * job->step);
    }
}

static void normal_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const random_job *job = user;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(job->first + off[1] + i * job->step);
        double z = dtp_normal_at(job->key.seed, job->key.stream, job->key.step, at);
        dtp_float_put(job->dtype, job->y, off[0] + i, (float)(job->of.a + job->of.b * z));
    }
}

static dtp_status run(const dtp_kernel_args *args, dtp_distribution distribution)
{
    const dtp_view *y = &args->out[0];
    random_job job = {.x = args->call->n_in > 0 ? args->in[0].data : NULL, .y = y->data};
    dtp_nest nest;
    dtp_bind_random(args, distribution, &job.of, &nest);
    job.key =
        (random_key){args->record->seed, job.of.stream, (uint32_t)(uint64_t)args->record->step};
    job.first = dtp_nest_total(&nest) > 0 ? dtp_view_global_index(y, 0) : 0;
    job.step = dtp_nest_step(&nest, 1);
    job.dtype = y->local.dtype;
    dtp_nest_each(&nest, args->threads, distribution == DTP_NORMAL ? normal_piece : random_piece,
                  &job);
    return DTP_OK;
}

#define KERNEL(op, distribution)                                                                   \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        (void)err;                                                                                 \
        return run(args, distribution);                                                            \
    }
#define ROW(op, distribution) {#op, op##_kernel, NULL, DTP_FLOATS},

DTP_RANDOM_OPS(KERNEL)

const dtp_kernel dtp_cpu_random[] = {DTP_RANDOM_OPS(ROW){.op = NULL}};
