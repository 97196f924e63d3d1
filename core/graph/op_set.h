/* Sets of ops. The built-in ones are a constant set (core/graph/ops/op_table.h). Users register
 * theirs in a set that extends it (docs/own-ops.md): the set is made, filled, and then read by the
 * graphs that borrow it (dtp_graph.ops, dtp_model_options.ops); from there on a registered op is
 * planned, lowered, run and verified as any other. Kernels are given to the backends that run it:
 * dtp_backend_add_kernels. Ranks of one job must register the same ops.
 */
#ifndef DTP_CORE_GRAPH_OP_SET_H
#define DTP_CORE_GRAPH_OP_SET_H

#include "core/graph/op.h"

/* Read through the functions below. */
struct dtp_op_set {
    const dtp_op_set *base; /* the set that this one extends; NULL: none */
    int32_t n_lists;
    const dtp_op_def *const *lists; /* rows; a row without a name ends each list */
    dtp_arena *arena;               /* of a set that is filled by dtp_op_register: lives as long
                                       as the set, for what `user` of its ops points to */
};

/* Adds an op. The row is copied with its texts and attribute schema; hooks and `user` are borrowed.
 * DTP_INVALID naming op and field when the name is taken (here or in the base set) or not of the
 * form [a-z][a-z0-9_]* with at most 48 characters, operand or output counts are out of range,
 * `infer` is missing, there is neither a vjp nor a no_grad reason, names of outputs or attributes
 * are missing, illegal, double or keys of a node (id, op, in, out), a choice list is empty, or
 * inplace_in names an operand that may not exist. dtp_custom_op_register makes rows from a
 * signature. */
dtp_status dtp_op_register(dtp_op_set *set, const dtp_op_def *def, dtp_err *err) DTP_MUST_CHECK;

enum { DTP_OP_HINT_BYTES = 128 };
/* For the message on a name that no op has: "; did you mean 'softmax'?", or where all are listed.
 */
void dtp_op_hint(const dtp_op_set *set, const char *name, char out[DTP_OP_HINT_BYTES]);

/* The set's own rows, without those of the base, in order; NULL at the end. */
int32_t dtp_op_set_count(const dtp_op_set *set);
const dtp_op_def *dtp_op_set_at(const dtp_op_set *set, int32_t index);

/* Whether two rows are of one op, whose name is unique: a device's module has rows of its own. */
bool dtp_op_same(const dtp_op_def *a, const dtp_op_def *b);

#endif
