/* Labels that a loss ignores, such as -100, by the tensors whose elements become labels. */
#ifndef DTP_CORE_TRANSFORM_LABEL_USES_H
#define DTP_CORE_TRANSFORM_LABEL_USES_H

#include "core/graph/graph.h"

typedef struct dtp_label_use {
    const int64_t *ignored; /* the label outside the bound that every reader takes; NULL: none */
    bool bounded;           /* a reader takes none */
} dtp_label_use;

/* Of every tensor of the graph; `out` is zeroed. Ops that move elements (DTP_OP_MOVES) carry the
 * label from the loss to their operands, other ops do not. Where losses ignore different labels, or
 * the elements are ids as well, no label is ignored. Borrowed from g. */
void dtp_label_uses_find(const dtp_graph *g, dtp_label_use *out);

#endif
