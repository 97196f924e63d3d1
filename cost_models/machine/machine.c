/* The machine description, dtp.machine/1 (docs/formats/machine.md): device rates, measured
 * curves, network levels, and where every number came from. */
#include "cost_models/machine/machine.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "cost_models/machine/gemm.h"
#include "cost_models/machine/kernel_model.h"

dtp_status dtp_machine_create(const char *name, dtp_machine **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_machine *m = arena == NULL ? NULL : dtp_arena_alloc(arena, 1, sizeof *m);
    const char *copy = m == NULL ? NULL : dtp_arena_line(arena, name);
    const char *place = m == NULL ? NULL : dtp_arena_printf(arena, "machine '%s'", name);
    if (copy == NULL || place == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "machine '%s': out of memory", name);
    }
    m->arena = arena;
    m->name = copy;
    m->place = place;
    m->kind = "cpu";
    m->runtime = "";
    m->peak_share = 1.0;
    m->shares = (dtp_runtime_shares){.kernel = -1, .memory = 1.0};
    m->slowdown = (dtp_slowdown){1.0, 1.0};
    m->launch_graph_s = -1.0;
    m->provenance_how = m->provenance_date = m->provenance_host = m->provenance_tool =
        m->provenance_device = "";
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

bool dtp_machine_has_adapters(const dtp_machine *m)
{
    return m->kind != NULL && strcmp(m->kind, "cpu") != 0;
}

double dtp_machine_launch_s(const dtp_machine *m)
{
    return m->launch_graph_s < 0.0 ? m->launch_s : m->launch_graph_s;
}

static int by_op(const void *first, const void *second)
{
    const dtp_op_curve *a = first, *b = second;
    const int names = strcmp(a->op, b->op);
    return names != 0 ? names : (a->dtype > b->dtype) - (a->dtype < b->dtype);
}

dtp_status dtp_machine__derive(dtp_machine *m, dtp_err *err)
{
    if (m->n_op_curves > 0) {
        qsort(m->op_curves, (size_t)m->n_op_curves, sizeof *m->op_curves, by_op);
    }
    return dtp_err_prefixed(dtp_gemm_grid_build(m, err), err, "%s: device.curves", m->place);
}

static const dtp_op_curve *find_op_curve(const dtp_machine *m, const char *op, dtp_dtype dtype)
{
    const dtp_op_curve key = {.op = op, .dtype = dtype};
    return m->n_op_curves == 0
               ? NULL
               : bsearch(&key, m->op_curves, (size_t)m->n_op_curves, sizeof *m->op_curves, by_op);
}

const dtp_op_curve *dtp_machine_op_curve(const dtp_machine *m, const char *op, dtp_arithmetic dtype)
{
    const dtp_dtype own = dtype >= DTP_TF32 ? DTP_F32 : (dtp_dtype)dtype;
    const dtp_op_curve *c = find_op_curve(m, op, own);
    return c != NULL ? c : find_op_curve(m, op, DTP_F32);
}

static uint64_t hash_curve(uint64_t h, const dtp_curve *c)
{
    h = dtp_hash_i64(h, c->n);
    for (int32_t i = 0; i < c->n; i++) {
        h = dtp_hash_double(dtp_hash_double(h, c->x[i]), c->y[i]);
    }
    return h;
}

/* Everything that prices depend on; not the provenance. */
uint64_t dtp_machine_hash(const dtp_machine *m)
{
    uint64_t h = dtp_hash_text(DTP_HASH_SEED, m->name);
    h = dtp_hash_text(h, m->kind);
    h = dtp_hash_i64(h, m->memory_bytes);
    h = dtp_hash_double(dtp_hash_double(h, m->mem_bw_Bps), m->launch_s);
    h = m->launch_graph_s < 0.0 ? h : dtp_hash_double(h, m->launch_graph_s);
    h = m->host_s > 0.0 ? dtp_hash_double(h, m->host_s) : h;
    for (int32_t d = 0; d < DTP_N_DTYPES; d++) {
        h = dtp_hash_double(h, m->flops[d]);
    }
    for (int32_t d = DTP_TF32; d < DTP_N_ARITHMETICS; d++) {
        h = m->flops[d] > 0.0 ? dtp_hash_double(h, m->flops[d]) : h;
    }
    h = dtp_kernel_models__hash(h, m);
    h = dtp_hash_i64(h, m->overlap ? 1 : 0);
    h = dtp_hash_double(h, m->slowdown.compute);
    h = dtp_hash_double(h, m->slowdown.comm);
    h = dtp_hash_i64(h, m->n_levels);
    for (int32_t l = 0; l < m->n_levels; l++) {
        h = dtp_hash_text(h, m->levels[l].name);
        h = dtp_hash_i64(h, m->levels[l].size);
        h = dtp_hash_double(dtp_hash_double(h, m->levels[l].latency_s), m->levels[l].bw_Bps);
        if (m->levels[l].hop_s > 0.0 || m->levels[l].skew > 0.0) {
            h = dtp_hash_double(h, m->levels[l].hop_s);
            h = dtp_hash_double(h, m->levels[l].skew);
        }
        for (int32_t k = 0; k < DTP_N_COLLS; k++) {
            const dtp_coll_rate *r = &m->levels[l].rates[k];
            if (r->share > 0.0) {
                h = dtp_hash_double(dtp_hash_double(dtp_hash_i64(h, k), r->start_s), r->rank_s);
                h = dtp_hash_double(dtp_hash_double(h, r->ramp_bytes), r->share);
                h = dtp_hash_double(h, r->in_switch);
            }
        }
    }
    h = dtp_hash_i64(h, m->n_op_curves);
    for (int32_t i = 0; i < m->n_op_curves; i++) {
        h = dtp_hash_i64(dtp_hash_text(h, m->op_curves[i].op), m->op_curves[i].dtype);
        h = dtp_hash_double(h, m->op_curves[i].flops);
        h = hash_curve(h, &m->op_curves[i].time_s);
    }
    h = dtp_hash_i64(h, m->n_gemm);
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        h = dtp_hash_i64(dtp_hash_i64(dtp_hash_i64(h, p->m), p->n), p->k);
        h = dtp_hash_i64(h,
                         4 * (int64_t)p->arithmetic + (p->trans_a ? 2 : 0) + (p->trans_b ? 1 : 0));
        h = dtp_hash_double(h, p->flops);
        h = p->batch == 1 ? h : dtp_hash_i64(h, p->batch);
    }
    return h;
}
