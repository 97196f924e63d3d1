/* What is predicted of a step of a program (docs/cost-model.md). */
#ifndef DTP_COST_MODELS_PREDICT_H
#define DTP_COST_MODELS_PREDICT_H

#include "cost_models/price.h"

/* Peak memory and collectives of a step, which need no machine; times are 0. DTP_RANGE: the bytes
 * of collectives do not fit. */
dtp_status dtp_predict_counts(const dtp_program *p, dtp_prediction *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Sets instr->time_s of the whole program (one run of each) and returns the prediction of a step,
 * in which instructions of microbatches run several times: additive sum, timeline (one compute and
 * one communication resource per rank, overlap only when the machine says so), collective totals,
 * and the program's peak. DTP_RANGE: the sum is beyond the limit of cost_models/price_limit.h, or
 * the bytes of collectives do not fit. */
dtp_status dtp_predict(const dtp_pricer *pricer, dtp_program *p, dtp_prediction *out,
                       dtp_err *err) DTP_MUST_CHECK;

#endif
