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

/* Calls the op of that name; lists of arguments end with a key NULL, NULL: none. Of the outputs all
 * but the first are destroyed. `dims` NULL: elementwise. */
dtp_status dtp_ops__call(const char *op, const char *dims, int32_t n_in, const dtp_tensor *in,
                         const dtp_arg *args, dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Calls an op of one operand whose first argument is some of its axes, n_axes 0: all; all outputs.
 */
dtp_status dtp_ops__along(const char *op, dtp_tensor x, int32_t n_axes, const int32_t *axes,
                          const dtp_arg *more, dtp_tensor *outs, dtp_err *err) DTP_MUST_CHECK;

#endif
