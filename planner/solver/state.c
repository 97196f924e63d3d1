/* State of one solve, shared by its parts: limits, the incumbent and its cost as the cutoff. */
#include "planner/solver/state.h"

#include <string.h>

bool solver_close(const solver_state *v, int64_t bound)
{
    return bound >= v->cutoff ||
           (v->found && (double)(v->cutoff - bound) <= v->gap * (double)v->cutoff);
}

dtp_status solver_offer(solver_state *v, const solver_reduced *w, int64_t n_undo,
                        const int32_t *assignment, dtp_err *err)
{
    dtp_problem_value value;
    memcpy(v->full, assignment, (size_t)v->p->n_variables * sizeof *assignment);
    solver_restore_from(w, n_undo, v->full);
    DTP_TRY(dtp_evaluator_cost(v->evaluator, v->full, &value.cost, err));
    if (value.cost >= v->cutoff) {
        return DTP_OK; /* the times, which take longer, do not matter */
    }
    DTP_TRY(dtp_evaluator_run(v->evaluator, v->full, &value, err));
    if (value.feasible) {
        int32_t *worse = v->best;
        v->best = v->full;
        v->full = worse;
        v->out->value = value;
        v->cutoff = value.cost;
        v->found = v->searched = true;
    }
    return DTP_OK;
}

dtp_status solver_reduce(solver_state *v, solver_reduced *w, dtp_err *err)
{
    w->cutoff = v->cutoff;
    DTP_TRY(solver_presolve(w, err));
    for (int32_t i = 0; i < w->n_variables && !w->infeasible; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t s = 0; x->alive && s < x->k; s++) {
            v->assignment[i] = solver_dead(x, s) ? v->assignment[i] : s;
        }
        if (x->alive && x->n_live > 1) {
            return DTP_OK;
        }
    }
    if (!w->infeasible) { /* all is decided */
        DTP_TRY(solver_offer(v, w, w->n_undo, v->assignment, err));
        w->infeasible = true;
    }
    return DTP_OK;
}
