/* Ops over rows, bound for any device: a row is all elements over the dims that an attribute of
 * the call names, and there is one for every element of the other dims. */
#include "executor/device/bound/rows.h"

#include <string.h>

static int64_t order_of(const dtp_op_call *call)
{
    const char *ord = dtp_call_choice(call, "ord");
    return strcmp(ord, "1") == 0 ? 1 : strcmp(ord, "2") == 0 ? 2 : 0;
}

/* Elements of a row less the correction. */
static int64_t divisor_of(const dtp_op_call *call, const dtp_bound_rows *b)
{
    return b->dims.global_count - dtp_call_int(call, "correction");
}

static int64_t fold_of(const dtp_op_call *call)
{
    const char *kind = dtp_call_choice(call, "kind");
    return strcmp(kind, "max") == 0    ? DTP_FOLD_MAX
           : strcmp(kind, "min") == 0  ? DTP_FOLD_MIN
           : strcmp(kind, "prod") == 0 ? DTP_FOLD_PROD
                                       : DTP_FOLD_SUM;
}

/* The identity of the reduction over ranks that follows. */
static int64_t identity_of(dtp_fold fold, dtp_dtype dtype)
{
    const int64_t low = dtype == DTP_I64 ? INT64_MIN : dtype == DTP_I32 ? INT32_MIN : 0;
    const int64_t high = dtype == DTP_I64 ? INT64_MAX : dtype == DTP_I32 ? INT32_MAX : 1;
    return fold == DTP_FOLD_MAX ? low : fold == DTP_FOLD_MIN ? high : fold == DTP_FOLD_PROD ? 1 : 0;
}

int64_t dtp_last_sum(const dtp_view *sums, const dtp_view *x)
{
    for (int32_t i = 0; i < sums->local.rank; i++) {
        const dtp_tdim dim = sums->local.dims[i];
        if (dtp_ttype_find(&x->local, dim.id) < 0) {
            return (dim.size - 1) * dtp_view_stride(sums, dim.id);
        }
    }
    return 0;
}

void dtp_bind_views(const dtp_op_call *call, const char *key, int32_t n_views,
                    const dtp_view *const *views, dtp_bound_rows *out)
{
    *out = (dtp_bound_rows){.n_views = n_views, .factor = 1.0};
    dtp_view_split(call, key, views[0], &out->dims);
    for (int32_t v = 0; v < n_views; v++) {
        out->views[v] = views[v];
    }
}

dtp_status dtp_places_check(const dtp_op_call *call, const dtp_bound_rows *b, int64_t most,
                            dtp_err *err)
{
    return b->dims.count <= most
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "%s: indices of a dim of more than 2^31 elements",
                          call->op->name);
}

static bool gives_places(dtp_row_op op)
{
    return op == DTP_ROW_argmax || op == DTP_ROW_argmin || op == DTP_ROW_arg_first ||
           op == DTP_ROW_topk;
}

#define OPTION(op, key, value)                                                                     \
    case DTP_ROW_##op:                                                                             \
        b->option = value;                                                                         \
        break;
#define KEY(op, key, value) key,

dtp_status dtp_bind_rows(const dtp_kernel_args *args, dtp_row_op op, dtp_bound_rows *b,
                         dtp_err *err)
{
    static const char *const keys[] = {DTP_ROW_OPS(KEY)};
    const dtp_view *views[DTP_NEST_VIEWS] = {NULL};
    const int32_t n_in = args->call->n_in, n = n_in + args->call->n_out;
    for (int32_t i = 0; i < n; i++) {
        views[i] = i < n_in ? &args->in[i] : &args->out[i - n_in];
    }
    dtp_bind_views(args->call, keys[op], n, views, b);
    switch (op) {
        DTP_ROW_OPS(OPTION)
    }
    const dtp_dtype last = args->out[args->call->n_out - 1].local.dtype;
    b->gives_places = gives_places(op);
    b->none = b->gives_places ? (last == DTP_I64 ? INT64_MAX : INT32_MAX)
                              : identity_of((dtp_fold)b->option, args->in[0].local.dtype);
    if (op == DTP_ROW_reduce && strcmp(dtp_call_choice(args->call, "kind"), "mean") == 0) {
        b->factor = 1.0 / (double)b->dims.global_count;
    }
    if (op == DTP_ROW_var_finish) {
        b->factor = 1.0 / (double)(b->option - dtp_call_int(args->call, "correction"));
    }
    return b->gives_places ? dtp_places_check(args->call, b, b->none, err) : DTP_OK;
}
