/* The log (dtp_ctx in dtp/status.h says where it goes). */
#ifndef DTP_CORE_BASE_CTX_H
#define DTP_CORE_BASE_CTX_H

#include "dtp/status.h"

/* One line "level module event key=value ..."; ctx NULL drops it. */
void dtp_log(const dtp_ctx *ctx, dtp_log_level level, const char *module, const char *event,
             const char *fmt, ...) DTP_PRINTF(5, 6);

#endif
