/* The clock that durations and deadlines are read from, and that of people. */
#ifndef DTP_CORE_BASE_CLOCK_H
#define DTP_CORE_BASE_CLOCK_H

/* Seconds of CLOCK_MONOTONIC. */
double dtp_now_s(void);

enum { DTP_TIME_BYTES = 32 };
/* The time of day as RFC 3339 has it, in UTC: "2026-11-28T10:42:07.123Z". */
void dtp_time_print(char out[DTP_TIME_BYTES]);

#endif
