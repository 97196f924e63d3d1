/* The steps that PyTorch DTensor takes from one layout to another (its torch/distributed/tensor/
 * _redistribute.py): one transform per mesh dim, chosen greedily from inner to outer mesh dims, or
 * by a search of least cost when asked for or when a tensor dim is split in an order other than
 * that of the mesh dims; then neighbouring transforms of one kind are merged into one collective
 * where a flattened mesh dim was declared for them.
 *
 * Three things differ on purpose. Replicated becomes partial(sum) by keeping the value on the first
 * member instead of dividing it. Gathers over uneven splits are never merged, because nested chunks
 * of uneven length are not the chunks of the flattened group. Whether a reduce-scatter divides
 * evenly is decided from the global size, so that all ranks decide alike.
 */
#ifndef DTP_INTEROP_REDISTRIBUTE_TORCH_H
#define DTP_INTEROP_REDISTRIBUTE_TORCH_H

#include "spmd/redistribute/redistribute.h"

/* Why neighbouring transforms stay apart, as text for people. */
typedef void (*dtp_torch_warn)(void *user, const dtp_mesh *mesh, dtp_mesh_set set, const char *why);

enum { DTP_TORCH_MAX_FLAT = 16 };

typedef struct dtp_torch_options {
    bool min_cost;      /* search for every pair, not only where the greedy way does not apply */
    bool no_merge;      /* the switch that turns merging off */
    bool no_all_to_all; /* backends without it gather and keep their chunk */
    int32_t n_flat;     /* declared flattened mesh dims */
    dtp_mesh_set flat[DTP_TORCH_MAX_FLAT];
    dtp_step_price price; /* of the search, not NULL then; PyTorch's own:
                             interop/torch_cost.h */
    void *price_user;
    dtp_torch_warn warn; /* NULL: silent; called once per set of mesh dims */
    void *warn_user;
} dtp_torch_options;

/* State of one planner: zero `warned` and fill in the options. One per rank. */
typedef struct dtp_torch_planner {
    dtp_torch_options options;
    uint64_t warned; /* bit s: the set s of mesh dims was warned about */
} dtp_torch_planner;

/* Borrows the planner. DTP_UNSUPPORTED for the pairs that dtp_redistribute_plan refuses. */
dtp_redistributor dtp_torch_redistributor(dtp_torch_planner *planner);

/* One transform: what a mesh dim is before and after it. */
typedef struct dtp_torch_transform {
    int32_t mesh_dim;
    dtp_placement from, to; /* `order` is ignored */
} dtp_torch_transform;

/* Merges neighbours in a list of transforms and writes the steps. A split is put (and taken off)
 * innermost. */
dtp_status dtp_torch_steps(dtp_torch_planner *planner, const dtp_mesh *mesh, const dtp_ttype *type,
                           const dtp_layout *from, int32_t n, const dtp_torch_transform *transforms,
                           dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

#endif
