/* Telling whether two graphs are the same. */
#ifndef DTP_CORE_GRAPH_GRAPH_HASH_H
#define DTP_CORE_GRAPH_GRAPH_HASH_H

#include "core/graph/graph.h"

/* 64-bit hash of a graph's canonical content: dims, tensors, nodes, attributes. */
uint64_t dtp_graph_hash(const dtp_graph *g);

#endif
