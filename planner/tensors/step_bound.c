/* A lower bound on the step of every plan of a mesh, under overlap (step_bound.h). */
#include "planner/tensors/step_bound.h"

#include <math.h>
#include <string.h>

#include "planner/problem/overlay.h"
#include "planner/problem/tensors/compute_bound.h"
#include "spmd/lower/lower.h"
#include "spmd/lower/passes/kernel_places.h"
#include "core/transform/regather.h"

enum { MOST_SOLVES = 8, MOST_BRIEF = 4 };

static const double ENOUGH = 0.002;  /* of the bound: what more solves may gain at most, */
static const double BRIEFLY = 0.01;  /* ... of a brief search, */
static const double MIDDLE = 0.5;    /* ... of which this is the second weight */
static const double ROUNDING = 1e-9; /* prices are rounded to picoseconds, one by one */

/* What an assignment takes at least. */
typedef struct line {
    double kernels_ps, sent_ps;
} line;

typedef struct bound_search {
    const dtp_tensor_problem *problem; /* with the prices of bounds */
    dtp_overlay overlay;
    bool *vanishes;   /* by variable: its kernels and what they send may vanish */
    bool *free;       /* by edge: its redistributions may */
    double hidden[2]; /* shares of [0] what is sent, [1] kernels in the two sums */
    double sent;      /* share of the collectives that one lane has at least */
    bool brief;
    int32_t *last; /* by variable: the last solution; the next solve begins with it */
    bool has_last;
    int32_t n_solves;
} bound_search;

/* ---- what programs may do without ---- */

static bool casts_parameter(const dtp_graph *g, dtp_node_id n)
{
    return n >= 0 && (g->nodes[n].op->flags & DTP_OP_CAST) != 0 &&
           g->tensors[g->nodes[n].in[0]].kind == DTP_TENSOR_PARAM;
}

static dtp_status find_savings(bound_search *b, dtp_arena *arena, dtp_err *err)
{
    const dtp_tensor_problem *p = b->problem;
    const dtp_graph *g = p->graph;
    const dtp_target *target = p->pricer->target;
    const bool once = g->microbatches > 1;
    dtp_kernel_places places;
    bool *forgets;
    DTP_TRY(DTP_NEW(arena, b->vanishes, p->n_variables, err));
    DTP_TRY(DTP_NEW(arena, b->free, p->select->n_edges, err));
    DTP_TRY(dtp_kernel_places_find(g, target, arena, &places, err));
    DTP_TRY(dtp_forgotten_find(g, NULL, target, arena, &forgets, err));
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        bool *vanishes = &b->vanishes[p->variable_of_node[n]];
        *vanishes = *vanishes || dtp_kernel_may_vanish(g, target, &g->nodes[n]) ||
                    (target->loss_chunk > 0 && places.merged[n]) || (once && casts_parameter(g, n));
    }
    for (int32_t i = 0; i < p->n_sent; i++) {
        const dtp_sent_tensor *t = &p->sent[i];
        const dtp_graph_tensor *tensor = &g->tensors[t->tensor];
        /* Lowerings without replicas keep copies that the others make again. */
        const bool kept =
            dtp_regather_applies(g, t->tensor) && tensor->copies != DTP_COPIES_AGAIN &&
            (!forgets[t->tensor] || tensor->copies == DTP_COPIES_KEPT ||
             (dtp_graph_param_of(g, t->tensor) < 0 && !tensor->recomputed && !target->regathers));
        b->free[t->edge] = b->free[t->edge] || (kept && t->phase == DTP_BACKWARD) ||
                           (once && casts_parameter(g, tensor->producer));
    }
    return DTP_OK;
}

/* ---- solves ---- */

/* The weighted sum's share of kernels and of what is sent. */
static line weights(const bound_search *b, double w)
{
    return (line){.kernels_ps = w + (1.0 - w) * b->hidden[1],
                  .sent_ps = b->sent * (1.0 - w + w * b->hidden[0])};
}

static dtp_status weigh(bound_search *b, double w, dtp_err *err)
{
    const dtp_tensor_problem *p = b->problem;
    const dtp_problem *s = p->select;
    const line by = weights(b, w);
    int64_t *cost, *edge;
    DTP_TRY(dtp_overlay_costs(&b->overlay, &cost, err));
    DTP_TRY(dtp_overlay_edges(&b->overlay, &edge, err));
    for (int32_t v = 0; v < s->n_variables; v++) {
        for (int64_t k = s->first[v]; k < s->first[v + 1]; k++) {
            const double kernels = (double)p->kernel_ps[k], sent = (double)s->cost[k] - kernels;
            cost[k] = s->cost[k] >= DTP_FORBIDDEN ? DTP_FORBIDDEN
                      : b->vanishes[v]            ? 0
                                       : (int64_t)(by.kernels_ps * kernels + by.sent_ps * sent);
        }
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const double share = b->free[e] ? 0.0 : by.sent_ps;
        const int64_t *full = s->edge_cost + s->edge_first[e];
        int64_t *scaled = edge + b->overlay.problem.edge_first[e];
        const int64_t size = dtp_problem_edge_end(s, e) - s->edge_first[e];
        for (int64_t k = 0; k < size; k++) {
            scaled[k] = full[k] >= DTP_FORBIDDEN ? full[k] : (int64_t)(share * (double)full[k]);
        }
    }
    return DTP_OK;
}

static line line_of(const bound_search *b, const int32_t *assignment)
{
    const dtp_tensor_problem *p = b->problem;
    const dtp_problem *s = p->select;
    line out = {0};
    for (int32_t v = 0; v < s->n_variables; v++) {
        const int64_t k = s->first[v] + assignment[v];
        out.kernels_ps += b->vanishes[v] ? 0.0 : (double)p->kernel_ps[k];
        out.sent_ps += b->vanishes[v] ? 0.0 : (double)(s->cost[k] - p->kernel_ps[k]);
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const int64_t row =
            assignment[s->edge_a[e]] * (int64_t)dtp_problem_n_strategies(s, s->edge_b[e]);
        const int64_t at = s->edge_first[e] + row + assignment[s->edge_b[e]];
        out.sent_ps += b->free[e] ? 0.0 : (double)s->edge_cost[at];
    }
    return out;
}

/* The two sums of a line: at weight 0 and 1. */
static void sums_of(const bound_search *b, line of, double sum[2])
{
    for (int w = 0; w < 2; w++) {
        const line by = weights(b, w);
        sum[w] = by.kernels_ps * of.kernels_ps + by.sent_ps * of.sent_ps;
    }
}

/* One weight. *found: `sum` is that of a solution. */
static dtp_status solve(bound_search *b, const dtp_solve_options *options, double w, double sum[2],
                        bool *found, double *bound_ps, dtp_err *err)
{
    dtp_solve_result r;
    dtp_solve_options from = *options;
    from.start = b->brief && b->has_last ? b->last : NULL;
    DTP_TRY(weigh(b, w, err));
    DTP_TRY(dtp_solve(&b->overlay.problem, &from, &r, err));
    b->n_solves++;
    *bound_ps = fmax(*bound_ps, r.status != DTP_CERT_INFEASIBLE ? (double)r.bound : 0.0);
    *found = r.assignment != NULL;
    if (*found) {
        sums_of(b, line_of(b, r.assignment), sum);
        memcpy(b->last, r.assignment, (size_t)b->problem->n_variables * sizeof *b->last);
        b->has_last = true;
    }
    dtp_solve_result_free(&r);
    return DTP_OK;
}

/* Solutions at weights 0 and 1 are lines above the function; where two of them cross is the next
 * weight. One at MIDDLE mostly rises as well, and is found in less time. */
static dtp_status search(bound_search *b, const dtp_solve_options *options, double *bound_ps,
                         dtp_err *err)
{
    const int32_t most = b->brief ? MOST_BRIEF : MOST_SOLVES;
    const double enough = b->brief ? BRIEFLY : ENOUGH;
    double rises[2], falls[2], w = b->brief ? MIDDLE : 0.0;
    bool found;
    *bound_ps = 0.0;
    DTP_TRY(solve(b, options, 1.0, falls, &found, bound_ps, err));
    if (!found || falls[1] >= falls[0]) {
        return DTP_OK;
    }
    DTP_TRY(solve(b, options, w, rises, &found, bound_ps, err));
    if (found && b->brief && rises[1] <= rises[0]) {
        memcpy(falls, rises, sizeof falls);
        DTP_TRY(solve(b, options, 0.0, rises, &found, bound_ps, err));
    }
    while (found && rises[1] > rises[0] && b->n_solves < most && !dtp_stopped(options->stop)) {
        const double rise = rises[1] - rises[0], fall = falls[0] - falls[1];
        double sum[2];
        w = (falls[0] - rises[0]) / (rise + fall);
        if (!(w > 0.0 && w < 1.0) || rises[0] + w * rise <= *bound_ps * (1.0 + enough)) {
            break;
        }
        DTP_TRY(solve(b, options, w, sum, &found, bound_ps, err));
        double *replaced = sum[1] > sum[0] ? rises : falls;
        replaced[0] = found ? sum[0] : replaced[0];
        replaced[1] = found ? sum[1] : replaced[1];
    }
    return DTP_OK;
}

static dtp_status find(const dtp_tensor_problem *p, const dtp_solve_options *options, bool brief,
                       int64_t *bound_ps, dtp_err *err)
{
    const dtp_slowdown slower = p->pricer->machine->slowdown;
    bound_search b = {.problem = p,
                      .sent = dtp_pricer_lanes(p->pricer) > 1 ? 0.5 : 1.0,
                      .brief = brief,
                      .hidden = {fmin(1.0, slower.comm * (1.0 - 1.0 / slower.compute)),
                                 fmin(1.0, slower.compute * (1.0 - 1.0 / slower.comm))}};
    double ps = 0.0;
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    dtp_overlay_init(p->select, &b.overlay);
    dtp_status s = DTP_NEW(arena, b.last, (size_t)p->n_variables + 1, err);
    s = s == DTP_OK ? find_savings(&b, arena, err) : s;
    s = s == DTP_OK ? search(&b, options, &ps, err) : s;
    *bound_ps = (int64_t)(ps * (1.0 - ROUNDING));
    dtp_overlay_free(&b.overlay);
    dtp_arena_destroy(arena);
    return s;
}

dtp_status dtp_step_bound_find(const dtp_tensor_problem *p, const dtp_solve_options *options,
                               bool brief, int64_t *bound_ps, dtp_err *err)
{
    dtp_machine machine = *p->pricer->machine;
    dtp_pricer pricer = *p->pricer;
    dtp_tensor_options same = p->options;
    dtp_tensor_problem *least = NULL;
    for (int32_t l = 0; l < machine.n_levels; l++) {
        machine.levels[l].latency_s = machine.levels[l].hop_s = 0.0;
        for (int k = 0; k < DTP_N_COLLS; k++) {
            dtp_coll_rate *rate = &machine.levels[l].rates[k];
            rate->start_s = rate->rank_s = rate->ramp_bytes = 0.0;
        }
    }
    pricer.machine = &machine;
    pricer.of_bounds = true;
    same.redistributions = NULL;
    same.memory_bytes = same.memory_bytes > 0 ? p->select->usage_limit : 0;
    *bound_ps = 0;
    DTP_TRY(dtp_tensor_problem_create(p->graph, &pricer, &same, &least, err));
    const dtp_status s = find(least, options, brief, bound_ps, err);
    dtp_tensor_problem_destroy(least);
    return s;
}
