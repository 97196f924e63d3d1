/* embedding, gather, their gradient scatter_add, and one_hot. Elements of any type are copied;
 * floats (in f32) and integers are added. In scatter_add a thread owns the positions that leave its
 * own remainder and adds in the order of src: no atomics, and the same result for any number of
 * threads. */
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/bound/ids.h"
#include "executor/device/convert.h"

/* A loop over the tensor that holds one element per look-up (out of gather and embedding, src of
 * scatter_add and embedding_grad); `at` is what `over` indexes. */
typedef struct lookups {
    const dtp_view *each, *at;
    dtp_bound_ids ids;
    dtp_nest nest;      /* views: each, ids, at without `over` */
    int64_t bytes, run; /* of an element; elements that share an id */
} lookups;

/* Ids are operand number `operand`. */
static void lookups_make(lookups *l, const dtp_kernel_args *args, const dtp_view *each,
                         int32_t operand, const dtp_view *at)
{
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const dtp_view rest = dtp_view_without(at, over);
    const dtp_view *views[] = {each, &args->in[operand], &rest};
    l->each = each;
    l->at = at;
    l->ids = dtp_bind_ids(args, operand, at, over);
    dtp_nest_like(&l->nest, 3, views);
    l->bytes = dtp_dtype_bytes(each->local.dtype);
    l->run = dtp_nest_step(&l->nest, 1) == 0 ? l->nest.inner : 1;
}

/* Whether all ids are in range. */
static bool check_ids(const dtp_bound_ids *ids, const dtp_kernel_args *args)
{
    const int64_t n = dtp_ttype_elems(&args->in[ids->operand].local);
    for (int64_t i = 0; i < n && ids->error != NULL; i++) {
        const int64_t id = dtp_element_int((dtp_dtype)ids->dtype, ids->data, i);
        if (id < 0 || id >= ids->size) {
            dtp_kernel_refuse(args, DTP_DATA_ID, ids->operand, id, ids->size);
            return false;
        }
    }
    return true;
}

/* Local position of the id at an offset, -1 when it is elsewhere or skipped. */
static int64_t position(const dtp_bound_ids *ids, int64_t at)
{
    const int64_t id = dtp_element_int((dtp_dtype)ids->dtype, ids->data, at),
                  here = id - ids->first;
    return here >= 0 && here < ids->local && id != ids->skip ? here : -1;
}

DTP_CPU_INLINE void copy_elems(int64_t n, char *to, int64_t step_to, const char *from,
                               int64_t step_from, size_t bytes)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * step_to * (int64_t)bytes, from + i * step_from * (int64_t)bytes, bytes);
    }
}

/* n elements, zeros when `from` is NULL. */
static void copy_run(const lookups *l, int64_t n, char *to, const char *from, int64_t step_from)
{
    static const char zero[8] = {0};
    const int64_t step = dtp_nest_step(&l->nest, 0);
    if (from == NULL && step == 1) {
        memset(to, 0, (size_t)(n * l->bytes));
    } else if (from != NULL && step == 1 && step_from == 1) {
        memcpy(to, from, (size_t)(n * l->bytes));
    } else {
        step_from = from == NULL ? 0 : step_from;
        from = from == NULL ? zero : from;
        if (l->bytes == 4) {
            copy_elems(n, to, step, from, step_from, 4);
        } else {
            copy_elems(n, to, step, from, step_from, (size_t)l->bytes);
        }
    }
}

static void gather_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const lookups *l = user;
    const int64_t run = l->run < n ? l->run : n, step_x = dtp_nest_step(&l->nest, 2);
    for (int64_t i = 0; i < n; i += run) {
        const int64_t at = position(&l->ids, off[1] + i * dtp_nest_step(&l->nest, 1));
        const int64_t from = off[2] + i * step_x + at * l->ids.stride;
        const int64_t to = off[0] + i * dtp_nest_step(&l->nest, 0);
        copy_run(l, run, (char *)l->each->data + to * l->bytes,
                 at < 0 ? NULL : (const char *)l->at->data + from * l->bytes, step_x);
    }
}

static dtp_status gather_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    lookups l;
    (void)err;
    lookups_make(&l, args, &args->out[0], 1, &args->in[0]);
    if (check_ids(&l.ids, args)) {
        dtp_nest_each(&l.nest, args->threads, gather_piece, &l);
    }
    return DTP_OK;
}

DTP_CPU_CLONES static void add_floats(int64_t n, const float *from, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

/* Adds n floats of src to floats of the sum. */
static void add_float_run(const lookups *l, int64_t n, float *sum, int64_t from)
{
    const dtp_dtype dtype = l->each->local.dtype;
    const int64_t step_to = dtp_nest_step(&l->nest, 2), step_from = dtp_nest_step(&l->nest, 0);
    const int64_t block = dtp_dtype_is_half(dtype) ? DTP_HALF_BLOCK : n;
    for (int64_t at = 0; at < n; at += block) {
        float buffer[DTP_HALF_BLOCK];
        const int64_t m = n - at < block ? n - at : block;
        const float *src = (const float *)l->each->data + from;
        int64_t step = step_from;
        if (dtp_dtype_is_half(dtype)) {
            dtp_widen(dtype, m, (const uint16_t *)l->each->data + from + at * step_from, step_from,
                      buffer);
            src = buffer;
            step = 1;
        }
        float *to = sum + at * step_to;
        if (step_to == 1 && step == 1) {
            add_floats(m, src, to);
            continue;
        }
        for (int64_t i = 0; i < m; i++) {
            to[i * step_to] += src[i * step];
        }
    }
}

/* Adds a run of src to the sum, of floats in f32. */
static void add_run(const lookups *l, int64_t to, int64_t from)
{
    const dtp_dtype dtype = l->each->local.dtype;
    const int64_t step_to = dtp_nest_step(&l->nest, 2), step_from = dtp_nest_step(&l->nest, 0);
    if (dtp_dtype_is_float(dtype)) {
        add_float_run(l, l->run, (float *)l->at->data + to, from);
        return;
    }
    for (int64_t i = 0; i < l->run; i++) {
        const uint64_t a = (uint64_t)dtp_element_int(dtype, l->at->data, to + i * step_to);
        const uint64_t b = (uint64_t)dtp_element_int(dtype, l->each->data, from + i * step_from);
        dtp_element_set_int(dtype, l->at->data, to + i * step_to, (int64_t)(a + b));
    }
}

static void clear_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const dtp_view *sum = user;
    const int64_t bytes = dtp_dtype_bytes(sum->local.dtype);
    memset((char *)sum->data + off[0] * bytes, 0, (size_t)(n * bytes));
}

/* Clears the sum and adds every element of src whose position it has. */
static void add_all(const lookups *l, int32_t threads)
{
    const dtp_view *sum = l->at;
    dtp_nest all;
    dtp_nest_like(&all, 1, &sum);
    dtp_nest_each(&all, threads, clear_piece, sum);
    const int64_t total = dtp_nest_total(&l->nest), rows = total == 0 ? 0 : l->nest.rows;
    const int32_t team = dtp_cpu_team(threads, total);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int32_t owner = 0; owner < team; owner++) {
        for (int64_t r = 0; r < rows; r++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_row(&l->nest, r, off);
            for (int64_t i = 0; i < l->nest.inner; i += l->run) {
                const int64_t at = position(&l->ids, off[1] + i * dtp_nest_step(&l->nest, 1));
                if (at >= 0 && at % team == owner) {
                    add_run(l, off[2] + i * dtp_nest_step(&l->nest, 2) + at * l->ids.stride,
                            off[0] + i * dtp_nest_step(&l->nest, 0));
                }
            }
        }
    }
}

/* ---- sums of 16-bit floats: one slab of positions after the other is made in f32 and narrowed */

enum { SLAB = 1 << 20 }; /* elements, about */

/* Positions of a slab, and its elements. */
static int64_t slab_positions(const dtp_op_call *call, int64_t *elems)
{
    const dtp_ttype *sum = &call->out[0];
    const int64_t n = dtp_ttype_size(sum, dtp_call_dim(call, "over"));
    const int64_t rest = n > 0 ? dtp_ttype_elems(sum) / n : 0;
    int64_t positions = rest > 0 ? SLAB / rest : n;
    positions = positions < 1 ? 1 : positions < n ? positions : n;
    *elems = positions * rest;
    return positions;
}

static dtp_status scatter_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const int32_t threads = args->threads;
    int64_t elems;
    (void)arena, (void)state;
    if (!dtp_dtype_is_half(args->call->out[0].dtype)) {
        return DTP_OK;
    }
    (void)slab_positions(args->call, &elems);
    return dtp_cpu_reserve(args->backend, (elems + threads - 1) / threads, err);
}

typedef struct slab_job {
    const float *slab;
    uint16_t *sum;
    dtp_dtype dtype;
    int64_t step; /* of the sum */
} slab_job;

static void narrow_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const slab_job *job = user;
    dtp_narrow(job->dtype, n, job->slab + off[0], job->sum + off[1], job->step);
}

static void add_slabs(const dtp_kernel_args *args)
{
    const dtp_view *sum = &args->out[0];
    const int32_t axis = dtp_ttype_find(&sum->local, dtp_call_dim(args->call, "over"));
    int64_t elems, stride, step = slab_positions(args->call, &elems);
    for (int64_t first = 0; first < sum->local.dims[axis].size; first += step) {
        const int64_t left = sum->local.dims[axis].size - first;
        dtp_view slab = *sum;
        lookups l;
        dtp_nest nest;
        slab.local.dtype = DTP_F32;
        slab.local.dims[axis].size = left < step ? left : step;
        slab.offset[axis] += first;
        slab.data = dtp_cpu_scratch(args->backend, &stride);
        lookups_make(&l, args, &args->in[1], 0, &slab);
        add_all(&l, args->threads);
        const dtp_view *views[] = {&slab, sum};
        dtp_nest_like(&nest, 2, views);
        const slab_job job = {slab.data,
                              (uint16_t *)sum->data +
                                  first * dtp_view_stride(sum, sum->local.dims[axis].id),
                              sum->local.dtype, dtp_nest_step(&nest, 1)};
        dtp_nest_each(&nest, args->threads, narrow_piece, &job);
    }
}

static dtp_status scatter_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    lookups l;
    (void)err;
    lookups_make(&l, args, &args->in[1], 0, &args->out[0]);
    if (!check_ids(&l.ids, args)) {
        return DTP_OK;
    }
    if (dtp_dtype_is_half(args->out[0].local.dtype)) {
        add_slabs(args);
    } else {
        add_all(&l, args->threads);
    }
    return DTP_OK;
}

static dtp_status one_hot_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *y = &args->out[0], *views[] = {&args->in[0], y};
    const dtp_bound_ids ids = dtp_bind_ids(args, 0, y, dtp_call_dim(args->call, "dim"));
    const float on = (float)dtp_call_float(args->call, "on");
    const float elsewhere = (float)dtp_call_float(args->call, "off");
    float *out = y->data;
    dtp_nest nest;
    for (int64_t i = 0, n = dtp_ttype_elems(&y->local); i < n; i++) {
        out[i] = elsewhere;
    }
    dtp_nest_like(&nest, 2, views);
    for (int64_t i = 0, n = check_ids(&ids, args) ? dtp_nest_total(&nest) : 0; i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&nest, i, off);
        const int64_t at = position(&ids, off[0]);
        if (at >= 0) {
            out[off[1] + at * ids.stride] = on;
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_lookup[] = {{"embedding", gather_kernel, NULL, DTP_NUMBERS},
                                     {"embedding_grad", scatter_kernel, scatter_bind, DTP_NUMBERS},
                                     {"gather", gather_kernel, NULL, 0},
                                     {"scatter_add", scatter_kernel, scatter_bind, DTP_NUMBERS},
                                     {"one_hot", one_hot_kernel, NULL, DTP_NUMBERS},
                                     {.op = NULL}};
