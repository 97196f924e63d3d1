/* auto_mtf's search over mesh shapes: powers of two, non-increasing. */
#include "planner/mtf/mtf_mesh.h"

#include <stdio.h>

typedef struct listing {
    dtp_arena *arena;
    dtp_mtf_mesh_shape *shapes;
    int32_t n, cap_shapes, cap;
    dtp_mtf_mesh_shape now;
} listing;

/* Appends factors of at most `largest` until the product is used up; at most 31 deep. */
static dtp_status extend(listing *l, int64_t rest, int64_t largest, dtp_err *err)
{
    if (rest == 1) {
        DTP_TRY(dtp_arena_grow(l->arena, &l->shapes, l->n, l->n + 1, &l->cap_shapes,
                               sizeof *l->shapes, err));
        l->shapes[l->n++] = l->now;
        return DTP_OK;
    }
    if (l->now.n == l->cap) {
        return DTP_OK;
    }
    for (int64_t f = largest < rest ? largest : rest; f > 1; f /= 2) {
        l->now.sizes[l->now.n++] = f;
        DTP_TRY(extend(l, rest / f, f, err));
        l->now.sizes[--l->now.n] = 0;
    }
    return DTP_OK;
}

dtp_status dtp_mtf_mesh_shapes(int64_t machines, int32_t cap, dtp_arena *arena,
                               dtp_mtf_mesh_shape **out, int32_t *n, dtp_err *err)
{
    if (machines < 1 || machines > INT64_C(1) << 31 || (machines & (machines - 1)) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "auto_mtf: %lld machines is not a power of two",
                        (long long)machines);
    }
    listing l = {.arena = arena,
                 .cap = cap > 0 && cap < DTP_MTF_MAX_SHAPE ? cap : DTP_MTF_MAX_SHAPE};
    if (machines == 1) {
        l.now = (dtp_mtf_mesh_shape){.n = 1, .sizes = {1}};
    }
    DTP_TRY(extend(&l, machines, machines, err));
    *out = l.shapes;
    *n = l.n;
    return DTP_OK;
}

dtp_status dtp_mtf_mesh_of(const dtp_mtf_mesh_shape *shape, dtp_mesh *out, dtp_err *err)
{
    if (shape->n > DTP_MAX_MESH_DIMS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "auto_mtf: a mesh shape of %d dims; at most %d work",
                        shape->n, DTP_MAX_MESH_DIMS);
    }
    *out = (dtp_mesh){.n_dims = shape->n};
    for (int32_t i = 0; i < shape->n; i++) {
        snprintf(out->names[i], sizeof out->names[i], "mesh_%d", i);
        out->sizes[i] = shape->sizes[i];
    }
    return DTP_OK;
}

static dtp_status try_shape(const dtp_mtf_graph *g, const dtp_mtf_mesh_shape *shape,
                            dtp_arena *arena, dtp_mtf_choice *best, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_mtf_problem *p = NULL;
    DTP_TRY(dtp_mtf_mesh_of(shape, &mesh, err));
    DTP_TRY(dtp_mtf_problem_create(g, &mesh, DTP_MTF_LIST, &p, err));
    dtp_mtf_solution s;
    dtp_status status = dtp_mtf_solve(p, &s, err);
    if (status == DTP_OK && (best->layout == NULL || s.peak < best->peak)) {
        *best = (dtp_mtf_choice){.mesh = mesh,
                                 .layout = dtp_arena_strdup(arena, s.layout),
                                 .peak = s.peak,
                                 .objective = s.objective};
        if (best->layout == NULL) {
            status = DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf layout");
        }
    }
    dtp_mtf_problem_destroy(p);
    return status;
}

dtp_status dtp_mtf_layout_and_mesh_shape(const dtp_mtf_graph *g, int64_t machines, int32_t cap,
                                         dtp_arena *arena, dtp_mtf_choice *out, dtp_err *err)
{
    dtp_mtf_mesh_shape *shapes = NULL;
    int32_t n = 0;
    *out = (dtp_mtf_choice){0};
    DTP_TRY(dtp_mtf_mesh_shapes(machines, cap, arena, &shapes, &n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(try_shape(g, &shapes[i], arena, out, err));
    }
    return DTP_OK;
}
