/* The CUDA backend of a library that was built without the CUDA toolkit, and of dtplan. */
#include "executor/cuda/cuda.h"

static dtp_status absent(dtp_err *err)
{
    return DTP_FAIL(
        err, DTP_UNSUPPORTED,
        "backend cuda: this dtp was built without the CUDA toolkit (nvcc, cuBLASLt and NCCL; "
        "cmake -DDTP_CUDA=ON says what is missing)");
}

dtp_status dtp_backend_cuda_create(int32_t local_rank, dtp_backend **out, dtp_err *err)
{
    (void)local_rank;
    (void)out;
    return absent(err);
}

dtp_status dtp_cuda_transport_create(dtp_comm *comm, dtp_backend *b, const char *name,
                                     dtp_transport *out, dtp_err *err)
{
    (void)comm;
    (void)b;
    (void)name;
    (void)out;
    return absent(err);
}
