/* What the numbers of a machine may be (docs/formats/machine.md). Wide enough for every machine
 * there is, narrow enough that a price is a time that somebody would wait for, or is found not to
 * be one (cost_models/price_limit.h). */
#ifndef DTP_COST_MODELS_MACHINE_RANGE_H
#define DTP_COST_MODELS_MACHINE_RANGE_H

#include <stdbool.h>

typedef struct dtp_machine_range {
    const char *unit;
    double least, most;
} dtp_machine_range;

typedef enum dtp_machine_number {
    DTP_NUMBER_MEMORY,    /* bytes of a device */
    DTP_NUMBER_BW,        /* B/s, of memory or of a link */
    DTP_NUMBER_FLOPS,     /* FLOP/s */
    DTP_NUMBER_DELAY,     /* s, of a launch or a message */
    DTP_NUMBER_SLOWDOWN,  /* factor */
    DTP_NUMBER_SIZE,      /* bytes of a point of a curve */
    DTP_NUMBER_TIME,      /* s, of a point of a curve */
    DTP_NUMBER_FIT_ERROR, /* relative */
    DTP_N_NUMBERS
} dtp_machine_number;

const dtp_machine_range *dtp_machine_range_of(dtp_machine_number kind);
/* False for NaN. */
bool dtp_machine_in_range(dtp_machine_number kind, double value);

#endif
