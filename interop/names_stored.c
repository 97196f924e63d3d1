/* The parameters of a model as strided views of the tensors in a framework's files. */
#include <inttypes.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/safe_int.h"
#include "interop/names.h"

enum { MAX_VIEWS = 1 << 24 };

typedef struct builder {
    const dtp_names *names;
    const dtp_graph *g;
    dtp_arena *arena;
    dtp_stored_params *out;
    dtp_hash_table by_name;  /* of the views so far */
    dtp_tensor_id param;     /* the one that is looked at, */
    const dtp_name_entry *e; /* its entry, as files have it, */
    const char *theirs;      /* and its name there, "{dim}" as it is */
} builder;

static const dtp_name_entry *in_files(const dtp_name_entry *e)
{
    return e->stored != NULL ? e->stored : e;
}

/* Elements along axis a of what one parameter has there. */
static int64_t axis_size(const builder *b, const dtp_name_entry *e, dtp_tensor_id t, int32_t a)
{
    int64_t n = 1;
    for (int32_t k = 0; k < e->axes[a].n; k++) {
        n *= dtp_ttype_size(&b->g->tensors[t].type, dtp_dims_find(&b->g->dims, e->axes[a].dims[k]));
    }
    return n;
}

/* The i-th part of the fused weight and its entry, which is of the same weight. */
static dtp_status find_part(const builder *b, int32_t i, dtp_tensor_id *part,
                            const dtp_name_entry **e, dtp_err *err)
{
    const char *name, *theirs;
    DTP_TRY(
        dtp_names_fill(b->e, b->g->tensors[b->param].name, b->e->parts[i], b->arena, &name, err));
    *part = dtp_graph_find(b->g, name);
    if (*part < 0 || b->g->tensors[*part].kind != DTP_TENSOR_PARAM) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: fused: the part '%.100s' is no parameter of '%.100s'", b->e->place,
                        name, b->g->name);
    }
    DTP_TRY(dtp_names_find(b->names, b->g, *part, b->arena, e, &theirs, err));
    *e = in_files(*e);
    DTP_TRY(dtp_names_fill(*e, name, (*e)->theirs, b->arena, &theirs, err));
    bool same = strcmp(theirs, b->theirs) == 0 && (*e)->n_parts == b->e->n_parts &&
                (*e)->fused_axis == b->e->fused_axis && (*e)->n_axes == b->e->n_axes;
    const int32_t f = b->e->fused_axis;
    for (int32_t k = 0; same && k < b->e->n_parts; k++) {
        const char *mine, *other;
        DTP_TRY(dtp_names_fill(b->e, b->g->tensors[b->param].name, b->e->parts[k], b->arena, &mine,
                               err));
        DTP_TRY(dtp_names_fill(*e, name, (*e)->parts[k], b->arena, &other, err));
        same = strcmp(mine, other) == 0 && (k == i || strcmp(mine, name) != 0);
    }
    for (int32_t a = 0; same && a < b->e->n_axes; a++) {
        const bool equal = axis_size(b, *e, *part, a) == axis_size(b, b->e, b->param, a);
        same = equal || (a == f && b->e->axes[f].turns == 0);
    }
    return same && (*e)->axes[f].turns == b->e->axes[f].turns
               ? DTP_OK
               : DTP_FAIL(
                     err, DTP_INVALID,
                     "%s: fused: '%.100s' and its part '%.100s' are not stored as parts of one "
                     "weight",
                     (*e)->place, b->theirs, name);
}

/* The shape of theirs; *turn and *before: which part the parameter is, and how many elements of the
 * fused axis are before it. */
static dtp_status measure(const builder *b, dtp_stored_view *v, int32_t *turn, int64_t *before,
                          dtp_err *err)
{
    int64_t elems = 8; /* bytes of the widest type */
    bool fits = true;
    v->n_axes = b->e->n_axes;
    for (int32_t a = 0; a < v->n_axes; a++) {
        v->axes[a] = a == b->e->fused_axis ? 0 : axis_size(b, b->e, b->param, a);
    }
    for (int32_t i = 0; i < b->e->n_parts; i++) {
        dtp_tensor_id part;
        const dtp_name_entry *e;
        int64_t *axis = &v->axes[b->e->fused_axis];
        DTP_TRY(find_part(b, i, &part, &e, err));
        *turn = part == b->param ? i : *turn;
        *before = part == b->param ? *axis : *before;
        fits = fits && dtp_add_i64(*axis, axis_size(b, e, part, b->e->fused_axis), axis);
    }
    for (int32_t a = 0; a < v->n_axes; a++) {
        fits = fits && dtp_mul_i64(elems, v->axes[a], &elems);
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_RANGE, "%s: '%.100s' is too large", b->e->place, b->theirs);
}

/* From the innermost axis outwards: the step of every dim of ours, and where the part begins. */
static void set_strides(const builder *b, int32_t turn, int64_t before, dtp_stored_view *v)
{
    const dtp_graph_tensor *t = &b->g->tensors[b->param];
    int64_t of_axis = 1;
    for (int32_t a = v->n_axes - 1; a >= 0; a--) {
        const dtp_name_axis *axis = &b->e->axes[a];
        int64_t step = of_axis;
        for (int32_t k = axis->n; k >= 0; k--) {
            if (axis->turns > 0 && axis->turn_at == k) {
                v->first += turn * step;
                step *= axis->turns;
            }
            if (k > 0) {
                const int32_t d =
                    dtp_ttype_find(&t->type, dtp_dims_find(&b->g->dims, axis->dims[k - 1]));
                v->stride[d] = step;
                step *= t->type.dims[d].size;
            }
        }
        v->first += a == b->e->fused_axis && axis->turns == 0 ? before * of_axis : 0;
        of_axis *= v->axes[a];
    }
}

/* The i-th of the tensors that "{dim}" stands for. */
static dtp_status take_each(const builder *b, int32_t dim, int64_t i, dtp_stored_view *v,
                            dtp_err *err)
{
    const char *open = strchr(b->theirs, '{');
    v->from[dim] = i;
    v->size[dim] = 1;
    v->name = dtp_arena_printf(b->arena, "%.*s%" PRId64 "%s", (int)(open - b->theirs), b->theirs, i,
                               strchr(open, '}') + 1);
    return DTP_MEMORY(err, v->name);
}

/* One more view, of a tensor that only parts share. */
static dtp_status add_view(builder *b, const dtp_stored_view *v, dtp_err *err)
{
    const uint32_t hash = dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, v->name));
    uint32_t at = hash;
    int32_t i;
    while ((i = dtp_hash_table_next(&b->by_name, hash, &at)) >= 0) {
        const dtp_stored_view *had = &b->out->views[i];
        if (strcmp(had->name, v->name) == 0 && b->e->fused_axis < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: '%.200s' is the name of '%.100s' and of '%.100s'", b->e->place,
                            v->name, had->tensor, v->tensor);
        }
    }
    b->out->views[b->out->n] = *v;
    return dtp_hash_table_add(&b->by_name, b->arena, hash, b->out->n++, err);
}

/* Appends the views of a parameter; room for them is there. */
static dtp_status add_views(builder *b, const dtp_name_entry *e, dtp_err *err)
{
    const dtp_graph_tensor *t = &b->g->tensors[b->param];
    dtp_stored_view v = {
        .tensor = t->name, .type = t->type.dtype, .rank = t->type.rank, .n_tied = e->n_tied};
    int32_t turn = 0;
    int64_t before = 0;
    b->e = in_files(e);
    DTP_TRY(dtp_names_fill(e, t->name, b->e->theirs, b->arena, &b->theirs, err));
    for (int32_t d = 0; d < v.rank; d++) {
        v.global[d] = v.size[d] = t->type.dims[d].size;
    }
    DTP_TRY(DTP_NEW(b->arena, v.tied, v.n_tied, err));
    for (int32_t i = 0; i < v.n_tied; i++) {
        DTP_TRY(dtp_names_fill(e, t->name, e->tied[i], b->arena, &v.tied[i], err));
    }
    DTP_TRY(measure(b, &v, &turn, &before, err));
    set_strides(b, turn, before, &v);
    const int32_t each =
        b->e->each == NULL ? -1 : dtp_ttype_find(&t->type, dtp_dims_find(&b->g->dims, b->e->each));
    const int64_t n = each < 0 ? 1 : t->type.dims[each].size;
    for (int64_t i = 0; i < n; i++) {
        v.name = b->theirs;
        DTP_TRY(each < 0 ? DTP_OK : take_each(b, each, i, &v, err));
        DTP_TRY(add_view(b, &v, err));
    }
    return DTP_OK;
}

dtp_status dtp_names_stored(const dtp_names *names, const dtp_graph *g, dtp_arena *arena,
                            dtp_stored_params *out, dtp_err *err)
{
    int32_t room = 0;
    builder b = {.names = names, .g = g, .arena = arena, .out = out};
    *out = (dtp_stored_params){0};
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_name_entry *e;
        const char *theirs;
        if (g->tensors[t].kind != DTP_TENSOR_PARAM) {
            continue;
        }
        DTP_TRY(dtp_names_find(names, g, t, arena, &e, &theirs, err));
        const dtp_name_entry *stored = in_files(e);
        const int64_t n =
            stored->each == NULL
                ? 1
                : dtp_ttype_size(&g->tensors[t].type, dtp_dims_find(&g->dims, stored->each));
        if (n > MAX_VIEWS - out->n) {
            return DTP_FAIL(err, DTP_RANGE, "%s: '%.100s' would be %" PRId64 " more tensors",
                            stored->place, theirs, n);
        }
        DTP_TRY(dtp_arena_grow(arena, &out->views, out->n, out->n + (int32_t)n, &room,
                               sizeof *out->views, err));
        b.param = t;
        DTP_TRY(add_views(&b, e, err));
    }
    return DTP_OK;
}
