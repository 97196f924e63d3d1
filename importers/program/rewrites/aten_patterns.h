/* Patterns of a graph that one op of ours computes. */
#ifndef DTP_IMPORTERS_PROGRAM_REWRITES_ATEN_PATTERNS_H
#define DTP_IMPORTERS_PROGRAM_REWRITES_ATEN_PATTERNS_H

#include "core/base/strbuf.h"
#include "importers/aten/const_kinds.h"

/* Drops nodes that change nothing and finds what an op of ours does: rms_norm, rope, gelu, grouped
 * heads and causal masks. What is assumed is a line of the notes. */
dtp_status dtp_aten_patterns(dtp_aten *g, const dtp_const *consts, dtp_strbuf *notes,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
