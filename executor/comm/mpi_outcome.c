/* One outcome of an MPI job (dtp_comm_conclude): the ranks find the lowest one whose failure
 * counts, which reports it and sends code and message to the others. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "executor/comm/mpi_internal.h"

enum {
    /* how long a rank that failed waits for the others, and how much longer a higher one does, so
     * that one of several ends the job */
    GRACE_MS = 2000,
    GRACE_PER_RANK_MS = 250,
    GRACE_RANKS = 8,
    SPINS = 1000,  /* looks before it sleeps between them */
    LOST_MS = 1500 /* how long a rank leaves the end of the job to another one */
};

typedef struct outcome {
    int32_t code;
    char msg[DTP_ERR_MSG_BYTES];
} outcome;

static int report(const dtp_comm_reporter *reporter, const dtp_err *err)
{
    return reporter != NULL && reporter->report != NULL ? reporter->report(reporter->user, err) : 1;
}

/* Waits for a collective of all ranks, which may still be at their work; false: for too long. */
static bool wait_for_all(MPI_Request *request, int64_t limit_ms)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    int done = 0;
    for (int64_t looks = 0; !done; looks++) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS ||
            looks > SPINS + limit_ms) {
            return false;
        }
        if (!done && looks > SPINS) {
            nanosleep(&pause, NULL);
        }
    }
    return true;
}

/* The lowest rank with a failure of its own, else the lowest with any; the number of ranks: none
 * failed. False: not all came. */
static bool find_cause(MPI_Comm world, double limit_s, dtp_status mine, bool own, int *cause)
{
    int rank = 0, size = 0, lowest[2];
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    const int failed[2] = {own ? rank : size, mine != DTP_OK ? rank : size};
    const int64_t place = rank < GRACE_RANKS ? rank : GRACE_RANKS;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Iallreduce(failed, lowest, 2, MPI_INT, MPI_MIN, world, &request) != MPI_SUCCESS ||
        !wait_for_all(&request, own ? GRACE_MS + GRACE_PER_RANK_MS * place
                                    : (int64_t)(limit_s * 1e3) + GRACE_MS)) {
        return false; /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker): the job ends now */
    }
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE); /* has ended */
    *cause = lowest[0] < size ? lowest[0] : lowest[1];
    return true;
}

/* The cause reports; then all know code and message. */
static dtp_status share(MPI_Comm world, int cause, const dtp_comm_reporter *reporter, dtp_err *err)
{
    int rank = 0;
    outcome o = {0};
    MPI_Comm_rank(world, &rank);
    if (rank == cause) {
        (void)report(reporter, err);
        o.code = err->code;
        memcpy(o.msg, err->msg, sizeof o.msg);
    }
    if (MPI_Bcast(&o, sizeof o, MPI_BYTE, cause, world) != MPI_SUCCESS) {
        return DTP_FAIL(err, DTP_COMM, "rank %d: MPI_Bcast of the outcome failed", rank);
    }
    if (rank != cause) {
        dtp_status status = DTP_FAIL(err, (dtp_status)o.code, "%s", o.msg);
        (void)status;
    }
    err->told = reporter != NULL || rank != cause;
    return (dtp_status)o.code;
}

/* Reports and ends the job. */
static void end_job(MPI_Comm world, const dtp_comm_reporter *reporter, const dtp_err *err)
{
    if (reporter == NULL) {
        fprintf(stderr, "error comm conclude %s\n", err->msg);
    }
    dtp_comm__mpi_end_job(world, report(reporter, err));
}

void dtp_comm__mpi_end_lost(MPI_Comm world, bool first, const dtp_comm_reporter *reporter,
                            const dtp_err *err)
{
    const struct timespec pause = {.tv_sec = LOST_MS / 1000, .tv_nsec = LOST_MS % 1000 * 1000000L};
    if (first) {
        end_job(world, reporter, err);
    }
    (void)nanosleep(&pause, NULL);
    dtp_comm__mpi_end_job(world, 1);
}

dtp_status dtp_comm__mpi_outcome(MPI_Comm world, double limit_s, dtp_status mine,
                                 const dtp_comm_reporter *reporter, dtp_err *err)
{
    int size = 0, cause = 0;
    MPI_Comm_size(world, &size);
    if (!find_cause(world, limit_s, mine, mine != DTP_OK && !err->told, &cause)) {
        dtp_status status =
            mine != DTP_OK ? mine : DTP_FAIL(err, DTP_COMM, "the ranks did not end in time");
        end_job(world, reporter, err);
        return status;
    }
    return cause == size ? DTP_OK : share(world, cause, reporter, err);
}
