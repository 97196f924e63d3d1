/* What is predicted of a step (docs/cost-model.md): of a program, and of a sharding that is
 * lowered. */
#ifndef DTP_COST_MODELS_PREDICT_H
#define DTP_COST_MODELS_PREDICT_H

#include "core/plan/plan.h"
#include "cost_models/price.h"
#include "spmd/lower/lower.h"
#include "spmd/redistribute/redistribute.h"

/* Bytes that the tensors of a plan for the target may take of a device at the peak: its memory less
 * what driver, context and communicators have there (kind cuda), over the target's reserve. */
int64_t dtp_memory_limit(const dtp_machine *machine, const dtp_target *target) DTP_MUST_CHECK;

/* Peak memory and collectives of a step, which need no machine; times are 0. DTP_RANGE: the bytes
 * of collectives do not fit. */
dtp_status dtp_predict_counts(const dtp_program *p, dtp_prediction *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* Sets instr->time_s of the whole program (one run of each) and returns the prediction of a step,
 * in which instructions of microbatches run several times: additive sum, timeline (one compute and
 * one or two lanes of communication per rank, overlap only when the machine says so),
 * collective totals, and the program's peak. DTP_RANGE: the sum is beyond the limit of
 * cost_models/price_limit.h, or the bytes of collectives do not fit. */
dtp_status dtp_predict(const dtp_pricer *pricer, dtp_program *p, dtp_prediction *out,
                       dtp_err *err) DTP_MUST_CHECK;

/* Lowers a sharding (with options->redistributor), checks and predicts the program, which is
 * the caller's then. When options->overlap.depth is DTP_OVERLAP_CHOOSE it becomes the depth with
 * the shortest step, of a short list, as far as overlap.memory_bytes (0: the memory of the device)
 * or the peak without overlap allow; and buckets, if there are any, get a size that suits latency
 * and bandwidth where that is faster; and what may run once for all microbatches does within the
 * same bytes (overlap.once_bytes > 0). options->overlap says which. A program that needs more than
 * options->fit_bytes (unless 0) without overlap is simulated with it, but keeps its memory plan: it
 * is not to be run, and options->overlap has depth 0. */
dtp_status dtp_sharding_program(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                                dtp_lower_options *options, dtp_prediction *predicted,
                                dtp_program **out, dtp_err *err) DTP_MUST_CHECK;

/* The dtp_additive_cost of the sharding of a program that was lowered with options->kept. */
dtp_status dtp_program_additive_cost(const dtp_pricer *pricer, const dtp_program *p,
                                     int64_t *cost_ps, dtp_err *err) DTP_MUST_CHECK;

/* What is predicted of the program of a sharding, and the dtp_additive_cost (may be NULL). */
dtp_status dtp_sharding_predict(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                                dtp_lower_options *options, dtp_prediction *predicted,
                                int64_t *cost_ps, dtp_err *err) DTP_MUST_CHECK;

/* Sum of the prices of all instructions of the plain lowering of a sharding: no merging, no
 * buckets. */
dtp_status dtp_additive_cost(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                             const dtp_redistributor *redistributor, int64_t *cost_ps,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
