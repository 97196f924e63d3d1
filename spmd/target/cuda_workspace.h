/* Numbers that the CUDA kernels and the target agree on. Plain C and C++. */
#ifndef DTP_SPMD_TARGET_CUDA_WORKSPACE_H
#define DTP_SPMD_TARGET_CUDA_WORKSPACE_H

/* Sums by id (executor/cuda/kernels/scatter.cu): the sorted list twice, 8 bytes per id, then two
 * partial sums for every chunk of the list and element of the rest. */
enum { DTP_CUDA_SCATTER_CHUNK = 32 };

/* Updates of a launch: the parameters of a kernel have at most 4096 bytes. */
enum { DTP_CUDA_UPDATES = 30 };

#endif
