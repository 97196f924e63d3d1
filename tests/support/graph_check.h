/* Checks a finished graph from its data alone, apart from the code that built it: ids in range,
 * topological order, distinct names, each op's inference reproduces its output types, updates
 * type-correct, loss scalar. */
#ifndef DTP_TESTS_SUPPORT_GRAPH_CHECK_H
#define DTP_TESTS_SUPPORT_GRAPH_CHECK_H

#include "core/graph/graph.h"

/* DTP_INTERNAL naming the node or tensor when something is wrong. */
dtp_status graph_check(const dtp_graph *g, dtp_err *err) DTP_MUST_CHECK;

#endif
