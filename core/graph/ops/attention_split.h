/* What attention, its gradient and the parts they run as when the sequence is split share.
 *
 * attention_part works on keys and values packed into one operand, kv: the features of a key, then
 * those of its value, along the feature dim. With a chunk dim the sequence is cut: q and kv are
 * [.., chunk, query, ..]; the queries of chunk c attend to the keys in chunk c of kv, which are
 * those of chunk (c - shift) mod chunks of the sequence. Without one, kv has a key dim of its own.
 */
#ifndef DTP_CORE_GRAPH_OPS_ATTENTION_SPLIT_H
#define DTP_CORE_GRAPH_OPS_ATTENTION_SPLIT_H

#include "core/graph/graph.h"

enum { DTP_CONTEXT_GATHER, DTP_CONTEXT_RING }; /* choices of "context" */

/* The dims of a call of attention, attention_part or one of their gradients, defaults filled in. */
typedef struct dtp_attention_dims {
    dtp_dim_id query, key, feature, value;
    dtp_dim_id chunk; /* -1: none */
    int64_t shift;
    bool packed; /* operand 1 is kv, there is no operand v */
    bool causal;
    int32_t mask; /* the operand that is the mask, the last one; -1: none */
    double scale; /* of the scores, the default filled in */
} dtp_attention_dims;

dtp_attention_dims dtp_attention_dims_of(const dtp_op_call *call);

/* Sizes along feature and value, from the operands of the call. */
int64_t dtp_attention_features(const dtp_op_call *call, const dtp_attention_dims *a);
int64_t dtp_attention_values(const dtp_op_call *call, const dtp_attention_dims *a);

/* The decompositions of attention and attention_grad over a split sequence. Private to
 * core/graph/ops. */
dtp_status dtp_attention__split(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_attention__split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                     int32_t *outs, dtp_err *err) DTP_MUST_CHECK;

#endif
