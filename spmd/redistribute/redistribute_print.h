/* Readable forms of redistributions. */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_PRINT_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_PRINT_H

#include "core/base/strbuf.h"
#include "spmd/redistribute/redistribute.h"

/* Appends "S(0)[1]S(0)[0]RP(sum)", one entry per mesh dim; the number in brackets is the depth
 * among the splits of a tensor dim, written when there are several. */
void dtp_layout_trace(const dtp_layout *layout, dtp_strbuf *out);
/* Appends the layouts on the way, "S(0)[0]S(0)[1]→S(0)R→RR" (the arrow is UTF-8). */
void dtp_steps_trace(const dtp_layout *from, const dtp_steps *steps, dtp_strbuf *out);
/* "all_reduce", "slice", ... */
const char *dtp_step_name(dtp_step_kind kind);

#endif
