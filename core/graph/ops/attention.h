/* What attention, its gradient and the parts they run as when the sequence is split share.
 *
 * attention_part works on keys and values packed into one operand, kv: the features of a key, then
 * those of its value, along the feature dim. With a chunk dim the sequence is cut: q and kv are
 * [.., chunk, query, ..]; the queries of chunk c attend to the keys in chunk c of kv, which are
 * those of chunk (c - shift) mod chunks of the sequence. Without one, kv has a key dim of its own.
 *
 * Workspace of the kernels: one tile set per thread, never the scores of a whole head. A kernel
 * walks blocks of DTP_ATTENTION_QUERIES query rows x DTP_ATTENTION_KEYS keys; the set holds two
 * score tiles (p and its gradient) and packed blocks of q, k, v, out and their gradients, in
 * elements of 4 bytes (8 for f64):
 *   2 Q K + 2 (Q + K) (feature + value) + 4 Q
 */
#ifndef DTP_CORE_GRAPH_OPS_ATTENTION_H
#define DTP_CORE_GRAPH_OPS_ATTENTION_H

#include "core/graph/autodiff.h"
#include "core/graph/ops/sequence.h"

enum { DTP_ATTENTION_QUERIES = 64, DTP_ATTENTION_KEYS = 128, DTP_ATTENTION_MAX_THREADS = 16 };

/* The dims of a call of attention, attention_part or one of their gradients, defaults filled in. */
typedef struct dtp_attention_dims {
    dtp_dim_id query, key, feature, value;
    dtp_dim_id chunk; /* -1: none */
    int64_t shift;
    bool packed; /* operand 1 is kv, there is no operand v */
    bool causal;
    double scale; /* of the scores, the default filled in */
} dtp_attention_dims;

dtp_attention_dims dtp_attention_dims_of(const dtp_op_call *call);

/* Sizes along feature and value, from the operands of the call. */
int64_t dtp_attention_features(const dtp_op_call *call, const dtp_attention_dims *a);
int64_t dtp_attention_values(const dtp_op_call *call, const dtp_attention_dims *a);

/* Elements of one thread's tile set. */
int64_t dtp_attention_tile_elems(int64_t feature, int64_t value);

/* ---- for the files attention*.c ----------------------------------------------------------------
 */

/* Rows of the attribute tables of attention, attention_part and their gradients. */
#define DTP_ATTENTION_ATTRS                                                                        \
    {.key = "query", .kind = DTP_ATTR_DIM, .required = true},                                      \
        {.key = "key", .kind = DTP_ATTR_DIM, .def = -1.0},                                         \
        {.key = "feature", .kind = DTP_ATTR_DIM, .required = true},                                \
        {.key = "value", .kind = DTP_ATTR_DIM, .def = -1.0},                                       \
        {.key = "causal", .kind = DTP_ATTR_BOOL, .def = 1.0},                                      \
        {.key = "scale", .kind = DTP_ATTR_FLOAT, .min = -1e30, .max = 1e30},                       \
        {.key = "order", .kind = DTP_ATTR_ENUM, .choices = dtp_order_choices},                     \
    {                                                                                              \
        .key = "chunks", .kind = DTP_ATTR_INT, .def = 1.0, .min = 1.0, .max = 1e9                  \
    }

int64_t dtp_attention__size(const dtp_ttype *type, dtp_dim_id d);
/* Outputs of attention or attention_part (out, lse) once the operands are checked; */
dtp_status dtp_attention__infer(const dtp_op_call *call, const dtp_attention_dims *a, bool has_out,
                                dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;
/* of their gradients, whose last operands are out, lse, dout: the types of the operands before. */
dtp_status dtp_attention__infer_grad(const dtp_op_call *call, const dtp_attention_dims *a,
                                     bool has_out, dtp_ttype *out, dtp_err *err) DTP_MUST_CHECK;
/* Checks that attention and attention_part share: */
dtp_status dtp_attention__need(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
                               dtp_err *err) DTP_MUST_CHECK;
/* operand i lacks the dim; */
dtp_status dtp_attention__forbid(const dtp_op_call *call, int32_t i, const char *what, dtp_dim_id d,
                                 dtp_err *err) DTP_MUST_CHECK;
/* every dim of operand `a` except two is in operand `b` with the same size; */
dtp_status dtp_attention__dims_in(const dtp_op_call *call, int32_t a, int32_t b,
                                  const dtp_dim_id skip[2], dtp_err *err) DTP_MUST_CHECK;
/* names differ where they must; */
dtp_status dtp_attention__names(const dtp_op_call *call, const dtp_attention_dims *a,
                                dtp_err *err) DTP_MUST_CHECK;
/* no query without a key, and the order fits the lengths. */
dtp_status dtp_attention__lengths(const dtp_op_call *call, const dtp_attention_dims *a,
                                  int64_t queries, int64_t keys, dtp_err *err) DTP_MUST_CHECK;

/* Multiply-adds of `pairs` of a query and a key with products over feature and value. */
void dtp_attention__work(const dtp_op_call *call, double pairs, double features, double values,
                         dtp_work *out);
int64_t dtp_attention__workspace(const dtp_op_call *call);

/* The decompositions of attention and attention_grad over a split sequence. */
dtp_status dtp_attention__split(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_attention__split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                     int32_t *outs, dtp_err *err) DTP_MUST_CHECK;

#endif
