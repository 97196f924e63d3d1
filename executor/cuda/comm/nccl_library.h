/* NCCL, opened when the first transport over it is made: a machine without it runs all the rest. */
#ifndef DTP_EXECUTOR_CUDA_COMM_NCCL_LIBRARY_H
#define DTP_EXECUTOR_CUDA_COMM_NCCL_LIBRARY_H

#include <nccl.h>

#include "core/base/status.h"

#define DTP_NCCL_FUNCTIONS(X)                                                                      \
    X(AllGather)                                                                                   \
    X(AllReduce)                                                                                   \
    X(CommAbort)                                                                                   \
    X(CommDestroy)                                                                                 \
    X(CommFinalize)                                                                                \
    X(CommGetAsyncError)                                                                           \
    X(CommInitRankConfig)                                                                          \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(GetUniqueId)                                                                                 \
    X(GroupEnd)                                                                                    \
    X(GroupStart)                                                                                  \
    X(MemAlloc)                                                                                    \
    X(MemFree)                                                                                     \
    X(Recv)                                                                                        \
    X(ReduceScatter)                                                                               \
    X(Send)

/* Its functions, without their prefix. */
typedef struct dtp_nccl {
#define DTP_NCCL_POINTER(name) __typeof__ (&nccl##name)(name);
    DTP_NCCL_FUNCTIONS(DTP_NCCL_POINTER)
#undef DTP_NCCL_POINTER
} dtp_nccl;

/* DTP_UNSUPPORTED: it is not there, or lacks a function. It stays open. */
dtp_status dtp_nccl_open(dtp_nccl *out, dtp_err *err) DTP_MUST_CHECK;

#endif
