/* Which transport the ranks of a job get. */
#include <string.h>

#include "core/base/hash.h"
#include "executor/cuda/comm/comm.h"

typedef dtp_status (*create)(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out, dtp_err *err);

static const struct {
    const char *name;
    create create;
} TRANSPORTS[] = {{"device", dtp_cuda_device_create},
                  {"nccl", dtp_cuda_nccl_create},
                  {"staged", dtp_cuda_staged_create}};

/* Whether every rank has a card of its own; the same on all ranks. */
static dtp_status own_cards(dtp_comm *comm, const dtp_cuda *cuda, bool *out, dtp_err *err)
{
    char bus[32] = "";
    int n_devices = 0;
    int32_t index, n, own;
    DTP_TRY(dtp_cuda_status(cudaGetDeviceCount(&n_devices), "cudaGetDeviceCount", err));
    if (comm->ops->alike_here == NULL) { /* of this process alone */
        *out = comm->size <= n_devices;
        return DTP_OK;
    }
    const dtp_status s = dtp_cuda_status(cudaDeviceGetPCIBusId(bus, sizeof bus, cuda->device),
                                         "cudaDeviceGetPCIBusId", err);
    DTP_TRY(dtp_comm_agree_status(comm, s, err));
    DTP_TRY(dtp_comm_alike_here(comm, dtp_hash_text(DTP_HASH_SEED, bus), &index, &n, err));
    own = n == 1;
    DTP_TRY(dtp_comm_all_reduce(comm, DTP_REDUCE_MIN, DTP_I32, 1, &own, err));
    *out = own == 1;
    return DTP_OK;
}

/* Whether the ranks are threads of this process whose devices reach each other; the same on all
 * ranks. */
static dtp_status device_goes(dtp_comm *comm, const dtp_cuda *cuda, bool *out, dtp_err *err)
{
    int32_t goes = 0;
    dtp_err quiet = {0};
    if (comm->size == 1 || comm->ops->meet != NULL) {
        goes = dtp_cuda_reach_peers(comm, cuda, &quiet) == DTP_OK;
        DTP_TRY(dtp_comm_all_reduce(comm, DTP_REDUCE_MIN, DTP_I32, 1, &goes, err));
    }
    *out = goes == 1;
    return DTP_OK;
}

static dtp_status choose(dtp_comm *comm, const dtp_cuda *cuda, const char *name, const char **out,
                         dtp_err *err)
{
    const bool given = name != NULL && strcmp(name, "auto") != 0;
    bool own = false, device = false;
    DTP_TRY(own_cards(comm, cuda, &own, err));
    DTP_TRY(device_goes(comm, cuda, &device, err));
    *out = given ? name : device ? "device" : own ? "nccl" : "staged";
    if (strcmp(*out, "nccl") == 0 && !own) {
        return DTP_FAIL(err, DTP_INVALID,
                        "transport nccl: it needs a card for every rank; device and staged do not");
    }
    if (strcmp(*out, "device") == 0 && comm->size > 1 && comm->ops->meet == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "transport device: the ranks are processes, not threads of one (--comm "
                        "sim); nccl and staged connect them");
    }
    return DTP_OK;
}

dtp_status dtp_cuda_transport_create(dtp_comm *comm, dtp_backend *b, const char *name,
                                     dtp_transport *out, dtp_err *err)
{
    dtp_cuda *cuda = dtp_cuda_of(b);
    create make = NULL;
    dtp_transport made = {0};
    DTP_TRY(choose(comm, cuda, name, &name, err));
    for (size_t i = 0; i < sizeof TRANSPORTS / sizeof TRANSPORTS[0]; i++) {
        make = strcmp(TRANSPORTS[i].name, name) == 0 ? TRANSPORTS[i].create : make;
    }
    if (make == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "there is no transport '%.40s'; there are: auto, device, nccl, staged",
                        name);
    }
    const dtp_status s = dtp_comm_agree_status(comm, make(comm, cuda, &made, err), err);
    if (s == DTP_OK) {
        *out = made;
    } else if (made.ops != NULL) {
        made.ops->destroy(&made);
    }
    return s;
}
