/* What PyTorch DTensor thinks that a redistribution costs (--compat torch): its constants for
 * NVLink inside a host and a network between hosts, rings for every collective.
 *
 *   all-gather, reduce-scatter  6.6 us + (n-1) a + B (n-1)/n / b
 *   all-reduce                  6.6 us + 2(n-1) a + B 2(n-1)/n / b
 *   all-to-all                  an all-gather of the local bytes + 1 us
 *   local steps                 0
 *
 * n ranks on the mesh dim, B bytes (the result of an all-gather, the local buffer of a reduction),
 * a = 0.6 us and b = 87.7 GiB/s inside a host, 2.7 us and 19.294 GiB/s across hosts. Local bytes
 * are the tensor's divided by the number of shards, uneven or not.
 */
#ifndef DTP_INTEROP_TORCH_COST_H
#define DTP_INTEROP_TORCH_COST_H

#include "interop/redistribute_torch.h"

typedef struct dtp_torch_cost {
    int64_t devices_per_host; /* a mesh dim is inside a host while the product of its size and those
                                 of the dims after it is at most this */
} dtp_torch_cost;

/* 8 devices per host. */
dtp_torch_cost dtp_torch_cost_init(void);

/* A dtp_step_price in seconds; `user` is a const dtp_torch_cost * (NULL: the defaults). A step over
 * several mesh dims, which PyTorch does not price, runs at the pace of the slowest of them. */
double dtp_torch_step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                            const dtp_layout *before, const dtp_step *step);

#endif
