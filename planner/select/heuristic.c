/* Sweeps of 1-exchanges under a penalised cost,
 *   cost + pair_price * (forbidden pairs) + sum over the rows of row_price[r] * (usage beyond
 * limit), the prices rising where a sweep leaves something violated, per row of time. Solutions
 * that violate nothing are kept; then the prices fall again, so that the search comes back to the
 * border from the other side. */
#include "planner/select/heuristic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct search {
    const sel_work *w;
    int32_t *choice, *order;
    int32_t n;     /* nodes in order */
    int64_t *used; /* by row */
    double *row_price;
    double pair_price;
    double *cost; /* scratch, by strategy */
    int32_t *best;
    int64_t best_cost;
    uint64_t random;
} search;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sel_cheapest(const sel_work *w, int32_t *choice)
{
    for (int32_t i = 0; i < w->n_nodes; i++) {
        const sel_node *x = &w->nodes[i];
        for (int32_t s = x->alive ? (choice[i] = 0) : x->k; s < x->k; s++) {
            choice[i] = x->cost[s] < x->cost[choice[i]] ? s : choice[i];
        }
    }
}

static void change_usage(search *h, const sel_node *x, int32_t s, int64_t sign)
{
    for (int32_t j = 0; j < x->n_pieces; j++) {
        const sel_piece *piece = &x->pieces[j];
        for (int32_t r = piece->first; piece->use[s] != 0 && r < piece->last; r++) {
            h->used[r] += sign * piece->use[s];
        }
    }
}

/* Penalty of using s, with x itself taken out of h->used; stops once it reaches `most`. */
static double usage_penalty(const search *h, const sel_node *x, int32_t s, double most)
{
    double sum = 0.0;
    for (int32_t j = 0; j < x->n_pieces && sum < most; j++) {
        const sel_piece *piece = &x->pieces[j];
        for (int32_t r = piece->first; piece->use[s] != 0 && r < piece->last; r++) {
            const int64_t room = h->w->limit - h->used[r];
            const int64_t over = piece->use[s] - (room > 0 ? room : 0);
            sum += over > 0 ? h->row_price[r] * (double)over : 0.0;
        }
    }
    return sum;
}

/* What every strategy of x costs with its edges, penalties for forbidden pairs included. */
static void price_strategies(search *h, int32_t node)
{
    const sel_work *w = h->w;
    const sel_node *x = &w->nodes[node];
    for (int32_t s = 0; s < x->k; s++) {
        h->cost[s] = (double)x->cost[s];
    }
    for (int32_t i = 0; i < x->n_adj; i++) {
        const sel_edge *e = &w->edges[x->adj[i]];
        if (!e->alive || (e->u != node && e->v != node)) {
            continue;
        }
        const sel_view v = sel_view_from(w, x->adj[i], node);
        const int64_t *column = v.m + h->choice[v.other] * v.col;
        for (int32_t s = 0; s < x->k; s++) {
            const int64_t at = column[s * v.row];
            h->cost[s] += at >= DTP_SELECT_FORBIDDEN ? h->pair_price : (double)at;
        }
    }
}

/* Moves x to its best strategy; true when that changed it. */
static bool improve_node(search *h, int32_t node)
{
    const sel_node *x = &h->w->nodes[node];
    const int32_t old = h->choice[node];
    price_strategies(h, node);
    change_usage(h, x, old, -1);
    double least = h->cost[old] + usage_penalty(h, x, old, INFINITY);
    int32_t best = old;
    for (int32_t s = 0; s < x->k; s++) {
        if (s == old || sel_dead(x, s) || h->cost[s] >= least) {
            continue;
        }
        const double at = h->cost[s] + usage_penalty(h, x, s, least - h->cost[s]);
        if (at < least) {
            least = at;
            best = s;
        }
    }
    h->choice[node] = best;
    change_usage(h, x, best, 1);
    return best != old;
}

/* Cost of the choice, at least DTP_SELECT_FORBIDDEN with a forbidden pair or too much usage. */
static int64_t evaluate(const search *h)
{
    const sel_work *w = h->w;
    int64_t sum = w->constant;
    for (int32_t r = 0; r < w->n_rows; r++) {
        if (h->used[r] > w->limit) {
            return DTP_SELECT_FORBIDDEN;
        }
    }
    for (int32_t i = 0; i < w->n_nodes; i++) {
        const sel_node *x = &w->nodes[i];
        sum = x->alive ? dtp_select_add_cost(sum, x->cost[h->choice[i]]) : sum;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const sel_edge *edge = &w->edges[e];
        if (edge->alive) {
            const int64_t row = h->choice[edge->u];
            sum = dtp_select_add_cost(
                sum, sel_matrix(edge)[row * w->nodes[edge->v].k + h->choice[edge->v]]);
        }
    }
    return sum;
}

static bool any_forbidden_pair(const search *h)
{
    const sel_work *w = h->w;
    for (int32_t e = 0; e < w->n_edges; e++) {
        const sel_edge *edge = &w->edges[e];
        if (edge->alive &&
            sel_matrix(
                edge)[(int64_t)h->choice[edge->u] * w->nodes[edge->v].k + h->choice[edge->v]] >=
                DTP_SELECT_FORBIDDEN) {
            return true;
        }
    }
    return false;
}

/* Another order for the next round, by a linear congruential generator. */
static void shuffle(search *h)
{
    for (int32_t i = h->n - 1; i > 0; i--) {
        h->random = h->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int32_t j = (int32_t)((h->random >> 33) % (uint64_t)(i + 1));
        const int32_t kept = h->order[i];
        h->order[i] = h->order[j];
        h->order[j] = kept;
    }
}

static void adjust_prices(search *h, bool feasible)
{
    for (int32_t r = 0; r < h->w->n_rows; r++) {
        h->row_price[r] *= feasible ? 0.5 : h->used[r] > h->w->limit ? 1.6 : 1.0;
    }
    if (!feasible && any_forbidden_pair(h)) {
        h->pair_price *= 2.0;
    }
}

static void run(search *h, const sel_search *options)
{
    const double end =
        options->time_limit_s > 0.0 ? now_s() + options->time_limit_s : (double)INFINITY;
    for (int64_t round = 0; round < options->rounds && now_s() < end; round++) {
        bool moved = true;
        for (int32_t sweep = 0; sweep < 12 && moved && (sweep == 0 || now_s() < end); sweep++) {
            moved = false;
            for (int32_t i = 0; i < h->n; i++) {
                moved = improve_node(h, h->order[i]) || moved;
            }
        }
        const int64_t cost = evaluate(h);
        if (cost < h->best_cost) {
            h->best_cost = cost;
            memcpy(h->best, h->choice, (size_t)h->w->n_nodes * sizeof *h->best);
        }
        adjust_prices(h, cost < DTP_SELECT_FORBIDDEN);
        shuffle(h);
    }
}

static dtp_status allocate(search *h, dtp_err *err)
{
    const size_t nodes = (size_t)h->w->n_nodes + 1, rows = (size_t)h->w->n_rows + 1;
    size_t k = 1;
    for (int32_t i = 0; i < h->w->n_nodes; i++) {
        k = (size_t)h->w->nodes[i].k > k ? (size_t)h->w->nodes[i].k : k;
    }
    h->order = malloc(nodes * sizeof *h->order);
    h->best = malloc(nodes * sizeof *h->best);
    h->used = malloc(rows * sizeof *h->used);
    h->row_price = malloc(rows * sizeof *h->row_price);
    h->cost = malloc(k * sizeof *h->cost);
    return h->order != NULL && h->best != NULL && h->used != NULL && h->row_price != NULL &&
                   h->cost != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a search over %zu nodes", nodes);
}

static void begin(search *h)
{
    const sel_work *w = h->w;
    const int64_t bound = sel_lower_bound(w);
    const bool capped = bound < 1 && w->cutoff < DTP_SELECT_FORBIDDEN;
    const double scale = fabs((double)(capped ? w->cutoff : bound)) + 1.0;
    memcpy(h->used, w->base, (size_t)w->n_rows * sizeof *h->used);
    for (int32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].alive) {
            h->order[h->n++] = i;
            change_usage(h, &w->nodes[i], h->choice[i], 1);
        }
    }
    for (int32_t r = 0; r < w->n_rows; r++) {
        h->row_price[r] = 0.01 * scale / ((double)w->limit + 1.0);
    }
    h->pair_price = 0.05 * scale;
    h->best_cost = DTP_SELECT_FORBIDDEN;
}

dtp_status sel_improve(const sel_work *w, const sel_search *options, int32_t *choice, bool *found,
                       dtp_err *err)
{
    search h = {.w = w, .choice = choice, .random = options->seed};
    dtp_status s = allocate(&h, err);
    *found = false;
    if (s == DTP_OK) {
        begin(&h);
        run(&h, options);
        *found = h.best_cost < DTP_SELECT_FORBIDDEN;
        if (*found) {
            memcpy(choice, h.best, (size_t)w->n_nodes * sizeof *choice);
        }
    }
    free(h.order);
    free(h.best);
    free(h.used);
    free(h.row_price);
    free(h.cost);
    return s;
}
