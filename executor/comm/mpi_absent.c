/* Stands in for the MPI communicator in builds without MPI. */
#include "executor/comm/communicator_internal.h"

dtp_status dtp_comm_mpi_create(const dtp_mesh *mesh, dtp_comm **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, out));
    *out = NULL;
    return DTP_FAIL(err, DTP_UNSUPPORTED,
                    "this build has no MPI communicator (configure with -DDTP_MPI=ON)");
}

dtp_status dtp_comm_mpi_join(const dtp_mesh *mesh, const char *rank, double timeout_s,
                             dtp_status ready, const dtp_comm_reporter *reporter, dtp_comm **out,
                             dtp_err *err)
{
    (void)rank;
    (void)timeout_s;
    (void)reporter;
    return ready != DTP_OK ? ready : dtp_comm_mpi_create(mesh, out, err);
}

void dtp_comm__mpi_limit(dtp_comm *c, int64_t max_count)
{
    (void)c;
    (void)max_count;
}

void dtp_comm__mpi_share(dtp_comm *c, bool share)
{
    (void)c;
    (void)share;
}
