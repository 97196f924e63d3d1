/* Redistribution: layout A -> layout B of one tensor as a list of steps. */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_H

#include "spmd/redistribute/steps.h"

/* Cheapest list of steps at a price (dtp_step_generic_price, that of a machine, ...).
 * DTP_UNSUPPORTED for shard -> partial and for one partial op to another. */
dtp_status dtp_redistribute_plan(const dtp_mesh *mesh, const dtp_ttype *type,
                                 const dtp_layout *from, const dtp_layout *to, dtp_step_price price,
                                 void *user, dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

/* The same among lists of one collective per mesh dim, which brings it where it goes
 * (dtp_target.direct). */
dtp_status dtp_redistribute_direct(const dtp_mesh *mesh, const dtp_ttype *type,
                                   const dtp_layout *from, const dtp_layout *to,
                                   dtp_step_price price, void *user, dtp_steps *out,
                                   dtp_err *err) DTP_MUST_CHECK;

/* Chooses the steps: the search at a machine's prices (cost_models/redistribution_price.h)
 * or on the generic machine, a cache before it (spmd/redistribute/redistribute_cache.h), a plan's
 * list, or another system's rules (interop/redistribute_torch.h). Borrowed by programs. */
typedef struct dtp_redistributor {
    dtp_status (*plan)(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_layout *to, dtp_steps *out, dtp_err *err);
    void *user;
} dtp_redistributor;

/* Cheapest steps on the generic machine (dtp_step_generic_price); static storage. */
const dtp_redistributor *dtp_redistributor_generic(void);
/* The same of the steps that a target has (dtp_target.direct). */
const dtp_redistributor *dtp_redistributor_of(const dtp_target *target);

/* What r decides; DTP_INVALID for NULL. */
dtp_status dtp_redistribute_by(const dtp_redistributor *r, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                               dtp_steps *out, dtp_err *err) DTP_MUST_CHECK;

#endif
