/* The relaxation of the marginal form of what presolve left, solved by GLPK (docs/solve.md). */
#include "planner/solver/relax.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "planner/solver/glpk_fence.h"
#include "planner/solver/reduced/bound.h"

/* Usages below this share of the limit are left out of the rows of the integer program: GLPK's
 * tolerances are larger, and its simplex may cycle on such rows. A row only admits more for it, and
 * what it admits wrongly is found when the solution is evaluated in integers. */
static const double NEGLIGIBLE = 1e-8;

typedef struct relaxed_model {
    dtp_arena *arena; /* of the arrays below */
    solver_reduced *w;
    double negligible; /* usages up to this are left out of memory rows */
    dtp_ilp *ilp;
    int32_t *variable_col; /* by variable: column of strategy 0 */
    int32_t *edge_row;     /* by edge: its first marginal row */
    int64_t *edge_phi;     /* by edge: its first multiplier */
    int64_t n_phi;
    int32_t n_structural; /* rows before the memory rows */
    int32_t *memory_row;  /* by row of the program after the structural ones: the row of time, -1: a
                            row that excludes an assignment */
    int32_t cap_memory_rows;
    int32_t elastic; /* column: usage beyond the limit, at a high multiplier */
    double cost_scale;
    int32_t *cols; /* scratch for one row */
    double *coefs;
    double *used; /* scratch, by row of time and one more */
} relaxed_model;

static double row_scale(const relaxed_model *m)
{
    return 100.0 / ((double)m->w->limit + 1.0);
}

/* ---- building ---- */

/* The strategy of u that strategy j of v leaves; -1: none, -2: several. */
static int32_t mate_of(const relaxed_model *m, const solver_edge *e, int32_t j)
{
    const int32_t ku = m->w->variables[e->u].k, kv = m->w->variables[e->v].k;
    int32_t mate = -1;
    for (int32_t i = 0; i < ku && mate != -2; i++) {
        if (solver_matrix(e)[(int64_t)i * kv + j] < DTP_FORBIDDEN) {
            mate = mate == -1 ? i : -2;
        }
    }
    return mate;
}

/* Does every strategy of v leave at most one of u? */
static bool is_map(const relaxed_model *m, const solver_edge *e)
{
    bool map = true;
    for (int32_t j = 0; j < m->w->variables[e->v].k && map; j++) {
        map = mate_of(m, e, j) != -2;
    }
    return map;
}

/* Columns of the finite entries, in the order of the matrix; z[at] = -1 for the others. In a map
 * the column of an entry is that of the strategy of v, which costs as much more. */
static dtp_status add_entries(relaxed_model *m, const solver_edge *e, bool map, int32_t *z,
                              dtp_err *err)
{
    const int64_t n = (int64_t)m->w->variables[e->u].k * m->w->variables[e->v].k;
    for (int64_t i = 0; i < n; i++) {
        const int64_t cost = solver_matrix(e)[i];
        const dtp_ilp_col col = {0.0, INFINITY, (double)cost * m->cost_scale, false};
        z[i] = -1;
        if (cost < DTP_FORBIDDEN && map) {
            z[i] = m->variable_col[e->v] + (int32_t)(i % m->w->variables[e->v].k);
            dtp_ilp_add_cost(m->ilp, z[i], col.cost);
        } else if (cost < DTP_FORBIDDEN) {
            DTP_TRY(dtp_ilp_add_col(m->ilp, col, &z[i], err));
        }
    }
    return DTP_OK;
}

/* sum over the line of z - y = 0. */
static dtp_status add_marginal(relaxed_model *m, const int32_t *z, int32_t n, int64_t step,
                               int32_t y, dtp_err *err)
{
    int32_t k = 0;
    for (int32_t j = 0; j < n; j++) {
        if (z[j * step] >= 0) {
            m->cols[k] = z[j * step];
            m->coefs[k++] = 1.0;
        }
    }
    m->cols[k] = y;
    m->coefs[k++] = -1.0;
    return dtp_ilp_add_row(m->ilp, 0.0, 0.0, k, m->cols, m->coefs, NULL, err);
}

static dtp_status add_edge(relaxed_model *m, int32_t edge, dtp_err *err)
{
    const solver_edge *e = &m->w->edges[edge];
    const int32_t ku = m->w->variables[e->u].k, kv = m->w->variables[e->v].k;
    const bool map = is_map(m, e);
    int32_t *z = calloc((size_t)ku * (size_t)kv + 1, sizeof *z);
    DTP_TRY(DTP_MEMORY(err, z));
    m->edge_row[edge] = dtp_ilp_n_rows(m->ilp);
    m->edge_phi[edge] = m->n_phi;
    m->n_phi += ku + kv;
    dtp_status s = add_entries(m, e, map, z, err);
    for (int32_t i = 0; i < ku && s == DTP_OK; i++) {
        s = add_marginal(m, z + (int64_t)i * kv, kv, 1, m->variable_col[e->u] + i, err);
    }
    for (int32_t j = 0; j < kv && s == DTP_OK; j++) {
        if (!map) {
            s = add_marginal(m, z + j, ku, kv, m->variable_col[e->v] + j, err);
        } else if (mate_of(m, e, j) < 0) {
            dtp_ilp_set_col_bounds(m->ilp, m->variable_col[e->v] + j, 0.0, 0.0);
        }
    }
    free(z);
    return s;
}

static dtp_status build(relaxed_model *m, dtp_err *err)
{
    const solver_reduced *w = m->w;
    int64_t strategies = 1;
    for (int32_t i = 0; i < w->n_variables; i++) {
        strategies += w->variables[i].alive ? w->variables[i].k : 0;
    }
    m->arena = dtp_arena_create();
    DTP_TRY(DTP_NEW(m->arena, m->variable_col, w->n_variables, err));
    DTP_TRY(DTP_NEW(m->arena, m->edge_row, w->n_edges, err));
    DTP_TRY(DTP_NEW(m->arena, m->edge_phi, w->n_edges, err));
    DTP_TRY(DTP_NEW(m->arena, m->cols, strategies + 1, err));
    DTP_TRY(DTP_NEW(m->arena, m->coefs, strategies + 1, err));
    DTP_TRY(DTP_NEW(m->arena, m->used, (int64_t)w->n_rows + 1, err));
    DTP_TRY(dtp_ilp_create(&m->ilp, err));
    const int64_t bound = solver_lower_bound(w);
    m->cost_scale = 1000.0 / (1.0 + fabs((double)(w->cutoff < DTP_FORBIDDEN ? w->cutoff : bound)));
    const dtp_ilp_col elastic = {0.0, INFINITY, w->parameters->relax_excess_cost, false};
    DTP_TRY(dtp_ilp_add_col(m->ilp, elastic, &m->elastic, err));
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t s = 0; x->alive && s < x->k; s++) {
            const bool dead = solver_dead(x, s);
            const dtp_ilp_col col = {0.0, dead ? 0.0 : 1.0,
                                     dead ? 0.0 : (double)x->cost[s] * m->cost_scale, true};
            DTP_TRY(dtp_ilp_add_col(m->ilp, col, &m->cols[s], err));
            m->coefs[s] = 1.0;
        }
        if (x->alive) {
            m->variable_col[i] = m->cols[0];
            DTP_TRY(dtp_ilp_add_row(m->ilp, 1.0, 1.0, x->k, m->cols, m->coefs, NULL, err));
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        if (w->edges[e].alive) {
            DTP_TRY(add_edge(m, e, err));
        }
    }
    m->n_structural = dtp_ilp_n_rows(m->ilp);
    return DTP_OK;
}

/* ---- memory rows ---- */

/* What is above the limit is as impossible as the least that is. */
static int64_t clamped(const solver_reduced *w, int64_t use)
{
    return use > w->limit ? w->limit + 1 : use;
}

/* A row after the structural ones, from m->cols and m->coefs. */
static dtp_status add_late_row(relaxed_model *m, int32_t memory_row, double most, int32_t n,
                               dtp_err *err)
{
    const int32_t at = dtp_ilp_n_rows(m->ilp) - m->n_structural;
    DTP_TRY(dtp_arena_grow(m->arena, &m->memory_row, at, at + 1, &m->cap_memory_rows,
                           sizeof *m->memory_row, err));
    m->memory_row[at] = memory_row;
    return dtp_ilp_add_row(m->ilp, -INFINITY, most, n, m->cols, m->coefs, NULL, err);
}

static dtp_status add_memory_row(relaxed_model *m, int32_t r, dtp_err *err)
{
    const solver_reduced *w = m->w;
    int32_t n = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t s = 0; x->alive && x->n_pieces > 0 && s < x->k; s++) {
            int64_t use = 0;
            for (int32_t j = 0; j < x->n_pieces; j++) {
                const bool covers = x->pieces[j].first <= r && r < x->pieces[j].last;
                use += covers ? clamped(w, x->pieces[j].use[s]) : 0;
            }
            if ((double)use > m->negligible && !solver_dead(x, s)) {
                m->cols[n] = m->variable_col[i] + s;
                m->coefs[n++] = (double)use * row_scale(m);
            }
        }
    }
    m->cols[n] = m->elastic;
    m->coefs[n++] = -1.0;
    return add_late_row(m, r, (double)(w->limit - w->base[r]) * row_scale(m), n, err);
}

/* Usage beyond the limit by row, in m->used. */
static void find_excess(relaxed_model *m, const double *values)
{
    const solver_reduced *w = m->w;
    for (int32_t r = 0; r <= w->n_rows; r++) {
        m->used[r] = 0.0;
    }
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        for (int32_t j = 0; j < x->n_pieces; j++) {
            double use = 0.0;
            for (int32_t s = 0; s < x->k; s++) {
                use += (double)clamped(w, x->pieces[j].use[s]) * values[m->variable_col[i] + s];
            }
            m->used[x->pieces[j].first] += use;
            m->used[x->pieces[j].last] -= use;
        }
    }
    double sum = -values[m->elastic] / row_scale(m);
    for (int32_t r = 0; r < w->n_rows; r++) {
        sum += m->used[r];
        m->used[r] = sum + (double)w->base[r] - (double)w->limit;
    }
}

/* The worst row of each stretch of violated ones, the worst stretches first, as many as
 * relax_rows. */
static dtp_status add_violated(void *user, dtp_ilp *ilp, const double *values, dtp_err *err)
{
    relaxed_model *m = user;
    const solver_reduced *w = m->w;
    const double slack = 1e-8 * (double)w->limit + 0.5;
    int32_t rows[DTP_SOLVER_MAX_RELAX_ROWS], n = 0;
    (void)ilp;
    find_excess(m, values);
    for (int32_t r = 0; r < w->n_rows;) {
        int32_t worst = r;
        for (; r < w->n_rows && m->used[r] > slack; r++) {
            worst = m->used[r] > m->used[worst] ? r : worst;
        }
        if (m->used[worst] <= slack) {
            r++;
            continue;
        }
        int32_t at = n;
        if (n < w->parameters->relax_rows) {
            n++;
        } else if (n > 0 && m->used[rows[n - 1]] < m->used[worst]) {
            at = n - 1; /* in place of the least of them */
        } else {
            continue;
        }
        for (; at > 0 && m->used[rows[at - 1]] < m->used[worst]; at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = worst;
    }
    for (int32_t k = 0; k < n; k++) {
        DTP_TRY(add_memory_row(m, rows[k], err));
    }
    return DTP_OK;
}

/* ---- solving ---- */

/* The largest value of every variable; the variable whose largest value is smallest. */
static void read_choice(const relaxed_model *m, const double *values, int32_t *assignment,
                        solver_relaxation *out)
{
    double least = 2.0;
    for (int32_t i = 0; i < m->w->n_variables; i++) {
        const solver_variable *x = &m->w->variables[i];
        double most = -1.0;
        for (int32_t s = 0; x->alive && s < x->k; s++) {
            if (values[m->variable_col[i] + s] > most && !solver_dead(x, s)) {
                most = values[m->variable_col[i] + s];
                assignment[i] = s;
            }
        }
        if (x->alive && x->n_live > 1 && most < least) {
            least = most;
            out->split_variable = i;
            out->split_strategy = assignment[i];
        }
    }
}

/* Of the strategies of u, then of v. In a map, where v has no rows, those of v make the reduced
 * costs of the entries 0. */
static void read_edge_duals(const relaxed_model *m, int32_t edge, const double *duals, double *phi)
{
    const solver_edge *e = &m->w->edges[edge];
    const int32_t ku = m->w->variables[e->u].k, kv = m->w->variables[e->v].k;
    const bool map = is_map(m, e);
    for (int32_t i = 0; i < (map ? ku : ku + kv); i++) {
        phi[i] = duals[i] / m->cost_scale;
    }
    for (int32_t j = 0; j < kv && map; j++) {
        const int32_t i = mate_of(m, e, j);
        phi[ku + j] = i < 0 ? 0.0 : (double)solver_matrix(e)[(int64_t)i * kv + j] - phi[i];
    }
}

/* From the duals: an exact bound, and what it excludes. */
static dtp_status use_duals(relaxed_model *m, const dtp_ilp_result *r, int64_t *bound, dtp_err *err)
{
    solver_multipliers mult = {.edge_phi = m->edge_phi};
    DTP_TRY(DTP_NEW(m->arena, mult.phi, m->n_phi, err));
    DTP_TRY(DTP_NEW(m->arena, mult.lambda, m->w->n_rows, err));
    for (int32_t e = 0; e < m->w->n_edges; e++) {
        if (m->w->edges[e].alive) {
            read_edge_duals(m, e, r->row_duals + m->edge_row[e], mult.phi + m->edge_phi[e]);
        }
    }
    for (int32_t i = m->n_structural; i < dtp_ilp_n_rows(m->ilp); i++) {
        const double multiplier = -r->row_duals[i] * row_scale(m) / m->cost_scale;
        mult.lambda[m->memory_row[i - m->n_structural]] += multiplier > 0.0 ? multiplier : 0.0;
    }
    return solver_bound(m->w, &mult, m->w->options.incumbent_filter, bound, err);
}

dtp_status solver_relax(solver_reduced *w, const dtp_stop *stop, int32_t *assignment,
                        solver_relaxation *out, dtp_err *err)
{
    relaxed_model m = {.w = w};
    dtp_ilp_result r = {0};
    const dtp_ilp_options options = {
        .stop = stop, .relaxation = true, .lazy = add_violated, .lazy_user = &m};
    *out = (solver_relaxation){.split_variable = -1, .split_strategy = -1};
    dtp_status s = build(&m, err);
    if (s == DTP_OK) {
        s = dtp_ilp_solve(m.ilp, &options, &r, err);
    }
    if (s == DTP_SOLVER) { /* numerical trouble: as good as unsolved */
        dtp_err_clear(err);
        s = DTP_OK;
    }
    if (s == DTP_OK && r.row_duals != NULL) {
        out->solved = r.status == DTP_ILP_OPTIMAL;
        read_choice(&m, r.values, assignment, out);
        s = use_duals(&m, &r, &out->bound, err);
    }
    dtp_ilp_destroy(m.ilp);
    dtp_arena_destroy(m.arena);
    return s;
}

/* ---- the integer program ---- */

/* The columns of y and z, which may be too many for GLPK. */
static dtp_status check_size(const relaxed_model *m, dtp_err *err)
{
    const solver_reduced *w = m->w;
    int64_t columns = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        columns += w->variables[i].alive ? w->variables[i].k : 0;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        columns += edge->alive && !is_map(m, edge)
                       ? (int64_t)w->variables[edge->u].k * w->variables[edge->v].k
                       : 0;
    }
    return columns <= w->parameters->glpk_columns
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE,
                          "an integer program of up to %" PRId64
                          " columns is too large for GLPK (glpk_columns = %d)",
                          columns, w->parameters->glpk_columns);
}

/* An integer solution that needs more than the limit at some row: adds the worst such row, or, when
 * it is there and GLPK's tolerance hides the excess, excludes the solution; that of least usage is
 * taken. */
static dtp_status repair(relaxed_model *m, const double *values, bool minimum_memory,
                         const int32_t *assignment, bool *repaired, dtp_err *err)
{
    const int32_t n_added = dtp_ilp_n_rows(m->ilp) - m->n_structural;
    int32_t worst = 0;
    bool there = false;
    find_excess(m, values);
    for (int32_t r = 1; r < m->w->n_rows; r++) {
        worst = m->used[r] > m->used[worst] ? r : worst;
    }
    *repaired = m->w->n_rows > 0 && m->used[worst] > 0.5;
    for (int32_t k = 0; k < n_added && !there; k++) {
        there = m->memory_row[k] == worst;
    }
    *repaired = *repaired && !(there && minimum_memory);
    if (!*repaired) {
        return DTP_OK;
    }
    if (!there) {
        return add_memory_row(m, worst, err);
    }
    int32_t n = 0;
    for (int32_t i = 0; i < m->w->n_variables; i++) {
        if (m->w->variables[i].alive) {
            m->cols[n] = m->variable_col[i] + assignment[i];
            m->coefs[n++] = 1.0;
        }
    }
    return add_late_row(m, -1, (double)n - 1.0, n, err);
}

dtp_status solver_integer(solver_reduced *w, bool minimum_memory, int32_t *assignment,
                          dtp_cert_status *status, dtp_err *err)
{
    static const dtp_cert_status verdicts[] = {DTP_CERT_OPTIMAL, DTP_CERT_FEASIBLE,
                                               DTP_CERT_INFEASIBLE, DTP_CERT_TIME_LIMIT};
    relaxed_model m = {.w = w, .negligible = minimum_memory ? 0.0 : NEGLIGIBLE * (double)w->limit};
    bool again = true;
    *status = DTP_CERT_TIME_LIMIT;
    DTP_TRY(check_size(&m, err));
    dtp_status s = build(&m, err);
    if (s == DTP_OK) {
        dtp_ilp_set_col_bounds(m.ilp, m.elastic,
                               minimum_memory ? -row_scale(&m) * (double)w->limit : 0.0, 0.0);
    }
    for (int32_t j = 0; s == DTP_OK && minimum_memory && j < dtp_ilp_n_cols(m.ilp); j++) {
        dtp_ilp_set_cost(m.ilp, j, j == m.elastic ? 1.0 : 0.0);
    }
    while (s == DTP_OK && again && !dtp_stopped(w->stop)) {
        dtp_ilp_result r = {0};
        const dtp_ilp_options options = {.node_limit = w->parameters->glpk_nodes,
                                         .stop = w->stop,
                                         .lazy = add_violated,
                                         .lazy_user = &m};
        solver_relaxation rounded = {0};
        s = dtp_ilp_solve(m.ilp, &options, &r, err);
        again = s == DTP_OK && r.values != NULL;
        if (again) {
            read_choice(&m, r.values, assignment, &rounded);
            s = repair(&m, r.values, minimum_memory, assignment, &again, err);
        }
        if (s == DTP_OK && !again) {
            *status = verdicts[r.status];
        }
    }
    dtp_ilp_destroy(m.ilp);
    dtp_arena_destroy(m.arena);
    if (s == DTP_SOLVER) { /* numerical trouble: as good as unsolved */
        dtp_err_clear(err);
        s = DTP_OK;
    }
    return s;
}
