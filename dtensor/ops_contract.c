/* Contractions, reductions and what a network is made of, by name (include/dtp/ops.h). */
#include <string.h>

#include "core/graph/op.h"
#include "dtensor/ops_common.h"

/* ---- contractions -------------------------------------------------------------------------------
 */

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

/* ---- reductions ---------------------------------------------------------------------------------
 */

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

dtp_status dtp_tensor_sum(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                          dtp_err *err)
{
    return reduce("sum", x, n, axes, keep, out, err);
}

dtp_status dtp_tensor_mean(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err)
{
    return reduce("mean", x, n, axes, keep, out, err);
}

dtp_status dtp_tensor_amax(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err)
{
    return reduce("max", x, n, axes, keep, out, err);
}

dtp_status dtp_tensor_amin(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err)
{
    return reduce("min", x, n, axes, keep, out, err);
}

dtp_status dtp_tensor_prod(dtp_tensor x, int32_t n, const int32_t *axes, bool keep, dtp_tensor *out,
                           dtp_err *err)
{
    return reduce("prod", x, n, axes, keep, out, err);
}
