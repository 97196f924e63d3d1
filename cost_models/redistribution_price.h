/* Redistributions at a machine's prices, in integer picoseconds.
 *
 * The price of a step is the sum of dtp_picoseconds(dtp_price_instr) over the instructions that it
 * becomes, so that the cheapest list of steps is known exactly: every list of the same price is as
 * good, whichever of them a lowering takes, and sums do not depend on their order. Prices are kept
 * by what they depend on: the sizes and places of tensor dims, not their names.
 */
#ifndef DTP_COST_MODELS_REDISTRIBUTION_PRICE_H
#define DTP_COST_MODELS_REDISTRIBUTION_PRICE_H

#include "cost_models/price_limit.h"
#include "spmd/redistribute/redistribute.h"

/* The price where there is no redistribution (a shard does not become a partial value). */
#define DTP_REDISTRIBUTION_IMPOSSIBLE INT64_MAX

typedef struct dtp_redistribution_pricer dtp_redistribution_pricer;

/* Borrows pricer. Not shared between threads. */
dtp_status dtp_redistribution_pricer_create(const dtp_pricer *pricer,
                                            dtp_redistribution_pricer **out,
                                            dtp_err *err) DTP_MUST_CHECK;
void dtp_redistribution_pricer_destroy(dtp_redistribution_pricer *m);

/* Plans the cheapest steps on the machine, each pair of layouts once; for lowerings whose prices
 * are to be these. Borrowed from m. */
const dtp_redistributor *
dtp_redistribution_pricer_redistributor(const dtp_redistribution_pricer *m);

/* Of all that was priced. */
const dtp_dearest *dtp_redistribution_pricer_dearest(const dtp_redistribution_pricer *m);

/* The price of bringing a tensor from one layout to another, or DTP_REDISTRIBUTION_IMPOSSIBLE.
 * DTP_RANGE: it is beyond the limit of cost_models/price_limit.h. */
dtp_status dtp_redistribution_price(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                    const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
