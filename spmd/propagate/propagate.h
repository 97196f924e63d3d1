/* Propagation of layouts: every node of a graph, in order, takes the strategy that costs least from
 * where its operands are, ties to the strategy that sends nothing; outputs stay in the layout that
 * the strategy leaves them in. This is how PyTorch DTensor decides (one op at a
 * time), how eager calls on distributed tensors decide, and how styles (named sets of pins) become
 * a plan.
 *
 * A strategy costs the redistributions of its operands (a copy that an earlier node left behind
 * costs nothing; those of parameters are not kept from one phase to the next), of pinned outputs,
 * and the collectives inside the op. Ties go to fewer collectives, fewer local redistributions,
 * less local work, earlier rows. What is whole on a mesh dim, all operands and their copies, is
 * split there only to meet a pin of that mesh dim. The strategy is the cheapest of all combinations
 * of rows over the mesh dims; for an op and mesh with more than 32768 combinations it is a local
 * optimum (spmd/propagate/propagate_node.c).
 */
#ifndef DTP_SPMD_PROPAGATE_PROPAGATE_H
#define DTP_SPMD_PROPAGATE_PROPAGATE_H

#include "core/plan/sharding.h"
#include "spmd/redistribute/redistribute.h"

/* A decision that is made beforehand. */
typedef struct dtp_pin {
    dtp_tensor_id tensor; /* the layout of this tensor ... */
    dtp_node_id node;     /* ... or, when >= 0, the layout in which this node reads it (a gathered
                             parameter, a prepared input); it stays as it is elsewhere */
    dtp_layout layout;
    dtp_mesh_set dims; /* the mesh dims of `layout` that the pin speaks of; the others are free.
                          0: all of them */
} dtp_pin;

/* The layout is as the pin says on the mesh dims that it speaks of. */
bool dtp_pin_agrees(const dtp_pin *pin, const dtp_layout *layout);

typedef struct dtp_propagate_options {
    dtp_step_price price; /* of redistribution steps; not NULL */
    void *price_user;
    const dtp_redistributor *redistributor; /* decides on the steps, as in the lowering; not
                                               NULL */
    bool torch;  /* candidates and tie-breaks as PyTorch DTensor's, copies do not count, and what a
                    pin made a node read elsewhere goes back in the backward pass: the node's share
                    of the gradient ends where the operand is; prices as `price` and `redistributor`
                    say */
    bool strict; /* an operand that no pin asks to move and for which data would have to be sent is
                    DTP_INVALID naming node, operand and both layouts; slicing is allowed,
                    and an update may reduce its gradient */
    bool even; /* splits divide sizes: of the layouts that a strategy reads and leaves, and of those
                  to which pins bring them */
    bool there_and_back; /* an operand whose numbers are sent costs the way there and that of its
                            gradient back, for calls whose gradient is not part of the graph */
    int32_t n_pins;
    const dtp_pin *pins;
} dtp_propagate_options;

/* INPUT, PARAM and STATE tensors without a pin are replicated, except that an optimizer state
 * follows its parameter; the value of an update ends in the layout of its target; a gradient that
 * only an update reads is brought to where that reads it as soon as it is there, so that reductions
 * of gradients can be fused; a pin of a gradient says where it ends and does not change how it is
 * made. Storage from `arena`. DTP_INVALID naming node and pin when no strategy
 * satisfies the pins. */
dtp_status dtp_propagate(const dtp_graph *g, const dtp_mesh *mesh,
                         const dtp_propagate_options *options, dtp_arena *arena, dtp_sharding *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
