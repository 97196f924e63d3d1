/* Convolutions by oneDNN 2, where the library is there and has a kernel for the processor. It
 * multiplies channels in blocks that are neighbours in memory: pieces of the batch and of channels
 * are brought into its order in the workspace, and the result back. */
#ifndef DTP_EXECUTOR_CPU_CONV_LIBRARY_H
#define DTP_EXECUTOR_CPU_CONV_LIBRARY_H

#include "spmd/target/conv_plan.h"

typedef struct dtp_conv_library dtp_conv_library;

/* *out is NULL where the library is not there, is not faster than products, or needs more workspace
 * than there is; else it lives as long as the arena. */
dtp_status dtp_conv_library_bind(const dtp_kernel_args *args, const dtp_conv_plan *plan,
                                 dtp_arena *arena, dtp_conv_library **out,
                                 dtp_err *err) DTP_MUST_CHECK;
void dtp_conv_library_run(const dtp_conv_library *library, const dtp_kernel_args *args);

#endif
