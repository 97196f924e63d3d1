/* The steps that PyTorch DTensor takes from one layout to another. */
#include "interop/redistribute_torch.h"

#include <assert.h>

#include "spmd/redistribute/redistribute_internal.h"

enum { MAX_TRANSFORMS = 2 * DTP_MAX_STEPS };

typedef struct transforms {
    int32_t n;
    dtp_torch_transform items[MAX_TRANSFORMS];
} transforms;

static const dtp_placement REPLICATED = {0};

/* Same placement, whatever the depth of the split. */
static bool same_place(const dtp_placement *a, const dtp_placement *b)
{
    return a->kind == b->kind && a->axis == b->axis && a->op == b->op;
}

static void add_transform(transforms *list, int32_t m, dtp_placement from, dtp_placement to)
{
    assert(list->n < MAX_TRANSFORMS);
    list->items[list->n++] = (dtp_torch_transform){m, from, to};
}

/* ---- the greedy order ---- */

/* Mesh dims before m that split the axis. */
static dtp_mesh_set outer_splits(const dtp_placement *places, int32_t m, int32_t axis)
{
    dtp_mesh_set set = 0;
    for (int32_t i = 0; i < m; i++) {
        set |= places[i].kind == DTP_SHARD && places[i].axis == axis ? 1U << i : 0U;
    }
    return set;
}

/* From inner to outer mesh dims, where a split whose outer splits will change is made whole first;
 * then from outer to inner what is left. A tensor that is not split needs the second pass only (its
 * splits over single ranks, which cost nothing, are taken off before). */
static void greedy(const dtp_mesh *mesh, const dtp_layout *from, const dtp_layout *to,
                   transforms *out)
{
    dtp_layout at = *from;
    bool split = dtp_layout_shards(from, mesh) > 1;
    for (int32_t left = at.n_mesh; left > 0; left--) {
        const int32_t m = left - 1;
        dtp_placement target =
            split || at.placement[m].kind == DTP_SHARD ? to->placement[m] : at.placement[m];
        if (target.kind == DTP_SHARD && outer_splits(at.placement, m, target.axis) !=
                                            outer_splits(to->placement, m, target.axis)) {
            target = REPLICATED;
        }
        if (!same_place(&at.placement[m], &target)) {
            add_transform(out, m, at.placement[m], target);
            at.placement[m] = target;
        }
    }
    for (int32_t m = 0; m < at.n_mesh; m++) {
        if (!same_place(&at.placement[m], &to->placement[m])) {
            add_transform(out, m, at.placement[m], to->placement[m]);
        }
    }
}

/* Whether every tensor dim is split in the order of the mesh dims. */
static bool has_default_order(const dtp_layout *layout)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        for (int32_t k = m + 1; k < layout->n_mesh && p->kind == DTP_SHARD; k++) {
            const dtp_placement *q = &layout->placement[k];
            if (q->kind == DTP_SHARD && q->axis == p->axis && q->order < p->order) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the search ---- */

static dtp_status search(const dtp_torch_planner *planner, const dtp_mesh *mesh,
                         const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                         transforms *out, dtp_err *err)
{
    const dtp_torch_options *o = &planner->options;
    dtp_redistribution r = {.mesh = mesh,
                            .type = type,
                            .from = from,
                            .to = to,
                            .price = o->price,
                            .user = o->price_user,
                            .single = true,
                            .free_splits = true};
    dtp_steps steps = {0};
    bool found;
    DTP_TRY(dtp_redistribute__search(&r, &steps, &found, err));
    if (!found) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "too many layouts between the two for a search");
    }
    /* Averages are scaled before they are summed: the search's scale step is part of the
     * reduction. */
    dtp_layout at = *from;
    for (int32_t i = 0; i < steps.n; i++) {
        const dtp_step *step = &steps.steps[i];
        if (step->kind == DTP_STEP_SCALE) {
            continue;
        }
        for (int32_t m = 0; m < at.n_mesh; m++) {
            if ((step->set >> m & 1U) != 0) {
                add_transform(out, m, at.placement[m], step->after.placement[m]);
                at.placement[m] = step->after.placement[m];
            }
        }
    }
    return DTP_OK;
}

/* ---- merging ---- */

typedef struct merger {
    dtp_torch_planner *planner;
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    dtp_layout at;
    dtp_steps *out;
} merger;

static dtp_step_kind kind_of(const dtp_torch_transform *t)
{
    switch (t->to.kind) {
    case DTP_REPLICATE:
        return t->from.kind == DTP_PARTIAL ? DTP_STEP_ALL_REDUCE : DTP_STEP_ALL_GATHER;
    case DTP_SHARD:
        if (t->from.kind == DTP_PARTIAL) {
            return DTP_STEP_REDUCE_SCATTER;
        }
        return t->from.kind == DTP_SHARD ? DTP_STEP_ALL_TO_ALL : DTP_STEP_SLICE;
    default:
        return DTP_STEP_KEEP_FIRST;
    }
}

static int summed(const dtp_placement *p)
{
    return p->op == DTP_REDUCE_AVG ? DTP_REDUCE_SUM : p->op;
}

/* Same placements on both sides; sum and avg are reduced alike. */
static bool same_transform(const dtp_torch_transform *a, const dtp_torch_transform *b)
{
    return same_place(&a->to, &b->to) && a->from.kind == b->from.kind &&
           a->from.axis == b->from.axis && summed(&a->from) == summed(&b->from);
}

static bool divides(const merger *g, int32_t axis, dtp_mesh_set set)
{
    int64_t parts = dtp_mesh_set_size(g->mesh, set);
    for (int32_t m = 0; m < g->at.n_mesh; m++) {
        const dtp_placement *p = &g->at.placement[m];
        bool counted = (set >> m & 1U) != 0;
        parts *= p->kind == DTP_SHARD && p->axis == axis && !counted ? g->mesh->sizes[m] : 1;
    }
    return g->type->dims[axis].size % parts == 0;
}

/* Whether `sign` times the mesh dims ascends. */
static bool is_ordered(const dtp_torch_transform *t, int32_t n, int32_t sign)
{
    for (int32_t i = 1; i < n; i++) {
        if (sign * t[i].mesh_dim <= sign * t[i - 1].mesh_dim) {
            return false;
        }
    }
    return true;
}

/* NULL when the n transforms become one collective, else why not. */
static const char *obstacle(const merger *g, const dtp_torch_transform *t, int32_t n,
                            dtp_mesh_set set)
{
    const dtp_torch_options *o = &g->planner->options;
    dtp_step_kind kind = kind_of(t);
    bool scatter = kind == DTP_STEP_REDUCE_SCATTER, gather = kind == DTP_STEP_ALL_GATHER;
    if ((scatter && !is_ordered(t, n, 1)) || (gather && !is_ordered(t, n, -1))) {
        return "the splits are not in the order of the mesh dims";
    }
    bool declared = false;
    for (int32_t i = 0; i < o->n_flat; i++) {
        declared = declared || o->flat[i] == set;
    }
    if (!declared) {
        return "no flattened mesh dim is declared for them";
    }
    if ((scatter && !divides(g, t->to.axis, set)) || (gather && !divides(g, t->from.axis, set))) {
        return "the tensor dim does not divide evenly";
    }
    return NULL;
}

static void warn(const merger *g, dtp_mesh_set set, const char *why)
{
    dtp_torch_planner *p = g->planner;
    if (p->options.warn != NULL && (p->warned >> set & 1U) == 0) {
        p->options.warn(p->options.warn_user, g->mesh, set, why);
    }
    p->warned |= UINT64_C(1) << set;
}

static dtp_status append_step(dtp_steps *out, const dtp_step *step, dtp_err *err)
{
    if (out->n == DTP_MAX_STEPS) {
        return DTP_FAIL(err, DTP_INTERNAL, "a redistribution of more than %d steps", DTP_MAX_STEPS);
    }
    out->steps[out->n++] = *step;
    return DTP_OK;
}

/* One step for transforms alike over the mesh dims of `set`. */
static dtp_status emit(merger *g, const dtp_torch_transform *t, dtp_mesh_set set, dtp_err *err)
{
    dtp_step step = {.kind = kind_of(t), .set = set};
    bool unsplits = t->from.kind == DTP_SHARD;
    step.axis = unsplits ? t->from.axis : t->to.axis;
    step.to_axis = step.kind == DTP_STEP_ALL_TO_ALL ? t->to.axis : 0;
    if (t->from.kind == DTP_PARTIAL) {
        dtp_mesh_set avg = 0;
        for (int32_t m = 0; m < g->at.n_mesh; m++) {
            if ((set >> m & 1U) != 0 && g->at.placement[m].kind == DTP_PARTIAL &&
                g->at.placement[m].op == DTP_REDUCE_AVG) {
                avg |= 1U << m;
                g->at.placement[m].op = DTP_REDUCE_SUM;
            }
        }
        if (avg != 0) {
            dtp_step scale = {.kind = DTP_STEP_SCALE, .set = avg, .after = g->at};
            scale.factor = 1.0 / dtp_mesh_set_size(g->mesh, avg);
            DTP_TRY(append_step(g->out, &scale, err));
        }
        step.op = (dtp_reduce_op)summed(&t->from);
    } else if (t->to.kind == DTP_PARTIAL) {
        step.op = (dtp_reduce_op)t->to.op;
    }
    for (int32_t m = 0; m < g->at.n_mesh; m++) {
        if ((set >> m & 1U) != 0) {
            g->at.placement[m] = t->to.kind == DTP_PARTIAL ? t->to : REPLICATED;
        }
    }
    for (int32_t m = 0; m < g->at.n_mesh && t->to.kind == DTP_SHARD; m++) {
        if ((set >> m & 1U) != 0) {
            dtp_layout_split(&g->at, m, t->to.axis);
        }
    }
    step.after = g->at;
    return append_step(g->out, &step, err);
}

/* A maximal run of transforms alike: one collective, or one each. */
static dtp_status emit_group(merger *g, const dtp_torch_transform *t, int32_t n, dtp_err *err)
{
    if (n > 1) {
        dtp_mesh_set set = 0;
        for (int32_t i = 0; i < n; i++) {
            set |= 1U << t[i].mesh_dim;
        }
        const char *why = obstacle(g, t, n, set);
        if (why == NULL) {
            return emit(g, t, set, err);
        }
        warn(g, set, why);
    }
    for (int32_t i = 0; i < n; i++) {
        const dtp_torch_transform *one = &t[i];
        if (g->planner->options.no_all_to_all && kind_of(one) == DTP_STEP_ALL_TO_ALL) {
            dtp_torch_transform gather = {one->mesh_dim, one->from, REPLICATED};
            dtp_torch_transform chunk = {one->mesh_dim, REPLICATED, one->to};
            DTP_TRY(emit(g, &gather, 1U << one->mesh_dim, err));
            DTP_TRY(emit(g, &chunk, 1U << one->mesh_dim, err));
        } else {
            DTP_TRY(emit(g, one, 1U << one->mesh_dim, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_torch_steps(dtp_torch_planner *planner, const dtp_mesh *mesh, const dtp_ttype *type,
                           const dtp_layout *from, int32_t n, const dtp_torch_transform *items,
                           dtp_steps *out, dtp_err *err)
{
    merger g = {.planner = planner, .mesh = mesh, .type = type, .at = *from, .out = out};
    out->n = 0;
    for (int32_t i = 0; i < n;) {
        int32_t stop = i + 1;
        dtp_step_kind kind = kind_of(&items[i]);
        bool merge = (kind == DTP_STEP_ALL_REDUCE || kind == DTP_STEP_REDUCE_SCATTER ||
                      kind == DTP_STEP_ALL_GATHER) &&
                     !planner->options.no_merge;
        while (merge && stop < n && same_transform(&items[stop], &items[i])) {
            stop++;
        }
        DTP_TRY(emit_group(&g, &items[i], stop - i, err));
        i = stop;
    }
    return DTP_OK;
}

/* ---- entry ---- */

static dtp_status plan(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_layout *to, dtp_steps *out, dtp_err *err)
{
    dtp_torch_planner *planner = user;
    transforms list = {.n = 0};
    out->n = 0;
    if (dtp_layout_equal(from, to)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_redistribute__check_pair(type, from, to, err));
    if (!planner->options.min_cost && has_default_order(from) && has_default_order(to)) {
        greedy(mesh, from, to, &list);
    } else {
        DTP_TRY(search(planner, mesh, type, from, to, &list, err));
    }
    return dtp_torch_steps(planner, mesh, type, from, list.n, list.items, out, err);
}

dtp_redistributor dtp_torch_redistributor(dtp_torch_planner *planner)
{
    return (dtp_redistributor){plan, planner};
}
