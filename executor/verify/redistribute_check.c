/* The tensor's elements are small positive whole numbers, distinct where the type allows it. On
 * partial mesh dims of n members, member n-1 holds what the others leave:
 *   sum       the others hold -1, 0 or 1
 *   avg       the same, everything times the number of averaged members
 *   prod      the others hold 1 or -1
 *   min, max  one member holds the element, the others something larger (smaller)
 *   bool      one member holds the element, the others what changes nothing
 * so that every order of reduction is exact. */
#include "executor/verify/redistribute_check.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/safe_int.h"
#include "executor/device/convert.h"
#include "executor/run/ranks.h"
#include "executor/run/runner.h"

enum { MAX_ELEMS = 1 << 26 };

typedef struct check {
    const dtp_redistribute_job *job;
    uint64_t seed;
    void *got[DTP_REDISTRIBUTE_CHECK_RANKS]; /* by rank: its shard of the result */
} check;

/* The partial mesh dims of a layout. */
typedef struct partials {
    dtp_mesh_set set;
    dtp_reduce_op op; /* SUM for averages */
    int32_t n;        /* members */
    double scale;     /* product of the averaged mesh dims */
} partials;

static partials partials_of(const dtp_program *p, const dtp_layout *layout)
{
    partials out = {.op = DTP_REDUCE_SUM, .scale = 1};
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *place = &layout->placement[m];
        if (place->kind == DTP_PARTIAL) {
            bool avg = place->op == DTP_REDUCE_AVG;
            out.set |= 1U << m;
            out.op = avg ? DTP_REDUCE_SUM : (dtp_reduce_op)place->op;
            out.scale *= avg ? (double)p->mesh.sizes[m] : 1;
        }
    }
    out.n = dtp_mesh_set_size(&p->mesh, out.set);
    return out;
}

static uint64_t mix(uint64_t seed, int64_t a, int64_t b)
{
    uint64_t h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(DTP_HASH_SEED, (int64_t)seed), a), b);
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 31;
}

/* Element `index` of the whole tensor. */
static double element(const check *c, dtp_dtype dtype, int64_t index)
{
    static const uint64_t range[DTP_N_DTYPES] = {
        [DTP_F32] = 4096,   [DTP_F64] = 1000000, [DTP_BF16] = 32, [DTP_F16] = 64,
        [DTP_I32] = 100000, [DTP_I64] = 1000000, [DTP_BOOL] = 1};
    uint64_t h = mix(c->seed, index, -1);
    return dtype == DTP_BOOL ? (double)(h & 1U) : (double)(1 + h % range[dtype]);
}

/* What member `mine` of the partial mesh dims holds of an element. */
static double share(const check *c, const partials *p, dtp_dtype dtype, int64_t index, int32_t mine)
{
    int32_t holder = (int32_t)(mix(c->seed, index, -2) % (uint64_t)p->n);
    double whole = element(c, dtype, index), rest = whole;
    if (p->n == 1) {
        return whole;
    }
    if (dtype == DTP_BOOL) {
        return mine == holder ? whole
                              : (p->op == DTP_REDUCE_PROD || p->op == DTP_REDUCE_MIN ? 1 : 0);
    }
    if (p->op == DTP_REDUCE_MIN || p->op == DTP_REDUCE_MAX) {
        double away = (double)(mix(c->seed, index, mine) % 3);
        return mine == holder ? whole : whole + (p->op == DTP_REDUCE_MIN ? away : -away);
    }
    for (int32_t k = 0; k < p->n - 1; k++) {
        uint64_t h = mix(c->seed, index, k);
        double other = p->op == DTP_REDUCE_PROD ? 1 - 2 * (double)(h & 1U) : (double)(h % 3) - 1;
        if (k == mine) {
            return other * p->scale;
        }
        rest = p->op == DTP_REDUCE_PROD ? rest * other : rest - other;
    }
    return rest * p->scale;
}

static dtp_status run_step(check *c, dtp_runner *runner, dtp_backend *backend, int32_t rank,
                           dtp_err *err)
{
    dtp_runner_times times;
    const dtp_view *v = dtp_runner_view(runner, c->job->result);
    size_t bytes = (size_t)dtp_ttype_bytes(&v->local);
    DTP_TRY(dtp_runner_prepare(runner, err));
    const dtp_value *value = &c->job->program->values[c->job->in];
    const dtp_view *in = dtp_runner_view(runner, c->job->in);
    const partials p = partials_of(c->job->program, &value->layout);
    int32_t mine = dtp_mesh_set_index(&c->job->program->mesh, p.set, rank);
    size_t in_bytes = (size_t)dtp_ttype_bytes(&in->local);
    void *host = calloc(in_bytes + 1, 1);
    DTP_TRY(DTP_MEMORY(err, host));
    for (int64_t i = 0; i < dtp_ttype_elems(&in->local); i++) {
        int64_t index = dtp_view_global_index(in, i);
        dtp_element_set(in->local.dtype, host, i, share(c, &p, in->local.dtype, index, mine));
    }
    dtp_status s =
        in_bytes > 0 ? backend->ops->upload(backend, in->data, host, in_bytes, err) : DTP_OK;
    free(host);
    DTP_TRY(s);
    DTP_TRY(dtp_runner_step(runner, c->seed, 0, &times, err));
    c->got[rank] = calloc(bytes + 1, 1);
    DTP_TRY(DTP_MEMORY(err, c->got[rank]));
    return bytes > 0 ? backend->ops->download(backend, c->got[rank], v->data, bytes, err) : DTP_OK;
}

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    check *c = user;
    dtp_runner *runner = NULL;
    DTP_TRY(dtp_runner_create(c->job->program, backend, comm, NULL, &runner, err));
    const dtp_status s = run_step(c, runner, backend, comm->rank, err);
    dtp_runner_destroy(runner);
    return s;
}

static double combine(dtp_reduce_op op, double a, double b)
{
    switch (op) {
    case DTP_REDUCE_PROD:
        return a * b;
    case DTP_REDUCE_MIN:
        return a < b ? a : b;
    case DTP_REDUCE_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Compares the shard of a rank; of partial results, the group's members hold the same elements. */
static void compare_rank(const check *c, int32_t rank, dtp_redistribute_verdict *out)
{
    const dtp_program *p = c->job->program;
    const dtp_value *value = &p->values[c->job->result];
    const partials parts = partials_of(p, &value->layout);
    dtp_view v = dtp_view_whole(&value->type);
    v.data = c->got[rank];
    dtp_value_local(p, c->job->result, rank, &v.local, v.offset);
    for (int64_t i = 0; i < dtp_ttype_elems(&v.local); i++) {
        int64_t index = dtp_view_global_index(&v, i);
        double want = element(c, value->type.dtype, index);
        double got = 0;
        for (int32_t k = 0; k < parts.n; k++) {
            int32_t member = dtp_mesh_set_member(&p->mesh, parts.set, rank, k);
            double part = dtp_element(value->type.dtype, c->got[member], i);
            got = k == 0 ? part : combine(parts.op, got, part);
        }
        got /= parts.scale;
        out->checked++;
        if (bits_of(got) != bits_of(want)) {
            if (out->wrong++ == 0) {
                out->rank = rank;
                out->index = index;
                out->got = got;
                out->want = want;
            }
        }
    }
}

dtp_status dtp_redistribute_check(const dtp_redistribute_job *job, const char *backend,
                                  uint64_t seed, dtp_redistribute_verdict *out, dtp_err *err)
{
    const dtp_program *p = job->program;
    const dtp_value *in = &p->values[job->in];
    int32_t ranks = dtp_mesh_ranks(&p->mesh);
    int64_t elems = dtp_ttype_elems(&in->type), all;
    if (ranks > DTP_REDISTRIBUTE_CHECK_RANKS || !dtp_mul_i64(elems, ranks, &all) ||
        all > MAX_ELEMS) {
        return DTP_FAIL(err, DTP_RANGE,
                        "%d ranks and %lld elements are too many to run on virtual ranks: at most "
                        "%d ranks and %d elements over all of them",
                        ranks, (long long)elems, DTP_REDISTRIBUTE_CHECK_RANKS, MAX_ELEMS);
    }
    check c = {.job = job, .seed = seed};
    const dtp_ranks_options options = {.comm = "sim", .backend = backend, .threads = 1};
    *out = (dtp_redistribute_verdict){.index = -1};
    dtp_status s = dtp_ranks_run(&options, &p->mesh, run_rank, &c, err);
    for (int32_t k = 0; k < ranks && s == DTP_OK; k++) {
        compare_rank(&c, k, out);
    }
    for (int32_t k = 0; k < ranks; k++) {
        free(c.got[k]);
    }
    return s;
}
