/* Expressions over sizes, as torch.export writes them: "Mul(Integer(2), Symbol('s0', ..))". */
#ifndef DTP_IMPORTERS_ATEN_SYM_EXPR_H
#define DTP_IMPORTERS_ATEN_SYM_EXPR_H

#include "importers/aten/aten_graph.h"

/* The size that a symbol is, and its text in the words of a model; false: it is not known. */
typedef bool (*dtp_symbol_of)(void *user, const char *name, double *value, const char **text);

/* The number that an expression is, in f64, and the same expression over dims of a model
 * (core/graph/model/expr.h: dtp_expr_real). False: an op or a symbol that is not known, or no
 * expression; *text is NULL without memory. */
bool dtp_sym_expr(const char *sympy, dtp_arena *arena, dtp_symbol_of symbol, void *user,
                  double *value, const char **text);

#endif
