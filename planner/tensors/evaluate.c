/* Solves of the overlay, and what comes of an assignment: a program, its prediction, a candidate.
 */
#include "planner/tensors/plan_tensor_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cost_models/pipeline.h"
#include "planner/tensors/memory_corrections.h"
#include "spmd/lower/overlap.h"

const dtp_redistributor *dtp_tensor__redistributor(const dtp_planning *p)
{
    const tensor_state *state = p->state;
    return state->search.redistributor != NULL ? state->search.redistributor
                                               : dtp_tensor_redistributor(state->problem);
}

static void note_round(const tensor_state *state, const dtp_candidate *c, dtp_tensor_round *out)
{
    out->peak = c->predicted.peak_bytes;
    out->peak_stage = c->predicted.peak_stage;
    out->over = state->search.limit > 0 ? out->peak - state->search.limit : 0;
    out->step_s = c->predicted.step_time_s;
}

/* Lowers, predicts and offers what an assignment means; its schedule is noted where communication
 * overlaps. `correct`: memory corrections are added when the program is too large, without
 * stages. */
static dtp_status evaluate(dtp_planning *p, const int32_t *assignment, bool correct,
                           dtp_tensor_round *out, dtp_candidate *c, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_program *program = NULL;
    dtp_status s = DTP_OK;
    dtp_lower_options options = dtp_planning_lowering(p, dtp_tensor__redistributor(p));
    options.fit_bytes = state->search.peaks_only ? 1
                        : p->request->options.objective == DTP_OBJECTIVE_TIME
                            ? p->request->options.memory_limit_bytes
                            : 0;
    *c = (dtp_candidate){.legal = true, .redistributor = options.redistributor};
    DTP_TRY(dtp_tensor_sharding(state->problem, assignment, p->arena, &c->sharding, err));
    DTP_TRY(dtp_sharding_check(p->graph, &c->sharding, err));
    if (p->graph->stages != NULL) {
        DTP_TRY(dtp_pipeline_choose(p->graph, &p->pricer, &c->sharding, &options, &c->predicted,
                                    &c->cost_ps, err));
        c->overlap = options.overlap;
        note_round(state, c, out);
        return dtp_planning_offer(p, c, err);
    }
    DTP_TRY(dtp_sharding_program(p->graph, &p->pricer, &c->sharding, &options, &c->predicted,
                                 &program, err));
    c->overlap = options.overlap;
    note_round(state, c, out);
    s = dtp_program_additive_cost(&p->pricer, program, &c->cost_ps, err);
    s = s == DTP_OK ? dtp_planning_offer(p, c, err) : s;
    if (s == DTP_OK && out->over > 0 && correct) { /* in the order that it would run in */
        s = dtp_program_overlap(program, &c->overlap, true, err);
        s = s == DTP_OK ? dtp_memory_correction_add(state->problem, assignment, program,
                                                    state->search.limit, &state->search.overlay,
                                                    &out->corrected, err)
                        : s;
    }
    dtp_program_destroy(program);
    return s;
}

dtp_status dtp_tensor__note(tensor_state *state, const int32_t *assignment, bool *repeated,
                            dtp_err *err)
{
    const size_t n = (size_t)state->problem->n_variables;
    dtp_arena *arena = state->problem->arena;
    int32_t *strategy;
    *repeated = false;
    for (int32_t i = 0; i < state->n_seen && !*repeated; i++) {
        *repeated = memcmp(state->seen[i].strategy, assignment, n * sizeof *assignment) == 0;
    }
    if (*repeated) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(arena, &state->seen, state->n_seen, state->n_seen + 1, &state->cap_seen,
                           sizeof *state->seen, err));
    DTP_TRY(DTP_NEW(arena, strategy, n, err));
    memcpy(strategy, assignment, n * sizeof *strategy);
    state->seen[state->n_seen++] = (seen_assignment){strategy, INFINITY};
    return DTP_OK;
}

dtp_status dtp_tensor__try(dtp_planning *p, const int32_t *assignment, double *step_s, dtp_err *err)
{
    dtp_tensor_round r = {0};
    dtp_candidate c;
    DTP_TRY(evaluate(p, assignment, false, &r, &c, err));
    *step_s = r.over <= 0 ? r.step_s : (double)INFINITY;
    return DTP_OK;
}

dtp_solve_options dtp_tensor__solver_options(const dtp_planning *p)
{
    dtp_solve_options options = dtp_solve_options_init();
    options.solver = p->request->solver;
    options.seed = p->request->options.seed;
    options.threads = p->request->options.threads;
    options.gap = p->request->options.gap;
    options.stop = p->request->stop;
    return options;
}

dtp_status dtp_tensor__solve_once(dtp_planning *p, const dtp_solve_options *options,
                                  solve_kind kind, dtp_tensor_round *out, dtp_err *err)
{
    tensor_state *state = p->state;
    const dtp_problem *problem = &state->search.overlay.problem;
    dtp_candidate c = {0};
    dtp_solve_result r;
    *out = (dtp_tensor_round){0};
    DTP_TRY(dtp_stop_check(p->request->stop, err));
    DTP_TRY(dtp_solve(problem, options, &r, err));
    p->certificate.nodes += r.nodes;
    if (kind == SOLVE_FIRST) {
        p->certificate.status = r.status;
        p->certificate.bound = r.bound;
        p->pruned = options->cutoff > 0 && r.status == DTP_CERT_INFEASIBLE;
        dtp_planning_tell(p);
    }
    out->found = r.assignment != NULL;
    out->bound = r.bound;
    out->usage = r.value.peak;
    dtp_status s = DTP_OK;
    if (out->found) {
        s = dtp_tensor__note(state, r.assignment, &out->repeated, err);
    }
    if (s == DTP_OK && out->found && kind != SOLVE_ONLY) {
        s = evaluate(p, r.assignment, kind == SOLVE_CORRECTED, out, &c, err);
        if (!out->repeated) {
            const bool over = out->over > 0;
            state->seen[state->n_seen - 1].step_s = over ? (double)INFINITY : out->step_s;
        }
    }
    dtp_log(p->request->options.ctx, DTP_LOG_INFO, "planner", "solved",
            "usage_limit=%" PRId64 " found=%d cost=%" PRId64 " bound=%" PRId64 " usage=%" PRId64
            " over=%" PRId64 " full_cost=%" PRId64 " step_s=%g",
            problem->usage_limit, out->found, r.value.cost, r.bound, r.value.peak, out->over,
            c.cost_ps, c.predicted.step_time_s);
    dtp_solve_result_free(&r);
    return s;
}
