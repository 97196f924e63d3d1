/* The clock that durations and deadlines are read from, and that of people. */
#include "core/base/clock.h"

#include <stdio.h>
#include <time.h>

double dtp_now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void dtp_time_print(char out[DTP_TIME_BYTES])
{
    struct timespec t;
    struct tm day;
    char date[24] = "";
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if (gmtime_r(&t.tv_sec, &day) != NULL) {
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &day);
    }
    (void)snprintf(out, DTP_TIME_BYTES, "%s.%03dZ", date, (int)(t.tv_nsec / 1000000));
}
