/* conv, conv_transpose, conv_weight: implicit matrix products in the workspace, as
 * spmd/target/conv_plan.h says. Units of work write disjoint parts of the result, each in one
 * order, so results do not depend on the number of threads. */
#include <string.h>

#include "executor/cpu/conv_library.h"
#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/parallel.h"
#include "spmd/target/conv_plan.h"

/* Operands of a run, and the result in f32: where it lies or in the workspace. */
typedef struct conv_job {
    const dtp_conv_plan *p;
    const void *data[DTP_CONV_PARTS]; /* of operands */
    float *sum;
    float *w; /* the matrix of the kernel, one of each group */
    int64_t ldw;
    float *tiles; /* of the calling thread */
} conv_job;

/* Neighbouring places of y along its last axis: columns [column, column + n) of a tile. */
typedef struct run_of_places {
    int64_t column, n, o[DTP_CONV_AXES];
    int64_t x, y; /* offset of the batch element in x; of the first place in y */
} run_of_places;

enum { MOST_COLUMNS = 256 };

/* Places [first, first + n) of the batch elements from `batch` on, of a group. */
typedef struct places_tile {
    int64_t group, batch, first, n;
    int32_t n_runs;
    run_of_places runs[MOST_COLUMNS];
} places_tile;

static void find_runs(const dtp_conv_plan *p, places_tile *t)
{
    const dtp_conv_axis *a = p->axis;
    t->n_runs = 0;
    for (int64_t c = 0; c < t->n;) {
        const int64_t at = t->first + c, b = t->batch + at / p->places, place = at % p->places;
        run_of_places *r = &t->runs[t->n_runs++];
        r->o[2] = place % a[2].out;
        r->o[1] = place / a[2].out % a[1].out;
        r->o[0] = place / a[2].out / a[1].out;
        r->column = c;
        r->n = a[2].out - r->o[2] < t->n - c ? a[2].out - r->o[2] : t->n - c;
        r->x = dtp_conv_offset(&p->batch, DTP_CONV_X, b);
        r->y = dtp_conv_offset(&p->batch, DTP_CONV_Y, b);
        for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
            r->y += r->o[i] * p->step[DTP_CONV_Y][i];
        }
        c += r->n;
    }
}

/* The elements of x that a run meets with a tap: `n` of them, `step` apart from `at` on, for the
 * columns from `skip` of the run on; outside of x is nothing. */
typedef struct met {
    int64_t skip, n, at, step;
} met;

static met meets(const dtp_conv_plan *p, const run_of_places *r, const int64_t tap[DTP_CONV_AXES])
{
    met m = {.at = r->x, .step = p->axis[2].stride * p->step[DTP_CONV_X][2]};
    for (int32_t i = 0; i < 2; i++) {
        const dtp_conv_axis *a = &p->axis[i];
        const int64_t at = r->o[i] * a->stride - a->before + tap[i] * a->dilation;
        if (at < 0 || at >= a->in) {
            return m;
        }
        m.at += at * p->step[DTP_CONV_X][i];
    }
    const dtp_conv_axis *a = &p->axis[2];
    const int64_t first = r->o[2] * a->stride - a->before + tap[2] * a->dilation;
    m.skip = first < 0 ? (a->stride - 1 - first) / a->stride : 0;
    m.skip = m.skip < r->n ? m.skip : r->n;
    const int64_t end = first >= a->in ? 0 : (a->in - 1 - first) / a->stride + 1;
    m.n = (end < r->n ? end : r->n) - m.skip;
    m.n = m.n > 0 ? m.n : 0;
    m.at += (first + m.skip * a->stride) * p->step[DTP_CONV_X][2];
    return m;
}

/* n elements, `step` apart, to f32; and the sum of those and f32. */
static void take(dtp_dtype dtype, int64_t n, const void *from, int64_t at, int64_t step, float *to)
{
    if (dtype != DTP_F32) {
        dtp_widen(dtype, n, (const uint16_t *)from + at, step, to);
        return;
    }
    const float *x = (const float *)from + at;
    if (step == 1) {
        memcpy(to, x, (size_t)n * sizeof *to);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        to[j] = x[j * step];
    }
}

static void add(int64_t n, const float *from, float *to, int64_t step)
{
    for (int64_t j = 0; j < n; j++) {
        to[j * step] += from[j];
    }
}

/* The rows of channels [first, first + n) of a column matrix: read from x, or added to the result.
 */
static void columns(const conv_job *j, const places_tile *t, int64_t first, int64_t n, bool reads,
                    float *col)
{
    const dtp_conv_plan *p = j->p;
    const int64_t of_group = dtp_conv_offset(&p->groups, DTP_CONV_X, t->group);
    for (int64_t row = 0; row < n * p->taps; row++, col += t->n) {
        const int64_t k = row % p->taps, last = p->axis[2].size;
        const int64_t tap[] = {k / last / p->axis[1].size, k / last % p->axis[1].size, k % last};
        const int64_t base = of_group + dtp_conv_offset(&p->ins, DTP_CONV_X, first + row / p->taps);
        for (int32_t i = 0; i < t->n_runs; i++) {
            const run_of_places *r = &t->runs[i];
            const met m = meets(p, r, tap);
            float *to = col + r->column;
            if (!reads) {
                add(m.n, to + m.skip, j->sum + base + m.at, m.step);
                continue;
            }
            memset(to, 0, (size_t)m.skip * sizeof *to);
            if (m.n > 0) {
                take(p->dtype[DTP_CONV_X], m.n, j->data[DTP_CONV_X], base + m.at, m.step,
                     to + m.skip);
            }
            memset(to + m.skip + m.n, 0, (size_t)(r->n - m.skip - m.n) * sizeof *to);
        }
    }
}

/* ---- Y and W ---- */

/* The rows of Y where they lie, else `tile`: they are copied. */
static float *rows_of_y(const conv_job *j, const places_tile *t, float *tile, int64_t *ld)
{
    const dtp_conv_plan *p = j->p;
    const bool of_one = t->first / p->places == (t->first + t->n - 1) / p->places;
    if (!p->y_rows || !of_one) {
        *ld = t->n;
        return tile;
    }
    const int64_t at = dtp_conv_offset(&p->groups, DTP_CONV_Y, t->group) + t->runs[0].y;
    *ld = p->outs.n > 0 ? p->outs.stride[DTP_CONV_Y][0] : t->n;
    /* Operands are only read. */
    return (p->result == DTP_CONV_Y ? j->sum : (float *)(uintptr_t)j->data[DTP_CONV_Y]) + at;
}

/* The rows of a tile to the result, or those of the operand to it. */
static void copy_y(const conv_job *j, const places_tile *t, float *tile)
{
    const dtp_conv_plan *p = j->p;
    const int64_t of_group = dtp_conv_offset(&p->groups, DTP_CONV_Y, t->group);
    const int64_t step = p->step[DTP_CONV_Y][2];
    for (int64_t o = 0; o < p->outs.total; o++) {
        const int64_t base = of_group + dtp_conv_offset(&p->outs, DTP_CONV_Y, o);
        for (int32_t i = 0; i < t->n_runs; i++) {
            const run_of_places *r = &t->runs[i];
            float *row = tile + o * t->n + r->column;
            if (p->result != DTP_CONV_Y) {
                take(p->dtype[DTP_CONV_Y], r->n, j->data[DTP_CONV_Y], base + r->y, step, row);
                continue;
            }
            for (int64_t c = 0; c < r->n; c++) {
                j->sum[base + r->y + c * step] = row[c];
            }
        }
    }
}

/* The kernel into matrices, or the matrices into the result. */
static void copy_w(const conv_job *j)
{
    const dtp_conv_plan *p = j->p;
    float *w = j->w;
    for (int64_t row = 0; row < p->groups.total * p->outs.total * p->ins.total; row++) {
        const int64_t in = row % p->ins.total, out = row / p->ins.total % p->outs.total;
        const int64_t base =
            dtp_conv_offset(&p->groups, DTP_CONV_W, row / p->ins.total / p->outs.total) +
            dtp_conv_offset(&p->outs, DTP_CONV_W, out) + dtp_conv_offset(&p->ins, DTP_CONV_W, in);
        const int64_t step = p->step[DTP_CONV_W][2], last = p->axis[2].size;
        for (int64_t k = 0; k < p->taps; k += last, w += last) {
            const int64_t at = base + k / last % p->axis[1].size * p->step[DTP_CONV_W][1] +
                               k / last / p->axis[1].size * p->step[DTP_CONV_W][0];
            if (p->result != DTP_CONV_W) {
                take(p->dtype[DTP_CONV_W], last, j->data[DTP_CONV_W], at, step, w);
                continue;
            }
            for (int64_t c = 0; c < last; c++) {
                j->sum[at + c * step] = w[c];
            }
        }
    }
}

static float *matrix_of(const conv_job *j, int64_t group)
{
    const dtp_conv_plan *p = j->p;
    return j->w + (p->w_matrix ? dtp_conv_offset(&p->groups, DTP_CONV_W, group)
                               : group * p->outs.total * j->ldw);
}

/* ---- units ---- */

/* The rows of x of channels from `first` on, where they lie. */
static float *rows_of_x(const conv_job *j, const places_tile *t, int64_t first)
{
    const dtp_conv_plan *p = j->p;
    const int64_t at = dtp_conv_offset(&p->batch, DTP_CONV_X, t->batch) + t->first +
                       dtp_conv_offset(&p->groups, DTP_CONV_X, t->group) +
                       dtp_conv_offset(&p->ins, DTP_CONV_X, first);
    return (p->result == DTP_CONV_X ? j->sum : (float *)(uintptr_t)j->data[DTP_CONV_X]) + at;
}

/* Channels [first, first + n) at a tile; `again`: the tile has a sum of other channels. */
static void step(const conv_job *j, const places_tile *t, int64_t first, int64_t n, bool again)
{
    const dtp_conv_plan *p = j->p;
    float *col = j->tiles, *tile = col + p->block * p->taps * p->tile;
    int64_t ldc = t->n;
    float *w = matrix_of(j, t->group) + first * p->taps;
    int64_t ldy;
    float *y = rows_of_y(j, t, tile, &ldy);
    const bool copied = y == tile;
    dtp_gemm g = {.alpha = 1.0f};
    if (copied && p->result != DTP_CONV_Y) {
        copy_y(j, t, tile);
    }
    if (p->x_rows) {
        col = rows_of_x(j, t, first);
        ldc = p->ins.n > 0 ? p->ins.stride[DTP_CONV_X][0] : t->n;
    } else if (p->result != DTP_CONV_X) {
        columns(j, t, first, n, true, col);
    }
    switch (p->result) {
    case DTP_CONV_Y:
        g = (dtp_gemm){false, false, p->outs.total, t->n, n * p->taps, 1.0f, again ? 1.0f : 0.0f, w,
                       col,   y,     j->ldw,        ldc,  ldy};
        break;
    case DTP_CONV_X:
        g = (dtp_gemm){true, false, n * p->taps, t->n,   p->outs.total, 1.0f, 0.0f,
                       w,    y,     col,         j->ldw, ldy,           ldc};
        break;
    default:
        g = (dtp_gemm){false, true, p->outs.total, n * p->taps, t->n,  1.0f, 1.0f, y,
                       col,   w,    ldy,           ldc,         j->ldw};
        break;
    }
    dtp_gemm_serial(&g);
    if (p->result == DTP_CONV_X && !p->x_rows) {
        columns(j, t, first, n, false, col);
    }
    if (copied && p->result == DTP_CONV_Y && first + n == p->ins.total) {
        copy_y(j, t, tile);
    }
}

/* Channels and tiles of a unit: ranges of numbers of blocks, chunks and tiles of a chunk. */
typedef struct unit {
    int64_t group, block[2], chunk[2], tile[2];
} unit;

static void run_unit(const conv_job *j, const unit *u)
{
    const dtp_conv_plan *p = j->p;
    places_tile t = {.group = u->group};
    for (int64_t chunk = u->chunk[0]; chunk < u->chunk[1]; chunk++) {
        t.batch = chunk * p->chunk;
        const int64_t left = p->batch.total - t.batch;
        const int64_t all = (left < p->chunk ? left : p->chunk) * p->places;
        for (int64_t tile = u->tile[0]; tile < u->tile[1] && tile * p->tile < all; tile++) {
            t.first = tile * p->tile;
            t.n = all - t.first < p->tile ? all - t.first : p->tile;
            find_runs(p, &t);
            for (int64_t b = u->block[0]; b < u->block[1]; b++) {
                const int64_t first = b * p->block, rest = p->ins.total - first;
                step(j, &t, first, rest < p->block ? rest : p->block, b > u->block[0]);
            }
        }
    }
}

/* Unit i: a tile of a conv, a chunk and block of a conv_transpose, a block of a conv_weight. */
static unit unit_of(const dtp_conv_plan *p, const int64_t n[3], int64_t i)
{
    const bool by[] = {p->result != DTP_CONV_Y, p->result != DTP_CONV_W, p->result == DTP_CONV_Y};
    unit u = {.group = 0};
    int64_t *const range[] = {u.block, u.chunk, u.tile};
    for (int32_t k = 0; k < 3; k++) {
        range[k][0] = by[k] ? i % n[k] : 0;
        range[k][1] = by[k] ? range[k][0] + 1 : n[k];
        i /= by[k] ? n[k] : 1;
    }
    u.group = i;
    return u;
}

typedef struct conv_state {
    dtp_conv_plan plan;
    dtp_conv_library *library; /* NULL: by products */
} conv_state;

static dtp_status conv_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const conv_state *state = args->state;
    const dtp_conv_plan *p = &state->plan;
    const dtp_view *out = &args->out[0];
    float *space = args->workspace;
    (void)err;
    if (state->library != NULL) {
        dtp_conv_library_run(state->library, args);
        return DTP_OK;
    }
    conv_job job = {.p = p, .sum = p->wide ? space + p->elems[0] : out->data};
    for (int32_t i = 0; i < DTP_CONV_PARTS; i++) {
        job.data[i] = p->at[i] < 0 ? job.sum : args->in[p->at[i]].data;
    }
    job.w = !p->w_matrix              ? space
            : p->result == DTP_CONV_W ? job.sum
                                      : (float *)(uintptr_t)job.data[DTP_CONV_W];
    job.ldw = p->w_matrix && p->outs.n > 0 ? p->outs.stride[DTP_CONV_W][0] : p->ins.total * p->taps;
    const int64_t elems = dtp_ttype_elems(&out->local);
    const bool packs = !p->w_matrix && elems > 0;
    if (packs && p->result == DTP_CONV_W) {
        memset(job.w, 0, (size_t)p->elems[0] * sizeof(float));
    } else if (packs) {
        copy_w(&job);
    }
    if (elems > 0 && (p->result != DTP_CONV_Y || p->ins.total == 0)) {
        memset(job.sum, 0, (size_t)elems * sizeof(float));
    }
    const int64_t across = p->chunk * p->places;
    const int64_t n[] = {p->block > 0 ? (p->ins.total + p->block - 1) / p->block : 0,
                         (p->batch.total + p->chunk - 1) / p->chunk,
                         p->tile > 0 ? (across + p->tile - 1) / p->tile : 0};
    const int64_t units = p->groups.total * (p->result == DTP_CONV_W   ? n[0]
                                             : p->result == DTP_CONV_X ? n[0] * n[1]
                                                                       : n[1] * n[2]);
    const int64_t used =
        elems > 0 && n[0] > 0 && n[1] > 0 && n[2] > 0 && p->outs.total > 0 ? units : 0;
    const int32_t wanted = dtp_cpu_team_of_products(args->threads, p->madds);
    const int32_t team = wanted < p->sets ? wanted : (int32_t)p->sets;
    const int entered = dtp_gemm_enter();
#pragma omp parallel num_threads(team) if (team > 1)
    {
        conv_job mine = job;
        mine.tiles = space + p->elems[0] + p->elems[1] + dtp_cpu_thread() * p->elems[2];
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < used; i++) {
            const unit u = unit_of(p, n, i);
            run_unit(&mine, &u);
        }
    }
    dtp_gemm_leave(entered);
    if (packs && p->result == DTP_CONV_W) {
        copy_w(&job);
    }
    if (p->wide && elems > 0) {
        dtp_narrow(out->local.dtype, elems, job.sum, out->data, 1);
    }
    return DTP_OK;
}

static dtp_status conv_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    conv_state *s;
    DTP_STATE(arena, state, s, err);
    dtp_conv_plan_bind(args, &s->plan);
    DTP_TRY(dtp_conv_library_bind(args, &s->plan, arena, &s->library, err));
    const int64_t needs = dtp_cpu_conv_workspace(args->call);
    return args->workspace_bytes >= needs
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "%s needs %lld bytes of workspace, it has %lld",
                          args->call->op->name, (long long)needs, (long long)args->workspace_bytes);
}

const dtp_kernel dtp_cpu_conv[] = {{"conv", conv_kernel, conv_bind, DTP_FLOATS},
                                   {"conv_transpose", conv_kernel, conv_bind, DTP_FLOATS},
                                   {"conv_weight", conv_kernel, conv_bind, DTP_FLOATS},
                                   {.op = NULL}};
