/* What the kernels of the norms ask (core/graph/ops/norm.c has their formulas). */
#ifndef DTP_CORE_GRAPH_OPS_NORM_H
#define DTP_CORE_GRAPH_OPS_NORM_H

#include "core/graph/op.h"

/* layer_norm, its gradient and parts, which have mean and beta; else those of rms_norm. */
bool dtp_norm_is_centred(const dtp_op_def *op);

#endif
