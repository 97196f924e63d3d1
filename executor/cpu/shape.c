/* Ops that copy elements or make them from nothing: broadcast, permute, relabel, slice, pad,
 * concat, stack, roll, reorder, iota, constant, fill. Copies do not look at the element type. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "core/graph/ops/sequence.h"
#include "executor/device/convert.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/simd.h"

/* Copies x into y over the dims of `shape`, from element x_at of x on and y_at of y. */
static void copy(const dtp_kernel_args *args, const dtp_view *shape, const dtp_view *y,
                 int64_t y_at, const dtp_view *x, int64_t x_at)
{
    dtp_view to = *y, from = *x;
    const int64_t bytes = dtp_dtype_bytes(y->local.dtype);
    to.data = (char *)y->data + y_at * bytes;
    from.data = (char *)x->data + x_at * bytes;
    dtp_view_copy(&shape->local, &to, &from, args->threads);
}

static dtp_status broadcast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    copy(args, &args->out[0], &args->out[0], 0, &args->in[0], 0);
    return DTP_OK;
}

static dtp_status permute_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_view_copy(&args->in[0].local, &args->out[0], &args->in[0], args->threads);
    return DTP_OK;
}

static dtp_status stack_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    const int64_t stride = dtp_view_stride(y, dtp_call_dim(args->call, "dim"));
    for (int32_t i = 0; i < args->call->n_in; i++) {
        copy(args, &args->in[i], y, i * stride, &args->in[i], 0);
    }
    return DTP_OK;
}

static dtp_status relabel_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    if (args->out[0].data != args->in[0].data) {
        dtp_view x = args->in[0];
        x.local = args->out[0].local;
        copy(args, &args->out[0], &args->out[0], 0, &x, 0);
    }
    return DTP_OK;
}

static dtp_status slice_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    int64_t stride = dtp_view_stride(x, dtp_call_dim(args->call, "dim"));
    copy(args, &args->out[0], &args->out[0], 0, x, stride * dtp_call_int(args->call, "start"));
    return DTP_OK;
}

static dtp_status pad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    int64_t stride = dtp_view_stride(y, dtp_call_dim(args->call, "dim"));
    memset(y->data, 0, (size_t)dtp_ttype_bytes(&y->local));
    copy(args, &args->in[0], y, stride * dtp_call_int(args->call, "before"), &args->in[0], 0);
    return DTP_OK;
}

static dtp_status concat_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t stride = dtp_view_stride(y, dim);
    int64_t at = 0;
    for (int32_t i = 0; i < args->call->n_in; i++) {
        const dtp_view *x = &args->in[i];
        copy(args, x, y, at * stride, x, 0);
        at += dtp_ttype_size(&x->local, dim);
    }
    return DTP_OK;
}

/* Elements [from, from + n) of dim `axis` of x go to [to, to + n) of y. */
static void copy_range(const dtp_kernel_args *args, int32_t axis, int64_t from, int64_t to,
                       int64_t n)
{
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    dtp_view shape = *x;
    int64_t stride = dtp_view_stride(x, x->local.dims[axis].id);
    int64_t to_stride = dtp_view_stride(y, x->local.dims[axis].id);
    shape.local.dims[axis].size = n;
    if (n > 0) {
        copy(args, &shape, y, to * to_stride, x, from * stride);
    }
}

static dtp_status roll_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_ttype *x = &args->in[0].local;
    int32_t axis = dtp_ttype_find(x, dtp_call_dim(args->call, "dim"));
    int64_t n = x->dims[axis].size, shift = dtp_call_int(args->call, "shift") % n;
    shift += shift < 0 ? n : 0;
    copy_range(args, axis, 0, shift, n - shift);
    copy_range(args, axis, n - shift, 0, shift);
    return DTP_OK;
}

static dtp_status reorder_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_ttype *x = &args->in[0].local;
    int32_t axis = dtp_ttype_find(x, dtp_call_dim(args->call, "dim"));
    int64_t n = x->dims[axis].size;
    dtp_sequence order = dtp_sequence_make(n, dtp_call_int(args->call, "chunks"));
    bool inverse = dtp_call_int(args->call, "inverse") != 0;
    for (int64_t place = 0; place < n; place += order.run) {
        int64_t position = dtp_sequence_position(&order, place);
        copy_range(args, axis, inverse ? place : position, inverse ? position : place, order.run);
    }
    return DTP_OK;
}

/* ---- ops without operands ---- */

typedef struct fill_job {
    const dtp_view *y;
    double value, step; /* element i of a row holds value + off[1] + step * i */
} fill_job;

static void fill_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const fill_job *job = user;
    double first = job->value + (double)off[1];
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = off[0] + i;
        const double value = first + job->step * (double)i;
        if (job->y->local.dtype == DTP_F32) {
            ((float *)job->y->data)[index] = (float)value;
        } else {
            dtp_element_set(job->y->local.dtype, job->y->data, index, value);
        }
    }
}

static dtp_status iota_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    /* A stand-in view with the one dim `dim`: its offsets count along it. */
    dtp_view along;
    memset(&along, 0, sizeof along);
    along.local.rank = 1;
    along.local.dims[0].id = dim;
    along.local.dims[0].size = dtp_ttype_size(&y->local, dim);
    const dtp_view *views[] = {y, &along};
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    fill_job job = {y, (double)dtp_view_offset(y, dim), (double)dtp_nest_step(&nest, 1)};
    dtp_nest_each(&nest, args->threads, fill_piece, &job);
    return DTP_OK;
}

static dtp_status constant_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0];
    dtp_view none;
    memset(&none, 0, sizeof none);
    const dtp_view *views[] = {y, &none};
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    fill_job job = {y, dtp_call_float(args->call, "value"), 0.0};
    dtp_nest_each(&nest, args->threads, fill_piece, &job);
    return DTP_OK;
}

const dtp_kernel dtp_cpu_shape[] = {{"broadcast", broadcast_kernel, NULL, 0},
                                    {"permute", permute_kernel, NULL, 0},
                                    {"stack", stack_kernel, NULL, 0},
                                    {"relabel", relabel_kernel, NULL, 0},
                                    {"slice", slice_kernel, NULL, 0},
                                    {"pad", pad_kernel, NULL, 0},
                                    {"concat", concat_kernel, NULL, 0},
                                    {"roll", roll_kernel, NULL, 0},
                                    {"reorder", reorder_kernel, NULL, 0},
                                    {"iota", iota_kernel, NULL, 0},
                                    {"constant", constant_kernel, NULL, 0},
                                    {"fill", constant_kernel, NULL, 0},
                                    {.op = NULL}};
