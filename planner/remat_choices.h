/* What planning may try of recomputation (`--remat auto`). */
#ifndef DTP_PLANNER_REMAT_CHOICES_H
#define DTP_PLANNER_REMAT_CHOICES_H

#include "core/transform/recompute.h"
#include "cost_models/machine/machine.h"
#include "spmd/target/target.h"

enum { DTP_REMAT_SELECTIONS = 6 };

/* In order of work: nothing; of every block at most DTP_REMAT_SELECTIONS lists of results that are
 * kept, the longest first, then the block without one; all of several blocks. From `arena`.
 *
 * The results that recomputing the block makes again are put in order by the bytes that are saved
 * per second of recomputation, least first, whole on one device. List k of K keeps as many of the
 * first as fill at most k shares of K + 1 of the bytes; lists that say the same are tried once. */
dtp_status dtp_remat_choices(const dtp_graph *g, const dtp_machine *machine,
                             const dtp_target *target, dtp_arena *arena, int32_t *n,
                             dtp_remat **out, dtp_err *err) DTP_MUST_CHECK;

#endif
