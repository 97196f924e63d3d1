/* Device memory that collectives can work on in place. */
#ifndef DTP_EXECUTOR_COMM_MEMORY_H
#define DTP_EXECUTOR_COMM_MEMORY_H

#include "executor/device/backend.h"
#include "executor/comm/communicator.h"

/* Like b->ops->alloc, from memory that the ranks of this host share when there is some and the
 * backend computes in host memory; counted in the backend either way. Free it with dtp_comm_free
 * before the communicator is destroyed. DTP_NOMEM. */
dtp_status dtp_comm_alloc(dtp_comm *c, dtp_backend *b, size_t bytes, void **out,
                          dtp_err *err) DTP_MUST_CHECK;
/* `bytes` as given to dtp_comm_alloc; NULL is accepted. */
void dtp_comm_free(dtp_comm *c, dtp_backend *b, void *ptr, size_t bytes);

#endif
