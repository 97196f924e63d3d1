#include "core/graph/ops/attention_dims.h"

#include <math.h>
#include <string.h>

int64_t dtp_attention_size(const dtp_ttype *type, dtp_dim_id d)
{
    int32_t axis = dtp_ttype_find(type, d);
    return axis < 0 ? 1 : type->dims[axis].size;
}

dtp_attention_dims dtp_attention_dims_of(const dtp_op_call *call)
{
    dtp_attention_dims a = {.query = dtp_call_dim(call, "query"),
                            .key = dtp_call_dim(call, "key"),
                            .feature = dtp_call_dim(call, "feature"),
                            .value = dtp_call_dim(call, "value"),
                            .chunk = -1,
                            .causal = dtp_call_int(call, "causal") != 0,
                            .scale = dtp_call_float(call, "scale")};
    a.key = a.key < 0 ? a.query : a.key;
    a.value = a.value < 0 ? a.feature : a.value;
    if (a.scale == 0.0) {
        a.scale = 1.0 / sqrt((double)dtp_attention_size(&call->in[0], a.feature));
    }
    for (int32_t i = 0; i < call->n_attrs; i++) {
        if (strcmp(call->attrs[i].key, "chunk") == 0) {
            a.packed = true;
            a.chunk = (dtp_dim_id)call->attrs[i].i;
            a.shift = dtp_call_int(call, "shift");
        }
    }
    return a;
}

int64_t dtp_attention_features(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return dtp_attention_size(&call->in[0], a->feature);
}

int64_t dtp_attention_values(const dtp_op_call *call, const dtp_attention_dims *a)
{
    return a->packed
               ? dtp_attention_size(&call->in[1], a->feature) - dtp_attention_features(call, a)
               : dtp_attention_size(&call->in[2], a->value);
}

int64_t dtp_attention_tile_elems(int64_t feature, int64_t value)
{
    const int64_t q = DTP_ATTENTION_QUERIES, k = DTP_ATTENTION_KEYS;
    return 2 * q * k + 2 * (q + k) * (feature + value) + 4 * q;
}
