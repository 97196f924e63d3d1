#include "planner/solver/primal/primal_walk.h"

#include <stdlib.h>
#include <string.h>

dtp_status sel_walk_create(const sel_graph *g, const int32_t *choice, uint64_t seed, sel_walk *out,
                           dtp_err *err)
{
    sel_walk w = {.g = g, .random = seed};
    const size_t rows = (size_t)g->n_rows + 1;
    w.choice = calloc((size_t)g->n + 1, sizeof *w.choice);
    w.price = calloc(rows, sizeof *w.price);
    w.price_sum = calloc(rows, sizeof *w.price_sum);
    w.theta = calloc((size_t)g->n_strategies + 1, sizeof *w.theta);
    if (w.choice == NULL || w.price == NULL || w.price_sum == NULL || w.theta == NULL) {
        sel_walk_destroy(&w);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a search over %d nodes", g->n);
    }
    dtp_status s = sel_usage_create(g->n_rows, g->base, &w.usage, err);
    if (s != DTP_OK) {
        sel_walk_destroy(&w);
        return s;
    }
    memcpy(w.price, g->price, (size_t)g->n_rows * sizeof *w.price);
    sel_walk_jump(&w, choice);
    sel_walk_reprice(&w);
    *out = w;
    return DTP_OK;
}

void sel_walk_destroy(sel_walk *w)
{
    free(w->choice);
    free(w->price);
    free(w->price_sum);
    free(w->theta);
    free(w->log);
    sel_usage_destroy(&w->usage);
    *w = (sel_walk){0};
}

int32_t sel_walk_random(sel_walk *w, int32_t n)
{
    return sel_random(&w->random, n);
}

void sel_walk_shuffle(sel_walk *w, int32_t *items, int32_t n)
{
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = sel_walk_random(w, i + 1);
        const int32_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* Adds a cost of the point, or takes it away. */
static void account(sel_walk *w, double cost, int32_t sign)
{
    if (cost >= w->g->forbidden) {
        w->n_forbidden += sign;
    } else {
        w->cost += (double)sign * cost;
    }
}

void sel_walk_jump(sel_walk *w, const int32_t *choice)
{
    const sel_graph *g = w->g;
    memcpy(w->choice, choice, (size_t)g->n * sizeof *choice);
    sel_usage_set(&w->usage, g->base);
    w->cost = 0.0;
    w->n_forbidden = 0;
    for (int32_t i = 0; i < g->n; i++) {
        const sel_vertex *x = &g->nodes[i];
        const int32_t s = choice[i];
        account(w, x->cost[s], 1);
        for (int32_t a = 0; a < x->n_arcs; a++) {
            const sel_arc *arc = &x->arcs[a];
            if (arc->other < i) {
                account(w, arc->m[(int64_t)choice[arc->other] * x->k + s], 1);
            }
        }
        for (int32_t j = 0; j < x->n_spans; j++) {
            if (x->spans[j].use[s] != 0) {
                sel_usage_add(&w->usage, x->spans[j].first, x->spans[j].last, x->spans[j].use[s]);
            }
        }
    }
    sel_walk_mark(w);
}

void sel_walk_mark(sel_walk *w)
{
    w->n_log = 0;
    w->marked_cost = w->cost;
    w->marked_forbidden = w->n_forbidden;
}

static void change(sel_walk *w, int32_t node, int32_t to)
{
    const sel_vertex *x = &w->g->nodes[node];
    const int32_t from = w->choice[node];
    account(w, x->cost[from], -1);
    account(w, x->cost[to], 1);
    for (int32_t a = 0; a < x->n_arcs; a++) {
        const double *line = x->arcs[a].m + (int64_t)w->choice[x->arcs[a].other] * x->k;
        account(w, line[from], -1);
        account(w, line[to], 1);
    }
    for (int32_t j = 0; j < x->n_spans; j++) {
        const sel_span *span = &x->spans[j];
        if (span->use[to] != span->use[from]) {
            sel_usage_add(&w->usage, span->first, span->last, span->use[to] - span->use[from]);
        }
    }
    w->choice[node] = to;
    w->work += 2 * x->n_arcs + 16 * x->n_spans;
}

dtp_status sel_walk_set(sel_walk *w, int32_t node, int32_t strategy, dtp_err *err)
{
    if (strategy == w->choice[node]) {
        return DTP_OK;
    }
    DTP_TRY(dtp_select__reserve(&w->log, (int64_t)w->n_log + 1, &w->cap_log, sizeof *w->log, err));
    w->log[w->n_log++] = (sel_change){node, w->choice[node]};
    change(w, node, strategy);
    return DTP_OK;
}

void sel_walk_undo(sel_walk *w)
{
    for (int32_t i = w->n_log - 1; i >= 0; i--) {
        change(w, w->log[i].node, w->log[i].before);
    }
    w->cost = w->marked_cost;
    w->n_forbidden = w->marked_forbidden;
    w->n_log = 0;
}

bool sel_walk_feasible(const sel_walk *w)
{
    return w->n_forbidden == 0 && sel_usage_peak(&w->usage) <= w->g->limit;
}

static void price_node(const sel_walk *w, int32_t node, double *theta)
{
    const sel_vertex *x = &w->g->nodes[node];
    for (int32_t s = 0; s < x->k; s++) {
        theta[s] = x->cost[s];
    }
    for (int32_t j = 0; j < x->n_spans; j++) {
        const sel_span *span = &x->spans[j];
        const double price = w->price_sum[span->last] - w->price_sum[span->first];
        for (int32_t s = 0; price > 0.0 && s < x->k; s++) {
            theta[s] += price * (double)span->use[s];
        }
    }
}

void sel_walk_reprice(sel_walk *w)
{
    const sel_graph *g = w->g;
    w->price_sum[0] = 0.0;
    for (int32_t r = 0; r < g->n_rows; r++) {
        w->price_sum[r + 1] = w->price_sum[r] + w->price[r];
    }
    for (int32_t i = 0; i < g->n; i++) {
        price_node(w, i, w->theta + g->nodes[i].at);
    }
    w->work += g->n_rows + 3 * g->n_strategies;
}
