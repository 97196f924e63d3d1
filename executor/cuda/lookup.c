/* embedding, gather, their gradient scatter_add, and one_hot. */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/lookup.h"

/* ---- gather ---- */

static dtp_status gather_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    const dtp_view rest = dtp_view_without(&args->in[0], dtp_call_dim(args->call, "over"));
    const dtp_view *views[] = {&args->out[0], &args->in[1], &rest};
    dtp_cuda_nest *device;
    dtp_nest nest;
    DTP_STATE(arena, state, device, err);
    dtp_nest_like(&nest, 3, views);
    return dtp_cuda_nest_of(&nest, device, err);
}

/* Whether elements of out and x may be moved in words of so many elements. */
static bool in_words(const dtp_cuda_nest *nest, const dtp_bound_ids *ids, int64_t elems)
{
    const int32_t last = nest->rank - 1;
    bool fits = nest->size[last] % elems == 0 && nest->stride[0][last] == 1 &&
                nest->stride[1][last] == 0 && nest->stride[2][last] == 1 &&
                ids->stride % elems == 0;
    for (int32_t i = 0; i < last; i++) {
        fits = fits && nest->stride[0][i] % elems == 0 && nest->stride[2][i] % elems == 0;
    }
    return fits;
}

static dtp_status gather_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0], *out = &args->out[0];
    const int64_t bytes = dtp_dtype_bytes(x->local.dtype);
    const uintptr_t both = (uintptr_t)x->data | (uintptr_t)out->data;
    dtp_cuda_nest nest = *(const dtp_cuda_nest *)args->state;
    dtp_bound_ids ids = dtp_bind_ids(args, 1, x, dtp_call_dim(args->call, "over"));
    int64_t elems = 16 / bytes;
    while (elems > 1 && (!in_words(&nest, &ids, elems) || both % (uintptr_t)(elems * bytes) != 0)) {
        elems /= 2;
    }
    const int32_t last = nest.rank - 1;
    for (int32_t i = 0; i < last; i++) {
        nest.stride[0][i] /= elems;
        nest.stride[2][i] /= elems;
    }
    nest.size[last] /= elems;
    nest.total /= elems;
    ids.stride /= elems;
    if (nest.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_gather_run(dtp_cuda_stream(args), &nest, &ids,
                                              (int32_t)(elems * bytes), out->data, x->data));
    }
    return DTP_OK;
}

/* ---- sums by id ---- */

/* The loop over all ids. Dims of ids that the result keeps number the groups. */
static dtp_status bind_items(dtp_cuda_scatter_call *c, const dtp_kernel_args *args, dtp_dim_id over,
                             dtp_err *err)
{
    const dtp_view *ids = &args->in[0], *out = &args->out[0], rest = dtp_view_without(out, over);
    const int32_t n = ids->local.rank;
    int64_t sizes[DTP_NEST_DIMS], strides[DTP_CUDA_SCATTER_VIEWS][DTP_NEST_DIMS];
    int64_t groups = 1;
    dtp_nest nest;
    dtp_view_strides(ids, strides[DTP_CUDA_SCATTER_ITEMS]);
    for (int32_t i = n - 1; i >= 0; i--) {
        const dtp_tdim d = ids->local.dims[i];
        const bool kept = dtp_ttype_find(&rest.local, d.id) >= 0;
        sizes[i] = d.size;
        strides[DTP_CUDA_SCATTER_SRC][i] = dtp_view_stride(&args->in[1], d.id);
        strides[DTP_CUDA_SCATTER_OUT][i] = dtp_view_stride(&rest, d.id);
        strides[DTP_CUDA_SCATTER_GROUP][i] = kept ? groups : 0;
        groups *= kept ? d.size : 1;
    }
    const int64_t local = dtp_ttype_size(&out->local, over), most = (int64_t)UINT32_MAX - 1;
    if (dtp_ttype_elems(&ids->local) > INT32_MAX || (groups > 0 && local > most / groups)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: %lld ids for %lld x %lld sums, at most %d and %lld",
                        (long long)dtp_ttype_elems(&ids->local), (long long)groups,
                        (long long)local, INT32_MAX, (long long)most);
    }
    dtp_nest_raw(&nest, n, sizes, DTP_CUDA_SCATTER_VIEWS, (const int64_t(*)[DTP_NEST_DIMS])strides);
    return dtp_cuda_nest_of(&nest, &c->items, err);
}

static dtp_status scatter_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const dtp_view *src = &args->in[1], rest = dtp_view_without(&args->out[0], over);
    const dtp_view *views[] = {src, &rest};
    dtp_tdim dims[DTP_MAX_RANK];
    dtp_cuda_scatter_call *c;
    dtp_nest nest;
    int32_t n = 0;
    DTP_STATE(arena, state, c, err);
    for (int32_t i = 0; i < src->local.rank; i++) {
        if (dtp_ttype_find(&args->in[0].local, src->local.dims[i].id) < 0) {
            dims[n++] = src->local.dims[i];
        }
    }
    dtp_nest_make(&nest, n, dims, 2, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &c->rest, err));
    c->src_dtype = (int32_t)src->local.dtype;
    c->out_dtype = (int32_t)args->out[0].local.dtype;
    c->out_bytes = dtp_ttype_bytes(&args->out[0].local);
    return bind_items(c, args, over, err);
}

static dtp_status scatter_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_bound_ids ids =
        dtp_bind_ids(args, 0, &args->out[0], dtp_call_dim(args->call, "over"));
    DTP_CUDA_TRY(err, dtp_cuda_scatter_run(dtp_cuda_stream(args), args->state, &ids,
                                           args->out[0].data, args->in[1].data, args->workspace));
    return DTP_OK;
}

/* ---- one_hot ---- */

static dtp_status one_hot_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t sizes[DTP_NEST_DIMS], strides[3][DTP_NEST_DIMS];
    dtp_cuda_nest *device;
    dtp_nest nest;
    DTP_STATE(arena, state, device, err);
    dtp_view_strides(y, strides[0]);
    for (int32_t i = 0; i < y->local.rank; i++) {
        const dtp_tdim d = y->local.dims[i];
        sizes[i] = d.size;
        strides[1][i] = dtp_view_stride(&args->in[0], d.id);
        strides[2][i] = d.id == dim ? 1 : 0;
    }
    dtp_nest_raw(&nest, y->local.rank, sizes, 3, (const int64_t(*)[DTP_NEST_DIMS])strides);
    return dtp_cuda_nest_of(&nest, device, err);
}

static dtp_status one_hot_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const dtp_cuda_nest *nest = args->state;
    const dtp_bound_ids ids = dtp_bind_ids(args, 0, y, dtp_call_dim(args->call, "dim"));
    if (nest->total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_one_hot_run(dtp_cuda_stream(args), nest, &ids,
                                               (int32_t)y->local.dtype,
                                               (float)dtp_call_float(args->call, "on"),
                                               (float)dtp_call_float(args->call, "off"), y->data));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_lookup[] = {{"embedding", gather_kernel, gather_bind, DTP_NUMBERS},
                                      {"embedding_grad", scatter_kernel, scatter_bind, DTP_NUMBERS},
                                      {"gather", gather_kernel, gather_bind, 0},
                                      {"scatter_add", scatter_kernel, scatter_bind, DTP_NUMBERS},
                                      {"one_hot", one_hot_kernel, one_hot_bind, DTP_NUMBERS},
                                      {.op = NULL}};
