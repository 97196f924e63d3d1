/* The ascent. A round is a sweep up and a sweep down (dual_sweep.c) for the prices as they are,
 * then a step of the prices by exponentiated gradients: lambda_r *= exp(step * excess_r / max
 * |excess|), where excess_r is the usage beyond the room that is expected when every node picks its
 * strategies with probability ~ exp(-theta / temperature), averaged over rounds. Temperature and
 * step fall geometrically over the rounds of a run: early rounds find the level of the prices, late
 * ones the few rows that matter. Prices stay positive, so that any row can come back; the sum of
 * the prices over time makes neighbouring rows, which are nearly the same, share their work. */
#include "planner/solver/dual/dual_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETTLE = 20, EVALUATE_EVERY = 10, FIRST_CYCLE = 1200, LATER_CYCLE = 500 };

/* Temperatures are in units of the bound per node. */
static const double HOT = 1.0, COLD = 1e-4, LARGE_STEP = 1.0, SMALL_STEP = 0.01;
/* Where later cycles begin, on the way from hot to cold. */
static const double REHEAT = 0.5;
/* Where an ascent stays that sel_dual_cool was called for. */
static const double COOL = 0.8;
/* What the prices of all rows together cost at first, as a share of the bound, and the least. */
static const double FIRST_PRICES = 0.01, LEAST_PRICES = 1e-12;
static const double MOMENTUM = 0.7, NORM_DECAY = 0.98;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sum_prices(sel_dual *d)
{
    d->sums[0] = 0.0;
    for (int32_t r = 0; r < d->n_rows; r++) {
        d->sums[r + 1] = d->sums[r] + d->price[r];
    }
}

static void keep_best(sel_dual *d)
{
    const double bound = sel_dual_evaluate(d);
    if (bound > d->best) {
        d->best = bound;
        memcpy(d->best_phi, d->phi, (size_t)d->n_phi * sizeof *d->phi);
        memcpy(d->best_price, d->price, (size_t)d->n_rows * sizeof *d->price);
    }
}

static void settle(sel_dual *d, int32_t rounds)
{
    for (int32_t i = 0; i < rounds; i++) {
        sel_dual_sweep(d, false, false, 0.0);
        sel_dual_sweep(d, true, false, 0.0);
    }
    keep_best(d);
}

/* What the memory-free bound per node is, and small equal prices. */
static void begin(sel_dual *d)
{
    settle(d, SETTLE);
    const double level = fabs(d->best - d->constant) + 1.0;
    d->unit = level / (double)(d->n_nodes > 0 ? d->n_nodes : 1);
    for (int32_t r = 0; r < d->n_rows; r++) {
        d->price[r] = FIRST_PRICES * level / (double)d->n_rows;
    }
    sum_prices(d);
}

static void step_prices(sel_dual *d, double step)
{
    const double floor = LEAST_PRICES * d->unit;
    d->norm *= NORM_DECAY;
    for (int32_t r = 0; r < d->n_rows; r++) {
        d->norm = fabs(d->excess[r]) > d->norm ? fabs(d->excess[r]) : d->norm;
    }
    for (int32_t r = 0; r < d->n_rows && d->norm > 0.0; r++) {
        d->direction[r] = MOMENTUM * d->direction[r] + (1.0 - MOMENTUM) * d->excess[r];
        const double price = d->price[r] * exp(step * d->direction[r] / d->norm);
        d->price[r] = price > floor ? price : floor;
    }
    sum_prices(d);
}

/* 0 = hot, 1 = cold. */
static double progress(int64_t round)
{
    if (round < 0) {
        return COOL;
    }
    if (round < FIRST_CYCLE) {
        return (double)round / FIRST_CYCLE;
    }
    const double later = (double)((round - FIRST_CYCLE) % LATER_CYCLE) / LATER_CYCLE;
    return REHEAT + (1.0 - REHEAT) * later;
}

void sel_dual_run(sel_dual *d, int64_t rounds, double time_limit_s)
{
    const double end = time_limit_s > 0.0 ? now_s() + time_limit_s : (double)INFINITY;
    sum_prices(d);
    if (d->unit <= 0.0) {
        begin(d);
    }
    for (int64_t i = 0; i < rounds && now_s() < end; i++) {
        const double at = progress(d->rounds);
        d->rounds += d->rounds >= 0 ? 1 : 0;
        sel_dual_sweep(d, false, false, 0.0);
        sel_dual_sweep(d, true, true, d->unit * HOT * pow(COLD / HOT, at));
        if (i % EVALUATE_EVERY == 0) {
            keep_best(d);
        }
        step_prices(d, LARGE_STEP * pow(SMALL_STEP / LARGE_STEP, at));
    }
    settle(d, 1);
}

void sel_dual_gather(sel_dual *d)
{
    memcpy(d->phi, d->best_phi, (size_t)d->n_phi * sizeof *d->phi);
    memcpy(d->price, d->best_price, (size_t)d->n_rows * sizeof *d->price);
    sum_prices(d);
    sel_dual_sweep_all(d);
    memcpy(d->best_phi, d->phi, (size_t)d->n_phi * sizeof *d->phi);
}

void sel_dual_cool(sel_dual *d)
{
    d->rounds = d->unit > 0.0 ? -1 : d->rounds;
}

double sel_dual_value(const sel_dual *d)
{
    return d->best;
}
