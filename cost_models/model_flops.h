/* What a training step of a model computes, whatever its layouts, recomputation or kernels: what
 * tokens per second and MFU are of (docs/cost-model.md, "Tokens and MFU").
 */
#ifndef DTP_COST_MODELS_MODEL_FLOPS_H
#define DTP_COST_MODELS_MODEL_FLOPS_H

#include "core/transform/precision.h"
#include "cost_models/machine/machine.h"

typedef struct dtp_model_flops {
    int64_t
        tokens; /* of a step: the most ids by which an op looks rows up in a parameter; 0: none */
    /* Forward and backward pass of a step: 6 for every number of a parameter that a product
     * multiplies and token, 12 for query, key and feature of attention, of causal attention too. Of
     * the parameters of experts the tokens are those that top k sends to them. 4 for a number of a
     * frozen parameter; a third of all where no gradient flows through a node. */
    double flops;
    /* The same of slots of experts that no token is sent to, which are multiplied too. */
    double vain;
} dtp_model_flops;

/* `model` is the graph as it was read: without microbatches, recomputation and precision. */
dtp_model_flops dtp_model_flops_of(const dtp_graph *model);

/* Model FLOPs utilisation: FLOPs of a step over what `devices` compute at their peak in it.
 * `arithmetic` is that of the products. 0 where the machine states no such peak. */
double dtp_mfu(const dtp_model_flops *of, const dtp_machine *machine, dtp_arithmetic arithmetic,
               int32_t devices, double step_s);

/* Tokens per second, MFU and what is in vain of a predicted step in this precision. */
void dtp_predict_throughput(const dtp_graph *model, const dtp_machine *machine,
                            const dtp_precision *precision, int32_t devices, dtp_prediction *out);

#endif
