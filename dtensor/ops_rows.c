/* Ops along dims by name (include/dtp/ops.h): statistics, scans, order, positions. */
#include "core/graph/op.h"
#include "dtensor/ops_common.h"

/* An op over axes with at most one more argument. */
static dtp_status over(const char *op, dtp_tensor x, int32_t n, const int32_t *axes,
                       const dtp_arg *more, dtp_tensor *out, dtp_err *err)
{
    const dtp_axes_call call = {.op = op,
                                .key = "over",
                                .n_axes = n,
                                .axes = axes,
                                .n_args = more != NULL ? 1 : 0,
                                .args = more};
    return dtp_ops__along(&call, x, out, err);
}

dtp_status dtp_tensor_logsumexp(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                                dtp_err *err)
{
    return over("logsumexp", x, n, axes, NULL, out, err);
}

dtp_status dtp_tensor_norm(dtp_tensor x, const char *order, int32_t n, const int32_t *axes,
                           dtp_tensor *out, dtp_err *err)
{
    const dtp_arg arg = {.key = "ord", .kind = DTP_ARG_ENUM, .text = order};
    return over("norm", x, n, axes, &arg, out, err);
}

static dtp_status spread(const char *op, dtp_tensor x, int64_t correction, int32_t n,
                         const int32_t *axes, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg arg = {.key = "correction", .kind = DTP_ARG_INT, .i = correction};
    return over(op, x, n, axes, &arg, out, err);
}

dtp_status dtp_tensor_var(dtp_tensor x, int64_t correction, int32_t n, const int32_t *axes,
                          dtp_tensor *out, dtp_err *err)
{
    return spread("var", x, correction, n, axes, out, err);
}

dtp_status dtp_tensor_std(dtp_tensor x, int64_t correction, int32_t n, const int32_t *axes,
                          dtp_tensor *out, dtp_err *err)
{
    return spread("std", x, correction, n, axes, out, err);
}

dtp_status dtp_tensor_argmax(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)
{
    return over("argmax", x, 1, &axis, NULL, out, err);
}

dtp_status dtp_tensor_argmin(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)
{
    return over("argmin", x, 1, &axis, NULL, out, err);
}

dtp_status dtp_tensor_topk(dtp_tensor x, int32_t axis, int64_t k, dtp_tensor *values,
                           dtp_tensor *indices, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, values, indices));
    const dtp_arg arg = {.key = "k", .kind = DTP_ARG_INT, .i = k};
    dtp_tensor outs[2];
    DTP_TRY(over("topk", x, 1, &axis, &arg, outs, err));
    *values = outs[0];
    *indices = outs[1];
    return DTP_OK;
}

dtp_status dtp_tensor_any(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                          dtp_err *err)
{
    return over("any", x, n, axes, NULL, out, err);
}

dtp_status dtp_tensor_all(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,
                          dtp_err *err)
{
    return over("all", x, n, axes, NULL, out, err);
}

/* ---- along one dim ------------------------------------------------------------------------------
 */

static dtp_status along(const char *op, dtp_tensor x, int32_t axis, int32_t n_args,
                        const dtp_arg *args, dtp_tensor *out, dtp_err *err)
{
    const dtp_axes_call call = {
        .op = op, .key = "dim", .n_axes = 1, .axes = &axis, .n_args = n_args, .args = args};
    return dtp_ops__along(&call, x, out, err);
}

dtp_status dtp_tensor_cumsum(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)
{
    return along("cumsum", x, axis, 0, NULL, out, err);
}

dtp_status dtp_tensor_roll(dtp_tensor x, int32_t axis, int64_t shift, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg arg = {.key = "shift", .kind = DTP_ARG_INT, .i = shift};
    return along("roll", x, axis, 1, &arg, out, err);
}

dtp_status dtp_tensor_reorder(dtp_tensor x, int32_t axis, int64_t chunks, bool inverse,
                              dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "chunks", .kind = DTP_ARG_INT, .i = chunks},
                            {.key = "inverse", .kind = DTP_ARG_INT, .i = inverse ? 1 : 0}};
    return along("reorder", x, axis, 2, args, out, err);
}

/* ---- positions ----------------------------------------------------------------------------------
 */

dtp_status dtp_tensor_take(dtp_tensor x, int32_t axis, dtp_tensor ids, dtp_tensor *out,
                           dtp_err *err)
{
    dtp_tensor_desc d, i;
    dtp_letters l = {0}, dim = {0};
    int32_t at;
    DTP_TRY(dtp_ops__describe("take", x, &d, err));
    DTP_TRY(dtp_ops__describe("take", ids, &i, err));
    DTP_TRY(dtp_ops__axis("take", axis, d.rank, &at, err));
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, ",");
    dtp_letters_run(&l, d.rank, i.rank);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, at);
    dtp_letters_run(&l, d.rank, i.rank);
    dtp_letters_run(&l, at + 1, d.rank - at - 1);
    dtp_letters_letter(&dim, at);
    const dtp_tensor in[] = {x, ids};
    const dtp_arg arg = {.key = "over", .kind = DTP_ARG_DIMS, .text = dim.text};
    const dtp_call call = {
        .op = "gather", .dims = l.text, .n_in = 2, .in = in, .n_args = 1, .args = &arg};
    return dtp_canonical__call(&call, "take", out, err);
}

dtp_status dtp_tensor_scatter_add(dtp_tensor src, int32_t axis, dtp_tensor ids, int64_t size,
                                  dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d, i;
    dtp_letters l = {0}, along = {0};
    int32_t at;
    DTP_TRY(dtp_ops__describe("scatter_add", src, &d, err));
    DTP_TRY(dtp_ops__describe("scatter_add", ids, &i, err));
    const int32_t rank = d.rank - i.rank + 1;
    if (rank < 1 || rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "scatter_add: src has %d dims, ids %d", d.rank, i.rank);
    }
    if (size < 1) {
        return DTP_FAIL(err, DTP_RANGE, "scatter_add: size %lld", (long long)size);
    }
    DTP_TRY(dtp_ops__axis("scatter_add", axis, rank, &at, err));
    dtp_letters_run(&along, at, i.rank);
    dtp_letters_add(&l, along.text);
    dtp_letters_add(&l, ",");
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, at);
    dtp_letters_add(&l, "z");
    dtp_letters_run(&l, at + i.rank, rank - 1 - at);
    const dtp_tensor in[] = {ids, src};
    const dtp_arg args[] = {{.key = "over", .kind = DTP_ARG_DIMS, .text = "z"},
                            {.key = "along", .kind = DTP_ARG_DIMS, .text = along.text},
                            {.key = "size", .kind = DTP_ARG_INT, .i = size}};
    const dtp_call call = {.op = "scatter_add",
                           .dims = l.text,
                           .n_in = 2,
                           .in = in,
                           .n_args = 3,
                           .args = args,
                           .new_sizes = &size};
    return dtp_canonical__call(&call, call.op, out, err);
}
