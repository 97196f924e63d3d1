/* What public functions ask of their pointers; statuses and errors are public (dtp/status.h). */
#include "core/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

const char *dtp_status_text(dtp_status code)
{
    static const char *const texts[] = {
#define DTP_STATUS_TEXT(code, text) text,
        DTP_STATUS_LIST(DTP_STATUS_TEXT)
#undef DTP_STATUS_TEXT
    };
    if ((size_t)code >= sizeof texts / sizeof texts[0]) {
        return "unknown status";
    }
    return texts[code];
}

bool dtp_status_is_input(dtp_status code)
{
    return code == DTP_INVALID || code == DTP_RANGE || code == DTP_UNSUPPORTED ||
           code == DTP_NOT_FOUND;
}

dtp_status dtp_err_set(dtp_err *err, dtp_status code, const char *file, int line, const char *fmt,
                       ...)
{
    if (err != NULL) {
        char text[DTP_ERR_MSG_BYTES];
        va_list ap;
        err->code = code;
        err->file = file;
        err->line = line;
        err->told = false;
        va_start(ap, fmt);
        (void)vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        (void)dtp_one_line(text, err->msg, sizeof err->msg);
    }
    return code;
}

dtp_status dtp_err_null(dtp_err *err, const char *file, int line, const char *function,
                        const char *names, int32_t n, const void *const *pointers)
{
    for (int32_t i = 0; i < n; i++) {
        if (pointers[i] == NULL) {
            return dtp_err_set(err, DTP_INVALID, file, line, "%s: '%.*s' is NULL", function,
                               (int)strcspn(names, ","), names);
        }
        names += strcspn(names, ",");
        names += strspn(names, ", ");
    }
    return DTP_OK;
}

static void prefix(dtp_err *err, const char *fmt, va_list ap)
{
    char text[DTP_ERR_MSG_BYTES], joined[2 * DTP_ERR_MSG_BYTES + 2];
    (void)vsnprintf(text, sizeof text - 2, fmt, ap);
    (void)snprintf(joined, sizeof joined, "%s: %s", text, err->msg);
    (void)dtp_one_line(joined, err->msg, sizeof err->msg);
}

void dtp_err_prefix(dtp_err *err, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        prefix(err, fmt, ap);
        va_end(ap);
    }
}

dtp_status dtp_err_prefixed(dtp_status s, dtp_err *err, const char *fmt, ...)
{
    if (s != DTP_OK && err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        prefix(err, fmt, ap);
        va_end(ap);
    }
    return s;
}

void dtp_err_clear(dtp_err *err)
{
    if (err != NULL) {
        memset(err, 0, sizeof *err);
    }
}

dtp_status dtp_options_read(const char *function, const void *from, size_t known, void *to,
                            dtp_err *err)
{
    size_t size = 0;
    memset(to, 0, known);
    if (from != NULL) {
        memcpy(&size, from, sizeof size);
        if (size < sizeof size || size > known) {
            return DTP_FAIL(err, DTP_INVALID, "%s: options of %zu bytes; %s", function, size,
                            size > known ? "they are of a newer library"
                                         : "they were not made by their _init function");
        }
        memcpy(to, from, size);
    }
    memcpy(to, &known, sizeof known);
    return DTP_OK;
}

/* ---- the log ---- */

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
