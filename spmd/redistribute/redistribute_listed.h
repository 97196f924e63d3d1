/* Redistributions whose steps a plan lists (core/plan/plan.h): read back as steps, and noted down.
 *
 * A step of the search changes all its mesh dims in one way, so the layouts before and after it say
 * what it is; a list of layouts is a list of steps.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_LISTED_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_LISTED_H

#include "core/plan/plan.h"
#include "spmd/redistribute/redistribute.h"

/* The steps of a listed redistribution, each of which must be one that the search knows.
 * DTP_INVALID naming the step. */
dtp_status dtp_listed_steps(const dtp_mesh *mesh, const dtp_plan_redistribution *pair,
                            dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

/* Takes the steps of the list. `unlisted` decides what the list lacks; NULL: it is DTP_INVALID
 * naming type and layouts. Borrows everything. */
typedef struct dtp_listed_redistributions {
    int32_t n;
    const dtp_plan_redistribution *redistributions;
    const dtp_redistributor *unlisted;
} dtp_listed_redistributions;

dtp_redistributor dtp_listed_redistributor(dtp_listed_redistributions *listed);

/* Passes on what `inner` decides and notes it, each pair of layouts of a type once, in the order of
 * its first use, no more than DTP_PLAN_MAX_REDISTRIBUTIONS of them (else DTP_RANGE). The list is in
 * `arena`; borrows inner. Start: {.inner = , .arena = }. */
typedef struct dtp_redistribution_recorder {
    const dtp_redistributor *inner;
    dtp_arena *arena;
    int32_t n, cap;
    dtp_plan_redistribution *redistributions;
} dtp_redistribution_recorder;

dtp_redistributor dtp_recording_redistributor(dtp_redistribution_recorder *recorder);

#endif
