/* Readable forms of the stages: graph, strategies, plan, memory. */
#ifndef DTP_TOOLS_DTPLAN_PRINT_H
#define DTP_TOOLS_DTPLAN_PRINT_H

#include "core/plan/plan.h"
#include "core/base/strbuf.h"
#include "spmd/program/program.h"

/* "input", "param", "state", "value". */
const char *tool_tensor_kind(dtp_tensor_kind kind);
/* Tensors and nodes, one line each. */
void tool_print_graph(const dtp_graph *g, dtp_strbuf *out);
/* Per node, the rows it may use on one mesh dim. */
void tool_print_strategies(const dtp_graph *g, dtp_strbuf *out);
/* Decision, prediction, certificate, baselines. */
void tool_print_plan(const dtp_plan *plan, const dtp_graph *g, dtp_strbuf *out);
/* Layout of every persistent tensor, input and output. */
void tool_print_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_strbuf *out);
/* Buffers by offset with their live ranges, and who makes up the peak. */
void tool_print_memory(const dtp_program *p, dtp_strbuf *out);

#endif
