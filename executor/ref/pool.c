/* Reference kernels of pool and pool_grad. */
#include <math.h>

#include "core/graph/ops/pool.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* The loop at tap `k` of the window whose place is that of `y`; false outside of x. */
static bool to_tap(const dtp_pool_form *f, const dtp_ref_loop *y, int64_t k, dtp_ref_loop *x)
{
    bool inside = true;
    *x = *y;
    for (int32_t i = f->n - 1; i >= 0; i--) {
        const dtp_conv_axis *a = &f->axis[i];
        const int64_t at =
            dtp_ref__coord(y, a->spatial) * a->stride - a->before + k % a->size * a->dilation;
        k /= a->size;
        inside = inside && at >= 0 && at < a->in;
        dtp_ref__put(x, a->spatial, at);
    }
    return inside;
}

/* What a window has inside of x: the number of elements, their sum, the tap of the maximum, of
 * equals the first, and a NaN before all (-1: none). */
typedef struct found {
    int64_t n, most;
    double sum, max;
} found;

static int64_t taps_of(const dtp_pool_form *f)
{
    int64_t n = 1;
    for (int32_t i = 0; i < f->n; i++) {
        n *= f->axis[i].size;
    }
    return n;
}

static found look(const dtp_pool_form *f, const dtp_view *x, const dtp_ref_loop *y)
{
    found w = {.most = -1, .max = -(double)INFINITY};
    dtp_ref_loop at;
    for (int64_t k = 0; k < taps_of(f); k++) {
        if (!to_tap(f, y, k, &at)) {
            continue;
        }
        const double value = dtp_ref__get(x, &at);
        w.n++;
        w.sum += value;
        if (w.most < 0 || value > w.max || (isnan(value) && !isnan(w.max))) {
            w.most = k;
            w.max = value;
        }
    }
    return w;
}

static double divisor(const dtp_pool_form *f, const found *w)
{
    return f->inside ? (double)w->n : (double)taps_of(f);
}

static dtp_status run_pool(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_pool_form f = dtp_pool_form_here(args);
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const found w = look(&f, &args->in[0], &l);
        dtp_ref__set(&args->out[0], &l, f.max ? w.max : w.sum / divisor(&f, &w));
    }
    return DTP_OK;
}

/* Every element collects from the windows that it is in. */
static dtp_status run_pool_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_pool_form f = dtp_pool_form_here(args);
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double sum = 0.0;
        for (int64_t k = 0; k < taps_of(&f); k++) {
            dtp_ref_loop y = l;
            bool meets = true;
            int64_t rest = k;
            for (int32_t i = f.n - 1; i >= 0; i--) {
                const dtp_conv_axis *a = &f.axis[i];
                const int64_t from = dtp_ref__coord(&l, a->spatial) + f.first[i] + a->before -
                                     rest % a->size * a->dilation;
                rest /= a->size;
                meets = meets && from >= 0 && from % a->stride == 0 && from / a->stride < a->out;
                dtp_ref__put(&y, a->spatial, from / a->stride);
            }
            const found w = meets ? look(&f, &args->in[0], &y) : (found){.most = -1};
            if (meets && (!f.max || w.most == k)) {
                const double dy = dtp_ref__get(&args->in[1], &y);
                sum += f.max ? dy : dy / divisor(&f, &w);
            }
        }
        dtp_ref__set(&args->out[0], &l, sum);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__pool[] = {
    {.op = "pool", .run = run_pool}, {.op = "pool_grad", .run = run_pool_grad}, {.op = NULL}};
