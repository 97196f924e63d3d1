/* The price of one node run in one way: it is lowered alone and its instructions are priced. */
#ifndef DTP_COST_MODELS_NODE_PRICE_H
#define DTP_COST_MODELS_NODE_PRICE_H

#include "cost_models/price_limit.h"
#include "spmd/redistribute/redistribute.h"

typedef struct dtp_node_price {
    int64_t cost_ps;      /* of a step: every microbatch; reductions that may wait for the last one
                           run once, those that are formed from parts as one */
    int64_t every_ps;     /* the same when nothing waits */
    int64_t kernel_ps;    /* of it, in kernels; the rest is communication inside the node */
    int64_t sure_bytes;   /* most bytes of staging, workspace and intermediates at one instruction,
                           without what may be written over something that dies */
    int64_t kernel_bytes; /* the same while kernels run: whatever the steps of redistributions */
    bool one_kernel;      /* it is one kernel and nothing else */
    bool fills;           /* ranges of operands are filled before the kernel, or pieces passed on */
} dtp_node_price;

/* Whether lowering says that a decision cannot be run. DTP_RANGE is not about the decision: a
 * number, of the machine or the model, is too large to plan with. */
static inline bool dtp_lowering_refuses(dtp_status s)
{
    return dtp_status_is_input(s) && s != DTP_RANGE;
}

typedef struct dtp_node_pricer dtp_node_pricer;

/* Borrows g, pricer and redistributor, who plans what moves inside the node. */
dtp_status dtp_node_pricer_create(const dtp_graph *g, const dtp_pricer *pricer,
                                  const dtp_redistributor *redistributor, dtp_node_pricer **out,
                                  dtp_err *err) DTP_MUST_CHECK;
void dtp_node_pricer_destroy(dtp_node_pricer *np);
/* From here on updates cost what they do where they share launches, as they may in a program of a
 * target that joins them: for bounds of such programs. */
void dtp_node_pricer_join(dtp_node_pricer *np);
/* Of all that was priced. */
const dtp_dearest *dtp_node_pricer_dearest(const dtp_node_pricer *np);

/* Operands arrive in in_layouts, results leave in out_layouts, or, where that is NULL, as the op
 * leaves them (cost_ps is every_ps then). dtp_lowering_refuses: the node cannot be run so.
 * DTP_RANGE: what it costs is beyond the limit of cost_models/price_limit.h. */
dtp_status dtp_node_pricer_price(dtp_node_pricer *np, dtp_node_id node,
                                 const dtp_strategy *strategy, const dtp_layout *in_layouts,
                                 const dtp_layout *out_layouts, dtp_node_price *out,
                                 dtp_err *err) DTP_MUST_CHECK;
/* The layout in which the node that was priced last has an output: as the op leaves it, where it
 * was priced so. A decomposition may reduce partial sums that the rules of the op leave. */
const dtp_layout *dtp_node_pricer_left(const dtp_node_pricer *np, dtp_node_id node, int32_t output);

#endif
