/* Contractions, reductions and ops along dims by name (include/dtp/ops.h). */
#include <string.h>

#include "core/graph/op.h"
#include "dtensor/ops_common.h"

/* ---- contractions ---- */

dtp_status dtp_tensor_einsum(const char *dims, int32_t n_in, const dtp_tensor *in, dtp_tensor *out,
                             dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, dims));
    const dtp_call call = {.op = "einsum", .dims = dims, .n_in = n_in, .in = in};
    return dtp_tensor_call(&call, out, err);
}

/* Batch letters of one operand of a matmul: letter i is that of dim i of the aligned batch; a dim
 * of size 1 against a longer one is taken off (bit i of *drop). */
static void batch_letters(const dtp_tensor_desc *own, int32_t n, const dtp_tensor_desc *other,
                          int32_t n_other, dtp_letters *l, uint32_t *drop)
{
    const int32_t most = n > n_other ? n : n_other;
    *drop = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = most - n + i, against = at - (most - n_other);
        if (own->shape[i] == 1 && against >= 0 && other->shape[against] != 1) {
            *drop |= 1U << i;
        } else {
            dtp_letters_letter(l, at);
        }
    }
}

/* The tensor without the dims of `drop`. */
static dtp_status without(dtp_tensor t, const dtp_tensor_desc *desc, uint32_t drop, dtp_tensor *out,
                          dtp_err *err)
{
    int64_t shape[DTP_MAX_RANK];
    int32_t rank = 0;
    for (int32_t i = 0; i < desc->rank; i++) {
        if ((drop >> i & 1U) == 0) {
            shape[rank++] = desc->shape[i];
        }
    }
    return drop == 0 ? dtp_tensor_share(t, out, err) : dtp_tensor_reshape(t, rank, shape, out, err);
}

dtp_status dtp_tensor_matmul(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    const dtp_tensor in[2] = {a, b};
    dtp_tensor_desc d[2];
    for (int i = 0; i < 2; i++) {
        DTP_TRY(dtp_ops__describe("matmul", in[i], &d[i], err));
        if (d[i].rank == 0) {
            return DTP_FAIL(err, DTP_INVALID, "matmul: operand %d is a single number", i);
        }
    }
    /* Letters: 0.. the batch, 20 rows of a, 21 columns of b, 22 the summed dim. */
    enum { ROW = 20, COLUMN = 21, SUM = 22 };
    dtp_letters l = {0};
    uint32_t drop[2];
    dtp_tensor operands[2];
    const int32_t na = d[0].rank > 1 ? d[0].rank - 2 : 0, nb = d[1].rank > 1 ? d[1].rank - 2 : 0;
    batch_letters(&d[0], na, &d[1], nb, &l, &drop[0]);
    if (d[0].rank > 1) {
        dtp_letters_letter(&l, ROW);
    }
    dtp_letters_letter(&l, SUM);
    dtp_letters_add(&l, ",");
    batch_letters(&d[1], nb, &d[0], na, &l, &drop[1]);
    dtp_letters_letter(&l, SUM);
    if (d[1].rank > 1) {
        dtp_letters_letter(&l, COLUMN);
    }
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, na > nb ? na : nb);
    if (d[0].rank > 1) {
        dtp_letters_letter(&l, ROW);
    }
    if (d[1].rank > 1) {
        dtp_letters_letter(&l, COLUMN);
    }
    DTP_TRY(without(in[0], &d[0], drop[0], &operands[0], err));
    dtp_status s = without(in[1], &d[1], drop[1], &operands[1], err);
    if (s == DTP_OK) {
        const dtp_call call = {.op = "einsum", .dims = l.text, .n_in = 2, .in = operands};
        s = dtp_canonical__call(&call, "matmul", out, err);
        dtp_tensor_destroy(operands[1]);
    }
    dtp_tensor_destroy(operands[0]);
    return s;
}

dtp_status dtp_tensor_linear(dtp_tensor x, dtp_tensor weight, const dtp_tensor *bias,
                             dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_desc d;
    dtp_letters l = {0};
    dtp_tensor product;
    const dtp_tensor in[] = {x, weight};
    DTP_TRY(dtp_ops__describe("linear", x, &d, err));
    if (d.rank < 1) {
        return DTP_FAIL(err, DTP_INVALID, "linear: the operand is a single number");
    }
    dtp_letters_run(&l, 0, d.rank);
    dtp_letters_add(&l, ",z");
    dtp_letters_letter(&l, d.rank - 1);
    dtp_letters_add(&l, "->");
    dtp_letters_run(&l, 0, d.rank - 1);
    dtp_letters_add(&l, "z");
    const dtp_call call = {.op = "einsum", .dims = l.text, .n_in = 2, .in = in};
    DTP_TRY(dtp_canonical__call(&call, "linear", &product, err));
    if (bias == NULL) {
        *out = product;
        return DTP_OK;
    }
    dtp_status s = dtp_tensor_add(product, *bias, out, err);
    dtp_tensor_destroy(product);
    return s;
}

/* ---- reductions ---- */

static dtp_status reduce(const char *kind, dtp_tensor x, int32_t n, const int32_t *axes, bool keep,
                         dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc d;
    bool over[DTP_MAX_RANK];
    dtp_letters l = {0}, summed = {0}, rest = {0};
    if (n > 0 && axes == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: 'axes' is NULL", kind);
    }
    DTP_TRY(dtp_ops__describe(kind, x, &d, err));
    /* Marks the axes; all when n is 0. */
    const int32_t rank = d.rank;
    for (int32_t i = 0; i < rank; i++) {
        over[i] = n == 0;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t axis;
        DTP_TRY(dtp_ops__axis(kind, axes[i], rank, &axis, err));
        if (over[axis]) {
            return DTP_FAIL(err, DTP_INVALID, "%s: axis %d is given twice", kind, axis);
        }
        over[axis] = true;
    }
    for (int32_t i = 0; i < d.rank; i++) {
        dtp_letters_letter(&l, i);
        dtp_letters_letter(over[i] ? &summed : &rest, i);
        d.shape[i] = over[i] ? 1 : d.shape[i];
    }
    if (summed.n == 0) {
        return dtp_tensor_share(x, out, err);
    }
    const dtp_arg args[] = {{.key = "kind", .kind = DTP_ARG_ENUM, .text = kind},
                            {.key = "over", .kind = DTP_ARG_DIMS, .text = summed.text}};
    dtp_letters_add(&l, "->");
    dtp_letters_add(&l, rest.text);
    const dtp_call call = {
        .op = "reduce", .dims = l.text, .n_in = 1, .in = &x, .n_args = 2, .args = args};
    DTP_TRY(dtp_canonical__call(&call, kind, out, err));
    if (!keep) {
        return DTP_OK;
    }
    const dtp_tensor reduced = *out;
    dtp_status s = dtp_tensor_reshape(reduced, d.rank, d.shape, out, err);
    dtp_tensor_destroy(reduced);
    return s;
}

#define REDUCE_FUNCTION(name, kind)                                                                \
    dtp_status dtp_tensor_##name(dtp_tensor x, int32_t n, const int32_t *axes, bool keep,          \
                                 dtp_tensor *out, dtp_err *err)                                    \
    {                                                                                              \
        return reduce(kind, x, n, axes, keep, out, err);                                           \
    }
REDUCE_FUNCTION(sum, "sum")
REDUCE_FUNCTION(mean, "mean")
REDUCE_FUNCTION(amax, "max")
REDUCE_FUNCTION(amin, "min")
REDUCE_FUNCTION(prod, "prod")

/* ---- over several dims ---- */

#define OVER_FUNCTION(op)                                                                          \
    dtp_status dtp_tensor_##op(dtp_tensor x, int32_t n, const int32_t *axes, dtp_tensor *out,      \
                               dtp_err *err)                                                       \
    {                                                                                              \
        return dtp_ops__along(#op, x, n, axes, NULL, out, err);                                    \
    }
OVER_FUNCTION(logsumexp)
OVER_FUNCTION(any)
OVER_FUNCTION(all)

dtp_status dtp_tensor_norm(dtp_tensor x, const char *order, int32_t n, const int32_t *axes,
                           dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "ord", .kind = DTP_ARG_ENUM, .text = order}, {0}};
    return dtp_ops__along("norm", x, n, axes, args, out, err);
}

#define SPREAD_FUNCTION(op)                                                                        \
    dtp_status dtp_tensor_##op(dtp_tensor x, int64_t correction, int32_t n, const int32_t *axes,   \
                               dtp_tensor *out, dtp_err *err)                                      \
    {                                                                                              \
        const dtp_arg args[] = {{.key = "correction", .kind = DTP_ARG_INT, .i = correction}, {0}}; \
        return dtp_ops__along(#op, x, n, axes, args, out, err);                                    \
    }
SPREAD_FUNCTION(var)
SPREAD_FUNCTION(std)

/* ---- along one dim ---- */

#define ALONG_FUNCTION(op)                                                                         \
    dtp_status dtp_tensor_##op(dtp_tensor x, int32_t axis, dtp_tensor *out, dtp_err *err)          \
    {                                                                                              \
        return dtp_ops__along(#op, x, 1, &axis, NULL, out, err);                                   \
    }
ALONG_FUNCTION(softmax)
ALONG_FUNCTION(log_softmax)
ALONG_FUNCTION(argmax)
ALONG_FUNCTION(argmin)
ALONG_FUNCTION(cumsum)

dtp_status dtp_tensor_topk(dtp_tensor x, int32_t axis, int64_t k, dtp_tensor *values,
                           dtp_tensor *indices, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, values, indices));
    const dtp_arg args[] = {{.key = "k", .kind = DTP_ARG_INT, .i = k}, {0}};
    dtp_tensor outs[2];
    DTP_TRY(dtp_ops__along("topk", x, 1, &axis, args, outs, err));
    *values = outs[0];
    *indices = outs[1];
    return DTP_OK;
}

dtp_status dtp_tensor_roll(dtp_tensor x, int32_t axis, int64_t shift, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "shift", .kind = DTP_ARG_INT, .i = shift}, {0}};
    return dtp_ops__along("roll", x, 1, &axis, args, out, err);
}

dtp_status dtp_tensor_reorder(dtp_tensor x, int32_t axis, int64_t chunks, bool inverse,
                              dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "chunks", .kind = DTP_ARG_INT, .i = chunks},
                            {.key = "inverse", .kind = DTP_ARG_INT, .i = inverse ? 1 : 0},
                            {0}};
    return dtp_ops__along("reorder", x, 1, &axis, args, out, err);
}

/* ---- positions ---- */

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
