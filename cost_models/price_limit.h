/* Prices as integer picoseconds that add up exactly.
 *
 * A step that takes DTP_COST_LIMIT_PS or more (1e6 s, 11 days) cannot be planned: sums of prices
 * are kept below it, so that they fit into 64 bits with three bits to spare. A price that does not
 * fit is DTP_RANGE; the message names the machine file, its key that causes most of the dearest
 * price, and the node of that price. */
#ifndef DTP_COST_MODELS_PRICE_LIMIT_H
#define DTP_COST_MODELS_PRICE_LIMIT_H

#include "cost_models/price.h"

#define DTP_COST_LIMIT_PS INT64_C(1000000000000000000)

/* The dearest instruction priced so far, for the message. Start: {0}. */
typedef struct dtp_dearest {
    double time_s;
    const char *node; /* its name, of the program's graph; NULL = none */
    const char *what; /* op, collective or kind of copy; static storage */
    char key[64];     /* of the machine file */
    double value;     /* of the key; 0 = a list of measurements */
} dtp_dearest;

/* Sets instr->time_s to the price of an instruction (dtp_price_instr) and *ps to it in picoseconds,
 * rounded to nearest; DTP_RANGE at the limit. */
dtp_status dtp_price_instr_ps(const dtp_pricer *pricer, const dtp_program *p, dtp_instr *instr,
                              dtp_dearest *dearest, int64_t *ps, dtp_err *err) DTP_MUST_CHECK;

/* The same of all instructions; *ps is the sum of a step, in which those of microbatches run
 * several times. */
dtp_status dtp_program_price(const dtp_pricer *pricer, dtp_program *p, dtp_dearest *dearest,
                             int64_t *ps, dtp_err *err) DTP_MUST_CHECK;

/* *sum += ps * times; false, *sum unchanged, when that is no longer below the limit. None of them
 * is negative. */
bool dtp_cost_add(int64_t *sum, int64_t ps, int64_t times);

/* DTP_RANGE: the sum of some prices is not below the limit. */
dtp_status dtp_cost_fail(const dtp_pricer *pricer, const dtp_dearest *dearest, dtp_err *err);

#endif
