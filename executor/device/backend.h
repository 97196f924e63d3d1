/* A backend: where memory lives and how kernels run. Orthogonal to the communicator. */
#ifndef DTP_EXECUTOR_DEVICE_BACKEND_H
#define DTP_EXECUTOR_DEVICE_BACKEND_H

#include <stddef.h>

#include "core/graph/op.h"
#include "dtp/device_mesh.h"
#include "executor/device/queue.h"
#include "executor/device/scratch.h"

/* A device that a machine file describes. */
typedef struct dtp_device_info {
    const char *kind;     /* "cpu", "cuda" */
    int64_t memory_bytes; /* 0: those of the host, shared by its ranks */
    char text[160];       /* its name, clocks and driver; "": nothing to say */
} dtp_device_info;

typedef struct dtp_bound_kernel dtp_bound_kernel;

typedef struct dtp_backend_ops {
    const char *name; /* "cpu", "ref" */
    /* REQUIRED. Device memory, 64-byte aligned; every byte goes through these two. */
    dtp_status (*alloc)(dtp_backend *b, size_t bytes, void **out, dtp_err *err);
    void (*free)(dtp_backend *b, void *ptr, size_t bytes);
    /* REQUIRED. Host <-> device copies. */
    dtp_status (*upload)(dtp_backend *b, void *device, const void *host, size_t bytes,
                         dtp_err *err);
    dtp_status (*download)(dtp_backend *b, void *host, const void *device, size_t bytes,
                           dtp_err *err);
    /* REQUIRED. Kernel number i of an op, in the order in which they are tried; else NULL. */
    const dtp_kernel *(*kernel)(const dtp_backend *b, const char *op, int32_t i);
    /* REQUIRED. Staging copies (spmd/program/program.h): src and dst as views; parts and index of
     * this rank in the group for pack, unpack, slice, keep_first. */
    dtp_status (*pack)(dtp_backend *b, const dtp_view *src, int32_t axis, int32_t parts,
                       const dtp_ttype *part, void *staging, dtp_err *err);
    dtp_status (*unpack)(dtp_backend *b, const void *staging, int32_t axis, int32_t parts,
                         const dtp_ttype *part, const dtp_view *dst, dtp_err *err);
    /* Element i of `axis` of dst is element start + i of src, where src has it. */
    dtp_status (*slice)(dtp_backend *b, const dtp_view *src, int32_t axis, int64_t start,
                        const dtp_view *dst, dtp_err *err);
    dtp_status (*scale)(dtp_backend *b, const dtp_view *src, double factor, const dtp_view *dst,
                        dtp_err *err);
    /* OPTIONAL, both or none. NULL: kernels, copies and staging copies are done when they return.
     * Waits for all queued work. */
    dtp_status (*sync)(dtp_backend *b, dtp_err *err);
    const dtp_queue_ops *queue;
    /* OPTIONAL. What machine files say of the device; *out has its defaults (dtp_device_info). */
    dtp_status (*describe)(const dtp_backend *b, dtp_device_info *out, dtp_err *err);
    /* OPTIONAL. Why a kernel of a fused op runs, or once ran, as several kernels. "": as one; NULL:
     * the kernel of another op. The words last until it runs again. */
    const char *(*why_apart)(const dtp_bound_kernel *k);
    /* OPTIONAL. Logs, at level info, what it computes with. */
    void (*say)(const dtp_backend *b, const dtp_ctx *ctx);
    void (*destroy)(dtp_backend *b);
} dtp_backend_ops;

struct dtp_backend_extra;

struct dtp_backend {
    const dtp_backend_ops *ops;
    struct dtp_backend_extra *extra; /* kernels of dtp_backend_add_kernels */
    int32_t threads;
    bool tf32; /* products of f32 operands that are bound from now on round them to tf32 */
    int64_t allocated_bytes, peak_allocated_bytes; /* counted by alloc and free */
    dtp_scratch scratch;                           /* of host kernels */
};

/* Of a slice: cuts the shape of its result along the axis to what the operand has of it; returns
 * where that begins in the result. */
static inline int64_t dtp_slice_common(const dtp_ttype *src, int32_t axis, int64_t start,
                                       dtp_ttype *shape)
{
    const int64_t skip = start < 0 ? -start : 0, left = src->dims[axis].size - start;
    const int64_t end = left < shape->dims[axis].size ? left : shape->dims[axis].size;
    shape->dims[axis].size = end > skip ? end - skip : 0;
    return skip;
}

/* A kernel ready to run. It must stay where it was bound. */
struct dtp_bound_kernel {
    dtp_kernel_fn run;
    dtp_kernel_args args;
    dtp_error_word error;
};

/* The kernel that takes the dtypes of a call: one of the backend's own, else an added one.
 * DTP_UNSUPPORTED: the op has none, or none for these dtypes; the message says which it takes. */
dtp_status dtp_backend_kernel(const dtp_backend *b, const dtp_op_call *call, const dtp_kernel **out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Finds and binds the kernel of args->call. Everything that args point to must stay as long as *out
 * is run; state, backend, queue and threads are filled in. Record and error word are where kernels
 * see them (dtp_step_state_link); without an error word the kernel gets its own. */
dtp_status dtp_backend_bind(dtp_backend *b, const dtp_kernel_args *args, dtp_arena *arena,
                            dtp_bound_kernel *out, dtp_err *err) DTP_MUST_CHECK;
/* What its error word says that it found wrong in its data: DTP_RANGE. */
dtp_status dtp_bound_kernel_judge(const dtp_bound_kernel *k, const dtp_error_word *found,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Waits for a kernel that was run, and judges it. */
dtp_status dtp_bound_kernel_check(dtp_bound_kernel *k, dtp_err *err) DTP_MUST_CHECK;
/* Runs it, or puts it on the queue. Where kernels run when called, its data errors are reported
 * too; else the caller checks. */
dtp_status dtp_bound_kernel_run(dtp_bound_kernel *k, dtp_err *err) DTP_MUST_CHECK;

/* As ops->why_apart; NULL where the backend does not say. */
const char *dtp_bound_kernel_why_apart(const dtp_bound_kernel *k);

/* What it computes with, to the log (ops->say). */
void dtp_backend_say(const dtp_backend *b, const dtp_ctx *ctx);

#endif
