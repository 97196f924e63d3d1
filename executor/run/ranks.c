/* Running one function on every rank of a mesh: alone, as threads of this process, or as the
 * processes of the MPI job around us. */
#include "executor/run/ranks.h"

#include <string.h>

#include "dtp/device_mesh.h"
#include "executor/device/cpus.h"
#include "executor/run/devices.h"

dtp_status dtp_backend_create(const char *name, int32_t threads, dtp_backend **out, dtp_err *err)
{
    const dtp_device *device;
    const dtp_device_options options = {.threads = threads};
    DTP_TRY(DTP_NOT_NULL(err, name, out));
    DTP_TRY(dtp_device_find(name, &device, err));
    return device->create(&options, out, err);
}

typedef struct ranks {
    const dtp_ranks_options *options;
    dtp_ranks_body body;
    void *user;
    int32_t here; /* ranks that share the processors of this one, itself included */
} ranks;

static double timeout_of(const dtp_ranks_options *options)
{
    return options->timeout_s > 0 ? options->timeout_s : DTP_COMM_TIMEOUT_S;
}

/* Threads of a rank that is not told how many. */
static int32_t threads_of(const ranks *w)
{
    const int32_t share = dtp_cpus_usable() / w->here;
    return w->options->threads > 0 ? w->options->threads : share < 1 ? 1 : share;
}

static dtp_status run_body(dtp_comm *comm, const dtp_device *device, dtp_backend *backend,
                           const ranks *w, dtp_err *err)
{
    const dtp_transport of_comm = comm->transport;
    if (device->transport == NULL) {
        return w->body(comm, backend, w->user, err);
    }
    DTP_TRY(device->transport(comm, backend, w->options->transport, &comm->transport, err));
    const dtp_status s = w->body(comm, backend, w->user, err);
    void (*tell)(dtp_transport *, const char *) = comm->transport.ops->abort;
    if (s != DTP_OK && tell != NULL) {
        tell(&comm->transport, err->msg);
    }
    comm->transport.ops->destroy(&comm->transport);
    comm->transport = of_comm;
    return s;
}

static dtp_status run_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    const ranks *w = user;
    const dtp_device *device;
    dtp_backend *backend = NULL;
    dtp_device_options options = {.threads = threads_of(w), .switches = w->options->switches};
    comm->timeout_s = timeout_of(w->options);
    comm->ends = w->options->ends;
    DTP_TRY(dtp_device_find(w->options->backend, &device, err));
    if (device->transport != NULL) {
        int32_t n;
        DTP_TRY(dtp_comm_alike_here(comm, 0, &options.local_rank, &n, err));
    }
    DTP_TRY(device->create(&options, &backend, err));
    const dtp_status s = run_body(comm, device, backend, w, err);
    dtp_backend_destroy(backend);
    return s;
}

dtp_status dtp_ranks_fail(const dtp_ranks_options *options, dtp_status failed, dtp_err *err)
{
    const dtp_mesh none = {0};
    dtp_comm *comm = NULL;
    return dtp_comm_mpi_join(&none, options->rank, timeout_of(options), failed, options->reporter,
                             &comm, err);
}

dtp_status dtp_ranks_run(const dtp_ranks_options *options, const dtp_mesh *mesh,
                         dtp_ranks_body body, void *user, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    const int32_t n = dtp_mesh_ranks(mesh);
    ranks w = {.options = options, .body = body, .user = user, .here = n};
    if (strcmp(options->comm, "self") == 0) {
        if (n != 1) {
            return DTP_FAIL(err, DTP_INVALID,
                            "the communicator 'self' is one rank, but the mesh has %d", n);
        }
        dtp_comm *comm = NULL;
        DTP_TRY(dtp_comm_self_create(&comm, err));
        comm->mesh = *mesh; /* dims of size 1 */
        dtp_status s = run_rank(comm, &w, err);
        dtp_comm_destroy(comm);
        return s;
    }
    if (strcmp(options->comm, "sim") == 0) {
        return dtp_comm_sim_run(mesh, run_rank, &w, err);
    }
    if (strcmp(options->comm, "mpi") == 0) {
        const dtp_comm_reporter *reporter = w.options->reporter;
        dtp_comm *comm = NULL;
        DTP_TRY(dtp_comm_mpi_join(mesh, options->rank, timeout_of(options), DTP_OK, reporter, &comm,
                                  err));
        int32_t index;
        dtp_status s = dtp_comm_alike_here(comm, dtp_cpus_key(), &index, &w.here, err);
        if (s == DTP_OK) {
            s = run_rank(comm, &w, err);
        }
        s = dtp_comm_conclude(comm, s, reporter, err);
        dtp_comm_destroy(comm);
        return s;
    }
    return DTP_FAIL(err, DTP_INVALID, "there is no communicator '%s': self, sim or mpi",
                    options->comm);
}
