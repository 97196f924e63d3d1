/* The reference backend: f64 arithmetic, plain loops, one thread; the oracle of the tests. */
#ifndef DTP_EXECUTOR_REF_REF_H
#define DTP_EXECUTOR_REF_REF_H

#include "executor/device/backend.h"

dtp_status dtp_backend_ref_create(dtp_backend **out, dtp_err *err) DTP_MUST_CHECK;

#endif
