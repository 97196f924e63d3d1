/* Kernels of a backend: its own and added ones. */
#include "executor/device/backend.h"
#include "core/graph/ops/op_table.h"

#include <stdlib.h>
#include <string.h>

/* One added kernel, in a list. */
typedef struct dtp_backend_extra {
    struct dtp_backend_extra *next;
    dtp_kernel_fn run;
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

dtp_kernel_fn dtp_backend_kernel(const dtp_backend *b, const char *op)
{
    dtp_kernel_fn run = b->ops->kernel(b, op);
    for (const dtp_backend_extra *k = b->extra; k != NULL && run == NULL; k = k->next) {
        run = strcmp(k->op, op) == 0 ? k->run : NULL;
    }
    return run;
}

dtp_status dtp_backend_check(const dtp_backend *b, const dtp_op_call *call, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, b, call));
    return b->ops->check != NULL ? b->ops->check(b, call, err) : DTP_OK;
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
    if (dtp_op_find(kernel->op) != NULL || dtp_backend_kernel(b, kernel->op) != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "backend %s: op '%.80s' %s", b->ops->name, kernel->op,
                        dtp_op_find(kernel->op) != NULL ? "is built in" : "has a kernel already");
    }
    const size_t bytes = strlen(kernel->op) + 1;
    dtp_backend_extra *k = malloc(sizeof *k + bytes);
    DTP_TRY(DTP_MEMORY(err, k));
    memcpy(k->op, kernel->op, bytes);
    k->run = kernel->run;
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
