/* What a number of a machine may be. */
#include "cost_models/machine/machine.h"

#include "core/base/json.h"

/* The memory of a whole supercomputer computes at 1e18 FLOP/s and is read at 1e17 B/s; a link of 1
 * B/s and a device of 1 FLOP/s are slower than any. A message to the Moon and back takes 3 s. */
static const dtp_machine_range RANGES[DTP_N_NUMBERS] = {
    [DTP_NUMBER_MEMORY] = {"bytes", 1.0, 9007199254740992.0},
    [DTP_NUMBER_BW] = {"B/s", 1.0, 1e18},
    [DTP_NUMBER_FLOPS] = {"FLOP/s", 1.0, 1e21},
    [DTP_NUMBER_DELAY] = {"s", 0.0, 1000.0},
    [DTP_NUMBER_SLOWDOWN] = {"times", 1.0, 100.0},
    [DTP_NUMBER_SIZE] = {"bytes", 1.0, 9007199254740992.0},
    [DTP_NUMBER_TIME] = {"s", 1e-15, 10000.0},
    [DTP_NUMBER_FIT_ERROR] = {"times", 0.0, 1e24},
    [DTP_NUMBER_SHARE] = {"times the peak", 0.001, 2.0},
    [DTP_NUMBER_RAMP] = {"bytes", 0.0, 9007199254740992.0},
    [DTP_NUMBER_SWITCHED] = {"bytes for each byte", 1.0, DTP_NO_SWITCH},
    [DTP_NUMBER_EXTRA] = {"more", 0.0, 1e6},
    [DTP_NUMBER_SKEW] = {"of compute", 0.0, 1.0},
};

const dtp_machine_range *dtp_machine_range_of(dtp_machine_number kind)
{
    return &RANGES[kind];
}

bool dtp_machine_in_range(dtp_machine_number kind, double value)
{
    return value >= RANGES[kind].least && value <= RANGES[kind].most;
}

dtp_status dtp_machine__read_number(const dtp_json *v, dtp_machine_number number, double *out,
                                    dtp_err *err)
{
    DTP_TRY(dtp_json_double(v, out, err));
    if (!dtp_machine_in_range(number, *out)) {
        const dtp_machine_range *r = dtp_machine_range_of(number);
        return dtp_json_fail(v, err, "expected a number in [%g, %g] %s, found %g", r->least,
                             r->most, r->unit, *out);
    }
    return DTP_OK;
}
