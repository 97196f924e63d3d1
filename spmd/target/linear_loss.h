/* How linear_loss and linear_loss_grad run in chunks of rows: the calls of a chunk and the
 * workspace, for memory, prices and kernels. */
#ifndef DTP_SPMD_TARGET_LINEAR_LOSS_H
#define DTP_SPMD_TARGET_LINEAR_LOSS_H

#include "spmd/target/target.h"

/* Buffers that parts read and write: operands and outputs of the call, and parts of the workspace.
 * Those with rows are of one chunk, or of all rows. */
typedef enum dtp_linear_buffer {
    DTP_LINEAR_X,
    DTP_LINEAR_W,
    DTP_LINEAR_LABELS,
    DTP_LINEAR_DLOSS, /* with gradients */
    DTP_LINEAR_LOSS,
    DTP_LINEAR_LSE, /* an output; with gradients in the workspace */
    DTP_LINEAR_DX,
    DTP_LINEAR_DW,
    DTP_LINEAR_LOGITS,   /* workspace: of a chunk; then their gradient */
    DTP_LINEAR_ROW_LOSS, /* workspace: losses of rows */
    DTP_LINEAR_SUM,      /* workspace: dw of the chunks so far */
    DTP_LINEAR_TERM,     /* workspace: dw of a chunk */
    DTP_LINEAR_BUFFERS
} dtp_linear_buffer;

enum { DTP_LINEAR_CHUNK_PARTS = 7, DTP_LINEAR_END_PARTS = 3, DTP_LINEAR_ATTRS = 4 };

typedef struct dtp_linear_part {
    const char *op;
    int32_t n_in, n_out;
    dtp_linear_buffer in[4], out[2];
    int32_t n_attrs;
    dtp_attr attrs[DTP_LINEAR_ATTRS];
    int32_t runs; /* 0: for every chunk; 1: for the first; -1: for the others */
} dtp_linear_part;

typedef struct dtp_linear_plan {
    int64_t rows, chunk;
    int32_t n_parts, n_end; /* of a chunk; after the chunks */
    dtp_linear_part parts[DTP_LINEAR_CHUNK_PARTS], end[DTP_LINEAR_END_PARTS];
    dtp_ttype types[DTP_LINEAR_BUFFERS]; /* row dims merged into the first one; of all rows */
    int64_t offset[DTP_LINEAR_BUFFERS];  /* in the workspace, -1 = not there */
    int64_t scratch;                     /* where the workspace of parts begins */
} dtp_linear_plan;

/* `global_rows`: of the whole tensor, for the mean. */
void dtp_linear_plan_make(const dtp_op_call *call, int64_t global_rows, dtp_linear_plan *out);
/* The type of a buffer for n rows. */
dtp_ttype dtp_linear_type(const dtp_linear_plan *plan, dtp_linear_buffer buffer, int64_t n);
bool dtp_linear_has_rows(const dtp_linear_plan *plan, dtp_linear_buffer buffer);
/* The call of a part for n rows; types has room for its operands and outputs. */
dtp_op_call dtp_linear_call(const dtp_linear_plan *plan, const dtp_linear_part *part,
                            const dtp_dims *dims, int64_t n, dtp_ttype types[6]);
/* Workspace of a call on the target of these ops. */
int64_t dtp_linear_workspace(const dtp_target_op *ops, const dtp_op_call *call);

#endif
