/* Threads of a rank that is not told how many: argv gives what this process expects; under MPI for
 * its rank. */
#include <stdio.h>
#include <stdlib.h>

#include "executor/run/ranks.h"

extern char **environ;

static dtp_status compare(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const int32_t want = *(const int32_t *)user;
    return backend->threads == want
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "rank %d has %d threads, expected %d", comm->rank,
                          backend->threads, want);
}

/* argv: number of ranks, threads that each has. */
int main(int argc, char **argv)
{
    dtp_err err = {0};
    dtp_mesh mesh = {.n_dims = 1, .names = {"x"}, .sizes = {argc > 1 ? atoi(argv[1]) : 1}};
    int32_t want = argc > 2 ? atoi(argv[2]) : 1;
    const dtp_ranks_options options = {.comm = dtp_comm_in_mpi_job(environ) ? "mpi" : "sim",
                                       .backend = "cpu"};
    if (dtp_ranks_run(&options, &mesh, compare, &want, &err) != DTP_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
