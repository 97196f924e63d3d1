#include "dtp/world.h"

#include "executor/run/ranks.h"

typedef struct world {
    dtp_world_options options;
    dtp_world_body body;
    void *user;
} world;

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const world *w = user;
    dtp_device_mesh *mesh = NULL;
    DTP_TRY(dtp_backend_add_kernels(backend, w->options.kernels, w->options.n_kernels, err));
    DTP_TRY(dtp_device_mesh_create(comm, backend, &w->options.mesh, &mesh, err));
    dtp_status status = w->body(mesh, w->user, err);
    dtp_device_mesh_destroy(mesh);
    return status;
}

dtp_status dtp_world_run(const char *mesh, const dtp_world_options *options, dtp_world_body body,
                         void *user, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh));
    if (body == NULL) { /* a function is no object: not for DTP_NOT_NULL */
        return DTP_FAIL(err, DTP_INVALID, "dtp_world_run: 'body' is NULL");
    }
    dtp_mesh dims;
    world w = {.options = dtp_world_options_init(), .body = body, .user = user};
    if (options != NULL) {
        DTP_TRY(dtp_options_read(__func__, options, sizeof w.options, &w.options, err));
    }
    DTP_TRY(dtp_mesh_parse(mesh, &dims, err));
    dtp_ranks_options ranks = {.comm = w.options.comm,
                               .backend = w.options.backend != NULL ? w.options.backend : "cpu",
                               .threads = w.options.threads};
    if (ranks.comm == NULL) {
        const char *alone = dtp_mesh_ranks(&dims) > 1 ? "sim" : "self";
        ranks.comm = dtp_comm_in_mpi_job(w.options.environment) ? "mpi" : alone;
    }
    return dtp_ranks_run(&ranks, &dims, run_rank, &w, err);
}
