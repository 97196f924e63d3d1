/* gather copies elements of any type; scatter_add adds f32 or integers. In scatter_add a thread
 * owns the positions that leave its own remainder and adds in the order of src: no atomics, and the
 * same result for any number of threads. */
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/parallel.h"

/* A walk over the tensor that holds one element per look-up (out of gather, src of scatter_add);
 * `at` is x or the sum, which `over` indexes. */
typedef struct lookups {
    const dtp_view *each, *ids, *at;
    dtp_nest nest;                      /* views: each, ids, at without `over` */
    int64_t stride, first, local, size; /* of `over` in `at` */
    int64_t bytes;
} lookups;

static void lookups_make(lookups *l, const dtp_op_call *call, const dtp_view *each,
                         const dtp_view *ids, const dtp_view *at)
{
    const dtp_dim_id over = dtp_call_dim(call, "over");
    const int32_t axis = dtp_ttype_find(&at->local, over);
    dtp_view rest = *at;
    rest.local.dims[axis].id = -1; /* not walked, although `each` may have the name too */
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
}

static dtp_status check_ids(const lookups *l, const dtp_op_call *call, dtp_err *err)
{
    for (int64_t i = 0, n = dtp_ttype_elems(&l->ids->local); i < n; i++) {
        int64_t id = dtp_cpu_int_at(l->ids->local.dtype, l->ids->data, i);
        if (id < 0 || id >= l->size) {
            return dtp_cpu_bad_id(call, "id", id, l->size, err);
        }
    }
    return DTP_OK;
}

/* Local position of the id at an offset, -1 when it is elsewhere. */
static int64_t position(const lookups *l, int64_t at)
{
    int64_t id = dtp_cpu_int_at(l->ids->local.dtype, l->ids->data, at) - l->first;
    return id >= 0 && id < l->local ? id : -1;
}

/* n elements, zeros when `from` is NULL. */
static void copy_run(const lookups *l, int64_t n, char *to, const char *from, int64_t step_from)
{
    const int64_t step = dtp_nest_step(&l->nest, 0);
    if (step == 1 && (from == NULL || step_from == 1)) {
        if (from == NULL) {
            memset(to, 0, (size_t)(n * l->bytes));
        } else {
            memcpy(to, from, (size_t)(n * l->bytes));
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (from == NULL) {
            memset(to + i * step * l->bytes, 0, (size_t)l->bytes);
        } else {
            memcpy(to + i * step * l->bytes, from + i * step_from * l->bytes, (size_t)l->bytes);
        }
    }
}

/* One row of the nest; runs of one id are copied together. */
static void gather_row(const lookups *l, int64_t row)
{
    const int64_t step_y = dtp_nest_step(&l->nest, 0), step_id = dtp_nest_step(&l->nest, 1);
    const int64_t step_x = dtp_nest_step(&l->nest, 2);
    const int64_t run = step_id == 0 ? l->nest.inner : 1;
    int64_t off[DTP_NEST_VIEWS];
    dtp_nest_row(&l->nest, row, off);
    for (int64_t i = 0; i < l->nest.inner; i += run) {
        const int64_t at = position(l, off[1] + i * step_id);
        char *to = (char *)l->each->data + (off[0] + i * step_y) * l->bytes;
        const char *x = l->at->data;
        const int64_t from = off[2] + i * step_x + at * l->stride;
        copy_run(l, run, to, at < 0 ? NULL : x + from * l->bytes, step_x);
    }
}

static dtp_status gather_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    lookups l;
    lookups_make(&l, args->call, &args->out[0], &args->in[1], &args->in[0]);
    DTP_TRY(check_ids(&l, args->call, err));
    const int64_t rows = dtp_nest_total(&l.nest) == 0 ? 0 : l.nest.rows;
    const int32_t team = dtp_cpu_team(args->threads, dtp_nest_total(&l.nest));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t r = 0; r < rows; r++) {
        gather_row(&l, r);
    }
    return DTP_OK;
}

static void add_one(const lookups *l, int64_t to, int64_t from)
{
    const dtp_dtype dtype = l->each->local.dtype;
    if (dtype == DTP_F32) {
        ((float *)l->at->data)[to] += ((const float *)l->each->data)[from];
        return;
    }
    const uint64_t a = (uint64_t)dtp_cpu_int_at(dtype, l->at->data, to);
    const uint64_t b = (uint64_t)dtp_cpu_int_at(dtype, l->each->data, from);
    dtp_cpu_int_set(dtype, l->at->data, to, (int64_t)(a + b));
}

/* What one of `team` threads adds. */
static void scatter_part(const lookups *l, int32_t owner, int32_t team)
{
    for (int64_t i = 0, n = dtp_nest_total(&l->nest); i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&l->nest, i, off);
        const int64_t at = position(l, off[1]);
        if (at >= 0 && at % team == owner) {
            add_one(l, off[2] + at * l->stride, off[0]);
        }
    }
}

static dtp_status scatter_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    lookups l;
    lookups_make(&l, args->call, &args->in[1], &args->in[0], &args->out[0]);
    DTP_TRY(check_ids(&l, args->call, err));
    if (dtp_ttype_bytes(&args->out[0].local) > 0) {
        memset(args->out[0].data, 0, (size_t)dtp_ttype_bytes(&args->out[0].local));
    }
    const int32_t team = dtp_cpu_team(args->threads, dtp_nest_total(&l.nest));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int32_t owner = 0; owner < team; owner++) {
        scatter_part(&l, owner, team);
    }
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"gather", gather_kernel, NULL},
                                   {"scatter_add", scatter_kernel, dtp_cpu_check_f32}};
const dtp_cpu_family dtp_cpu_gather = {rows, sizeof rows / sizeof rows[0]};
