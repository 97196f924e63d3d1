/* A plan on fewer ranks: a smaller mesh, and sizes of the model with which every split that was
 * even stays even and every one that was not stays uneven. */
#include "core/plan/plan_smaller.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/plan/node_layouts.h"

/* ---- the splits of a plan ---- */

typedef struct finder {
    dtp_arena *arena;
    int32_t n, capacity;
    dtp_plan_split *list;
} finder;

static dtp_status add(finder *f, const dtp_layout *layout, const dtp_ttype *type, dtp_err *err)
{
    for (int32_t axis = 0; axis < type->rank; axis++) {
        int32_t mesh_dims[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(layout, axis, mesh_dims);
        if (n == 0) {
            continue;
        }
        if (f->n == f->capacity) {
            const int32_t more = f->capacity == 0 ? 1024 : 2 * f->capacity;
            dtp_plan_split *list;
            DTP_TRY(DTP_NEW(f->arena, list, more, err));
            if (f->n > 0) {
                memcpy(list, f->list, (size_t)f->n * sizeof *list);
            }
            f->list = list;
            f->capacity = more;
        }
        dtp_plan_split *split = &f->list[f->n++];
        *split = (dtp_plan_split){.dim = type->dims[axis].id, .size = type->dims[axis].size};
        for (int32_t i = 0; i < n; i++) {
            split->set |= 1U << mesh_dims[i];
        }
    }
    return DTP_OK;
}

static dtp_status add_node(finder *f, const dtp_graph *g, const dtp_sharding *s, dtp_node_id n,
                           dtp_err *err)
{
    dtp_call_types types;
    dtp_node_layouts layouts;
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    const dtp_node *node = &g->nodes[n];
    const dtp_op_call call = dtp_node_call(g, node, &types);
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = s->layouts[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = s->layouts[node->out[i]];
    }
    DTP_TRY(dtp_err_prefixed(
        dtp_node_layouts_find(&s->mesh, &call, NULL, &s->strategies[n], in, out, &layouts, err),
        err, "node '%s'", node->name));
    for (int32_t i = 0; i < node->n_in; i++) {
        DTP_TRY(add(f, &layouts.in[i], &call.in[i], err));
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        DTP_TRY(add(f, &layouts.out[i], &call.out[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_plan_splits_find(const dtp_plan *plan, const dtp_graph *g, dtp_arena *arena,
                                dtp_plan_splits *out, dtp_err *err)
{
    const dtp_sharding *s = &plan->sharding;
    finder f = {.arena = arena};
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        DTP_TRY(add(&f, &s->layouts[t], &g->tensors[t].type, err));
        for (int phase = 0; phase < 3 && dtp_sharding_has_replicas(s); phase++) {
            DTP_TRY(add(&f, &s->replicas[phase][t], &g->tensors[t].type, err));
        }
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        DTP_TRY(add_node(&f, g, s, n, err));
    }
    *out = (dtp_plan_splits){.g = g, .mesh = s->mesh, .n = f.n, .list = f.list};
    return DTP_OK;
}

static bool is_even(const dtp_plan_split *split, const dtp_mesh *mesh)
{
    return split->size % dtp_mesh_set_size(mesh, split->set) == 0;
}

bool dtp_plan_splits_kept(const dtp_plan_splits *planned, const dtp_plan_splits *smaller,
                          char why[DTP_PLAN_SPLIT_TEXT_BYTES])
{
    for (int32_t i = 0; i < planned->n && i < smaller->n; i++) {
        const dtp_plan_split *a = &planned->list[i], *b = &smaller->list[i];
        const char *name = dtp_dims_name(&planned->g->dims, a->dim);
        const char *now = dtp_dims_name(&smaller->g->dims, b->dim);
        const int32_t parts = dtp_mesh_set_size(&planned->mesh, a->set);
        const int32_t now_parts = dtp_mesh_set_size(&smaller->mesh, b->set);
        const bool even = is_even(a, &planned->mesh);
        if (strcmp(name, now) != 0 || a->set != b->set || is_even(b, &smaller->mesh) != even ||
            (a->size >= parts && b->size < now_parts)) {
            (void)snprintf(why, DTP_PLAN_SPLIT_TEXT_BYTES,
                           "%s '%.60s', %" PRId64 " in %d parts, became '%.60s', %" PRId64
                           " in %d parts",
                           even ? "the even split of" : "the uneven split of", name, a->size, parts,
                           now, b->size, now_parts);
            return false;
        }
    }
    (void)snprintf(why, DTP_PLAN_SPLIT_TEXT_BYTES, "%d splits became %d", planned->n, smaller->n);
    return planned->n == smaller->n;
}

/* ---- smaller sizes ---- */

/* The distinct splits of one dim of the model. */
enum { MAX_KINDS = 64, MAX_TRIED = 1 << 20 };

typedef struct kinds {
    int32_t n;
    dtp_plan_split of[MAX_KINDS];
} kinds;

/* Whether a dim of the model that becomes `now` keeps its splits, also where tensors have a part
 * of it (microbatches) or several of it (concat). */
static bool keeps(const kinds *k, const dtp_mesh *planned, const dtp_mesh *smaller, int64_t size,
                  int64_t now)
{
    for (int32_t i = 0; i < k->n; i++) {
        const dtp_plan_split *was = &k->of[i];
        dtp_plan_split is = *was;
        if (was->size % size == 0) {
            is.size = was->size / size * now;
        } else if (size % was->size == 0 && now % (size / was->size) == 0) {
            is.size = now / (size / was->size);
        } else {
            return false;
        }
        const int32_t parts = dtp_mesh_set_size(planned, was->set);
        const int32_t now_parts = dtp_mesh_set_size(smaller, was->set);
        if (is_even(was, planned) != is_even(&is, smaller) ||
            (was->size >= parts && is.size < now_parts)) {
            return false;
        }
    }
    return true;
}

int64_t dtp_plan_smaller_size(const dtp_plan_splits *planned, const dtp_mesh *smaller,
                              const char *name, int64_t size)
{
    const dtp_dim_id dim = dtp_dims_find(&planned->g->dims, name);
    kinds k = {0};
    double share = 1.0;
    for (int32_t i = 0; i < planned->n; i++) {
        const dtp_plan_split *s = &planned->list[i];
        int32_t at = 0;
        while (at < k.n && (k.of[at].size != s->size || k.of[at].set != s->set)) {
            at++;
        }
        if (s->dim == dim && at == k.n && k.n < MAX_KINDS) {
            k.of[k.n++] = *s;
        }
    }
    for (int32_t i = 0; i < k.n; i++) {
        const double of_kind = (double)dtp_mesh_set_size(smaller, k.of[i].set) /
                               (double)dtp_mesh_set_size(&planned->mesh, k.of[i].set);
        share = of_kind < share ? of_kind : share;
    }
    int64_t now = (int64_t)((double)size * share);
    now = now < 1 ? 1 : now;
    const int64_t most = now < size - MAX_TRIED ? now + MAX_TRIED : size;
    while (now < most && !keeps(&k, &planned->mesh, smaller, size, now)) {
        now++;
    }
    return now < most ? now : size;
}

/* ---- smaller meshes ---- */

typedef struct mesh_search {
    const dtp_mesh *mesh;
    bool divides; /* sizes that divide those of the mesh alone; else those with one that does not */
    int32_t n;
    dtp_mesh *out, now;
} mesh_search;

/* Mesh dims from m on, with `left` ranks in all of them. */
static void place(mesh_search *s, int32_t m, int64_t left)
{
    if (s->n == DTP_SMALLER_MESHES) {
        return;
    }
    if (m == s->mesh->n_dims || m == DTP_MAX_MESH_DIMS) {
        bool all = true;
        for (int32_t i = 0; i < m; i++) {
            all = all && s->mesh->sizes[i] % s->now.sizes[i] == 0;
        }
        if (left == 1 && all == s->divides) {
            s->out[s->n++] = s->now;
        }
        return;
    }
    const int64_t most = s->mesh->sizes[m];
    for (int64_t size = most > 1 ? 2 : 1; size <= most && size <= left; size++) {
        if (left % size == 0) {
            s->now.sizes[m] = size;
            place(s, m + 1, left / size);
        }
    }
}

int32_t dtp_smaller_meshes(const dtp_mesh *mesh, int32_t ranks, dtp_mesh out[DTP_SMALLER_MESHES])
{
    mesh_search s = {.mesh = mesh, .out = out, .now = *mesh};
    for (int divides = 1; divides >= 0; divides--) {
        s.divides = divides != 0;
        for (int32_t n = ranks; n >= 1 && s.n < DTP_SMALLER_MESHES; n--) {
            place(&s, 0, n);
        }
    }
    return s.n;
}

int64_t dtp_smallest_ranks(const dtp_mesh *mesh)
{
    int64_t ranks = 1;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        ranks *= mesh->sizes[m] > 1 ? 2 : 1;
    }
    return ranks;
}
