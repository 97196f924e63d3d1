/* Rules for the arguments of an op: what a row of a table says of each, so that none is dropped.
 *
 * A rule is a list of words. "NAME:KINDS": the row reads the argument, which is of one of the kinds
 * t tensor, l list of tensors, n number, i integer, b truth, s integers, x text; e: also a number
 * that is made of sizes, which is refused else. "NAME=V|W": it takes these values alone: numbers
 * (also of each element of a list), texts, `same` (the element type of the first operand), `whole`
 * (numbers without a fraction), `any` (the result does not depend on it, or has its sizes). What
 * an op's schema says when an argument is absent or None, the row must do. An argument that a rule
 * does not name is refused. Device, layout, memory format and the like are where a tensor lies, and
 * in no rule. */
#ifndef DTP_IMPORTERS_ATEN_ARG_RULES_H
#define DTP_IMPORTERS_ATEN_ARG_RULES_H

#include "importers/aten/aten_graph.h"

/* The first argument that the rule does not allow, as text from g's arena: "argument 'alpha' is 2,
 * and only 1 is supported"; "" when memory is out; NULL: it allows all. */
const char *dtp_arg_refused(const dtp_aten *g, const dtp_aten_node *node, const char *rule);

#endif
