/* Prices of redistribution steps on a machine: those of the instructions that a step becomes. */
#ifndef DTP_COST_MODELS_STEP_PRICE_H
#define DTP_COST_MODELS_STEP_PRICE_H

#include "cost_models/price.h"
#include "spmd/redistribute/redistribute.h"

/* Borrows pricer and graph. */
typedef struct dtp_step_pricer {
    const dtp_pricer *pricer;
    const dtp_graph *graph; /* has the dim names of the tensor */
    dtp_err failure;        /* the first failure; code DTP_OK: none */
} dtp_step_pricer;

/* A dtp_step_price in seconds; `user` is a dtp_step_pricer *. Infinite when the step cannot be
 * lowered (memory ran out): `failure` then says why. */
double dtp_machine_step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *before, const dtp_step *step);

#endif
