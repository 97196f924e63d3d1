/* The CUDA backend: one device per rank. Kernels run on a compute queue of the device, in the order
 * in which they are put there; the host goes on meanwhile. Matrix products are cuBLASLt's. It is
 * the module dtp_cuda.so (module/module.c). */
#ifndef DTP_EXECUTOR_CUDA_CUDA_H
#define DTP_EXECUTOR_CUDA_CUDA_H

#include "executor/comm/device_module.h"

/* A backend for rank number local_rank of those on this machine: on that device of those that
 * this process sees, counted in circles. Switches:
 *   no_epilogues  epilogues of products are computed apart
 *   nccl_alone    the transport nccl takes groups of one rank, too */
dtp_status dtp_backend_cuda_create(const dtp_device_options *options, dtp_backend **out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* A transport between the device memories of the ranks of `comm`; `b` is the CUDA backend of this
 * rank. By name, the same on all ranks:
 *   device  copies and kernels between ranks that are threads of one process, on any cards
 *   nccl    NCCL between ranks that each have a card
 *   staged  the transport of `comm` on copies in host memory
 *   auto    or NULL: the first of them that can be
 * Collective over all ranks. Borrows comm and b; ended by (*out).ops->destroy, before them.
 * DTP_INVALID for another name and for one that cannot be. */
dtp_status dtp_cuda_transport_create(dtp_comm *comm, dtp_backend *b, const char *name,
                                     dtp_transport *out, dtp_err *err) DTP_MUST_CHECK;

#endif
