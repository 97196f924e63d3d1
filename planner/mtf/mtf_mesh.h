/* auto_mtf's search over mesh shapes: powers of two, non-increasing.
 * Reference: mesh_tensorflow/auto_mtf/api.py. */
#ifndef DTP_PLANNER_MTF_MTF_MESH_H
#define DTP_PLANNER_MTF_MTF_MESH_H

#include "planner/mtf/mtf_layout.h"

enum { DTP_MTF_MAX_SHAPE = 31 };

typedef struct dtp_mtf_mesh_shape {
    int32_t n;
    int64_t sizes[DTP_MTF_MAX_SHAPE];
} dtp_mtf_mesh_shape;

/* All shapes of `machines` devices with at most `cap` dims (0 = no cap), from one dim downwards in
 * lexicographic order of decreasing sizes: 8 -> [8] [4,2] [2,2,2]; 1 -> [1]. In `arena`.
 * DTP_INVALID unless machines is a power of two of at most 2^31. */
dtp_status dtp_mtf_mesh_shapes(int64_t machines, int32_t cap, dtp_arena *arena,
                               dtp_mtf_mesh_shape **out, int32_t *n, dtp_err *err) DTP_MUST_CHECK;

typedef struct dtp_mtf_choice {
    dtp_mesh mesh; /* dims mesh_0, mesh_1, ... */
    char *layout;  /* in the arena */
    int64_t peak;
    int64_t objective;
} dtp_mtf_choice;

/* The shape whose best layout has the smallest peak, the first among equals. DTP_UNSUPPORTED when a
 * shape has more dims than DTP_MAX_MESH_DIMS. */
dtp_status dtp_mtf_layout_and_mesh_shape(const dtp_mtf_graph *g, int64_t machines, int32_t cap,
                                         dtp_arena *arena, dtp_mtf_choice *out,
                                         dtp_err *err) DTP_MUST_CHECK;
/* The mesh of a shape. */
dtp_status dtp_mtf_mesh_of(const dtp_mtf_mesh_shape *shape, dtp_mesh *out,
                           dtp_err *err) DTP_MUST_CHECK;

#endif
