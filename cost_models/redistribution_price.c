/* Between two layouts that divide everything evenly no step leads to one that does not, so the
 * price of a step depends on bytes: it is kept by kind, mesh dims and bytes of the piece before and
 * after. Moves between such layouts are looked up in tables of all of them
 * (spmd/redistribute/redistribute_tables.h); the few others are searched one by one. */
#include "cost_models/redistribution_price.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/redistribute/redistribute_tables.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "spmd/lower/redistribute_program.h"

enum { KEY_WORDS = 3 };

typedef struct memo_entry {
    bool used;
    uint64_t key[KEY_WORDS];
    int64_t ps;
} memo_entry;

typedef struct memo {
    int32_t n, n_slots; /* a power of two, or 0 */
    memo_entry *slots;
} memo;

struct dtp_redistribution_pricer {
    const dtp_pricer *pricer;
    dtp_graph *names; /* its dims 0, 1, ... stand for those of any tensor */
    memo steps;
    dtp_redistribute_tables *costs; /* of redistributions between even layouts */
    dtp_redistributor search;
    dtp_redistribute_cache *cache;
    bool even;         /* both ends of the move that is planned are */
    dtp_status failed; /* of a step whose price could not be found */
    dtp_err why;
    dtp_dearest dearest;
};

/* ---- memo --------------------------------------------------------------------------------------
 */

static memo_entry *find(const memo *m, const uint64_t *key)
{
    uint64_t h = 0;
    for (int32_t i = 0; i < KEY_WORDS; i++) {
        h = (h ^ key[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    uint64_t at = h & (uint64_t)(m->n_slots - 1);
    while (m->slots[at].used && memcmp(m->slots[at].key, key, sizeof m->slots[at].key) != 0) {
        at = (at + 1) & (uint64_t)(m->n_slots - 1);
    }
    return &m->slots[at];
}

static bool grow(memo *m)
{
    const memo old = *m;
    if (2 * (m->n + 1) <= m->n_slots) {
        return true;
    }
    m->n_slots = old.n_slots > 0 ? 2 * old.n_slots : 1024;
    m->slots = calloc((size_t)m->n_slots, sizeof *m->slots);
    if (m->slots == NULL) {
        *m = old;
        return false;
    }
    for (int32_t i = 0; i < old.n_slots; i++) {
        if (old.slots[i].used) {
            *find(m, old.slots[i].key) = old.slots[i];
        }
    }
    free(old.slots);
    return true;
}

static bool lookup(const memo *m, const uint64_t *key, int64_t *ps)
{
    const memo_entry *e = m->n_slots > 0 ? find(m, key) : NULL;
    if (e == NULL || !e->used) {
        return false;
    }
    *ps = e->ps;
    return true;
}

static bool remember(memo *m, const uint64_t *key, int64_t ps)
{
    if (!grow(m)) {
        return false;
    }
    memo_entry *e = find(m, key);
    e->used = true;
    memcpy(e->key, key, sizeof e->key);
    e->ps = ps;
    m->n++;
    return true;
}

/* ---- steps -------------------------------------------------------------------------------------
 */

static dtp_status add_prices(dtp_redistribution_pricer *m, const dtp_program *p, int64_t *sum,
                             dtp_err *err)
{
    *sum = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int64_t ps = 0;
        DTP_TRY(dtp_price_instr_ps(m->pricer, p, &p->instrs[i], &m->dearest, &ps, err));
        if (!dtp_cost_add(sum, ps, 1)) {
            return dtp_cost_fail(m->pricer, &m->dearest, err);
        }
    }
    return DTP_OK;
}

static dtp_status price_program(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                const dtp_layout *before, const dtp_step *step, int64_t *ps,
                                dtp_err *err)
{
    const dtp_mesh *mesh = &m->pricer->mesh;
    dtp_redistribute_job job;
    const dtp_steps one = {.n = 1, .steps[0] = *step};
    dtp_ttype named = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        named.dims[i].id = i;
    }
    DTP_TRY(dtp_redistribute_program(m->names, mesh, &named, before, &one, &job, err));
    const dtp_status s = add_prices(m, job.program, ps, err);
    dtp_redistribute_job_free(&job);
    return s;
}

/* Bytes of a piece when every split is even, else -1. */
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

/* A step to an even layout whose pieces have so many bytes. */
static dtp_status price_even_step(dtp_redistribution_pricer *m, const dtp_ttype *type,
                                  const dtp_layout *before, const dtp_step *step,
                                  int64_t after_bytes, int64_t *ps, dtp_err *err)
{
    const uint64_t key[KEY_WORDS] = {(uint64_t)step->kind | (uint64_t)step->op << 8 |
                                         (uint64_t)type->dtype << 24 | (uint64_t)step->set << 32,
                                     (uint64_t)even_bytes(&m->pricer->mesh, type, before),
                                     (uint64_t)after_bytes};
    if (lookup(&m->steps, key, ps)) {
        return DTP_OK;
    }
    DTP_TRY(price_program(m, type, before, step, ps, err));
    return remember(&m->steps, key, *ps) ? DTP_OK
                                         : DTP_FAIL(err, DTP_NOMEM, "out of memory for prices");
}

static dtp_status even_step_price(void *user, const dtp_ttype *type, const dtp_layout *before,
                                  const dtp_step *step, int64_t *ps, dtp_err *err)
{
    dtp_redistribution_pricer *m = user;
    return price_even_step(m, type, before, step, even_bytes(&m->pricer->mesh, type, &step->after),
                           ps, err);
}

static double step_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                         const dtp_layout *before, const dtp_step *step)
{
    dtp_redistribution_pricer *m = user;
    int64_t ps = 0;
    const int64_t after_bytes = m->even ? even_bytes(mesh, type, &step->after) : 0;
    if (after_bytes < 0) {
        return (double)INFINITY;
    }
    dtp_err why;
    const dtp_status s = m->even ? price_even_step(m, type, before, step, after_bytes, &ps, &why)
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
    m->even = even_bytes(mesh, type, from) >= 0 && even_bytes(mesh, type, to) >= 0;
    DTP_TRY(dtp_redistribute_plan(mesh, type, from, to, step_price, m, out, err));
    return m->failed == DTP_OK ? DTP_OK
                               : DTP_FAIL(err, m->failed, "a redistribution: %s", m->why.msg);
}

/* ---- redistributions
 * -------------------------------------------------------------------------------------
 */

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

static dtp_status search_move(dtp_redistribution_pricer *m, const dtp_ttype *type,
                              const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                              dtp_err *err)
{
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
        const double step_ps = step_price(m, &m->pricer->mesh, type, before, &steps.steps[i]);
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
    DTP_TRY(dtp_redistribute_tables_find(m->costs, type, from, to, &known, ps, err));
    if (!known) {
        return search_move(m, type, from, to, ps, err);
    }
    return *ps < DTP_COST_LIMIT_PS || *ps == DTP_REDISTRIBUTION_IMPOSSIBLE
               ? DTP_OK
               : dtp_cost_fail(m->pricer, &m->dearest, err);
}

/* ---- life --------------------------------------------------------------------------------------
 */

static dtp_status name_dims(dtp_graph *g, dtp_err *err)
{
    static const char *const names[DTP_MAX_RANK] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    for (int32_t i = 0; i < DTP_MAX_RANK; i++) {
        dtp_dim_id id;
        DTP_TRY(dtp_dims_intern(&g->dims, names[i], 0, &id, err));
    }
    return DTP_OK;
}

dtp_status dtp_redistribution_pricer_create(const dtp_pricer *pricer,
                                            dtp_redistribution_pricer **out, dtp_err *err)
{
    dtp_redistribution_pricer *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the prices of redistributions");
    }
    m->pricer = pricer;
    m->search = (dtp_redistributor){plan, m};
    dtp_status s = dtp_graph_create("moves", &m->names, err);
    s = s == DTP_OK ? name_dims(m->names, err) : s;
    s = s == DTP_OK ? dtp_redistribute_cache_create(&m->search, 0, &m->cache, err) : s;
    s = s == DTP_OK
            ? dtp_redistribute_tables_create(&pricer->mesh, even_step_price, m, &m->costs, err)
            : s;
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
    dtp_redistribute_tables_destroy(m->costs);
    dtp_redistribute_cache_destroy(m->cache);
    dtp_graph_destroy(m->names);
    free(m->steps.slots);
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
