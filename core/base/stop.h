/* A stop token: ends a long search early, by a deadline or by an interrupt. Whoever starts the
 * search owns the token; everything that takes long polls it. NULL is a token that never fires.
 * Once it has fired it stays so.
 *
 * A search that has a result returns what it has. What cannot be used unless it is complete, such
 * as a problem that is being built, fails with DTP_STOPPED. */
#ifndef DTP_CORE_BASE_STOP_H
#define DTP_CORE_BASE_STOP_H

#include "core/base/status.h"
#include "dtp/plan.h"

typedef struct dtp_stop {
    double end_s;                    /* deadline, of dtp_now_s (core/base/clock.h); 0 = none */
    bool (*interrupted)(void *user); /* fires when true; called from several threads; NULL = none */
    void *user;
} dtp_stop;

/* "none", "time limit", "interrupt". */
extern const char *const dtp_stop_reasons[];

dtp_stop_reason dtp_stop_why(const dtp_stop *stop);
bool dtp_stopped(const dtp_stop *stop);
/* Seconds to the deadline, at least 0.001; INFINITY without one. */
double dtp_stop_left_s(const dtp_stop *stop);
/* DTP_STOPPED, naming the reason, once it has fired. */
dtp_status dtp_stop_check(const dtp_stop *stop, dtp_err *err) DTP_MUST_CHECK;

#endif
