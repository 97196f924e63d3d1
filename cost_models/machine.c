#include "cost_models/machine.h"

#include <string.h>

#include "core/base/hash.h"

dtp_status dtp_machine_create(const char *name, dtp_machine **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_machine *m = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *m);
    const char *copy = m == NULL ? NULL : dtp_arena_strdup(arena, name);
    const char *place = m == NULL ? NULL : dtp_arena_printf(arena, "machine '%s'", name);
    if (copy == NULL || place == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "machine '%s': out of memory", name);
    }
    m->arena = arena;
    m->name = copy;
    m->place = place;
    m->kind = "cpu";
    m->overlap_slowdown = 1.0;
    m->provenance_how = m->provenance_date = m->provenance_host = m->provenance_tool = "";
    m->blas = "";
    *out = m;
    return DTP_OK;
}

void dtp_machine_destroy(dtp_machine *m)
{
    if (m != NULL) {
        dtp_arena_destroy(m->arena);
    }
}

int64_t dtp_machine_devices(const dtp_machine *m)
{
    int64_t n = 1;
    for (int32_t l = 0; l < m->n_levels; l++) {
        n *= m->levels[l].size;
    }
    return n;
}

static const dtp_op_curve *find_op_curve(const dtp_machine *m, const char *op)
{
    int32_t lo = 0;
    int32_t hi = m->n_op_curves - 1;
    while (lo <= hi) {
        int32_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(op, m->op_curves[mid].op);
        if (cmp == 0) {
            return &m->op_curves[mid];
        }
        if (cmp < 0) {
            hi = mid - 1;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

const dtp_op_curve *dtp_machine_op_curve(const dtp_machine *m, const char *op, bool fallback)
{
    const dtp_op_curve *c = find_op_curve(m, op);
    return c != NULL || !fallback ? c : find_op_curve(m, "*");
}

static uint64_t hash_double(uint64_t h, double v)
{
    return dtp_hash_bytes(h, &v, sizeof v);
}

static uint64_t hash_curve(uint64_t h, const dtp_curve *c)
{
    h = dtp_hash_i64(h, c->n);
    for (int32_t i = 0; i < c->n; i++) {
        h = hash_double(hash_double(h, c->x[i]), c->y[i]);
    }
    return h;
}

/* Everything that prices depend on; not the provenance. */
uint64_t dtp_machine_hash(const dtp_machine *m)
{
    uint64_t h = dtp_hash_text(DTP_HASH_SEED, m->name);
    h = dtp_hash_text(h, m->kind);
    h = dtp_hash_i64(h, m->memory_bytes);
    h = hash_double(hash_double(h, m->mem_bw_Bps), m->launch_s);
    for (int32_t d = 0; d < DTP_N_DTYPES; d++) {
        h = hash_double(h, m->flops[d]);
    }
    h = dtp_hash_i64(h, m->overlap ? 1 : 0);
    h = hash_double(h, m->overlap_slowdown);
    h = dtp_hash_i64(h, m->n_levels);
    for (int32_t l = 0; l < m->n_levels; l++) {
        h = dtp_hash_text(h, m->levels[l].name);
        h = dtp_hash_i64(h, m->levels[l].size);
        h = hash_double(hash_double(h, m->levels[l].latency_s), m->levels[l].bw_Bps);
    }
    h = dtp_hash_i64(h, m->n_op_curves);
    for (int32_t i = 0; i < m->n_op_curves; i++) {
        h = dtp_hash_text(h, m->op_curves[i].op);
        h = hash_double(h, m->op_curves[i].flops);
        h = hash_curve(h, &m->op_curves[i].time_s);
    }
    h = dtp_hash_i64(h, m->n_gemm);
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, p->m), p->n), p->k);
        h = dtp_hash_i64(h, (p->trans_a ? 2 : 0) + (p->trans_b ? 1 : 0));
        h = hash_double(h, p->flops);
    }
    h = dtp_hash_i64(h, m->n_coll_curves);
    for (int32_t i = 0; i < m->n_coll_curves; i++) {
        const dtp_coll_curve *c = &m->coll_curves[i];
        h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, c->kind), c->level), c->ranks);
        h = hash_curve(h, &c->time_s);
    }
    return h;
}
