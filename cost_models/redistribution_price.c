/* Between two layouts that divide everything evenly no step leads to one that does not, so the
 * price of a step depends on bytes and on what it packs: it is kept by kind, mesh dims, packing and
 * bytes of the shard before and after. Redistributions between such layouts are looked up in tables
 * of all of them (spmd/redistribute/redistribute_tables.h); the few others are searched one by one.
 */
#include "cost_models/redistribution_price.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "spmd/lower/redistribute_program.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "spmd/redistribute/redistribute_tables.h"

typedef struct step_price {
    uint64_t what;         /* kind, reduction, packing, element type, mesh dims */
    int64_t before, after; /* bytes of a shard */
    int64_t ps;
} step_price;

struct dtp_redistribution_pricer {
    const dtp_pricer *pricer;
    dtp_graph *names; /* its dims 0, 1, ... stand for those of any tensor */
    dtp_arena *arena;
    int32_t n_steps, cap_steps;
    step_price *steps;             /* between even layouts */
    dtp_hash_table index;          /* of steps */
    dtp_redistribute_tables *even; /* of redistributions between even layouts */
    dtp_redistribute_cache *cache;
    bool both_even;    /* both ends of the redistribution that is planned are */
    dtp_status failed; /* of a step whose price could not be found */
    dtp_err why;
    dtp_dearest dearest;
};

/* ---- steps ---- */

/* The sum of the instructions that a step becomes. */
static dtp_status price_program(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                const dtp_layout *before, const dtp_step *step, int64_t *ps,
                                dtp_err *err)
{
    dtp_redistribute_job job;
    const dtp_steps one = {.n = 1, .steps[0] = *step};
    dtp_ttype named = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        named.dims[i].id = i;
    }
    DTP_TRY(dtp_redistribute_program(m->names, &m->pricer->mesh, m->pricer->target, &named, before,
                                     &one, &job, err));
    const dtp_status s = dtp_program_price(m->pricer, job.program, &m->dearest, ps, err);
    dtp_redistribute_job_free(&job);
    return s;
}

/* Bytes of a shard when every split is even, else -1. */
static int64_t even_bytes(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout)
{
    int64_t parts[DTP_MAX_RANK], bytes = dtp_dtype_bytes(type->dtype);
    for (int32_t i = 0; i < type->rank; i++) {
        parts[i] = 1;
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        if (p->kind == DTP_SHARD) {
            parts[p->axis] *= mesh->sizes[m];
        }
    }
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t size = type->dims[i].size;
        if (parts[i] > 1) { /* division is what takes the time here */
            size /= parts[i];
            if (size * parts[i] != type->dims[i].size) {
                return -1;
            }
        }
        bytes *= size;
    }
    return bytes;
}

/* A step to an even layout whose shards have so many bytes. */
static dtp_status price_even_step(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                  const dtp_layout *before, const dtp_step *step,
                                  int64_t after_bytes, int64_t *ps, dtp_err *err)
{
    const uint32_t packs = dtp_step_packs(&m->pricer->mesh, type, before, step, m->pricer->target);
    step_price known = {.what = (uint64_t)step->kind | (uint64_t)step->op << 8 | packs << 16 |
                                (uint64_t)type->dtype << 24 | (uint64_t)step->set << 32,
                        .before = even_bytes(&m->pricer->mesh, type, before),
                        .after = after_bytes};
    uint64_t h = known.what * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 29 ^ (uint64_t)known.before) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 29 ^ (uint64_t)known.after) * UINT64_C(0x9e3779b97f4a7c15);
    const uint32_t hash = (uint32_t)(h >> 32);
    uint32_t at = hash;
    for (int32_t i; (i = dtp_hash_table_next(&m->index, hash, &at)) >= 0;) {
        const step_price *e = &m->steps[i];
        if (e->what == known.what && e->before == known.before && e->after == known.after) {
            *ps = e->ps;
            return DTP_OK;
        }
    }
    DTP_TRY(price_program(m, type, before, step, ps, err));
    known.ps = *ps;
    DTP_TRY(dtp_arena_grow(m->arena, &m->steps, m->n_steps, m->n_steps + 1, &m->cap_steps,
                           sizeof *m->steps, err));
    m->steps[m->n_steps] = known;
    return dtp_hash_table_add(&m->index, m->arena, hash, m->n_steps++, err);
}

static dtp_status even_step_price(void *user, const dtp_ttype *type, const dtp_layout *before,
                                  const dtp_step *step, int64_t *ps, dtp_err *err)
{
    dtp_redistribution_pricer *m = user;
    return price_even_step(m, type, before, step, even_bytes(&m->pricer->mesh, type, &step->after),
                           ps, err);
}

static double price_step(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                         const dtp_layout *before, const dtp_step *step)
{
    dtp_redistribution_pricer *m = user;
    int64_t ps = 0;
    const int64_t after_bytes = m->both_even ? even_bytes(mesh, type, &step->after) : 0;
    if (after_bytes < 0) {
        return (double)INFINITY;
    }
    dtp_err why;
    const dtp_status s = m->both_even
                             ? price_even_step(m, type, before, step, after_bytes, &ps, &why)
                             : price_program(m, type, before, step, &ps, &why);
    if (s != DTP_OK && m->failed == DTP_OK) {
        m->failed = s;
        m->why = why;
    }
    return s == DTP_OK ? (double)ps : (double)INFINITY;
}

static dtp_status plan(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_layout *to, dtp_steps *out, dtp_err *err)
{
    dtp_redistribution_pricer *m = user;
    m->failed = DTP_OK;
    m->both_even = even_bytes(mesh, type, from) >= 0 && even_bytes(mesh, type, to) >= 0;
    DTP_TRY((m->pricer->target->direct ? dtp_redistribute_direct : dtp_redistribute_plan)(
        mesh, type, from, to, price_step, m, out, err));
    return m->failed == DTP_OK ? DTP_OK
                               : DTP_FAIL(err, m->failed, "a redistribution: %s", m->why.msg);
}

/* ---- redistributions ---- */

/* Pairs that have no redistribution, told without the words of an error. */
static bool impossible(const dtp_layout *from, const dtp_layout *to)
{
    for (int32_t d = 0; d < from->n_mesh; d++) {
        const dtp_placement *a = &from->placement[d], *b = &to->placement[d];
        if (b->kind == DTP_PARTIAL &&
            (a->kind == DTP_SHARD || (a->kind == DTP_PARTIAL && a->op != b->op))) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_redistribution_price(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                    const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                                    dtp_err *err)
{
    bool known;
    if (dtp_layout_equal(from, to)) {
        *ps = 0;
        return DTP_OK;
    }
    if (impossible(from, to)) {
        *ps = DTP_REDISTRIBUTION_IMPOSSIBLE;
        return DTP_OK;
    }
    DTP_TRY(dtp_redistribute_tables_find(m->even, type, from, to, &known, ps, err));
    if (!known) {
        dtp_steps steps;
        dtp_err why = {0};
        const dtp_layout *before = from;
        dtp_status s = plan(m, &m->pricer->mesh, type, from, to, &steps, &why);
        if (s == DTP_UNSUPPORTED) {
            *ps = DTP_REDISTRIBUTION_IMPOSSIBLE;
            return DTP_OK;
        }
        if (s != DTP_OK) {
            return DTP_FAIL(err, s, "%s", why.msg);
        }
        *ps = 0;
        for (int32_t i = 0; i < steps.n; i++) {
            const double step_ps = price_step(m, &m->pricer->mesh, type, before, &steps.steps[i]);
            if (m->failed != DTP_OK) {
                return DTP_FAIL(err, m->failed, "%s", m->why.msg);
            }
            if (!(step_ps < (double)DTP_COST_LIMIT_PS) || !dtp_cost_add(ps, (int64_t)step_ps, 1)) {
                return dtp_cost_fail(m->pricer, &m->dearest, err);
            }
            before = &steps.steps[i].after;
        }
        return DTP_OK;
    }
    return *ps < DTP_COST_LIMIT_PS || *ps == DTP_REDISTRIBUTION_IMPOSSIBLE
               ? DTP_OK
               : dtp_cost_fail(m->pricer, &m->dearest, err);
}

/* ---- life ---- */

static dtp_status fill(dtp_redistribution_pricer *m, dtp_err *err)
{
    static const char *const names[DTP_MAX_RANK] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    const dtp_redistributor search = {plan, m};
    DTP_TRY(dtp_graph_create("moves", NULL, &m->names, err));
    for (int32_t i = 0; i < DTP_MAX_RANK; i++) {
        dtp_dim_id id;
        DTP_TRY(dtp_dims_intern(&m->names->dims, names[i], 0, &id, err));
    }
    DTP_TRY(dtp_redistribute_cache_create(&search, 0, &m->cache, err));
    return dtp_redistribute_tables_create(&m->pricer->mesh, m->pricer->target, even_step_price, m,
                                          &m->even, err);
}

dtp_status dtp_redistribution_pricer_create(const dtp_pricer *pricer,
                                            dtp_redistribution_pricer **out, dtp_err *err)
{
    dtp_redistribution_pricer *m = calloc(1, sizeof *m);
    if (m == NULL || (m->arena = dtp_arena_create()) == NULL) {
        free(m);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the prices of redistributions");
    }
    m->pricer = pricer;
    const dtp_status s = fill(m, err);
    if (s != DTP_OK) {
        dtp_redistribution_pricer_destroy(m);
        return s;
    }
    *out = m;
    return DTP_OK;
}

void dtp_redistribution_pricer_destroy(dtp_redistribution_pricer *m)
{
    if (m == NULL) {
        return;
    }
    dtp_redistribute_tables_destroy(m->even);
    dtp_redistribute_cache_destroy(m->cache);
    dtp_graph_destroy(m->names);
    dtp_arena_destroy(m->arena);
    free(m);
}

const dtp_dearest *dtp_redistribution_pricer_dearest(const dtp_redistribution_pricer *m)
{
    return &m->dearest;
}

const dtp_redistributor *dtp_redistribution_pricer_redistributor(const dtp_redistribution_pricer *m)
{
    return dtp_redistribute_cache_planner(m->cache);
}
