/* All ways to arrange a number of devices as a mesh. */
#include "planner/mesh_search.h"

#include <string.h>

typedef struct list {
    dtp_arena *arena;
    int32_t n, capacity;
    dtp_mesh *meshes;
} list;

/* Appends every completion of `mesh` by exactly `more` dims whose product is `left`. */
static dtp_status extend(list *l, dtp_mesh mesh, int32_t left, int32_t more, dtp_err *err)
{
    static const char names[] = "xyzuvw";
    if (more == 0) {
        DTP_TRY(dtp_arena_grow(l->arena, &l->meshes, l->n, l->n + 1, &l->capacity,
                               sizeof *l->meshes, err));
        l->meshes[l->n++] = mesh;
        return DTP_OK;
    }
    const int32_t at = mesh.n_dims++;
    mesh.names[at][0] = names[at];
    for (int32_t f = more == 1 ? left : 2; f <= left; f++) {
        const bool last = more == 1;
        if (left % f == 0 && (last || left / f >= 2)) {
            mesh.sizes[at] = f;
            DTP_TRY(extend(l, mesh, left / f, more - 1, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_mesh_factorisations(int32_t devices, int32_t max_dims, dtp_arena *arena, int32_t *n,
                                   dtp_mesh **out, dtp_err *err)
{
    list l = {.arena = arena};
    dtp_mesh empty;
    memset(&empty, 0, sizeof empty);
    if (devices < 1 || max_dims > DTP_MAX_MESH_DIMS) {
        return DTP_FAIL(err, DTP_INVALID, "%d devices on up to %d mesh dims", devices, max_dims);
    }
    if (devices == 1) {
        DTP_TRY(extend(&l, empty, 1, 0, err));
    }
    for (int32_t dims = 1; dims <= max_dims && devices > 1; dims++) {
        DTP_TRY(extend(&l, empty, devices, dims, err));
    }
    *n = l.n;
    *out = l.meshes;
    return DTP_OK;
}
