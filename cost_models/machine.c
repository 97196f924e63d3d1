#include "cost_models/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "cost_models/curve.h"
#include "cost_models/gemm.h"
#include "cost_models/machine_range.h"

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

/* "PLACE: WHERE.KEY is VALUE, not in [LEAST, MOST] UNIT"; `where` ends with a dot or is empty. */
static dtp_status check(const dtp_machine *m, const char *where, const char *key,
                        dtp_machine_number number, double value, dtp_err *err)
{
    const dtp_machine_range *r = dtp_machine_range_of(number);
    return dtp_machine_in_range(number, value)
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "%s: %s%s is %g, not in [%g, %g] %s", m->place, where,
                          key, value, r->least, r->most, r->unit);
}

static dtp_status check_device(const dtp_machine *m, dtp_err *err)
{
    bool stated = false;
    DTP_TRY(check(m, "device.", "memory_bytes", DTP_NUMBER_MEMORY, (double)m->memory_bytes, err));
    DTP_TRY(check(m, "device.", "mem_bw_Bps", DTP_NUMBER_BW, m->mem_bw_Bps, err));
    DTP_TRY(check(m, "device.", "launch_s", DTP_NUMBER_DELAY, m->launch_s, err));
    for (int32_t d = 0; d < DTP_N_DTYPES; d++) {
        const double rate = m->flops[d];
        if (rate < 0.0 || rate > 0.0 || isnan(rate)) {
            DTP_TRY(check(m, "device.flops.", dtp_dtype_name((dtp_dtype)d), DTP_NUMBER_FLOPS, rate,
                          err));
            stated = true;
        }
    }
    if (!stated) {
        return DTP_FAIL(err, DTP_INVALID, "%s: no FLOP rate is stated", m->place);
    }
    return check(m, "device.", "overlap_slowdown", DTP_NUMBER_SLOWDOWN, m->overlap_slowdown, err);
}

static dtp_status check_levels(const dtp_machine *m, dtp_err *err)
{
    int64_t devices = 1;
    for (int32_t l = 0; l < m->n_levels; l++) {
        const dtp_level *level = &m->levels[l];
        char where[32];
        (void)snprintf(where, sizeof where, "levels[%d].", l);
        DTP_TRY(check(m, where, "latency_s", DTP_NUMBER_DELAY, level->latency_s, err));
        DTP_TRY(check(m, where, "bw_Bps", DTP_NUMBER_BW, level->bw_Bps, err));
        if (level->size < 1) {
            return DTP_FAIL(err, DTP_RANGE, "%s: %ssize is %d, below 1", m->place, where,
                            level->size);
        }
        devices *= level->size;
        if (devices > INT32_MAX) {
            return DTP_FAIL(err, DTP_RANGE, "%s: more than %d devices at level '%s'", m->place,
                            INT32_MAX, level->name);
        }
    }
    return DTP_OK;
}

static dtp_status check_points(const dtp_machine *m, const char *where, const dtp_curve *c,
                               dtp_err *err)
{
    int32_t at = 0;
    const char *fault = dtp_curve_fault(c, &at);
    if (fault != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: %spoints[%d]: %s", m->place, where, at, fault);
    }
    for (int32_t i = 0; i < c->n; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "points[%d]", i);
        DTP_TRY(check(m, where, key, DTP_NUMBER_SIZE, c->x[i], err));
        DTP_TRY(check(m, where, key, DTP_NUMBER_TIME, c->y[i], err));
    }
    return DTP_OK;
}

static dtp_status check_op_curves(const dtp_machine *m, dtp_err *err)
{
    for (int32_t i = 0; i < m->n_op_curves; i++) {
        const dtp_op_curve *c = &m->op_curves[i];
        char where[128];
        (void)snprintf(where, sizeof where, "device.curves.ops['%.64s'].", c->op);
        if (i > 0 && strcmp(m->op_curves[i - 1].op, c->op) == 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: op '%s' has two curves", m->place, c->op);
        }
        if (c->flops < 0.0 || c->flops > 0.0 || isnan(c->flops)) {
            DTP_TRY(check(m, where, "flops", DTP_NUMBER_FLOPS, c->flops, err));
        }
        DTP_TRY(check(m, where, "fit_error", DTP_NUMBER_FIT_ERROR, c->fit_error, err));
        DTP_TRY(check_points(m, where, &c->time_s, err));
    }
    return DTP_OK;
}

static dtp_status check_gemm(const dtp_machine *m, dtp_err *err)
{
    for (int32_t i = 0; i < m->n_gemm; i++) {
        const dtp_gemm_point *p = &m->gemm[i];
        char key[32];
        (void)snprintf(key, sizeof key, "points[%d]", i);
        DTP_TRY(check(m, "device.curves.gemm.", key, DTP_NUMBER_FLOPS, p->flops, err));
        if (p->m < 1 || p->n < 1 || p->k < 1) {
            return DTP_FAIL(err, DTP_RANGE,
                            "%s: device.curves.gemm.%s: m %" PRId64 ", n %" PRId64 ", k %" PRId64
                            " must be positive",
                            m->place, key, p->m, p->n, p->k);
        }
    }
    return DTP_OK;
}

static dtp_status check_coll_curves(const dtp_machine *m, dtp_err *err)
{
    for (int32_t i = 0; i < m->n_coll_curves; i++) {
        const dtp_coll_curve *c = &m->coll_curves[i];
        char where[64];
        (void)snprintf(where, sizeof where, "device.curves.collectives[%d].", i);
        if (c->level < 0 || c->level >= m->n_levels || c->ranks < 2 ||
            c->ranks > dtp_machine_devices(m)) {
            return DTP_FAIL(err, DTP_RANGE, "%s: curve of %s: level %d of %d, %d ranks of %" PRId64,
                            m->place, dtp_coll_name(c->kind), c->level, m->n_levels, c->ranks,
                            dtp_machine_devices(m));
        }
        DTP_TRY(check(m, where, "fit_error", DTP_NUMBER_FIT_ERROR, c->fit_error, err));
        DTP_TRY(check_points(m, where, &c->time_s, err));
    }
    return DTP_OK;
}

static int by_op(const void *a, const void *b)
{
    return strcmp(((const dtp_op_curve *)a)->op, ((const dtp_op_curve *)b)->op);
}

dtp_status dtp_machine_index(dtp_machine *m, dtp_err *err)
{
    DTP_TRY(check_device(m, err));
    DTP_TRY(check_levels(m, err));
    if (m->n_op_curves > 0) {
        qsort(m->op_curves, (size_t)m->n_op_curves, sizeof *m->op_curves, by_op);
    }
    DTP_TRY(check_op_curves(m, err));
    DTP_TRY(check_gemm(m, err));
    DTP_TRY(check_coll_curves(m, err));
    const dtp_status s = dtp_gemm_grid_build(m, err);
    if (s != DTP_OK) {
        dtp_err_prefix(err, "%s: device.curves", m->place);
    }
    return s;
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

static uint64_t hash_curves(uint64_t h, const dtp_machine *m)
{
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
    return hash_curves(h, m);
}
