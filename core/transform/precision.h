/* Precision: types of tensors, and what products of f32 tensors multiply in.
 *
 * tf32: tensors stay f32. Products round f32 operands to tf32 (8 bits of exponent, 10 of mantissa)
 * and add in f32 (NVIDIA Ampere architecture; allow_tf32 of PyTorch). The graph gets a flag alone.
 *
 * Mixed precision: activations and their gradients in a 16-bit type, everything that adds up over
 * many steps or elements in f32 (Micikevicius et al. 2018; PyTorch AMP and FSDP MixedPrecision).
 *
 *   parameters, optimizer states, accumulators of microbatches   f32
 *   statistics, sums of exponentials, losses and other scalars   f32
 *   activations and their gradients                              `compute`
 *   gradients of parameters when they leave the backward pass    `gradients`; f32 for the update
 *
 * A parameter is cast once per step, "bf16.<parameter>", where it is first read, so that a plan
 * may split it before and gather the 16-bit copy. The backward pass is that of the graph with
 * casts. The gradient of a parameter is cast to f32: that passes partial sums, so a plan chooses
 * whether ranks add up in 16 bits or in f32. With `gradients` f32 the ops that make gradients of
 * parameters give f32 themselves, and no sum over ranks is of 16 bits.
 *
 * f16 has loss scaling: the loss is multiplied by a state, DTP_LOSS_SCALE, before differentiation.
 * Updates take gradients times a factor, 1 / scale. The sum over all gradients says whether one of
 * them is not finite; then the factor is 0, which skips the updates, and the scale is halved. After
 * 2000 finite steps it is doubled.
 *
 * fp8: bf16, and products of an activation and a weight of a block read both in e4m3; products of
 * their gradients read the gradient of the result in e5m2, and what the forward pass quantized
 * (core/transform/quantize.h). Gradients pass a quantization as they are.
 *
 * The pass comes before recomputation and microbatches, which work on whatever types they find: a
 * recomputed block casts its parameters again, and accumulators have the type of the f32 gradients.
 */
#ifndef DTP_CORE_TRANSFORM_PRECISION_H
#define DTP_CORE_TRANSFORM_PRECISION_H

#include "core/graph/graph.h"
#include "core/transform/quantize.h"

#define DTP_LOSS_SCALE "loss_scale"
#define DTP_LOSS_SKIPPED "loss_scale.skipped" /* steps so far whose updates were skipped */

typedef struct dtp_precision {
    dtp_dtype compute;   /* DTP_F32: the graph as it is */
    dtp_dtype gradients; /* compute or DTP_F32 */
    bool tf32;           /* compute is DTP_F32: products of f32 operands round them to tf32 */
    dtp_scaling fp8; /* compute is DTP_BF16: products with weights of blocks read 8-bit floats */
} dtp_precision;

/* Whether it changes nothing. */
static inline bool dtp_precision_is_f32(const dtp_precision *p)
{
    return p->compute == DTP_F32 && !p->tf32;
}

/* Reads "f32", "tf32", "bf16", "f16", "fp8", "fp8_row", or one of the last four with
 * ",gradients=f32".
 * DTP_INVALID. */
dtp_status dtp_precision_parse(const char *text, dtp_precision *out, dtp_err *err) DTP_MUST_CHECK;

/* What products of a graph multiply in where that is not `compute`: "tf32", "fp8", "fp8_row"; NULL.
 * Static. */
const char *dtp_precision_products(const dtp_precision *p);
enum { DTP_PRECISION_TEXT_BYTES = 32 };
void dtp_precision_print(const dtp_precision *p, char out[DTP_PRECISION_TEXT_BYTES]);

/* A graph like g, whose nodes compute in p->compute; it borrows g->ops alone. g is as a model is
 * read: without recomputation or microbatches. DTP_INVALID when it has no f32 parameter; for tf32
 * one of f64, which a reference computes in, is one too; for fp8 when it has no such product. */
dtp_status dtp_graph_with_precision(const dtp_graph *g, const dtp_precision *p, dtp_graph **out,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
