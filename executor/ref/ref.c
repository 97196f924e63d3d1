/* The reference backend: host memory, one thread, kernels from the lists of executor/ref/kernels.h.
 */
#include "executor/ref/ref.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "executor/device/convert.h"
#include "executor/device/host_memory.h"
#include "executor/ref/kernels.h"

#define LIST(family) dtp_ref__##family,
static const dtp_kernel *const LISTS[] = {DTP_REF_FAMILIES(LIST)};

/* ---- 16-bit floats: kernels run on f64 copies of them, which are rounded once at the end ---- */

/* How a call is run: as it is, or with views of the copies. */
typedef struct wide_job {
    dtp_kernel_fn run;
    bool wide;
    dtp_op_call call;
    dtp_ttype types[DTP_MAX_OP_IN + DTP_MAX_OP_OUT];
    dtp_view in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    int64_t at[DTP_MAX_OP_IN + DTP_MAX_OP_OUT]; /* of the copies in scratch; -1: there is none */
} wide_job;

/* A view as the kernel sees it, number i of all; *bytes counts the copies. */
static void widen_view(wide_job *job, int32_t i, const dtp_view *view, dtp_view *wide,
                       int64_t *bytes)
{
    *wide = *view;
    job->at[i] = -1;
    if (dtp_dtype_is_half(view->local.dtype)) {
        wide->local.dtype = DTP_F64;
        job->at[i] = *bytes;
        *bytes += dtp_ttype_bytes(&wide->local);
    }
    job->types[i] = wide->local;
}

static dtp_status bind_wide(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_op_call *call = args->call;
    int64_t bytes = 0;
    wide_job *job;
    DTP_TRY(DTP_NEW(arena, job, 1, err));
    *state = job;
    job->run = dtp_host_kernel(LISTS, sizeof LISTS / sizeof LISTS[0], call->op->name, 0)->run;
    for (int32_t i = 0; i < call->n_in; i++) {
        widen_view(job, i, &args->in[i], &job->in[i], &bytes);
    }
    for (int32_t i = 0; i < call->n_out; i++) {
        widen_view(job, call->n_in + i, &args->out[i], &job->out[i], &bytes);
    }
    job->wide = bytes > 0 && (call->op->flags & DTP_OP_ANY_DTYPE) == 0;
    job->call = *call;
    job->call.in = job->types;
    job->call.out = job->types + call->n_in;
    return job->wide ? dtp_scratch_reserve(&args->backend->scratch, (size_t)bytes, err) : DTP_OK;
}

/* Converts a view to its copy in scratch, or back; another only takes its address. */
static dtp_status move_view(const wide_job *job, const dtp_kernel_args *args, int32_t i,
                            const dtp_view *view, dtp_view *wide, bool back, dtp_err *err)
{
    const int64_t n = dtp_ttype_elems(&view->local);
    memcpy(wide->offset, view->offset, sizeof wide->offset);
    wide->data = view->data;
    if (job->at[i] < 0) {
        return DTP_OK;
    }
    wide->data = (char *)args->backend->scratch.data + job->at[i];
    return back
               ? dtp_convert(DTP_STORE_F64, wide->data, view->local.dtype, view->data, n, err)
               : dtp_convert((dtp_store)view->local.dtype, view->data, DTP_F64, wide->data, n, err);
}

static dtp_status run_wide(const dtp_kernel_args *args, dtp_err *err)
{
    wide_job *job = args->state;
    const int32_t n_in = args->call->n_in, n_out = args->call->n_out;
    dtp_kernel_args wide = *args;
    if (!job->wide) {
        return job->run(args, err);
    }
    wide.call = &job->call;
    wide.in = job->in;
    wide.out = job->out;
    for (int32_t i = 0; i < n_in; i++) {
        DTP_TRY(move_view(job, args, i, &args->in[i], &job->in[i], false, err));
    }
    for (int32_t i = 0; i < n_out; i++) {
        DTP_TRY(move_view(job, args, n_in + i, &args->out[i], &job->out[i], false, err));
    }
    DTP_TRY(job->run(&wide, err));
    for (int32_t i = 0; i < n_out; i++) {
        DTP_TRY(move_view(job, args, n_in + i, &args->out[i], &job->out[i], true, err));
    }
    return DTP_OK;
}

/* All kernels of the lists are run in this way. */
static const dtp_kernel *kernel(const dtp_backend *b, const char *op, int32_t i)
{
    static const dtp_kernel wide = {.op = "any", .run = run_wide, .bind = bind_wide};
    (void)b;
    return dtp_host_kernel(LISTS, sizeof LISTS / sizeof LISTS[0], op, i) != NULL ? &wide : NULL;
}

static const dtp_backend_ops REF_OPS = {.name = "ref",
                                        .alloc = dtp_host_alloc,
                                        .free = dtp_host_free,
                                        .upload = dtp_host_upload,
                                        .download = dtp_host_download,
                                        .kernel = kernel,
                                        .pack = dtp_host_pack,
                                        .unpack = dtp_host_unpack,
                                        .slice = dtp_host_slice,
                                        .scale = dtp_host_scale,
                                        .destroy = dtp_host_destroy};

dtp_status dtp_backend_ref_create(dtp_backend **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_backend *b = calloc(1, sizeof *b);
    DTP_TRY(DTP_MEMORY(err, b));
    b->ops = &REF_OPS;
    b->threads = 1;
    *out = b;
    return DTP_OK;
}
