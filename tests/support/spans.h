/* When the instructions of a step ran. */
#ifndef DTP_TESTS_SUPPORT_SPANS_H
#define DTP_TESTS_SUPPORT_SPANS_H

#include "executor/run/runner.h"

/* Of the last step, which took total_s: one instruction begins where the one before it ends, or
 * later, and none ends after the step. True without a profile. */
static inline bool spans_are_in_order(const dtp_runner *r, double total_s)
{
    const dtp_span *spans;
    const int64_t n = dtp_runner_spans(r, &spans);
    double now = 0;
    for (int64_t i = 0; spans != NULL && i < n; i++) {
        if (!(spans[i].begin_s >= now && spans[i].end_s >= spans[i].begin_s)) {
            return false;
        }
        now = spans[i].end_s;
    }
    return now <= 1.001 * total_s; /* times between events are of 32 bits */
}

#endif
