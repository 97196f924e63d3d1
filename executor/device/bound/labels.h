/* cross_entropy, its gradient and parts, over rows that each have a label, bound for any device
 * (core/graph/ops/cross_entropy.h has the terms). */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_LABELS_H
#define DTP_EXECUTOR_DEVICE_BOUND_LABELS_H

#include "core/graph/ops/cross_entropy.h"
#include "executor/device/bound/rows.h"

#define DTP_LABEL_OPS(OP)                                                                          \
    OP(cross_entropy)                                                                              \
    OP(cross_entropy_grad)                                                                         \
    OP(pick)                                                                                       \
    OP(label_weight)

#define DTP_LABEL_OP_NUMBER(op) DTP_LABEL_##op,
typedef enum dtp_label_op { DTP_LABEL_OPS(DTP_LABEL_OP_NUMBER) } dtp_label_op;

/* Views of rows; where an op has none, the labels stand for it. */
enum {
    DTP_LOSS_LOGITS,
    DTP_LOSS_LABELS,
    DTP_LOSS_LSE,  /* written by the loss, read by the gradient */
    DTP_LOSS_LOSS, /* of rows: the loss, the picked logit, a; the gradient of the loss */
    DTP_LOSS_DX,
    DTP_LOSS_VIEWS
};

typedef struct dtp_bound_labels {
    dtp_bound_rows rows;
    dtp_loss_terms terms;
    int32_t reduce;      /* DTP_LOSS_NONE: a result per row */
    bool weighted;       /* the mean divides by the weights of the labels */
    double factor;       /* of the sum of rows of weight 1 */
    int64_t local, size; /* classes here, all */
} dtp_bound_labels;

void dtp_bind_labels(const dtp_kernel_args *args, dtp_label_op op, dtp_bound_labels *out);
/* Global index of class 0, in this run. */
int64_t dtp_labels_first(const dtp_bound_labels *b);

#endif
