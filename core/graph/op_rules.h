/* The rows of the sharding rules of one call of an op. */
#ifndef DTP_CORE_GRAPH_OP_RULES_H
#define DTP_CORE_GRAPH_OP_RULES_H

#include "core/graph/op.h"

/* All rows for a call with global types: row 0, one row per dim that may be split (in order of
 * first appearance over inputs then outputs), and, with `linear`, the pass-through rows. A matmul
 * mk,kn->mn has 4 rows without the pass-through rows. */
void dtp_sharding_rules_of(const dtp_op_call *call, bool linear, dtp_sharding_rules *out);

/* What splitting a dim means, by the op's hook. */
dtp_dim_role dtp_role_of(const dtp_op_call *call, dtp_dim_id d);
/* The window by which operand i is read when a dim is split; NULL: it has none. */
const dtp_dim_window *dtp_role_window(const dtp_dim_role *role, int32_t i);
/* The tensor over whose pieces of the dim the windows are: an operand, or n_in + an output. */
int32_t dtp_role_base(const dtp_op_call *call, const dtp_dim_role *role, dtp_dim_id d);

/* Adds the rows that follow from the roles of the call's dims; for ops with rules of their own. */
void dtp_sharding_rules_add_roles(dtp_sharding_rules *set, const dtp_op_call *call);

/* Adds the pass-through row in which the operands of `mask` (bit i: operand i) and all outputs are
 * partial(sum). */
void dtp_sharding_rules_add_linear(dtp_sharding_rules *set, const dtp_op_call *call, uint32_t mask);

/* A row of a renaming op leaves every rank with the same elements before and after: its two dims
 * have one size, or `parts` divides both. */
bool dtp_renaming_fits(const dtp_op_call *call, const dtp_sharding_rule *row, int64_t parts);

#endif
