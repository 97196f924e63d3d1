/* Every layout of a tensor on a mesh, shard orders included: for tests and benchmarks that go
 * through all pairs. */
#include "tests/support/layout_list.h"

#include <stdlib.h>

static void add(layout_list *list, const dtp_layout *layout)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        list->items = realloc(list->items, (size_t)list->capacity * sizeof *list->items);
        if (list->items == NULL) {
            abort();
        }
    }
    list->items[list->n++] = *layout;
}

/* Makes m the split at `depth` of the axis; the deeper ones move in by one. */
static void insert_split(dtp_layout *layout, int32_t m, int32_t axis, int32_t depth)
{
    for (int32_t k = 0; k < layout->n_mesh; k++) {
        dtp_placement *p = &layout->placement[k];
        if (p->kind == DTP_SHARD && p->axis == axis && p->order >= depth) {
            p->order++;
        }
    }
    layout->placement[m] =
        (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)axis, .order = (int8_t)depth};
}

/* Places mesh dims m, m + 1, ... in every way. */
static void add_places(const dtp_layout *layout, int32_t m, bool partial, dtp_reduce_op op,
                       layout_list *out)
{
    if (m == layout->n_mesh) {
        add(out, layout);
        return;
    }
    add_places(layout, m + 1, partial, op, out);
    for (int32_t axis = 0; axis < layout->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        int32_t n = dtp_layout_axis_splits(layout, axis, splits);
        for (int32_t depth = 0; depth <= n; depth++) {
            dtp_layout next = *layout;
            insert_split(&next, m, axis, depth);
            add_places(&next, m + 1, partial, op, out);
        }
    }
    if (partial) {
        dtp_layout next = *layout;
        next.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = (int8_t)op};
        add_places(&next, m + 1, partial, op, out);
    }
}

layout_list layout_list_all(int32_t rank, int32_t n_mesh, bool partial, dtp_reduce_op op)
{
    layout_list list = {0};
    const dtp_layout none = dtp_layout_replicated(rank, n_mesh);
    add_places(&none, 0, partial, op, &list);
    return list;
}

void layout_list_free(layout_list *list)
{
    free(list->items);
    *list = (layout_list){0};
}
