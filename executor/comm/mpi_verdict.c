/* Why the collectives of this process run no more, and errors of MPI (mpi_internal.h). */
#include "executor/comm/mpi_internal.h"

dtp_status dtp_comm__mpi_check(int code, int32_t rank, const char *what, dtp_err *err)
{
    if (code == MPI_SUCCESS) {
        return DTP_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(code, text, &n);
    return DTP_FAIL(err, DTP_COMM, "rank %d: %s: %.*s", rank, what, n, text);
}

dtp_status dtp_comm__remote_failure(dtp_comm__remote *r, dtp_err *err)
{
    if (!atomic_load(&r->broken)) {
        return DTP_OK;
    }
    pthread_mutex_lock(&r->lock);
    dtp_status status = DTP_FAIL(err, r->failure.code, "%s", r->failure.msg);
    if (err != NULL) {
        err->told = r->failure.told;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

void dtp_comm__remote_break_locked(dtp_comm__remote *r, const dtp_err *why)
{
    if (!atomic_load(&r->broken)) {
        r->failure = *why;
        atomic_store(&r->broken, true);
    }
    r->first = r->last = NULL;
    pthread_cond_broadcast(&r->changed);
}

void dtp_comm__remote_lose(dtp_comm__remote *r, int32_t issuer, const char *why)
{
    dtp_err err = {0};
    dtp_status status = DTP_FAIL(&err, DTP_COMM, "%s", why);
    (void)status;
    err.told = issuer != r->base->rank;
    pthread_mutex_lock(&r->lock);
    dtp_comm__remote_break_locked(r, &err);
    r->issuer = !atomic_load(&r->lost) || issuer < r->issuer ? issuer : r->issuer;
    atomic_store(&r->lost, true);
    pthread_mutex_unlock(&r->lock);
}
