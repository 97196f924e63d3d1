/* Elements of the ranks' tensors against those of one device.
 *
 * An update is compared given its operands: both sides start from the same parameter p, state m, v
 * and gradient g, so only the rounding of one evaluation may differ. With u the unit roundoff, D
 * the largest change of an element of the tensor in this step and b the new value:
 *
 *   sgd       p' = p - lr (g + w p)
 *   momentum  m' = c m + g + w p, p' = p - lr m'
 *   adam(w)   m' = c m + (1 - c) g, v' = d v + (1 - d) g g,
 *             p' = p - s m' / (r sqrt(v') + eps) - lr w p
 *
 * Each is old + change. (1) The sums that make `new` from `old` round at most twice and scale old
 * by a rounded constant at most once, each time by u max(|old|, |new|) and |old| <= |new| + D: two
 * evaluations differ by at most 2 (3 u) (|b| + D); 8 u |b| is allowed for it. (2) The change itself
 * takes at most 12 roundings, each relative to one of its terms; two evaluations differ by
 * 24 u max |term|, which is 1.4e-6 D in f32 where no terms cancel. So what lies beyond 8 u |b| is
 * measured against D, and 2e-5 leaves a factor of 14 for cancellation: it would have to be that
 * strong in every element of a tensor at once. Whatever is wrong by a part f of the change is found
 * from f D > 2e-5 D + 8 u |b| on, with b the smallest affected element.
 *
 * Below the smallest normal number rounding is absolute, so |b| counts as at least that. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "executor/device/convert.h"
#include "executor/verify/verify_internal.h"

double dtp_verify__unit(dtp_dtype dtype)
{
    switch (dtype) {
    case DTP_F32:
        return (double)FLT_EPSILON / 2;
    case DTP_F64:
        return DBL_EPSILON / 2;
    case DTP_BF16:
        return ldexp(1.0, -8);
    case DTP_F16:
        return ldexp(1.0, -11);
    default:
        return 0.0;
    }
}

typedef struct comparison {
    dtp_dtype dtype;
    int64_t width; /* bytes of an element */
    double unit, least;
    double factor; /* of what the ranks have */
    const dtp_verify__want *want;
    dtp_verify__error *out;
} comparison;

/* dtp_element, without a call for the type that nearly all tensors have. */
static double element(dtp_dtype dtype, const void *data, int64_t i)
{
    return dtype == DTP_F32 ? (double)((const float *)data)[i] : dtp_element(dtype, data, i);
}

static void compare_run(void *user, int64_t in_tensor, const void *data, int64_t n)
{
    const comparison *c = user;
    const dtp_verify__want *w = c->want;
    const int64_t at = in_tensor * c->width;
    const size_t bytes = (size_t)(n * c->width);
    if (c->factor != 1.0 || memcmp(data, (const char *)w->value + at, bytes) != 0) {
        dtp_verify__error *out = c->out;
        const double part = c->want->previous != NULL ? 8 * c->unit : 0.0;
        for (int64_t i = 0; i < n; i++) {
            const double a = c->factor * element(c->dtype, data, i),
                         b = element(c->dtype, (const char *)w->value + at, i);
            const bool same = a == b || (isnan(a) && isnan(b));
            const double diff = same ? 0.0 : fabs(a - b), size = same ? 0.0 : fabs(b);
            const double beyond = diff - part * (size > c->least ? size : c->least);
            if (!isfinite(diff)) {
                out->broken = true;
                continue;
            }
            out->abs_err = diff > out->abs_err ? diff : out->abs_err;
            out->beyond = beyond > out->beyond ? beyond : out->beyond;
        }
    }
    if (w->have != NULL) {
        memcpy((char *)w->have + at, data, bytes);
    }
}

/* What can be said without the ranks. */
static void measure(const comparison *c, int64_t n)
{
    const dtp_verify__want *w = c->want;
    dtp_verify__error *out = c->out;
    double scale = out->scale, largest = 0.0;
    bool nan = false;
    for (int64_t i = 0; i < n; i++) {
        const double value = element(c->dtype, w->value, i);
        const double old = w->previous != NULL ? element(c->dtype, w->previous, i) : 0.0;
        const double size = fabs(value - old);
        nan = nan || isnan(value);
        scale = isfinite(size) && size > scale ? size : scale;
        largest = isnan(size) || size > largest ? size : largest;
    }
    out->scale = scale;
    out->largest = largest;
    out->nan = nan && !out->broken;
}

dtp_status dtp_verify__compare(dtp_session *s, dtp_tensor_id t, const dtp_verify__want *want,
                               dtp_verify__error *out, dtp_err *err)
{
    const dtp_ttype *type = &s->program->graph->tensors[t].type;
    comparison c = {.dtype = type->dtype,
                    .width = dtp_dtype_bytes(type->dtype),
                    .unit = dtp_verify__unit(type->dtype),
                    .least = type->dtype == DTP_F64   ? DBL_MIN
                             : type->dtype == DTP_F16 ? ldexp(1.0, -14)
                                                      : (double)FLT_MIN,
                    .want = want,
                    .out = out};
    *out = (dtp_verify__error){0};
    DTP_TRY(dtp_session__gradient_factor(s, t, &c.factor, err));
    DTP_TRY(dtp_session__collect(s, t, true, NULL, compare_run, &c, err));
    if (s->comm->rank == 0) {
        measure(&c, dtp_ttype_elems(type));
    }
    return DTP_OK;
}
