/* What a program costs, split by what for: the work of the ops, the communication inside ops, and
 * the redistributions between the layouts of tensors. */
#ifndef DTP_COST_MODELS_COST_SPLIT_H
#define DTP_COST_MODELS_COST_SPLIT_H

#include "cost_models/price.h"

/* Picoseconds. */
typedef struct dtp_cost_split {
    int64_t compute;
    int64_t communication;  /* collectives and copies of an op that runs as its decomposition */
    int64_t redistribution; /* collectives and copies that bring a tensor to another layout */
} dtp_cost_split;

int64_t dtp_cost_split_sum(const dtp_cost_split *c);

/* Prices p (dtp_price_instr_ps). by_node: room for every node of the program's graph. What no node
 * caused is in *total alone. For a program without passes *total is the additive cost
 * (cost_models/predict.h). */
dtp_status dtp_cost_split_program(const dtp_pricer *pricer, dtp_program *p, dtp_arena *scratch,
                                  dtp_cost_split *by_node, dtp_cost_split *total,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
