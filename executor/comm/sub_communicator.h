/* A communicator for a part of the mesh: a sub-mesh or a mesh with dims joined. */
#ifndef DTP_EXECUTOR_COMM_SUB_COMMUNICATOR_H
#define DTP_EXECUTOR_COMM_SUB_COMMUNICATOR_H

#include "executor/comm/communicator.h"

/* Dim m of `mesh` stands for the dims parent_sets[m] of the parent's mesh, joined row-major; the
 * parent's other dims stay at this rank's coordinates. So a sub-mesh has one dim in each set and a
 * flattened mesh several in one. Rank and size are those in the group; collectives run over the
 * parent, barriers over the ranks of the group; an abort tells the parent's ranks. The parent is
 * borrowed. Does not communicate: ranks that do not use their sub-communicator need not make one.
 * DTP_INVALID when sizes differ, a dim is used twice or the dims are not in the parent's order
 * (every dim of parent_sets[m] comes before those of parent_sets[m + 1]). */
dtp_status dtp_sub_communicator_create(dtp_comm *parent, const dtp_mesh *mesh,
                                       const dtp_mesh_set *parent_sets, dtp_comm **out,
                                       dtp_err *err) DTP_MUST_CHECK;

#endif
