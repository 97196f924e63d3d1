/* pool and pool_grad: threads share the rows. Places that are neighbours along the last axis are
 * looked at together, tap by tap. */
#include <math.h>
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/backend.h"
#include "executor/device/bound/pool.h"

enum { RUN = 256 }; /* places, at most */

/* n of them from `o` on along the last axis. */
typedef struct run {
    int64_t o[DTP_CONV_AXES], n;
} run;

/* What the windows of a run have inside of x: the maximum (of equals the first, a NaN before all)
 * and its tap, -1: nothing; or the sum. */
typedef struct found {
    int64_t tap[RUN];
    float max[RUN], value[RUN];
    double sum[RUN];
} found;

/* n elements, `step` apart, as f32; and back. */
static void load(dtp_dtype dtype, int64_t n, const void *from, int64_t at, int64_t step, float *to)
{
    if (dtype != DTP_F32) {
        dtp_widen(dtype, n, (const uint16_t *)from + at, step, to);
        return;
    }
    const float *x = (const float *)from + at;
    for (int64_t j = 0; j < n; j++) {
        to[j] = x[j * step];
    }
}

static void store(dtp_dtype dtype, int64_t n, const float *from, void *to, int64_t at, int64_t step)
{
    if (dtype != DTP_F32) {
        dtp_narrow(dtype, n, from, (uint16_t *)to + at, step);
        return;
    }
    float *y = (float *)to + at;
    for (int64_t j = 0; j < n; j++) {
        y[j * step] = from[j];
    }
}

DTP_CPU_CLONES static void take_larger(int64_t n, const float *value, int64_t number, float *max,
                                       int64_t *tap)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const bool takes =
            tap[j] < 0 || value[j] > max[j] || (value[j] != value[j] && max[j] == max[j]); /* NaN */
        max[j] = takes ? value[j] : max[j];
        tap[j] = takes ? number : tap[j];
    }
}

/* Taps [from, to) of an axis that lie within x, for a place of y. */
static void taps_within(const dtp_conv_axis *a, int64_t place, int64_t range[2])
{
    const int64_t first = place * a->stride - a->before;
    const int64_t left = a->in - first; /* up to the end of x */
    const int64_t from = first < 0 ? (a->dilation - 1 - first) / a->dilation : 0;
    const int64_t to = left <= 0 ? 0 : (left - 1) / a->dilation + 1;
    range[1] = to < a->size ? to : a->size;
    range[0] = from < range[1] ? from : range[1];
}

/* A tap of the windows of a run: the places [from, to) that have it within x, and where the first
 * of these has it. */
typedef struct tap_of_run {
    int64_t number, from, to, at[DTP_CONV_AXES];
} tap_of_run;

/* The tap after t, which begins with number -1; false: there is none. */
static bool next_tap(const dtp_bound_pool *p, const run *r, tap_of_run *t)
{
    const dtp_conv_axis *last = &p->axis[2];
    bool within = false;
    while (!within && ++t->number < p->taps) {
        const int64_t tap[] = {t->number / last->size / p->axis[1].size,
                               t->number / last->size % p->axis[1].size, t->number % last->size};
        within = true;
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            const dtp_conv_axis *a = &p->axis[i];
            t->at[i] = r->o[i] * a->stride - a->before + tap[i] * a->dilation;
            within = within && (i == 2 || (t->at[i] >= 0 && t->at[i] < a->in));
        }
        t->from = t->at[2] < 0 ? (last->stride - 1 - t->at[2]) / last->stride : 0;
        const int64_t end = t->at[2] < last->in ? (last->in - 1 - t->at[2]) / last->stride + 1 : 0;
        t->to = end < r->n ? end : r->n;
        t->at[2] += t->from * last->stride;
        within = within && t->from < t->to;
    }
    return within;
}

static void look(const dtp_bound_pool *p, const run *r, dtp_dtype dtype, const void *x, int64_t row,
                 found *f)
{
    for (int64_t j = 0; j < r->n; j++) {
        f->tap[j] = -1;
        f->max[j] = -INFINITY;
        f->sum[j] = 0.0;
    }
    for (tap_of_run t = {.number = -1}; next_tap(p, r, &t);) {
        int64_t at = row;
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            at += t.at[i] * p->step[DTP_POOL_X][i];
        }
        load(dtype, t.to - t.from, x, at, p->axis[2].stride * p->step[DTP_POOL_X][2], f->value);
        if (p->max) {
            take_larger(t.to - t.from, f->value, t.number, f->max + t.from, f->tap + t.from);
        }
        for (int64_t j = t.from; j < t.to && !p->max; j++) {
            f->sum[j] += (double)f->value[j - t.from];
        }
    }
}

/* By what place j of a run is divided. */
static double divisor(const dtp_bound_pool *p, const run *r, int64_t j)
{
    double n = 1.0;
    for (int32_t i = 0; i < DTP_CONV_AXES && p->inside; i++) {
        int64_t range[2];
        taps_within(&p->axis[i], r->o[i] + (i == 2 ? j : 0), range);
        n *= (double)(range[1] - range[0]);
    }
    return p->inside ? n : (double)p->taps;
}

/* The run after r, which begins with n = 0; false: there is none. Offsets of its first place. */
static bool next_run(const dtp_bound_pool *p, run *r)
{
    r->o[2] += r->n;
    for (int32_t i = 2; i > 0 && r->o[i] == p->axis[i].out; i--) {
        r->o[i] = 0;
        r->o[i - 1]++;
    }
    const int64_t left = p->axis[2].out - r->o[2];
    r->n = left < RUN ? left : RUN;
    return p->places > 0 && r->o[0] < p->axis[0].out;
}

static int64_t place_in(const dtp_bound_pool *p, int32_t view, const run *r)
{
    return r->o[0] * p->step[view][0] + r->o[1] * p->step[view][1] + r->o[2] * p->step[view][2];
}

static void pool_row(const dtp_kernel_args *args, const dtp_bound_pool *p, int64_t row)
{
    int64_t off[DTP_NEST_VIEWS];
    found f;
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    dtp_nest_elem(&p->rows, row, off);
    for (run r = {.n = 0}; next_run(p, &r);) {
        look(p, &r, x->local.dtype, x->data, off[DTP_POOL_X], &f);
        for (int64_t j = 0; j < r.n && !p->max; j++) {
            f.max[j] = (float)(f.sum[j] / divisor(p, &r, j));
        }
        store(y->local.dtype, r.n, f.max, y->data,
              off[DTP_POOL_OUT] + place_in(p, DTP_POOL_OUT, &r), p->step[DTP_POOL_OUT][2]);
    }
}

/* Adds what the places of a run give to a dense row of dx. */
static void add_run(const dtp_bound_pool *p, const run *r, const found *f, const float *dy,
                    float *dx)
{
    const dtp_conv_axis *a = p->axis;
    for (int64_t j = 0; j < r->n && p->max; j++) {
        const int64_t k = f->tap[j] < 0 ? 0 : f->tap[j];
        const int64_t tap[] = {k / a[2].size / a[1].size, k / a[2].size % a[1].size, k % a[2].size};
        int64_t at = 0;
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            const int64_t o = r->o[i] + (i == 2 ? j : 0);
            at = at * a[i].in + o * a[i].stride - a[i].before + tap[i] * a[i].dilation;
        }
        if (f->tap[j] >= 0) {
            dx[at] += dy[j];
        }
    }
    for (tap_of_run t = {.number = -1}; !p->max && next_tap(p, r, &t);) {
        float *to = dx + (t.at[0] * a[1].in + t.at[1]) * a[2].in + t.at[2];
        for (int64_t j = t.from; j < t.to; j++, to += a[2].stride) {
            *to += dy[j];
        }
    }
}

/* A row is summed in f32 in the scratch memory of the thread. */
static void pool_grad_row(const dtp_kernel_args *args, const dtp_bound_pool *p, int64_t row,
                          float *sum)
{
    int64_t off[DTP_NEST_VIEWS];
    float each[RUN];
    found f;
    const dtp_view *x = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
    dtp_nest_elem(&p->rows, row, off);
    memset(sum, 0, (size_t)p->elems * sizeof *sum);
    for (run r = {.n = 0}; next_run(p, &r);) {
        if (p->max) {
            look(p, &r, x->local.dtype, x->data, off[DTP_POOL_X], &f);
        }
        load(dy->local.dtype, r.n, dy->data, off[DTP_POOL_DY] + place_in(p, DTP_POOL_DY, &r),
             p->step[DTP_POOL_DY][2], each);
        for (int64_t j = 0; j < r.n && !p->max; j++) {
            each[j] = (float)((double)each[j] / divisor(p, &r, j));
        }
        add_run(p, &r, &f, each, sum);
    }
    for (int64_t i = 0; i < p->kept[0] * p->kept[1] && p->results > 0; i++) {
        const int64_t e[] = {i / p->kept[1], i % p->kept[1]};
        const int64_t *to = p->step[DTP_POOL_OUT];
        const int64_t from =
            ((e[0] + p->first[0]) * p->axis[1].in + e[1] + p->first[1]) * p->axis[2].in +
            p->first[2];
        store(dx->local.dtype, p->kept[2], sum + from, dx->data,
              off[DTP_POOL_OUT] + e[0] * to[0] + e[1] * to[1], to[2]);
    }
}

static dtp_status pool_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_bound_pool *p = args->state;
    (void)err;
    if (dtp_ttype_elems(&args->out[0].local) == 0) {
        return DTP_OK;
    }
    const int64_t rows = dtp_nest_total(&p->rows);
    const int32_t team = dtp_cpu_team(args->threads, rows * p->places * p->taps);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t row = 0; row < rows; row++) {
        int64_t stride;
        float *scratch = p->grad ? dtp_cpu_scratch(args->backend, &stride) : NULL;
        if (p->grad) {
            pool_grad_row(args, p, row, scratch + dtp_cpu_thread() * stride);
        } else {
            pool_row(args, p, row);
        }
    }
    return DTP_OK;
}

static dtp_status pool_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    dtp_bound_pool *p;
    DTP_STATE(arena, state, p, err);
    dtp_bind_pool(args, p);
    return p->grad ? dtp_cpu_reserve(args->backend, p->elems, err) : DTP_OK;
}

const dtp_kernel dtp_cpu_pool[] = {{"pool", pool_kernel, pool_bind, DTP_FLOATS},
                                   {"pool_grad", pool_kernel, pool_bind, DTP_FLOATS},
                                   {.op = NULL}};
