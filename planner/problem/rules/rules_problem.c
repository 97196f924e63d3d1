/* The layout rules of one graph on one mesh as a selection problem. */
#include "planner/problem/rules/rules_problem.h"

#include <string.h>

#include "planner/problem/rules/rules_internal.h"

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for a problem of layout rules");
}

static dtp_status add_variables(dtp_rules_problem *p, dtp_err *err)
{
    int32_t most = 1 << DTP_MAX_MESH_DIMS;
    for (int32_t d = 0; d < p->n_sets; d++) {
        most = p->sets[d].n_assign > most ? p->sets[d].n_assign : most;
    }
    const int64_t *zero = dtp_arena_alloc(p->arena, (size_t)most, sizeof *zero);
    if (zero == NULL) {
        return no_memory(err);
    }
    for (int32_t t = 0; t < p->n_names; t++) {
        DTP_TRY(dtp_problem_add_variable(p->select, 0, 0, p->names[t].n_masks, zero, zero, err));
    }
    for (int32_t d = 0; d < p->n_sets; d++) {
        const dtp_rules_set *s = &p->sets[d];
        DTP_TRY(dtp_problem_add_variable(p->select, 0, 0, s->n_assign, s->cost_ps, zero, err));
    }
    return DTP_OK;
}

/* ---- edges ---- */

/* An earlier set whose matrix at place i is that of set d; -1: none. */
static int32_t set_like(const dtp_rules_problem *p, int32_t d, int32_t i)
{
    const dtp_rules_set *s = &p->sets[d];
    const dtp_rules_name *name = &p->names[s->names[i]];
    const size_t rows = (size_t)s->n_assign * (size_t)s->n;
    for (int32_t e = 0; e < d; e++) {
        const dtp_rules_set *o = &p->sets[e];
        if (o->n == s->n && o->n_assign == s->n_assign &&
            p->names[o->names[i]].n_masks == name->n_masks &&
            memcmp(p->names[o->names[i]].masks, name->masks, (size_t)name->n_masks) == 0 &&
            memcmp(o->assign, s->assign, rows) == 0) {
            return e;
        }
    }
    return -1;
}

/* Name i of set d has the same mask in both. first[d]: the first edge of set d. */
static dtp_status add_edge(const dtp_rules_problem *p, int32_t d, int32_t i, const int32_t *first,
                           int64_t *matrix, dtp_err *err)
{
    const dtp_rules_set *s = &p->sets[d];
    const dtp_rules_name *name = &p->names[s->names[i]];
    const int32_t like = set_like(p, d, i);
    if (like >= 0) {
        return dtp_problem_add_edge_like(p->select, s->names[i], p->n_names + d, first[like] + i,
                                         err);
    }
    for (int32_t k = 0; k < name->n_masks; k++) {
        for (int32_t a = 0; a < s->n_assign; a++) {
            const bool same = s->assign[(int64_t)a * s->n + i] == name->masks[k];
            matrix[(int64_t)k * s->n_assign + a] = same ? 0 : DTP_FORBIDDEN;
        }
    }
    return dtp_problem_add_edge(p->select, s->names[i], p->n_names + d, matrix, err);
}

static dtp_status add_edges(const dtp_rules_problem *p, dtp_err *err)
{
    int64_t most = 1;
    for (int32_t d = 0; d < p->n_sets; d++) {
        for (int32_t i = 0; i < p->sets[d].n; i++) {
            const int64_t entries =
                (int64_t)p->names[p->sets[d].names[i]].n_masks * p->sets[d].n_assign;
            most = entries > most ? entries : most;
        }
    }
    int32_t *first = dtp_arena_alloc(p->arena, (size_t)p->n_sets, sizeof *first);
    int64_t *matrix = dtp_arena_alloc(p->arena, (size_t)most, sizeof *matrix);
    if (first == NULL || matrix == NULL) {
        return no_memory(err);
    }
    for (int32_t d = 0; d < p->n_sets; d++) {
        first[d] = p->select->n_edges;
        for (int32_t i = 0; i < p->sets[d].n; i++) {
            DTP_TRY(add_edge(p, d, i, first, matrix, err));
        }
    }
    return DTP_OK;
}

/* ---- the problem ---- */

static dtp_status build(dtp_rules_problem *p, const dtp_layout_rules *pins, dtp_err *err)
{
    DTP_TRY(dtp_rules__names(p, pins, err));
    DTP_TRY(dtp_rules__price(p, err));
    DTP_TRY(dtp_rules__tensor_sets(p, err));
    DTP_TRY(dtp_problem_create(p->graph->name, INT64_MAX / 4, &p->select, err));
    DTP_TRY(add_variables(p, err));
    DTP_TRY(add_edges(p, err));
    DTP_TRY(dtp_rules__usage(p, err));
    return dtp_problem_check(p->select, err);
}

dtp_status dtp_rules_problem_create(const dtp_graph *g, const dtp_pricer *pricer,
                                    const dtp_redistributor *redistributor,
                                    const dtp_layout_rules *pins, bool uneven,
                                    dtp_rules_problem **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_rules_problem *p = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *p);
    if (p == NULL) {
        dtp_arena_destroy(arena);
        return no_memory(err);
    }
    p->arena = arena;
    p->graph = g;
    p->pricer = pricer;
    p->redistributor = redistributor;
    p->uneven = uneven;
    dtp_status s = build(p, pins, err);
    if (s != DTP_OK) {
        dtp_rules_problem_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void dtp_rules_problem_destroy(dtp_rules_problem *p)
{
    if (p != NULL) {
        dtp_problem_destroy(p->select);
        dtp_arena_destroy(p->arena);
    }
}

/* ---- assignments ---- */

dtp_status dtp_rules_of_assignment(const dtp_rules_problem *p, const int32_t *assignment,
                                   dtp_arena *arena, dtp_layout_rules *out, dtp_err *err)
{
    DTP_TRY(dtp_layout_rules_create(arena, p->graph->dims.n, out, err));
    for (int32_t t = 0; t < p->n_names; t++) {
        out->splits[p->names[t].dim] = dtp_rules__splits_of(p->names[t].masks[assignment[t]]);
    }
    return DTP_OK;
}

/* The strategy of a name with that mask, -1: none. */
static int32_t find_mask(const dtp_rules_name *name, uint8_t mask)
{
    for (int32_t k = 0; k < name->n_masks; k++) {
        if (name->masks[k] == mask) {
            return k;
        }
    }
    return -1;
}

bool dtp_rules_assignment(const dtp_rules_problem *p, const dtp_layout_rules *rules,
                          int32_t *assignment)
{
    for (dtp_dim_id dim = 0; dim < p->graph->dims.n; dim++) {
        const int32_t t = p->name_of[dim];
        uint8_t mask = 0;
        if (dim < rules->n && !dtp_rules__mask_of(&rules->splits[dim], &mask)) {
            return false;
        }
        const int32_t found = t >= 0 ? find_mask(&p->names[t], mask) : -1;
        if (t >= 0 ? found < 0 : mask != 0) {
            return false;
        }
        if (t >= 0) {
            assignment[t] = found;
        }
    }
    for (int32_t d = 0; d < p->n_sets; d++) {
        const dtp_rules_set *s = &p->sets[d];
        uint8_t row[DTP_MAX_OP_DIMS];
        int32_t a = 0;
        for (int32_t i = 0; i < s->n; i++) {
            row[i] = p->names[s->names[i]].masks[assignment[s->names[i]]];
        }
        while (a < s->n_assign && s->n > 0 &&
               memcmp(&s->assign[(int64_t)a * s->n], row, (size_t)s->n) != 0) {
            a++;
        }
        if (a == s->n_assign) {
            return false;
        }
        assignment[p->n_names + d] = a;
    }
    return true;
}

/* ---- names for reading ---- */

static const char *name_text(const dtp_rules_problem *p, int32_t t)
{
    return dtp_dims_name(&p->graph->dims, p->names[t].dim);
}

static void print_variable(const void *user, int32_t variable, dtp_strbuf *out)
{
    const dtp_rules_problem *p = user;
    if (variable < p->n_names) {
        dtp_strbuf_addf(out, "dim %s", name_text(p, variable));
        return;
    }
    const dtp_rules_set *s = &p->sets[variable - p->n_names];
    dtp_strbuf_add(out, "dims");
    for (int32_t i = 0; i < s->n; i++) {
        dtp_strbuf_addf(out, "%s %s", i > 0 ? "," : "", name_text(p, s->names[i]));
    }
}

static void print_strategy(const void *user, int32_t variable, int32_t strategy, dtp_strbuf *out)
{
    const dtp_rules_problem *p = user;
    const int32_t d = variable - p->n_names, n = d < 0 ? 1 : p->sets[d].n;
    const uint8_t *masks =
        d < 0 ? &p->names[variable].masks[strategy] : &p->sets[d].assign[(int64_t)strategy * n];
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        const dtp_rule_splits splits = dtp_rules__splits_of(masks[i]);
        for (int8_t k = 0; k < splits.n; k++) {
            dtp_strbuf_addf(out, "%s%s:%s", any ? ";" : "",
                            name_text(p, d < 0 ? variable : p->sets[d].names[i]),
                            p->pricer->mesh.names[splits.mesh_dims[k]]);
            any = true;
        }
    }
    dtp_strbuf_add(out, any ? "" : "(whole)");
}

dtp_problem_names dtp_rules_names(const dtp_rules_problem *p)
{
    return (dtp_problem_names){p, print_variable, print_strategy};
}
