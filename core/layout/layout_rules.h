/* Layout rules (Mesh TensorFlow): one map dim name -> mesh dims for the whole graph, from which
 * every tensor's layout follows. Text form "batch:x;d_ff:y" (a name may occur more than once:
 * "a:x;a:y" splits a over x, then y). */
#ifndef DTP_CORE_LAYOUT_LAYOUT_RULES_H
#define DTP_CORE_LAYOUT_LAYOUT_RULES_H

#include "core/layout/layout.h"

/* Plain data apart from `splits`, which the arena owns. */
typedef struct dtp_rule_splits {
    int8_t n;
    int8_t mesh_dims[DTP_MAX_MESH_DIMS]; /* outermost split first */
} dtp_rule_splits;

typedef struct dtp_layout_rules {
    int32_t n;               /* dims of the graph; names beyond are not split */
    dtp_rule_splits *splits; /* by dim id */
} dtp_layout_rules;

/* Rules that split nothing. */
dtp_status dtp_layout_rules_create(dtp_arena *arena, int32_t n_dims, dtp_layout_rules *out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID on unknown names, DTP_INVALID when a name takes one mesh dim twice. */
dtp_status dtp_layout_rules_parse(const char *text, const dtp_mesh *mesh, const dtp_dims *dims,
                                  dtp_arena *arena, dtp_layout_rules *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* "batch:x;d_ff:y" in id order, in the arena; NULL when out of memory. */
char *dtp_layout_rules_print(const dtp_layout_rules *rules, const dtp_mesh *mesh,
                             const dtp_dims *dims, dtp_arena *arena);

/* Layout of a tensor under the rules. DTP_INVALID when two of its dims take one mesh dim or, unless
 * `uneven` is allowed, a size is not divisible; the message names tensor, dims and sizes. */
dtp_status dtp_layout_rules_layout(const dtp_layout_rules *rules, const dtp_mesh *mesh,
                                   const dtp_dims *dims, const dtp_ttype *type, bool uneven,
                                   dtp_layout *out, dtp_err *err) DTP_MUST_CHECK;

#endif
