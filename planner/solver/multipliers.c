#include "planner/solver/multipliers.h"

#include "planner/solver/dual/dual.h"
#include "planner/solver/reduced/load.h"

/* Reductions that leave to the multipliers what the limit alone rules out. */
static const dtp_presolve_options CAREFUL = {
    .functional_dependency = true, .dominance = true, .pbqp = true, .memory_rows = true};

static int64_t affordable(solver_reduced *w, int64_t rounds)
{
    const int64_t most = w->parameters->multipliers_work / (2 * solver_size(w).entries + 1);
    const int64_t enough =
        most > w->parameters->multipliers_rounds ? most : w->parameters->multipliers_rounds;
    return enough < rounds ? enough : rounds;
}

static dtp_status ascend(solver_reduced *w, int64_t rounds, dtp_err *err)
{
    solver_dual *d = NULL;
    int64_t bound = 0;
    DTP_TRY(solver_dual_create(w, &d, err));
    solver_dual_run(d, rounds, 0.0);
    const dtp_status s = solver_dual_apply(d, w, false, &bound, err);
    solver_dual_destroy(d);
    return s;
}

static dtp_status collect(const solver_reduced *w, dtp_arena *arena, int32_t *n,
                          dtp_memory_multiplier **multipliers, dtp_err *err)
{
    *multipliers = dtp_arena_alloc(arena, (size_t)w->n_rows, sizeof **multipliers);
    if (*multipliers == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d prices", w->n_rows);
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        if (w->multiplier[r] > 0.0) {
            (*multipliers)[(*n)++] = (dtp_memory_multiplier){w->time[r], w->multiplier[r]};
        }
    }
    return DTP_OK;
}

static dtp_status find(solver_reduced *w, int64_t rounds, dtp_arena *arena, int32_t *n,
                       dtp_memory_multiplier **multipliers, dtp_err *err)
{
    DTP_TRY(solver_presolve(w, err));
    if (w->infeasible || w->n_rows == 0) {
        return DTP_OK;
    }
    DTP_TRY(ascend(w, affordable(w, rounds), err));
    return collect(w, arena, n, multipliers, err);
}

dtp_status dtp_memory_multipliers(const dtp_problem *p, int64_t rounds, dtp_arena *arena,
                                  int32_t *n, dtp_memory_multiplier **multipliers, dtp_err *err)
{
    solver_reduced *w = NULL;
    *n = 0;
    *multipliers = NULL;
    DTP_TRY(solver_reduced_create(p, &CAREFUL, dtp_solver_parameters_default(), &w, err));
    w->cutoff = DTP_FORBIDDEN;
    const dtp_status s = find(w, rounds, arena, n, multipliers, err);
    solver_reduced_destroy(w);
    return s;
}
