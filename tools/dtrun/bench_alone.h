/* dtrun bench --op and --collective: what one op or collective reaches, no machine file. */
#ifndef DTP_TOOLS_DTRUN_BENCH_ALONE_H
#define DTP_TOOLS_DTRUN_BENCH_ALONE_H

#include "executor/bench/bench.h"

typedef struct dtrun_bench_alone {
    const char *op, *collective; /* --op, --collective: one of them or neither */
    const char *sizes;           /* --sizes A..B; NULL: as in a machine file */
    bool json;
    bool other_outputs; /* --output or --name is given */
    dtp_bench_scale scale;
} dtrun_bench_alone;

static inline bool dtrun_bench_is_alone(const dtrun_bench_alone *a)
{
    return a->op != NULL || a->collective != NULL;
}

/* DTP_INVALID for a name that is not known, sizes that are no range, or options that only machine
 * files have. */
dtp_status dtrun_bench_alone_check(const dtrun_bench_alone *a, dtp_err *err) DTP_MUST_CHECK;
/* What of it the bench is told; borrows a. */
dtp_status dtrun_bench_alone_options(dtrun_bench_alone *a, bool device, dtp_bench_options *out,
                                     dtp_err *err) DTP_MUST_CHECK;
/* Prints the report. */
dtp_status dtrun_bench_alone_print(const dtrun_bench_alone *a, const char *backend,
                                   const dtp_samples *samples, dtp_err *err) DTP_MUST_CHECK;

#endif
