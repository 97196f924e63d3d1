/* Random values by global row-major element index (core/base/philox.h), bound for any device. */
#include "executor/device/bound/random.h"

#include <math.h>

void dtp_bind_random(const dtp_kernel_args *args, dtp_distribution distribution,
                     dtp_random_numbers *out, dtp_nest *nest)
{
    const dtp_op_call *call = args->call;
    const dtp_view *y = &args->out[0];
    int64_t sizes[DTP_NEST_DIMS], strides[2][DTP_NEST_DIMS], global = 1;
    *out = (dtp_random_numbers){.stream = (uint32_t)(uint64_t)dtp_call_int(call, "stream"),
                                .distribution = distribution,
                                .dtype = (int32_t)y->local.dtype};
    if (distribution == DTP_DROPOUT) {
        /* u and this bound are multiples of 2^-24: u >= rate exactly when u >= bound. */
        const double rate = dtp_call_float(call, "rate");
        out->at_least = (float)(ceil(rate * 0x1p24) * 0x1p-24);
        out->keep = (float)(1.0 / (1.0 - rate));
    } else {
        out->a = dtp_call_float(call, distribution == DTP_UNIFORM ? "low" : "mean");
        out->b = dtp_call_float(call, distribution == DTP_UNIFORM ? "high" : "stddev");
    }
    dtp_view_strides(y, strides[0]);
    for (int32_t i = y->local.rank - 1; i >= 0; i--) {
        sizes[i] = y->local.dims[i].size;
        strides[1][i] = global;
        global *= y->global[i];
    }
    dtp_nest_raw(nest, y->local.rank, sizes, 2, (const int64_t(*)[DTP_NEST_DIMS])strides);
}
