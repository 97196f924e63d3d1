/* Injective partial maps from n dims to k mesh dims: the ways to split the dims that meet in one
 * op. Their number is A(n,k) = sum_j C(n,j) k!/(k-j)!: A(3,2) = 13, A(4,3) = 73, A(6,3) = 229. */
#ifndef DTP_PLANNER_MTF_ASSIGNMENTS_H
#define DTP_PLANNER_MTF_ASSIGNMENTS_H

#include "core/base/arena.h"
#include "core/layout/mesh.h"

/* A(n,k), saturated at INT32_MAX. */
int32_t dtp_assignments_count(int32_t n, int32_t k);

/* All maps as rows of n mesh dims, -1 = not split; the empty map first, then in lexicographic
 * order. k <= DTP_MAX_MESH_DIMS. DTP_RANGE when there are more than `limit`. */
dtp_status dtp_assignments_make(dtp_arena *arena, int32_t n, int32_t k, int32_t limit,
                                int8_t **rows, int32_t *count, dtp_err *err) DTP_MUST_CHECK;

#endif
