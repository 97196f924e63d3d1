/* Ranks that disagree about collectives. Also run under MPI. */
#include "tests/comm/comm_misuse.h"
#include "tests/support/misuse_main.h"

static const char *name(int32_t i, const dtp_mesh *mesh)
{
    const comm_misuse *m = &comm_misuses[i];
    const bool fits = m->n_dims == mesh->n_dims && (m->n_dims == 1 || dtp_mesh_ranks(mesh) == 4);
    return fits ? m->name : NULL;
}

static dtp_status on_mpi(const dtp_mesh *mesh, dtp_rank_body body, dtp_err *err)
{
    dtp_comm *c = NULL;
    DTP_TRY(dtp_comm_mpi_create(mesh, &c, err));
    dtp_status status = body(c, NULL, err);
    dtp_comm_destroy(c);
    return status;
}

static dtp_status run(int32_t i, const char *line, dtp_err *err)
{
    dtp_mesh mesh;
    DTP_TRY(dtp_mesh_parse(line, &mesh, err));
    return dtp_comm_in_mpi_job(environ) ? on_mpi(&mesh, comm_misuses[i].body, err)
                                        : dtp_comm_sim_run(&mesh, comm_misuses[i].body, NULL, err);
}

int main(int argc, char **argv)
{
    const misuse_suite suite = {.n = comm_n_misuses, .name = name, .run = run};
    return misuse_main(&suite, argc, argv);
}
