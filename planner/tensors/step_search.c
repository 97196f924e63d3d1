/* The search for a short step, from the first solutions within the limit on. Every candidate is
 * judged by the simulated schedule of its program:
 *
 *   sweep      solutions of the problem under weights of compute, waiting and deferrable
 *              communication and the host's time (step_costs.h), the last ones with what the best
 *              schedule so far, and those of baselines, pay of each edge
 *   recombine  where another solution differs from the best one in groups of variables without an
 *              edge between them, each group alone
 *   move       one variable takes another strategy and those around it follow (step_moves.h)
 *
 * Of graphs with stages there is the sweep alone, every solution of which is made in full.
 *
 * It starts from the incumbent, which may be the plan of a coarser mesh (coarser_plans.c); a few
 * moves follow from a baseline that is nearly as fast. Work is counted in instructions that are
 * simulated. */
#include <math.h>
#include <string.h>

#include "planner/tensors/plan_tensor_internal.h"
#include "planner/tensors/step_costs.h"
#include "planner/tensors/step_moves.h"
#include "spmd/lower/lower.h"

enum {
    SOLVE_ITERATIONS = 5,
    MOVES = 25,              /* that are tried of one list */
    MAKING = 4,              /* trials take as long as making a program in full */
    LEAST_TRIALS = 12,       /* of recombination and moves ... */
    SIMULATED = 400000,      /* ... or trials of so many instructions in all */
    SIMULATED_AGAIN = 50000, /* ... from the plan of a coarser mesh or a baseline on */
    LARGE = 2000000          /* edge entries, above which there are fewer solves and no moves */
};

static const double SOLVE_GAP = 0.005;
static const double GAIN = 1e-4;  /* of the step, that a change must save in a trial */
static const double CLOSE = 0.02; /* a trial may be longer than the best one by this share, for its
                                     program to be made in full */
static const double FAR = 0.05;   /* slower than the best plan of other meshes by this: given up */
static const double NEAR = 0.15;  /* a baseline slower than the best plan by less is made use of */
static const double LATE = 0.002; /* what tells redistributions of results and operands apart */

/* The most useful ones first: large problems are solved under the first ones alone. */
static const dtp_step_weights SWEEP[] = {
    {.compute = 1.0, .waiting = 1.0, .deferrable = 0.5, .issue = 1.0},
    {.compute = 1.0, .waiting = 1.0, .deferrable = 0.3},
    {.compute = 1.0, .waiting = 1.0, .deferrable = 0.8},
    {.compute = 1.0, .waiting = 1.0, .deferrable = 0.2, .issue = 1.0},
    {.compute = 1.0, .waiting = 1.0, .deferrable = 1.0, .issue = 1.0},
    {.compute = 0.3, .waiting = 0.3, .deferrable = 0.3, .issue = 1.0},
    {.compute = 1.0, .waiting = 0.5, .deferrable = 0.5},
    {.compute = 1.0, .waiting = 2.0, .deferrable = 0.5},
    {.compute = 1.0, .waiting = 2.0, .deferrable = 1.0},
};
/* Communication of both kinds is paid by the exposed share of all. */
static const dtp_step_weights SHARED = {.compute = 1.0, .paid = 0.3};
static const dtp_step_weights PAID[] = {
    {.compute = 1.0, .waiting = 1.0, .deferrable = 0.5, .paid = 0.35},
    {.compute = 1.0, .waiting = 0.3, .deferrable = 0.3, .paid = 0.35},
    {.compute = 1.0, .waiting = 0.5, .deferrable = 0.2, .paid = 0.35},
    {.compute = 1.0, .waiting = 0.5, .deferrable = 0.5, .paid = 0.35},
};
enum {
    N_SWEEP = sizeof SWEEP / sizeof SWEEP[0],
    N_PAID = sizeof PAID / sizeof PAID[0],
    N_SHARED = 2,
    N_LARGE = 2,
    N_TRIAL = 2
};

typedef struct step_search {
    dtp_planning *p;
    tensor_state *state;
    dtp_step_costs costs;
    const dtp_overlap *overlap;    /* of trials */
    const dtp_candidate *baseline; /* the fastest one that is an assignment; NULL: none is near */
    bool known;                    /* there is a best assignment: */
    int32_t *best, *next;          /* by variable; next: scratch */
    double step_s, trial_s;        /* of its program, and as a trial */
    int64_t instrs;                /* of the program of the last trial */
    int64_t left;                  /* instructions that may still be simulated */
    dtp_step_weights weights;      /* under which the best one was found */
} step_search;

/* Lowers an assignment with the overlap of trials and without a memory plan, and simulates
 * the program. `costs`: learn from the schedule; NULL: none do. */
static dtp_status simulate(step_search *s, const int32_t *assignment, dtp_step_costs *costs,
                           double *step_s, dtp_err *err)
{
    const dtp_planning *p = s->p;
    const dtp_tensor_problem *problem = s->state->problem;
    dtp_program *program = NULL;
    dtp_sharding sharding;
    dtp_prediction predicted = {0};
    dtp_lower_options options = dtp_planning_lowering(p, dtp_tensor__redistributor(p));
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    options.overlap = *s->overlap;
    options.unplaced = true;
    dtp_status st = dtp_tensor_sharding(problem, assignment, arena, &sharding, err);
    st = st == DTP_OK ? dtp_lower(p->graph, &sharding, &options, &program, err) : st;
    st = st == DTP_OK ? dtp_predict(&p->pricer, program, &predicted, err) : st;
    st = st == DTP_OK && costs != NULL ? dtp_step_costs_pay(costs, program, err) : st;
    s->instrs = program != NULL ? program->n_instrs : 0;
    s->left -= s->instrs;
    *step_s = predicted.step_time_s;
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
    return st;
}

/* Takes an assignment as the best one when it is. `most_s`: of the trial, for its program to be
 * made in full. */
static dtp_status offer(step_search *s, const int32_t *assignment, double most_s, bool *better,
                        dtp_err *err)
{
    double trial_s = 0.0, step_s = INFINITY;
    *better = false;
    if (s->p->graph->stages == NULL) {
        DTP_TRY(simulate(s, assignment, NULL, &trial_s, err));
    }
    if (!s->known || trial_s < most_s || s->p->graph->stages != NULL) {
        s->left -= (MAKING - 1) * s->instrs;
        DTP_TRY(dtp_tensor__try(s->p, assignment, &step_s, err));
    }
    s->state->seen[s->state->n_seen - 1].step_s = isfinite(step_s) ? step_s : trial_s;
    if (step_s < s->step_s) {
        memmove(s->best, assignment, (size_t)s->state->problem->n_variables * sizeof *s->best);
        s->known = *better = true;
        s->step_s = step_s;
        s->trial_s = trial_s;
    }
    return DTP_OK;
}

/* ---- sweep ---- */

static bool is_large(const step_search *s)
{
    return dtp_problem_n_entries(s->state->problem->select) > LARGE;
}

static dtp_status solve_weighted(step_search *s, const dtp_step_weights *w, dtp_err *err)
{
    tensor_state *state = s->state;
    dtp_tensor_round r;
    bool better;
    dtp_solve_options options = dtp_tensor__solver_options(s->p);
    options.iterations = SOLVE_ITERATIONS;
    options.gap = SOLVE_GAP;
    options.lp_entries = 0;
    options.start = s->known && is_large(s) ? s->best : NULL;
    DTP_TRY(dtp_step_costs_weigh(&s->costs, w, &state->search.overlay, err));
    DTP_TRY(dtp_tensor__solve_once(s->p, &options, SOLVE_ONLY, &r, err));
    if (!r.found || r.repeated) {
        return DTP_OK;
    }
    DTP_TRY(offer(s, state->seen[state->n_seen - 1].strategy, s->trial_s * (1.0 + CLOSE), &better,
                  err));
    s->weights = better ? *w : s->weights;
    return DTP_OK;
}

/* Solves under weights and what the schedule of an assignment pays of each edge. */
static dtp_status solve_paid(step_search *s, const int32_t *assignment, dtp_step_weights w,
                             dtp_err *err)
{
    const dtp_prediction *best = &s->p->best.predicted;
    double step_s;
    if (!s->known) {
        return DTP_OK;
    }
    if (w.waiting == 0.0) { /* the share of all communication that is exposed */
        w.waiting = w.deferrable = best->comm_s > 0.0 ? best->exposed_comm_s / best->comm_s : 1.0;
    }
    DTP_TRY(simulate(s, assignment, &s->costs, &step_s, err));
    return solve_weighted(s, &w, err);
}

/* Solves under what the schedules of baselines pay. */
static dtp_status solve_baselines(step_search *s, dtp_err *err)
{
    const dtp_planning *p = s->p;
    for (int32_t i = 0; i < p->n_baselines && s->known; i++) {
        const dtp_candidate *c = &p->baselines[i];
        const double step_s = c->predicted.step_time_s;
        bool found = false, repeated;
        if (c->legal && dtp_planning_excess(p, c) <= 0 && step_s <= (1.0 + NEAR) * s->step_s) {
            DTP_TRY(dtp_tensor_assignment(s->state->problem, &c->sharding, s->next, &found, err));
        }
        if (!found) {
            continue;
        }
        DTP_TRY(dtp_tensor__note(s->state, s->next, &repeated, err));
        if (!repeated) {
            s->state->seen[s->state->n_seen - 1].step_s = step_s;
        }
        const bool faster = s->baseline == NULL || step_s < s->baseline->predicted.step_time_s;
        s->baseline = faster ? c : s->baseline;
        DTP_TRY(solve_paid(s, s->next, PAID[0], err));
    }
    return DTP_OK;
}

static dtp_status sweep(step_search *s, dtp_err *err)
{
    const bool stages = s->p->graph->stages != NULL, large = is_large(s);
    const int32_t n = s->p->request->trial ? N_TRIAL : large ? N_LARGE : N_SWEEP;
    for (int32_t i = 0; i < N_SHARED && !stages; i++) {
        DTP_TRY(solve_paid(s, s->best, SHARED, err));
    }
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(solve_weighted(s, &SWEEP[i], err));
    }
    if (stages || s->p->request->trial) { /* what an edge pays is known of one program */
        return DTP_OK;
    }
    for (int32_t i = 0; i < N_PAID && !large; i++) {
        DTP_TRY(solve_paid(s, s->best, PAID[i], err));
    }
    DTP_TRY(large || s->p->request->of_finer ? DTP_OK : solve_baselines(s, err));
    const dtp_step_weights found = s->weights;
    for (int32_t i = 0; i < 2 && !large; i++) {
        dtp_step_weights w = found;
        w.late = i == 0 ? LATE : -LATE;
        DTP_TRY(solve_weighted(s, &w, err));
    }
    return DTP_OK;
}

/* ---- changes ---- */

/* Tries s->next. *tried: it is new. */
static dtp_status change(step_search *s, bool *tried, bool *better, dtp_err *err)
{
    const dtp_problem *p = &s->state->search.overlay.problem;
    bool repeated, allowed = true;
    *tried = *better = false;
    for (int32_t v = 0; v < p->n_variables && allowed; v++) {
        allowed = p->cost[p->first[v] + s->next[v]] < DTP_FORBIDDEN;
    }
    for (int32_t e = 0; e < p->n_edges && allowed; e++) {
        const int64_t row =
            s->next[p->edge_a[e]] * (int64_t)dtp_problem_n_strategies(p, p->edge_b[e]);
        allowed = p->edge_cost[p->edge_first[e] + row + s->next[p->edge_b[e]]] < DTP_FORBIDDEN;
    }
    if (!allowed) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor__note(s->state, s->next, &repeated, err));
    if (repeated) {
        return DTP_OK;
    }
    *tried = true;
    return offer(s, s->next, s->trial_s * (1.0 - GAIN), better, err);
}

static bool goes_on(const step_search *s)
{
    return s->left > 0 && !dtp_stopped(s->p->request->stop);
}

static dtp_status recombine(step_search *s, dtp_err *err)
{
    const tensor_state *state = s->state;
    const dtp_problem *problem = &state->search.overlay.problem;
    const int32_t n = problem->n_variables, n_pool = state->n_seen;
    dtp_arena *arena = s->p->arena;
    int32_t *group, *order;
    DTP_TRY(DTP_NEW(arena, group, n, err));
    DTP_TRY(DTP_NEW(arena, order, n_pool, err));
    for (int32_t i = 0; i < n_pool; i++) { /* the fastest first */
        int32_t at = i;
        for (; at > 0 && state->seen[order[at - 1]].step_s > state->seen[i].step_s; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    for (int32_t i = 0; i < n_pool && goes_on(s); i++) {
        const int32_t *other = state->seen[order[i]].strategy;
        int32_t n_groups;
        DTP_TRY(dtp_step_groups(problem, s->best, other, group, &n_groups, err));
        for (int32_t k = 0; k < n_groups && n_groups > 1 && goes_on(s); k++) {
            bool tried, better;
            for (int32_t v = 0; v < n; v++) {
                s->next[v] = group[v] == k ? other[v] : s->best[v];
            }
            DTP_TRY(change(s, &tried, &better, err));
        }
    }
    return DTP_OK;
}

/* ---- all ---- */

/* The best assignment is that of a candidate, where it is one; programs are made as its is. */
static dtp_status start_from(step_search *s, const dtp_candidate *c, dtp_err *err)
{
    tensor_state *state = s->state;
    bool repeated;
    s->step_s = INFINITY;
    s->overlap = &c->overlap;
    DTP_TRY(dtp_tensor_assignment(state->problem, &c->sharding, s->best, &s->known, err));
    if (s->known) {
        const bool own = c->redistributor == dtp_tensor_redistributor(state->problem);
        state->search.redistributor = own ? NULL : c->redistributor;
        s->step_s = c->predicted.step_time_s;
        DTP_TRY(dtp_tensor__note(state, s->best, &repeated, err));
        s->trial_s = s->step_s;
        DTP_TRY(s->p->graph->stages == NULL ? simulate(s, s->best, NULL, &s->trial_s, err)
                                            : DTP_OK);
    }
    return DTP_OK;
}

static dtp_status start_from_incumbent(step_search *s, dtp_err *err)
{
    s->known = false;
    s->step_s = INFINITY;
    s->overlap = &s->p->best.overlap;
    return s->p->has_best ? start_from(s, &s->p->best, err) : DTP_OK;
}

static dtp_status move(step_search *s, dtp_err *err)
{
    const dtp_problem *problem = &s->state->search.overlay.problem;
    const size_t n = (size_t)problem->n_variables;
    bool again = !is_large(s);
    while (again && goes_on(s)) {
        dtp_step_moves moves;
        int32_t n_tried = 0;
        again = false;
        DTP_TRY(dtp_step_moves_find(problem, s->best, &moves, err));
        dtp_status st = DTP_OK;
        for (int32_t m = 0; m < moves.n && n_tried < MOVES && goes_on(s) && st == DTP_OK; m++) {
            bool tried, better;
            memcpy(s->next, s->best, n * sizeof *s->next);
            for (int32_t i = 0; i < moves.items[m].n; i++) {
                s->next[moves.items[m].variable[i]] = moves.items[m].strategy[i];
            }
            st = change(s, &tried, &better, err);
            n_tried += tried ? 1 : 0;
            again = again || better;
        }
        dtp_step_moves_free(&moves);
        DTP_TRY(st);
    }
    return DTP_OK;
}

/* Changes of the best assignment, as long as there is work left and it is worth it. */
static dtp_status improve(step_search *s, dtp_err *err)
{
    const dtp_plan *others = s->p->incumbent;
    if (!s->known || s->p->graph->stages != NULL || s->p->request->trial ||
        (others != NULL && s->step_s > (1.0 + FAR) * others->predicted.step_time_s)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_step_costs_weigh(&s->costs, &SWEEP[0], &s->state->search.overlay, err));
    DTP_TRY(simulate(s, s->best, NULL, &s->trial_s, err));
    s->left = LEAST_TRIALS * s->instrs;
    const int64_t most =
        s->p->best.sharding.layouts == s->state->from_coarser ? SIMULATED_AGAIN : SIMULATED;
    s->left = s->left < most && !is_large(s) ? most : s->left;
    DTP_TRY(recombine(s, err));
    DTP_TRY(move(s, err));
    const dtp_candidate *other = s->baseline;
    if (other != NULL && !s->p->request->of_finer &&
        other->predicted.step_time_s <= (1.0 + FAR) * s->step_s) {
        DTP_TRY(start_from(s, other, err));
        s->left = SIMULATED_AGAIN;
        DTP_TRY(move(s, err));
    }
    return DTP_OK;
}

dtp_status dtp_tensor__shorten_step(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    step_search s = {.p = p, .state = state, .weights = SWEEP[0]};
    double step_s;
    DTP_TRY(DTP_NEW(p->arena, s.best, state->problem->n_variables, err));
    DTP_TRY(DTP_NEW(p->arena, s.next, state->problem->n_variables, err));
    DTP_TRY(dtp_step_costs_create(state->problem, p->arena, &s.costs, err));
    DTP_TRY(start_from_incumbent(&s, err));
    state->search.redistributor = NULL;
    DTP_TRY(sweep(&s, err));
    DTP_TRY(start_from_incumbent(&s, err));
    if (s.known && !p->request->trial) {
        const bool own = state->search.redistributor == NULL;
        state->search.redistributor = own ? dtp_redistribute_cache_planner(p->generic) : NULL;
        DTP_TRY(dtp_tensor__try(p, s.best, &step_s, err));
    }
    DTP_TRY(start_from_incumbent(&s, err));
    DTP_TRY(improve(&s, err));
    state->search.redistributor = NULL;
    return DTP_OK;
}
