/* Seconds of the monotonic clock, for measurements. */
#ifndef DTP_CORE_BASE_CLOCK_H
#define DTP_CORE_BASE_CLOCK_H

#include <time.h>

static inline double dtp_now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
