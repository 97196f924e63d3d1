/* Loop nests: construction. */
#include "executor/device/nest.h"

#include <string.h>

void dtp_view_strides(const dtp_view *view, int64_t strides[DTP_MAX_RANK])
{
    int64_t s = 1;
    for (int32_t i = view->local.rank - 1; i >= 0; i--) {
        strides[i] = s;
        s *= view->local.dims[i].size;
    }
}

int64_t dtp_view_stride(const dtp_view *view, dtp_dim_id id)
{
    int64_t strides[DTP_MAX_RANK];
    int32_t at = dtp_ttype_find(&view->local, id);
    if (at < 0) {
        return 0;
    }
    dtp_view_strides(view, strides);
    return strides[at];
}

/* Whether dim i + 1 continues dim `last` of the nest in every view. */
static bool merges(const dtp_nest *nest, int32_t last, int64_t size,
                   const int64_t (*strides)[DTP_NEST_DIMS], int32_t i)
{
    for (int32_t v = 0; v < nest->n_views; v++) {
        if (nest->stride[v][last] != strides[v][i] * size) {
            return false;
        }
    }
    return true;
}

void dtp_nest_raw(dtp_nest *nest, int32_t n_dims, const int64_t *sizes, int32_t n_views,
                  const int64_t (*strides)[DTP_NEST_DIMS])
{
    memset(nest, 0, sizeof *nest);
    nest->n_views = n_views;
    for (int32_t i = 0; i < n_dims; i++) {
        int32_t r = nest->rank;
        if (sizes[i] == 1) {
            continue;
        }
        if (r > 0 && merges(nest, r - 1, sizes[i], strides, i)) {
            r--;
            nest->size[r] *= sizes[i];
        } else {
            nest->size[r] = sizes[i];
            nest->rank++;
        }
        for (int32_t v = 0; v < n_views; v++) {
            nest->stride[v][r] = strides[v][i];
        }
    }
    if (nest->rank == 0) {
        nest->rank = 1;
        nest->size[0] = 1;
        for (int32_t v = 0; v < n_views; v++) {
            nest->stride[v][0] = 1;
        }
    }
    nest->inner = nest->size[nest->rank - 1];
    nest->rows = 1;
    for (int32_t i = 0; i + 1 < nest->rank; i++) {
        nest->rows *= nest->size[i];
    }
}

void dtp_nest_make(dtp_nest *nest, int32_t n_dims, const dtp_tdim *dims, int32_t n_views,
                   const dtp_view *const *views)
{
    int64_t sizes[DTP_NEST_DIMS], strides[DTP_NEST_VIEWS][DTP_NEST_DIMS];
    for (int32_t i = 0; i < n_dims; i++) {
        sizes[i] = dims[i].size;
        for (int32_t v = 0; v < n_views; v++) {
            strides[v][i] = dtp_view_stride(views[v], dims[i].id);
        }
    }
    dtp_nest_raw(nest, n_dims, sizes, n_views, (const int64_t(*)[DTP_NEST_DIMS])strides);
}

void dtp_nest_like(dtp_nest *nest, int32_t n_views, const dtp_view *const *views)
{
    dtp_nest_make(nest, views[0]->local.rank, views[0]->local.dims, n_views, views);
}

static void offsets(const dtp_nest *nest, int32_t rank, int64_t index, int64_t off[DTP_NEST_VIEWS])
{
    for (int32_t v = 0; v < nest->n_views; v++) {
        off[v] = 0;
    }
    for (int32_t i = rank - 1; i >= 0 && index != 0; i--) {
        int64_t at = i == 0 ? index : index % nest->size[i];
        index = i == 0 ? 0 : index / nest->size[i];
        for (int32_t v = 0; v < nest->n_views; v++) {
            off[v] += at * nest->stride[v][i];
        }
    }
}

void dtp_nest_row(const dtp_nest *nest, int64_t row, int64_t off[DTP_NEST_VIEWS])
{
    offsets(nest, nest->rank - 1, row, off);
}

void dtp_nest_elem(const dtp_nest *nest, int64_t index, int64_t off[DTP_NEST_VIEWS])
{
    offsets(nest, nest->rank, index, off);
}

/* ---- dims of views ---- */

void dtp_view_split(const dtp_op_call *call, const char *key, const dtp_view *x, dtp_view_over *out)
{
    const dtp_attr *attr = dtp_call_attr(call, key);
    memset(out, 0, sizeof *out);
    out->count = 1;
    out->global_count = 1;
    for (int32_t i = 0; i < x->local.rank; i++) {
        dtp_tdim dim = x->local.dims[i];
        bool over = attr->kind == DTP_ATTR_DIM && attr->i == dim.id;
        for (int32_t k = 0; attr->kind == DTP_ATTR_DIMS && k < attr->n; k++) {
            over = over || attr->ids[k] == dim.id;
        }
        if (over) {
            out->over[out->n_over++] = dim;
            out->count *= dim.size;
            out->global_count *= x->global[i];
        } else {
            out->rows[out->n_rows++] = dim;
        }
    }
}

int64_t dtp_view_offset(const dtp_view *view, dtp_dim_id dim)
{
    int32_t at = dtp_ttype_find(&view->local, dim);
    return at < 0 ? 0 : view->offset[at];
}

int64_t dtp_view_global(const dtp_view *view, dtp_dim_id dim)
{
    int32_t at = dtp_ttype_find(&view->local, dim);
    return at < 0 ? 1 : view->global[at];
}

int64_t dtp_view_global_rows(const dtp_view *view, int32_t n, const dtp_tdim *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < n; i++) {
        count *= dtp_view_global(view, dims[i].id);
    }
    return count;
}
