/* Shape ops by name (include/dtp/ops.h). */
#include <string.h>

#include "core/graph/op.h"
#include "dtensor/ops_common.h"

/* ---- order of dims ---- */

dtp_status dtp_tensor_permute(dtp_tensor x, const int32_t *axes, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, axes));
    dtp_tensor_desc d;
    dtp_letters l = {0};
    bool used[DTP_MAX_RANK] = {false};
    DTP_TRY(dtp_ops__describe("permute", x, &d, err));
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, "->");
    for (int32_t i = 0; i < d.rank; i++) {
        int32_t axis = 0;
        DTP_TRY(dtp_ops__axis("permute", axes[i], d.rank, &axis, err));
        if (used[axis]) {
            return DTP_FAIL(err, DTP_INVALID, "permute: axis %d is given twice", axis);
        }
        used[axis] = true;
        dtp_letters_letter(&l, axis);
    }
    const dtp_call call = {.op = "einsum", .dims = l.text, .n_in = 1, .in = &x};
    return dtp_canonical__call(&call, "permute", out, err);
}

dtp_status dtp_tensor_transpose(dtp_tensor x, int32_t a, int32_t b, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    int32_t axes[DTP_MAX_RANK] = {0}, first, second;
    DTP_TRY(dtp_ops__describe("transpose", x, &d, err));
    DTP_TRY(dtp_ops__axis("transpose", a, d.rank, &first, err));
    DTP_TRY(dtp_ops__axis("transpose", b, d.rank, &second, err));
    for (int32_t i = 0; i < d.rank; i++) {
        axes[i] = i == first ? second : i == second ? first : i;
    }
    return dtp_tensor_permute(x, axes, out, err);
}

/* ---- shapes ---- */

/* Row-major to other sizes; every dim gets a new name. */
static dtp_status relabel(dtp_tensor x, const dtp_tensor_desc *d, int32_t rank,
                          const int64_t *shape, dtp_tensor *out, dtp_err *err)
{
    dtp_letters l = {0};
    dtp_letters_run(&l, 0, d->rank);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, d->rank, rank);
    const dtp_call call = {
        .op = "relabel", .dims = l.text, .n_in = 1, .in = &x, .new_sizes = shape};
    return dtp_canonical__call(&call, "reshape", out, err);
}

dtp_status dtp_tensor_reshape(dtp_tensor x, int32_t rank, const int64_t *shape, dtp_tensor *out,
                              dtp_err *err)
{
    if (rank > 0) {
        DTP_TRY(DTP_NOT_NULL(err, shape));
    }
    dtp_tensor_desc d;
    int64_t sizes[DTP_MAX_RANK];
    DTP_TRY(dtp_ops__describe("reshape", x, &d, err));
    /* Replaces a size of -1 by what is left. */
    int64_t known = 1, all = 1;
    int32_t open = -1;
    if (rank < 0 || rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "reshape: %d dims, at most %d are possible", rank,
                        DTP_MAX_RANK);
    }
    for (int32_t i = 0; i < d.rank; i++) {
        all *= d.shape[i];
    }
    for (int32_t i = 0; i < rank; i++) {
        sizes[i] = shape[i];
        if (shape[i] == -1 && open < 0) {
            open = i;
        } else if (shape[i] < 1 || known > all / shape[i]) {
            return DTP_FAIL(err, DTP_INVALID,
                            "reshape: size %lld of dim %d does not fit a tensor of %lld elements",
                            (long long)shape[i], i, (long long)all);
        } else {
            known *= shape[i];
        }
    }
    if (open >= 0) {
        sizes[open] = all / known;
    }
    if (open >= 0 ? all % known != 0 : known != all) {
        return DTP_FAIL(err, DTP_INVALID, "reshape: %lld elements do not become %lld",
                        (long long)all, (long long)known);
    }
    return relabel(x, &d, rank, sizes, out, err);
}

dtp_status dtp_tensor_flatten(dtp_tensor x, int32_t first, int32_t last, dtp_tensor *out,
                              dtp_err *err)
{
    dtp_tensor_desc d;
    int64_t shape[DTP_MAX_RANK + 1] = {1};
    int32_t from, to, rank = 0;
    DTP_TRY(dtp_ops__describe("flatten", x, &d, err));
    DTP_TRY(dtp_ops__axis("flatten", first, d.rank, &from, err));
    DTP_TRY(dtp_ops__axis("flatten", last, d.rank, &to, err));
    if (to < from) {
        return DTP_FAIL(err, DTP_INVALID, "flatten: axis %d comes after axis %d", first, last);
    }
    for (int32_t i = 0; i < d.rank; i++) {
        if (i > from && i <= to) {
            shape[rank - 1] *= d.shape[i];
        } else {
            shape[rank++] = d.shape[i];
        }
    }
    return relabel(x, &d, rank, shape, out, err);
}

dtp_status dtp_tensor_squeeze(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    int32_t at;
    DTP_TRY(dtp_ops__describe("squeeze", x, &d, err));
    DTP_TRY(dtp_ops__axis("squeeze", axis, d.rank, &at, err));
    if (d.shape[at] != 1) {
        return DTP_FAIL(err, DTP_INVALID, "squeeze: axis %d has size %lld, not 1", at,
                        (long long)d.shape[at]);
    }
    int64_t shape[DTP_MAX_RANK];
    memcpy(shape, d.shape, (size_t)at * sizeof *shape);
    memcpy(shape + at, d.shape + at + 1, (size_t)(d.rank - 1 - at) * sizeof *shape);
    return relabel(x, &d, d.rank - 1, shape, out, err);
}

dtp_status dtp_tensor_unsqueeze(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    int32_t at;
    DTP_TRY(dtp_ops__describe("unsqueeze", x, &d, err));
    if (d.rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "unsqueeze: the tensor has %d dims already", d.rank);
    }
    DTP_TRY(dtp_ops__axis("unsqueeze", axis, d.rank + 1, &at, err));
    int64_t shape[DTP_MAX_RANK];
    memcpy(shape, d.shape, (size_t)at * sizeof *shape);
    shape[at] = 1;
    memcpy(shape + at + 1, d.shape + at, (size_t)(d.rank - at) * sizeof *shape);
    return relabel(x, &d, d.rank + 1, shape, out, err);
}

dtp_status dtp_tensor_expand(dtp_tensor x, int32_t rank, const int64_t *shape, dtp_tensor *out,
                             dtp_err *err)
{
    if (rank > 0) {
        DTP_TRY(DTP_NOT_NULL(err, shape));
    }
    dtp_tensor_desc d;
    DTP_TRY(dtp_ops__describe("expand", x, &d, err));
    if (rank < d.rank || rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "expand: from %d dims to %d", d.rank, rank);
    }
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] < 1) {
            return DTP_FAIL(err, DTP_RANGE, "expand: dim %d has size %lld", i, (long long)shape[i]);
        }
    }
    /* Dims of size 1 that are repeated are taken off first. */
    dtp_letters l = {0};
    int64_t own[DTP_MAX_RANK], new_sizes[DTP_MAX_RANK];
    int32_t n_own = 0, n_new = 0;
    for (int32_t i = 0; i < rank; i++) {
        const int32_t at = i - (rank - d.rank);
        if (at >= 0 && d.shape[at] == shape[i]) {
            own[n_own++] = shape[i];
            dtp_letters_letter(&l, i);
        } else if (at < 0 || d.shape[at] == 1) {
            new_sizes[n_new++] = shape[i];
        } else {
            return DTP_FAIL(err, DTP_INVALID, "expand: dim %d has size %lld, %lld is asked for", at,
                            (long long)d.shape[at], (long long)shape[i]);
        }
    }
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, rank);
    dtp_tensor short_one;
    DTP_TRY(n_own < d.rank ? relabel(x, &d, n_own, own, &short_one, err)
                           : dtp_tensor_share(x, &short_one, err));
    const dtp_call call = {
        .op = "broadcast", .dims = l.text, .n_in = 1, .in = &short_one, .new_sizes = new_sizes};
    dtp_status s = n_new > 0 ? dtp_canonical__call(&call, "expand", out, err)
                             : dtp_tensor_share(short_one, out, err);
    dtp_tensor_destroy(short_one);
    return s;
}

/* ---- shards ---- */

dtp_status dtp_tensor_slice(dtp_tensor x, int32_t axis, int64_t start, int64_t stop,
                            dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "start", .kind = DTP_ARG_INT, .i = start},
                            {.key = "stop", .kind = DTP_ARG_INT, .i = stop},
                            {0}};
    return dtp_ops__along("slice", x, 1, &axis, args, out, err);
}

dtp_status dtp_tensor_pad(dtp_tensor x, int32_t axis, int64_t before, int64_t after,
                          dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "before", .kind = DTP_ARG_INT, .i = before},
                            {.key = "after", .kind = DTP_ARG_INT, .i = after},
                            {0}};
    return dtp_ops__along("pad", x, 1, &axis, args, out, err);
}

dtp_status dtp_tensor_concat(int32_t n_in, const dtp_tensor *in, int32_t axis, dtp_tensor *out,
                             dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, in));
    dtp_tensor_desc d;
    dtp_letters l = {0}, dim = {0};
    int32_t at;
    if (n_in < 1 || n_in > DTP_MAX_OP_IN) {
        return DTP_FAIL(err, DTP_INVALID, "concat: %d operands, 1 to %d are possible", n_in,
                        DTP_MAX_OP_IN);
    }
    DTP_TRY(dtp_ops__describe("concat", in[0], &d, err));
    DTP_TRY(dtp_ops__axis("concat", axis, d.rank, &at, err));
    for (int32_t i = 0; i < n_in; i++) {
        dtp_letters_add(&l, i > 0 ? "," : "");
        dtp_letters_run(&l, 0, d.rank);
    }
    dtp_letters_letter(&dim, at);
    const dtp_arg args[] = {{.key = "dim", .kind = DTP_ARG_DIMS, .text = dim.text}, {0}};
    return dtp_ops__call("concat", l.text, n_in, in, args, out, err);
}

dtp_status dtp_tensor_stack(int32_t n_in, const dtp_tensor *in, int32_t axis, dtp_tensor *out,
                            dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, in, out));
    dtp_tensor parts[DTP_MAX_OP_IN];
    dtp_status s = DTP_OK;
    int32_t n = 0;
    if (n_in < 1 || n_in > DTP_MAX_OP_IN) {
        return DTP_FAIL(err, DTP_INVALID, "stack: %d operands, 1 to %d are possible", n_in,
                        DTP_MAX_OP_IN);
    }
    for (; n < n_in && s == DTP_OK; n += s == DTP_OK ? 1 : 0) {
        s = dtp_tensor_unsqueeze(in[n], axis, &parts[n], err);
    }
    s = s == DTP_OK ? dtp_tensor_concat(n_in, parts, axis, out, err) : s;
    for (int32_t i = 0; i < n; i++) {
        dtp_tensor_destroy(parts[i]);
    }
    return s;
}

dtp_status dtp_tensor_unbind(dtp_tensor x, int32_t axis, dtp_tensor *outs, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, outs));
    dtp_tensor_desc d;
    int32_t at;
    DTP_TRY(dtp_ops__describe("unbind", x, &d, err));
    DTP_TRY(dtp_ops__axis("unbind", axis, d.rank, &at, err));
    int32_t splits[DTP_MAX_MESH_DIMS];
    if (dtp_layout_axis_splits(&d.layout, at, splits) > 0) {
        char text[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor_print(x, text);
        return DTP_FAIL(err, DTP_INVALID, "unbind: axis %d of %.300s is split", at, text);
    }
    dtp_status s = DTP_OK;
    int64_t n = 0;
    for (; n < d.shape[at] && s == DTP_OK; n += s == DTP_OK ? 1 : 0) {
        dtp_tensor shard;
        s = dtp_tensor_slice(x, at, n, n + 1, &shard, err);
        if (s == DTP_OK) {
            s = dtp_tensor_squeeze(shard, at, &outs[n], err);
            dtp_tensor_destroy(shard);
        }
    }
    for (int64_t i = 0; i < n && s != DTP_OK; i++) {
        dtp_tensor_destroy(outs[i]);
    }
    return s;
}

dtp_status dtp_tensor_one_hot(dtp_tensor ids, int64_t n, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_letters l = {0};
    DTP_TRY(dtp_ops__describe("one_hot", ids, &d, err));
    if (n < 1) {
        return DTP_FAIL(err, DTP_RANGE, "one_hot: %lld classes", (long long)n);
    }
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, "z");
    const dtp_arg arg = {.key = "dim", .kind = DTP_ARG_DIMS, .text = "z"};
    const dtp_call call = {.op = "one_hot",
                           .dims = l.text,
                           .n_in = 1,
                           .in = &ids,
                           .n_args = 1,
                           .args = &arg,
                           .new_sizes = &n};
    return dtp_canonical__call(&call, call.op, out, err);
}
