/* Recipes of baselines, and for which graphs and meshes they are. */
#include "planner/baselines/baseline_internal.h"

#include <inttypes.h>
#include <string.h>

static const dtp_baseline_recipe RECIPES[DTP_N_BASELINE_RECIPES] = {
    {"zero1", 1, true, false, false, false, false},
    {"zero2", 2, true, false, false, false, false},
    {"zero3", 3, true, false, false, false, false},
    {"megatron", 0, false, true, false, false, false},
    {"megatron_sp", 0, false, true, true, false, false},
    {"data_megatron", 0, true, true, false, false, false},
    {"data_megatron_sp", 0, true, true, true, false, false},
    {"zero1_megatron_sp", 1, true, true, true, false, false},
    {"zero3_megatron", 3, true, true, false, false, false},
    {"zero3_megatron_sp", 3, true, true, true, false, false},
    {"expert_parallel", 0, true, false, false, true, false},
    {"zero3_expert", 3, true, false, false, true, false},
};

static int64_t ranks(const dtp_mesh *mesh, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t m = from; m < to; m++) {
        n *= mesh->sizes[m];
    }
    return n;
}

/* Sets w->why when a size is not a multiple of the ranks that it is split over. */
static dtp_status check_size(dtp_baseline_writing *w, dtp_dim_id d, int64_t size, int64_t parts,
                             dtp_err *err)
{
    if (w->why == NULL && size % parts != 0) {
        w->why =
            dtp_arena_printf(w->arena, "'%s' of %" PRId64 " cannot be split over %" PRId64 " ranks",
                             dtp_dims_name(&w->g->dims, d), size, parts);
        return w->why != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a baseline");
    }
    return DTP_OK;
}

static dtp_status check_features(dtp_baseline_writing *w, dtp_err *err)
{
    const dtp_tdim bad = w->dims.indivisible;
    const int64_t parts = ranks(w->mesh, w->feature_from, w->mesh->n_dims);
    if (bad.id >= 0 && !w->r->alone) {
        return check_size(w, bad.id, bad.size, parts, err);
    }
    if (!w->dims.any_feature) {
        w->why = "no parameter's features are contracted by another's";
    } else if (w->r->sequence && w->dims.sequence < 0) {
        w->why = "the model has no attention, so no sequence";
    }
    for (int32_t i = 0; i < w->g->n_nodes && w->r->sequence && w->why == NULL; i++) {
        const dtp_node *n = &w->g->nodes[i];
        const dtp_ttype *type = &w->g->tensors[n->out[0]].type;
        const int32_t axis = dtp_ttype_find(type, w->dims.sequence);
        if ((n->op->flags & DTP_OP_ATTENTION) != 0 && axis >= 0) {
            DTP_TRY(check_size(w, w->dims.sequence, type->dims[axis].size, parts, err));
        }
    }
    return DTP_OK;
}

/* Whether a recipe is worth a mention: combinations need two mesh dims, experts need experts. */
static bool meant_for(const dtp_baseline_recipe *r, const dtp_graph *g, const dtp_mesh *mesh)
{
    bool experts = false;
    for (int32_t i = 0; i < g->n_nodes && r->experts && !experts; i++) {
        const dtp_node *n = &g->nodes[i];
        for (int32_t k = 0; k < n->n_in && (n->op->flags & DTP_OP_CONTRACTION) != 0; k++) {
            const dtp_graph_tensor *p = &g->tensors[n->in[k]];
            const bool param = dtp_graph_param_of(g, n->in[k]) >= 0;
            for (int32_t a = 0; a < p->type.rank && param; a++) {
                experts =
                    experts || dtp_baseline__use(g, n, k, p->type.dims[a].id) == DTP_USE_SHARED;
            }
        }
    }
    return experts == r->experts && (!(r->data && r->features) || mesh->n_dims >= 2);
}

/* Fills n_styles and styles of a candidate, or legal and why. */
static dtp_status add_styles(const dtp_baseline_recipe *r, const dtp_graph *g, const dtp_mesh *mesh,
                             dtp_arena *arena, dtp_candidate *out, dtp_err *err)
{
    dtp_baseline_writing w = {.r = r, .g = g, .mesh = mesh, .arena = arena};
    const bool both = r->data && r->features;
    w.data_to = both ? mesh->n_dims - 1 : mesh->n_dims;
    w.feature_from = both ? mesh->n_dims - 1 : 0;
    DTP_TRY(dtp_baseline__dims(g, ranks(mesh, w.feature_from, mesh->n_dims), arena, &w.dims, err));
    /* The most of the last mesh dims that divide the experts. */
    int32_t from = w.mesh->n_dims;
    int64_t parts = 1;
    int64_t size = 1;
    for (int32_t t = 0; t < w.g->n_tensors; t++) {
        if (dtp_baseline__is_expert_param(&w, t) && w.g->tensors[t].kind == DTP_TENSOR_PARAM) {
            size = w.g->tensors[t].type.dims[0].size;
        }
    }
    while (from > 0 && size % (parts * w.mesh->sizes[from - 1]) == 0) {
        parts *= w.mesh->sizes[--from];
    }
    w.experts_from = from;
    if (w.r->data) {
        bool any = false;
        for (int32_t t = 0; t < w.g->n_tensors; t++) {
            const dtp_graph_tensor *x = &w.g->tensors[t];
            if (x->kind == DTP_TENSOR_INPUT && x->type.rank > 0) {
                any = true;
                DTP_TRY(check_size(&w, x->type.dims[0].id, x->type.dims[0].size,
                                   ranks(w.mesh, 0, w.data_to), err));
            }
        }
        w.why = any ? w.why : "the model has no inputs that could be split";
    }
    if (w.r->features) {
        DTP_TRY(check_features(&w, err));
    }
    if (w.r->experts && w.experts_from == w.mesh->n_dims) {
        w.why = "the last mesh dim does not divide the experts";
    }
    if (w.why == NULL) {
        DTP_TRY(dtp_baseline__write(&w, err));
    }
    *out = (dtp_candidate){
        .name = r->name, .n_styles = w.n, .styles = w.texts, .legal = w.why == NULL, .why = w.why};
    return DTP_OK;
}

int32_t dtp_baseline__find(const dtp_candidate *list, int32_t n, const char *name)
{
    int32_t i = 0;
    while (i < n && strcmp(list[i].name, name) != 0) {
        i++;
    }
    return i;
}

static bool is_wanted(const dtp_baseline_recipe *r, const dtp_mesh *mesh, dtp_usual usual)
{
    const bool usually = r->zero > 0 && r->features == r->sequence;
    const bool several = r->features || r->experts || mesh->n_dims < 2;
    return usual == DTP_USUAL_ALL || (usually && (several || usual == DTP_USUAL_ALONE));
}

dtp_status dtp_baseline__add_recipes(const dtp_graph *g, const dtp_mesh *mesh, dtp_usual usual,
                                     dtp_arena *arena, int32_t *n, dtp_candidate *list,
                                     dtp_err *err)
{
    for (int32_t i = 0; i < DTP_N_BASELINE_RECIPES; i++) {
        const dtp_baseline_recipe *r = &RECIPES[i];
        if (!is_wanted(r, mesh, usual)) {
            continue;
        }
        if (dtp_baseline__find(list, *n, r->name) == *n && meant_for(r, g, mesh)) {
            DTP_TRY(add_styles(r, g, mesh, arena, &list[(*n)++], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_baseline__add_alone(const dtp_graph *g, const dtp_mesh *mesh, dtp_arena *arena,
                                   int32_t *n, dtp_candidate *list, dtp_err *err)
{
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        const dtp_baseline_recipe r = {.name =
                                           dtp_arena_printf(arena, "megatron@%s", mesh->names[m]),
                                       .features = true,
                                       .alone = true};
        dtp_mesh one = *mesh;
        DTP_TRY(DTP_MEMORY(err, r.name));
        one.n_dims = 1;
        one.sizes[0] = mesh->sizes[m];
        memcpy(one.names[0], mesh->names[m], sizeof one.names[0]);
        DTP_TRY(add_styles(&r, g, &one, arena, &list[(*n)++], err));
    }
    return DTP_OK;
}
