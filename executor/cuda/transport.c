/* The transport of a job of one rank: collectives are copies on the compute queue. */
#include "executor/comm/communicator_internal.h"
#include "executor/cuda/cuda_internal.h"

static dtp_status prepare(dtp_transport *t, dtp_mesh_set set, dtp_err *err)
{
    (void)t;
    (void)set;
    (void)err;
    return DTP_OK;
}

static dtp_status start(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                        dtp_request *request, dtp_err *err)
{
    const cudaStream_t queue = ((dtp_cuda *)t->self)->compute;
    request->pending = false;
    DTP_TRY(dtp_comm__can_reduce(coll, err));
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const int64_t bytes = dtp_coll_at(coll, k)->count * dtp_dtype_bytes(coll->dtype);
        if (ends[k].in != ends[k].out && bytes > 0) {
            DTP_CUDA_TRY(err, cudaMemcpyAsync(ends[k].out, ends[k].in, (size_t)bytes,
                                              cudaMemcpyDeviceToDevice, queue));
        }
    }
    return DTP_OK;
}

static dtp_status wait(dtp_transport *t, dtp_request *request, dtp_err *err)
{
    (void)t;
    (void)request;
    (void)err;
    return DTP_OK;
}

static void destroy(dtp_transport *t)
{
    (void)t;
}

static const dtp_transport_ops ops = {
    .name = "cuda", .prepare = prepare, .start = start, .wait = wait, .destroy = destroy};

dtp_status dtp_cuda_transport_create(dtp_comm *comm, dtp_backend *b, dtp_transport *out,
                                     dtp_err *err)
{
    if (comm->size != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: tensors cannot be moved between %d ranks", comm->size);
    }
    *out = (dtp_transport){
        .ops = &ops,
        .caps = {.asynchronous = true, .deterministic = true, .queued = true, .captured = true},
        .self = dtp_cuda_of(b)};
    return DTP_OK;
}
