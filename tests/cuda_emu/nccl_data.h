/* What collectives do to the buffers of all ranks, which may be in place. Sums run around a ring:
 * each part begins at another rank, and every partial sum is rounded to the type. */
#ifndef CUDA_EMU_NCCL_DATA_H
#define CUDA_EMU_NCCL_DATA_H

#include <cstddef>
#include <vector>

#include "nccl.h"

namespace emu
{

size_t nccl_bytes(ncclDataType_t type); /* 0: not a type of the emulated device */
void nccl_all_reduce(const std::vector<const void *> &from, const std::vector<void *> &to,
                     size_t count, ncclDataType_t type, ncclRedOp_t op);
void nccl_reduce_scatter(const std::vector<const void *> &from, const std::vector<void *> &to,
                         size_t count, ncclDataType_t type, ncclRedOp_t op);
void nccl_all_gather(const std::vector<const void *> &from, const std::vector<void *> &to,
                     size_t bytes);
void nccl_broadcast(const std::vector<const void *> &from, const std::vector<void *> &to,
                    size_t bytes, int root);

} // namespace emu

#endif
