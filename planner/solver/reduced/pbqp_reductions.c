/* Exact elimination of a variable of degree 0, 1 or 2 whose strategies use the same memory: its
 * best answer to every assignment of its neighbours becomes their cost. */
#include "planner/solver/reduced/presolve_internal.h"

#include <stdlib.h>

/* The best strategies of x for i across a and every j across b, and what they cost. b_rows: the
 * matrix of b, a row of kb entries per strategy of x. */
static void best_answers(const solver_variable *x, const solver_view *a, int32_t i,
                         const int64_t *b_rows, int32_t kb, int32_t *table, int64_t *cost)
{
    for (int32_t j = 0; j < kb; j++) {
        table[j] = 0;
        cost[j] = DTP_FORBIDDEN;
    }
    for (int32_t s = 0; s < x->k; s++) {
        const int64_t *b = b_rows + (int64_t)s * kb;
        const int64_t with_i = a->m != NULL
                                   ? dtp_problem_add_cost(x->cost[s], a->m[s * a->row + i * a->col])
                                   : x->cost[s];
        for (int32_t j = 0; j < kb; j++) {
            const int64_t sum = dtp_problem_add_cost(with_i, b[j]);
            table[j] = sum < cost[j] ? s : table[j];
            cost[j] = sum < cost[j] ? sum : cost[j];
        }
    }
}

/* The table of best answers goes to the undo records; their costs go to the constant, to the
 * neighbour, or to the edge between both neighbours. */
static dtp_status eliminate(solver_reduced *w, int32_t x, int32_t degree, dtp_err *err)
{
    const int32_t *adj = w->variables[x].adj;
    const solver_view none = {.other = -1};
    const solver_view a = degree > 0 ? solver_view_from(w, adj[0], x) : none;
    const solver_view b = degree > 1 ? solver_view_from(w, adj[1], x) : none;
    const int32_t ka = degree > 0 ? w->variables[a.other].k : 1;
    const int32_t kb = degree > 1 ? w->variables[b.other].k : 1;
    const size_t n = (size_t)ka * (size_t)kb;
    int32_t *table = dtp_arena_alloc(w->arena, n, sizeof *table);
    const int32_t k = w->variables[x].k;
    int64_t *m = malloc(n * sizeof *m), *b_rows = calloc((size_t)k * (size_t)kb, sizeof *b_rows);
    if (table == NULL || m == NULL || b_rows == NULL) {
        free(m);
        free(b_rows);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a matrix of %d x %d", ka, kb);
    }
    for (int64_t at = 0; degree > 1 && at < (int64_t)k * kb; at++) {
        b_rows[at] = b.m[at / kb * b.row + at % kb * b.col];
    }
    for (int32_t i = 0; i < ka; i++) {
        const int64_t at = (int64_t)i * kb;
        best_answers(&w->variables[x], &a, i, b_rows, kb, table + at, m + at);
    }
    free(b_rows);
    if (degree == 0) {
        w->constant = dtp_problem_add_cost(w->constant, m[0]);
        w->infeasible = w->infeasible || w->constant >= DTP_FORBIDDEN;
    }
    dtp_status s = DTP_OK;
    for (int32_t i = 0; degree == 1 && i < ka && s == DTP_OK; i++) {
        s = solver_add_cost(w, a.other, i, m[i], err);
    }
    s = s == DTP_OK ? solver_add_undo(w, (solver_undo){x, a.other, b.other, kb, table, 0}, err) : s;
    if (s != DTP_OK || degree < 2) {
        free(m);
        m = NULL;
    }
    DTP_TRY(s);
    for (int32_t i = 0; i < w->variables[x].n_adj; i++) {
        solver_drop_edge(w, w->variables[x].adj[i]);
    }
    solver_free_variable(&w->variables[x]);
    w->report.eliminated_variables++;
    return m != NULL ? solver_add_matrix(w, a.other, b.other, m, err) : DTP_OK;
}

dtp_status solver_eliminate(solver_reduced *w, dtp_err *err)
{
    for (int32_t x = 0;
         x < w->n_variables && w->options.pbqp && !w->infeasible && !dtp_stopped(w->stop); x++) {
        const solver_variable *variable = &w->variables[x];
        if (!variable->alive || variable->memory_changed || variable->n_pieces > 0) {
            continue;
        }
        const int32_t degree = solver_purge(w, x);
        bool small = degree < 2;
        if (degree == 2) {
            const solver_view a = solver_view_from(w, variable->adj[0], x);
            const solver_view b = solver_view_from(w, variable->adj[1], x);
            const int64_t n = (int64_t)w->variables[a.other].k * w->variables[b.other].k;
            small = n <= w->parameters->pbqp_table && n * variable->k <= w->parameters->pbqp_work;
        }
        if (small) {
            DTP_TRY(eliminate(w, x, degree, err));
        }
    }
    return DTP_OK;
}
