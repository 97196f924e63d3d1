/* Plans that take about as long, and which of them is taken. */
#include "planner/ties.h"

/* Peaks that differ by less than this share are the same. */
static const double SAME = 0.01;
static const double WORTH = 0.02; /* of modules over placements alone */

dtp_prediction dtp_judged(const dtp_prediction *of, bool by_placements)
{
    dtp_prediction p = *of;
    p.step_time_s *= by_placements ? 1.0 + WORTH : 1.0;
    p.peak_bytes = by_placements ? (int64_t)((1.0 + WORTH) * (double)p.peak_bytes) : p.peak_bytes;
    return p;
}

/* ---- candidates ---- */

dtp_status dtp_ties_add(dtp_ties *ties, const dtp_candidate *c, dtp_arena *arena, dtp_err *err)
{
    const dtp_prediction p = dtp_judged(&c->predicted, c->by_placements);
    DTP_TRY(dtp_arena_grow(arena, &ties->items, ties->n, ties->n + 1, &ties->capacity,
                           sizeof *ties->items, err));
    ties->items[ties->n++] = (dtp_tie){*c, p.step_time_s, p.peak_bytes, false};
    return DTP_OK;
}

void dtp_ties_keep_least(dtp_ties *ties, double most_s)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < ties->n; i++) {
        const dtp_tie *t = &ties->items[i];
        least = t->step_s <= most_s && t->peak_bytes < least ? t->peak_bytes : least;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < ties->n; i++) {
        const dtp_tie t = ties->items[i];
        if (t.step_s <= most_s && (double)t.peak_bytes <= (1.0 + SAME) * (double)least) {
            ties->items[n++] = t;
        }
    }
    ties->n = n;
}

/* Different layouts of tensors. */
static int32_t n_layouts(const dtp_sharding *s)
{
    int32_t n = 0;
    for (int32_t t = 0; t < s->n_tensors; t++) {
        int32_t k = 0;
        while (k < t && !dtp_layout_equal(&s->layouts[k], &s->layouts[t])) {
            k++;
        }
        n += k == t ? 1 : 0;
    }
    return n;
}

const dtp_candidate *dtp_ties_simplest(const dtp_ties *ties)
{
    const dtp_tie *best = NULL;
    int32_t fewest = 0;
    for (int32_t i = 0; i < ties->n; i++) {
        const dtp_tie *t = &ties->items[i];
        const int32_t n = n_layouts(&t->candidate.sharding);
        const bool alike = best != NULL && t->by_modules == best->by_modules;
        const bool better =
            best == NULL ||
            (alike ? n < fewest || (n == fewest && t->step_s < best->step_s) : t->by_modules);
        best = better ? t : best;
        fewest = better ? n : fewest;
    }
    return best != NULL ? &best->candidate : NULL;
}

/* ---- plans ---- */

static double step_of(const dtp_plan *p)
{
    return dtp_judged(&p->predicted, dtp_plan_by_placements(p)).step_time_s;
}

dtp_prediction dtp_plan_fastest_found(const dtp_plan *p)
{
    const dtp_plan_fastest *f = &p->fastest;
    return f->step_time_s > 0.0
               ? (dtp_prediction){.step_time_s = f->step_time_s, .peak_bytes = f->peak_bytes}
               : p->predicted;
}

static double fastest_of(const dtp_plan *p)
{
    const dtp_prediction found = dtp_plan_fastest_found(p);
    const bool other = p->fastest.step_time_s > 0.0;
    return dtp_judged(&found, other ? p->fastest.by_placements : dtp_plan_by_placements(p))
        .step_time_s;
}

bool dtp_tied_plan_better(const dtp_plan *a, const dtp_plan *b, double slack)
{
    const double x = fastest_of(a), y = fastest_of(b), most = (1.0 + slack) * (x < y ? x : y);
    const double m = (double)dtp_judged(&a->predicted, dtp_plan_by_placements(a)).peak_bytes,
                 n = (double)dtp_judged(&b->predicted, dtp_plan_by_placements(b)).peak_bytes;
    const bool tied = slack > 0.0 && step_of(a) <= most && step_of(b) <= most;
    if (tied && (m > (1.0 + SAME) * n || n > (1.0 + SAME) * m)) {
        return m < n;
    }
    return step_of(a) <= most && (step_of(b) > most || step_of(a) < step_of(b));
}

void dtp_tied_plan_note(dtp_plan *kept, const dtp_plan *dropped, double slack)
{
    const double seconds = fastest_of(dropped);
    if (seconds >= fastest_of(kept) || step_of(kept) > (1.0 + slack) * seconds) {
        return;
    }
    const bool own = dropped->fastest.step_time_s <= 0.0;
    kept->fastest = own ? (dtp_plan_fastest){.slack = slack,
                                             .step_time_s = dropped->predicted.step_time_s,
                                             .peak_bytes = dropped->predicted.peak_bytes,
                                             .by_placements = dtp_plan_by_placements(dropped)}
                        : dropped->fastest;
}
