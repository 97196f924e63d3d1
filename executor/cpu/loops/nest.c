/* Loops over nests. */
#include "executor/cpu/loops/nest.h"

#include <string.h>

#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"

enum { UNIT = 8192 }; /* elements that one call of a driver's loop body covers, about */

void dtp_nest_each(const dtp_nest *nest, int32_t threads, dtp_nest_fn fn, const void *user)
{
    int64_t total = dtp_nest_total(nest);
    if (total == 0) {
        return;
    }
    int64_t parts = nest->inner > UNIT ? (nest->inner + UNIT - 1) / UNIT : 1;
    int64_t group = nest->inner < UNIT ? UNIT / nest->inner : 1; /* rows per unit */
    int64_t units = (nest->rows + group - 1) / group * parts;
    int32_t team = dtp_cpu_team(threads, total);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t u = 0; u < units; u++) {
        int64_t first = u / parts * group;
        int64_t last = first + group < nest->rows ? first + group : nest->rows;
        int64_t begin = u % parts * UNIT;
        int64_t left = nest->inner - begin;
        int64_t n = parts > 1 && left > UNIT ? UNIT : left;
        for (int64_t row = first; row < last; row++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_row(nest, row, off);
            for (int32_t v = 0; v < nest->n_views; v++) {
                off[v] += begin * dtp_nest_step(nest, v);
            }
            fn(user, n, off);
        }
    }
}

/* ---- copies ---- */

/* One tile: dst[i * di + j * dj] = src[i * si + j * sj]. */
typedef struct tile {
    int64_t ni, nj, di, dj, si, sj;
} tile;

DTP_CPU_INLINE void copy_tile(const tile *t, char *dst, const char *src, size_t bytes)
{
    for (int64_t i = 0; i < t->ni; i++) {
        for (int64_t j = 0; j < t->nj; j++) {
            memcpy(dst + (size_t)(i * t->di + j * t->dj) * bytes,
                   src + (size_t)(i * t->si + j * t->sj) * bytes, bytes);
        }
    }
}

static void copy_tile_any(const tile *t, char *dst, const char *src, int64_t bytes)
{
    switch (bytes) {
    case 1:
        copy_tile(t, dst, src, 1);
        break;
    case 2:
        copy_tile(t, dst, src, 2);
        break;
    case 4:
        copy_tile(t, dst, src, 4);
        break;
    default:
        copy_tile(t, dst, src, 8);
        break;
    }
}

enum { LINE = 16 }; /* elements of 4 bytes in a cache line */

/* Perfect shuffle: rotates the eight bits of an element's index by one. */
DTP_CPU_CLONES static void shuffle(const uint32_t *restrict in, uint32_t *restrict out)
{
#pragma omp simd
    for (uint32_t k = 0; k < LINE * LINE / 2; k++) {
        out[2 * k] = in[k];
        out[2 * k + 1] = in[k + LINE * LINE / 2];
    }
}

/* A LINE x LINE tile with si = dj = 1: read into a buffer, transposed there by four shuffles and
 * written. Every cache line of src and dst is touched once, also when their strides are powers of
 * two that fall into one cache set. */
static void copy_lines(const tile *t, char *dst, const char *src)
{
    uint32_t a[LINE * LINE], b[LINE * LINE];
    for (int64_t j = 0; j < LINE; j++) {
        memcpy(a + j * LINE, src + j * t->sj * 4, LINE * sizeof *a);
    }
    shuffle(a, b);
    shuffle(b, a);
    shuffle(a, b);
    shuffle(b, a);
    for (int64_t i = 0; i < LINE; i++) {
        memcpy(dst + i * t->di * 4, a + i * LINE, LINE * sizeof *a);
    }
}

/* A block of a transposition with si = 1. */
static void copy_block(const tile *t, char *dst, const char *src, int64_t bytes)
{
    if (bytes != 4 || t->dj != 1) {
        copy_tile_any(t, dst, src, bytes);
        return;
    }
    for (int64_t i = 0; i < t->ni; i += LINE) {
        for (int64_t j = 0; j < t->nj; j += LINE) {
            tile part = *t;
            part.ni = t->ni - i < LINE ? t->ni - i : LINE;
            part.nj = t->nj - j < LINE ? t->nj - j : LINE;
            char *to = dst + (i * t->di + j) * 4;
            const char *from = src + (i + j * t->sj) * 4;
            if (part.ni == LINE && part.nj == LINE) {
                copy_lines(&part, to, from);
            } else {
                copy_tile(&part, to, from, 4);
            }
        }
    }
}

void dtp_transpose(int64_t rows, int64_t cols, const float *src, int64_t ld, float *dst)
{
    tile t = {.ni = cols, .nj = rows, .di = rows, .dj = 1, .si = 1, .sj = ld};
    copy_block(&t, (char *)dst, (const char *)src, (int64_t)sizeof *dst);
}

typedef struct copy_job {
    char *dst;
    const char *src;
    int64_t bytes, dst_step, step; /* element steps along the inner dim */
} copy_job;

static void copy_run(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS])
{
    const copy_job *job = user;
    char *dst = job->dst + off[0] * job->bytes;
    const char *src = job->src + off[1] * job->bytes;
    if (job->step == 1 && job->dst_step == 1) {
        memcpy(dst, src, (size_t)(n * job->bytes));
        return;
    }
    tile t = {.ni = 1, .nj = n, .dj = job->dst_step, .sj = job->step};
    copy_tile_any(&t, dst, src, job->bytes);
}

enum { TILE = 64 };

/* The dim (not the inner one) along which a view is contiguous, -1 when there is none. */
static int32_t contiguous_dim(const dtp_nest *nest, int32_t view)
{
    for (int32_t i = 0; i + 1 < nest->rank; i++) {
        if (nest->stride[view][i] == 1 && nest->size[i] > 1) {
            return i;
        }
    }
    return -1;
}

static void transpose(const dtp_nest *nest, int32_t threads, int32_t along, const copy_job *job)
{
    dtp_nest rest = *nest; /* the other dims; a dummy inner dim of size 1 ends it */
    rest.size[along] = 1;
    rest.rows = nest->rows / nest->size[along];
    int64_t tiles_i = (nest->size[along] + TILE - 1) / TILE;
    int64_t tiles_j = (nest->inner + TILE - 1) / TILE;
    int64_t units = rest.rows * tiles_i;
    int32_t team = dtp_cpu_team(threads, dtp_nest_total(nest));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t u = 0; u < units; u++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&rest, u / tiles_i, off);
        int64_t i0 = u % tiles_i * TILE;
        tile t = {.di = nest->stride[0][along], .dj = job->dst_step, .si = 1, .sj = job->step};
        t.ni = nest->size[along] - i0 < TILE ? nest->size[along] - i0 : TILE;
        for (int64_t tj = 0; tj < tiles_j; tj++) {
            int64_t j0 = tj * TILE;
            t.nj = nest->inner - j0 < TILE ? nest->inner - j0 : TILE;
            copy_block(&t, job->dst + (off[0] + i0 * t.di + j0 * t.dj) * job->bytes,
                       job->src + (off[1] + i0 + j0 * t.sj) * job->bytes, job->bytes);
        }
    }
}

void dtp_nest_copy(const dtp_nest *nest, int32_t threads, void *dst, const void *src,
                   int64_t elem_bytes)
{
    copy_job job = {dst, src, elem_bytes, dtp_nest_step(nest, 0), dtp_nest_step(nest, 1)};
    int32_t along = job.step > 1 ? contiguous_dim(nest, 1) : -1;
    if (along >= 0) {
        transpose(nest, threads, along, &job);
    } else {
        dtp_nest_each(nest, threads, copy_run, &job);
    }
}

void dtp_view_copy(const dtp_ttype *shape, const dtp_view *dst, const dtp_view *src,
                   int32_t threads)
{
    const dtp_view *views[] = {dst, src};
    dtp_nest nest;
    dtp_nest_make(&nest, shape->rank, shape->dims, 2, views);
    dtp_nest_copy(&nest, threads, dst->data, src->data, dtp_dtype_bytes(dst->local.dtype));
}
