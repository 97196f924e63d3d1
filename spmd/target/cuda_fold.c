/* Folds of the CUDA backend (sums, gradients of parameters that many rows share) whose results
 * are too few to fill a device: every result is made of parts, kept in the workspace. */
#include "spmd/target/cuda_fold.h"

enum {
    BUSY = 1 << 17,  /* threads of a large device */
    MOST = 512,      /* parts */
    LEAST_PART = 128 /* elements of a part */
};

/* For so many results, each of so many elements. */
static int64_t bytes_for(int64_t results, int64_t elements)
{
    if (results == 0) {
        return 0;
    }
    const int64_t each = elements / results / LEAST_PART, busy = BUSY / results;
    int64_t parts = each < busy ? each : busy;
    parts = parts < MOST ? parts : MOST;
    return parts > 1 ? parts * results * DTP_CUDA_PART_BYTES : 0;
}

int64_t dtp_cuda_fold_workspace(const dtp_op_call *call)
{
    return bytes_for(dtp_ttype_elems(&call->out[0]), dtp_ttype_elems(&call->in[0]));
}

int64_t dtp_cuda_norm_grad_workspace(const dtp_op_call *call)
{
    return bytes_for(dtp_ttype_elems(&call->out[1]), dtp_ttype_elems(&call->in[0]));
}
