/* Dynamic loss scaling (core/transform/precision.h), the same on every backend. */
#include "executor/device/loss_scale.h"

#include <math.h>

void dtp_loss_scale_next(const dtp_op_call *call, const double in[4], double out[4])
{
    const bool finite = isfinite(in[3]) != 0;
    const bool grows = finite && in[1] + 1.0 >= (double)dtp_call_int(call, "interval");
    out[0] = in[0] * (!finite ? dtp_call_float(call, "backoff")
                      : grows ? dtp_call_float(call, "growth")
                              : 1.0);
    out[1] = finite && !grows ? in[1] + 1.0 : 0.0;
    out[2] = in[2] + (finite ? 0.0 : 1.0);
    out[3] = finite ? 1.0 / in[0] : 0.0;
}
