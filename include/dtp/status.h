/* Status codes, error messages, logging, and what all public headers share.
 *
 * Every fallible function returns a dtp_status and takes `dtp_err *err` last (NULL is allowed).
 * The first failure fills the error; callers prefix context on the way up, so that the final text
 * reads from the outside in:
 *   models/mlp.json: nodes[12] 'ffn.up': einsum: dim 'd' is 768 in 'x' but 512 in 'w1'
 *
 * The headers of dtp/ include each other and the C standard library only; they are C17 and C++17.
 * Types are opaque, or of a fixed size that is asserted, or option structs: these begin with their
 * size, are made by their _init function, and what a newer library adds to them is 0 in an older
 * program. In option structs 0 and NULL stand for defaults.
 */
#ifndef DTP_STATUS_H
#define DTP_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DTP_MUST_CHECK __attribute__((warn_unused_result))
#define DTP_PRINTF(fmt_arg, first) __attribute__((format(printf, fmt_arg, first)))
#define DTP_API _Pragma("GCC visibility push(default)")
#define DTP_API_POP _Pragma("GCC visibility pop")
#else
#define DTP_MUST_CHECK
#define DTP_PRINTF(fmt_arg, first)
#define DTP_API
#define DTP_API_POP
#endif

/* What the library exports stands between these two; nothing else leaves it. */
#ifdef __cplusplus
#define DTP_API_BEGIN                                                                              \
    DTP_API extern "C"                                                                             \
    {
#define DTP_API_END                                                                                \
    }                                                                                              \
    DTP_API_POP
#define DTP_ASSERT(condition, text) static_assert(condition, text)
#else
#define DTP_API_BEGIN DTP_API
#define DTP_API_END DTP_API_POP
#define DTP_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* The size of a public type, with pointers of 8 bytes: it is part of the interface. */
#define DTP_ASSERT_SIZE(type, bytes)                                                               \
    DTP_ASSERT(sizeof(void *) != 8 || sizeof(type) == (bytes), "size of " #type)

DTP_API_BEGIN

#define DTP_STATUS_LIST(X)                                                                         \
    X(OK, "ok")                                                                                    \
    X(INVALID, "invalid input")                                                                    \
    X(RANGE, "value out of range")                                                                 \
    X(UNSUPPORTED, "unsupported")                                                                  \
    X(NOT_FOUND, "not found")                                                                      \
    X(IO, "input/output error")                                                                    \
    X(NOMEM, "out of memory")                                                                      \
    X(COMM, "communication error")                                                                 \
    X(SOLVER, "solver error")                                                                      \
    X(INTERNAL, "internal error")                                                                  \
    X(OUTPUT, "output could not be written")                                                       \
    X(NOT_FINITE, "a value is not finite")                                                         \
    X(STOPPED, "ended early")

typedef enum dtp_status {
#define DTP_STATUS_ENUM(code, text) DTP_##code,
    DTP_STATUS_LIST(DTP_STATUS_ENUM)
#undef DTP_STATUS_ENUM
} dtp_status;

enum { DTP_ERR_MSG_BYTES = 1024 };

typedef struct dtp_err {
    dtp_status code;
    const char *file; /* source place of the first failure, static storage */
    int line;
    bool told; /* not the cause: another rank's failure passed on; or it was printed already */
    char msg[DTP_ERR_MSG_BYTES];
} dtp_err;
DTP_ASSERT_SIZE(dtp_err, 1048);

/* Static text of a code. */
const char *dtp_status_text(dtp_status code);

/* True for codes that mean the user's input is at fault (the tools exit with 2 for these). */
bool dtp_status_is_input(dtp_status code);

/* Records a failure; returns `code`. Overwrites what `err` held. The text becomes one line without
 * control characters, whatever the names in it hold. */
dtp_status dtp_err_set(dtp_err *err, dtp_status code, const char *file, int line, const char *fmt,
                       ...) DTP_PRINTF(5, 6);

/* Puts "<text>: " before the message of a failure on its way up; no effect when err is NULL. */
void dtp_err_prefix(dtp_err *err, const char *fmt, ...) DTP_PRINTF(2, 3);

/* Makes an error empty (code DTP_OK). */
void dtp_err_clear(dtp_err *err);

/* `return DTP_FAIL(err, DTP_INVALID, "...", ...)`. The value is `code`, visible as such to compiler
 * and analyzer, which therefore know that a failing function does not return DTP_OK. */
#define DTP_FAIL(err, code, ...)                                                                   \
    ((void)dtp_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__), (dtp_status)(code))

/* Returns from the calling function when `expr` fails; the only control macro of the project. */
#define DTP_TRY(expr)                                                                              \
    do {                                                                                           \
        dtp_status dtp_try_status_ = (expr);                                                       \
        if (dtp_try_status_ != DTP_OK) {                                                           \
            return dtp_try_status_;                                                                \
        }                                                                                          \
    } while (0)

typedef enum dtp_log_level {
    DTP_LOG_ERROR,
    DTP_LOG_WARN,
    DTP_LOG_INFO,
    DTP_LOG_DEBUG
} dtp_log_level;

/* What every long-running call gets instead of global state: where to log and how much, the seed.
 */
typedef struct dtp_ctx {
    dtp_log_level level; /* messages above this level are dropped */
    int32_t rank;        /* shown in log lines when >= 0 */
    uint64_t seed;       /* key of every random stream */
    /* Receives one finished line without its newline; NULL: stderr. */
    void (*log_sink)(void *user, dtp_log_level level, const char *line);
    void *log_user;
} dtp_ctx;
DTP_ASSERT_SIZE(dtp_ctx, 32);

/* Level warn, no rank, seed 0, sink stderr. */
dtp_ctx dtp_ctx_default(void);

/* One line "level module event key=value ..."; ctx NULL drops it. */
void dtp_log(const dtp_ctx *ctx, dtp_log_level level, const char *module, const char *event,
             const char *fmt, ...) DTP_PRINTF(5, 6);

DTP_API_END

#endif
