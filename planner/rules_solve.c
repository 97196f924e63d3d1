#include "planner/rules_solve.h"

#include <math.h>
#include <string.h>

#include "planner/solver/glpk_fence.h"

enum { MAX_ROUNDS = 4000 };

/* Entries of memory rows below this share of the limit are left out: GLPK's tolerances are larger,
 * and its simplex may cycle on such rows. The row only admits more for it, and what it admits
 * wrongly is found when the choice is evaluated in integers. */
static const double NEGLIGIBLE = 1e-8;

/* A bound in floating point is lowered by this share. */
static const double ROUNDING = 1e-6;

dtp_rules_request dtp_rules_request_init(void)
{
    return (dtp_rules_request){.objective = DTP_OBJECTIVE_TIME, .max_solutions = 1, .margin = 0.05};
}

typedef struct solver {
    const dtp_rules_problem *p;
    const dtp_rules_request *request;
    dtp_arena *arena;
    dtp_ilp *ilp;
    int32_t n_mesh;
    int32_t *x;       /* n_names x n_mesh: column */
    int32_t *y_first; /* by set: column of assignment 0 */
    int32_t z;        /* column, memory objective only, in units of `byte_scale` */
    double cost_scale, byte_scale;
    bool *has_row; /* by node: its memory row is in */
    dtp_rules_result *out;
    int32_t *cols; /* scratch for one row */
    double *coefs;
    double *by_column; /* scratch, by column, zero between uses */
    int64_t relaxed;   /* bound of the first relaxation, in the units of the objective */
} solver;

/* ---- building -----------------------------------------------------------------------------------
 */

/* Scales so that the numbers GLPK sees are moderate: the cheapest assignments add up to about 1. */
static void choose_scales(solver *s)
{
    double cost = 0.0, bytes = 1.0;
    for (int32_t d = 0; d < s->p->n_sets; d++) {
        double least = INFINITY;
        for (int32_t a = 0; a < s->p->sets[d].n_assign; a++) {
            const double c = (double)s->p->sets[d].cost_ps[a];
            least = !s->p->sets[d].forbidden[a] && c < least ? c : least;
        }
        cost += isfinite(least) ? least : 0.0;
    }
    for (int32_t b = 0; b < s->p->n_buffers; b++) {
        bytes += (double)dtp_ttype_bytes(&s->p->graph->tensors[s->p->buffers[b].tensor].type);
    }
    s->cost_scale = cost > 0.0 ? 1000.0 / cost : 1.0;
    s->byte_scale = 1000.0 / bytes;
}

static dtp_status add_columns(solver *s, dtp_err *err)
{
    const dtp_rules_problem *p = s->p;
    const bool time = s->request->objective == DTP_OBJECTIVE_TIME;
    for (int32_t i = 0; i < p->n_names * s->n_mesh; i++) {
        const dtp_ilp_col col = {0.0, p->allowed[i] ? 1.0 : 0.0, 0.0, true};
        DTP_TRY(dtp_ilp_add_col(s->ilp, col, &s->x[i], err));
    }
    for (int32_t d = 0; d < p->n_sets; d++) {
        for (int32_t a = 0; a < p->sets[d].n_assign; a++) {
            int32_t at;
            const bool forbidden = p->sets[d].forbidden[a];
            const double cost = (double)p->sets[d].cost_ps[a] * s->cost_scale;
            const dtp_ilp_col col = {0.0, forbidden ? 0.0 : 1.0, time && !forbidden ? cost : 0.0,
                                     false};
            DTP_TRY(dtp_ilp_add_col(s->ilp, col, &at, err));
            if (a == 0) {
                s->y_first[d] = at;
            }
        }
    }
    s->z = -1;
    if (!time) {
        const int64_t limit = s->request->limit_bytes;
        const double most = limit > 0 ? ((double)limit + 0.5) * s->byte_scale : (double)INFINITY;
        const dtp_ilp_col col = {0.0, most, 1.0, false};
        DTP_TRY(dtp_ilp_add_col(s->ilp, col, &s->z, err));
    }
    return DTP_OK;
}

/* sum_a y[d,a] = 1 and, for every t in d and m, sum_{a: m in a(t)} y[d,a] - x[t,m] = 0. */
static dtp_status link_set(solver *s, int32_t d, dtp_err *err)
{
    const dtp_rules_set *set = &s->p->sets[d];
    for (int32_t a = 0; a < set->n_assign; a++) {
        s->cols[a] = s->y_first[d] + a;
        s->coefs[a] = 1.0;
    }
    DTP_TRY(dtp_ilp_add_row(s->ilp, 1.0, 1.0, set->n_assign, s->cols, s->coefs, NULL, err));
    for (int32_t i = 0; i < set->n; i++) {
        for (int32_t m = 0; m < s->n_mesh; m++) {
            int32_t n = 0;
            for (int32_t a = 0; a < set->n_assign; a++) {
                if ((set->assign[a * set->n + i] >> m & 1U) != 0) {
                    s->cols[n] = s->y_first[d] + a;
                    s->coefs[n++] = 1.0;
                }
            }
            s->cols[n] = s->x[s->p->name_of[set->dims[i]] * s->n_mesh + m];
            s->coefs[n++] = -1.0;
            DTP_TRY(dtp_ilp_add_row(s->ilp, 0.0, 0.0, n, s->cols, s->coefs, NULL, err));
        }
    }
    return DTP_OK;
}

static dtp_status add_rows(solver *s, dtp_err *err)
{
    for (int32_t d = 0; d < s->p->n_sets; d++) {
        DTP_TRY(link_set(s, d, err));
    }
    return DTP_OK;
}

/* The mesh dims that a pin names, which must be in mesh order. */
static dtp_status pin_mask(const solver *s, dtp_dim_id d, const dtp_rule_splits *splits,
                           uint8_t *mask, dtp_err *err)
{
    const dtp_mesh *mesh = &s->p->pricer->mesh;
    const char *name = dtp_dims_name(&s->p->graph->dims, d);
    const int32_t t = s->p->name_of[d];
    *mask = 0;
    for (int8_t k = 0; k < splits->n; k++) {
        const int32_t m = splits->mesh_dims[k];
        if (*mask >> m != 0) {
            return DTP_FAIL(
                err, DTP_UNSUPPORTED,
                "rules: '%s:%s' is out of order: the planner splits a dim in mesh order", name,
                mesh->names[m]);
        }
        *mask |= (uint8_t)(1U << m);
        if (t < 0 || !s->p->allowed[t * s->n_mesh + m] ||
            s->p->size_gcd[t] % dtp_mesh_set_size(mesh, *mask) != 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "rules: '%s:%s' cannot hold: %d parts do not divide every size of '%s'",
                            name, mesh->names[m], dtp_mesh_set_size(mesh, *mask), name);
        }
    }
    return DTP_OK;
}

/* A pinned name is split exactly so: its x are all fixed. */
static dtp_status apply_pins(solver *s, dtp_err *err)
{
    const dtp_layout_rules *pins = s->request->pins;
    for (dtp_dim_id d = 0; pins != NULL && d < pins->n; d++) {
        uint8_t mask;
        if (pins->splits[d].n == 0) {
            continue;
        }
        DTP_TRY(pin_mask(s, d, &pins->splits[d], &mask, err));
        for (int32_t m = 0; m < s->n_mesh; m++) {
            const double at = ((uint32_t)mask >> m & 1U) != 0 ? 1.0 : 0.0;
            dtp_ilp_set_col_bounds(s->ilp, s->x[s->p->name_of[d] * s->n_mesh + m], at, at);
        }
    }
    return DTP_OK;
}

static dtp_status allocate(solver *s, dtp_err *err)
{
    const dtp_rules_problem *p = s->p;
    size_t columns = (size_t)p->n_names * (size_t)s->n_mesh + 1;
    for (int32_t d = 0; d < p->n_sets; d++) {
        columns += (size_t)p->sets[d].n_assign;
    }
    s->x = dtp_arena_alloc(s->arena, columns, sizeof *s->x);
    s->y_first = dtp_arena_alloc(s->arena, (size_t)p->n_sets, sizeof *s->y_first);
    s->has_row = dtp_arena_alloc(s->arena, (size_t)p->graph->n_nodes + 1, sizeof *s->has_row);
    s->cols = dtp_arena_alloc(s->arena, columns, sizeof *s->cols);
    s->coefs = dtp_arena_alloc(s->arena, columns, sizeof *s->coefs);
    s->by_column = dtp_arena_alloc(s->arena, columns, sizeof *s->by_column);
    if (s->x == NULL || s->y_first == NULL || s->has_row == NULL || s->cols == NULL ||
        s->coefs == NULL || s->by_column == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu columns", columns);
    }
    return DTP_OK;
}

static dtp_status build(solver *s, dtp_err *err)
{
    DTP_TRY(allocate(s, err));
    DTP_TRY(dtp_ilp_create(&s->ilp, err));
    choose_scales(s);
    DTP_TRY(add_columns(s, err));
    DTP_TRY(add_rows(s, err));
    return apply_pins(s, err);
}

/* ---- memory rows --------------------------------------------------------------------------------
 */

/* Bytes alive at node n as a function of y, <= limit or <= z. */
static dtp_status add_memory_row(solver *s, dtp_node_id n, dtp_err *err)
{
    const dtp_rules_problem *p = s->p;
    const dtp_rules_class *c = &p->classes[p->class_of_node[n]];
    for (int32_t b = 0; b < p->n_buffers; b++) {
        const dtp_rules_buffer *buffer = &p->buffers[b];
        if (buffer->first <= n && n <= buffer->last) {
            for (int32_t a = 0; a < p->sets[buffer->set].n_assign; a++) {
                s->by_column[s->y_first[buffer->set] + a] +=
                    (double)dtp_rules_buffer_bytes(p, buffer, a);
            }
        }
    }
    for (int32_t a = 0; a < p->sets[c->set].n_assign; a++) {
        s->by_column[s->y_first[c->set] + a] += (double)c->temp_bytes[a];
    }
    const double least = s->z < 0 ? NEGLIGIBLE * (double)s->request->limit_bytes : 0.0;
    int32_t k = 0;
    for (int32_t col = 0; col < dtp_ilp_n_cols(s->ilp); col++) {
        if (s->by_column[col] > least) {
            s->cols[k] = col;
            s->coefs[k++] = s->by_column[col] * s->byte_scale;
        }
        s->by_column[col] = 0.0;
    }
    double most = ((double)s->request->limit_bytes + 0.5) * s->byte_scale;
    if (s->z >= 0) {
        s->cols[k] = s->z;
        s->coefs[k++] = -1.0;
        most = 0.0;
    }
    s->has_row[n] = true;
    return dtp_ilp_add_row(s->ilp, -INFINITY, most, k, s->cols, s->coefs, NULL, err);
}

/* ---- solving ------------------------------------------------------------------------------------
 */

static void read_choice(const solver *s, const double *values, dtp_rules_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    for (int32_t t = 0; t < s->p->n_names; t++) {
        for (int32_t m = 0; m < s->n_mesh; m++) {
            if (values[s->x[t * s->n_mesh + m]] > 0.5) {
                choice->mesh_dims[t] |= (uint8_t)(1U << m);
            }
        }
    }
}

/* Forbids exactly this choice. */
static dtp_status exclude(solver *s, const dtp_rules_choice *choice, dtp_err *err)
{
    int32_t n = 0, ones = 0;
    for (int32_t t = 0; t < s->p->n_names; t++) {
        for (int32_t m = 0; m < s->n_mesh; m++) {
            const bool one = (choice->mesh_dims[t] >> m & 1U) != 0;
            ones += one ? 1 : 0;
            s->cols[n] = s->x[t * s->n_mesh + m];
            s->coefs[n++] = one ? -1.0 : 1.0;
        }
    }
    return dtp_ilp_add_row(s->ilp, 1.0 - (double)ones, INFINITY, n, s->cols, s->coefs, NULL, err);
}

static bool needs_row(const solver *s, const dtp_rules_value *v, double z)
{
    if (s->has_row[v->peak_node]) {
        return false;
    }
    if (s->z >= 0) {
        return (double)v->peak_bytes * s->byte_scale > z * (1.0 + 1e-12) + 1e-12;
    }
    return s->request->limit_bytes > 0 && v->peak_bytes > s->request->limit_bytes;
}

/* Solves with memory rows added until the answer violates none. *found = false: infeasible or a
 * limit. */
static dtp_status solve_once(solver *s, dtp_rules_solution *best, bool *found, dtp_err *err)
{
    dtp_ilp_options options = dtp_ilp_options_init();
    options.stop = s->request->stop;
    *found = false;
    for (int32_t round = 0; round < MAX_ROUNDS; round++) {
        dtp_ilp_result r;
        DTP_TRY(dtp_ilp_solve(s->ilp, &options, &r, err));
        s->out->nodes += r.nodes;
        if (s->relaxed < 0) {
            const double scale = s->z >= 0 ? s->byte_scale : s->cost_scale;
            s->relaxed = (int64_t)fmax(0.0, r.root_bound / scale * (1.0 - ROUNDING));
        }
        if (r.values == NULL) {
            s->out->status =
                r.status == DTP_ILP_INFEASIBLE ? DTP_CERT_INFEASIBLE : DTP_CERT_TIME_LIMIT;
            return DTP_OK;
        }
        s->out->status = r.status == DTP_ILP_OPTIMAL ? DTP_CERT_OPTIMAL : DTP_CERT_FEASIBLE;
        const double z = s->z >= 0 ? r.values[s->z] : 0.0;
        read_choice(s, r.values, &best->choice);
        DTP_TRY(dtp_rules_evaluate(s->p, &best->choice, &best->value, err));
        if (!best->value.legal) {
            return DTP_FAIL(err, DTP_INTERNAL, "the integer program chose an illegal assignment");
        }
        if (needs_row(s, &best->value, z)) {
            DTP_TRY(add_memory_row(s, best->value.peak_node, err));
            continue;
        }
        *found = s->request->limit_bytes == 0 || best->value.peak_bytes <= s->request->limit_bytes;
        if (*found) {
            return DTP_OK;
        }
        DTP_TRY(exclude(s, &best->choice, err));
    }
    return DTP_FAIL(err, DTP_SOLVER, "no end after %d rounds of memory rows", MAX_ROUNDS);
}

static int64_t cost_of(const solver *s, const dtp_rules_solution *x)
{
    return s->request->objective == DTP_OBJECTIVE_TIME ? x->value.cost_ps : x->value.peak_bytes;
}

/* Keeps the solutions sorted by exact cost; equal costs keep the order found. */
static void insert(solver *s, const dtp_rules_solution *x)
{
    dtp_rules_result *out = s->out;
    int32_t at = out->n < DTP_RULES_MAX_SOLUTIONS ? out->n++ : out->n - 1;
    while (at > 0 && cost_of(s, &out->solutions[at - 1]) > cost_of(s, x)) {
        out->solutions[at] = out->solutions[at - 1];
        at--;
    }
    out->solutions[at] = *x;
}

/* Among the choices of the smallest peak, the one that splits most dims. */
static dtp_status split_most(solver *s, dtp_rules_solution *best, dtp_err *err)
{
    const int64_t peak = best->value.peak_bytes;
    dtp_rules_solution next;
    bool found;
    dtp_ilp_set_cost(s->ilp, s->z, 0.0);
    dtp_ilp_set_col_bounds(s->ilp, s->z, 0.0, ((double)peak + 0.5) * s->byte_scale);
    for (int32_t i = 0; i < s->p->n_names * s->n_mesh; i++) {
        dtp_ilp_set_cost(s->ilp, s->x[i], -1.0);
    }
    for (int32_t round = 0; round < MAX_ROUNDS; round++) {
        DTP_TRY(solve_once(s, &next, &found, err));
        if (!found) {
            s->out->status = DTP_CERT_OPTIMAL;
            return DTP_OK;
        }
        if (next.value.peak_bytes <= peak) {
            *best = next;
            return DTP_OK;
        }
        if (!s->has_row[next.value.peak_node]) {
            DTP_TRY(add_memory_row(s, next.value.peak_node, err));
        } else {
            DTP_TRY(exclude(s, &next.choice, err));
        }
    }
    return DTP_FAIL(err, DTP_SOLVER, "no end after %d rounds of memory rows", MAX_ROUNDS);
}

static dtp_status run(solver *s, dtp_err *err)
{
    dtp_rules_result *out = s->out;
    dtp_rules_solution x;
    bool found;
    DTP_TRY(build(s, err));
    DTP_TRY(solve_once(s, &x, &found, err));
    if (!found) {
        return DTP_OK;
    }
    const dtp_cert_status status = out->status;
    if (s->z >= 0) {
        DTP_TRY(split_most(s, &x, err));
        insert(s, &x);
        out->bound = status == DTP_CERT_OPTIMAL ? cost_of(s, &x) : s->relaxed;
        out->status = status;
        return DTP_OK;
    }
    while (found) {
        insert(s, &x);
        if (out->n >= s->request->max_solutions || out->n == DTP_RULES_MAX_SOLUTIONS) {
            break;
        }
        DTP_TRY(exclude(s, &x.choice, err));
        DTP_TRY(solve_once(s, &x, &found, err));
        const double worst = (double)cost_of(s, &out->solutions[0]) * (1.0 + s->request->margin);
        found = found && (double)cost_of(s, &x) <= worst;
    }
    out->bound = status == DTP_CERT_OPTIMAL ? cost_of(s, &out->solutions[0]) : s->relaxed;
    out->status = status;
    return DTP_OK;
}

dtp_status dtp_rules_solve(const dtp_rules_problem *p, const dtp_rules_request *request,
                           dtp_rules_result *out, dtp_err *err)
{
    memset(out, 0, sizeof *out);
    solver s = {.p = p,
                .request = request,
                .n_mesh = p->pricer->mesh.n_dims,
                .out = out,
                .z = -1,
                .relaxed = -1};
    s.arena = dtp_arena_create();
    if (s.arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the integer program");
    }
    dtp_status st = run(&s, err);
    dtp_ilp_destroy(s.ilp);
    dtp_arena_destroy(s.arena);
    return st;
}
