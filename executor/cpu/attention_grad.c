/* attention_grad and attention_part_grad: one unit of work is one head of k and v, with all heads
 * of q that share it, so that no two threads add to the same gradient. For a block of keys, dk and
 * dv are collected over the blocks of queries; weights are computed again from the scores and lse.
 * With d = dout.out per query: p = exp(s - lse); dv += p' dout; ds = p (dout v' - d); dq += scale
 * ds k; dk += scale ds' q. */
#include <math.h>
#include <string.h>

#include "executor/cpu/attention.h"
#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/rows.h"
#include "executor/cpu/loops/simd.h"

enum {
    Q = DTP_ATTENTION_Q,
    K = DTP_ATTENTION_K,
    V = DTP_ATTENTION_V,
    OUT = DTP_ATTENTION_OUT,
    LSE = DTP_ATTENTION_LSE,
    MASK = DTP_ATTENTION_MASK,
    DOUT = DTP_ATTENTION_DOUT,
    DQ = DTP_ATTENTION_DQ
};

typedef dtp_bound_attention backward_job;

/* Scratch of one thread; p, ds: tiles; q to out: packed blocks; dq, dk, dv: sums. */
typedef struct backward_tile {
    float *p, *ds, *q, *dq, *out, *dout, *k, *dk, *v, *dv, *d;
    float *wide_k, *wide_v, *sum; /* of 16-bit floats: blocks of keys and values; dq of all heads */
} backward_tile;

static backward_tile tile_of(const dtp_attention_shape *s, float *base)
{
    const int64_t nq = DTP_ATTENTION_QUERIES, nk = DTP_ATTENTION_KEYS;
    backward_tile t = {.p = base};
    t.ds = t.p + nq * nk;
    t.q = t.ds + nq * nk;
    t.dq = t.q + nq * s->features;
    t.out = t.dq + nq * s->features;
    t.dout = t.out + nq * s->values;
    t.k = t.dout + nq * s->values;
    t.dk = t.k + nk * s->features;
    t.v = t.dk + nk * s->features;
    t.dv = t.v + nk * s->values;
    t.d = t.dv + nk * s->values;
    return t;
}

/* A block of keys of one head. */
typedef struct key_block {
    int64_t first, n;
    dtp_attention_at at;
    dtp_attention_keys k, v;
} key_block;

DTP_CPU_CLONES static void score_grads(int64_t n, const float *p, float *ds, float d)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        ds[j] = p[j] * (ds[j] - d);
    }
}

/* Where dq of a head is collected: in its place, of 16-bit floats in f32. */
typedef struct query_sum {
    dtp_attention_mat mat;
    int64_t at;
} query_sum;

/* Head number g of those that share the keys. */
static query_sum query_sum_of(const backward_job *job, const backward_tile *t, int64_t g,
                              int64_t at)
{
    const int64_t features = job->shape.features;
    if (!dtp_dtype_is_half(job->mats.dq.dtype)) {
        return (query_sum){job->mats.dq, at};
    }
    return (query_sum){.mat = {.data = t->sum + g * job->shape.queries * features,
                               .dtype = DTP_F32,
                               .row_step = features,
                               .col_step = 1,
                               .cols = features}};
}

/* Queries [first, first + n), which see the first `keys` of a block of keys. `exact`: one query;
 * pairs that the mask hides have no part, whatever is in them. */
typedef struct query_block {
    int64_t first, n, keys;
    bool exact;
} query_block;

/* p and ds of a query from its scores and dout v'; `seen`: its row of the mask, NULL: none. */
static void weigh_pairs(int64_t n, const float *seen, float lse, float d, float *p, float *ds)
{
    for (int64_t j = 0; j < n && seen != NULL; j++) {
        p[j] += seen[j];
    }
    if (lse == -INFINITY) { /* no key has any weight */
        memset(p, 0, (size_t)n * sizeof *p);
    } else {
        dtp_row_exp_scale(n, p, p, 1, lse, 1.0f);
    }
    score_grads(n, p, ds, d);
    for (int64_t j = 0; j < n && seen != NULL; j++) {
        p[j] = seen[j] == -INFINITY ? 0.0f : p[j];
        ds[j] = seen[j] == -INFINITY ? 0.0f : ds[j];
    }
}

/* Adds to dk, dv and dq. */
static void block_pair(const backward_job *job, const backward_tile *t, const key_block *kb,
                       const int64_t off[DTP_NEST_VIEWS], query_block qb, const query_sum *dq)
{
    const dtp_attention_shape *s = &job->shape;
    const int64_t first = qb.first, nq = qb.n, nk = qb.keys;
    int64_t ldq, ldo, lddo, f = s->features, nv = s->values;
    float scale = (float)s->scale;
    const float *q =
        dtp_attention_block(&job->mats.q, off[Q] + first * job->mats.q.row_step, nq, t->q, &ldq);
    const float *out = dtp_attention_block(
        &job->mats.out, off[OUT] + first * job->mats.out.row_step, nq, t->out, &ldo);
    const float *dout = dtp_attention_block(
        &job->mats.dout, off[DOUT] + first * job->mats.dout.row_step, nq, t->dout, &lddo);
    dtp_gemm_serial(&(dtp_gemm){false, kb->k.by_trans, nq, nk, f, scale, 0.0f, q, kb->k.by, t->p,
                                ldq, kb->k.by_ld, nk});
    dtp_gemm_serial(&(dtp_gemm){false, kb->v.by_trans, nq, nk, nv, 1.0f, 0.0f, dout, kb->v.by,
                                t->ds, lddo, kb->v.by_ld, nk});
    float seen[DTP_ATTENTION_KEYS];
    const dtp_attention_mat *mask = &job->mats.mask;
    for (int64_t i = 0; i < nq; i++) {
        float *p = t->p + i * nk, *ds = t->ds + i * nk;
        int64_t visible = dtp_attention_visible(s, kb->at, first + i, kb->first, nk);
        float lse = job->mats.lse[off[LSE] + (first + i) * job->mats.lse_step];
        float d = (float)dtp_row_dot(nv, dout + i * lddo, 1, out + i * ldo, 1);
        if (mask->data != NULL) {
            const int64_t row = off[MASK] + (first + i) * mask->row_step;
            dtp_attention_mask_row(mask, row + kb->first * mask->col_step, visible, seen);
        }
        weigh_pairs(visible, mask->data == NULL ? NULL : seen, lse, d, p, ds);
        memset(p + visible, 0, (size_t)(nk - visible) * sizeof *p);
        memset(ds + visible, 0, (size_t)(nk - visible) * sizeof *ds);
    }
    if (qb.exact && mask->data != NULL) {
        const dtp_attention_pairs weights = {nk, seen, t->p, 1.0f},
                                  grads = {nk, seen, t->ds, scale};
        memset(t->dq, 0, (size_t)f * sizeof *t->dq);
        dtp_attention_add_seen(&weights, nv, dout, 0, t->dv, nv);
        dtp_attention_add_seen(&grads, f, q, 0, t->dk, f);
        dtp_attention_add_seen(&grads, f, kb->k.data, kb->k.ld, t->dq, 0);
        dtp_attention_put(&dq->mat, dq->at + first * dq->mat.row_step, nq, t->dq, kb->first > 0);
        return;
    }
    dtp_gemm_serial(
        &(dtp_gemm){true, false, nk, nv, nq, 1.0f, 1.0f, t->p, dout, t->dv, nk, lddo, nv});
    dtp_gemm_serial(&(dtp_gemm){true, false, nk, f, nq, scale, 1.0f, t->ds, q, t->dk, nk, ldq, f});
    dtp_gemm_serial(&(dtp_gemm){false, false, nq, f, nk, scale, 0.0f, t->ds, kb->k.data, t->dq, nk,
                                kb->k.ld, f});
    dtp_attention_put(&dq->mat, dq->at + first * dq->mat.row_step, nq, t->dq, kb->first > 0);
}

/* Queries [first, first + n) against a block of keys. */
static void some_queries(const backward_job *job, const backward_tile *t, const key_block *kb,
                         const int64_t off[DTP_NEST_VIEWS], query_block qb, const query_sum *dq)
{
    qb.keys = dtp_attention_block_sees(&job->shape, kb->at, qb.first, qb.n, kb->first, kb->n);
    if (qb.keys > 0) {
        block_pair(job, t, kb, off, qb, dq);
    } else if (kb->first == 0) {
        memset(t->dq, 0, (size_t)(qb.n * job->shape.features) * sizeof *t->dq);
        dtp_attention_put(&dq->mat, dq->at + qb.first * dq->mat.row_step, qb.n, t->dq, false);
    }
}

/* Must the queries run one at a time? Products take pairs out of sight times 0, which is NaN where
 * a key, a query or its gradient is not finite. */
static bool needs_single(const backward_job *job, const backward_tile *t, const key_block *kb,
                         const int64_t off[DTP_NEST_VIEWS], query_block qb)
{
    const dtp_attention_shape *s = &job->shape;
    const int64_t keys = dtp_attention_block_sees(s, kb->at, qb.first, qb.n, kb->first, kb->n);
    bool all = job->mats.mask.data == NULL;
    for (int64_t i = 0; i < qb.n && all; i++) {
        all = dtp_attention_visible(s, kb->at, qb.first + i, kb->first, keys) == keys;
    }
    if (all) {
        return false;
    }
    int64_t ldq, ldo;
    const float *q = dtp_attention_block(&job->mats.q, off[Q] + qb.first * job->mats.q.row_step,
                                         qb.n, t->q, &ldq);
    const float *dout = dtp_attention_block(
        &job->mats.dout, off[DOUT] + qb.first * job->mats.dout.row_step, qb.n, t->dout, &ldo);
    return !dtp_attention_is_finite(q, qb.n, s->features, ldq) ||
           !dtp_attention_is_finite(dout, qb.n, s->values, ldo) ||
           !dtp_attention_is_finite(kb->k.data, keys, s->features, kb->k.ld);
}

/* All queries of one head against a block of keys; the first block of keys sets dq. */
static void all_queries(const backward_job *job, const backward_tile *t, const key_block *kb,
                        const int64_t off[DTP_NEST_VIEWS], const query_sum *dq)
{
    const dtp_attention_shape *s = &job->shape;
    for (query_block qb = {0}; qb.first < s->queries; qb.first += DTP_ATTENTION_QUERIES) {
        int64_t left = s->queries - qb.first;
        qb.n = left < DTP_ATTENTION_QUERIES ? left : DTP_ATTENTION_QUERIES;
        if (!needs_single(job, t, kb, off, qb)) {
            some_queries(job, t, kb, off, qb, dq);
            continue;
        }
        for (int64_t i = 0; i < qb.n; i++) {
            some_queries(job, t, kb, off,
                         (query_block){.first = qb.first + i, .n = 1, .exact = true}, dq);
        }
    }
}

static void one_head(const backward_job *job, const int64_t base[DTP_NEST_VIEWS],
                     dtp_attention_at at, const backward_tile *t)
{
    const dtp_attention_shape *s = &job->shape;
    int64_t n_grouped = dtp_nest_total(&job->grouped);
    key_block kb = {.at = at};
    for (; kb.first < s->keys; kb.first += kb.n) {
        const int64_t key = kb.first;
        kb.n = dtp_attention_key_block(s, at, key);
        kb.k = dtp_attention_keys_of(&job->mats.k, base[K] + key * job->mats.k.row_step, kb.n, t->k,
                                     t->wide_k);
        kb.v = dtp_attention_keys_of(&job->mats.v, base[V] + key * job->mats.v.row_step, kb.n, t->v,
                                     t->wide_v);
        memset(t->dk, 0, (size_t)(kb.n * s->features) * sizeof *t->dk);
        memset(t->dv, 0, (size_t)(kb.n * s->values) * sizeof *t->dv);
        for (int64_t g = 0; g < n_grouped; g++) {
            int64_t off[DTP_NEST_VIEWS];
            dtp_nest_elem(&job->grouped, g, off);
            for (int32_t v = 0; v < DTP_ATTENTION_VIEWS; v++) {
                off[v] += base[v];
            }
            const query_sum dq = query_sum_of(job, t, g, off[DQ]);
            all_queries(job, t, &kb, off, &dq);
        }
        dtp_attention_put(&job->mats.dk, base[K] + key * job->mats.dk.row_step, kb.n, t->dk, false);
        dtp_attention_put(&job->mats.dv, base[V] + key * job->mats.dv.row_step, kb.n, t->dv, false);
    }
    for (int64_t g = 0; g < n_grouped && dtp_dtype_is_half(job->mats.dq.dtype) && s->keys > 0;
         g++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->grouped, g, off);
        dtp_attention_put(&job->mats.dq, base[DQ] + off[DQ], s->queries,
                          t->sum + g * s->queries * s->features, false);
    }
}

/* What a thread needs of scratch. */
static dtp_status attention_grad_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                      dtp_err *err)
{
    backward_job job;
    (void)arena, (void)state;
    dtp_bind_attention(args, true, &job);
    const int64_t sums = dtp_dtype_is_half(job.mats.dq.dtype) ? dtp_nest_total(&job.grouped) : 0;
    return dtp_cpu_reserve(args->backend,
                           dtp_attention_wide(&job.mats.k) + dtp_attention_wide(&job.mats.v) +
                               sums * job.shape.queries * job.shape.features,
                           err);
}

static dtp_status attention_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    backward_job job;
    dtp_bind_attention(args, true, &job);
    const dtp_attention_shape *s = &job.shape;
    int64_t units = dtp_nest_total(&job.shared);
    int32_t team = dtp_attention_team(s, args, units * dtp_nest_total(&job.grouped));
    if (units == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_attention_check_workspace(s, args, err));
    int entered = dtp_gemm_enter();
#pragma omp parallel num_threads(team) if (team > 1)
    {
        backward_tile tile =
            tile_of(s, (float *)args->workspace +
                           dtp_cpu_thread() * dtp_attention_tile_elems(s->features, s->values));
        int64_t stride;
        float *scratch = dtp_cpu_scratch(args->backend, &stride);
        if (scratch != NULL) {
            tile.wide_k = scratch + dtp_cpu_thread() * stride;
            tile.wide_v = tile.wide_k + dtp_attention_wide(&job.mats.k);
            tile.sum = tile.wide_v + dtp_attention_wide(&job.mats.v);
        }
#pragma omp for schedule(dynamic)
        for (int64_t u = 0; u < units; u++) {
            int64_t base[DTP_NEST_VIEWS];
            dtp_nest_elem(&job.shared, u, base);
            one_head(&job, base, dtp_attention_at_of(s, u, units), &tile);
        }
    }
    dtp_gemm_leave(entered);
    return DTP_OK;
}

const dtp_kernel dtp_cpu_attention_grad[] = {
    {"attention_grad", attention_grad_kernel, attention_grad_bind,
     DTP_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part_grad", attention_grad_kernel, attention_grad_bind, DTP_FLOATS},
    {.op = NULL}};
