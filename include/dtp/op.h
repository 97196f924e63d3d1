/* Own ops (docs/own-ops.md): dtp_op_register for a whole row of the op table,
 * dtp_custom_op_register for a description by signature, roles or strategies, and
 * dtp_backend_add_kernels for what runs them. Helpers for gradients: core/graph/autodiff.h. */
#ifndef DTP_OP_H
#define DTP_OP_H

#include "core/graph/autodiff.h"
#include "core/graph/op_custom.h"
#include "core/graph/ops/op_table.h"
#include "executor/device/backend.h"

#endif
