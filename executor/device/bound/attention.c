/* Attention and its gradient, bound for any device: sizes, heads, places of keys, matrices. */
#include "executor/device/bound/attention.h"

#include <string.h>

static void set_chunks(dtp_bound_attention *b, const dtp_kernel_args *args,
                       const dtp_attention_dims *d)
{
    const dtp_view *q = &args->in[0], *k = &args->in[1];
    dtp_attention_shape *s = &b->shape;
    int64_t keys = k->global[dtp_ttype_find(&k->local, d->key)];
    s->chunks = s->local_chunks = 1;
    if (d->chunk >= 0) {
        int32_t axis = dtp_ttype_find(&q->local, d->chunk);
        s->chunks = q->global[axis];
        s->first_chunk = q->offset[axis];
        s->local_chunks = q->local.dims[axis].size;
        b->shared_dims[b->n_shared++] = q->local.dims[axis];
    }
    s->order = dtp_sequence_of(args->call, s->chunks * keys);
    s->ahead = s->chunks * (keys - s->global_queries);
}

static void set_shape(dtp_bound_attention *b, const dtp_kernel_args *args,
                      const dtp_attention_dims *d)
{
    const dtp_view *q = &args->in[0], *k = &args->in[1];
    dtp_attention_shape *s = &b->shape;
    int32_t at = dtp_ttype_find(&q->local, d->query);
    s->queries = q->local.dims[at].size;
    s->first_query = q->offset[at];
    s->global_queries = q->global[at];
    s->keys = dtp_ttype_size(&k->local, d->key);
    s->features = dtp_attention_features(args->call, d);
    s->values = dtp_attention_values(args->call, d);
    s->shift = d->shift;
    s->scale = d->scale;
    s->causal = d->causal;
    set_chunks(b, args, d);
    for (int32_t i = 0; i < q->local.rank; i++) {
        dtp_tdim dim = q->local.dims[i];
        if (dim.id == d->query || dim.id == d->feature || dim.id == d->chunk) {
            continue;
        }
        if (dtp_ttype_find(&k->local, dim.id) >= 0) {
            b->shared_dims[b->n_shared++] = dim;
        } else {
            b->grouped_dims[b->n_grouped++] = dim;
        }
    }
}

static dtp_attention_mat mat_of(const dtp_view *view, dtp_dim_id row, dtp_dim_id col)
{
    return (dtp_attention_mat){view->data, view->local.dtype, dtp_view_stride(view, row),
                               dtp_view_stride(view, col), dtp_ttype_size(&view->local, col)};
}

/* The matrices of k and v: two operands, or the two ends of the feature dim of one. */
static void kv_mats(const dtp_attention_shape *s, const dtp_attention_dims *d, const dtp_view *k,
                    const dtp_view *v, dtp_attention_mat *k_mat, dtp_attention_mat *v_mat)
{
    *k_mat = mat_of(k, d->key, d->feature);
    if (!d->packed) {
        *v_mat = mat_of(v, d->key, d->value);
        return;
    }
    *v_mat = *k_mat;
    k_mat->cols = s->features;
    v_mat->cols = s->values;
    v_mat->data =
        (char *)v_mat->data + s->features * v_mat->col_step * dtp_dtype_bytes(k->local.dtype);
}

void dtp_bind_attention(const dtp_kernel_args *args, bool grad, dtp_bound_attention *b)
{
    const dtp_attention_shape *s = &b->shape;
    const dtp_attention_dims dims = dtp_attention_dims_of(args->call), *d = &dims;
    const dtp_view *in = args->in, *out = args->out;
    memset(b, 0, sizeof *b);
    set_shape(b, args, d);
    const dtp_view *k = &in[1], *v = d->packed ? k : &in[2];
    const dtp_view *of_query = grad ? &v[1] : out; /* out, lse and, of the gradient, dout */
    const dtp_view *mask = d->mask < 0 ? v : &in[d->mask];
    const dtp_view *views[] = {&in[0], k, v, &of_query[0], &of_query[1], mask, &of_query[2], out};
    b->n_views = grad ? DTP_ATTENTION_VIEWS : DTP_ATTENTION_DOUT;
    memcpy(b->views, views, sizeof views);
    b->mats.q = mat_of(&in[0], d->query, d->feature);
    kv_mats(s, d, k, v, &b->mats.k, &b->mats.v);
    b->mats.out = mat_of(&of_query[0], d->query, d->value);
    b->mats.lse = of_query[1].data;
    b->mats.lse_step = dtp_view_stride(&of_query[1], d->query);
    if (d->mask >= 0) {
        b->mats.mask = mat_of(mask, d->query, d->key);
    }
    if (grad) {
        b->mats.dout = mat_of(&of_query[2], d->query, d->value);
        b->mats.dq = mat_of(&out[0], d->query, d->feature);
        kv_mats(s, d, &out[1], d->packed ? &out[1] : &out[2], &b->mats.dk, &b->mats.dv);
    }
    dtp_nest_make(&b->shared, b->n_shared, b->shared_dims, b->n_views, b->views);
    dtp_nest_make(&b->grouped, b->n_grouped, b->grouped_dims, b->n_views, b->views);
}

void dtp_bind_attention_merge(const dtp_kernel_args *args, dtp_nest *rows, dtp_nest *values)
{
    const dtp_view *in = args->in, *out = args->out;
    const dtp_view *views[] = {&in[0], &in[2], &out[0], &in[1], &in[3], &out[1]};
    dtp_tdim rest[DTP_MAX_RANK];
    int32_t n_rest = 0;
    for (int32_t i = 0; i < out[0].local.rank; i++) {
        if (dtp_ttype_find(&out[1].local, out[0].local.dims[i].id) < 0) {
            rest[n_rest++] = out[0].local.dims[i];
        }
    }
    dtp_nest_make(rows, out[1].local.rank, out[1].local.dims, 6, views);
    dtp_nest_make(values, n_rest, rest, 6, views);
}
