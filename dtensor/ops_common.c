/* What the functions by name share: dims as letters, axes, calls with arguments. */
#include "dtensor/ops_common.h"

#include <assert.h>
#include <string.h>

#include "core/graph/op.h"
#include "core/graph/ops/op_table.h"

void dtp_letters_add(dtp_letters *l, const char *text)
{
    for (; *text != '\0' && l->n + 1 < DTP_LETTERS_BYTES; text++) {
        l->text[l->n++] = *text;
    }
    l->text[l->n] = '\0';
}

void dtp_letters_letter(dtp_letters *l, int32_t letter)
{
    const char text[2] = {(char)('a' + letter), '\0'};
    dtp_letters_add(l, text);
}

void dtp_letters_run(dtp_letters *l, int32_t first, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        dtp_letters_letter(l, first + i);
    }
}

dtp_status dtp_ops__describe(const char *what, dtp_tensor t, dtp_tensor_desc *out, dtp_err *err)
{
    return dtp_err_prefixed(dtp_tensor_describe(t, out, err), err, "%s", what);
}

dtp_status dtp_ops__axis(const char *what, int32_t axis, int32_t rank, int32_t *out, dtp_err *err)
{
    *out = axis < 0 ? axis + rank : axis;
    if (*out < 0 || *out >= rank) {
        return DTP_FAIL(err, DTP_INVALID, "%s: there is no axis %d in a tensor of rank %d", what,
                        axis, rank);
    }
    return DTP_OK;
}

static int32_t count_args(const dtp_arg *args)
{
    int32_t n = 0;
    while (args != NULL && args[n].key != NULL) {
        n++;
    }
    return n;
}

dtp_status dtp_ops__call(const char *op, const char *dims, int32_t n_in, const dtp_tensor *in,
                         const dtp_arg *args, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor outs[DTP_MAX_OP_OUT] = {{0}};
    const dtp_call call = {
        .op = op, .dims = dims, .n_in = n_in, .in = in, .n_args = count_args(args), .args = args};
    DTP_TRY(dtp_canonical__call(&call, dims != NULL ? op : NULL, out != NULL ? outs : NULL, err));
    const int32_t n_out = dtp_op_find(op)->n_out;
    for (int32_t i = 1; i < n_out; i++) {
        dtp_tensor_destroy(outs[i]);
    }
    *out = outs[0];
    return DTP_OK;
}

dtp_status dtp_ops__along(const char *op, dtp_tensor x, int32_t n_axes, const int32_t *axes,
                          const dtp_arg *more, dtp_tensor *outs, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_letters all = {0}, chosen = {0};
    dtp_arg args[DTP_CALL_MAX_ATTRS];
    const int32_t n_more = count_args(more);
    assert(n_more < DTP_CALL_MAX_ATTRS);
    DTP_TRY(dtp_ops__describe(op, x, &d, err));
    if (n_axes > 0 && axes == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: 'axes' is NULL", op);
    }
    if (n_axes > d.rank) {
        return DTP_FAIL(err, DTP_INVALID, "%s: %d axes of a tensor of rank %d", op, n_axes, d.rank);
    }
    dtp_letters_run(&all, 0, d.rank);
    dtp_letters_run(&chosen, 0, n_axes == 0 ? d.rank : 0);
    for (int32_t i = 0; i < n_axes; i++) {
        int32_t axis;
        DTP_TRY(dtp_ops__axis(op, axes[i], d.rank, &axis, err));
        dtp_letters_letter(&chosen, axis);
    }
    args[0] =
        (dtp_arg){.key = dtp_op_find(op)->attrs[0].key, .kind = DTP_ARG_DIMS, .text = chosen.text};
    for (int32_t i = 0; i < n_more; i++) {
        args[1 + i] = more[i];
    }
    const dtp_call call = {
        .op = op, .dims = all.text, .n_in = 1, .in = &x, .n_args = 1 + n_more, .args = args};
    return dtp_canonical__call(&call, op, outs, err);
}
