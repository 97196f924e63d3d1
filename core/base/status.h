/* What public functions ask of their pointers; statuses and errors are public (dtp/status.h). */
#ifndef DTP_CORE_BASE_STATUS_H
#define DTP_CORE_BASE_STATUS_H

#include "dtp/status.h"

/* DTP_INVALID "<function>: '<name>' is NULL" for the first of the n pointers that is NULL; `names`
 * are theirs, separated by ", ". See DTP_NOT_NULL. */
dtp_status dtp_err_null(dtp_err *err, const char *file, int line, const char *function,
                        const char *names, int32_t n, const void *const *pointers) DTP_MUST_CHECK;

/* DTP_NOMEM "<function>: out of memory" when one of the n pointers is NULL. See DTP_MEMORY. Inline:
 * compiler and analyzer know afterwards which pointers are not. */
static inline dtp_status dtp_err_memory(dtp_err *err, const char *file, int line,
                                        const char *function, int32_t n,
                                        const void *const *pointers)
{
    for (int32_t i = 0; i < n; i++) {
        if (pointers[i] == NULL) {
            (void)dtp_err_set(err, DTP_NOMEM, file, line, "%s: out of memory", function);
            return DTP_NOMEM;
        }
    }
    return DTP_OK;
}

/* dtp_err_prefix when `s` is a failure; returns s:
 * `DTP_TRY(dtp_err_prefixed(f(x, err), err, "x"));`. */
dtp_status dtp_err_prefixed(dtp_status s, dtp_err *err, const char *fmt, ...)
    DTP_PRINTF(3, 4) DTP_MUST_CHECK;

/* Copies an option struct of a caller, which begins with its size, over the `known` bytes of *to:
 * what the caller does not know is 0. NULL: all is 0. DTP_INVALID naming the function when the size
 * is 0, because no _init function made it, or more than is known. */
dtp_status dtp_options_read(const char *function, const void *from, size_t known, void *to,
                            dtp_err *err) DTP_MUST_CHECK;

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

#endif
