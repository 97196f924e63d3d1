/* Rotation of feature pairs (j, j + f/2) by their position, bound for any device. */
#include "executor/device/bound/rope.h"

void dtp_bind_rope(const dtp_kernel_args *args, dtp_rope_numbers *out, dtp_nest *rest)
{
    const dtp_view *x = &args->in[0], *views[] = {x, &args->out[0]};
    const dtp_dim_id position = dtp_call_dim(args->call, "position");
    const dtp_dim_id feature = dtp_call_dim(args->call, "feature");
    dtp_tdim dims[DTP_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < x->local.rank; i++) {
        if (x->local.dims[i].id != position && x->local.dims[i].id != feature) {
            dims[n++] = x->local.dims[i];
        }
    }
    dtp_nest_make(rest, n, dims, 2, views);
    *out = (dtp_rope_numbers){
        .position = {dtp_view_stride(x, position), dtp_view_stride(views[1], position)},
        .feature = {dtp_view_stride(x, feature), dtp_view_stride(views[1], feature)},
        .positions = dtp_ttype_size(&x->local, position),
        .half = dtp_ttype_size(&x->local, feature) / 2,
        .first = dtp_view_offset(x, position),
        .offset = dtp_call_int(args->call, "offset"),
        .order = dtp_sequence_of(args->call, dtp_view_global(x, position)),
        .rates = dtp_rope_rates_of(args->call, dtp_ttype_size(&x->local, feature) / 2),
        .amplitude = dtp_call_float(args->call, "amplitude"),
        .sign = dtp_call_int(args->call, "inverse") != 0 ? -1.0 : 1.0,
        .dtype = (int32_t)x->local.dtype};
}
