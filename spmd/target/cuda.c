/* The target of the CUDA backend. */
#include "spmd/target/target.h"

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

static const dtp_target_op cuda_ops[] = {{.op = NULL}};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .fuse = DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM,
                                    .asynchronous = true};
