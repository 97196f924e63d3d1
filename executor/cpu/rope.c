/* rope: rotates feature pairs (j, j + f/2). Angles are made in double, once per position and pair.
 */
#include <math.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/bound/rope.h"

enum { PAIRS = 128 }; /* pairs handled at once */

typedef struct rope_job {
    dtp_nest rest; /* dims other than position and feature; views: x, y */
    dtp_rope_numbers of;
    const void *x;
    void *y;
    dtp_dtype dtype; /* of both: f32 or 16-bit */
} rope_job;

/* Angles' cosines and sines of n pairs. */
typedef struct rope_turn {
    int64_t n, half, sx, sy;
    float c[PAIRS], s[PAIRS];
} rope_turn;

DTP_CPU_CLONES static void rotate_run(const rope_turn *t, const float *x, float *y)
{
    const float *x2 = x + t->half, *c = t->c, *s = t->s;
    float *y2 = y + t->half;
    int64_t n = t->n;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float a = x[j], b = x2[j];
        y[j] = a * c[j] - b * s[j];
        y2[j] = a * s[j] + b * c[j];
    }
}

static void rotate(const rope_turn *t, const float *x, float *y)
{
    if (t->sx == 1 && t->sy == 1) {
        rotate_run(t, x, y);
        return;
    }
    for (int64_t j = 0; j < t->n; j++) {
        float a = x[j * t->sx], b = x[(j + t->half) * t->sx];
        y[j * t->sy] = a * t->c[j] - b * t->s[j];
        y[(j + t->half) * t->sy] = a * t->s[j] + b * t->c[j];
    }
}

/* The pairs at elements x_at and y_at of a 16-bit tensor, by way of buffers. */
static void rotate_halves(const rope_job *job, const rope_turn *t, int64_t x_at, int64_t y_at)
{
    float x[2 * PAIRS], y[2 * PAIRS];
    rope_turn packed = *t;
    packed.half = PAIRS;
    for (int64_t k = 0; k < 2; k++) {
        dtp_widen(job->dtype, t->n, (const uint16_t *)job->x + x_at + k * t->half * t->sx, t->sx,
                  x + k * PAIRS);
    }
    rotate_run(&packed, x, y);
    for (int64_t k = 0; k < 2; k++) {
        dtp_narrow(job->dtype, t->n, y + k * PAIRS, (uint16_t *)job->y + y_at + k * t->half * t->sy,
                   t->sy);
    }
}

static void one_position(const rope_job *job, int64_t position, int64_t pair, const double *rates,
                         rope_turn *t)
{
    int64_t at = dtp_sequence_position(&job->of.order, job->of.first + position) + job->of.offset;
    for (int64_t j = 0; j < t->n; j++) {
        double angle = (double)at * rates[j];
        t->c[j] = (float)(job->of.amplitude * cos(angle));
        t->s[j] = (float)(job->of.amplitude * job->of.sign * sin(angle));
    }
    int64_t x_at = position * job->of.position[0] + pair * job->of.feature[0];
    int64_t y_at = position * job->of.position[1] + pair * job->of.feature[1];
    for (int64_t r = 0, n = dtp_nest_total(&job->rest); r < n; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->rest, r, off);
        if (dtp_dtype_is_half(job->dtype)) {
            rotate_halves(job, t, off[0] + x_at, off[1] + y_at);
        } else {
            rotate(t, (const float *)job->x + off[0] + x_at, (float *)job->y + off[1] + y_at);
        }
    }
}

static dtp_status rope_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    rope_job job = {.x = x->data, .y = args->out[0].data, .dtype = x->local.dtype};
    dtp_bind_rope(args, &job.of, &job.rest);
    int32_t team = dtp_cpu_team(args->threads, dtp_ttype_elems(&x->local));
    for (int64_t pair = 0; pair < job.of.half; pair += PAIRS) {
        double rates[PAIRS];
        int64_t pairs = job.of.half - pair < PAIRS ? job.of.half - pair : PAIRS;
        for (int64_t j = 0; j < pairs; j++) {
            rates[j] = dtp_rope_rate(&job.of.rates, pair + j);
        }
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
        for (int64_t i = 0; i < job.of.positions; i++) {
            rope_turn t = {pairs, job.of.half, job.of.feature[0], job.of.feature[1], {0}, {0}};
            one_position(&job, i, pair, rates, &t);
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_rope[] = {{"rope", rope_kernel, NULL, DTP_FLOATS}, {.op = NULL}};
