/* Backends by name. */
#ifndef DTP_EXECUTOR_RUN_BACKENDS_H
#define DTP_EXECUTOR_RUN_BACKENDS_H

#include "executor/device/backend.h"

/* "cpu" or "ref"; `threads` counts for the first alone. */
dtp_status dtp_backend_create(const char *name, int32_t threads, dtp_backend **out,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
