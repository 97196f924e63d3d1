/* Constants of a network level from measured collectives. */
#include <math.h>
#include <string.h>

#include "cost_models/machine/coll.h"

enum { START, RANK, RAMP, SHARE, IN_SWITCH, N_CONSTANTS, MAX_ROUNDS = 400 };

/* Where a search begins and ends, and how many times a constant it goes at first. */
static const double FIRST_STEP = 2.0, LAST_STEP = 1.002;
/* A constant for sums in the switch is kept when it makes the error this many times as large. */
static const double SWITCH_GAIN = 0.85;
/* What a further rank adds to the start where groups of one size were measured. */
static const double RANK_OF_START = 0.2;
static const struct {
    double first, least, most;
} CONSTANTS[N_CONSTANTS] = {[START] = {3e-6, 1e-7, 10.0},
                            [RANK] = {1e-6, 1e-8, 10.0},
                            [RAMP] = {1e6, 1.0, 1e12},
                            [SHARE] = {0.9, 0.001, 1.0},
                            [IN_SWITCH] = {1.3, 1.0, DTP_NO_SWITCH}};

typedef struct level_fit {
    dtp_level *levels;
    int32_t level, n;
    const dtp_coll_sample *samples;
    dtp_coll_kind kinds[2]; /* whose samples count, and whose constants are looked for: the first */
    bool one_size;          /* groups have one size: what a rank adds is not told from the start */
} level_fit;

static bool counts(const level_fit *f, const dtp_coll_sample *s)
{
    return s->group.outer == f->level &&
           (s->call.kind == f->kinds[0] || s->call.kind == f->kinds[1]);
}

/* Mean of |log(price / time)|, or of |price / time - 1|; 0 without samples. */
static double error_of(const level_fit *f, bool relative)
{
    double sum = 0.0;
    int32_t n = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const dtp_coll_sample *s = &f->samples[i];
        if (counts(f, s)) {
            const dtp_coll_time t = dtp_coll_time_of(f->levels, &s->group, &s->call);
            const double ratio = (t.start_s + t.transfer_s) / s->time_s;
            sum += fabs(relative ? ratio - 1.0 : log(ratio));
            n++;
        }
    }
    return n > 0 ? sum / n : 0.0;
}

static double try_constants(level_fit *f, const double x[N_CONSTANTS])
{
    const double rank_s = f->one_size ? RANK_OF_START * x[START] : x[RANK];
    f->levels[f->level].rates[f->kinds[0]] =
        (dtp_coll_rate){x[START], rank_s, x[RAMP], x[SHARE], x[IN_SWITCH]};
    return error_of(f, false);
}

/* Multiplies and divides one constant after the other, by less where that gains nothing. Leaves the
 * best constants in the level and returns their error. */
static double descend(level_fit *f, double x[N_CONSTANTS], int32_t n_constants)
{
    double step[N_CONSTANTS], best = try_constants(f, x), widest = FIRST_STEP;
    for (int32_t i = 0; i < n_constants; i++) {
        step[i] = FIRST_STEP;
    }
    for (int32_t round = 0; widest > LAST_STEP && round < MAX_ROUNDS; round++) {
        widest = 1.0;
        for (int32_t i = 0; i < n_constants; i++) {
            bool better = false;
            for (int32_t down = 0; down <= 1; down++) {
                const double before = x[i];
                x[i] *= down ? 1.0 / step[i] : step[i];
                x[i] = fmin(fmax(x[i], CONSTANTS[i].least), CONSTANTS[i].most);
                const double error = try_constants(f, x);
                better = better || error < best - 1e-9;
                x[i] = error < best - 1e-9 ? x[i] : before;
                best = error < best - 1e-9 ? error : best;
            }
            step[i] = better ? step[i] : sqrt(step[i]);
            widest = fmax(widest, step[i]);
        }
    }
    return try_constants(f, x);
}

static void fit_kinds(level_fit *f)
{
    int32_t least = 0, most = 0;
    double x[N_CONSTANTS], with[N_CONSTANTS];
    for (int32_t i = 0; i < f->n; i++) {
        const int32_t ranks = f->samples[i].group.ranks;
        if (counts(f, &f->samples[i])) {
            least = least == 0 || ranks < least ? ranks : least;
            most = ranks > most ? ranks : most;
        }
    }
    for (int32_t i = 0; i < N_CONSTANTS; i++) {
        x[i] = with[i] = CONSTANTS[i].first;
    }
    x[IN_SWITCH] = DTP_NO_SWITCH;
    f->one_size = least == most;
    const double error = descend(f, x, IN_SWITCH);
    if (f->kinds[0] != DTP_ALL_REDUCE || f->one_size ||
        descend(f, with, N_CONSTANTS) >= SWITCH_GAIN * error) {
        (void)try_constants(f, x);
    }
}

/* The largest full buffer that a kind was measured with; 0: with none. */
static double largest(const level_fit *f, dtp_coll_kind kind)
{
    double bytes = 0.0;
    for (int32_t i = 0; i < f->n; i++) {
        const dtp_coll_sample *s = &f->samples[i];
        bytes =
            s->group.outer == f->level && s->call.kind == kind ? fmax(bytes, s->call.bytes) : bytes;
    }
    return bytes;
}

dtp_status dtp_level_fit(dtp_level *levels, int32_t level, int32_t n,
                         const dtp_coll_sample *samples, double *error, dtp_err *err)
{
    level_fit f = {levels, level, n, samples, {DTP_ALL_REDUCE, DTP_ALL_REDUCE}, false};
    double sum = 0.0;
    int32_t counted = 0;
    const bool apart = largest(&f, DTP_REDUCE_SCATTER) >= 0.5 * largest(&f, DTP_ALL_GATHER);
    for (int32_t i = 0; i < n; i++) {
        if (!(samples[i].time_s > 0.0) || !(samples[i].call.bytes > 0.0)) {
            return DTP_FAIL(err, DTP_INVALID, "fit: a collective of %g bytes takes %g s",
                            samples[i].call.bytes, samples[i].time_s);
        }
    }
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        f.kinds[0] = f.kinds[1] = (dtp_coll_kind)k;
        if (k == DTP_ALL_GATHER && !apart) {
            f.kinds[1] = DTP_REDUCE_SCATTER;
        }
        if (largest(&f, (dtp_coll_kind)k) > 0.0 && (k != DTP_REDUCE_SCATTER || apart)) {
            fit_kinds(&f);
        }
    }
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        f.kinds[0] = f.kinds[1] = (dtp_coll_kind)k;
        int32_t of_kind = 0;
        for (int32_t i = 0; i < n; i++) {
            of_kind += counts(&f, &samples[i]) ? 1 : 0;
        }
        sum += error_of(&f, true) * of_kind;
        counted += of_kind;
    }
    *error = counted > 0 ? sum / counted : 0.0;
    return DTP_OK;
}
