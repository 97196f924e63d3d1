/* Tables of a brute-force elimination of variables, for tests of the solver. */
#include "tests/solver/elimination_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void *elimination__make(size_t n, size_t size)
{
    void *at = calloc(n > 0 ? n : 1, size);
    assert_non_null(at);
    return at;
}

int64_t elimination__add(int64_t a, int64_t b)
{
    const int64_t sum = a + b;
    return sum < ELIMINATION_FORBIDDEN ? sum : ELIMINATION_FORBIDDEN;
}

void elimination__table_free(elimination_table *t)
{
    free(t->variables);
    free(t->cost);
    free(t->least);
}

int32_t elimination__find(const elimination_table *t, int32_t variable)
{
    int32_t i = 0;
    while (i < t->n && t->variables[i] != variable) {
        i++;
    }
    return i < t->n ? i : -1;
}

/* ---- walking through tables ---- */

void elimination__walk_start(elimination_walk *w, const elimination *e, int32_t n,
                             const int32_t *variables)
{
    assert_true(n <= ELIMINATION_MAX_NODES);
    w->n = n;
    w->n_tables = 0;
    for (int32_t i = 0; i < n; i++) {
        w->size[i] = e->left[variables[i]];
        w->digit[i] = 0;
    }
}

/* unit: cells of one entry of t. */
void elimination__walk_add(elimination_walk *w, const elimination *e, const int32_t *variables,
                           const elimination_table *t, int64_t unit)
{
    assert_true(w->n_tables < ELIMINATION_MAX_TABLES);
    int64_t *step = w->step[w->n_tables];
    memset(step, 0, sizeof w->step[0]);
    for (int32_t k = t->n - 1; k >= 0; k--) {
        for (int32_t i = 0; i < w->n; i++) {
            step[i] = variables[i] == t->variables[k] ? unit : step[i];
        }
        unit *= e->left[t->variables[k]];
    }
    w->at[w->n_tables++] = 0;
}

void elimination__walk_next(elimination_walk *w)
{
    for (int32_t i = w->n - 1; i >= 0; i--) {
        const int32_t back = ++w->digit[i] < w->size[i] ? 0 : w->digit[i];
        for (int32_t k = 0; k < w->n_tables; k++) {
            w->at[k] += w->step[k][i] * (1 - back);
        }
        if (back == 0) {
            return;
        }
        w->digit[i] = 0;
    }
}

int64_t elimination__cells(const elimination *e, int32_t n, const int32_t *variables)
{
    int64_t cells = 1;
    for (int32_t i = 0; i < n && cells < INT64_C(1) << 40; i++) {
        cells *= e->left[variables[i]];
    }
    return cells;
}

/* ---- tables ---- */

/* Takes t over: a table of its own, or added to the one over the same variables. */
void elimination__put(elimination *e, elimination_table t)
{
    for (int32_t i = 0; i < t.n; i++) {
        e->weight[t.variables[i]] = 0;
    }
    for (int32_t i = 0; i < e->n; i++) {
        elimination_table *old = &e->tables[i];
        if (old->n == t.n &&
            memcmp(old->variables, t.variables, (size_t)t.n * sizeof *t.variables) == 0) {
            for (int64_t x = 0; x < t.size; x++) {
                old->cost[x] = elimination__add(old->cost[x], t.cost[x]);
            }
            elimination__table_free(&t);
            return;
        }
    }
    if (e->n == e->cap) {
        e->cap = e->cap > 0 ? 2 * e->cap : 256;
        e->tables = realloc(e->tables, (size_t)e->cap * sizeof *e->tables);
        assert_non_null(e->tables);
    }
    e->tables[e->n++] = t;
}

/* The table with a variable as the last one; variables: the others. */
elimination_table elimination__variable_last(const elimination *e, const elimination_table *t,
                                             int32_t variable)
{
    const int32_t k = e->left[variable], where = elimination__find(t, variable);
    elimination_walk w;
    elimination_table out = {.n = t->n - 1, .size = t->size};
    int32_t *order = elimination__make((size_t)t->n, sizeof *order);
    for (int32_t i = 0; i < out.n; i++) {
        order[i] = t->variables[i < where ? i : i + 1];
    }
    order[out.n] = variable;
    out.variables = order;
    out.cost = elimination__make((size_t)t->size, sizeof *out.cost);
    out.least = elimination__make((size_t)(t->size / k), sizeof *out.least);
    elimination__walk_start(&w, e, t->n, order);
    elimination__walk_add(&w, e, order, t, 1);
    for (int64_t x = 0; x < t->size; x++) {
        const int64_t cost = t->cost[w.at[0]];
        int64_t *least = &out.least[x / k];
        out.cost[x] = cost;
        *least = x % k == 0 || cost < *least ? cost : *least;
        elimination__walk_next(&w);
    }
    return out;
}

/* Entries keep[0..n-1] of a variable stay in a table that has `unit` cells per entry of its
 * variables. */
void elimination__keep_entries(const elimination *e, elimination_table *t, int32_t variable,
                               int32_t n, const int32_t *keep, int64_t unit)
{
    const int32_t k = e->left[variable], where = elimination__find(t, variable);
    if (where < 0) {
        return;
    }
    const int64_t inner = elimination__cells(e, t->n - where - 1, t->variables + where + 1) * unit;
    const int64_t outer = t->size / (inner * k);
    int64_t *to = t->cost;
    for (int64_t x = 0; x < outer; x++) {
        for (int32_t s = 0; s < n; s++) {
            memmove(to, t->cost + (x * k + keep[s]) * inner, (size_t)inner * sizeof *to);
            to += inner;
        }
    }
    t->size = outer * n * inner;
}
