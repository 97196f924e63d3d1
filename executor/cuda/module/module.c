/* What the module dtp_cuda.so exports. */
#include "executor/cuda/cuda.h"

const dtp_device dtp_device_module = {.abi = DTP_DEVICE_ABI,
                                      .layout = DTP_DEVICE_LAYOUT,
                                      .name = "cuda",
                                      .create = dtp_backend_cuda_create,
                                      .transport = dtp_cuda_transport_create};
