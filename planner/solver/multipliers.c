#include "planner/solver/multipliers.h"

#include "planner/solver/dual/dual.h"

/* Reductions that leave to the prices what the limit alone rules out. */
static const dtp_presolve_options CAREFUL = {
    .merge = true, .dominance = true, .eliminate = true, .rows = true};

/* Entries of matrices that the ascent looks at, about; fewer rounds find no prices. */
static const int64_t MOST_ENTRIES = 500000000, FEWEST_ROUNDS = 400;

static int64_t affordable(sel_work *w, int64_t rounds)
{
    const int64_t most = MOST_ENTRIES / (2 * sel_size(w).entries + 1);
    const int64_t enough = most > FEWEST_ROUNDS ? most : FEWEST_ROUNDS;
    return enough < rounds ? enough : rounds;
}

static dtp_status ascend(sel_work *w, int64_t rounds, dtp_err *err)
{
    sel_dual *d = NULL;
    int64_t bound = 0;
    DTP_TRY(sel_dual_create(w, &d, err));
    sel_dual_run(d, rounds, 0.0);
    const dtp_status s = sel_dual_apply(d, w, false, &bound, err);
    sel_dual_destroy(d);
    return s;
}

static dtp_status collect(const sel_work *w, dtp_arena *arena, int32_t *n, dtp_time_price **prices,
                          dtp_err *err)
{
    *prices = dtp_arena_alloc(arena, (size_t)w->n_rows, sizeof **prices);
    if (*prices == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d prices", w->n_rows);
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        if (w->price[r] > 0.0) {
            (*prices)[(*n)++] = (dtp_time_price){w->time[r], w->price[r]};
        }
    }
    return DTP_OK;
}

static dtp_status find(sel_work *w, int64_t rounds, dtp_arena *arena, int32_t *n,
                       dtp_time_price **prices, dtp_err *err)
{
    DTP_TRY(sel_presolve(w, err));
    if (w->infeasible || w->n_rows == 0) {
        return DTP_OK;
    }
    DTP_TRY(ascend(w, affordable(w, rounds), err));
    return collect(w, arena, n, prices, err);
}

dtp_status dtp_select_time_prices(const dtp_select_problem *p, int64_t rounds, dtp_arena *arena,
                                  int32_t *n, dtp_time_price **prices, dtp_err *err)
{
    sel_work *w = NULL;
    *n = 0;
    *prices = NULL;
    DTP_TRY(sel_work_create(p, &CAREFUL, &w, err));
    w->cutoff = DTP_SELECT_FORBIDDEN;
    const dtp_status s = find(w, rounds, arena, n, prices, err);
    sel_work_destroy(w);
    return s;
}
