/* A stop token: ends a long search early, by a deadline or by an interrupt. */
#include "core/base/stop.h"

#include <math.h>
#include <stddef.h>

#include "core/base/clock.h"

const char *const dtp_stop_reasons[] = {"none", "time limit", "interrupt", NULL};

dtp_stop_reason dtp_stop_why(const dtp_stop *stop)
{
    if (stop != NULL && stop->interrupted != NULL && stop->interrupted(stop->user)) {
        return DTP_STOP_INTERRUPT;
    }
    return stop != NULL && stop->end_s > 0.0 && dtp_now_s() >= stop->end_s ? DTP_STOP_TIME_LIMIT
                                                                           : DTP_STOP_NONE;
}

bool dtp_stopped(const dtp_stop *stop)
{
    return dtp_stop_why(stop) != DTP_STOP_NONE;
}

double dtp_stop_left_s(const dtp_stop *stop)
{
    return stop != NULL && stop->end_s > 0.0 ? fmax(0.001, stop->end_s - dtp_now_s())
                                             : (double)INFINITY;
}

dtp_status dtp_stop_check(const dtp_stop *stop, dtp_err *err)
{
    const dtp_stop_reason why = dtp_stop_why(stop);
    return why == DTP_STOP_NONE
               ? DTP_OK
               : DTP_FAIL(err, DTP_STOPPED, "ended early (%s)", dtp_stop_reasons[why]);
}
