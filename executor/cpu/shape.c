/* Ops that copy elements or make them from nothing: broadcast, permute, relabel, slice, pad,
 * concat, stack, roll, reorder, iota, constant, fill. Copies do not look at the element type. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "executor/cpu/loops/nest.h"
#include "executor/device/bound/copies.h"
#include "executor/device/convert.h"

static dtp_status copy(const dtp_kernel_args *args, const dtp_bound_copy *c, dtp_err *err)
{
    dtp_nest nest;
    (void)err;
    dtp_nest_raw(&nest, c->n, c->sizes, 2, c->strides);
    dtp_nest_copy(&nest, args->threads, c->y, c->x, c->elem_bytes);
    return DTP_OK;
}

DTP_COPY_OPS(DTP_COPY_KERNEL)

static dtp_status pad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const dtp_pad_form f = dtp_pad_form_here(args);
    dtp_view x = args->in[0], y = args->out[0];
    const int64_t inner = dtp_view_stride(&y, dim) * dtp_dtype_bytes(y.local.dtype);
    dtp_ttype shape = x.local;
    (void)err;
    if (dtp_ttype_elems(&y.local) > 0) {
        memset(y.data, 0, (size_t)dtp_ttype_bytes(&y.local));
    }
    shape.dims[dtp_ttype_find(&shape, dim)].size = f.n;
    if (dtp_ttype_elems(&shape) > 0) {
        x.data =
            (char *)x.data + f.from * dtp_view_stride(&x, dim) * dtp_dtype_bytes(x.local.dtype);
        y.data = (char *)y.data + f.to * inner;
        dtp_view_copy(&shape, &y, &x, args->threads);
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

const dtp_kernel dtp_cpu_shape[] = {DTP_COPY_OPS(DTP_COPY_ROW){"pad", pad_kernel, NULL, 0},
                                    {"iota", iota_kernel, NULL, 0},
                                    {"constant", constant_kernel, NULL, 0},
                                    {"fill", constant_kernel, NULL, 0},
                                    {.op = NULL}};
