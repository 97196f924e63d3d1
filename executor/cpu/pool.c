/* pool and pool_grad: threads share the rows. */
#include <math.h>
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/device/backend.h"
#include "executor/device/bound/pool.h"

/* Taps [from, to) of an axis that lie within x, for a place of y. */
static void taps_within(const dtp_conv_axis *a, int64_t place, int64_t range[2], int64_t *first)
{
    *first = place * a->stride - a->before;
    const int64_t left = a->in - *first; /* up to the end of x */
    const int64_t from = *first < 0 ? (a->dilation - 1 - *first) / a->dilation : 0;
    const int64_t to = left <= 0 ? 0 : (left - 1) / a->dilation + 1;
    range[1] = to < a->size ? to : a->size;
    range[0] = from < range[1] ? from : range[1];
}

static float get(dtp_dtype dtype, const void *data, int64_t at)
{
    return dtype == DTP_F32 ? ((const float *)data)[at] : dtp_float_at(dtype, data, at);
}

/* What a window has inside of x: elements, their sum, the maximum (of equals the first, a NaN
 * before all) and its tap. */
typedef struct found {
    int64_t n, tap[DTP_CONV_AXES];
    float max;
    double sum;
} found;

/* The taps of the window at a place within x: ranges, and the offset of tap 0. */
typedef struct window {
    int64_t range[DTP_CONV_AXES][2], step[DTP_CONV_AXES], base;
} window;

static window window_at(const dtp_bound_pool *p, int32_t view, const int64_t o[DTP_CONV_AXES])
{
    window w = {.base = 0};
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        int64_t first;
        taps_within(&p->axis[i], o[i], w.range[i], &first);
        w.step[i] = p->axis[i].dilation * p->step[view][i];
        w.base += first * p->step[view][i];
    }
    return w;
}

static found look(const window *w, dtp_dtype dtype, const void *x, int64_t row)
{
    found f = {.max = -INFINITY};
    for (int64_t a = w->range[0][0]; a < w->range[0][1]; a++) {
        for (int64_t b = w->range[1][0]; b < w->range[1][1]; b++) {
            int64_t at =
                row + w->base + a * w->step[0] + b * w->step[1] + w->range[2][0] * w->step[2];
            for (int64_t c = w->range[2][0]; c < w->range[2][1]; c++, at += w->step[2], f.n++) {
                const float value = get(dtype, x, at);
                f.sum += (double)value;
                if (f.n == 0 || value > f.max || (isnan(value) && !isnan(f.max))) {
                    f.tap[0] = a;
                    f.tap[1] = b;
                    f.tap[2] = c;
                    f.max = value;
                }
            }
        }
    }
    return f;
}

static double divisor(const dtp_bound_pool *p, const window *w)
{
    double n = 1.0;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        n *= (double)(w->range[i][1] - w->range[i][0]);
    }
    return p->inside ? n : (double)p->taps;
}

static void place_of(const dtp_bound_pool *p, int64_t place, int64_t o[DTP_CONV_AXES])
{
    for (int32_t i = DTP_CONV_AXES - 1; i >= 0; i--) {
        o[i] = place % p->axis[i].out;
        place /= p->axis[i].out;
    }
}

static void pool_row(const dtp_kernel_args *args, const dtp_bound_pool *p, int64_t row)
{
    int64_t off[DTP_NEST_VIEWS], o[DTP_CONV_AXES];
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    dtp_nest_elem(&p->rows, row, off);
    for (int64_t place = 0; place < p->places; place++) {
        place_of(p, place, o);
        const window w = window_at(p, DTP_POOL_X, o);
        const found f = look(&w, x->local.dtype, x->data, off[DTP_POOL_X]);
        int64_t at = off[DTP_POOL_OUT];
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            at += o[i] * p->step[DTP_POOL_OUT][i];
        }
        dtp_float_put(y->local.dtype, y->data, at,
                      p->max ? f.max : (float)(f.sum / divisor(p, &w)));
    }
}

/* Where a tap of the window at a place is in a dense row of x. */
static int64_t in_row(const dtp_bound_pool *p, const int64_t o[DTP_CONV_AXES],
                      const int64_t tap[DTP_CONV_AXES])
{
    int64_t at = 0;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const dtp_conv_axis *a = &p->axis[i];
        at = at * a->in + o[i] * a->stride - a->before + tap[i] * a->dilation;
    }
    return at;
}

/* Adds what one place of y gives to a dense row of dx. */
static void add_place(const dtp_bound_pool *p, const int64_t o[DTP_CONV_AXES], const void *x,
                      dtp_dtype dtype, float dy, float *dx)
{
    const window w = window_at(p, DTP_POOL_X, o);
    if (p->max) {
        const found f = look(&w, dtype, x, 0);
        dx[f.n > 0 ? in_row(p, o, f.tap) : 0] += f.n > 0 ? dy : 0.0f;
        return;
    }
    const float each = (float)((double)dy / divisor(p, &w));
    for (int64_t a = w.range[0][0]; a < w.range[0][1]; a++) {
        for (int64_t b = w.range[1][0]; b < w.range[1][1]; b++) {
            for (int64_t c = w.range[2][0]; c < w.range[2][1]; c++) {
                const int64_t tap[] = {a, b, c};
                dx[in_row(p, o, tap)] += each;
            }
        }
    }
}

/* A row is summed in f32 in the scratch memory of the thread. */
static void pool_grad_row(const dtp_kernel_args *args, const dtp_bound_pool *p, int64_t row,
                          float *sum)
{
    int64_t off[DTP_NEST_VIEWS], o[DTP_CONV_AXES];
    const dtp_view *x = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
    const int64_t step[] = {p->axis[1].in * p->axis[2].in, p->axis[2].in, 1};
    const int64_t inner = p->kept[1] * p->kept[2];
    const int64_t bytes = dtp_dtype_bytes(x->local.dtype);
    dtp_nest_elem(&p->rows, row, off);
    const char *of_x = (const char *)x->data + off[DTP_POOL_X] * bytes;
    memset(sum, 0, (size_t)p->elems * sizeof *sum);
    for (int64_t place = 0; place < p->places; place++) {
        place_of(p, place, o);
        int64_t at = off[DTP_POOL_DY];
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            at += o[i] * p->step[DTP_POOL_DY][i];
        }
        add_place(p, o, of_x, x->local.dtype, get(dy->local.dtype, dy->data, at), sum);
    }
    for (int64_t i = 0; i < p->results; i++) {
        const int64_t e[] = {i / inner, i / p->kept[2] % p->kept[1], i % p->kept[2]};
        int64_t at = off[DTP_POOL_OUT], from = 0;
        for (int32_t k = 0; k < DTP_CONV_AXES; k++) {
            at += e[k] * p->step[DTP_POOL_OUT][k];
            from += (e[k] + p->first[k]) * step[k];
        }
        dtp_float_put(dx->local.dtype, dx->data, at, sum[from]);
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
