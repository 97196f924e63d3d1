#include "planner/tensor/plan_tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/settings.h"
#include "planner/reports/constraint_prices.h"
#include "planner/planning.h"
#include "planner/tensor/fold_bound.h"
#include "planner/tensor/least_usage.h"
#include "planner/tensor/tensor_pins.h"
#include "spmd/redistribute_listed.h"

/* Solves at discounted prices, and nodes of branch and bound for each; LATER_ITERATIONS: of a solve
 * whose bound is not asked for. */
enum { MAX_DISCOUNTS = 4, DISCOUNT_NODES = 20, MAX_STEPS_DOWN = 64, LATER_ITERATIONS = 60 };

/* Parts of the communication that count as the same. */
static const double SETTLED = 0.02;
/* Candidates need no closer bound. */
static const double DISCOUNT_GAP = 0.005;

/* The selection problem of one mesh. */
typedef struct tensor_state {
    const dtp_graph *base; /* without, and */
    dtp_graph *set;        /* with the settings of the styles */
    dtp_pin_set pins;
    dtp_tensor_problem *problem; /* NULL when the pins contradict each other */
    int32_t *start;              /* by choice: a decision known beforehand; scratch */
    int64_t usage_limit;         /* of the request, as the problem counts */
} tensor_state;

/* ---- begin and end ------------------------------------------------------------------------------
 */

static dtp_status make_problem(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_tensor_options options = dtp_tensor_options_init();
    options.memory_bytes = p->request->memory_limit_bytes;
    options.n_pins = state->pins.n_pins;
    options.pins = state->pins.pins;
    DTP_TRY(dtp_tensor_problem_create(p->graph, &p->pricer, &options, &state->problem, err));
    state->usage_limit = state->problem->select->usage_limit;
    state->start =
        dtp_arena_alloc(p->arena, (size_t)state->problem->n_choices, sizeof *state->start);
    return state->start != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
}

/* Pins of which no option is left are told as a conflict when there are several. */
static dtp_status explain_conflict(dtp_planning *p, dtp_err *err)
{
    dtp_conflict conflict;
    dtp_plan_result *out = p->out;
    const dtp_plan_request *r = p->request;
    DTP_TRY(dtp_conflict_find(p->graph, &p->pricer, r->n_texts, r->texts, r->memory_limit_bytes,
                              out->arena, &conflict, err));
    out->n_conflict = conflict.n;
    out->conflict = conflict.texts;
    for (int32_t i = 0; i < conflict.n; i++) {
        conflict.texts[i] = dtp_arena_strdup(out->arena, conflict.texts[i]);
        if (conflict.texts[i] == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
        }
    }
    return DTP_OK;
}

static dtp_status begin(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = dtp_arena_alloc(p->arena, 1, sizeof *state);
    if (state == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for tensor mode");
    }
    p->state = state;
    DTP_TRY(dtp_pin_set_read(p->request->n_texts, p->request->texts, p->graph, &p->pricer.mesh,
                             p->arena, &state->pins, err));
    DTP_TRY(dtp_graph_with_settings(p->graph, state->pins.n_settings, state->pins.settings,
                                    &state->set, err));
    state->base = p->graph;
    p->graph = state->set;
    dtp_err why = {0};
    dtp_status s = make_problem(p, &why);
    if (s == DTP_INVALID && state->pins.n_texts > 1) {
        DTP_TRY(explain_conflict(p, err));
        if (p->out->n_conflict > 1) {
            return DTP_OK;
        }
    }
    return s == DTP_OK ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
}

static void finish(dtp_planning *p)
{
    tensor_state *state = p->state;
    if (state != NULL) {
        dtp_tensor_problem_destroy(state->problem);
        dtp_graph_destroy(state->set);
        *state = (tensor_state){0};
    }
}

/* ---- candidates ---------------------------------------------------------------------------------
 */

static bool keeps_pins(const dtp_planning *p, const dtp_candidate *c)
{
    const tensor_state *state = p->state;
    return dtp_pins_kept(p->graph, &c->sharding, state->pins.n_pins, state->pins.pins);
}

static bool in_space(const dtp_planning *p, const dtp_candidate *c)
{
    const tensor_state *state = p->state;
    bool found = false;
    return dtp_tensor_selection(state->problem, &c->sharding, state->start, &found, NULL) ==
               DTP_OK &&
           found;
}

/* What came of one solve. */
typedef struct round_result {
    bool found;
    int64_t peak;      /* of the program */
    int64_t over;      /* by how much that exceeds the limit */
    double exposed;    /* part of the communication that is not hidden behind compute */
    int64_t full_cost; /* at undiscounted prices */
    double step_s;     /* of the timeline */
} round_result;

/* Offers what a selection means, and fills *out. */
static dtp_status offer_selection(dtp_planning *p, const int32_t *selection, round_result *out,
                                  dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_candidate c = {.legal = true, .redistributor = dtp_tensor_redistributor(state->problem)};
    dtp_lower_options options = dtp_lower_options_init();
    options.redistributor = c.redistributor;
    DTP_TRY(dtp_tensor_sharding(state->problem, selection, p->arena, &c.sharding, err));
    DTP_TRY(dtp_sharding_check(p->graph, &c.sharding, err));
    DTP_TRY(dtp_sharding_predict(p->graph, &p->pricer, &c.sharding, &options, &c.predicted,
                                 &c.cost_ps, err));
    out->peak = c.predicted.peak_bytes;
    out->over = dtp_planning_excess(p, &c);
    out->full_cost = c.cost_ps;
    out->step_s = c.predicted.step_time_s;
    dtp_planning_offer(p, &c);
    out->exposed = c.predicted.comm_s > 0.0 ? c.predicted.exposed_comm_s / c.predicted.comm_s : 1.0;
    return DTP_OK;
}

/* ---- solving ------------------------------------------------------------------------------------
 */

static dtp_select_options solver_options(const dtp_planning *p)
{
    dtp_select_options options = dtp_select_options_init();
    options.seed = p->request->seed;
    options.threads = p->request->threads;
    options.gap = p->request->gap;
    return options;
}

/* The best candidate so far, as a selection; NULL when the problem has no such solution. */
static dtp_status start_from_best(const dtp_planning *p, const int32_t **start, dtp_err *err)
{
    const tensor_state *state = p->state;
    bool found = false;
    *start = NULL;
    if (p->has_best) {
        DTP_TRY(dtp_tensor_selection(state->problem, &p->best.sharding, state->start, &found, err));
    }
    *start = found ? state->start : NULL;
    return DTP_OK;
}

/* What the rival costs is what a plan here has to stay below; not when a candidate already beats
 * its timeline. */
static int64_t cutoff_of(const dtp_planning *p)
{
    const dtp_plan *rival = p->rival;
    const bool beaten = rival != NULL && p->has_best &&
                        p->best.predicted.step_time_s < rival->predicted.step_time_s;
    return rival == NULL || beaten || p->request->objective == DTP_OBJECTIVE_MEMORY
               ? 0
               : rival->certificate.cost;
}

static dtp_status solve_once(dtp_planning *p, const dtp_select_options *options, bool first,
                             round_result *out, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_select_result r;
    *out = (round_result){.exposed = 1.0};
    DTP_TRY(dtp_select_solve(state->problem->select, options, &r, err));
    p->certificate.nodes += r.nodes;
    if (first) {
        p->certificate.status = r.status;
        p->certificate.bound = r.bound;
        p->cut = options->cutoff > 0 && r.status == DTP_CERT_INFEASIBLE;
    }
    out->found = r.choice != NULL;
    dtp_status s = out->found ? offer_selection(p, r.choice, out, err) : DTP_OK;
    dtp_log(p->request->ctx, DTP_LOG_INFO, "planner", "solved",
            "usage_limit=%" PRId64 " found=%d cost=%" PRId64 " bound=%" PRId64 " usage=%" PRId64
            " over=%" PRId64 " full_cost=%" PRId64 " step_s=%g",
            state->problem->select->usage_limit, out->found, r.value.cost, r.bound, r.value.peak,
            out->over, out->full_cost, out->step_s);
    dtp_select_result_free(&r);
    return s;
}

/* Edges at a part of their full costs. */
static void discount(dtp_select_problem *s, const int64_t *full, double part)
{
    for (int64_t k = 0; k < s->edge_first[s->n_edges]; k++) {
        s->edge_cost[k] =
            full[k] >= DTP_SELECT_FORBIDDEN ? full[k] : (int64_t)(part * (double)full[k]);
    }
}

/* Redistributions at the part of their price that the last timeline did not hide. The solutions
 * are candidates; cost and bound of the certificate are those of the full prices. */
static dtp_status solve_discounted(dtp_planning *p, double exposed, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_select_problem *s = state->problem->select;
    dtp_select_options options = solver_options(p);
    const dtp_certificate kept = p->certificate;
    const int64_t n = s->edge_first[s->n_edges];
    dtp_status status = DTP_OK;
    int64_t *full = malloc(((size_t)n + 1) * sizeof *full);
    if (full == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy of a selection problem");
    }
    memcpy(full, s->edge_cost, (size_t)n * sizeof *full);
    options.iterations = DISCOUNT_NODES;
    options.gap = DISCOUNT_GAP;
    status = start_from_best(p, &options.start, err);
    for (int32_t i = 0; i < MAX_DISCOUNTS && exposed < 1.0 - SETTLED && status == DTP_OK; i++) {
        round_result r;
        discount(s, full, exposed);
        status = solve_once(p, &options, false, &r, err);
        exposed = fabs(r.exposed - exposed) < SETTLED ? 1.0 : r.exposed;
    }
    memcpy(s->edge_cost, full, (size_t)n * sizeof *full);
    free(full);
    p->certificate = kept;
    return status;
}

static dtp_status solve_time(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_select_options options = solver_options(p);
    dtp_status s = DTP_OK;
    options.cutoff = cutoff_of(p);
    DTP_TRY(start_from_best(p, &options.start, err));
    for (int32_t i = 0; i < DTP_MAX_TIGHTENINGS; i++) {
        round_result r;
        DTP_TRY(solve_once(p, &options, i == 0, &r, err));
        if (r.found && r.over <= 0 && p->machine->overlap &&
            p->request->objective == DTP_OBJECTIVE_TIME) {
            s = solve_discounted(p, r.exposed, err);
        }
        if (!r.found || r.over <= 0 || state->problem->select->usage_limit <= r.over) {
            break;
        }
        state->problem->select->usage_limit -= r.over;
        options.iterations = LATER_ITERATIONS;
    }
    state->problem->select->usage_limit = state->usage_limit;
    return s;
}

/* The selection with the least usage; *peak: of its program, a limit that works; 0: none. */
static dtp_status solve_memory(dtp_planning *p, dtp_least_usage *least, int64_t *peak, dtp_err *err)
{
    const tensor_state *state = p->state;
    const dtp_select_options options = solver_options(p);
    DTP_TRY(dtp_least_usage_find(state->problem->select, &options, 0, least, err));
    if (least->choice == NULL) {
        return DTP_OK;
    }
    dtp_select_problem *select = state->problem->select;
    dtp_select_options cheap = options;
    round_result r;
    cheap.start = least->choice;
    select->usage_limit = least->usage;
    dtp_certificate kept = p->certificate;
    dtp_status s = solve_once(p, &cheap, false, &r, err);
    *peak = r.peak;
    p->certificate = kept;
    select->usage_limit = state->usage_limit;
    return s;
}

/* A baseline may need less than what was found. */
static void compare_baselines(const dtp_planning *p, int64_t *smallest)
{
    for (int32_t i = 0; i < p->n_baselines; i++) {
        const dtp_candidate *c = &p->baselines[i];
        const int64_t peak = c->predicted.peak_bytes;
        if (c->legal && keeps_pins(p, c) && (*smallest == 0 || peak < *smallest)) {
            *smallest = peak;
        }
    }
}

/* The candidate that needs least of those that planning with `limit` finds. */
static dtp_status solve_below(const dtp_planning *p, int64_t limit, bool *found, dtp_candidate *out,
                              dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_plan_request request = *p->request;
    tensor_state tight = *state;
    dtp_planning below = *p;
    request.memory_limit_bytes = limit;
    request.objective = DTP_OBJECTIVE_MEMORY;
    tight.usage_limit = limit;
    below.request = &request;
    below.state = &tight;
    below.has_best = false;
    state->problem->select->usage_limit = tight.usage_limit;
    dtp_status s = dtp_planning_offer_rules(&below, err);
    s = s == DTP_OK ? solve_time(&below, err) : s;
    state->problem->select->usage_limit = state->usage_limit;
    *found = below.has_best;
    *out = below.best;
    return s;
}

/* Plans with ever smaller limits from one that works, until nothing is found; what is named as the
 * smallest limit is so that planning with it, or with one byte less, ends as it says. */
static dtp_status step_down(dtp_planning *p, int64_t *smallest, dtp_err *err)
{
    bool found = true;
    const bool any = p->request->objective == DTP_OBJECTIVE_TIME;
    for (int32_t i = 0; i < MAX_STEPS_DOWN && found && !(any && p->has_best); i++) {
        dtp_candidate c;
        DTP_TRY(solve_below(p, *smallest - 1, &found, &c, err));
        if (found) {
            *smallest = c.predicted.peak_bytes;
            dtp_planning_offer(p, &c);
        }
    }
    return DTP_OK;
}

static dtp_status find_least(dtp_planning *p, dtp_err *err)
{
    dtp_least_usage least;
    int64_t smallest = 0;
    DTP_TRY(solve_memory(p, &least, &smallest, err));
    compare_baselines(p, &smallest);
    /* What no solution of the problem needs less than, no program does: then nothing is below. */
    dtp_status s =
        p->rival == NULL && smallest > least.bound ? step_down(p, &smallest, err) : DTP_OK;
    if (p->request->objective == DTP_OBJECTIVE_MEMORY) {
        const bool tight = least.choice != NULL && least.bound == least.usage;
        p->certificate.status = tight ? DTP_CERT_OPTIMAL : DTP_CERT_FEASIBLE;
        p->certificate.bound = least.bound;
    }
    p->out->smallest_bound = p->has_best ? 0 : least.bound;
    p->out->smallest_peak_bytes = p->has_best ? 0 : smallest;
    dtp_least_usage_free(&least);
    return s;
}

static dtp_status solve(dtp_planning *p, dtp_err *err)
{
    const tensor_state *state = p->state;
    p->certificate = (dtp_certificate){.status = DTP_CERT_INFEASIBLE, .solver = "select, folded"};
    if (state->problem == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_planning_offer_rules(p, err));
    DTP_TRY(dtp_planning_offer_baselines(p, err));
    DTP_TRY(solve_time(p, err));
    if (p->cut) {
        return DTP_OK;
    }
    if (p->request->objective == DTP_OBJECTIVE_MEMORY || (!p->has_best && !p->request->brief)) {
        DTP_TRY(find_least(p, err));
    }
    if (!p->has_best) {
        if (p->request->brief) {
            compare_baselines(p, &p->out->smallest_peak_bytes);
            return DTP_OK;
        }
        return explain_conflict(p, err);
    }
    return DTP_OK;
}

/* ---- the plan -----------------------------------------------------------------------------------
 */

static dtp_status copy_settings(const dtp_pin_set *pins, dtp_plan *plan, dtp_err *err)
{
    const size_t n = (size_t)pins->n_settings;
    plan->settings = dtp_arena_alloc(plan->arena, n, sizeof *plan->settings);
    if (plan->settings == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for settings");
    }
    if (n > 0) {
        memcpy(plan->settings, pins->settings, n * sizeof *plan->settings);
    }
    plan->n_settings = pins->n_settings;
    return DTP_OK;
}

static dtp_status find_prices(const dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    const tensor_state *state = p->state;
    const dtp_priced_constraints constraints = {.model = state->base,
                                                .pricer = &p->pricer,
                                                .n_texts = state->pins.n_texts,
                                                .texts = state->pins.texts,
                                                .memory_bytes = p->request->memory_limit_bytes,
                                                .seed = p->request->seed};
    plan->certificate.has_prices = true;
    return dtp_constraint_prices_find(&constraints, p->arena, &plan->certificate.n_prices,
                                      &plan->certificate.prices, err);
}

/* The moves of the program that take other steps than a lowering without the machine would. */
static dtp_status note_moves(const dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    dtp_move_recorder recorder = {.inner = p->best.redistributor, .arena = p->arena};
    const dtp_redistributor recording = dtp_recording_redistributor(&recorder);
    const dtp_lower_options plain = {.redistributor = &recording};
    dtp_program *program = NULL;
    if (recorder.inner == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_lower(p->graph, &plan->sharding, &plain, &program, err));
    dtp_program_destroy(program);
    plan->n_moves = recorder.n;
    plan->moves = recorder.moves;
    return DTP_OK;
}

/* A plan that does not beat the rival is dropped. */
static bool is_wanted(const dtp_planning *p)
{
    return p->rival == NULL || p->best.predicted.step_time_s < p->rival->predicted.step_time_s;
}

/* The bound without folding holds with folding too. */
static dtp_status bound_folding(const dtp_planning *p, dtp_certificate *c, dtp_err *err)
{
    const tensor_state *state = p->state;
    int64_t bound = 0;
    if (!p->request->fold_bound || p->request->objective != DTP_OBJECTIVE_TIME || !is_wanted(p) ||
        !dtp_tensor_is_folded(state->problem)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_tensor_fold_bound(state->problem, c->cost, &bound, err));
    bound = bound < c->cost ? bound : c->cost;
    c->has_unfolded = true;
    c->unfolded_bound = bound > 0 ? bound : 0;
    c->bound = c->unfolded_bound > c->bound ? c->unfolded_bound : c->bound;
    if (c->bound == c->cost && in_space(p, &p->best)) {
        c->status = DTP_CERT_OPTIMAL;
    }
    c->gap = c->cost > 0 ? (double)(c->cost - c->bound) / (double)c->cost : 0.0;
    c->unfolded_gap = c->cost > 0 ? (double)(c->cost - c->unfolded_bound) / (double)c->cost : 0.0;
    return DTP_OK;
}

static dtp_status decide(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    const tensor_state *state = p->state;
    plan->sharding = p->best.sharding;
    for (int32_t t = 0; t < p->graph->n_tensors && !plan->uneven; t++) {
        plan->uneven = !dtp_layout_is_even(&plan->sharding.layouts[t], &plan->mesh,
                                           &p->graph->tensors[t].type);
    }
    for (int32_t i = 0; i < state->pins.n_texts; i++) {
        DTP_TRY(dtp_planning_add_pin(plan, state->pins.texts[i], err));
    }
    DTP_TRY(note_moves(p, plan, err));
    DTP_TRY(bound_folding(p, &plan->certificate, err));
    DTP_TRY(p->request->prices ? find_prices(p, plan, err) : DTP_OK);
    return copy_settings(&state->pins, plan, err);
}

dtp_status dtp_plan_tensor(const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, dtp_plan_result *out, dtp_err *err)
{
    static const dtp_planner planner = {.begin = begin,
                                        .finish = finish,
                                        .solve = solve,
                                        .keeps_pins = keeps_pins,
                                        .in_space = in_space,
                                        .decide = decide};
    return dtp_planning_run(&planner, g, machine, request, out, err);
}
