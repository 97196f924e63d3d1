/* What the tensors of a graph are there for. */
#ifndef DTP_CORE_GRAPH_USES_H
#define DTP_CORE_GRAPH_USES_H

#include "core/graph/graph.h"

/* Readers of tensor t: node[first[t]] .. node[first[t + 1] - 1], in order, each once. */
typedef struct dtp_readers {
    int32_t *first; /* by tensor, and one more */
    dtp_node_id *node;
} dtp_readers;

/* Storage from `arena`. */
dtp_status dtp_readers_find(const dtp_graph *g, dtp_arena *arena, dtp_readers *out,
                            dtp_err *err) DTP_MUST_CHECK;

/* By tensor. */
typedef struct dtp_uses {
    bool *survives; /* the step: it is an output or the loss */
    bool *replaces; /* another tensor at the end of the step */
    bool *needed;   /* one of these, or some node reads it */
} dtp_uses;

/* Storage from `arena`. */
dtp_status dtp_uses_find(const dtp_graph *g, dtp_arena *arena, dtp_uses *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
