/* What every long-running call gets instead of global state: where to log and how much, the seed.
 */
#ifndef DTP_CORE_BASE_CTX_H
#define DTP_CORE_BASE_CTX_H

#include <stdint.h>

#include "core/base/status.h"

typedef enum dtp_log_level {
    DTP_LOG_ERROR,
    DTP_LOG_WARN,
    DTP_LOG_INFO,
    DTP_LOG_DEBUG
} dtp_log_level;

typedef struct dtp_ctx {
    dtp_log_level level; /* messages above this level are dropped */
    int32_t rank;        /* shown in log lines when >= 0 */
    uint64_t seed;       /* key of every random stream */
    /* Receives one finished line without its newline; NULL: stderr. */
    void (*log_sink)(void *user, dtp_log_level level, const char *line);
    void *log_user;
} dtp_ctx;

/* Level warn, no rank, seed 0, sink stderr. */
dtp_ctx dtp_ctx_default(void);

/* One line "level module event key=value ..."; ctx NULL drops it. */
void dtp_log(const dtp_ctx *ctx, dtp_log_level level, const char *module, const char *event,
             const char *fmt, ...) DTP_PRINTF(5, 6);

#endif
