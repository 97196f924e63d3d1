/* What the functions by name share: dims as letters, axes, calls with arguments. */
#ifndef DTP_DTENSOR_OPS_COMMON_H
#define DTP_DTENSOR_OPS_COMMON_H

#include "dtensor/canonical_call.h"

enum { DTP_LETTERS_BYTES = 192 };

/* Letters of a call under construction: "abc,cd->abd". */
typedef struct dtp_letters {
    char text[DTP_LETTERS_BYTES];
    int32_t n;
} dtp_letters;

/* Appends text, one letter, or the n letters 'a' + first, 'a' + first + 1, ... */
void dtp_letters_add(dtp_letters *l, const char *text);
void dtp_letters_letter(dtp_letters *l, int32_t letter);
void dtp_letters_run(dtp_letters *l, int32_t first, int32_t n);

/* Rank and sizes of a tensor; `what` names the function in messages. */
dtp_status dtp_ops__describe(const char *what, dtp_tensor t, dtp_tensor_desc *out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Axis from 0 (negative ones count from the end) among `rank`. */
dtp_status dtp_ops__axis(const char *what, int32_t axis, int32_t rank, int32_t *out,
                         dtp_err *err) DTP_MUST_CHECK;

/* A call of one operand that names some of its axes. */
typedef struct dtp_axes_call {
    const char *op, *key; /* `key` is the argument that the axes are: "over", "dim" */
    int32_t n_axes;       /* 0: all */
    const int32_t *axes;
    int32_t n_args; /* other arguments */
    const dtp_arg *args;
} dtp_axes_call;
enum { DTP_AXES_CALL_ARGS = 3 };

dtp_status dtp_ops__along(const dtp_axes_call *call, dtp_tensor x, dtp_tensor *outs,
                          dtp_err *err) DTP_MUST_CHECK;
/* Calls an op for a function, whose name messages show; of one output, what else it makes is
 * destroyed. */
dtp_status dtp_ops__call(const dtp_call *call, const char *function, dtp_tensor *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* An elementwise op of n operands. */
dtp_status dtp_ops__elementwise(const char *op, int32_t n, const dtp_tensor *in, int32_t n_args,
                                const dtp_arg *args, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;

#endif
