#include "executor/device/attention_shape.h"

#include <string.h>

static void set_chunks(dtp_attention_shape *s, const dtp_kernel_args *args)
{
    const dtp_view *q = &args->in[0], *k = &args->in[1];
    int64_t keys = k->global[dtp_ttype_find(&k->local, s->dims.key)];
    s->chunks = s->local_chunks = 1;
    if (s->dims.chunk >= 0) {
        int32_t axis = dtp_ttype_find(&q->local, s->dims.chunk);
        s->chunks = q->global[axis];
        s->first_chunk = q->offset[axis];
        s->local_chunks = q->local.dims[axis].size;
        s->shared[s->n_shared++] = q->local.dims[axis];
    }
    s->order = dtp_sequence_of(args->call, s->chunks * keys);
    s->ahead = s->chunks * (keys - s->global_queries);
}

void dtp_attention_shape_of(dtp_attention_shape *s, const dtp_kernel_args *args)
{
    const dtp_view *q = &args->in[0], *k = &args->in[1];
    memset(s, 0, sizeof *s);
    s->dims = dtp_attention_dims_of(args->call);
    int32_t at = dtp_ttype_find(&q->local, s->dims.query);
    s->queries = q->local.dims[at].size;
    s->first_query = q->offset[at];
    s->global_queries = q->global[at];
    s->keys = dtp_ttype_size(&k->local, s->dims.key);
    s->features = dtp_attention_features(args->call, &s->dims);
    s->values = dtp_attention_values(args->call, &s->dims);
    set_chunks(s, args);
    for (int32_t i = 0; i < q->local.rank; i++) {
        dtp_tdim dim = q->local.dims[i];
        if (dim.id == s->dims.query || dim.id == s->dims.feature || dim.id == s->dims.chunk) {
            continue;
        }
        if (dtp_ttype_find(&k->local, dim.id) >= 0) {
            s->shared[s->n_shared++] = dim;
        } else {
            s->grouped[s->n_grouped++] = dim;
        }
    }
}
