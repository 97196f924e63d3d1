/* All ways to arrange a number of devices as a mesh. */
#ifndef DTP_PLANNER_MESH_SEARCH_H
#define DTP_PLANNER_MESH_SEARCH_H

#include "core/base/arena.h"
#include "core/layout/mesh.h"

/* Ordered factorisations of `devices` into 1..max_dims factors of at least 2 (order matters: the
 * last dim lies innermost in the network), fewest dims first; one device gives the mesh without
 * dims. */
dtp_status dtp_mesh_factorisations(int32_t devices, int32_t max_dims, dtp_arena *arena, int32_t *n,
                                   dtp_mesh **out, dtp_err *err) DTP_MUST_CHECK;

/* Of these the ones of one dim, and those of two whose last has at most `inner` ranks: what people
 * begin with, where `inner` is the size of a host. */
dtp_status dtp_mesh_usual(int32_t devices, int64_t inner, dtp_arena *arena, int32_t *n,
                          dtp_mesh **out, dtp_err *err) DTP_MUST_CHECK;

/* Whether `mesh` with some pair of neighbouring dims as one has the sizes of `coarser`. */
bool dtp_mesh_refines(const dtp_mesh *mesh, const dtp_mesh *coarser);

#endif
