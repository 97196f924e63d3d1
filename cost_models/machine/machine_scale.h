/* A machine with one of its rates or delays scaled: what sensitivity asks about. */
#ifndef DTP_COST_MODELS_MACHINE_SCALE_H
#define DTP_COST_MODELS_MACHINE_SCALE_H

#include "cost_models/machine/machine.h"

typedef enum dtp_machine_quantity {
    DTP_MACHINE_FLOPS,         /* FLOP rates of all dtypes, measured GEMMs */
    DTP_MACHINE_MEM_BW,        /* memory bandwidth, measured memory-bound ops */
    DTP_MACHINE_LAUNCH,        /* launch time of a kernel */
    DTP_MACHINE_LEVEL_BW,      /* bandwidth of a network level: transfers of collectives */
    DTP_MACHINE_LEVEL_LATENCY, /* latency of a network level: starts of collectives */
    DTP_MACHINE_MEMORY,        /* bytes of a device */
    DTP_MACHINE_LEVEL_SIZE     /* members of a network level */
} dtp_machine_quantity;

typedef struct dtp_machine_param {
    dtp_machine_quantity quantity;
    int32_t level; /* of LEVEL_* */
    const char
        *name;    /* "flops", "memory.bandwidth", "launch", "nvlink.bandwidth", "nvlink.latency" */
    double value; /* as the machine has it; 1 where many numbers are scaled together */
} dtp_machine_param;

/* Rates and delays that can be scaled, from `arena`: levels of one member and zero values are left
 * out. */
dtp_status dtp_machine_params(const dtp_machine *m, dtp_arena *arena, int32_t *n,
                              dtp_machine_param **out, dtp_err *err) DTP_MUST_CHECK;

/* A copy in which the rate or size is `factor` times as high, or the delay `factor` times as long.
 * DTP_INVALID where a file of a machine could not have the number. */
dtp_status dtp_machine_scaled(const dtp_machine *m, const dtp_machine_param *param, double factor,
                              dtp_machine **out, dtp_err *err) DTP_MUST_CHECK;

/* Makes the machine the one on which nothing is recorded: launch_graph_s is not stated, and no op
 * or copy takes less than launch_s. Nothing where launch_graph_s is not stated. */
dtp_status dtp_machine_unrecorded(dtp_machine *m, dtp_err *err) DTP_MUST_CHECK;

#endif
