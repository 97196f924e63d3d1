/* Rows: nests, the threads that treat a row, parts of rows. */
#include "executor/cuda/rows.h"

#include <assert.h>
#include <string.h>

#include "spmd/target/cuda_fold.h"

enum {
    BUSY = 2048,      /* rows that keep a device busy with a thread each */
    SHORT = 8,        /* elements of a row for one thread */
    WARP_ROW = 1024,  /* elements of a row for a warp when rows are many, per element of a group */
    FEW = 256,        /* rows */
    LONG_ROW = 16384, /* elements that fill a large block */
    PART = 2048,      /* elements of a part of a contiguous row */
};

/* Whether the rows can be walked in groups: those of views with step 1 are aligned. */
static bool can_group(const dtp_cuda_rows *r)
{
    bool fits = r->over.rank == 1 && r->over.total % DTP_CUDA_GROUP == 0;
    for (int32_t v = 0; fits && v < r->over.n_views; v++) {
        const size_t bytes = (size_t)dtp_dtype_bytes((dtp_dtype)r->dtype[v]) * DTP_CUDA_GROUP;
        if (r->over.stride[v][0] != 1) {
            fits = v > 0;
            continue;
        }
        fits = (uintptr_t)r->data[v] % bytes == 0;
        for (int32_t i = 0; i < r->rows.rank; i++) {
            fits = fits && (r->rows.size[i] == 1 || r->rows.stride[v][i] % DTP_CUDA_GROUP == 0);
        }
    }
    return fits;
}

/* Threads per row, for parts of rows as they are cut. */
static void choose_team(dtp_cuda_rows *r)
{
    const int64_t rows = r->rows.total * r->parts, n = r->part;
    const bool apart = r->over.stride[0][r->over.rank - 1] != 1;
    const bool side_by_side = r->rows.stride[0][r->rows.rank - 1] == 1;
    const int64_t of_warp = r->grouped ? 2 * WARP_ROW : WARP_ROW;
    r->block = DTP_CUDA_ROWS_BLOCK;
    if (n <= SHORT || (apart && side_by_side && (rows >= BUSY || n <= DTP_CUDA_ROWS_WARP))) {
        r->team = DTP_TEAM_THREAD;
        r->grouped = 0;
    } else if (n <= FEW || (n <= of_warp && rows >= FEW)) {
        r->team = DTP_TEAM_WARP;
    } else {
        r->team = DTP_TEAM_BLOCK;
        r->block = n >= LONG_ROW ? 2 * DTP_CUDA_ROWS_BLOCK : DTP_CUDA_ROWS_BLOCK;
    }
}

dtp_status dtp_cuda_rows_make(dtp_cuda_bound_rows *bound, const dtp_view_over *split,
                              int32_t n_views, const dtp_view *const *views, dtp_err *err)
{
    dtp_nest nest;
    dtp_cuda_rows *out = &bound->rows;
    *out = (dtp_cuda_rows){.parts = 1};
    dtp_nest_make(&nest, split->n_rows, split->rows, n_views, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &out->rows, err));
    dtp_nest_make(&nest, split->n_over, split->over, n_views, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &out->over, err));
    for (int32_t v = 0; v < n_views; v++) {
        bound->views[v] = views[v];
        out->data[v] = views[v]->data;
        out->dtype[v] = (int32_t)views[v]->local.dtype;
    }
    out->part = out->over.total;
    out->grouped = can_group(out);
    choose_team(out);
    return DTP_OK;
}

dtp_status dtp_cuda_rows_of_call(dtp_cuda_bound_rows *out, const dtp_kernel_args *args,
                                 const char *key, dtp_err *err)
{
    const dtp_view *views[DTP_CUDA_VIEWS] = {NULL};
    const int32_t n_in = args->call->n_in, n = n_in + args->call->n_out;
    dtp_view_over split;
    for (int32_t i = 0; i < n; i++) {
        views[i] = i < n_in ? &args->in[i] : &args->out[i - n_in];
    }
    dtp_view_split(args->call, key, &args->in[0], &split);
    return dtp_cuda_rows_make(out, &split, n, views, err);
}

void dtp_cuda_rows_flip(dtp_view_over *split)
{
    const dtp_view_over was = *split;
    split->n_rows = was.n_over;
    split->n_over = was.n_rows;
    memcpy(split->rows, was.over, sizeof was.over);
    memcpy(split->over, was.rows, sizeof was.rows);
}

void dtp_cuda_rows_cut(dtp_cuda_bound_rows *bound, const dtp_kernel_args *args)
{
    dtp_cuda_rows *r = &bound->rows;
    const int64_t n = r->over.total, rows = r->rows.total;
    if (rows == 0 || n == 0 || args->workspace_bytes < rows * DTP_CUDA_PART_BYTES) {
        return;
    }
    int64_t parts = args->workspace_bytes / (rows * DTP_CUDA_PART_BYTES);
    if (r->over.stride[0][r->over.rank - 1] == 1) { /* a team per part, not a thread */
        const int64_t busy = BUSY / rows, most = n / PART;
        parts = parts < busy ? parts : busy;
        parts = parts < most ? parts : most;
    }
    parts = parts < 1 ? 1 : parts;
    r->part = (n + parts - 1) / parts;
    r->part += (DTP_CUDA_GROUP - r->part % DTP_CUDA_GROUP) % DTP_CUDA_GROUP;
    r->parts = (n + r->part - 1) / r->part;
    r->partial = args->workspace;
    r->grouped = can_group(r);
    choose_team(r);
}

const dtp_cuda_rows *dtp_cuda_rows_now(dtp_cuda_bound_rows *bound)
{
    dtp_cuda_rows *r = &bound->rows;
    for (int32_t v = 0; v < r->over.n_views; v++) {
        r->data[v] = bound->views[v]->data;
    }
    assert(!r->grouped || can_group(r));
    return r;
}
