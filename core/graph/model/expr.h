/* Integer expressions over names: + - * / ( ) with the usual precedence, where / must divide
 * exactly and every step is checked for overflow. "4*d_model", "length+1", "d_model/heads". */
#ifndef DTP_CORE_GRAPH_MODEL_EXPR_H
#define DTP_CORE_GRAPH_MODEL_EXPR_H

#include "core/base/status.h"

enum { DTP_EXPR_MAX_BYTES = 256, DTP_EXPR_MAX_DEPTH = 32, DTP_EXPR_MAX_NAME = 64 };

/* Value of a name; a failure ends the evaluation and is returned as it is. */
typedef dtp_status (*dtp_expr_lookup)(void *user, const char *name, int64_t *out, dtp_err *err);

/* DTP_INVALID on a syntax error, an inexact division or a text above DTP_EXPR_MAX_BYTES, DTP_RANGE
 * on overflow; the message quotes the expression. */
dtp_status dtp_expr_eval(const char *text, dtp_expr_lookup lookup, void *user, int64_t *out,
                         dtp_err *err) DTP_MUST_CHECK;

/* Real numbers, in f64: + - * / ^ ( ), numbers such as 0.5 or 1e-3, names, floor(x), max(x, y) and
 * min(x, y). "length^-0.5", "1/(2*batch)". DTP_INVALID also of a result that is not finite. */
dtp_status dtp_expr_real(const char *text, dtp_expr_lookup lookup, void *user, double *out,
                         dtp_err *err) DTP_MUST_CHECK;

/* True for a name that may stand in an expression: letters, digits and _, no digit first, at most
 * DTP_EXPR_MAX_NAME - 1 characters. */
bool dtp_expr_is_name(const char *text);

#endif
