#include "dtp/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/base/one_line.h"

dtp_ctx dtp_ctx_default(void)
{
    return (dtp_ctx){.level = DTP_LOG_WARN, .rank = -1};
}

void dtp_log(const dtp_ctx *ctx, dtp_log_level level, const char *module, const char *event,
             const char *fmt, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (ctx == NULL || level > ctx->level) {
        return;
    }
    char text[1024], line[1280], shown[1280], rank[32] = "";
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (ctx->rank >= 0) {
        (void)snprintf(rank, sizeof rank, " rank=%d", ctx->rank);
    }
    (void)snprintf(line, sizeof line, "%s %s %s%s %s", names[level], module, event, rank, text);
    (void)dtp_one_line(line, shown, sizeof shown);
    if (ctx->log_sink != NULL) {
        ctx->log_sink(ctx->log_user, level, shown);
    } else {
        (void)fprintf(stderr, "%s\n", shown);
    }
}
