/* Rows: nests, the threads that treat a row, parts of rows. */
#include "executor/cuda/rows.h"

#include <assert.h>

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

dtp_status dtp_cuda_rows_make(dtp_cuda_bound_rows *bound, const dtp_bound_rows *of, dtp_err *err)
{
    dtp_nest nest;
    dtp_cuda_rows *out = &bound->rows;
    bound->of = *of;
    *out = (dtp_cuda_rows){.parts = 1};
    dtp_nest_make(&nest, of->dims.n_rows, of->dims.rows, of->n_views, of->views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &out->rows, err));
    dtp_nest_make(&nest, of->dims.n_over, of->dims.over, of->n_views, of->views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &out->over, err));
    for (int32_t v = 0; v < of->n_views; v++) {
        out->data[v] = of->views[v]->data;
        out->dtype[v] = (int32_t)of->views[v]->local.dtype;
    }
    out->part = out->over.total;
    out->grouped = can_group(out);
    choose_team(out);
    return DTP_OK;
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
        r->data[v] = bound->of.views[v]->data;
    }
    assert(!r->grouped || can_group(r));
    return r;
}

/* Kernels count places in 32 bits. Ops that do not fold have no workspace to cut rows into. */
dtp_status dtp_cuda_rows_bind(const dtp_kernel_args *args, dtp_row_op op, dtp_arena *arena,
                              void **state, dtp_err *err)
{
    dtp_bound_rows of;
    dtp_cuda_bound_rows *bound;
    DTP_STATE(arena, state, bound, err);
    DTP_TRY(dtp_bind_rows(args, op, &of, err));
    if (of.gives_places) {
        DTP_TRY(dtp_places_check(args->call, &of, INT32_MAX, err));
    }
    DTP_TRY(dtp_cuda_rows_make(bound, &of, err));
    dtp_cuda_rows_cut(bound, args);
    return DTP_OK;
}
