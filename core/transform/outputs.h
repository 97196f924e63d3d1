/* Which outputs of its model a run keeps to the end of a step. One that is kept takes memory until
 * then, and no fused instruction may leave it out: logits that are not kept need never be whole
 * (spmd/lower/passes/fuse_loss.c). */
#ifndef DTP_CORE_TRANSFORM_OUTPUTS_H
#define DTP_CORE_TRANSFORM_OUTPUTS_H

#include "core/graph/graph.h"

typedef struct dtp_outputs {
    bool chosen; /* false: all, and n is 0 */
    int32_t n;
    const char *const *names;
} dtp_outputs;

/* Reads "all", "none" or names separated by commas; the result has them in the model's order. Texts
 * of the result are from `arena`. DTP_INVALID for a name that is no output of g, or is given twice.
 */
dtp_status dtp_outputs_parse(const char *text, const dtp_graph *g, dtp_arena *arena,
                             dtp_outputs *out, dtp_err *err) DTP_MUST_CHECK;
/* What dtp_outputs_parse refuses of names. */
dtp_status dtp_outputs_check(const dtp_outputs *outputs, const dtp_graph *g,
                             dtp_err *err) DTP_MUST_CHECK;

/* A graph like g with these outputs alone, and without nodes that only others needed. It borrows
 * g->ops alone. DTP_INVALID when nothing is left to compute. */
dtp_status dtp_graph_with_outputs(const dtp_graph *g, const dtp_outputs *outputs, dtp_graph **out,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
