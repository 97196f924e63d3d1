/* Readable and JSON forms of what a program communicates: --comm-report, --counters. */
#ifndef DTP_TOOLS_DTPLAN_PRINT_COMM_H
#define DTP_TOOLS_DTPLAN_PRINT_COMM_H

#include "core/plan/sharding.h"
#include "core/base/strbuf.h"
#include "spmd/program/program.h"

/* Totals, the tree of modules and every collective; dtp.comm_report/1 with `json`. */
dtp_status tool_print_comm(const dtp_program *p, bool json, dtp_strbuf *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* Counters with the names of Mesh TensorFlow; dtp.counters/1 with `json`. */
dtp_status tool_print_counters(const dtp_program *p, bool json, dtp_strbuf *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* One line per redistribution of the decision, before passes merge any: phase, node, tensor, bytes
 * that collectives work on, and the layouts on the way: "S(0)[0]S(0)[1]→S(0)R→RR". */
dtp_status tool_print_trace(const dtp_graph *g, const dtp_sharding *s, const dtp_program *p,
                            dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
