/* Status codes and error messages.
 *
 * Every fallible function returns a dtp_status and takes `dtp_err *err` last (NULL is allowed).
 * The first failure fills the error; callers prefix context on the way up, so that the final text
 * reads from the outside in:
 *   models/mlp.json: nodes[12] 'ffn.up': einsum: dim 'd' is 768 in 'x' but 512 in 'w1'
 */
#ifndef DTP_CORE_BASE_STATUS_H
#define DTP_CORE_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

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

#if defined(__GNUC__)
#define DTP_MUST_CHECK __attribute__((warn_unused_result))
#define DTP_PRINTF(fmt_arg, first) __attribute__((format(printf, fmt_arg, first)))
#else
#define DTP_MUST_CHECK
#define DTP_PRINTF(fmt_arg, first)
#endif

/* Static text of a code. */
const char *dtp_status_text(dtp_status code);

/* True for codes that mean the user's input is at fault (the tools exit with 2 for these). */
bool dtp_status_is_input(dtp_status code);

/* Records a failure; returns `code`. Overwrites what `err` held. The text becomes one line without
 * control characters (core/base/one_line.h), whatever the names in it hold. */
dtp_status dtp_err_set(dtp_err *err, dtp_status code, const char *file, int line, const char *fmt,
                       ...) DTP_PRINTF(5, 6);

/* DTP_INVALID "<function>: '<name>' is NULL" for the first of the n pointers that is NULL; `names`
 * are theirs, separated by ", ". See DTP_NOT_NULL. */
dtp_status dtp_err_null(dtp_err *err, const char *file, int line, const char *function,
                        const char *names, int32_t n, const void *const *pointers) DTP_MUST_CHECK;

/* DTP_NOMEM "<function>: out of memory" when one of the n pointers is NULL. See DTP_MEMORY. */
dtp_status dtp_err_memory(dtp_err *err, const char *file, int line, const char *function, int32_t n,
                          const void *const *pointers) DTP_MUST_CHECK;

/* Puts "<text>: " before the message of a failure on its way up; no effect when err is NULL. */
void dtp_err_prefix(dtp_err *err, const char *fmt, ...) DTP_PRINTF(2, 3);

/* The same when `s` is a failure; returns s: `DTP_TRY(dtp_err_prefixed(f(x, err), err, "x"));`. */
dtp_status dtp_err_prefixed(dtp_status s, dtp_err *err, const char *fmt, ...)
    DTP_PRINTF(3, 4) DTP_MUST_CHECK;

/* Makes an error empty (code DTP_OK). */
void dtp_err_clear(dtp_err *err);

/* `return DTP_FAIL(err, DTP_INVALID, "...", ...)`. The value is `code`, visible as such to compiler
 * and analyzer, which therefore know that a failing function does not return DTP_OK. */
#define DTP_FAIL(err, code, ...)                                                                   \
    ((void)dtp_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__), (dtp_status)(code))

/* `DTP_TRY(DTP_MEMORY(err, a, b));`: DTP_NOMEM naming the function when one of these is NULL. */
#define DTP_MEMORY(err, ...)                                                                       \
    dtp_err_memory((err), __FILE__, __LINE__, __func__,                                            \
                   (int32_t)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),         \
                   (const void *const[]){__VA_ARGS__})

/* What public functions ask of their pointers, unless the header allows NULL:
 * `DTP_TRY(DTP_NOT_NULL(err, mesh, out));` */
#define DTP_NOT_NULL(err, ...)                                                                     \
    dtp_err_null((err), __FILE__, __LINE__, __func__, #__VA_ARGS__,                                \
                 (int32_t)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),           \
                 (const void *const[]){__VA_ARGS__})

/* Returns from the calling function when `expr` fails; the only control macro of the project. */
#define DTP_TRY(expr)                                                                              \
    do {                                                                                           \
        dtp_status dtp_try_status_ = (expr);                                                       \
        if (dtp_try_status_ != DTP_OK) {                                                           \
            return dtp_try_status_;                                                                \
        }                                                                                          \
    } while (0)

#endif
