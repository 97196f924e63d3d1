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

dtp_status dtp_mesh_usual(int32_t devices, int64_t inner, dtp_arena *arena, int32_t *n,
                          dtp_mesh **out, dtp_err *err)
{
    int32_t all = 0;
    DTP_TRY(dtp_mesh_factorisations(devices, 2, arena, &all, out, err));
    *n = 0;
    for (int32_t i = 0; i < all; i++) {
        const dtp_mesh *mesh = &(*out)[i];
        if (mesh->n_dims < 2 || mesh->sizes[1] <= inner) {
            (*out)[(*n)++] = *mesh;
        }
    }
    return DTP_OK;
}

bool dtp_mesh_refines(const dtp_mesh *mesh, const dtp_mesh *coarser)
{
    bool any = false;
    for (int32_t pair = 0; pair + 1 < mesh->n_dims && mesh->n_dims == coarser->n_dims + 1; pair++) {
        bool same = true;
        for (int32_t m = 0; m < coarser->n_dims; m++) {
            const int64_t size = m < pair    ? mesh->sizes[m]
                                 : m == pair ? (int64_t)mesh->sizes[m] * mesh->sizes[m + 1]
                                             : mesh->sizes[m + 1];
            same = same && size == coarser->sizes[m];
        }
        any = any || same;
    }
    return any;
}
