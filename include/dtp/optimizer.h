/* Optimizers of eager training: one object owns the step count and the states of the parameters
 * that it updates. The optimizers, their hyperparameters and defaults are those of model files
 * (docs/formats/model.md, "Training"), and so are the results: the same ops run.
 *
 * Parameters are variables (dtp_variable_create); their states have their type and layout.
 */
#ifndef DTP_OPTIMIZER_H
#define DTP_OPTIMIZER_H

#include "dtp/schedule.h"
#include "dtp/tensor.h"

DTP_API_BEGIN

typedef struct dtp_optimizer dtp_optimizer;

typedef struct dtp_hyper {
    const char *key; /* "lr" */
    double value;
} dtp_hyper;
DTP_ASSERT_SIZE(dtp_hyper, 16);

/* `name`: "sgd", "momentum", "adam", "adamw". The n hyperparameters that differ from their
 * defaults; "lr" has none. Does not communicate. Borrows the mesh; destroy the optimizer before it.
 * DTP_INVALID on a name that is not there, DTP_RANGE on a value out of bounds. */
dtp_status dtp_optimizer_create(dtp_device_mesh *mesh, const char *name, int32_t n,
                                const dtp_hyper *hypers, dtp_optimizer **out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Frees the states too. NULL is accepted. */
void dtp_optimizer_destroy(dtp_optimizer *opt);

/* From the next step on, the same on all ranks; NULL: rates as they are. DTP_INVALID as
 * dtp_schedule_check. Does not communicate. */
dtp_status dtp_optimizer_set_schedule(dtp_optimizer *opt, const dtp_schedule *schedule,
                                      dtp_err *err) DTP_MUST_CHECK;
/* Gradients of a step are clipped to this norm over all of them, as in model files; 0: they are
 * not. The same on all ranks. DTP_RANGE below 0 or above 1e30. Does not communicate. */
dtp_status dtp_optimizer_set_clip_norm(dtp_optimizer *opt, double norm,
                                       dtp_err *err) DTP_MUST_CHECK;
/* The norm of the gradients of the last step, before they were clipped; NaN when they are not. */
double dtp_optimizer_grad_norm(const dtp_optimizer *opt);
/* Gives n parameters hyperparameters of their own, those of the optimizer but for the n_hypers
 * given. The last call for a parameter counts. DTP_INVALID as dtp_optimizer_step, DTP_NOT_FOUND and
 * DTP_RANGE as dtp_optimizer_create; no parameter is changed then. Does not communicate. */
dtp_status dtp_optimizer_set_group(dtp_optimizer *opt, int32_t n, const dtp_tensor *params,
                                   int32_t n_hypers, const dtp_hyper *hypers,
                                   dtp_err *err) DTP_MUST_CHECK;

/* One step: assigns each of the n parameters its new value and counts the step. A gradient has the
 * type of its parameter and any layout: it is redistributed (partial sums are reduced). States
 * begin as zeros at the first step of a parameter. Collective. Nothing is changed when the
 * arguments are wrong: DTP_INVALID naming the parameter by its number, when it is no variable, is
 * partial, occurs twice, or its gradient has another type; DTP_NOT_FINITE when gradients are
 * clipped and their norm is not finite; DTP_UNSUPPORTED when they are and parameters are of 16 bits
 * or of two types. A failure in the middle (memory, a peer)
 * leaves the parameters before it updated and the step uncounted. Tapes do not record it. */
dtp_status dtp_optimizer_step(dtp_optimizer *opt, int32_t n, const dtp_tensor *params,
                              const dtp_tensor *grads, dtp_err *err) DTP_MUST_CHECK;

/* Steps done so far; to go on from a checkpoint: the number to go on from, the same on all ranks
 * (DTP_RANGE below 0). */
int64_t dtp_optimizer_steps(const dtp_optimizer *opt);
dtp_status dtp_optimizer_set_steps(dtp_optimizer *opt, int64_t steps, dtp_err *err) DTP_MUST_CHECK;

/* The state `name` of a parameter ("m" of momentum; "m", "v" of adam and adamw): a new handle, the
 * caller's to destroy. Zeros before the first step. Does not communicate. DTP_NOT_FOUND when the
 * optimizer has no such state. */
dtp_status dtp_optimizer_state(dtp_optimizer *opt, dtp_tensor param, const char *name,
                               dtp_tensor *out, dtp_err *err) DTP_MUST_CHECK;
/* Replaces it by the values of a tensor of the type of the parameter, in any layout. Collective. */
dtp_status dtp_optimizer_set_state(dtp_optimizer *opt, dtp_tensor param, const char *name,
                                   dtp_tensor value, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
