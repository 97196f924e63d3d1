/* What PyTorch's FSDP keeps beside the values of a program (dtp_target.fsdp): the gathered
 * parameters outside of repeated blocks, from the forward pass to the end of the step; of the
 * largest block the parameters that are gathered ahead, and the gradients that one reduce-scatter
 * copies together.
 * (torch.distributed.fsdp.fully_shard: a root's parameters are not resharded after the forward
 * pass, the next group is prefetched, a group is reduced as one.)
 */
#ifndef DTP_SPMD_LOWER_FSDP_MEMORY_H
#define DTP_SPMD_LOWER_FSDP_MEMORY_H

#include "spmd/program/program.h"

/* Bytes per rank; 0 where no parameter is gathered for the forward pass. Instructions are in their
 * order, values have lifetimes. DTP_NOMEM, DTP_RANGE. */
dtp_status dtp_fsdp_bytes(const dtp_program *p, dtp_arena *arena, int64_t *bytes,
                          dtp_err *err) DTP_MUST_CHECK;

/* How far FSDP lets collectives run ahead (docs/overlap.md): as many as the program has for each
 * gather of parameters, rounded up, so that a gather of the backward pass passes the reduction
 * before it. 0 where it gathers none. */
int32_t dtp_fsdp_depth(const dtp_program *p);

#endif
