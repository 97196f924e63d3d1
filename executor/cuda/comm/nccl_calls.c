/* Calls of NCCL that go on behind their return, and words for those that fail. */
#include <time.h>

#include "core/base/clock.h"
#include "executor/cuda/comm/nccl_internal.h"

dtp_status dtp_nccl__fail(const dtp_nccl *nccl, const dtp_comm *comm, ncclResult_t code,
                          const char *call, ncclComm_t c, dtp_err *err)
{
    const char *more = c != NULL ? nccl->GetLastError(c) : "";
    return DTP_FAIL(err, DTP_COMM, "rank %d: NCCL: %s: %s%s%.500s", comm->rank, call,
                    nccl->GetErrorString(code), more[0] != '\0' ? ": " : "", more);
}

dtp_status dtp_nccl__look(dtp_comm *comm, dtp_err *err)
{
    return comm->ops->look != NULL ? comm->ops->look(comm, err) : DTP_OK;
}

dtp_status dtp_nccl__settle(const dtp_nccl *nccl, dtp_comm *comm, ncclComm_t c, ncclResult_t code,
                            const char *call, dtp_err *err)
{
    const double start = dtp_now_s(), limit_s = comm->timeout_s;
    while (code == ncclInProgress) {
        const ncclResult_t asked = nccl->CommGetAsyncError(c, &code);
        code = asked != ncclSuccess ? asked : code;
        if (code == ncclInProgress) {
            DTP_TRY(dtp_nccl__look(comm, err));
            if (dtp_now_s() - start > limit_s) {
                return DTP_FAIL(err, DTP_COMM, "rank %d: NCCL: %s is not done after %g s",
                                comm->rank, call, limit_s);
            }
            (void)nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
    return code == ncclSuccess ? DTP_OK : dtp_nccl__fail(nccl, comm, code, call, c, err);
}
