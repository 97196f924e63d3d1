/* The transports of the CUDA backend on emulated devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_emu.h"
#include "executor/comm/communicator_internal.h"
#include "executor/cpu/cpu.h"
#include "executor/cuda/cuda.h"
#include "tests/comm/comm_suite.h"

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* A body that every rank runs with a transport of its own. */
typedef struct job {
    const char *transport;
    dtp_status (*body)(dtp_comm *comm, void *backend, dtp_err *err);
} job;

static dtp_status run_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    const job *j = user;
    const dtp_transport of_comm = comm->transport;
    dtp_backend *backend = NULL;
    DTP_TRY(dtp_backend_cuda_create(comm->rank, &backend, err));
    dtp_status s = dtp_cuda_transport_create(comm, backend, j->transport, &comm->transport, err);
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

static dtp_status run(const char *mesh_text, const char *transport,
                      dtp_status (*body)(dtp_comm *comm, void *backend, dtp_err *err), dtp_err *err)
{
    dtp_mesh mesh;
    job j = {transport, body};
    DTP_TRY(dtp_mesh_parse(mesh_text, &mesh, err));
    return dtp_comm_sim_run(&mesh, run_rank, &j, err);
}

/* Devices, and the transports that ranks on them can have. */
static const struct {
    const char *name;
    int devices;
} KINDS[] = {{"device", 1}, {"device", 3}, {"nccl", 6}, {"staged", 1}};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static void begin(int32_t kind, uint64_t seed)
{
    cuda_emu_reset();
    cuda_emu_devices(KINDS[kind].devices);
    cuda_emu_seed(seed);
}

static void nothing_left(void)
{
    const struct cuda_emu_counters n = cuda_emu_count();
    assert_int_equal(n.live_device, 0);
    assert_int_equal(n.live_host, 0);
    assert_int_equal(n.live_objects, 0);
    assert_string_equal(cuda_emu_message(), "");
}

static const char *const MESHES[] = {"x:1", "x:2", "x:4", "x:2;y:2"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

static void test_cuda_comm__conforms(void **state)
{
    (void)state;
    for (int32_t k = 0; k < N_KINDS; k++) {
        for (size_t m = 0; m < N_MESHES; m++) {
            dtp_err err = {0};
            begin(k, 1 + m);
            must(run(MESHES[m], KINDS[k].name, comm_suite, &err), &err);
            nothing_left();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_comm__conforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
