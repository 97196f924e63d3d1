/* Readable forms of the stages: graph, strategies, plan, memory, communication. */
#ifndef DTP_TOOLS_DTPLAN_PRINT_H
#define DTP_TOOLS_DTPLAN_PRINT_H

#include "core/plan/sharding.h"
#include "core/base/strbuf.h"
#include "cost_models/job.h"

/* "input", "param", "state", "value". */
const char *tool_tensor_kind(dtp_tensor_kind kind);
/* Tensors and nodes, one line each. */
void tool_print_graph(const dtp_graph *g, dtp_strbuf *out);
/* Per node, the rows it may use on one mesh dim. */
void tool_print_strategies(const dtp_graph *g, dtp_strbuf *out);
/* Layout of every persistent tensor, input and output. */
void tool_print_layouts(const dtp_graph *g, const dtp_sharding *s, dtp_strbuf *out);
/* Buffers by offset with their live ranges, and who makes up the peak. */
void tool_print_memory(const dtp_program *p, dtp_strbuf *out);

/* ---- communication: --comm-report, --counters, --trace ---- */

/* Totals, the tree of modules and every collective, of a plan with stages of every program, and
 * what is sent; dtp.comm_report/1 with `json`. */
dtp_status tool_print_comm(const dtp_job *job, bool json, dtp_strbuf *out,
                           dtp_err *err) DTP_MUST_CHECK;
/* "stage 1, chunk 0": the heading of a program of a stage. */
void tool_print_chunk(const dtp_pipeline *p, int32_t chunk, dtp_strbuf *out);

/* Counters with the names of Mesh TensorFlow; dtp.counters/1 with `json`. */
dtp_status tool_print_counters(const dtp_program *p, bool json, dtp_strbuf *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* One line per redistribution of the decision, before passes merge any: phase, node, tensor, bytes
 * that collectives work on, and the layouts on the way: "S(0)[0]S(0)[1]→S(0)R→RR". */
dtp_status tool_print_trace(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                            dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
