/* The bound of bound.h in integers. Units: costs, phi and theta in 2^-shift cost units, multipliers
 * of rows in 2^-(shift + MULTIPLIER_BITS) cost units per usage unit, because they are much smaller.
 * The first shift is as large as the largest cost allows (choose_shift). A sum that overflows is
 * noted, and the bound is computed again with fewer binary places; where even none is left the
 * bound is 0. */
#include "planner/solver/reduced/bound.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/safe_int.h"

enum { MULTIPLIER_BITS = 30 }; /* row multipliers have so many further binary places */

typedef struct bounder {
    solver_reduced *w;
    const solver_multipliers *m;
    int32_t shift;
    int64_t *phi;           /* fixed point */
    int64_t *multiplier;    /* by row, and one more: prefix sums */
    int64_t *first;         /* by variable: its strategies in theta */
    int64_t *theta, *least; /* by strategy; by variable */
    int64_t *edge_least;
    int64_t total;
    int32_t asked; /* variable whose strategies are to be told apart; with by_strategy */
    int64_t *by_strategy;
    bool overflow;
} bounder;

/* floor(multiplier * use / 2^MULTIPLIER_BITS) for factors >= 0, from a product of 128 bits. */
static int64_t multiplied(bounder *b, int64_t multiplier, int64_t use)
{
    const uint64_t half = UINT64_C(0xFFFFFFFF);
    const uint64_t x = (uint64_t)multiplier, y = (uint64_t)use;
    const uint64_t low = (x & half) * (y & half);
    const uint64_t mid1 = (x >> 32) * (y & half) + (low >> 32);
    const uint64_t mid2 = (x & half) * (y >> 32) + (mid1 & half);
    const uint64_t high = (x >> 32) * (y >> 32) + (mid1 >> 32) + (mid2 >> 32);
    if (high >> (MULTIPLIER_BITS - 2) != 0) {
        b->overflow = true;
        return 0;
    }
    return (int64_t)(high << (64 - MULTIPLIER_BITS) |
                     ((mid2 << 32 | (low & half)) >> MULTIPLIER_BITS));
}

static int64_t plus(bounder *b, int64_t x, int64_t y)
{
    int64_t sum = 0;
    b->overflow =
        !dtp_add_i64(x, y, &sum) || sum > INT64_MAX / 4 || sum < -INT64_MAX / 4 || b->overflow;
    return sum;
}

static int64_t fixed_point(bounder *b, double value, int32_t bits)
{
    const double scaled = ldexp(value, bits);
    if (!(fabs(scaled) < 2e18)) {
        b->overflow = true;
        return 0;
    }
    return llround(scaled);
}

static int64_t scaled_cost(const bounder *b, int64_t cost)
{
    return cost * (INT64_C(1) << b->shift);
}

/* Entries that alone reach the cutoff are left out of everything. */
static bool excluded(const solver_reduced *w, int64_t cost)
{
    return cost >= w->cutoff - w->constant || cost >= DTP_FORBIDDEN;
}

static void add_edge(bounder *b, int32_t e)
{
    const solver_edge *edge = &b->w->edges[e];
    const int64_t *phi = b->phi + b->m->edge_phi[e];
    const int64_t ku = b->w->variables[edge->u].k, kv = b->w->variables[edge->v].k;
    const int64_t *m = solver_matrix(edge), alone = b->w->cutoff - b->w->constant;
    const int64_t limit = alone < DTP_FORBIDDEN ? alone : DTP_FORBIDDEN;
    int64_t least = INT64_MAX / 4;
    for (int64_t i = 0; i < ku + kv; i++) { /* no sum of three overflows below */
        b->overflow = phi[i] > INT64_MAX / 8 || phi[i] < -INT64_MAX / 8 || b->overflow;
    }
    for (int64_t i = 0; i < ku && !b->overflow; i++) {
        for (int64_t j = 0; j < kv; j++) {
            const int64_t cost = m[i * kv + j];
            const int64_t at = scaled_cost(b, cost < limit ? cost : 0) - phi[i] - phi[ku + j];
            least = cost < limit && at < least ? at : least;
        }
    }
    for (int64_t i = 0; i < ku; i++) {
        int64_t *at = &b->theta[b->first[edge->u] + i];
        *at = plus(b, *at, phi[i]);
    }
    for (int64_t j = 0; j < kv; j++) {
        int64_t *at = &b->theta[b->first[edge->v] + j];
        *at = plus(b, *at, phi[ku + j]);
    }
    b->edge_least[e] = least;
    b->total = plus(b, b->total, least);
}

static void add_variable(bounder *b, int32_t i)
{
    const solver_variable *x = &b->w->variables[i];
    int64_t *theta = b->theta + b->first[i];
    int64_t least = INT64_MAX / 4;
    for (int32_t s = 0; s < x->k; s++) {
        if (excluded(b->w, x->cost[s])) {
            continue;
        }
        theta[s] = plus(b, theta[s], scaled_cost(b, x->cost[s]));
        for (int32_t j = 0; j < x->n_pieces; j++) {
            const solver_piece *piece = &x->pieces[j];
            const int64_t multiplier = b->multiplier[piece->last] - b->multiplier[piece->first];
            theta[s] = plus(b, theta[s], multiplied(b, multiplier, piece->use[s]));
        }
        least = theta[s] < least ? theta[s] : least;
    }
    b->least[i] = least;
    b->total = plus(b, b->total, least);
}

/* ---- fixing ---- */

static dtp_status fix_edge(bounder *b, int32_t e, int64_t room, dtp_err *err)
{
    solver_reduced *w = b->w;
    const solver_edge *edge = &w->edges[e];
    const int64_t *phi = b->phi + b->m->edge_phi[e];
    const int64_t ku = w->variables[edge->u].k, kv = w->variables[edge->v].k;
    int64_t removed = 0;
    for (int64_t i = 0; i < ku; i++) {
        const int64_t above_u = b->theta[b->first[edge->u] + i] - b->least[edge->u];
        for (int64_t j = 0; j < kv; j++) {
            const int64_t cost = solver_matrix(edge)[i * kv + j];
            const int64_t above_v = b->theta[b->first[edge->v] + j] - b->least[edge->v];
            if (cost >= DTP_FORBIDDEN) {
                continue;
            }
            const bool out = excluded(w, cost);
            const int64_t above =
                out ? 0 : scaled_cost(b, cost) - phi[i] - phi[ku + j] - b->edge_least[e];
            if (out || above > room || above_u > room - above || above_v > room - above - above_u) {
                DTP_TRY(solver_own(w, e, err));
                edge->m[i * kv + j] = DTP_FORBIDDEN;
                removed++;
            }
        }
    }
    w->report.filtered_entries += removed;
    return removed > 0 ? solver_touch(w, e, err) : DTP_OK;
}

static dtp_status fix(bounder *b, dtp_err *err)
{
    solver_reduced *w = b->w;
    const bool open = w->cutoff > INT64_MAX / 8 >> b->shift; /* nothing reaches it */
    const int64_t room = open ? INT64_MAX / 2 : scaled_cost(b, w->cutoff - 1) - b->total;
    if (room < 0) {
        w->infeasible = true;
        return DTP_OK;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(fix_edge(b, e, room, err));
        }
    }
    for (int32_t i = 0; i < w->n_variables && !w->infeasible; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t s = 0; x->alive && s < x->k && !w->infeasible; s++) {
            const int64_t above = b->theta[b->first[i] + s] - b->least[i];
            if (!solver_dead(x, s) && (excluded(w, x->cost[s]) || above > room)) {
                DTP_TRY(solver_kill(w, i, s, &w->report.filtered, err));
            }
        }
    }
    return DTP_OK;
}

static int64_t rounded_up(const bounder *b, int64_t total)
{
    const int64_t bound = total > 0 ? dtp_ceil_div(total, INT64_C(1) << b->shift) : 0;
    return bound < b->w->cutoff ? bound : b->w->cutoff;
}

static dtp_status run(bounder *b, bool fixing, dtp_arena *arena, int64_t *bound, dtp_err *err)
{
    solver_reduced *w = b->w;
    int64_t strategies = 0, n_phi = 0;
    DTP_TRY(DTP_NEW(arena, b->first, w->n_variables, err));
    for (int32_t i = 0; i < w->n_variables; i++) {
        b->first[i] = strategies;
        strategies += w->variables[i].alive ? w->variables[i].k : 0;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        n_phi += edge->alive ? w->variables[edge->u].k + w->variables[edge->v].k : 0;
    }
    DTP_TRY(DTP_NEW(arena, b->theta, strategies, err));
    DTP_TRY(DTP_NEW(arena, b->least, w->n_variables, err));
    DTP_TRY(DTP_NEW(arena, b->edge_least, w->n_edges, err));
    DTP_TRY(DTP_NEW(arena, b->multiplier, (int64_t)w->n_rows + 1, err));
    DTP_TRY(DTP_NEW(arena, b->phi, n_phi, err));
    for (int64_t i = 0; i < n_phi; i++) {
        b->phi[i] = fixed_point(b, b->m->phi[i], b->shift);
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        const double lambda = b->m->lambda[r] > 0.0 ? b->m->lambda[r] : 0.0;
        const int64_t multiplier = fixed_point(b, lambda, b->shift + MULTIPLIER_BITS);
        const int64_t room = w->limit - w->base[r];
        b->multiplier[r + 1] = plus(b, b->multiplier[r], multiplier);
        if (multiplier > 0) {
            b->total = plus(b, b->total, -multiplied(b, multiplier, room) - 1);
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            add_edge(b, e);
        }
    }
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive) {
            add_variable(b, i);
        }
    }
    b->total = plus(b, b->total, scaled_cost(b, w->constant));
    if (b->overflow) {
        *bound = 0;
        return DTP_OK;
    }
    *bound = rounded_up(b, b->total);
    const solver_variable *asked = &w->variables[b->asked];
    for (int32_t s = 0; b->by_strategy != NULL && s < asked->k; s++) {
        const bool out = solver_dead(asked, s) || excluded(w, asked->cost[s]);
        const int64_t above = out ? 0 : b->theta[b->first[b->asked] + s] - b->least[b->asked];
        b->by_strategy[s] = out ? w->cutoff : rounded_up(b, b->total + above);
    }
    return fixing ? fix(b, err) : DTP_OK;
}

static int64_t largest_below(const int64_t *cost, int64_t n, int64_t limit, int64_t most)
{
    for (int64_t i = 0; i < n; i++) {
        most = cost[i] > most && cost[i] < limit ? cost[i] : most;
    }
    return most;
}

/* Binary places such that the largest cost that is not excluded takes 50 bits. */
static int32_t choose_shift(const solver_reduced *w)
{
    const int64_t alone = w->cutoff - w->constant;
    const int64_t limit = alone < DTP_FORBIDDEN ? alone : DTP_FORBIDDEN;
    int64_t most = w->constant < 0 ? -w->constant : w->constant;
    int32_t shift = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        most = largest_below(w->variables[i].cost, w->variables[i].alive ? w->variables[i].k : 0,
                             limit, most);
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            const int64_t n = (int64_t)w->variables[edge->u].k * w->variables[edge->v].k;
            most = largest_below(solver_matrix(edge), n, limit, most);
        }
    }
    while (shift < 24 && most < INT64_C(1) << (50 - shift)) {
        shift++;
    }
    return shift;
}

/* By as many binary places as the numbers allow. */
static dtp_status find_bound(const bounder *start, bool fixing, int64_t *bound, dtp_err *err)
{
    solver_reduced *w = start->w;
    bool overflow = true;
    if (w->constant >= w->cutoff) {
        *bound = w->cutoff;
        return DTP_OK;
    }
    for (int32_t shift = choose_shift(w); overflow && shift >= 0; shift -= shift > 8 ? 8 : 1) {
        bounder b = *start;
        b.shift = shift;
        dtp_arena *arena = dtp_arena_create();
        DTP_TRY(DTP_MEMORY(err, arena));
        const dtp_status s = run(&b, fixing, arena, bound, err);
        dtp_arena_destroy(arena);
        DTP_TRY(s);
        overflow = b.overflow;
    }
    return DTP_OK;
}

dtp_status solver_bound(solver_reduced *w, const solver_multipliers *m, bool fix_too,
                        int64_t *bound, dtp_err *err)
{
    const bounder start = {.w = w, .m = m};
    if (w->constant >= w->cutoff) {
        w->infeasible = true;
    }
    return find_bound(&start, fix_too, bound, err);
}

dtp_status solver_bound_strategies(solver_reduced *w, int32_t variable, int64_t *bound,
                                   dtp_err *err)
{
    int64_t all = 0, n_phi = 0;
    const int32_t k = w->variables[variable].k;
    int64_t *edge_phi = calloc((size_t)w->n_edges + 1, sizeof *edge_phi);
    for (int32_t e = 0; edge_phi != NULL && e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        edge_phi[e] = n_phi;
        n_phi += edge->alive ? w->variables[edge->u].k + w->variables[edge->v].k : 0;
    }
    double *phi = calloc((size_t)n_phi + 1, sizeof *phi);
    dtp_status s = DTP_OK;
    if (edge_phi != NULL && phi != NULL) {
        const solver_multipliers m = {.phi = phi, .edge_phi = edge_phi, .lambda = w->multiplier};
        const bounder start = {.w = w, .m = &m, .asked = variable, .by_strategy = bound};
        for (int32_t i = 0; i < k; i++) {
            bound[i] = w->constant >= w->cutoff ? w->cutoff : 0;
        }
        s = find_bound(&start, false, &all, err);
    } else {
        s = DTP_FAIL(err, DTP_NOMEM, "out of memory for multipliers");
    }
    free(edge_phi);
    free(phi);
    return s;
}
