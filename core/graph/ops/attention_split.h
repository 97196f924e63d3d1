/* The decompositions of attention and attention_grad over a split sequence. Private to
 * core/graph/ops. */
#ifndef DTP_CORE_GRAPH_OPS_ATTENTION_SPLIT_H
#define DTP_CORE_GRAPH_OPS_ATTENTION_SPLIT_H

#include "core/graph/graph.h"

dtp_status dtp_attention__split(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_attention__split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                     int32_t *outs, dtp_err *err) DTP_MUST_CHECK;

#endif
