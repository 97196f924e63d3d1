/* The least cost of a selection problem by eliminating one variable after the other: dynamic
 * programming over tables of what remains. */
#include "tests/solver/elimination_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    MAX_CELLS = 1 << 28, /* that are written down for one variable */
    FIRST_COMPARED = 1 << 10
};

/* ---- elimination ---- */

/* The variables that share a table with a variable, ascending; returns how many. */
static int32_t find_around(const elimination *e, int32_t variable, int32_t *out)
{
    int32_t n = 0;
    bool *mark = elimination__make((size_t)e->p->n_variables, sizeof *mark);
    for (int32_t i = 0; i < e->n; i++) {
        const elimination_table *t = &e->tables[i];
        for (int32_t k = 0; elimination__find(t, variable) >= 0 && k < t->n; k++) {
            mark[t->variables[k]] = true;
        }
    }
    for (int32_t v = 0; v < e->p->n_variables; v++) {
        if (mark[v] && v != variable) {
            out[n++] = v;
        }
    }
    free(mark);
    return n;
}

/* Takes the tables with a variable out. */
static elimination_step take_out(elimination *e, int32_t variable)
{
    elimination_step step = {.variable = variable};
    int32_t kept = 0;
    step.around = elimination__make((size_t)e->p->n_variables, sizeof *step.around);
    step.tables = elimination__make(ELIMINATION_MAX_TABLES, sizeof *step.tables);
    step.n_around = find_around(e, variable, step.around);
    for (int32_t i = 0; i < e->n; i++) {
        if (elimination__find(&e->tables[i], variable) >= 0) {
            assert_true(step.n_tables < ELIMINATION_MAX_TABLES);
            step.tables[step.n_tables++] = elimination__variable_last(e, &e->tables[i], variable);
            elimination__table_free(&e->tables[i]);
        } else {
            e->tables[kept++] = e->tables[i];
        }
    }
    e->n = kept;
    return step;
}

static void step_free(elimination_step *step)
{
    for (int32_t i = 0; i < step->n_tables; i++) {
        elimination__table_free(&step->tables[i]);
    }
    free(step->tables);
    free(step->around);
}

/* sum[s]: what strategy s of the step's variable costs where the walk is. */
static void add_rows(const elimination_step *step, const elimination_walk *w, int32_t k,
                     int64_t *sum)
{
    memcpy(sum, step->tables[0].cost + w->at[0], (size_t)k * sizeof *sum);
    for (int32_t i = 1; i < step->n_tables; i++) {
        const int64_t *row = step->tables[i].cost + w->at[i];
        for (int32_t s = 0; s < k; s++) {
            sum[s] += row[s];
        }
    }
}

static int64_t least_of(const elimination_step *step, const elimination_walk *w, int32_t k,
                        int64_t *sum)
{
    int64_t least = 0;
    for (int32_t i = 0; i < step->n_tables; i++) {
        least += step->tables[i].least[w->at[i] / k];
    }
    if (least >= ELIMINATION_FORBIDDEN) {
        return ELIMINATION_FORBIDDEN;
    }
    add_rows(step, w, k, sum);
    least = ELIMINATION_FORBIDDEN;
    for (int32_t s = 0; s < k; s++) {
        least = sum[s] < least ? sum[s] : least;
    }
    return least;
}

static elimination_table least_table(const elimination *e, const elimination_step *step)
{
    const int32_t k = e->left[step->variable];
    elimination_table t = {.n = step->n_around};
    elimination_walk w;
    int64_t *sum = elimination__make((size_t)k, sizeof *sum);
    t.size = elimination__cells(e, step->n_around, step->around);
    assert_true(t.size <= MAX_CELLS);
    t.variables = elimination__make((size_t)t.n, sizeof *t.variables);
    memcpy(t.variables, step->around, (size_t)t.n * sizeof *t.variables);
    t.cost = elimination__make((size_t)t.size, sizeof *t.cost);
    elimination__walk_start(&w, e, t.n, t.variables);
    for (int32_t i = 0; i < step->n_tables; i++) {
        elimination__walk_add(&w, e, t.variables, &step->tables[i], k);
    }
    for (int64_t x = 0; x < t.size; x++) {
        t.cost[x] = least_of(step, &w, k, sum);
        elimination__walk_next(&w);
    }
    free(sum);
    return t;
}

static void eliminate(elimination *e, int32_t variable)
{
    elimination_step step = take_out(e, variable);
    elimination_table t = least_table(e, &step);
    const int64_t cells = t.size * e->left[variable];
    e->cells += cells;
    e->largest = cells > e->largest ? cells : e->largest;
    e->gone[variable] = true;
    if (t.n == 0) {
        e->least = elimination__add(e->least, t.cost[0]);
        elimination__table_free(&t);
    } else {
        elimination__put(e, t);
    }
    if (e->with_usage) {
        e->steps[e->n_steps++] = step;
    } else {
        step_free(&step);
    }
}

/* Whether variable v, which is left, comes before variable `best`. */
static bool comes_before(const elimination *e, int32_t v, int32_t best, int64_t most)
{
    const bool waits = e->loud[v] || e->weight[v] > most;
    const bool best_waits = e->loud[best] || e->weight[best] > most;
    return waits == best_waits ? e->weight[v] < e->weight[best] : !waits;
}

/* The variable that takes least to eliminate, -1: none is left; those that are not loud and take at
 * most `most` cells before all others. */
static int32_t next_variable(elimination *e, int64_t most)
{
    int32_t best = -1, *around = elimination__make((size_t)e->p->n_variables, sizeof *around);
    for (int32_t v = 0; v < e->p->n_variables; v++) {
        if (!e->gone[v] && e->weight[v] == 0) {
            e->weight[v] = elimination__cells(e, find_around(e, v, around), around) * e->left[v];
        }
        if (!e->gone[v] && (best < 0 || comes_before(e, v, best, most))) {
            best = v;
        }
    }
    free(around);
    return best;
}

void elimination_reduce(elimination *e, int64_t most)
{
    int64_t compared = FIRST_COMPARED;
    for (int32_t v = next_variable(e, most); v >= 0 && !e->loud[v]; v = next_variable(e, most)) {
        if (e->weight[v] > compared) {
            elimination__simplify(e);
            compared *= 8;
        } else if (e->weight[v] <= most) {
            eliminate(e, v);
        } else {
            break;
        }
    }
}

/* ---- making and unmaking ---- */

static elimination *create_empty(const dtp_problem *p, int64_t scale, bool with_usage)
{
    const size_t n = (size_t)p->n_variables;
    elimination *e = elimination__make(1, sizeof *e);
    e->p = p;
    e->scale = scale;
    e->with_usage = with_usage;
    e->left = elimination__make(n, sizeof *e->left);
    e->strategy = elimination__make(n, sizeof *e->strategy);
    e->gone = elimination__make(n, sizeof *e->gone);
    e->loud = elimination__make(n, sizeof *e->loud);
    e->weight = elimination__make(n, sizeof *e->weight);
    e->steps = elimination__make(n, sizeof *e->steps);
    return e;
}

/* Adds a table over one or two variables; costs of which all together stay below the limit. */
static void load(elimination *e, int32_t n, const int32_t *variables, const int64_t *cost,
                 int64_t *total)
{
    elimination_table t = {.n = n, .size = elimination__cells(e, n, variables)};
    const bool swap = n == 2 && variables[0] > variables[1];
    const int64_t cols = n == 2 ? e->left[variables[1]] : 1, rows = t.size / cols;
    int64_t most = 0;
    t.variables = elimination__make((size_t)n, sizeof *t.variables);
    t.cost = elimination__make((size_t)t.size, sizeof *t.cost);
    t.variables[0] = swap ? variables[1] : variables[0];
    if (n == 2) {
        t.variables[1] = swap ? variables[0] : variables[1];
    }
    for (int64_t x = 0; x < t.size; x++) {
        const bool forbidden = cost[x] >= DTP_FORBIDDEN;
        most = !forbidden && cost[x] > most ? cost[x] : most;
        t.cost[swap ? x % cols * rows + x / cols : x] =
            forbidden ? ELIMINATION_FORBIDDEN : cost[x] * e->scale;
    }
    *total += most;
    assert_true(*total < ELIMINATION_FORBIDDEN / 4 / e->scale);
    elimination__put(e, t);
}

elimination *elimination_create(const dtp_problem *p, int64_t scale, bool with_usage)
{
    elimination *e = create_empty(p, scale, with_usage);
    int64_t total = 0;
    for (int32_t v = 0; v < p->n_variables; v++) {
        e->left[v] = dtp_problem_n_strategies(p, v);
        e->strategy[v] = elimination__make((size_t)e->left[v], sizeof *e->strategy[v]);
        for (int32_t s = 0; s < e->left[v]; s++) {
            e->strategy[v][s] = s;
        }
        elimination__find_loud(e, v);
        load(e, 1, &v, p->cost + p->first[v], &total);
    }
    for (int32_t i = 0; i < p->n_edges; i++) {
        const int32_t ends[2] = {p->edge_a[i], p->edge_b[i]};
        load(e, 2, ends, p->edge_cost + p->edge_first[i], &total);
    }
    elimination__simplify(e);
    return e;
}

void elimination_destroy(elimination *e)
{
    if (e == NULL) {
        return;
    }
    for (int32_t i = 0; i < e->n; i++) {
        elimination__table_free(&e->tables[i]);
    }
    for (int32_t i = 0; i < e->n_steps; i++) {
        step_free(&e->steps[i]);
    }
    for (int32_t v = 0; v < e->p->n_variables; v++) {
        free(e->strategy[v]);
    }
    free(e->tables);
    free(e->steps);
    free(e->left);
    free(e->strategy);
    free(e->gone);
    free(e->loud);
    free(e->weight);
    free(e);
}

static void *copy(const void *from, int64_t n, size_t size)
{
    void *to = elimination__make((size_t)n, size);
    memcpy(to, from, (size_t)n * size);
    return to;
}

elimination *elimination_finish(const elimination *e, const int64_t *multipliers, int64_t most)
{
    elimination *out = create_empty(e->p, e->scale, e->with_usage);
    out->least = e->least;
    for (int32_t v = 0; v < e->p->n_variables; v++) {
        out->left[v] = e->left[v];
        out->strategy[v] = copy(e->strategy[v], e->left[v], sizeof *e->strategy[v]);
        out->gone[v] = e->gone[v];
        out->loud[v] = e->loud[v];
    }
    for (int32_t i = 0; i < e->n; i++) {
        elimination_table t = e->tables[i];
        t.variables = copy(t.variables, t.n, sizeof *t.variables);
        t.cost = copy(t.cost, t.size, sizeof *t.cost);
        elimination__put(out, t);
    }
    for (int32_t v = 0; v < e->p->n_variables && multipliers != NULL; v++) {
        elimination_table t = {.n = 1, .size = e->left[v]};
        if (e->gone[v]) { /* the same for all its strategies */
            out->least =
                elimination__add(out->least, multipliers[e->p->first[v] + e->strategy[v][0]]);
            continue;
        }
        t.variables = copy(&v, 1, sizeof v);
        t.cost = elimination__make((size_t)t.size, sizeof *t.cost);
        for (int32_t s = 0; s < e->left[v]; s++) {
            t.cost[s] = multipliers[e->p->first[v] + e->strategy[v][s]];
        }
        elimination__put(out, t);
    }
    for (int32_t v = next_variable(out, most); v >= 0; v = next_variable(out, most)) {
        eliminate(out, v);
    }
    return out;
}

int64_t elimination_optimum(const dtp_problem *p, int64_t *cells)
{
    elimination *e = elimination_create(p, 1, false);
    elimination_reduce(e, INT64_MAX);
    const int64_t least = e->least;
    if (cells != NULL) {
        *cells = e->cells;
    }
    elimination_destroy(e);
    return least < ELIMINATION_FORBIDDEN ? least : DTP_FORBIDDEN;
}

void elimination_step_costs(const elimination *e, const elimination_step *step, const int32_t *at,
                            int64_t *out)
{
    const int32_t k = e->left[step->variable];
    int64_t least = ELIMINATION_FORBIDDEN;
    elimination_walk w = {.n_tables = step->n_tables};
    for (int32_t i = 0; i < step->n_tables; i++) {
        const elimination_table *t = &step->tables[i];
        w.at[i] = 0;
        for (int32_t j = 0; j < t->n; j++) {
            w.at[i] = w.at[i] * e->left[t->variables[j]] + at[t->variables[j]];
        }
        w.at[i] *= k;
    }
    add_rows(step, &w, k, out);
    for (int32_t s = 0; s < k; s++) {
        least = out[s] < least ? out[s] : least;
    }
    for (int32_t s = 0; s < k; s++) {
        out[s] = out[s] < ELIMINATION_FORBIDDEN ? out[s] - least : ELIMINATION_FORBIDDEN;
    }
}
