/* A tensor given on the command line. */
#ifndef DTP_TOOLS_SHAPE_H
#define DTP_TOOLS_SHAPE_H

#include "core/layout/dims.h"

/* Reads "8,6" (dims "0", "1", ...) or "batch=8,d_ff=6" into the rank and dims of `type`, whose
 * dtype is set; names go into `dims`. DTP_INVALID naming the text, DTP_RANGE on sizes. */
dtp_status tool_shape_parse(const char *text, dtp_dims *dims, dtp_ttype *type,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
