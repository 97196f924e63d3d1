/* The CUDA backend of a library that was built without the CUDA toolkit, and of dtplan. */
#include "executor/cuda/cuda.h"

dtp_status dtp_backend_cuda_create(int32_t device, dtp_backend **out, dtp_err *err)
{
    (void)device;
    (void)out;
    return DTP_FAIL(
        err, DTP_UNSUPPORTED,
        "backend cuda: this dtp was built without the CUDA toolkit (nvcc, cuBLASLt and NCCL; "
        "cmake -DDTP_CUDA=ON says what is missing)");
}
