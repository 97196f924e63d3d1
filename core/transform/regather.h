/* Gathering again: where forward and backward pass read a tensor in another layout than its own,
 * the copy of the forward pass is kept, or the backward pass makes it again from the tensor.
 * Parameters that are kept split (FSDP) are gathered again unless something else is said, and so
 * are values of recomputed blocks: what those keep is the tensor in its own layout.
 */
#ifndef DTP_CORE_TRANSFORM_REGATHER_H
#define DTP_CORE_TRANSFORM_REGATHER_H

#include "core/graph/graph.h"

/* Whether the forward pass may leave copies of a tensor for the backward pass: a parameter or its
 * cast, an input, a value of the forward pass. */
bool dtp_regather_applies(const dtp_graph *g, dtp_tensor_id t);

/* Sets `copies` of all these tensors: "none" (copies are kept), "all" (they are made again), or
 * what is made again, items separated by commas: "params", "recomputed" (values of recomputed
 * blocks) and globs over names (core/base/glob.h); a parameter stands for its casts. DTP_INVALID
 * naming an item that stands for nothing, and the names near to it. */
dtp_status dtp_regather_mark(dtp_graph *g, const char *text, dtp_err *err) DTP_MUST_CHECK;

/* The text for tensors of which `again` is true, in `arena`: names of instances of a block as one
 * glob where all of them are. */
dtp_status dtp_regather_text(const dtp_graph *g, const bool *again, dtp_arena *arena,
                             const char **out, dtp_err *err) DTP_MUST_CHECK;

#endif
