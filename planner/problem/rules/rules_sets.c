/* Names that may be split and the sets in which they meet. */
#include <string.h>

#include "planner/problem/rules/rules_internal.h"

/* ---- names --------------------------------------------------------------------------------------
 */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

dtp_status dtp_rules__names(dtp_rules_problem *p, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const dtp_mesh *mesh = &p->pricer->mesh;
    const size_t n = (size_t)g->dims.n;
    int64_t *sizes = dtp_arena_alloc(p->arena, n, sizeof *sizes);
    p->size_gcd = dtp_arena_alloc(p->arena, n, sizeof *p->size_gcd);
    p->names = dtp_arena_alloc(p->arena, n, sizeof *p->names);
    p->name_of = dtp_arena_alloc(p->arena, n, sizeof *p->name_of);
    p->allowed = dtp_arena_alloc(p->arena, n * DTP_MAX_MESH_DIMS, sizeof *p->allowed);
    if (sizes == NULL || p->size_gcd == NULL || p->names == NULL || p->name_of == NULL ||
        p->allowed == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d dim names", g->dims.n);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        for (int32_t i = 0; i < g->tensors[t].type.rank; i++) {
            const dtp_tdim d = g->tensors[t].type.dims[i];
            sizes[d.id] = gcd(sizes[d.id], d.size);
        }
    }
    for (dtp_dim_id d = 0; d < g->dims.n; d++) {
        bool any = false;
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            const bool ok = sizes[d] > 0 && mesh->sizes[m] > 1 && sizes[d] % mesh->sizes[m] == 0;
            p->allowed[p->n_names * mesh->n_dims + m] = ok;
            any = any || ok;
        }
        p->name_of[d] = any ? p->n_names : -1;
        if (any && p->n_names == DTP_MAX_CHOICE_NAMES) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "more than %d dim names could be split",
                            DTP_MAX_CHOICE_NAMES);
        }
        if (any) {
            p->size_gcd[p->n_names] = sizes[d];
            p->names[p->n_names++] = d;
        }
    }
    return DTP_OK;
}

/* ---- sets ---------------------------------------------------------------------------------------
 */

typedef struct side_dims {
    int32_t n;
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    bool in[DTP_MAX_OP_DIMS], out[DTP_MAX_OP_DIMS];
} side_dims;

/* Inserts the splittable dims of a type, ascending. */
static void add_dims(const dtp_rules_problem *p, const dtp_ttype *type, bool is_out, side_dims *s)
{
    for (int32_t i = 0; i < type->rank; i++) {
        const dtp_dim_id d = type->dims[i].id;
        int32_t at = 0;
        if (p->name_of[d] < 0) {
            continue;
        }
        while (at < s->n && s->dims[at] < d) {
            at++;
        }
        if (at == s->n || s->dims[at] != d) {
            for (int32_t k = s->n; k > at; k--) {
                s->dims[k] = s->dims[k - 1];
                s->in[k] = s->in[k - 1];
                s->out[k] = s->out[k - 1];
            }
            s->dims[at] = d;
            s->in[at] = s->out[at] = false;
            s->n++;
        }
        s->in[at] = s->in[at] || !is_out;
        s->out[at] = s->out[at] || is_out;
    }
}

/* May dims i and j of the set share a mesh dim? */
static bool may_share(const dtp_rules_set *s, int32_t i, int32_t j)
{
    const uint32_t a = 1U << i, b = 1U << j;
    return ((s->in_only & a) != 0 && (s->out_only & b) != 0) ||
           ((s->in_only & b) != 0 && (s->out_only & a) != 0);
}

/* Assignments under construction: one mesh dim after the other is given to a set of dims that may
 * share it. */
typedef struct map_list {
    dtp_rules_problem *p;
    const dtp_rules_set *s;
    uint8_t *rows;
    int32_t n, capacity; /* rows; bytes */
    uint8_t now[DTP_MAX_OP_DIMS];
} map_list;

static bool may_take(const map_list *l, int32_t i, int32_t m)
{
    const dtp_rules_problem *p = l->p;
    const int32_t name = p->name_of[l->s->dims[i]];
    const dtp_mesh_set mask = l->now[i] | 1U << m;
    bool ok = p->allowed[name * p->pricer->mesh.n_dims + m] &&
              p->size_gcd[name] % dtp_mesh_set_size(&p->pricer->mesh, mask) == 0;
    for (int32_t k = 0; k < l->s->n && ok; k++) {
        ok = k == i || (l->now[k] >> m & 1U) == 0 || may_share(l->s, i, k);
    }
    return ok;
}

static dtp_status append_row(map_list *l, dtp_err *err)
{
    const int32_t width = l->s->n;
    if (l->n == DTP_RULES_MAX_ASSIGN) {
        return DTP_FAIL(err, DTP_RANGE, "an op with %d dims has more than %d assignments", width,
                        DTP_RULES_MAX_ASSIGN);
    }
    DTP_TRY(dtp_arena_grow(l->p->arena, &l->rows, l->n * width, (l->n + 1) * width, &l->capacity,
                           sizeof *l->rows, err));
    if (width > 0) {
        memcpy(&l->rows[l->n * width], l->now, (size_t)width);
    }
    l->n++;
    return DTP_OK;
}

/* All ways to give mesh dims m.. to the dims, with those of mesh dim m starting at dim `from`; the
 * one that gives nothing comes first. */
static dtp_status list_maps(map_list *l, int32_t m, int32_t from, dtp_err *err)
{
    if (m == l->p->pricer->mesh.n_dims) {
        return append_row(l, err);
    }
    DTP_TRY(list_maps(l, m + 1, 0, err));
    for (int32_t i = from; i < l->s->n; i++) {
        if (may_take(l, i, m)) {
            l->now[i] |= (uint8_t)(1U << m);
            DTP_TRY(list_maps(l, m, i + 1, err));
            l->now[i] &= (uint8_t) ~(1U << m);
        }
    }
    return DTP_OK;
}

static dtp_status make_maps(dtp_rules_problem *p, dtp_rules_set *s, dtp_err *err)
{
    map_list list = {.p = p, .s = s};
    DTP_TRY(list_maps(&list, 0, 0, err));
    s->assign = list.rows;
    s->n_assign = list.n;
    return DTP_OK;
}

static dtp_status append_set(dtp_rules_problem *p, const dtp_rules_set *wanted, int32_t *out,
                             dtp_err *err)
{
    dtp_rules_set s = *wanted;
    dtp_dim_id *dims = dtp_arena_alloc(p->arena, (size_t)s.n, sizeof *dims);
    if (dims == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a dim set");
    }
    memcpy(dims, s.dims, (size_t)s.n * sizeof *dims);
    s.dims = dims;
    DTP_TRY(make_maps(p, &s, err));
    s.forbidden = dtp_arena_alloc(p->arena, (size_t)s.n_assign, sizeof *s.forbidden);
    s.cost_ps = dtp_arena_alloc(p->arena, (size_t)s.n_assign, sizeof *s.cost_ps);
    if (s.forbidden == NULL || s.cost_ps == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d assignments", s.n_assign);
    }
    DTP_TRY(dtp_arena_grow(p->arena, &p->sets, p->n_sets, p->n_sets + 1, &p->cap_sets,
                           sizeof *p->sets, err));
    p->sets[p->n_sets] = s;
    *out = p->n_sets++;
    return DTP_OK;
}

static dtp_status find_set(dtp_rules_problem *p, const side_dims *dims, bool renames, int32_t *out,
                           dtp_err *err)
{
    dtp_rules_set wanted = {.n = dims->n, .dims = dims->dims};
    for (int32_t i = 0; i < dims->n && renames; i++) {
        wanted.in_only |= dims->in[i] && !dims->out[i] ? 1U << i : 0;
        wanted.out_only |= dims->out[i] && !dims->in[i] ? 1U << i : 0;
    }
    for (int32_t s = 0; s < p->n_sets; s++) {
        const dtp_rules_set *have = &p->sets[s];
        if (have->n == wanted.n && have->in_only == wanted.in_only &&
            have->out_only == wanted.out_only &&
            memcmp(have->dims, wanted.dims, (size_t)wanted.n * sizeof *wanted.dims) == 0) {
            *out = s;
            return DTP_OK;
        }
    }
    return append_set(p, &wanted, out, err);
}

dtp_status dtp_rules__op_set(dtp_rules_problem *p, dtp_node_id node, int32_t *out, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const dtp_node *n = &g->nodes[node];
    side_dims dims = {0};
    for (int32_t i = 0; i < n->n_in; i++) {
        add_dims(p, &g->tensors[n->in[i]].type, false, &dims);
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        add_dims(p, &g->tensors[n->out[i]].type, true, &dims);
    }
    dtp_status s = find_set(p, &dims, (n->op->flags & DTP_OP_RENAMES) != 0, out, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "node '%s' (%s)", n->name, n->op->name);
    }
    return s;
}

dtp_status dtp_rules__tensor_set(dtp_rules_problem *p, dtp_tensor_id t, int32_t *out, dtp_err *err)
{
    side_dims dims = {0};
    add_dims(p, &p->graph->tensors[t].type, false, &dims);
    return find_set(p, &dims, false, out, err);
}

dtp_rule_splits dtp_rules__splits_of(uint8_t mask)
{
    dtp_rule_splits splits = {0};
    for (int32_t m = 0; m < DTP_MAX_MESH_DIMS; m++) {
        if (((uint32_t)mask >> m & 1U) != 0) {
            splits.mesh_dims[splits.n++] = (int8_t)m;
        }
    }
    return splits;
}
