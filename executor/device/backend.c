/* Kernels of a backend: its own and added ones. */
#include "executor/device/backend.h"
#include "core/base/arena.h"
#include "core/graph/ops/op_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One added kernel, in a list. */
typedef struct dtp_backend_extra {
    struct dtp_backend_extra *next;
    dtp_kernel kernel;
    char op[];
} dtp_backend_extra;

/* Frees the list down to `keep`. */
static void drop_extra(dtp_backend *b, const dtp_backend_extra *keep)
{
    while (b->extra != keep) {
        dtp_backend_extra *next = b->extra->next;
        free(b->extra);
        b->extra = next;
    }
}

/* Kernel number i of an op among the backend's own and the added ones; NULL after the last. */
static const dtp_kernel *kernel_at(const dtp_backend *b, const char *op, int32_t i)
{
    int32_t n = 0;
    const dtp_kernel *found = b->ops->kernel(b, op, i);
    while (n < i && b->ops->kernel(b, op, n) != NULL) {
        n++;
    }
    for (const dtp_backend_extra *k = b->extra; k != NULL && found == NULL; k = k->next) {
        found = strcmp(k->op, op) == 0 && n++ == i ? &k->kernel : NULL;
    }
    return found;
}

static bool takes(const dtp_kernel *k, dtp_dtype dtype)
{
    return k->dtypes == 0 || (k->dtypes & DTP_DTYPE_BIT(dtype)) != 0;
}

/* The first operand (outputs follow) that a kernel does not take; -1: it takes all. */
static int32_t refused(const dtp_kernel *k, const dtp_op_call *call)
{
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        if (!takes(k, i < call->n_in ? call->in[i].dtype : call->out[i - call->n_in].dtype)) {
            return i;
        }
    }
    return -1;
}

/* "op 'exp' on backend cpu: operand 0 has dtype f64, its kernels take f32, bf16" */
static dtp_status no_such_dtypes(const dtp_backend *b, const dtp_op_call *call, dtp_err *err)
{
    const dtp_kernel *k = kernel_at(b, call->op->name, 0);
    const int32_t at = refused(k, call);
    const bool operand = at < call->n_in;
    char taken[96] = "";
    size_t used = 0;
    for (int32_t i = 0; k != NULL; k = kernel_at(b, call->op->name, ++i)) {
        const char *between = i > 0 ? "; " : "";
        for (int32_t d = 0; d < DTP_N_DTYPES && used < sizeof taken; d++) {
            if (takes(k, (dtp_dtype)d)) {
                used += (size_t)snprintf(taken + used, sizeof taken - used, "%s%s", between,
                                         dtp_dtype_name((dtp_dtype)d));
                between = ", ";
            }
        }
    }
    return DTP_FAIL(
        err, DTP_UNSUPPORTED, "op '%s' on backend %s: %s %d has dtype %s, its kernels take %s",
        call->op->name, b->ops->name, operand ? "operand" : "output",
        operand ? at : at - call->n_in,
        dtp_dtype_name(operand ? call->in[at].dtype : call->out[at - call->n_in].dtype), taken);
}

dtp_status dtp_backend_kernel(const dtp_backend *b, const dtp_op_call *call, const dtp_kernel **out,
                              dtp_err *err)
{
    const dtp_kernel *k;
    DTP_TRY(DTP_NOT_NULL(err, b, call, out));
    for (int32_t i = 0; (k = kernel_at(b, call->op->name, i)) != NULL; i++) {
        if (refused(k, call) < 0) {
            *out = k;
            return DTP_OK;
        }
    }
    return kernel_at(b, call->op->name, 0) != NULL
               ? no_such_dtypes(b, call, err)
               : DTP_FAIL(err, DTP_UNSUPPORTED, "the '%s' backend has no kernel for op '%s'",
                          b->ops->name, call->op->name);
}

void *dtp_kernel_alloc(dtp_arena *arena, size_t bytes)
{
    return dtp_arena_alloc(arena, bytes, 1);
}

dtp_status dtp_backend_bind(dtp_backend *b, const dtp_kernel_args *args, dtp_arena *arena,
                            dtp_bound_kernel *out, dtp_err *err)
{
    const dtp_kernel *k = NULL;
    DTP_TRY(DTP_NOT_NULL(err, b, args, arena, out));
    DTP_TRY(dtp_backend_kernel(b, args->call, &k, err));
    *out = (dtp_bound_kernel){.run = k->run, .args = *args};
    out->args.error = args->error != NULL ? args->error : &out->error;
    out->args.backend = b;
    out->args.queue = b->ops->queue != NULL ? b->ops->queue->compute(b) : NULL;
    out->args.threads = b->threads;
    return k->bind != NULL ? k->bind(&out->args, arena, &out->args.state, err) : DTP_OK;
}

dtp_status dtp_bound_kernel_judge(const dtp_bound_kernel *k, const dtp_error_word *found,
                                  dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, k, found));
    return found->code == DTP_DATA_OK
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "%s: %s %lld is not in [0, %lld)", k->args.call->op->name,
                          found->code == DTP_DATA_LABEL ? "label" : "id", (long long)found->value,
                          (long long)found->limit);
}

dtp_status dtp_bound_kernel_check(dtp_bound_kernel *k, dtp_err *err)
{
    static const dtp_error_word nothing = {0};
    DTP_TRY(DTP_NOT_NULL(err, k));
    dtp_backend *b = k->args.backend;
    dtp_error_word found = nothing;
    if (b->ops->sync != NULL) {
        DTP_TRY(b->ops->sync(b, err));
    }
    if (k->args.error == &k->error) {
        found = k->error;
        k->error = nothing;
    } else {
        DTP_TRY(b->ops->download(b, &found, k->args.error, sizeof found, err));
        DTP_TRY(b->ops->upload(b, k->args.error, &nothing, sizeof nothing, err));
    }
    return dtp_bound_kernel_judge(k, &found, err);
}

dtp_status dtp_bound_kernel_run(dtp_bound_kernel *k, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, k));
    DTP_TRY(k->run(&k->args, err));
    return k->args.backend->ops->queue == NULL ? dtp_bound_kernel_check(k, err) : DTP_OK;
}

const char *dtp_bound_kernel_why_apart(const dtp_bound_kernel *k)
{
    const dtp_backend_ops *ops = k->args.backend->ops;
    return ops->why_apart != NULL ? ops->why_apart(k) : NULL;
}

void dtp_backend_say(const dtp_backend *b, const dtp_ctx *ctx)
{
    if (b->ops->say != NULL) {
        b->ops->say(b, ctx);
    }
}

static dtp_status add_kernel(dtp_backend *b, const dtp_kernel *kernel, dtp_err *err)
{
    if (kernel->op == NULL || kernel->op[0] == '\0' || kernel->run == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "backend %s: a kernel without op name or function",
                        b->ops->name);
    }
    const dtp_kernel *same = kernel_at(b, kernel->op, 0);
    for (int32_t i = 1; same != NULL && same->dtypes != 0 && kernel->dtypes != 0 &&
                        (same->dtypes & kernel->dtypes) == 0;
         i++) {
        same = kernel_at(b, kernel->op, i);
    }
    if (dtp_op_find(kernel->op) != NULL || same != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "backend %s: op '%.80s' %s", b->ops->name, kernel->op,
                        dtp_op_find(kernel->op) != NULL ? "is built in" : "has a kernel already");
    }
    const size_t bytes = strlen(kernel->op) + 1;
    dtp_backend_extra *k = malloc(sizeof *k + bytes);
    DTP_TRY(DTP_MEMORY(err, k));
    memcpy(k->op, kernel->op, bytes);
    k->kernel = *kernel;
    k->kernel.op = k->op;
    k->next = b->extra;
    b->extra = k;
    return DTP_OK;
}

dtp_status dtp_backend_add_kernels(dtp_backend *b, const dtp_kernel *kernels, int32_t n,
                                   dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, b));
    if (n > 0) {
        DTP_TRY(DTP_NOT_NULL(err, kernels));
    }
    const dtp_backend_extra *before = b->extra;
    for (int32_t i = 0; i < n; i++) {
        const dtp_status s = add_kernel(b, &kernels[i], err);
        if (s != DTP_OK) {
            drop_extra(b, before);
            return s;
        }
    }
    return DTP_OK;
}

void dtp_backend_destroy(dtp_backend *b)
{
    if (b != NULL) {
        drop_extra(b, NULL);
        b->ops->destroy(b);
    }
}
