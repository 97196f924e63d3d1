/* A plan on fewer ranks: a smaller mesh, and sizes of the model with which every split that was
 * even stays even and every one that was not stays uneven. */
#ifndef DTP_CORE_PLAN_PLAN_SMALLER_H
#define DTP_CORE_PLAN_PLAN_SMALLER_H

#include "core/plan/plan.h"

/* A dim of a tensor, or of an operand or result of a node, that mesh dims split. */
typedef struct dtp_plan_split {
    dtp_dim_id dim;
    int64_t size;
    dtp_mesh_set set;
} dtp_plan_split;

/* All of a plan, in the order of tensors and nodes, so that those of one plan on two meshes can be
 * compared one by one. */
typedef struct dtp_plan_splits {
    const dtp_graph *g;
    dtp_mesh mesh;
    int32_t n;
    const dtp_plan_split *list;
} dtp_plan_splits;

/* Of a plan and its graph (dtp_plan_graph), in `arena`; borrows the graph. */
dtp_status dtp_plan_splits_find(const dtp_plan *plan, const dtp_graph *g, dtp_arena *arena,
                                dtp_plan_splits *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether splits are those of the plan on a smaller mesh: the same dims over the same mesh dims,
 * evenly where they were even and unevenly where they were not. If not, `why` says of the first
 * one that is another what it was. */
enum { DTP_PLAN_SPLIT_TEXT_BYTES = 320 };
bool dtp_plan_splits_kept(const dtp_plan_splits *planned, const dtp_plan_splits *smaller,
                          char why[DTP_PLAN_SPLIT_TEXT_BYTES]);

/* A size of the named dim of the model on a smaller mesh, reduced as far as the mesh dims that
 * split it and not below; `size` itself where nothing splits the dim or no smaller one keeps its
 * splits. Dims that are computed from others are not seen here: dtp_plan_splits_kept decides. */
int64_t dtp_plan_smaller_size(const dtp_plan_splits *planned, const dtp_mesh *smaller,
                              const char *name, int64_t size);

enum { DTP_SMALLER_MESHES = 64 };
/* Up to DTP_SMALLER_MESHES meshes with at most `ranks` ranks whose dims are no larger than those of
 * `mesh`, and at least 2 where those are: first those whose sizes divide the sizes of `mesh`, the
 * ones with most ranks first. Returns how many: 0 where 2 in every dim are too many. */
int32_t dtp_smaller_meshes(const dtp_mesh *mesh, int32_t ranks, dtp_mesh out[DTP_SMALLER_MESHES]);
/* The ranks of the smallest one. */
int64_t dtp_smallest_ranks(const dtp_mesh *mesh);

#endif
