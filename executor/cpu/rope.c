/* rope: rotates feature pairs (j, j + f/2). Angles are made in double, once per position and pair.
 */
#include <math.h>

#include "core/graph/ops/sequence.h"
#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"

enum { PAIRS = 128 }; /* pairs handled at once */

typedef struct rope_job {
    dtp_nest rest;                   /* dims other than position and feature; views: x, y */
    int64_t position[2], feature[2]; /* element strides in x and y */
    int64_t half;                    /* pairs of the whole feature dim */
    int64_t first, offset;           /* global place of local position 0; added to every position */
    dtp_sequence order;
    double base, sign;
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
    int64_t at = dtp_sequence_position(&job->order, job->first + position) + job->offset;
    for (int64_t j = 0; j < t->n; j++) {
        double angle = (double)at * rates[j];
        t->c[j] = (float)cos(angle);
        t->s[j] = (float)(job->sign * sin(angle));
    }
    int64_t x_at = position * job->position[0] + pair * job->feature[0];
    int64_t y_at = position * job->position[1] + pair * job->feature[1];
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

static void make_job(rope_job *job, const dtp_kernel_args *args, dtp_dim_id position,
                     dtp_dim_id feature)
{
    const dtp_view *views[] = {&args->in[0], &args->out[0]}, *x = views[0];
    dtp_tdim rest[DTP_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < x->local.rank; i++) {
        dtp_dim_id id = x->local.dims[i].id;
        if (id != position && id != feature) {
            rest[n++] = x->local.dims[i];
        }
    }
    dtp_nest_make(&job->rest, n, rest, 2, views);
    for (int32_t v = 0; v < 2; v++) {
        job->position[v] = dtp_view_stride(views[v], position);
        job->feature[v] = dtp_view_stride(views[v], feature);
    }
    job->half = dtp_ttype_size(&x->local, feature) / 2;
    job->first = dtp_view_offset(x, position);
    job->offset = dtp_call_int(args->call, "offset");
    job->order = dtp_sequence_of(args->call, dtp_view_global(x, position));
    job->base = dtp_call_float(args->call, "base");
    job->sign = dtp_call_int(args->call, "inverse") != 0 ? -1.0 : 1.0;
    job->dtype = x->local.dtype;
    job->x = x->data;
    job->y = args->out[0].data;
}

static dtp_status rope_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    dtp_dim_id position = dtp_call_dim(args->call, "position");
    int64_t n = dtp_ttype_size(&x->local, position);
    rope_job job;
    make_job(&job, args, position, dtp_call_dim(args->call, "feature"));
    int32_t team = dtp_cpu_team(args->threads, dtp_ttype_elems(&x->local));
    for (int64_t pair = 0; pair < job.half; pair += PAIRS) {
        double rates[PAIRS];
        int64_t pairs = job.half - pair < PAIRS ? job.half - pair : PAIRS;
        for (int64_t j = 0; j < pairs; j++) {
            rates[j] = pow(job.base, -(double)(pair + j) / (double)job.half);
        }
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
        for (int64_t i = 0; i < n; i++) {
            rope_turn t = {pairs, job.half, job.feature[0], job.feature[1], {0}, {0}};
            one_position(&job, i, pair, rates, &t);
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_rope[] = {{"rope", rope_kernel, NULL, DTP_CPU_FLOATS}, {.op = NULL}};
