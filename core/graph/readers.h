/* The nodes that read each tensor of a graph. */
#ifndef DTP_CORE_GRAPH_READERS_H
#define DTP_CORE_GRAPH_READERS_H

#include "core/graph/graph.h"

/* Readers of tensor t: node[first[t]] .. node[first[t + 1] - 1], in order, each once. */
typedef struct dtp_readers {
    int32_t *first; /* by tensor, and one more */
    dtp_node_id *node;
} dtp_readers;

/* Storage from `arena`. */
dtp_status dtp_readers_find(const dtp_graph *g, dtp_arena *arena, dtp_readers *out,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
