/* attention and attention_part: one unit of work is a block of queries of one head. Its scores
 * against a block of keys are a tile in the workspace; a running maximum m, sum l and output o per
 * query are rescaled from block to block (online softmax). Blocks of keys that no query of the
 * block sees are skipped. */
#include "executor/cpu/attention.h"

#include <math.h>
#include <string.h>

#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/rows.h"
#include "executor/cpu/loops/simd.h"

void dtp_attention_mask_row(const dtp_attention_mat *mask, int64_t at, int64_t n, float *out)
{
    const void *from = (const char *)mask->data + at * dtp_dtype_bytes(mask->dtype);
    const uint8_t *truths = from;
    const float *floats = from;
    if (dtp_dtype_is_half(mask->dtype)) {
        dtp_widen(mask->dtype, n, from, mask->col_step, out);
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        out[j] = mask->dtype == DTP_F32            ? floats[j * mask->col_step]
                 : truths[j * mask->col_step] != 0 ? 0.0f
                                                   : -INFINITY;
    }
}

void dtp_attention_add_seen(const dtp_attention_pairs *pairs, int64_t cols, const float *x,
                            int64_t x_step, float *y, int64_t y_step)
{
    for (int64_t i = 0; i < pairs->n; i++) {
        for (int64_t j = 0; j < cols && pairs->mask[i] != -INFINITY; j++) {
            y[i * y_step + j] += pairs->scale * pairs->w[i] * x[i * x_step + j];
        }
    }
}

DTP_CPU_CLONES static float zero_sum(int64_t n, const float *x)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += 0.0f * x[i];
    }
    return sum;
}

const float *dtp_attention_block(const dtp_attention_mat *mat, int64_t at, int64_t rows,
                                 float *buffer, int64_t *ld)
{
    if (dtp_dtype_is_half(mat->dtype)) {
        *ld = mat->cols;
        for (int64_t i = 0; i < rows; i++) {
            dtp_widen(mat->dtype, mat->cols, (const uint16_t *)mat->data + at + i * mat->row_step,
                      mat->col_step, buffer + i * mat->cols);
        }
        return buffer;
    }
    const float *from = (const float *)mat->data + at;
    if (mat->col_step == 1 || mat->cols == 1) {
        *ld = mat->row_step;
        return from;
    }
    *ld = mat->cols;
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < mat->cols; j++) {
            buffer[i * mat->cols + j] = from[i * mat->row_step + j * mat->col_step];
        }
    }
    return buffer;
}

dtp_attention_keys dtp_attention_keys_of(const dtp_attention_mat *mat, int64_t at, int64_t rows,
                                         float *buffer, float *wide)
{
    dtp_attention_keys keys;
    keys.data =
        dtp_attention_block(mat, at, rows, dtp_dtype_is_half(mat->dtype) ? wide : buffer, &keys.ld);
    if (keys.data == buffer) {
        keys.by = buffer;
        keys.by_trans = true;
        keys.by_ld = keys.ld;
    } else {
        dtp_transpose(rows, mat->cols, keys.data, keys.ld, buffer);
        keys.by = buffer;
        keys.by_trans = false;
        keys.by_ld = rows;
    }
    return keys;
}

void dtp_attention_put(const dtp_attention_mat *mat, int64_t at, int64_t rows, const float *buffer,
                       bool add)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *from = buffer + i * mat->cols;
        if (dtp_dtype_is_half(mat->dtype)) {
            dtp_narrow(mat->dtype, mat->cols, from, (uint16_t *)mat->data + at + i * mat->row_step,
                       mat->col_step);
            continue;
        }
        float *to = (float *)mat->data + at + i * mat->row_step;
        if (!add && mat->col_step == 1) {
            memcpy(to, from, (size_t)mat->cols * sizeof *to);
            continue;
        }
        for (int64_t j = 0; j < mat->cols; j++) {
            float old = add ? to[j * mat->col_step] : 0.0f;
            to[j * mat->col_step] = old + from[j];
        }
    }
}

bool dtp_attention_is_finite(const float *x, int64_t rows, int64_t cols, int64_t ld)
{
    float sum = 0.0f; /* of zeros and NaN */
    for (int64_t i = 0; i < rows; i++) {
        sum += zero_sum(cols, x + i * ld);
    }
    return sum == 0.0f;
}

dtp_attention_at dtp_attention_at_of(const dtp_attention_shape *s, int64_t index, int64_t n)
{
    int64_t chunk = s->first_chunk + index / (n / s->local_chunks);
    int64_t of_keys = (chunk - s->shift + s->chunks) % s->chunks;
    return (dtp_attention_at){.query = chunk * s->global_queries + s->first_query,
                              .key = of_keys * s->keys};
}

int64_t dtp_attention_key_block(const dtp_attention_shape *s, dtp_attention_at at, int64_t key)
{
    int64_t n = s->keys - key, left = n;
    if (s->causal) {
        left = dtp_sequence_left(&s->order, at.key + key);
    }
    n = left < n ? left : n;
    return n < DTP_ATTENTION_KEYS ? n : DTP_ATTENTION_KEYS;
}

int64_t dtp_attention_visible(const dtp_attention_shape *s, dtp_attention_at at, int64_t query,
                              int64_t key, int64_t n)
{
    if (!s->causal) {
        return n;
    }
    int64_t place = at.query + query;
    int64_t position = s->ahead == 0 ? dtp_sequence_position(&s->order, place) : place + s->ahead;
    int64_t seen = position - dtp_sequence_position(&s->order, at.key + key) + 1;
    return seen < 0 ? 0 : seen < n ? seen : n;
}

int64_t dtp_attention_block_sees(const dtp_attention_shape *s, dtp_attention_at at, int64_t query,
                                 int64_t nq, int64_t key, int64_t n)
{
    int64_t most = 0, end = query + nq;
    while (query < end && most < n) {
        int64_t left = s->ahead == 0 ? dtp_sequence_left(&s->order, at.query + query) : nq;
        int64_t next = query + left < end ? query + left : end;
        int64_t seen = dtp_attention_visible(s, at, next - 1, key, n);
        most = seen > most ? seen : most;
        query = next;
    }
    return most;
}

typedef struct forward_job {
    dtp_bound_attention of;
    dtp_nest heads;
} forward_job;

/* Scratch of one thread. */
typedef struct forward_tile {
    float *s, *o, *q, *k, *v, *m, *l;
    float *wide; /* a block of 16-bit keys */
} forward_tile;

static forward_tile tile_of(const forward_job *job, float *base)
{
    const int64_t nq = DTP_ATTENTION_QUERIES, nk = DTP_ATTENTION_KEYS;
    const dtp_attention_shape *s = &job->of.shape;
    forward_tile t = {.s = base};
    t.o = t.s + nq * nk;
    t.q = t.o + nq * s->values;
    t.k = t.q + nq * s->features;
    t.v = t.k + nk * s->features;
    t.m = t.v + nk * s->values;
    t.l = t.m + nq;
    return t;
}

/* The queries of a block: local ones from `first` on, features in contiguous columns. */
typedef struct query_rows {
    int64_t first, n, ldq;
    bool exact; /* one query; keys that the mask hides have no part, whatever their values are */
    const float *q;
    const forward_tile *tile;
} query_rows;

/* Turns the scores of row i into weights relative to the new maximum and rescales what is there. */
static void weigh_row(const dtp_attention_shape *shape, const forward_tile *t, int64_t i,
                      int64_t nk, int64_t visible)
{
    float *s = t->s + i * nk, *o = t->o + i * shape->values;
    float m = visible > 0 ? dtp_row_max(visible, s, 1) : -INFINITY;
    if (m > t->m[i]) {
        if (t->l[i] != 0.0f) {
            float shrink = expf(t->m[i] - m);
            dtp_row_scale(shape->values, o, o, 1, shrink);
            t->l[i] *= shrink;
        }
        t->m[i] = m;
    }
    if (m == -INFINITY) { /* no weight */
        visible = 0;
    }
    if (visible > 0) {
        t->l[i] += (float)dtp_row_exp(visible, s, t->m[i], s);
    }
    memset(s + visible, 0, (size_t)(nk - visible) * sizeof *s);
}

/* Adds a row of the mask to the scores; whatever the score is, of a pair that is not seen it is
 * -inf. */
DTP_CPU_CLONES static void add_mask(int64_t n, const float *mask_row, float *s)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        s[j] = mask_row[j] == -INFINITY ? -INFINITY : s[j] + mask_row[j];
    }
}

/* Adds what the first nk keys of a block give to the queries [first, first + nq). */
static void add_keys(const forward_job *job, const int64_t off[DTP_NEST_VIEWS], dtp_attention_at at,
                     const query_rows *rows, int64_t key, int64_t nk)
{
    const dtp_attention_shape *sh = &job->of.shape;
    const forward_tile *t = rows->tile;
    int64_t ldv;
    dtp_attention_keys k = dtp_attention_keys_of(
        &job->of.mats.k, off[1] + key * job->of.mats.k.row_step, nk, t->k, t->wide);
    const float *v = dtp_attention_block(&job->of.mats.v, off[2] + key * job->of.mats.v.row_step,
                                         nk, t->v, &ldv);
    dtp_gemm_serial(&(dtp_gemm){false, k.by_trans, rows->n, nk, sh->features, (float)sh->scale,
                                0.0f, rows->q, k.by, t->s, rows->ldq, k.by_ld, nk});
    float mask_row[DTP_ATTENTION_KEYS];
    const dtp_attention_mat *mask = &job->of.mats.mask;
    for (int64_t i = 0; i < rows->n; i++) {
        const int64_t visible = dtp_attention_visible(sh, at, rows->first + i, key, nk);
        if (mask->data != NULL) {
            const int64_t row = off[DTP_ATTENTION_MASK] + (rows->first + i) * mask->row_step;
            dtp_attention_mask_row(mask, row + key * mask->col_step, visible, mask_row);
            add_mask(visible, mask_row, t->s + i * nk);
        }
        weigh_row(sh, t, i, nk, visible);
    }
    if (rows->exact && mask->data != NULL) {
        const dtp_attention_pairs pairs = {nk, mask_row, t->s, 1.0f};
        dtp_attention_add_seen(&pairs, sh->values, v, ldv, t->o, 0);
        return;
    }
    dtp_gemm_serial(&(dtp_gemm){false, false, rows->n, sh->values, nk, 1.0f, 1.0f, t->s, v, t->o,
                                nk, ldv, sh->values});
}

/* The queries, in whole; returns whether all that is in their results is finite. */
static bool query_rows_of(const forward_job *job, const int64_t off[DTP_NEST_VIEWS],
                          dtp_attention_at at, query_rows rows)
{
    const dtp_attention_shape *sh = &job->of.shape;
    const forward_tile *t = rows.tile;
    const int64_t first = rows.first, nq = rows.n;
    rows.q = dtp_attention_block(&job->of.mats.q, off[0] + first * job->of.mats.q.row_step, nq,
                                 t->q, &rows.ldq);
    memset(t->o, 0, (size_t)(nq * sh->values) * sizeof *t->o);
    for (int64_t i = 0; i < nq; i++) {
        t->m[i] = -INFINITY;
        t->l[i] = 0.0f;
    }
    for (int64_t key = 0; key < sh->keys;) {
        int64_t n = dtp_attention_key_block(sh, at, key);
        int64_t nk = dtp_attention_block_sees(sh, at, first, nq, key, n);
        if (nk > 0) {
            add_keys(job, off, at, &rows, key, nk);
        }
        key += n;
    }
    for (int64_t i = 0; i < nq; i++) {
        float *o = t->o + i * sh->values;
        dtp_row_scale(sh->values, o, o, 1,
                      t->l[i] > 0.0f || t->l[i] != t->l[i] ? 1.0f / t->l[i] : 0.0f);
        job->of.mats.lse[off[DTP_ATTENTION_LSE] + (first + i) * job->of.mats.lse_step] =
            t->m[i] + logf(t->l[i]);
    }
    dtp_attention_put(&job->of.mats.out, off[3] + first * job->of.mats.out.row_step, nq, t->o,
                      false);
    return dtp_attention_is_finite(t->o, nq, sh->values, sh->values);
}

/* One block of queries. A product takes what is in keys out of sight times 0, which is NaN where
 * that is not finite: such queries run one at a time, with the keys that they see. */
static void query_block(const forward_job *job, const int64_t off[DTP_NEST_VIEWS],
                        dtp_attention_at at, int64_t first, const forward_tile *t)
{
    const dtp_attention_shape *sh = &job->of.shape;
    int64_t left = sh->queries - first;
    int64_t nq = left < DTP_ATTENTION_QUERIES ? left : DTP_ATTENTION_QUERIES;
    bool finite = query_rows_of(job, off, at, (query_rows){.first = first, .n = nq, .tile = t});
    bool hides = sh->causal || job->of.mats.mask.data != NULL;
    for (int64_t i = 0; i < nq && !finite && hides; i++) {
        const query_rows one = {.first = first + i, .n = 1, .exact = true, .tile = t};
        (void)query_rows_of(job, off, at, one);
    }
}

/* A block of 16-bit keys, as f32. */
static dtp_status attention_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    dtp_bound_attention b;
    (void)arena, (void)state;
    dtp_bind_attention(args, false, &b);
    return dtp_cpu_reserve(args->backend, dtp_attention_wide(&b.mats.k), err);
}

static dtp_status attention_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    forward_job job;
    dtp_tdim dims[DTP_MAX_RANK];
    dtp_bind_attention(args, false, &job.of);
    const dtp_attention_shape *s = &job.of.shape;
    const int32_t n_shared = job.of.n_shared, n_grouped = job.of.n_grouped;
    memcpy(dims, job.of.shared_dims, sizeof dims);
    memcpy(dims + n_shared, job.of.grouped_dims, (size_t)n_grouped * sizeof dims[0]);
    dtp_nest_make(&job.heads, n_shared + n_grouped, dims, job.of.n_views, job.of.views);
    int64_t blocks = (s->queries + DTP_ATTENTION_QUERIES - 1) / DTP_ATTENTION_QUERIES;
    int64_t heads = dtp_nest_total(&job.heads), units = heads * blocks;
    int32_t team = dtp_attention_team(s, args, heads);
    if (units == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_attention_check_workspace(s, args, err));
    int entered = dtp_gemm_enter();
#pragma omp parallel num_threads(team) if (team > 1)
    {
        int64_t stride;
        float *base = (float *)args->workspace +
                      dtp_cpu_thread() * dtp_attention_tile_elems(s->features, s->values);
        forward_tile tile = tile_of(&job, base);
        tile.wide = dtp_cpu_scratch(args->backend, &stride);
        tile.wide += tile.wide != NULL ? dtp_cpu_thread() * stride : 0;
#pragma omp for schedule(dynamic)
        for (int64_t u = 0; u < units; u++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_elem(&job.heads, u / blocks, off);
            query_block(&job, off, dtp_attention_at_of(s, u / blocks, heads),
                        u % blocks * DTP_ATTENTION_QUERIES, &tile);
        }
    }
    dtp_gemm_leave(entered);
    return DTP_OK;
}

static int64_t tile_bytes(const dtp_attention_shape *s)
{
    return dtp_attention_tile_elems(s->features, s->values) * (int64_t)sizeof(float);
}

int32_t dtp_attention_team(const dtp_attention_shape *s, const dtp_kernel_args *args, int64_t heads)
{
    const double pairs = (double)(heads * s->queries) * (double)s->keys;
    const int64_t slots = args->workspace_bytes / tile_bytes(s);
    const int32_t threads = args->threads < slots ? args->threads : (int32_t)slots;
    return dtp_cpu_team_of_products(threads, pairs * (double)(s->features + s->values));
}

dtp_status dtp_attention_check_workspace(const dtp_attention_shape *s, const dtp_kernel_args *args,
                                         dtp_err *err)
{
    if (args->workspace_bytes < tile_bytes(s)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: workspace of %lld bytes, at least %lld are needed",
                        args->call->op->name, (long long)args->workspace_bytes,
                        (long long)tile_bytes(s));
    }
    return DTP_OK;
}

/* attention_merge: two attention results over disjoint keys become one; rows without keys have
 * lse -inf and no share ---- */

/* Views of both nests. */
enum { A, B, MERGED, LSE_A, LSE_B, LSE };

typedef struct merge_job {
    dtp_nest rows; /* of lse */
    dtp_nest values;
    dtp_dtype dtype; /* of a, b, out: f32 or 16-bit */
    const void *a, *b;
    const float *lse_a, *lse_b;
    void *out;
    float *lse;
} merge_job;

static float share_of(float part, float all)
{
    return all == -INFINITY ? 0.0f : expf(part - all);
}

DTP_CPU_CLONES static void blend(int64_t n, int64_t step, const float *a, const float *b,
                                 const float share[2], float *out)
{
    float sa = share[0], sb = share[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        out[i * step] = sa * a[i * step] + sb * b[i * step];
    }
}

/* n elements from `at` on. */
static void blend_run(const merge_job *job, int64_t n, int64_t at, const float share[2])
{
    const int64_t step = dtp_nest_step(&job->values, MERGED);
    if (!dtp_dtype_is_half(job->dtype)) {
        blend(n, step, (const float *)job->a + at, (const float *)job->b + at, share,
              (float *)job->out + at);
        return;
    }
    for (int64_t i = 0; i < n; i += DTP_HALF_BLOCK) {
        const int64_t m = n - i < DTP_HALF_BLOCK ? n - i : DTP_HALF_BLOCK, first = at + i * step;
        float a[DTP_HALF_BLOCK], b[DTP_HALF_BLOCK];
        dtp_widen(job->dtype, m, (const uint16_t *)job->a + first, step, a);
        dtp_widen(job->dtype, m, (const uint16_t *)job->b + first, step, b);
        blend(m, 1, a, b, share, a);
        dtp_narrow(job->dtype, m, a, (uint16_t *)job->out + first, step);
    }
}

static dtp_status attention_merge_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in, *out = args->out;
    merge_job job = {.dtype = out[0].local.dtype,
                     .a = in[0].data,
                     .b = in[2].data,
                     .lse_a = in[1].data,
                     .lse_b = in[3].data,
                     .out = out[0].data,
                     .lse = out[1].data};
    dtp_bind_attention_merge(args, &job.rows, &job.values);
    int64_t n = dtp_nest_total(&job.rows);
    int32_t team = dtp_cpu_team(args->threads, n * dtp_nest_total(&job.values));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < n; i++) {
        int64_t row[DTP_NEST_VIEWS];
        dtp_nest_elem(&job.rows, i, row);
        float la = job.lse_a[row[LSE_A]], lb = job.lse_b[row[LSE_B]], m = dtp_larger(la, lb);
        float lse = m + logf(share_of(la, m) + share_of(lb, m));
        const float share[] = {share_of(la, lse), share_of(lb, lse)};
        for (int64_t r = 0; r < job.values.rows; r++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_row(&job.values, r, off);
            blend_run(&job, job.values.inner, row[MERGED] + off[MERGED], share);
        }
        job.lse[row[LSE]] = lse;
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_attention[] = {
    {"attention", attention_kernel, attention_bind, DTP_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part", attention_kernel, attention_bind, DTP_FLOATS},
    {"attention_merge", attention_merge_kernel, NULL, DTP_FLOATS},
    {.op = NULL}};
