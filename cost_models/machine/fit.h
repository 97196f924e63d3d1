/* From measurements to a machine description (docs/cost-model.md, "Fitting"). */
#ifndef DTP_COST_MODELS_FIT_H
#define DTP_COST_MODELS_FIT_H

#include "cost_models/machine/machine.h"
#include "spmd/program/samples.h"

/* What samples do not say. Texts are copied; NULL or "" = not stated. */
typedef struct dtp_fit_options {
    const char *name; /* of the machine; NULL: "measured" */
    const char *date, *host, *tool, *blas, *device;
    const char *kind;     /* of the device; NULL: "cpu" */
    const char *runtime;  /* whose kernels were measured (dtp_target.runtime); NULL: dtrun's */
    double host_s;        /* in which its host issues a kernel; 0: not measured */
    int64_t memory_bytes; /* per device, at least 1 */
} dtp_fit_options;

/* Curves per op, copy and collective by monotone regression, the GEMM grids, and from them the few
 * numbers that price what was not measured: launch_s, mem_bw_Bps, flops per dtype, and latency and
 * bandwidth of one network level when there were several ranks. DTP_INVALID naming what is missing
 * when there is no launch sample, no sample of "copy" or no f32 GEMM, or when ranks > 1 and no
 * collective over them all. */
dtp_status dtp_machine_fit(const dtp_samples *samples, const dtp_fit_options *options,
                           dtp_machine **out, dtp_err *err) DTP_MUST_CHECK;

#endif
