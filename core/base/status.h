/* What public functions ask of their pointers; statuses and errors are public (dtp/status.h). */
#ifndef DTP_CORE_BASE_STATUS_H
#define DTP_CORE_BASE_STATUS_H

#include "dtp/status.h"

/* DTP_INVALID "<function>: '<name>' is NULL" for the first of the n pointers that is NULL; `names`
 * are theirs, separated by ", ". See DTP_NOT_NULL. */
dtp_status dtp_err_null(dtp_err *err, const char *file, int line, const char *function,
                        const char *names, int32_t n, const void *const *pointers) DTP_MUST_CHECK;

/* Copies an option struct of a caller, which begins with its size, over the `known` bytes of *to:
 * what the caller does not know is 0. NULL: all is 0. DTP_INVALID naming the function when the size
 * is 0, because no _init function made it, or more than is known. */
dtp_status dtp_options_read(const char *function, const void *from, size_t known, void *to,
                            dtp_err *err) DTP_MUST_CHECK;

/* What public functions ask of their pointers, unless the header allows NULL:
 * `DTP_TRY(DTP_NOT_NULL(err, mesh, out));` */
#define DTP_NOT_NULL(err, ...)                                                                     \
    dtp_err_null((err), __FILE__, __LINE__, __func__, #__VA_ARGS__,                                \
                 (int32_t)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *)),           \
                 (const void *const[]){__VA_ARGS__})

#endif
