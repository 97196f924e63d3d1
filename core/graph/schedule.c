/* Learning rate schedules: their checks, and the factor of a step. */
#include "dtp/schedule.h"

#include "core/base/status.h"

#include <math.h>

static dtp_status check_pieces(const dtp_schedule *s, dtp_err *err)
{
    if (s->n < 1 || s->n > DTP_SCHEDULE_PIECES) {
        return DTP_FAIL(err, DTP_INVALID, "schedule: %d pieces, expected 1 to %d", s->n,
                        DTP_SCHEDULE_PIECES);
    }
    for (int32_t i = 0; i < s->n; i++) {
        const int64_t least = i > 0 ? s->at[i - 1] + 1 : s->warmup;
        if (s->at[i] < least) {
            return DTP_FAIL(err, DTP_INVALID, "schedule: piece %d begins at step %lld, before %lld",
                            i, (long long)s->at[i], (long long)least);
        }
        if (!(s->scale[i] >= 0.0 && isfinite(s->scale[i]))) {
            return DTP_FAIL(err, DTP_INVALID, "schedule: piece %d has the scale %g", i,
                            s->scale[i]);
        }
    }
    return DTP_OK;
}

dtp_status dtp_schedule_check(const dtp_schedule *s, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, s));
    const bool falls = s->kind == DTP_SCHEDULE_LINEAR || s->kind == DTP_SCHEDULE_COSINE;
    if (s->kind < DTP_SCHEDULE_CONSTANT || s->kind > DTP_SCHEDULE_PIECEWISE) {
        return DTP_FAIL(err, DTP_INVALID, "schedule: there is no kind %d", s->kind);
    }
    if (s->warmup < (s->kind == DTP_SCHEDULE_INVERSE_SQRT ? 1 : 0)) {
        return DTP_FAIL(err, DTP_INVALID, "schedule: a warm-up of %lld steps",
                        (long long)s->warmup);
    }
    if (falls && s->steps <= s->warmup) {
        return DTP_FAIL(err, DTP_INVALID, "schedule: %lld steps with a warm-up of %lld",
                        (long long)s->steps, (long long)s->warmup);
    }
    if (falls && !(s->last >= 0.0 && isfinite(s->last))) {
        return DTP_FAIL(err, DTP_INVALID, "schedule: the last factor is %g", s->last);
    }
    return s->kind == DTP_SCHEDULE_PIECEWISE ? check_pieces(s, err) : DTP_OK;
}

/* From 1 at the end of the warm-up to `last`; `down` goes from 1 to 0. */
static double fall(const dtp_schedule *s, double down)
{
    return s->last + (1.0 - s->last) * down;
}

double dtp_schedule_at(const dtp_schedule *s, int64_t step)
{
    static const double pi = 3.14159265358979323846;
    if (s == NULL) {
        return 1.0;
    }
    if (step < s->warmup) {
        return (double)(step + 1) / (double)s->warmup;
    }
    const double whole = (double)(s->steps - s->warmup);
    const double part = whole > 0.0 ? fmin((double)(step - s->warmup) / whole, 1.0) : 1.0;
    double scale = 1.0;
    switch (s->kind) {
    case DTP_SCHEDULE_LINEAR:
        return fall(s, 1.0 - part);
    case DTP_SCHEDULE_COSINE:
        return fall(s, 0.5 * (1.0 + cos(pi * part)));
    case DTP_SCHEDULE_INVERSE_SQRT:
        return sqrt((double)s->warmup / (double)(step + 1));
    default:
        for (int32_t i = 0; i < s->n && s->kind == DTP_SCHEDULE_PIECEWISE; i++) {
            scale = step >= s->at[i] ? s->scale[i] : scale;
        }
        return scale;
    }
}
