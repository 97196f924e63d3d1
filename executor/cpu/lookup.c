/* embedding, gather, their gradient scatter_add, and one_hot. Elements of any type are copied; f32
 * and integers are added. In scatter_add a thread owns the positions that leave its own remainder
 * and adds in the order of src: no atomics, and the same result for any number of threads. */
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/simd.h"
#include "executor/device/convert.h"

/* A loop over the tensor that holds one element per look-up (out of gather and embedding, src of
 * scatter_add and embedding_grad); `at` is what `over` indexes. */
typedef struct lookups {
    const dtp_view *each, *ids, *at;
    dtp_nest nest;                      /* views: each, ids, at without `over` */
    int64_t stride, first, local, size; /* of `over` in `at` */
    int64_t bytes, run;                 /* of an element; elements that share an id */
} lookups;

static void lookups_make(lookups *l, const dtp_op_call *call, const dtp_view *each,
                         const dtp_view *ids, const dtp_view *at)
{
    const dtp_dim_id over = dtp_call_dim(call, "over");
    const int32_t axis = dtp_ttype_find(&at->local, over);
    dtp_view rest = *at;
    rest.local.dims[axis].id = -1; /* not in the loop, although `each` may have the name too */
    const dtp_view *views[] = {each, ids, &rest};
    l->each = each;
    l->ids = ids;
    l->at = at;
    dtp_nest_like(&l->nest, 3, views);
    l->stride = dtp_view_stride(at, over);
    l->first = at->offset[axis];
    l->local = at->local.dims[axis].size;
    l->size = at->global[axis];
    l->bytes = dtp_dtype_bytes(each->local.dtype);
    l->run = dtp_nest_step(&l->nest, 1) == 0 ? l->nest.inner : 1;
}

/* Whether all ids, which are operand number `operand`, are in range. */
static bool check_ids(const lookups *l, const dtp_kernel_args *args, int32_t operand)
{
    for (int64_t i = 0, n = dtp_ttype_elems(&l->ids->local); i < n; i++) {
        int64_t id = dtp_element_int(l->ids->local.dtype, l->ids->data, i);
        if (id < 0 || id >= l->size) {
            dtp_kernel_refuse(args, DTP_DATA_ID, operand, id, l->size);
            return false;
        }
    }
    return true;
}

/* Local position of the id at an offset, -1 when it is elsewhere. */
static int64_t position(const lookups *l, int64_t at)
{
    int64_t id = dtp_element_int(l->ids->local.dtype, l->ids->data, at) - l->first;
    return id >= 0 && id < l->local ? id : -1;
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
        const int64_t at = position(l, off[1] + i * dtp_nest_step(&l->nest, 1));
        const int64_t from = off[2] + i * step_x + at * l->stride;
        const int64_t to = off[0] + i * dtp_nest_step(&l->nest, 0);
        copy_run(l, run, (char *)l->each->data + to * l->bytes,
                 at < 0 ? NULL : (const char *)l->at->data + from * l->bytes, step_x);
    }
}

static dtp_status gather_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    lookups l;
    (void)err;
    lookups_make(&l, args->call, &args->out[0], &args->in[1], &args->in[0]);
    if (check_ids(&l, args, 1)) {
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

/* Adds a run of src to the sum. */
static void add_run(const lookups *l, int64_t to, int64_t from)
{
    const dtp_dtype dtype = l->each->local.dtype;
    const int64_t step_to = dtp_nest_step(&l->nest, 2), step_from = dtp_nest_step(&l->nest, 0);
    float *sum = (float *)l->at->data + to;
    const float *src = (const float *)l->each->data + from;
    if (dtype == DTP_F32 && step_to == 1 && step_from == 1) {
        add_floats(l->run, src, sum);
        return;
    }
    for (int64_t i = 0; i < l->run; i++) {
        if (dtype == DTP_F32) {
            sum[i * step_to] += src[i * step_from];
        } else {
            const uint64_t a = (uint64_t)dtp_element_int(dtype, l->at->data, to + i * step_to);
            const uint64_t b =
                (uint64_t)dtp_element_int(dtype, l->each->data, from + i * step_from);
            dtp_element_set_int(dtype, l->at->data, to + i * step_to, (int64_t)(a + b));
        }
    }
}

static void clear_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const dtp_view *sum = user;
    const int64_t bytes = dtp_dtype_bytes(sum->local.dtype);
    memset((char *)sum->data + off[0] * bytes, 0, (size_t)(n * bytes));
}

static dtp_status scatter_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *sum = &args->out[0];
    lookups l;
    dtp_nest all;
    (void)err;
    lookups_make(&l, args->call, &args->in[1], &args->in[0], sum);
    if (!check_ids(&l, args, 0)) {
        return DTP_OK;
    }
    dtp_nest_like(&all, 1, &sum);
    dtp_nest_each(&all, args->threads, clear_piece, sum);
    const int64_t total = dtp_nest_total(&l.nest), rows = total == 0 ? 0 : l.nest.rows;
    const int32_t team = dtp_cpu_team(args->threads, total);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int32_t owner = 0; owner < team; owner++) {
        for (int64_t r = 0; r < rows; r++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_row(&l.nest, r, off);
            for (int64_t i = 0; i < l.nest.inner; i += l.run) {
                const int64_t at = position(&l, off[1] + i * dtp_nest_step(&l.nest, 1));
                if (at >= 0 && at % team == owner) {
                    add_run(&l, off[2] + i * dtp_nest_step(&l.nest, 2) + at * l.stride,
                            off[0] + i * dtp_nest_step(&l.nest, 0));
                }
            }
        }
    }
    return DTP_OK;
}

static dtp_status one_hot_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *ids = &args->in[0], *y = &args->out[0];
    dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    int64_t first = dtp_cpu_offset(y, dim), size = dtp_cpu_global(y, dim);
    int64_t local = dtp_ttype_size(&y->local, dim);
    float on = (float)dtp_call_float(args->call, "on");
    float off_value = (float)dtp_call_float(args->call, "off");
    float *out = y->data;
    for (int64_t i = 0, n = dtp_ttype_elems(&y->local); i < n; i++) {
        out[i] = off_value;
    }
    const dtp_view *views[] = {ids, y};
    int64_t stride = dtp_view_stride(y, dim);
    dtp_nest nest;
    dtp_nest_like(&nest, 2, views);
    for (int64_t i = 0, n = dtp_nest_total(&nest); i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&nest, i, off);
        int64_t id = dtp_element_int(ids->local.dtype, ids->data, off[0]);
        if (id < 0 || id >= size) {
            dtp_kernel_refuse(args, DTP_DATA_ID, 0, id, size);
            return DTP_OK;
        }
        if (id >= first && id < first + local) {
            out[off[1] + (id - first) * stride] = on;
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_lookup[] = {{"embedding", gather_kernel, NULL, DTP_CPU_BOTH},
                                     {"embedding_grad", scatter_kernel, NULL, DTP_CPU_BOTH},
                                     {"gather", gather_kernel, NULL, 0},
                                     {"scatter_add", scatter_kernel, NULL, DTP_CPU_BOTH},
                                     {"one_hot", one_hot_kernel, NULL, DTP_CPU_BOTH},
                                     {.op = NULL}};
