/* What the usage limit costs at single times: multipliers of the limit from an ascent of the
 * dual (planner/solver/dual/dual.h). */
#include "planner/solver/multipliers.h"

#include "planner/solver/dual/dual.h"
#include "planner/solver/reduced/load.h"

/* Reductions that leave to the multipliers what the limit alone rules out. */
static const dtp_presolve_options CAREFUL = {
    .functional_dependency = true, .dominance = true, .pbqp = true, .memory_rows = true};

dtp_status dtp_memory_multipliers(const dtp_problem *p, int64_t rounds, dtp_arena *arena,
                                  int32_t *n, dtp_memory_multiplier **multipliers, dtp_err *err)
{
    const dtp_solver_parameters *c = dtp_solver_parameters_default();
    solver_reduced *w = NULL;
    solver_dual *d = NULL;
    int64_t bound = 0;
    *n = 0;
    *multipliers = NULL;
    DTP_TRY(solver_reduced_create(p, &CAREFUL, c, &w, err));
    dtp_status s = solver_presolve(w, err);
    const int32_t rows = w->infeasible ? 0 : w->n_rows;
    if (s == DTP_OK && rows > 0) {
        s = solver_dual_create(w, &d, err);
    }
    if (s == DTP_OK && rows > 0) {
        const int64_t most = c->multipliers_work / (2 * solver_size(w).entries + 1);
        const int64_t enough = most > c->multipliers_rounds ? most : c->multipliers_rounds;
        solver_dual_run(d, enough < rounds ? enough : rounds, NULL);
        s = solver_dual_apply(d, w, false, &bound, err);
        *multipliers = dtp_arena_alloc(arena, (size_t)rows, sizeof **multipliers);
        if (s == DTP_OK && *multipliers == NULL) {
            s = DTP_FAIL(err, DTP_NOMEM, "out of memory for %d prices", rows);
        }
    }
    for (int32_t r = 0; s == DTP_OK && r < rows; r++) {
        if (w->multiplier[r] > 0.0) {
            (*multipliers)[(*n)++] = (dtp_memory_multiplier){w->time[r], w->multiplier[r]};
        }
    }
    solver_dual_destroy(d);
    solver_reduced_destroy(w);
    return s;
}
