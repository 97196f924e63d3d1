/* The ascent. A round is a sweep up and a sweep down (dual_sweep.c) for the multipliers as they
 * are, then a step of the multipliers by exponentiated gradients: lambda_r *= exp(step * excess_r /
 * max |excess|), where excess_r is the usage beyond the room that is expected when every variable
 * picks its strategies with probability ~ exp(-theta / temperature), averaged over rounds.
 * Temperature and step fall geometrically over the rounds of a run: early rounds find the level of
 * the multipliers, late ones the few rows that matter. Multipliers stay positive, so that any row
 * can come back; the sum of the multipliers over time makes neighbouring rows, which are nearly the
 * same, share their work. */
#include "planner/solver/dual/dual_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rounds between two evaluations while the multipliers of rows stay. */
enum { SETTLE_ROUNDS = 4 };

static void sum_multipliers(solver_dual *d)
{
    d->sums[0] = 0.0;
    for (int32_t r = 0; r < d->n_rows; r++) {
        d->sums[r + 1] = d->sums[r] + d->multiplier[r];
    }
}

static void keep_best(solver_dual *d)
{
    const double bound = solver_dual_evaluate(d);
    if (bound > d->best) {
        d->best = bound;
        memcpy(d->best_phi, d->phi, (size_t)d->n_phi * sizeof *d->phi);
        memcpy(d->best_multiplier, d->multiplier, (size_t)d->n_rows * sizeof *d->multiplier);
    }
}

static void settle(solver_dual *d, int32_t rounds)
{
    for (int32_t i = 0; i < rounds; i++) {
        solver_dual_sweep(d, false, false, 0.0);
        solver_dual_sweep(d, true, false, 0.0);
    }
    keep_best(d);
}

void solver_dual_settle(solver_dual *d, int64_t rounds, double least_gain, const dtp_stop *stop)
{
    double gain = INFINITY;
    sum_multipliers(d);
    for (int64_t left = rounds;
         left > 0 && gain >= least_gain * fabs(d->best) && !dtp_stopped(stop);
         left -= SETTLE_ROUNDS) {
        const double before = d->best;
        settle(d, left < SETTLE_ROUNDS ? (int32_t)left : SETTLE_ROUNDS);
        gain = d->best - before;
    }
    if (rounds <= 0) {
        settle(d, 0);
    }
}

static void step_multipliers(solver_dual *d, double step)
{
    const dtp_solver_parameters *c = d->parameters;
    const double floor = c->dual_least_multiplier * d->unit;
    d->norm *= c->dual_norm_decay;
    for (int32_t r = 0; r < d->n_rows; r++) {
        d->norm = fabs(d->excess[r]) > d->norm ? fabs(d->excess[r]) : d->norm;
    }
    for (int32_t r = 0; r < d->n_rows && d->norm > 0.0; r++) {
        d->direction[r] =
            c->dual_momentum * d->direction[r] + (1.0 - c->dual_momentum) * d->excess[r];
        const double multiplier = d->multiplier[r] * exp(step * d->direction[r] / d->norm);
        d->multiplier[r] = multiplier > floor ? multiplier : floor;
    }
    sum_multipliers(d);
}

/* 0 = hot, 1 = cold. */
static double progress(const dtp_solver_parameters *c, int64_t round)
{
    if (round < 0) {
        return c->dual_cool;
    }
    if (round < c->dual_first_cycle) {
        return (double)round / c->dual_first_cycle;
    }
    const double later =
        (double)((round - c->dual_first_cycle) % c->dual_later_cycle) / c->dual_later_cycle;
    return c->dual_reheat + (1.0 - c->dual_reheat) * later;
}

void solver_dual_run(solver_dual *d, int64_t rounds, const dtp_stop *stop)
{
    const dtp_solver_parameters *c = d->parameters;
    sum_multipliers(d);
    if (d->unit <= 0.0) { /* what the memory-free bound per variable is, small equal multipliers */
        settle(d, c->dual_settle);
        const double level = fabs(d->best - d->constant) + 1.0;
        d->unit = level / (double)(d->n_variables > 0 ? d->n_variables : 1);
        for (int32_t r = 0; r < d->n_rows; r++) {
            d->multiplier[r] = c->dual_first_multipliers * level / (double)d->n_rows;
        }
        sum_multipliers(d);
    }
    for (int64_t i = 0; i < rounds && !dtp_stopped(stop); i++) {
        const double at = progress(c, d->rounds);
        d->rounds += d->rounds >= 0 ? 1 : 0;
        solver_dual_sweep(d, false, false, 0.0);
        solver_dual_sweep(d, true, true,
                          d->unit * c->dual_hot * pow(c->dual_cold / c->dual_hot, at));
        if (i % c->dual_evaluate_every == 0) {
            keep_best(d);
        }
        step_multipliers(d, c->dual_large_step * pow(c->dual_small_step / c->dual_large_step, at));
    }
    settle(d, 1);
}

void solver_dual_cool(solver_dual *d)
{
    d->rounds = d->unit > 0.0 ? -1 : d->rounds;
}

double solver_dual_value(const solver_dual *d)
{
    return d->best;
}
