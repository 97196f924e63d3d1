/* Names that may be split and the sets in which they meet. */
#include <string.h>

#include "planner/problem/rules/rules_internal.h"

/* ---- names ---- */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* May these mesh dims split a name? */
static bool may_split(const dtp_rules_problem *p, const dtp_rules_name *name, dtp_mesh_set mask)
{
    const dtp_mesh *mesh = &p->pricer->mesh;
    const int32_t parts = dtp_mesh_set_size(mesh, mask);
    bool ok = name->size_gcd > 0;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        ok = ok && ((mask >> m & 1U) == 0 || mesh->sizes[m] > 1);
    }
    return ok && (p->uneven ? parts <= name->smallest : name->size_gcd % parts == 0);
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

bool dtp_rules__mask_of(const dtp_rule_splits *splits, uint8_t *mask)
{
    *mask = 0;
    for (int8_t k = 0; k < splits->n; k++) {
        if ((uint32_t)*mask >> splits->mesh_dims[k] != 0) {
            return false;
        }
        *mask |= (uint8_t)(1U << splits->mesh_dims[k]);
    }
    return true;
}

/* The mask of a pinned dim. */
static dtp_status pinned(const dtp_rules_problem *p, const dtp_rules_name *of,
                         const dtp_rule_splits *splits, uint8_t *mask, dtp_err *err)
{
    const dtp_mesh *mesh = &p->pricer->mesh;
    const char *name = dtp_dims_name(&p->graph->dims, of->dim);
    const char *last = mesh->names[splits->mesh_dims[splits->n - 1]];
    if (!dtp_rules__mask_of(splits, mask)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "rules: the splits of '%s', the last over '%s', are out of order: the "
                        "planner splits a dim in mesh order",
                        name, last);
    }
    if (!may_split(p, of, *mask)) {
        return DTP_FAIL(err, DTP_INVALID, "rules: '%s:%s' cannot hold: %d parts %s size of '%s'",
                        name, last, dtp_mesh_set_size(mesh, *mask),
                        p->uneven ? "are more than some" : "do not divide every", name);
    }
    return DTP_OK;
}

/* The masks that may split a dim, the whole among them, or the pinned one. */
static dtp_status list_masks(const dtp_rules_problem *p, const dtp_layout_rules *pins,
                             dtp_rules_name *name, dtp_err *err)
{
    const dtp_mesh *mesh = &p->pricer->mesh;
    const uint32_t most = 1U << mesh->n_dims;
    uint8_t *masks = dtp_arena_alloc(p->arena, most, sizeof *masks);
    DTP_TRY(DTP_MEMORY(err, masks));
    name->masks = masks;
    if (pins != NULL && name->dim < pins->n && pins->splits[name->dim].n > 0) {
        name->n_masks = 1;
        return pinned(p, name, &pins->splits[name->dim], masks, err);
    }
    for (uint32_t mask = 0; mask < most; mask++) {
        if (mask == 0 || may_split(p, name, mask)) {
            masks[name->n_masks++] = (uint8_t)mask;
        }
    }
    return DTP_OK;
}

dtp_status dtp_rules__names(dtp_rules_problem *p, const dtp_layout_rules *pins, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    const size_t n = (size_t)g->dims.n;
    int64_t *sizes = dtp_arena_alloc(p->arena, n, sizeof *sizes);
    int64_t *least = dtp_arena_alloc(p->arena, n, sizeof *least);
    p->names = dtp_arena_alloc(p->arena, n, sizeof *p->names);
    p->name_of = dtp_arena_alloc(p->arena, n, sizeof *p->name_of);
    DTP_TRY(DTP_MEMORY(err, sizes, least, p->names, p->name_of));
    for (int32_t t = 0; t < g->n_tensors; t++) {
        for (int32_t i = 0; i < g->tensors[t].type.rank; i++) {
            const dtp_tdim d = g->tensors[t].type.dims[i];
            least[d.id] = sizes[d.id] == 0 || d.size < least[d.id] ? d.size : least[d.id];
            sizes[d.id] = gcd(sizes[d.id], d.size);
        }
    }
    for (dtp_dim_id d = 0; d < g->dims.n; d++) {
        dtp_rules_name name = {.dim = d, .size_gcd = sizes[d], .smallest = least[d]};
        DTP_TRY(list_masks(p, pins, &name, err));
        const bool split = name.n_masks > 1 || name.masks[0] != 0;
        p->name_of[d] = split ? p->n_names : -1;
        if (split) {
            p->names[p->n_names++] = name;
        }
    }
    return DTP_OK;
}

/* ---- sets ---- */

typedef struct side_names {
    int32_t n;
    int32_t names[DTP_MAX_OP_DIMS];
    bool in[DTP_MAX_OP_DIMS], out[DTP_MAX_OP_DIMS];
} side_names;

/* Inserts the names of a type, ascending. */
static void add_names(const dtp_rules_problem *p, const dtp_ttype *type, bool is_out, side_names *s)
{
    for (int32_t i = 0; i < type->rank; i++) {
        const int32_t name = p->name_of[type->dims[i].id];
        int32_t at = 0;
        if (name < 0) {
            continue;
        }
        while (at < s->n && s->names[at] < name) {
            at++;
        }
        if (at == s->n || s->names[at] != name) {
            for (int32_t k = s->n; k > at; k--) {
                s->names[k] = s->names[k - 1];
                s->in[k] = s->in[k - 1];
                s->out[k] = s->out[k - 1];
            }
            s->names[at] = name;
            s->in[at] = s->out[at] = false;
            s->n++;
        }
        s->in[at] = s->in[at] || !is_out;
        s->out[at] = s->out[at] || is_out;
    }
}

/* Assignments under construction: one mesh dim after the other is given to names that may share
 * it. */
typedef struct map_list {
    dtp_rules_problem *p;
    const dtp_rules_set *s;
    uint8_t *rows;
    int32_t n, capacity; /* rows; bytes */
    uint8_t now[DTP_MAX_OP_DIMS];
} map_list;

static bool may_take(const map_list *l, int32_t i, int32_t m)
{
    const dtp_rules_name *name = &l->p->names[l->s->names[i]];
    bool ok = may_split(l->p, name, l->now[i] | 1U << m);
    for (int32_t k = 0; k < l->s->n && ok; k++) {
        /* May names i and j of the set share a mesh dim? */
        const uint32_t a = 1U << i, b = 1U << k;
        ok = k == i || (l->now[k] >> m & 1U) == 0 ||
             (((l->s->in_only & a) != 0 && (l->s->out_only & b) != 0) ||
              ((l->s->in_only & b) != 0 && (l->s->out_only & a) != 0));
    }
    return ok;
}

/* All ways to give mesh dims m.. to the names, with those of mesh dim m starting at dim `from`; the
 * one that gives nothing comes first. */
static dtp_status list_maps(map_list *l, int32_t m, int32_t from, dtp_err *err)
{
    if (m == l->p->pricer->mesh.n_dims) {
        const int32_t width = l->s->n;
        if (l->n == DTP_RULES_MAX_ASSIGN) {
            return DTP_FAIL(err, DTP_RANGE, "an op with %d dims has more than %d assignments",
                            width, DTP_RULES_MAX_ASSIGN);
        }
        DTP_TRY(dtp_arena_grow(l->p->arena, &l->rows, l->n * width, (l->n + 1) * width,
                               &l->capacity, sizeof *l->rows, err));
        if (width > 0) {
            memcpy(&l->rows[l->n * width], l->now, (size_t)width);
        }
        l->n++;
        return DTP_OK;
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

static dtp_status append_set(dtp_rules_problem *p, const dtp_rules_set *wanted, int32_t *out,
                             dtp_err *err)
{
    dtp_rules_set s = *wanted;
    map_list list = {.p = p, .s = &s};
    int32_t *names = dtp_arena_alloc(p->arena, (size_t)s.n, sizeof *names);
    DTP_TRY(DTP_MEMORY(err, names));
    memcpy(names, s.names, (size_t)s.n * sizeof *names);
    s.names = names;
    DTP_TRY(list_maps(&list, 0, 0, err));
    s.assign = list.rows;
    s.n_assign = list.n;
    DTP_TRY(DTP_NEW(p->arena, s.cost_ps, s.n_assign, err));
    DTP_TRY(dtp_arena_grow(p->arena, &p->sets, p->n_sets, p->n_sets + 1, &p->cap_sets,
                           sizeof *p->sets, err));
    p->sets[p->n_sets] = s;
    *out = p->n_sets++;
    return DTP_OK;
}

static dtp_status find_set(dtp_rules_problem *p, const side_names *names, bool renames,
                           int32_t *out, dtp_err *err)
{
    dtp_rules_set wanted = {.n = names->n, .names = names->names};
    for (int32_t i = 0; i < names->n && renames; i++) {
        wanted.in_only |= names->in[i] && !names->out[i] ? 1U << i : 0;
        wanted.out_only |= names->out[i] && !names->in[i] ? 1U << i : 0;
    }
    for (int32_t s = 0; s < p->n_sets; s++) {
        const dtp_rules_set *have = &p->sets[s];
        if (have->n == wanted.n && have->in_only == wanted.in_only &&
            have->out_only == wanted.out_only &&
            memcmp(have->names, wanted.names, (size_t)wanted.n * sizeof *wanted.names) == 0) {
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
    side_names names = {0};
    for (int32_t i = 0; i < n->n_in; i++) {
        add_names(p, &g->tensors[n->in[i]].type, false, &names);
    }
    for (int32_t i = 0; i < n->n_out; i++) {
        add_names(p, &g->tensors[n->out[i]].type, true, &names);
    }
    dtp_status s = find_set(p, &names, (n->op->flags & DTP_OP_RENAMES) != 0, out, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "node '%s' (%s)", n->name, n->op->name);
    }
    return s;
}

dtp_status dtp_rules__tensor_set(dtp_rules_problem *p, dtp_tensor_id t, int32_t *out, dtp_err *err)
{
    side_names names = {0};
    add_names(p, &p->graph->tensors[t].type, false, &names);
    return find_set(p, &names, false, out, err);
}
