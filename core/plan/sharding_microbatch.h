/* What microbatches change in a sharding: gradients are reduced once per step, not once per
 * microbatch. */
#ifndef DTP_CORE_PLAN_SHARDING_MICROBATCH_H
#define DTP_CORE_PLAN_SHARDING_MICROBATCH_H

#include "core/plan/sharding.h"

/* Reductions of a tensor over ranks that wait until the last microbatch: it is read once, by an
 * `accumulate` node or by a sum of which the same holds. */
typedef struct dtp_deferral {
    dtp_node_id sum; /* that node; what it accumulates is reduced in its place. -1: none waits */
    bool first;      /* of the tensors that are reduced as one with it */
} dtp_deferral;
dtp_deferral dtp_microbatch_defers(const dtp_graph *g, dtp_tensor_id t);
/* The same of all tensors, by tensor, in one walk through the nodes; storage from `arena`. */
dtp_status dtp_microbatch_deferrals(const dtp_graph *g, dtp_arena *arena, dtp_deferral **out,
                                    dtp_err *err) DTP_MUST_CHECK;

/* Whether a node adds up microbatches: operand 0 is the accumulator, operand 1 what is added. The
 * accumulator and the result have one layout in every sharding (it may be partial): dtp_lower gives
 * DTP_UNSUPPORTED when not, since the sum is formed in place. */
bool dtp_is_accumulate(const dtp_graph *g, const dtp_node *node);
/* The strategy of such a node when accumulator, operand and result all have this layout. Partial
 * places of other kinds than sums become replicated in *layout. */
void dtp_accumulate_strategy(const dtp_graph *g, const dtp_node *node, dtp_layout *layout,
                             dtp_strategy *out);

/* Layout rules reduce every gradient where it is made. This leaves gradients partial up to the
 * accumulators, which stay partial too, so that they are reduced once per step: changes layouts and
 * strategies of a sharding that follows rules. No effect without microbatches. */
dtp_status dtp_microbatch_defer(const dtp_graph *g, dtp_sharding *s, dtp_err *err) DTP_MUST_CHECK;

#endif
