/* Which copies the backward pass gathers again, so that a program fits into memory. */
#ifndef DTP_COST_MODELS_REGATHER_CHOICE_H
#define DTP_COST_MODELS_REGATHER_CHOICE_H

#include "cost_models/price.h"
#include "spmd/lower/lower.h"

/* Sets s->regather (from `arena`) where the copies that p, the program of s, keeps for the backward
 * pass make it need more than `limit` bytes: the largest are made again first, of equal ones those
 * of the first blocks, and no more than it takes; all of them where that is not enough, if it
 * lowers the peak. Nothing is decided where a text or the target has decided, or the sharding has
 * replicas. *decided: s->regather was set. `options` are those of the candidate. */
dtp_status dtp_regather_choose(const dtp_program *p, const dtp_lower_options *options,
                               int64_t limit, dtp_arena *arena, dtp_sharding *s, bool *decided,
                               dtp_err *err) DTP_MUST_CHECK;

#endif
