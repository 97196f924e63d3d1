#include "planner/solver/primal/variable_elimination.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 12 }; /* most neighbours of a variable that is eliminated */

/* A cost by the strategies of some variables, the last one running fastest. */
typedef struct elimination_factor {
    int32_t n, variables[WIDTH];
    int64_t size; /* of the table */
    const int64_t *cost;
    bool alive;
} elimination_factor;

/* A variable that went: its best strategy by those of its neighbours. */
typedef struct elimination_step {
    int32_t variable, n, variables[WIDTH];
    const int32_t *best;
} elimination_step;

struct solver_elimination {
    const solver_reduced *w;
    dtp_arena *arena;
    int32_t root, n; /* variables */
    int32_t *size;   /* by variable: strategies, 0 = not there */
    uint8_t *joined; /* variable by variable */
    int64_t *weight; /* by variable: of its table */
    elimination_factor *factors;
    int32_t n_factors, cap_factors;
    elimination_step *steps;
    int32_t n_steps;
    int64_t *rest; /* by strategy of the root: what all solutions with it cost at least */
};

static bool joined(const solver_elimination *b, int32_t i, int32_t j)
{
    return b->joined[(size_t)i * (size_t)b->n + (size_t)j] != 0;
}

static void join(solver_elimination *b, int32_t i, int32_t j)
{
    b->joined[(size_t)i * (size_t)b->n + (size_t)j] = 1;
    b->joined[(size_t)j * (size_t)b->n + (size_t)i] = 1;
}

/* Neighbours that are left, in order; WIDTH + 1 when there are more than WIDTH. */
static int32_t neighbours(const solver_elimination *b, int32_t i, int32_t *variables)
{
    int32_t n = 0;
    for (int32_t j = 0; j < b->n && n <= WIDTH; j++) {
        if (b->size[j] > 0 && joined(b, i, j)) {
            if (n < WIDTH) {
                variables[n] = j;
            }
            n++;
        }
    }
    return n;
}

static int64_t weigh(const solver_elimination *b, int32_t i)
{
    int32_t variables[WIDTH];
    const int32_t n = neighbours(b, i, variables);
    int64_t weight = n > WIDTH ? INT64_MAX / 4 : b->size[i];
    for (int32_t j = 0; j < n && n <= WIDTH; j++) {
        weight = weight > INT64_MAX / 8 / b->size[variables[j]] ? INT64_MAX / 8
                                                                : weight * b->size[variables[j]];
    }
    return weight;
}

/* ---- factors --------------------------------------------------------------------------------- */

static dtp_status add_factor(solver_elimination *b, const elimination_factor *f, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(b->arena, &b->factors, b->n_factors, b->n_factors + 1, &b->cap_factors,
                           sizeof *b->factors, err));
    b->factors[b->n_factors] = *f;
    b->factors[b->n_factors++].alive = true;
    return DTP_OK;
}

static dtp_status load(solver_elimination *b, dtp_err *err)
{
    const solver_reduced *w = b->w;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        b->size[i] = x->alive ? x->k : 0;
        if (x->alive) {
            const elimination_factor f = {.n = 1, .variables = {i}, .size = x->k, .cost = x->cost};
            DTP_TRY(add_factor(b, &f, err));
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            const elimination_factor f = {.n = 2,
                                          .variables = {edge->u, edge->v},
                                          .size = (int64_t)b->size[edge->u] * b->size[edge->v],
                                          .cost = solver_matrix(edge)};
            DTP_TRY(add_factor(b, &f, err));
            join(b, edge->u, edge->v);
        }
    }
    return DTP_OK;
}

/* How far two strategies of a variable are apart in a factor's table, 0 when it has no say. */
static int64_t stride_of(const solver_elimination *b, const elimination_factor *f, int32_t variable)
{
    int64_t stride = 1;
    for (int32_t i = f->n - 1; i >= 0; i--) {
        if (f->variables[i] == variable) {
            return stride;
        }
        stride *= b->size[f->variables[i]];
    }
    return 0;
}

/* ---- elimination ----------------------------------------------------------------------------- */

/* Adds a factor to a table over the neighbours of a variable and, running fastest, the variable. */
static void add_to(const solver_elimination *b, const elimination_factor *f,
                   const elimination_step *s, int64_t *table, int64_t rows)
{
    const int32_t k = b->size[s->variable];
    const int64_t own = stride_of(b, f, s->variable);
    int64_t stride[WIDTH] = {0}, at = 0;
    int32_t digit[WIDTH] = {0};
    for (int32_t i = 0; i < s->n; i++) {
        stride[i] = stride_of(b, f, s->variables[i]);
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t *row = table + r * k;
        for (int32_t t = 0; t < k; t++) {
            row[t] = dtp_problem_add_cost(row[t], f->cost[at + t * own]);
        }
        for (int32_t i = s->n - 1; i >= 0; i--) {
            at += stride[i];
            if (++digit[i] < b->size[s->variables[i]]) {
                break;
            }
            at -= stride[i] * b->size[s->variables[i]];
            digit[i] = 0;
        }
    }
}

static dtp_status eliminate(solver_elimination *b, elimination_step *s, dtp_err *err)
{
    const int32_t variable = s->variable;
    elimination_factor left = {.n = s->n, .size = 1};
    memcpy(left.variables, s->variables, sizeof left.variables);
    for (int32_t i = 0; i < s->n; i++) {
        left.size *= b->size[s->variables[i]];
    }
    const int32_t k = b->size[variable];
    int64_t *table = calloc((size_t)left.size * (size_t)k + 1, sizeof *table);
    int64_t *cost = dtp_arena_alloc(b->arena, (size_t)left.size, sizeof *cost);
    int32_t *best = dtp_arena_alloc(b->arena, (size_t)left.size, sizeof *best);
    if (table == NULL || cost == NULL || best == NULL) {
        free(table);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a table of %lld", (long long)left.size);
    }
    for (int32_t f = 0; f < b->n_factors; f++) {
        bool found = false;
        for (int32_t i = 0; i < b->factors[f].n; i++) {
            found = found || b->factors[f].variables[i] == variable;
        }
        if (b->factors[f].alive && found) {
            add_to(b, &b->factors[f], s, table, left.size);
            b->factors[f].alive = false;
        }
    }
    for (int64_t r = 0; r < left.size; r++) {
        const int64_t *row = table + r * k;
        for (int32_t t = 1; t < k; t++) {
            best[r] = row[t] < row[best[r]] ? t : best[r];
        }
        cost[r] = row[best[r]];
    }
    free(table);
    s->best = best;
    left.cost = cost;
    return add_factor(b, &left, err);
}

/* The variable of the smallest table; -1 when only the root is left. */
static int32_t next_variable(const solver_elimination *b)
{
    int32_t best = -1;
    for (int32_t i = 0; i < b->n; i++) {
        const bool may = b->size[i] > 0 && i != b->root;
        best = may && (best < 0 || b->weight[i] < b->weight[best]) ? i : best;
    }
    return best;
}

/* The order of the steps, without tables; false when they would take too long. Variables are there
 * again afterwards. */
static bool plan_order(solver_elimination *b, int64_t most, int64_t *work_units)
{
    bool quick = true;
    *work_units = 0;
    for (int32_t i = 0; i < b->n; i++) {
        b->weight[i] = b->size[i] > 0 ? weigh(b, i) : 0;
    }
    for (int32_t x = next_variable(b); x >= 0 && quick; x = quick ? next_variable(b) : -1) {
        elimination_step *s = &b->steps[b->n_steps];
        quick = b->weight[x] <= most - *work_units;
        if (quick) {
            *work_units += b->weight[x];
            s->variable = x;
            s->n = neighbours(b, x, s->variables);
            b->n_steps++;
            b->size[x] = 0;
            for (int32_t i = 0; i < s->n; i++) {
                for (int32_t j = 0; j < i; j++) {
                    join(b, s->variables[i], s->variables[j]);
                }
            }
            for (int32_t i = 0; i < s->n; i++) {
                b->weight[s->variables[i]] = weigh(b, s->variables[i]);
            }
        }
    }
    for (int32_t i = 0; i < b->n_steps; i++) {
        b->size[b->steps[i].variable] = b->w->variables[b->steps[i].variable].k;
    }
    return quick;
}

static dtp_status run(solver_elimination *b, int64_t most, bool *quick, int64_t *work_units,
                      dtp_err *err)
{
    const int64_t n = b->n;
    DTP_TRY(DTP_NEW(b->arena, b->size, n, err));
    DTP_TRY(DTP_NEW(b->arena, b->joined, n * n, err));
    DTP_TRY(DTP_NEW(b->arena, b->weight, n, err));
    DTP_TRY(DTP_NEW(b->arena, b->steps, n, err));
    DTP_TRY(load(b, err));
    *quick = plan_order(b, most, work_units);
    for (int32_t i = 0; *quick && i < b->n_steps; i++) {
        DTP_TRY(eliminate(b, &b->steps[i], err));
    }
    /* what is left speaks of the root alone, or of nothing */
    const int32_t k = b->root >= 0 ? b->size[b->root] : 1;
    DTP_TRY(DTP_NEW(b->arena, b->rest, k, err));
    for (int32_t f = 0; f < b->n_factors && *quick; f++) {
        for (int32_t s = 0; b->factors[f].alive && s < k; s++) {
            const int64_t cost = b->factors[f].cost[b->factors[f].n > 0 ? s : 0];
            b->rest[s] = dtp_problem_add_cost(b->rest[s], cost);
        }
    }
    return DTP_OK;
}

dtp_status solver_elimination_create(const solver_reduced *w, int32_t root, int64_t most,
                                     solver_elimination **out, int64_t *work_units, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    solver_elimination *b;
    bool quick = false;
    *out = NULL;
    dtp_status s = DTP_NEW(arena, b, 1, err);
    if (s == DTP_OK) {
        *b = (solver_elimination){.arena = arena, .w = w, .root = root, .n = w->n_variables};
        s = run(b, most, &quick, work_units, err);
    }
    if (s != DTP_OK || !quick) {
        dtp_arena_destroy(arena);
        return s;
    }
    *out = b;
    return DTP_OK;
}

void solver_elimination_destroy(solver_elimination *b)
{
    if (b != NULL) {
        dtp_arena_destroy(b->arena);
    }
}

bool solver_elimination_choose(const solver_elimination *b, int32_t strategy, int32_t *assignment)
{
    if (b->rest[strategy] >= DTP_FORBIDDEN) {
        return false;
    }
    if (b->root >= 0) {
        assignment[b->root] = strategy;
    }
    for (int32_t i = b->n_steps - 1; i >= 0; i--) {
        const elimination_step *s = &b->steps[i];
        int64_t at = 0;
        for (int32_t j = 0; j < s->n; j++) {
            at = at * b->w->variables[s->variables[j]].k + assignment[s->variables[j]];
        }
        assignment[s->variable] = s->best[at];
    }
    return true;
}
