#include "planner/untied/tying_bound.h"

enum { MAX_ROUNDS = 20, PRICE_ROUNDS = 1700 };

/* Entries of matrices that an ascent over all instances looks at, about. */
static const int64_t MOST_ENTRIES = 4000000000;
/* A distance between cost and bound, as a share, that needs no prices of times. */
static const double CLOSE = 5e-4;

bool dtp_tensor_is_tied(const dtp_tensor_problem *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_variables; i++) {
        n += p->variables[i].kind == DTP_DECIDE_OP ? 1 : 0;
    }
    return n < p->graph->n_nodes;
}

/* A round looks at every edge of every instance twice. */
static int32_t affordable_rounds(const dtp_tensor_problem *p)
{
    const dtp_problem *s = p->select;
    int64_t entries = 1;
    for (int32_t e = 0; e < s->n_edges; e++) {
        entries += 2 * p->edge_count[e] * (dtp_problem_edge_end(s, e) - s->edge_first[e]);
    }
    const int64_t rounds = MOST_ENTRIES / entries;
    return rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : (int32_t)rounds;
}

static dtp_status bound_with_prices(const dtp_tensor_problem *p, int32_t rounds, dtp_arena *arena,
                                    dtp_tying_bound *out, dtp_err *err)
{
    int64_t better = 0;
    DTP_TRY(
        dtp_memory_multipliers(p->select, PRICE_ROUNDS, arena, &out->n_prices, &out->prices, err));
    if (out->n_prices > 0) {
        DTP_TRY(dtp_untied_bound(p, rounds, out->n_prices, out->prices, &better, err));
    }
    out->bound = better > out->bound ? better : out->bound;
    return DTP_OK;
}

dtp_status dtp_tying_bound_find(const dtp_tensor_problem *p, int64_t cost, dtp_arena *arena,
                                dtp_tying_bound *out, dtp_err *err)
{
    const int32_t rounds = affordable_rounds(p);
    *out = (dtp_tying_bound){0};
    DTP_TRY(dtp_untied_bound(p, rounds, 0, NULL, &out->bound, err));
    return p->options.memory_bytes <= 0 || (double)(cost - out->bound) <= CLOSE * (double)cost
               ? DTP_OK
               : bound_with_prices(p, rounds, arena, out, err);
}
