/* Virtual ranks with a CUDA backend and a transport each, on emulated devices or on cards. */
#include "tests/cuda/comm_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "executor/comm/communicator_internal.h"
#include "executor/run/devices.h"
#include "tests/cuda/device_controls.h"

void ranks_must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

typedef struct job {
    const char *transport;
    ranks_body body;
} job;

const char *ranks_switches;

static dtp_status run_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    const job *j = user;
    const dtp_transport of_comm = comm->transport;
    const dtp_device_options options = {.local_rank = comm->rank, .switches = ranks_switches};
    const dtp_device *device;
    dtp_backend *backend = NULL;
    DTP_TRY(dtp_device_find("cuda", &device, err));
    DTP_TRY(device->create(&options, &backend, err));
    dtp_status s = device->transport(comm, backend, j->transport, &comm->transport, err);
    if (s == DTP_OK) {
        s = j->body(comm, backend, err);
        if (s != DTP_OK && comm->transport.ops->abort != NULL) {
            comm->transport.ops->abort(&comm->transport, err->msg);
        }
        const dtp_status idle = backend->ops->sync(backend, s == DTP_OK ? err : NULL);
        s = s == DTP_OK ? idle : s;
        comm->transport.ops->destroy(&comm->transport);
    }
    comm->transport = of_comm;
    dtp_backend_destroy(backend);
    return s;
}

dtp_status ranks_run(const char *mesh_text, const char *transport, ranks_body body, dtp_err *err)
{
    dtp_mesh mesh;
    job j = {transport, body};
    DTP_TRY(dtp_mesh_parse(mesh_text, &mesh, err));
    return dtp_comm_sim_run(&mesh, run_rank, &j, err);
}

const ranks_kind RANKS_KINDS[N_RANKS_KINDS] = {
    {"device", 1}, {"device", 3}, {"nccl", 6}, {"staged", 1}};

void ranks_begin(int32_t kind, uint64_t seed)
{
    cuda_emu_reset();
    cuda_emu_devices(RANKS_KINDS[kind].devices);
    cuda_emu_seed(seed);
}

void ranks_nothing_left(void)
{
    const struct cuda_emu_counters n = cuda_emu_count();
    assert_int_equal(n.live_device, 0);
    assert_int_equal(n.live_host, 0);
    assert_int_equal(n.live_objects, 0);
    assert_string_equal(cuda_emu_message(), "");
}

static dtp_status do_nothing(dtp_comm *c, void *backend, dtp_err *err)
{
    (void)c;
    (void)backend;
    (void)err;
    return DTP_OK;
}

bool ranks_can(int32_t kind, const char *mesh)
{
    dtp_err err = {0};
    if (!ON_CARD) {
        return true;
    }
    const bool nccl = strcmp(RANKS_KINDS[kind].name, "nccl") == 0;
    return nccl ? ranks_run(mesh, "nccl", do_nothing, &err) == DTP_OK ||
                      strstr(err.msg, "a card for every rank") == NULL
                : RANKS_KINDS[kind].devices == 1;
}
