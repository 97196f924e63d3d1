/* Layouts in which a tensor is wanted, left or kept. */
#include <string.h>

#include "planner/problem/tensors/tensor_internal.h"

uint64_t dtp_tensor__hash_layout(const dtp_layout *layout)
{
    uint64_t h = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        uint32_t place;
        memcpy(&place, &layout->placement[m], sizeof place);
        h = dtp_hash_word(h, place);
    }
    return h;
}

static dtp_status append(tensor_build *b, layout_list *list, const dtp_layout *layout, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(b->arena, &list->items, list->n, list->n + 1, &list->cap,
                           sizeof *list->items, err));
    list->items[list->n++] = *layout;
    return DTP_OK;
}

int32_t dtp_tensor__find_layout(const layout_set *set, const dtp_layout *layout)
{
    const uint32_t hash = dtp_hash_fold(dtp_tensor__hash_layout(layout));
    uint32_t at = hash;
    int32_t i;
    do {
        i = dtp_hash_table_next(&set->table, hash, &at);
    } while (i >= 0 && !dtp_layout_equal(&set->list.items[i], layout));
    return i;
}

dtp_status dtp_tensor__add_layout(tensor_build *b, layout_set *set, const dtp_layout *layout,
                                  dtp_err *err)
{
    const uint32_t hash = dtp_hash_fold(dtp_tensor__hash_layout(layout));
    DTP_TRY(dtp_hash_table_add(&set->table, b->arena, hash, set->list.n, err));
    return append(b, &set->list, layout, err);
}

void dtp_tensor__clear_layouts(layout_set *set)
{
    set->list.n = 0;
    dtp_hash_table_clear(&set->table);
}

/* ---- where a tensor may be kept ---- */

typedef struct domain_walk {
    tensor_build *b;
    const dtp_ttype *type;
    dtp_mesh_set partial;
    layout_list *out;
} domain_walk;

/* Every branch differs from the others on some mesh dim: no two layouts are equal. */
static dtp_status extend_layout(const domain_walk *w, dtp_layout at, int32_t m, dtp_err *err)
{
    const dtp_mesh *mesh = w->b->mesh;
    while (m < mesh->n_dims && mesh->sizes[m] == 1) {
        m++;
    }
    if (m == mesh->n_dims) {
        return append(w->b, w->out, &at, err);
    }
    DTP_TRY(extend_layout(w, at, m + 1, err));
    for (int32_t axis = 0; axis < w->type->rank; axis++) {
        dtp_layout next = at;
        dtp_layout_split(&next, m, axis);
        if (dtp_layout_may_hold(&next, mesh, w->type, w->b->p->options.uneven)) {
            DTP_TRY(extend_layout(w, next, m + 1, err));
        }
    }
    if ((w->partial >> m & 1U) != 0) {
        at.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        return extend_layout(w, at, m + 1, err);
    }
    return DTP_OK;
}

dtp_status dtp_tensor__domain(tensor_build *b, const dtp_ttype *type, dtp_mesh_set partial,
                              layout_list *out, dtp_err *err)
{
    const domain_walk w = {b, type, partial, out};
    out->n = 0;
    return extend_layout(&w, dtp_layout_replicated(type->rank, b->mesh->n_dims), 0, err);
}
