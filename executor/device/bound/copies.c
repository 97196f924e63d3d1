/* Ops that copy elements, bound for any device as copies of strided blocks. */
#include "executor/device/bound/copies.h"

#include "core/graph/ops/sequence.h"

/* Copies x into y over the dims of `shape`, from element x_at of x on and y_at of y. */
static dtp_status copy(const dtp_kernel_args *args, dtp_copy_fn fn, const dtp_view *shape,
                       int64_t y_at, const dtp_view *x, int64_t x_at, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const int64_t bytes = dtp_dtype_bytes(y->local.dtype);
    dtp_bound_copy c = {.n = shape->local.rank,
                        .elem_bytes = bytes,
                        .y = (char *)y->data + y_at * bytes,
                        .x = (const char *)x->data + x_at * bytes};
    for (int32_t i = 0; i < c.n; i++) {
        c.sizes[i] = shape->local.dims[i].size;
        c.strides[0][i] = dtp_view_stride(y, shape->local.dims[i].id);
        c.strides[1][i] = dtp_view_stride(x, shape->local.dims[i].id);
    }
    return fn(args, &c, err);
}

dtp_status dtp_copies_broadcast(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    return copy(args, fn, &args->out[0], 0, &args->in[0], 0, err);
}

dtp_status dtp_copies_permute(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    return copy(args, fn, &args->in[0], 0, &args->in[0], 0, err);
}

dtp_status dtp_copies_stack(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    const int64_t stride = dtp_view_stride(&args->out[0], dtp_call_dim(args->call, "dim"));
    for (int32_t i = 0; i < args->call->n_in; i++) {
        DTP_TRY(copy(args, fn, &args->in[i], i * stride, &args->in[i], 0, err));
    }
    return DTP_OK;
}

dtp_status dtp_copies_relabel(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    dtp_view x = args->in[0];
    x.local = args->out[0].local;
    return x.data == args->out[0].data ? DTP_OK : copy(args, fn, &x, 0, &x, 0, err);
}

dtp_status dtp_copies_slice(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const int64_t first = dtp_view_offset(y, dim) + dtp_call_int(args->call, "start");
    if (dtp_ttype_elems(&y->local) == 0) {
        return DTP_OK;
    }
    return copy(args, fn, y, 0, x, dtp_view_stride(x, dim) * (first - dtp_view_offset(x, dim)),
                err);
}

/* Global element i of x is element i + before of y. */
dtp_pad_form dtp_pad_form_here(const dtp_kernel_args *args)
{
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const int64_t at =
        dtp_view_offset(x, dim) + dtp_call_int(args->call, "before") - dtp_view_offset(y, dim);
    const int64_t end = at + dtp_ttype_size(&x->local, dim), size = dtp_ttype_size(&y->local, dim);
    dtp_pad_form f = {.to = at > 0 ? at : 0, .from = at < 0 ? -at : 0};
    f.n = (end < size ? end : size) - f.to;
    return f.n > 0 ? f : (dtp_pad_form){0};
}

dtp_status dtp_copies_concat(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t stride = dtp_view_stride(&args->out[0], dim);
    for (int64_t i = 0, at = 0; i < args->call->n_in; i++) {
        DTP_TRY(copy(args, fn, &args->in[i], at * stride, &args->in[i], 0, err));
        at += dtp_ttype_size(&args->in[i].local, dim);
    }
    return DTP_OK;
}

/* Runs of n elements of dim "dim": run i of `runs` goes from `from` + i * from_step to `to` + i *
 * to_step. Operand and result have the same sizes but of that dim. */
typedef struct along_runs {
    int64_t runs, n, from, from_step, to, to_step;
} along_runs;

static dtp_status copy_runs(const dtp_kernel_args *args, dtp_copy_fn fn, const along_runs *r,
                            dtp_err *err)
{
    const dtp_ttype *x = &args->in[0].local;
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t inner = dtp_view_stride(&args->in[0], dim), row = dtp_ttype_size(x, dim) * inner;
    const int64_t out_row = dtp_ttype_size(&args->out[0].local, dim) * inner;
    const int64_t bytes = dtp_dtype_bytes(x->dtype);
    const dtp_bound_copy c = {
        .n = 3,
        .sizes = {row > 0 ? dtp_ttype_elems(x) / row : 0, r->runs, r->n * inner},
        .strides = {{out_row, r->to_step * inner, 1}, {row, r->from_step * inner, 1}},
        .elem_bytes = bytes,
        .y = (char *)args->out[0].data + r->to * inner * bytes,
        .x = (const char *)args->in[0].data + r->from * inner * bytes};
    return row > 0 && r->n > 0 ? fn(args, &c, err) : DTP_OK;
}

dtp_status dtp_copies_roll(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const int64_t n = x->global[dtp_ttype_find(&x->local, dim)];
    const int64_t have = dtp_ttype_size(&x->local, dim), all = dtp_ttype_size(&y->local, dim);
    if (n == 0 || all == 0) {
        return DTP_OK;
    }
    int64_t from = (dtp_view_offset(y, dim) - dtp_call_int(args->call, "shift") % n -
                    dtp_view_offset(x, dim)) %
                   n;
    from += from < 0 ? n : 0;
    const int64_t first = have - from < all ? have - from : all;
    DTP_TRY(copy_runs(args, fn, &(along_runs){.runs = 1, .n = first, .from = from}, err));
    return copy_runs(args, fn, &(along_runs){.runs = 1, .n = all - first, .to = first}, err);
}

/* Places 2r are positions r, places 2r + 1 positions 2C - 1 - r, in runs (core/graph/ops). */
dtp_status dtp_copies_reorder(const dtp_kernel_args *args, dtp_copy_fn fn, dtp_err *err)
{
    const int64_t size = dtp_ttype_size(&args->in[0].local, dtp_call_dim(args->call, "dim"));
    const int64_t chunks = dtp_call_int(args->call, "chunks");
    const int64_t n = dtp_sequence_make(size, chunks).run;
    if (n == size) {
        return copy_runs(args, fn, &(along_runs){.runs = 1, .n = n}, err);
    }
    for (int64_t i = 0; i < 2; i++) {
        const int64_t position = i == 0 ? 0 : (2 * chunks - 1) * n, step = i == 0 ? n : -n;
        const along_runs r = dtp_call_int(args->call, "inverse") != 0
                                 ? (along_runs){chunks, n, i * n, 2 * n, position, step}
                                 : (along_runs){chunks, n, position, step, i * n, 2 * n};
        DTP_TRY(copy_runs(args, fn, &r, err));
    }
    return DTP_OK;
}
