/* Gradients of eager code: a tape records the calls made on watched tensors and plays them back.
 *
 * The record is a model graph; the backward pass is the autodiff of planned graphs, run call by
 * call. The gradient of a redistribution is the redistribution back (to replicated where the
 * operand was partial), so that backward collectives mirror forward ones.
 */
#ifndef DTP_TAPE_H
#define DTP_TAPE_H

#include "dtp/ops.h"

DTP_API_BEGIN

typedef struct dtp_tape dtp_tape;

/* Starts recording calls on `mesh`; one tape per mesh at a time. */
dtp_status dtp_tape_create(dtp_device_mesh *mesh, dtp_tape **out, dtp_err *err) DTP_MUST_CHECK;
/* Stops recording and frees what was kept. NULL is accepted. */
void dtp_tape_destroy(dtp_tape *tape);
/* With true, gradients of whole tensors stay partial sums where they come out so, as PyTorch leaves
 * those of parameters: reducing them is up to the caller. Default false. */
void dtp_tape_keep_partial(dtp_tape *tape, bool keep);
/* Calls that depend on t are recorded from here on. A variable stays watched when it is assigned:
 * calls made before keep its old contents, calls made after are uses of the variable too, and its
 * gradient is the sum over all of them. No gradient goes through an assignment to what the value
 * was computed from. A second handle on a watched variable (dtp_tensor_share) counts as it, with
 * the contents that it had then. */
dtp_status dtp_tape_watch(dtp_tape *tape, dtp_tensor t, dtp_err *err) DTP_MUST_CHECK;
/* Gradients of the scalar `loss` for n watched tensors, in the layouts of these (a partial one gets
 * a replicated gradient) but for dtp_tape_keep_partial. Collective. Recording is off while it runs.
 */
dtp_status dtp_tape_gradient(dtp_tape *tape, dtp_tensor loss, int32_t n, const dtp_tensor *sources,
                             dtp_tensor *grads, dtp_err *err) DTP_MUST_CHECK;

DTP_API_END

#endif
