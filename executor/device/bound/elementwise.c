/* Functions of elements, bound for any device. */
#include "executor/device/bound/elementwise.h"

#include <float.h>
#include <math.h>

double dtp_float_attr(const dtp_op_call *call, int32_t i)
{
    for (const dtp_attr_spec *s = call->op->attrs; s != NULL && s->key != NULL; s++) {
        if (s->kind == DTP_ATTR_FLOAT && i-- == 0) {
            const double v = dtp_call_float(call, s->key);
            return fabs(v) > (double)FLT_MAX ? copysign((double)INFINITY, v) : v;
        }
    }
    return 0.0;
}

void dtp_bind_elementwise(const dtp_kernel_args *args, dtp_bound_elementwise *out)
{
    const dtp_view *views[DTP_NEST_VIEWS] = {&args->out[0]};
    for (int32_t k = 0; k < args->call->n_in; k++) {
        views[k + 1] = &args->in[k];
    }
    dtp_nest_like(&out->nest, 1 + args->call->n_in, views);
    out->a = (float)dtp_float_attr(args->call, 0);
    out->b = (float)dtp_float_attr(args->call, 1);
}
