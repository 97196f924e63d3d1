/* What a kernel gets. Kernels are found by (backend, op name). */
#ifndef DTP_EXECUTOR_DEVICE_KERNEL_H
#define DTP_EXECUTOR_DEVICE_KERNEL_H

#include "core/graph/op.h"

/* One operand on this rank: contiguous, row-major. */
typedef struct dtp_view {
    dtp_ttype local;              /* dtype and local dims (ids and local sizes) */
    int64_t global[DTP_MAX_RANK]; /* global sizes */
    int64_t offset[DTP_MAX_RANK]; /* global index of the first local element */
    void *data;
} dtp_view;

/* A whole tensor, its data not set. */
static inline dtp_view dtp_view_whole(const dtp_ttype *type)
{
    dtp_view view = {.local = *type};
    for (int32_t d = 0; d < type->rank; d++) {
        view.global[d] = type->dims[d].size;
    }
    return view;
}

/* Row-major index in the whole tensor of local element `local`. */
static inline int64_t dtp_view_global_index(const dtp_view *v, int64_t local)
{
    int64_t index = 0, scale = 1;
    for (int32_t i = v->local.rank - 1; i >= 0; i--) {
        index += (local % v->local.dims[i].size + v->offset[i]) * scale;
        local /= v->local.dims[i].size;
        scale *= v->global[i];
    }
    return index;
}

typedef struct dtp_kernel_args {
    const dtp_op_call *call; /* op, attributes, local types */
    const dtp_view *in;      /* call->n_in */
    const dtp_view *out;     /* call->n_out; out[i].data == in[j].data when run in place */
    void *workspace;         /* at least op->workspace(call) bytes, 64-byte aligned */
    int64_t workspace_bytes;
    uint64_t seed; /* random ops */
    int64_t step;  /* training step, from 0: random ops and Adam's bias correction (t = step + 1) */
    int32_t threads; /* OpenMP threads this rank may use */
    bool first;      /* the first microbatch of a step: `accumulate` begins a new sum */
} dtp_kernel_args;

/* Kernels neither allocate nor communicate. An empty local shape is legal. Data-dependent misuse (a
 * label out of range) is DTP_RANGE with the value. */
typedef dtp_status (*dtp_kernel_fn)(const dtp_kernel_args *args, dtp_err *err);

typedef struct dtp_kernel {
    const char *op;
    dtp_kernel_fn run;
} dtp_kernel;

#endif
