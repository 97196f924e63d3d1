/* The machine file of dtrun bench, and measuring PyTorch in place of this program. */
#ifndef DTP_TOOLS_DTRUN_BENCH_MACHINE_H
#define DTP_TOOLS_DTRUN_BENCH_MACHINE_H

#include "cost_models/machine/fit.h"
#include "tools/options.h"

/* Fits a machine and writes it to --output, else to standard output. The name, the host and the
 * date are added to `known`, and memory where it is 0. A machine of dtrun's kernels on the CPU is
 * kept for plans without --machine as well. */
dtp_status dtrun_bench_write(const tool_source *source, const dtp_samples *samples,
                             dtp_fit_options *known, dtp_err *err) DTP_MUST_CHECK;

/* --as torch: the same measurements by dtp_torch_bench.py in an interpreter that has torch, as many
 * processes as the mesh has ranks. DTP_INVALID when there is none or options do not go together,
 * DTP_IO when it fails. */
dtp_status dtrun_bench_torch(const tool_source *source, const dtp_mesh *mesh,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
