/* embedding and its gradient. In the gradient a thread owns the table rows whose number leaves its
 * own remainder, and adds to them in the order of the ids: no atomics, and the same result for any
 * number of threads. */
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/simd.h"

typedef struct embedding_job {
    const dtp_view *ids;
    float *table;      /* or its gradient */
    float *rows;       /* out, or dy */
    dtp_nest lookups;  /* views: ids, rows */
    dtp_nest features; /* views: table, rows */
    int64_t stride;    /* of a table row */
    int64_t first, local, size;
} embedding_job;

static void embedding_job_make(embedding_job *job, const dtp_op_call *call, const dtp_view *table,
                               const dtp_view *ids, const dtp_view *rows)
{
    dtp_dim_id over = dtp_call_dim(call, "over");
    const dtp_view *lookup_views[] = {ids, rows}, *feature_views[] = {table, rows};
    dtp_tdim features[DTP_MAX_RANK];
    int32_t n = 0;
    for (int32_t i = 0; i < table->local.rank; i++) {
        if (table->local.dims[i].id != over) {
            features[n++] = table->local.dims[i];
        }
    }
    job->ids = ids;
    job->table = table->data;
    job->rows = rows->data;
    dtp_nest_like(&job->lookups, 2, lookup_views);
    dtp_nest_make(&job->features, n, features, 2, feature_views);
    job->stride = dtp_view_stride(table, over);
    job->first = dtp_cpu_offset(table, over);
    job->local = table->local.dims[dtp_ttype_find(&table->local, over)].size;
    job->size = dtp_cpu_global(table, over);
}

DTP_CPU_CLONES static void add_run(int64_t n, const float *from, float *to)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

/* One run of a row: steps of the table and of the row. */
static void copy_or_clear(int64_t n, const float *table, int64_t st, float *row, int64_t sr)
{
    if (table != NULL && st == 1 && sr == 1) {
        memcpy(row, table, (size_t)n * sizeof *row);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        row[i * sr] = table != NULL ? table[i * st] : 0.0f;
    }
}

static void add_to(int64_t n, float *table, int64_t st, const float *row, int64_t sr)
{
    if (st == 1 && sr == 1) {
        add_run(n, row, table);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        table[i * st] += row[i * sr];
    }
}

/* One id: table row to output row (zeros when table_at < 0), or `add` the row to the table. */
static void move_row(const embedding_job *job, int64_t table_at, int64_t row_at, bool add)
{
    int64_t n = job->features.inner;
    int64_t st = dtp_nest_step(&job->features, 0), sr = dtp_nest_step(&job->features, 1);
    for (int64_t r = 0; r < job->features.rows; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&job->features, r, off);
        float *row = job->rows + row_at + off[1];
        if (add) {
            add_to(n, job->table + table_at + off[0], st, row, sr);
        } else {
            copy_or_clear(n, table_at < 0 ? NULL : job->table + table_at + off[0], st, row, sr);
        }
    }
}

/* The id of a lookup and the place of its row in out or dy. */
static int64_t id_at(const embedding_job *job, int64_t lookup, int64_t *row_at)
{
    int64_t off[DTP_NEST_VIEWS];
    dtp_nest_elem(&job->lookups, lookup, off);
    *row_at = off[1];
    return dtp_cpu_int_at(job->ids->local.dtype, job->ids->data, off[0]);
}

static dtp_status check_ids(const embedding_job *job, const dtp_op_call *call, dtp_err *err)
{
    for (int64_t i = 0, n = dtp_nest_total(&job->lookups); i < n; i++) {
        int64_t id = dtp_cpu_int_at(job->ids->local.dtype, job->ids->data, i);
        if (id < 0 || id >= job->size) {
            return dtp_cpu_bad_id(call, "id", id, job->size, err);
        }
    }
    return DTP_OK;
}

static dtp_status embedding_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    embedding_job job;
    embedding_job_make(&job, args->call, &args->in[0], &args->in[1], &args->out[0]);
    DTP_TRY(check_ids(&job, args->call, err));
    int64_t n = dtp_nest_total(&job.lookups);
    int32_t team = dtp_cpu_team(args->threads, n * dtp_nest_total(&job.features));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < n; i++) {
        int64_t row_at, id = id_at(&job, i, &row_at) - job.first;
        bool here = id >= 0 && id < job.local;
        move_row(&job, here ? id * job.stride : -1, row_at, false);
    }
    return DTP_OK;
}

static void clear_piece(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const embedding_job *job = user;
    memset(job->table + off[0], 0, (size_t)n * sizeof *job->table);
}

static dtp_status embedding_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    embedding_job job;
    embedding_job_make(&job, args->call, &args->out[0], &args->in[0], &args->in[1]);
    DTP_TRY(check_ids(&job, args->call, err));
    const dtp_view *views[] = {&args->out[0]};
    dtp_nest all;
    dtp_nest_like(&all, 1, views);
    dtp_nest_each(&all, args->threads, clear_piece, &job);
    int64_t n = dtp_nest_total(&job.lookups);
    int32_t team = dtp_cpu_team(args->threads, n * dtp_nest_total(&job.features));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int32_t owner = 0; owner < team; owner++) {
        for (int64_t i = 0; i < n; i++) {
            int64_t row_at, id = id_at(&job, i, &row_at) - job.first;
            if (id >= 0 && id < job.local && id % team == owner) {
                move_row(&job, id * job.stride, row_at, true);
            }
        }
    }
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"embedding", embedding_kernel, dtp_cpu_check_f32},
                                   {"embedding_grad", embedding_grad_kernel, dtp_cpu_check_f32}};
const dtp_cpu_family dtp_cpu_embedding = {rows, sizeof rows / sizeof rows[0]};
