/* The table of the built-in ops: a constant op set of the families of this folder. */
#ifndef DTP_CORE_GRAPH_OPS_OP_TABLE_H
#define DTP_CORE_GRAPH_OPS_OP_TABLE_H

#include "core/graph/op_set.h"

/* dtp_builtin_ops (dtp/op.h) by name (NULL when there is none) and by index in table order. */
const dtp_op_def *dtp_op_find(const char *name);
int32_t dtp_op_count(void);
const dtp_op_def *dtp_op_at(int32_t index);
/* The op whose rates an op has where a machine states none for it: that of its row, or the op
 * itself. The traits of the result say which kind of work it is: DTP_OP_CONTRACTION,
 * DTP_OP_ATTENTION, DTP_OP_ATTENTION_GRAD; without them it is bound by memory. */
const dtp_op_def *dtp_op_rates(const dtp_op_def *op);

#endif
