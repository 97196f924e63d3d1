/* What cross_entropy, its gradient, their parts and kernels share. For a row with label y, class
 * weights w (1 when not given) and smoothing e over C classes:
 *   loss = (1 - e) w_y (lse - x_y) + e/C sum_c w_c (lse - x_c) = a lse - t
 *   a = (1 - e) w_y + e/C sum w;   t = sum_c ((1 - e) w_y [c = y] + e/C w_c) x_c
 * A row whose label is `ignore` has a = t = 0 and no weight. The mean divides by the sum of w_y
 * over the rows.
 */
#ifndef DTP_CORE_GRAPH_OPS_CROSS_ENTROPY_H
#define DTP_CORE_GRAPH_OPS_CROSS_ENTROPY_H

#include "core/graph/op.h"

enum { DTP_LOSS_MEAN, DTP_LOSS_SUM, DTP_LOSS_NONE };

/* The terms of a call of cross_entropy, cross_entropy_grad, pick or label_weight. */
typedef struct dtp_loss_terms {
    double smoothing;
    int64_t ignore;
    bool has_ignore;
    int32_t weights; /* operand, -1: none */
    int32_t total;   /* operand with the sum of weights, -1: none */
} dtp_loss_terms;

dtp_loss_terms dtp_loss_terms_of(const dtp_op_call *call);

/* Whether a call of any op is a cross_entropy whose mean divides by the weights of the labels: its
 * denominator depends on the data. */
bool dtp_loss_weighs_labels(const dtp_op_call *call);

/* The label that a node of this op ignores, in its attributes; NULL = none. */
const int64_t *dtp_loss_ignored(const dtp_op_def *op, int32_t n_attrs, const dtp_attr *attrs);

/* cross_entropy_grad and label_weight. */
typedef enum dtp_loss_op { DTP_LOSS_GRADIENT, DTP_LOSS_COUNT } dtp_loss_op;
const dtp_op_def *dtp_loss_part(dtp_loss_op op);

/* linear_loss, or with its gradients; their attributes are those of cross_entropy and "chunk". */
const dtp_op_def *dtp_linear_loss(bool grad);

#endif
