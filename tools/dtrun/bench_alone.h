/* dtrun bench --op and --collective: what one op or collective reaches, no machine file. */
#ifndef DTP_TOOLS_DTRUN_BENCH_ALONE_H
#define DTP_TOOLS_DTRUN_BENCH_ALONE_H

#include "executor/bench/bench.h"
#include "tools/options.h"

static inline bool dtrun_bench_is_alone(const tool_source *a)
{
    return a->op != NULL || a->collective != NULL;
}

/* DTP_INVALID for a name that is not known, sizes that are no range, or options that only machine
 * files have. */
dtp_status dtrun_bench_alone_check(const tool_source *a, dtp_err *err) DTP_MUST_CHECK;
/* Options of the bench from it; borrows a and the scale, which it fills. */
dtp_status dtrun_bench_alone_options(const tool_source *a, bool device, dtp_bench_scale *scale,
                                     dtp_bench_options *out, dtp_err *err) DTP_MUST_CHECK;
/* Prints the report. */
dtp_status dtrun_bench_alone_print(const tool_source *a, const char *backend,
                                   const dtp_samples *samples, dtp_err *err) DTP_MUST_CHECK;

#endif
