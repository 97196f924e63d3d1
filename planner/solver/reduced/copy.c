/* Copies of a reduced problem that can be reduced further. */
#include "planner/solver/reduced/copy.h"

#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = calloc(bytes + 1, 1);
    if (copy != NULL && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    return copy;
}

static dtp_status copy_variable(solver_reduced *to, const solver_reduced *w, int32_t i,
                                dtp_err *err)
{
    const solver_variable *x = &w->variables[i];
    solver_variable *y = &to->variables[i];
    const size_t bytes = (size_t)x->k * sizeof *x->cost;
    if (!x->alive) {
        return DTP_OK;
    }
    *y = (solver_variable){.k = x->k, .alive = true, .changed = true};
    y->cost = copy_of(x->cost, bytes);
    DTP_TRY(DTP_MEMORY(err, y->cost));
    for (int32_t t = 0; t < x->k; t++) {
        y->n_live += solver_dead(y, t) ? 0 : 1;
    }
    for (int32_t j = 0; j < x->n_pieces; j++) {
        int64_t *use = copy_of(x->pieces[j].use, bytes);
        DTP_TRY(DTP_MEMORY(err, use));
        DTP_TRY(solver_add_piece(to, i, x->pieces[j].first, x->pieces[j].last, use, err));
    }
    return DTP_OK;
}

/* All but the variables and edges. */
static dtp_status copy_rest(solver_reduced *to, const solver_reduced *w, dtp_err *err)
{
    *to = (solver_reduced){.p = w->p,
                           .n_variables = w->n_variables,
                           .n_rows = w->n_rows,
                           .limit = w->limit,
                           .unit = w->unit,
                           .ascended = w->ascended,
                           .constant = w->constant,
                           .cutoff = w->cutoff,
                           .stop = w->stop,
                           .infeasible = w->infeasible,
                           .options = w->options,
                           .parameters = w->parameters};
    to->arena = dtp_arena_create();
    to->variables = calloc((size_t)w->n_variables + 1, sizeof *to->variables);
    to->time = copy_of(w->time, (size_t)w->n_rows * sizeof *w->time);
    to->base = copy_of(w->base, (size_t)w->n_rows * sizeof *w->base);
    to->multiplier = copy_of(w->multiplier, (size_t)w->n_rows * sizeof *w->multiplier);
    to->undo = copy_of(w->undo, (size_t)w->n_undo * sizeof *w->undo);
    to->n_undo = to->cap_undo = to->undo != NULL ? w->n_undo : 0;
    const bool ok = to->arena != NULL && to->variables != NULL && to->time != NULL &&
                    to->base != NULL && to->multiplier != NULL && to->undo != NULL;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy");
}

static dtp_status copy_all(solver_reduced *to, const solver_reduced *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        DTP_TRY(copy_variable(to, w, i, err));
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            DTP_TRY(solver_add_borrowed(to, edge->u, edge->v, solver_matrix(edge), err));
        }
    }
    return DTP_OK;
}

dtp_status solver_copy(const solver_reduced *w, solver_reduced **out, dtp_err *err)
{
    solver_reduced *to = calloc(1, sizeof *to);
    DTP_TRY(DTP_MEMORY(err, to));
    dtp_status s = copy_rest(to, w, err);
    s = s == DTP_OK ? copy_all(to, w, err) : s;
    if (s != DTP_OK) {
        solver_reduced_destroy(to);
        return s;
    }
    *out = to;
    return DTP_OK;
}
