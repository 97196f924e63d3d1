/* Where the kernels of a graph's nodes may run in its programs, whatever the layouts are: what the
 * passes that fuse (fuse.c, fuse_product.c, fuse_loss.c, fuse_cast.c) may do with a node, for those
 * who say before anything is lowered what a program needs. Whoever changes a pattern changes it
 * here; tests/planner/test_tensor_problem.c compares with programs. */
#ifndef DTP_SPMD_LOWER_PASSES_KERNEL_PLACES_H
#define DTP_SPMD_LOWER_PASSES_KERNEL_PLACES_H

#include "spmd/target/target.h"

typedef struct dtp_kernel_places {
    dtp_node_id *earliest, *latest; /* by node: between which nodes its kernel runs, both included;
                                       the node itself where it does not move */
    bool *merged;  /* by node: its kernel may be a part of another one, or at another place */
    bool *skipped; /* by node: a program may do without it, and does not read its operands then */
} dtp_kernel_places;

/* Storage from `arena`. */
dtp_status dtp_kernel_places_find(const dtp_graph *g, const dtp_target *target, dtp_arena *arena,
                                  dtp_kernel_places *out, dtp_err *err) DTP_MUST_CHECK;

#endif
