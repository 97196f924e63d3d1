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
    dtp_status s = dtp_tensor_describe(t, out, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "%s", what);
    }
    return s;
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

dtp_status dtp_ops__along(const dtp_axes_call *call, dtp_tensor x, dtp_tensor *outs, dtp_err *err)
{
    dtp_tensor_desc d;
    dtp_letters all = {0}, chosen = {0};
    dtp_arg args[1 + DTP_AXES_CALL_ARGS];
    assert(call->n_args <= DTP_AXES_CALL_ARGS);
    DTP_TRY(dtp_ops__describe(call->op, x, &d, err));
    if (call->n_axes > 0 && call->axes == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: 'axes' is NULL", call->op);
    }
    if (call->n_axes > d.rank) {
        return DTP_FAIL(err, DTP_INVALID, "%s: %d axes of a tensor of rank %d", call->op,
                        call->n_axes, d.rank);
    }
    dtp_letters_run(&all, 0, d.rank);
    dtp_letters_run(&chosen, 0, call->n_axes == 0 ? d.rank : 0);
    for (int32_t i = 0; i < call->n_axes; i++) {
        int32_t axis;
        DTP_TRY(dtp_ops__axis(call->op, call->axes[i], d.rank, &axis, err));
        dtp_letters_letter(&chosen, axis);
    }
    args[0] = (dtp_arg){.key = call->key, .kind = DTP_ARG_DIMS, .text = chosen.text};
    for (int32_t i = 0; i < call->n_args; i++) {
        args[1 + i] = call->args[i];
    }
    const dtp_call canonical = {.op = call->op,
                                .dims = all.text,
                                .n_in = 1,
                                .in = &x,
                                .n_args = 1 + call->n_args,
                                .args = args};
    return dtp_canonical__call(&canonical, call->op, outs, err);
}

dtp_status dtp_ops__call(const dtp_call *call, const char *function, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor outs[DTP_MAX_OP_OUT] = {{0}};
    DTP_TRY(dtp_canonical__call(call, function, out != NULL ? outs : NULL, err));
    const int32_t n_out = dtp_op_find(call->op)->n_out;
    for (int32_t i = 1; i < n_out; i++) {
        dtp_tensor_destroy(outs[i]);
    }
    *out = outs[0];
    return DTP_OK;
}

dtp_status dtp_ops__elementwise(const char *op, int32_t n, const dtp_tensor *in, int32_t n_args,
                                const dtp_arg *args, dtp_tensor *out, dtp_err *err)
{
    const dtp_call call = {.op = op, .n_in = n, .in = in, .n_args = n_args, .args = args};
    return dtp_tensor_call(&call, out, err);
}
