/* Strong branching: a few rounds of ascent in both halves of every candidate. Candidates are
 *   - variables with large matrix costs (mean over the neighbour's strategies) whose two strategies
 *     of least penalised cost are close: split into the least one and the others;
 *   - variables that may use much or little where usage has a multiplier: split into large and
 *     small usage. The relaxation mixes both, and only the two halves together rule the mixture
 *     out.
 */
#include "planner/solver/dual/dual_split.h"

#include <math.h>
#include <stdlib.h>

#include "planner/solver/dual/dual.h"
#include "planner/solver/reduced/copy.h"

typedef struct candidate {
    double score;
    solver_split split;
} candidate;

void solver_multiplier_sums(const solver_reduced *w, double *sums)
{
    sums[0] = 0.0;
    for (int32_t r = 0; r < w->n_rows; r++) {
        sums[r + 1] = sums[r] + w->multiplier[r];
    }
}

void solver_penalised_costs(const solver_reduced *w, const double *sums, int32_t variable,
                            double *theta)
{
    const solver_variable *x = &w->variables[variable];
    for (int32_t s = 0; s < x->k; s++) {
        theta[s] = (double)x->cost[s];
    }
    for (int32_t j = 0; j < x->n_pieces; j++) {
        const solver_piece *piece = &x->pieces[j];
        const double multiplier = sums[piece->last] - sums[piece->first];
        for (int32_t s = 0; s < x->k; s++) {
            theta[s] += multiplier * (double)piece->use[s];
        }
    }
}

dtp_status solver_dual_relax(solver_reduced *w, int64_t rounds, const dtp_stop *stop,
                             int64_t *bound, dtp_err *err)
{
    solver_dual *d = NULL;
    DTP_TRY(solver_dual_create(w, &d, err));
    solver_dual_cool(d);
    solver_dual_run(d, rounds, stop);
    const dtp_status s = solver_dual_apply(d, w, w->options.incumbent_filter, bound, err);
    solver_dual_destroy(d);
    return s;
}

/* Mean cost of the matrices of a variable, a forbidden pair counting as `room`. */
static double weight(const solver_reduced *w, int32_t variable, double room)
{
    const solver_variable *x = &w->variables[variable];
    double sum = 0.0;
    for (int32_t i = 0; i < x->n_adj; i++) {
        const solver_edge *e = &w->edges[x->adj[i]];
        if (!e->alive || (e->u != variable && e->v != variable)) {
            continue;
        }
        const int64_t n = (int64_t)w->variables[e->u].k * w->variables[e->v].k;
        double mean = 0.0;
        for (int64_t at = 0; at < n; at++) {
            const int64_t cost = solver_matrix(e)[at];
            mean += cost < DTP_FORBIDDEN ? (double)cost : room;
        }
        sum += mean / (double)n;
    }
    return sum;
}

int32_t solver_dual_cheapest(const solver_variable *x, const double *theta, double *lead)
{
    double least = INFINITY, second = INFINITY;
    int32_t best = 0;
    for (int32_t s = 0; s < x->k; s++) {
        if (solver_dead(x, s)) {
            continue;
        }
        if (theta[s] < least) {
            second = least;
            least = theta[s];
            best = s;
        } else if (theta[s] < second) {
            second = theta[s];
        }
    }
    *lead = second - least;
    return best;
}

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int by_score = (x->score < y->score) - (x->score > y->score);
    return by_score != 0
               ? by_score
               : (x->split.variable > y->split.variable) - (x->split.variable < y->split.variable);
}

static int32_t largest_k(const solver_reduced *w)
{
    int32_t most = 1;
    for (int32_t i = 0; i < w->n_variables; i++) {
        most = w->variables[i].alive && w->variables[i].k > most ? w->variables[i].k : most;
    }
    return most;
}

dtp_status solver_dual_choice(const solver_reduced *w, int32_t *assignment, dtp_err *err)
{
    double lead;
    double *sums = malloc(((size_t)w->n_rows + 1) * sizeof *sums);
    double *theta = malloc((size_t)largest_k(w) * sizeof *theta);
    const bool ok = sums != NULL && theta != NULL;
    if (ok) {
        solver_multiplier_sums(w, sums);
    }
    for (int32_t i = 0; ok && i < w->n_variables; i++) {
        if (w->variables[i].alive) {
            solver_penalised_costs(w, sums, i, theta);
            assignment[i] = solver_dual_cheapest(&w->variables[i], theta, &lead);
        }
    }
    free(sums);
    free(theta);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", w->n_variables);
}

/* Of the variables with an assignment; sorted, best first. */
static int32_t find_candidates(const solver_reduced *w, double room, const double *sums,
                               double *theta, candidate *list)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        if (x->alive && x->n_live > 1) {
            double lead;
            solver_penalised_costs(w, sums, i, theta);
            const int32_t best = solver_dual_cheapest(x, theta, &lead);
            const double score =
                weight(w, i, room) / (1.0 + lead / (w->parameters->split_close * room));
            list[n++] = (candidate){score, {i, best, -1, 0}};
        }
    }
    qsort(list, (size_t)n, sizeof *list, compare_candidates);
    return n;
}

bool solver_split_has(const solver_reduced *w, const solver_split *split, int32_t strategy)
{
    return split->piece < 0
               ? strategy == split->strategy
               : w->variables[split->variable].pieces[split->piece].use[strategy] >= split->use;
}

/* The piece of a variable with the greatest multiplier between the usages of its strategies, of
 * those that lie within the room; score 0 without one. */
static candidate most_usage(const solver_reduced *w, int32_t variable, double room,
                            const double *sums, const double *theta)
{
    const solver_variable *x = &w->variables[variable];
    double lead;
    const int32_t best = solver_dual_cheapest(x, theta, &lead);
    candidate found = {0.0, {variable, best, -1, 0}};
    for (int32_t i = 0; i < x->n_pieces; i++) {
        const solver_piece *piece = &x->pieces[i];
        const int64_t own = piece->use[best];
        int64_t least = own, most = own;
        for (int32_t s = 0; s < x->k; s++) {
            if (!solver_dead(x, s) && theta[s] - theta[best] <= room) {
                least = piece->use[s] < least ? piece->use[s] : least;
                most = piece->use[s] > most ? piece->use[s] : most;
            }
        }
        const double score = (sums[piece->last] - sums[piece->first]) * (double)(most - least);
        if (score > found.score) {
            found = (candidate){score, {variable, best, i, least + (most - least + 1) / 2}};
        }
    }
    return found;
}

/* Of the variables with an assignment; sorted, best first. */
static int32_t find_usages(const solver_reduced *w, double room, const double *sums, double *theta,
                           candidate *list)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive && w->variables[i].n_live > 1) {
            solver_penalised_costs(w, sums, i, theta);
            list[n] = most_usage(w, i, room, sums, theta);
            n += list[n].score > 0.0 ? 1 : 0;
        }
    }
    qsort(list, (size_t)n, sizeof *list, compare_candidates);
    return n;
}

/* A half after a few rounds: how far its bound is above that of w, as a share of the room. */
static dtp_status look(const solver_reduced *w, const solver_split *split, bool keep, double bound,
                       double room, double *gain, dtp_err *err)
{
    solver_reduced *half = NULL;
    solver_dual *d = NULL;
    int64_t killed = 0;
    *gain = 1.0;
    DTP_TRY(solver_copy(w, &half, err));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < w->variables[split->variable].k && s == DTP_OK && !half->infeasible;
         i++) {
        if (solver_split_has(w, split, i) != keep &&
            !solver_dead(&half->variables[split->variable], i)) {
            s = solver_kill(half, split->variable, i, &killed, err);
        }
    }
    s = s == DTP_OK && !half->infeasible ? solver_propagate(half, err) : s;
    if (s == DTP_OK && !half->infeasible) {
        s = solver_compact(half, err);
    }
    if (s == DTP_OK && !half->infeasible) {
        s = solver_dual_create(half, &d, err);
    }
    if (d != NULL) {
        solver_dual_cool(d);
        solver_dual_run(d, w->parameters->split_look_rounds, NULL);
        const double share = (solver_dual_value(d) - bound) / room;
        *gain = share > 1.0 ? 1.0 : share > 0.0 ? share : 0.0;
    }
    solver_dual_destroy(d);
    solver_reduced_destroy(half);
    return s;
}

/* Of mixtures as dear as the room itself the dearest that neither half rules out by itself: only
 * once all of them are taken apart do the bounds rise. Else by both gains. */
static dtp_status choose(const solver_reduced *w, const candidate *list, int32_t n, double bound,
                         double room, candidate *best, dtp_err *err)
{
    const dtp_solver_parameters *p = w->parameters;
    for (int32_t i = 0; i < n && best->score < 2.0; i++) {
        const candidate *c = &list[i];
        double with = 0.0, without = 0.0;
        DTP_TRY(look(w, &c->split, true, bound, room, &with, err));
        DTP_TRY(look(w, &c->split, false, bound, room, &without, err));
        const bool open = with < p->split_open && without < p->split_open;
        const double score = c->split.piece >= 0 && open && c->score > p->split_open * room
                                 ? 2.0 + c->score / room
                                 : (with + p->split_least_gain) * (without + p->split_least_gain);
        if (score > best->score) {
            best->split = c->split;
            best->score = score;
        }
    }
    return DTP_OK;
}

dtp_status solver_dual_split(const solver_reduced *w, int64_t bound, int32_t candidates,
                             solver_split *out, dtp_err *err)
{
    const double room = 1.0 + fabs(w->cutoff < DTP_FORBIDDEN ? (double)w->cutoff - (double)bound
                                                             : 0.1 * (double)bound);
    candidate best = {.score = -1.0};
    double *sums = malloc(((size_t)w->n_rows + 1) * sizeof *sums);
    double *theta = malloc((size_t)largest_k(w) * sizeof *theta);
    candidate *list = malloc(((size_t)w->n_variables + 1) * sizeof *list);
    dtp_status s = DTP_OK;
    if (sums != NULL && theta != NULL && list != NULL) {
        solver_multiplier_sums(w, sums);
        const int32_t use = find_usages(w, room, sums, theta, list);
        s = choose(w, list, use < candidates / 2 ? use : candidates / 2, (double)bound, room, &best,
                   err);
        const int32_t left = candidates - (use < candidates / 2 ? use : candidates / 2);
        const int32_t n = find_candidates(w, room, sums, theta, list);
        s = s == DTP_OK ? choose(w, list, n < left ? n : left, (double)bound, room, &best, err) : s;
    } else {
        s = DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", w->n_variables);
    }
    free(sums);
    free(theta);
    free(list);
    *out = best.split;
    return s;
}
