/* pool and pool_grad, bound for any device. */
#include "executor/device/bound/pool.h"

#include <string.h>

void dtp_bind_pool(const dtp_kernel_args *args, dtp_bound_pool *out)
{
    const dtp_pool_form f = dtp_pool_form_here(args);
    const bool grad = args->call->n_in == 2;
    const dtp_view *const views[] = {&args->out[0], &args->in[0], grad ? &args->in[1] : NULL};
    const dtp_ttype *x = &args->in[0].local;
    dtp_tdim rows[DTP_MAX_RANK];
    int32_t n = 0;
    memset(out, 0, sizeof *out);
    out->max = f.max;
    out->inside = f.inside;
    out->grad = grad;
    out->taps = out->places = out->elems = out->results = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        bool spatial = false;
        for (int32_t k = 0; k < f.n; k++) {
            spatial = spatial || f.axis[k].spatial == x->dims[i].id;
        }
        if (!spatial) {
            rows[n++] = x->dims[i];
        }
    }
    dtp_nest_make(&out->rows, n, rows, grad ? 3 : 2, views);
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const int32_t k = i - (DTP_CONV_AXES - f.n);
        dtp_conv_axis *a = &out->axis[i];
        *a = k >= 0 ? f.axis[k] : (dtp_conv_axis){-1, -1, 1, 1, 1, 1, 1, 0};
        for (int32_t v = 0; k >= 0 && v < (grad ? 3 : 2); v++) {
            out->step[v][i] = dtp_view_stride(views[v], a->spatial);
        }
        out->kept[i] = k >= 0 ? f.kept[k] : 1;
        out->first[i] = k >= 0 ? f.first[k] : 0;
        out->results *= out->kept[i];
        out->taps *= a->size;
        out->places *= a->out;
        out->elems *= a->in;
    }
}
