/* The clock that durations and deadlines are read from. */
#ifndef DTP_CORE_BASE_CLOCK_H
#define DTP_CORE_BASE_CLOCK_H

/* Seconds of CLOCK_MONOTONIC. */
double dtp_now_s(void);

#endif
