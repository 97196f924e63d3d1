/* Parameters by globs over their names (core/base/glob.h). */
#ifndef DTP_CORE_GRAPH_PARAM_GLOBS_H
#define DTP_CORE_GRAPH_PARAM_GLOBS_H

#include "core/graph/graph.h"

/* Sets matched[t] of every parameter t that the glob matches; the others stay as they are.
 * DTP_INVALID when it is no glob, or matches none: "'wq' matches no parameter; the nearest names
 * are 'layers.0.wq'". */
dtp_status dtp_params_match(const dtp_graph *g, const char *glob, bool *matched,
                            dtp_err *err) DTP_MUST_CHECK;

/* Freezes the parameters that any of the globs matches, and notes the globs in the graph. To be
 * called before gradients are appended. Fails as dtp_params_match does. */
dtp_status dtp_graph_freeze(dtp_graph *g, int32_t n, const char *const *globs,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
