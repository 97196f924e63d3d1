/* The integer program of mtf_layout.h, solved lexicographically: peak bytes, then most dims split,
 * then the first pairs in order, so that the answer does not depend on the solver's path. */
#include "planner/mtf/mtf_layout.h"

#include "core/base/strbuf.h"
#include "planner/solver/glpk_fence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    dtp_mtf_problem *p;
    dtp_ilp *ilp;
    int32_t *x; /* column of x[t,m] */
    int32_t *y; /* first column of a set's y */
    int32_t z;
    int32_t count_row; /* sum x >= most dims split so far */
    double unit;       /* bytes of one unit of z */
    int32_t *cols;     /* scratch: a row, merged by column */
    double *coefs;
    double *sum; /* scratch by column */
    int64_t nodes;
} model;

static const double NONE = (double)INFINITY;

static int32_t n_mesh(const model *m)
{
    return m->p->mesh.n_dims;
}

static dtp_status add_columns(model *m, dtp_err *err)
{
    const dtp_mtf_problem *p = m->p;
    for (int32_t t = 0; t < p->n_dims; t++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            bool valid = p->gcd[t] % p->mesh.sizes[k] == 0;
            dtp_ilp_col col = {.lo = 0, .hi = valid ? 1 : 0, .integer = true};
            DTP_TRY(dtp_ilp_add_col(m->ilp, col, &m->x[t * n_mesh(m) + k], err));
        }
    }
    for (int32_t d = 0; d < p->n_sets; d++) {
        m->y[d] = dtp_ilp_n_cols(m->ilp);
        for (int32_t a = 0; a < p->sets[d].n_maps; a++) {
            dtp_ilp_col col = {.lo = 0, .hi = 1, .integer = true};
            DTP_TRY(dtp_ilp_add_col(m->ilp, col, NULL, err));
        }
    }
    dtp_ilp_col z = {.lo = 0, .hi = ((double)p->upper_bound + 0.5) / m->unit};
    return dtp_ilp_add_col(m->ilp, z, &m->z, err);
}

static dtp_status add_global_rows(model *m, dtp_err *err)
{
    const dtp_mtf_problem *p = m->p;
    for (int32_t t = 0; t < p->n_dims; t++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            m->cols[k] = m->x[t * n_mesh(m) + k];
            m->coefs[k] = 1.0;
        }
        DTP_TRY(dtp_ilp_add_row(m->ilp, -NONE, 1, n_mesh(m), m->cols, m->coefs, NULL, err));
    }
    for (int32_t o = 0; o < p->n_op_sets; o++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            for (int32_t i = 0; i < p->sets[o].n; i++) {
                m->cols[i] = m->x[p->sets[o].dims[i] * n_mesh(m) + k];
                m->coefs[i] = 1.0;
            }
            DTP_TRY(dtp_ilp_add_row(m->ilp, -NONE, 1, p->sets[o].n, m->cols, m->coefs, NULL, err));
        }
    }
    int32_t n = p->n_dims * n_mesh(m);
    for (int32_t i = 0; i < n; i++) {
        m->cols[i] = m->x[i];
        m->coefs[i] = 1.0;
    }
    return dtp_ilp_add_row(m->ilp, 0, NONE, n, m->cols, m->coefs, &m->count_row, err);
}

static dtp_status add_set_rows(model *m, int32_t d, dtp_err *err)
{
    const dtp_mtf_set *set = &m->p->sets[d];
    for (int32_t a = 0; a < set->n_maps; a++) {
        m->cols[a] = m->y[d] + a;
        m->coefs[a] = 1.0;
    }
    DTP_TRY(dtp_ilp_add_row(m->ilp, 1, 1, set->n_maps, m->cols, m->coefs, NULL, err));
    for (int32_t i = 0; i < set->n; i++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            int32_t n = 0;
            for (int32_t a = 0; a < set->n_maps; a++) {
                if (set->maps[a * set->n + i] == k) {
                    m->cols[n] = m->y[d] + a;
                    m->coefs[n++] = 1.0;
                }
            }
            m->cols[n] = m->x[set->dims[i] * n_mesh(m) + k];
            m->coefs[n++] = -1.0;
            DTP_TRY(dtp_ilp_add_row(m->ilp, 0, 0, n, m->cols, m->coefs, NULL, err));
        }
    }
    return DTP_OK;
}

static void add_tensor_bytes(model *m, int32_t v, int8_t *split)
{
    const dtp_mtf_problem *p = m->p;
    int32_t d = p->tensor_set[v];
    const dtp_mtf_set *set = &p->sets[d];
    for (int32_t a = 0; a < set->n_maps; a++) {
        for (int32_t i = 0; i < set->n; i++) {
            split[set->dims[i]] = set->maps[a * set->n + i];
        }
        m->sum[m->y[d] + a] += (double)dtp_mtf_tensor_bytes(p, v, split) / m->unit;
    }
    for (int32_t i = 0; i < set->n; i++) {
        split[set->dims[i]] = -1;
    }
}

/* One row per step; a step whose live set equals the one before is the same row. */
static dtp_status add_memory_rows(model *m, int8_t *split, dtp_err *err)
{
    const dtp_mtf_live *live = &m->p->live;
    memset(split, -1, (size_t)m->p->n_dims + 1);
    for (int32_t step = 0; step < live->n_steps; step++) {
        int32_t first = live->first[step], n_live = live->first[step + 1] - first;
        if (step > 0 && n_live == first - live->first[step - 1] &&
            memcmp(&live->tensors[first], &live->tensors[first - n_live],
                   (size_t)n_live * sizeof *live->tensors) == 0) {
            continue;
        }
        int32_t n_cols = dtp_ilp_n_cols(m->ilp), n = 0;
        memset(m->sum, 0, (size_t)n_cols * sizeof *m->sum);
        for (int32_t k = 0; k < n_live; k++) {
            add_tensor_bytes(m, live->tensors[first + k], split);
        }
        m->sum[m->z] = -1.0;
        for (int32_t j = 0; j < n_cols; j++) {
            if (m->sum[j] != 0.0) {
                m->cols[n] = j;
                m->coefs[n++] = m->sum[j];
            }
        }
        DTP_TRY(dtp_ilp_add_row(m->ilp, -NONE, 0, n, m->cols, m->coefs, NULL, err));
    }
    return DTP_OK;
}

static dtp_status build(model *m, dtp_err *err)
{
    dtp_mtf_problem *p = m->p;
    size_t n = (size_t)p->n_variables + 1;
    m->unit = p->upper_bound > 0 ? (double)p->upper_bound / 1024.0 : 1.0;
    m->x = dtp_arena_alloc(p->arena, n, sizeof *m->x);
    m->y = dtp_arena_alloc(p->arena, (size_t)p->n_sets + 1, sizeof *m->y);
    m->cols = dtp_arena_alloc(p->arena, n, sizeof *m->cols);
    m->coefs = dtp_arena_alloc(p->arena, n, sizeof *m->coefs);
    m->sum = dtp_arena_alloc(p->arena, n, sizeof *m->sum);
    int8_t *split = dtp_arena_alloc(p->arena, (size_t)p->n_dims + 1, 1);
    if (m->x == NULL || m->y == NULL || m->cols == NULL || m->coefs == NULL || m->sum == NULL ||
        split == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf model");
    }
    DTP_TRY(add_columns(m, err));
    DTP_TRY(add_global_rows(m, err));
    for (int32_t d = 0; d < p->n_sets; d++) {
        DTP_TRY(add_set_rows(m, d, err));
    }
    return add_memory_rows(m, split, err);
}

/* ---- lexicographic solve ---- */

/* Solves with the present costs and bounds; *found says whether there is a solution, and then
 * split, its exact peak and its number of split dims are set. */
static dtp_status solve_once(model *m, int8_t *split, int64_t *peak, int32_t *n_split, bool *found,
                             dtp_err *err)
{
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    DTP_TRY(dtp_ilp_solve(m->ilp, &options, &r, err));
    m->nodes += r.nodes;
    if (r.status == DTP_ILP_FEASIBLE || r.status == DTP_ILP_TIME_LIMIT) {
        return DTP_FAIL(err, DTP_SOLVER, "auto_mtf: no proof within %lld nodes",
                        (long long)options.node_limit);
    }
    *found = r.status == DTP_ILP_OPTIMAL;
    if (!*found) {
        return DTP_OK;
    }
    *n_split = 0;
    for (int32_t t = 0; t < m->p->n_dims; t++) {
        split[t] = -1;
        for (int32_t k = 0; k < n_mesh(m); k++) {
            if (r.values[m->x[t * n_mesh(m) + k]] > 0.5) {
                split[t] = (int8_t)k;
                ++*n_split;
            }
        }
    }
    *peak = dtp_mtf_peak(m->p, split);
    return DTP_OK;
}

/* Excludes one layout: the solver took it within its tolerance, its exact peak is over the limit.
 */
static dtp_status exclude(model *m, const int8_t *split, dtp_err *err)
{
    int32_t n = 0;
    double ones = 0.0;
    for (int32_t t = 0; t < m->p->n_dims; t++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            bool set = split[t] == k;
            m->cols[n] = m->x[t * n_mesh(m) + k];
            m->coefs[n++] = set ? -1.0 : 1.0;
            ones += set ? 1.0 : 0.0;
        }
    }
    return dtp_ilp_add_row(m->ilp, 1.0 - ones, NONE, n, m->cols, m->coefs, NULL, err);
}

/* Most dims split at a peak of at most s->peak; a smaller exact peak met on the way becomes the
 * limit. */
static dtp_status most_split(model *m, dtp_mtf_solution *s, int8_t *split, dtp_err *err)
{
    int64_t peak = 0;
    int32_t n_split = 0;
    bool found = true;
    dtp_ilp_set_cost(m->ilp, m->z, 0.0);
    for (int32_t i = 0; i < m->p->n_dims * n_mesh(m); i++) {
        dtp_ilp_set_cost(m->ilp, m->x[i], -1.0);
    }
    while (found) {
        dtp_ilp_set_col_bounds(m->ilp, m->z, 0, ((double)s->peak + 0.5) / m->unit);
        DTP_TRY(solve_once(m, split, &peak, &n_split, &found, err));
        if (found && peak > s->peak) {
            DTP_TRY(exclude(m, split, err));
            continue;
        }
        bool lower = found && peak < s->peak;
        if (found) {
            s->peak = peak;
            s->n_split = n_split;
            memcpy(s->split, split, (size_t)m->p->n_dims);
        }
        if (!lower) {
            return DTP_OK;
        }
    }
    return DTP_OK;
}

/* Fixes the pairs in order: each is taken when an optimum with the pairs taken so far has it. */
static dtp_status first_pairs(model *m, dtp_mtf_solution *s, int8_t *split, dtp_err *err)
{
    dtp_ilp_set_row_bounds(m->ilp, m->count_row, s->n_split, NONE);
    for (int32_t t = 0; t < m->p->n_dims; t++) {
        for (int32_t k = 0; k < n_mesh(m); k++) {
            int32_t x = m->x[t * n_mesh(m) + k];
            if (m->p->gcd[t] % m->p->mesh.sizes[k] != 0) {
                continue;
            }
            bool taken = s->split[t] == k;
            dtp_ilp_set_col_bounds(m->ilp, x, 1, 1);
            if (!taken) {
                int64_t peak = 0;
                int32_t n_split = 0;
                DTP_TRY(solve_once(m, split, &peak, &n_split, &taken, err));
                taken = taken && peak == s->peak && n_split == s->n_split;
                if (taken) {
                    memcpy(s->split, split, (size_t)m->p->n_dims);
                }
            }
            dtp_ilp_set_col_bounds(m->ilp, x, taken ? 1 : 0, taken ? 1 : 0);
        }
    }
    return DTP_OK;
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static dtp_status print_layout(const dtp_mtf_problem *p, dtp_mtf_solution *s, dtp_err *err)
{
    const char **pairs = dtp_arena_alloc(p->arena, (size_t)p->n_dims + 1, sizeof *pairs);
    dtp_strbuf b = {.failed = pairs == NULL};
    int32_t n = 0;
    for (int32_t t = 0; t < p->n_dims && !b.failed; t++) {
        if (s->split[t] >= 0) {
            pairs[n] = dtp_arena_printf(p->arena, "%s:%s", p->dims[t], p->mesh.names[s->split[t]]);
            b.failed = pairs[n++] == NULL;
        }
    }
    if (!b.failed) {
        qsort(pairs, (size_t)n, sizeof *pairs, by_text);
    }
    for (int32_t i = 0; i < n && !b.failed; i++) {
        dtp_strbuf_addf(&b, "%s%s", i > 0 ? ";" : "", pairs[i]);
    }
    s->layout = b.failed ? NULL : dtp_arena_strdup(p->arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return s->layout != NULL ? DTP_OK
                             : DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf layout");
}

static dtp_status optimise(model *m, dtp_mtf_solution *s, dtp_err *err)
{
    dtp_mtf_problem *p = m->p;
    DTP_TRY(build(m, err));
    s->split = dtp_arena_alloc(p->arena, (size_t)p->n_dims + 1, 1);
    int8_t *split = dtp_arena_alloc(p->arena, (size_t)p->n_dims + 1, 1);
    if (s->split == NULL || split == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf layout");
    }
    bool found = false;
    dtp_ilp_set_cost(m->ilp, m->z, 1.0);
    DTP_TRY(solve_once(m, s->split, &s->peak, &s->n_split, &found, err));
    if (!found) {
        return DTP_FAIL(err, DTP_SOLVER,
                        "auto_mtf: the solver found no layout, not even the whole one");
    }
    DTP_TRY(most_split(m, s, split, err));
    DTP_TRY(first_pairs(m, s, split, err));
    s->objective = ((int64_t)p->n_dims + 1) * s->peak - s->n_split;
    s->nodes = m->nodes;
    return print_layout(p, s, err);
}

dtp_status dtp_mtf_solve(dtp_mtf_problem *p, dtp_mtf_solution *out, dtp_err *err)
{
    model m = {.p = p};
    *out = (dtp_mtf_solution){0};
    DTP_TRY(dtp_ilp_create(&m.ilp, err));
    dtp_status status = optimise(&m, out, err);
    dtp_ilp_destroy(m.ilp);
    return status;
}
