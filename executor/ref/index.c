/* Index loops over named dims for the reference kernels. */
#include "executor/ref/index.h"

#include <math.h>
#include <assert.h>
#include <string.h>

#include "executor/device/convert.h"

static int32_t find(const dtp_ref_loop *loop, dtp_dim_id d)
{
    for (int32_t i = 0; i < loop->n; i++) {
        if (loop->id[i] == d) {
            return i;
        }
    }
    return -1;
}

static void add_dim(dtp_ref_loop *loop, dtp_dim_id d, int64_t size)
{
    assert(loop->n < DTP_MAX_OP_DIMS);
    loop->id[loop->n] = d;
    loop->size[loop->n] = size;
    loop->at[loop->n++] = 0;
}

void dtp_ref__add(dtp_ref_loop *loop, const dtp_ttype *type)
{
    for (int32_t i = 0; i < type->rank; i++) {
        if (find(loop, type->dims[i].id) < 0) {
            add_dim(loop, type->dims[i].id, type->dims[i].size);
        }
    }
}

dtp_ref_loop dtp_ref__over(const dtp_ttype *type)
{
    dtp_ref_loop loop = {.n = 0};
    dtp_ref__add(&loop, type);
    return loop;
}

bool dtp_ref__first(dtp_ref_loop *loop, int32_t from, int32_t to)
{
    bool any = true;
    for (int32_t i = from; i < to; i++) {
        loop->at[i] = 0;
        any = any && loop->size[i] > 0;
    }
    return any;
}

bool dtp_ref__next(dtp_ref_loop *loop, int32_t from, int32_t to)
{
    for (int32_t i = to - 1; i >= from; i--) {
        if (++loop->at[i] < loop->size[i]) {
            return true;
        }
        loop->at[i] = 0;
    }
    return false;
}

int64_t dtp_ref__coord(const dtp_ref_loop *loop, dtp_dim_id d)
{
    int32_t i = find(loop, d);
    assert(i >= 0);
    return loop->at[i];
}

void dtp_ref__put(dtp_ref_loop *loop, dtp_dim_id d, int64_t at)
{
    int32_t i = find(loop, d);
    if (i < 0) {
        add_dim(loop, d, 1);
        i = loop->n - 1;
    }
    loop->at[i] = at;
}

/* The dims of a view mostly follow each other in the loop too, so the next one is tried first. */
static int64_t element_of(const dtp_view *view, const dtp_ref_loop *loop)
{
    int64_t index = 0;
    int32_t next = 0;
    for (int32_t i = 0; i < view->local.rank; i++) {
        const dtp_tdim *dim = &view->local.dims[i];
        const int32_t k = next < loop->n && loop->id[next] == dim->id ? next : find(loop, dim->id);
        assert(k >= 0 && loop->at[k] >= 0 && loop->at[k] < dim->size);
        index = index * dim->size + loop->at[k];
        next = k + 1;
    }
    return index;
}

double dtp_ref__get(const dtp_view *view, const dtp_ref_loop *loop)
{
    return dtp_element(view->local.dtype, view->data, element_of(view, loop));
}

void dtp_ref__strides(const dtp_view *view, const dtp_ref_loop *loop,
                      int64_t stride[DTP_MAX_OP_DIMS])
{
    int64_t inner = 1;
    memset(stride, 0, DTP_MAX_OP_DIMS * sizeof *stride);
    for (int32_t i = view->local.rank - 1; i >= 0; i--) {
        const int32_t k = find(loop, view->local.dims[i].id);
        assert(k >= 0);
        stride[k] += inner;
        inner *= view->local.dims[i].size;
    }
}

double dtp_ref__get_at(const dtp_view *view, const dtp_ref_loop *loop,
                       const int64_t stride[DTP_MAX_OP_DIMS])
{
    int64_t index = 0;
    for (int32_t k = 0; k < loop->n; k++) {
        index += loop->at[k] * stride[k];
    }
    return dtp_element(view->local.dtype, view->data, index);
}

void dtp_ref__set(const dtp_view *view, const dtp_ref_loop *loop, double value)
{
    dtp_element_set(view->local.dtype, view->data, element_of(view, loop), value);
}

void dtp_ref__accumulate(const dtp_view *view, const dtp_ref_loop *loop, double value)
{
    dtp_ref__set(view, loop, dtp_ref__get(view, loop) + value);
}

int64_t dtp_ref__get_int(const dtp_view *view, const dtp_ref_loop *loop)
{
    return dtp_element_int(view->local.dtype, view->data, element_of(view, loop));
}

void dtp_ref__set_int(const dtp_view *view, const dtp_ref_loop *loop, int64_t value)
{
    dtp_element_set_int(view->local.dtype, view->data, element_of(view, loop), value);
}

void dtp_ref__copy(const dtp_view *dst, const dtp_ref_loop *to, const dtp_view *src,
                   const dtp_ref_loop *from)
{
    int64_t bytes = dtp_dtype_bytes(dst->local.dtype);
    assert(dst->local.dtype == src->local.dtype);
    memmove((unsigned char *)dst->data + element_of(dst, to) * bytes,
            (const unsigned char *)src->data + element_of(src, from) * bytes, (size_t)bytes);
}

void dtp_ref__clear(const dtp_view *view)
{
    for (int64_t i = 0; i < dtp_ttype_elems(&view->local); i++) {
        dtp_element_set(view->local.dtype, view->data, i, 0.0);
    }
}

static int32_t axis_of(const dtp_view *view, dtp_dim_id d)
{
    int32_t axis = dtp_ttype_find(&view->local, d);
    assert(axis >= 0);
    return axis;
}

int64_t dtp_ref__global_index(const dtp_view *view, const dtp_ref_loop *loop, dtp_dim_id d)
{
    return view->offset[axis_of(view, d)] + dtp_ref__coord(loop, d);
}

int64_t dtp_ref__offset(const dtp_view *view, dtp_dim_id d)
{
    return view->offset[axis_of(view, d)];
}

int64_t dtp_ref__local(const dtp_view *view, dtp_dim_id d)
{
    return view->local.dims[axis_of(view, d)].size;
}

int64_t dtp_ref__global(const dtp_view *view, dtp_dim_id d)
{
    return view->global[axis_of(view, d)];
}

uint64_t dtp_ref__global_element(const dtp_view *view, const dtp_ref_loop *loop)
{
    uint64_t index = 0;
    for (int32_t i = 0; i < view->local.rank; i++) {
        int64_t at = dtp_ref__global_index(view, loop, view->local.dims[i].id);
        index = index * (uint64_t)view->global[i] + (uint64_t)at;
    }
    return index;
}

bool dtp_ref__is_over(const dtp_op_call *call, dtp_dim_id d)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    if (over->kind == DTP_ATTR_DIM) {
        return over->i == d;
    }
    for (int32_t i = 0; i < over->n; i++) {
        if (over->ids[i] == d) {
            return true;
        }
    }
    return false;
}

dtp_ref_loop dtp_ref__rows(const dtp_op_call *call, const dtp_view *view, int32_t *rows)
{
    dtp_ref_loop loop = {.n = 0};
    const dtp_ttype *t = &view->local;
    for (int32_t i = 0; i < t->rank; i++) {
        if (!dtp_ref__is_over(call, t->dims[i].id)) {
            add_dim(&loop, t->dims[i].id, t->dims[i].size);
        }
    }
    *rows = loop.n;
    dtp_ref__add(&loop, t);
    return loop;
}

dtp_status dtp_ref__each_row(const dtp_kernel_args *args, dtp_ref_row_fn fn)
{
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, &args->in[0], &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        const double value = fn(args, &l, rows);
        dtp_ref__set(&args->out[0], &l, value);
    }
    return DTP_OK;
}

double dtp_ref__larger(double a, double b)
{
    return a >= b || isnan(a) ? a : b;
}

double dtp_ref__lse(double m, double s)
{
    return isinf(m) ? m : m + log(s);
}

void dtp_ref__sums(const dtp_view *x, dtp_ref_loop *l, int32_t rows, double shift, double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        const double d = dtp_ref__get(x, l) - shift;
        sums[0] += d;
        sums[1] += d * d;
    }
}

dtp_ref_moments dtp_ref__moments_of(double n, double shift, const double sums[2])
{
    const double squares = sums[1] - sums[0] * sums[0] / n;
    return (dtp_ref_moments){shift + sums[0] / n, squares < 0.0 ? 0.0 : squares};
}

dtp_ref_moments dtp_ref__moments(const dtp_view *x, dtp_ref_loop *l, int32_t rows, double n)
{
    double sums[2];
    dtp_ref__sums(x, l, rows, 0.0, sums);
    const double shift = sums[0] / n;
    dtp_ref__sums(x, l, rows, shift, sums);
    return dtp_ref__moments_of(n, shift, sums);
}

double dtp_ref__row_count(const dtp_op_call *call, const dtp_view *view)
{
    double n = 1.0;
    for (int32_t i = 0; i < view->local.rank; i++) {
        n *= dtp_ref__is_over(call, view->local.dims[i].id) ? (double)view->global[i] : 1.0;
    }
    return n;
}

bool dtp_ref__id(const dtp_kernel_args *args, int32_t operand, const dtp_ref_loop *loop,
                 dtp_data_error code, int64_t n, int64_t *out)
{
    *out = dtp_ref__get_int(&args->in[operand], loop);
    if (*out >= 0 && *out < n) {
        return true;
    }
    dtp_kernel_refuse(args, code, operand, *out, n);
    return false;
}
