/* Reading a machine file: its fields, their ranges, and numbers that seem to be in other units. */
#include "cost_models/machine/machine.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/files/file_in.h"
#include "cost_models/machine/coll.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/kernel_model.h"

enum {
    MAX_FILE_BYTES = 16 << 20,
    MAX_OP_CURVES = 1536,
    MAX_COLL_CURVES = 1024,
    MAX_COLL_POINTS = 8192,
    MAX_GEMM = 8192,
    MAX_POINTS = 1024,
    MAX_LEVEL_SIZE = 1 << 20
};

static const char *const KINDS[] = {"cpu", "cuda", "hip", "tpu"};
static const char *const ROOT_KEYS[] = {
    "format", "name", "device", "levels", "efficiency", "provenance", "runtime", "yes_units", NULL};
static const char *const DEVICE_KEYS[] = {
    "kind",     "memory_bytes", "mem_bw_Bps",      "launch_s", "launch_graph_s",
    "host_s",   "flops",        "overlap",         "curves",   "overlap_slowdown",
    "products", "attention",    "multiprocessors", NULL};
static const char *const CURVES_KEYS[] = {"ops", "gemm", "collectives", NULL};
static const char *const OP_KEYS[] = {"op", "dtype", "flops", "fit_error", "points", NULL};
static const char *const GEMM_KEYS[] = {"fit_error", "points", NULL};
static const char *const COLL_KEYS[] = {"kind", "level", "ranks", "fit_error", "points", NULL};
static const char *const LEVEL_KEYS[] = {"name",        "size",  "latency_s", "bw_Bps",
                                         "collectives", "hop_s", "skew",      NULL};
static const char *const RATE_KEYS[] = {"start_s", "rank_s",    "ramp_bytes",
                                        "share",   "in_switch", NULL};
static const char *const PROVENANCE_KEYS[] = {"how",  "date",    "host",  "tool", "device",
                                              "blas", "threads", "ranks", NULL};

static dtp_status read_member(const dtp_json *obj, const char *key, dtp_machine_number number,
                              double *out, dtp_err *err)
{
    const dtp_json *v = NULL;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_machine__read_number(v, number, out, err);
}

/* Copies a non-empty string. */
static dtp_status read_name(dtp_arena *arena, const dtp_json *v, const char **out, dtp_err *err)
{
    const char *text = NULL;
    DTP_TRY(dtp_json_string(v, &text, err));
    if (text[0] == '\0' || strlen(text) > 256) {
        return dtp_json_fail(v, err, "expected a text of 1 to 256 bytes, found %zu", strlen(text));
    }
    *out = dtp_arena_line(arena, text);
    return DTP_MEMORY(err, *out);
}

/* Array member of an object with a bounded number of elements; *n = 0 when absent and optional. */
static dtp_status read_list(const dtp_json *obj, const char *key, int32_t max,
                            const dtp_json **list, int32_t *n, dtp_err *err)
{
    *n = 0;
    *list = dtp_json_get(obj, key);
    if (*list == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_expect(*list, DTP_JSON_ARRAY, err));
    if (dtp_json_size(*list) > max) {
        return dtp_json_fail(*list, err, "%d elements, at most %d are allowed",
                             dtp_json_size(*list), max);
    }
    *n = dtp_json_size(*list);
    return DTP_OK;
}

/* Row of a table: an array of exactly n elements. */
static dtp_status read_row(const dtp_json *row, int32_t n, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(row, DTP_JSON_ARRAY, err));
    if (dtp_json_size(row) != n) {
        return dtp_json_fail(row, err, "expected %d numbers, found %d", n, dtp_json_size(row));
    }
    return DTP_OK;
}

static dtp_status read_fit_error(const dtp_json *obj, double *out, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(obj, "fit_error");
    *out = 0.0;
    return v == NULL ? DTP_OK : dtp_machine__read_number(v, DTP_NUMBER_FIT_ERROR, out, err);
}

/* "points": [[bytes, curve seconds, measured seconds], ...] and what they deviate. */
static dtp_status read_curve(dtp_arena *arena, const dtp_json *obj, dtp_curve *out, dtp_err *err)
{
    const dtp_json *list = NULL;
    int32_t n = 0;
    DTP_TRY(read_fit_error(obj, &out->fit_error, err));
    DTP_TRY(dtp_json_require(obj, "points", &list, err));
    DTP_TRY(read_list(obj, "points", MAX_POINTS, &list, &n, err));
    if (n == 0) {
        return dtp_json_fail(list, err, "a curve needs at least one point");
    }
    double *x;
    double *y;
    double *measured;
    DTP_TRY(DTP_NEW(arena, x, n, err));
    DTP_TRY(DTP_NEW(arena, y, n, err));
    DTP_TRY(DTP_NEW(arena, measured, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *row = dtp_json_at(list, i);
        DTP_TRY(read_row(row, 3, err));
        DTP_TRY(dtp_machine__read_number(dtp_json_at(row, 0), DTP_NUMBER_SIZE, &x[i], err));
        DTP_TRY(dtp_machine__read_number(dtp_json_at(row, 1), DTP_NUMBER_TIME, &y[i], err));
        DTP_TRY(dtp_machine__read_number(dtp_json_at(row, 2), DTP_NUMBER_TIME, &measured[i], err));
        if (i > 0 && !(x[i] > x[i - 1])) {
            return dtp_json_fail(row, err, "sizes must ascend: %g after %g", x[i], x[i - 1]);
        }
        if (i > 0 && y[i] < y[i - 1]) {
            return dtp_json_fail(row, err, "times must not descend: %g after %g", y[i], y[i - 1]);
        }
    }
    out->n = n;
    out->x = x;
    out->y = y;
    out->measured = measured;
    return DTP_OK;
}

static dtp_status coll_kind_of(const dtp_json *v, const char *name, dtp_coll_kind *out,
                               dtp_err *err)
{
    for (int k = 0; k < DTP_N_COLLS; k++) {
        if (strcmp(name, dtp_coll_name((dtp_coll_kind)k)) == 0) {
            *out = (dtp_coll_kind)k;
            return DTP_OK;
        }
    }
    return dtp_json_fail(v, err, "unknown collective '%s'", name);
}

static dtp_status read_level_ref(const dtp_machine *m, const dtp_json *v, int32_t *out,
                                 dtp_err *err)
{
    const char *name = NULL;
    DTP_TRY(dtp_json_string(v, &name, err));
    for (int32_t l = 0; l < m->n_levels; l++) {
        if (strcmp(name, m->levels[l].name) == 0) {
            *out = l;
            return DTP_OK;
        }
    }
    return dtp_json_fail(v, err, "no level is named '%s'", name);
}

/* A curve of an older file: a level is fitted to its points. */
static dtp_status read_coll_curve(const dtp_machine *m, const dtp_json *v, dtp_coll_sample *samples,
                                  int32_t *n, dtp_err *err)
{
    const dtp_json *at = NULL;
    const char *name = NULL;
    int64_t ranks = 0, inside = 1;
    int32_t level = 0;
    dtp_coll_kind kind = DTP_ALL_REDUCE;
    dtp_curve curve;
    dtp_group_shape group;
    DTP_TRY(dtp_json_keys(v, COLL_KEYS, err));
    DTP_TRY(dtp_json_require(v, "kind", &at, err));
    DTP_TRY(dtp_json_string(at, &name, err));
    DTP_TRY(coll_kind_of(at, name, &kind, err));
    DTP_TRY(dtp_json_require(v, "level", &at, err));
    DTP_TRY(read_level_ref(m, at, &level, err));
    DTP_TRY(dtp_json_get_int(v, "ranks", 2, dtp_machine_devices(m), &ranks, err));
    for (int32_t i = 0; i < *n; i++) {
        const dtp_coll_sample *other = &samples[i];
        if (other->call.kind == kind && other->group.outer == level &&
            other->group.ranks == (int32_t)ranks) {
            return dtp_json_fail(v, err, "%s over %d ranks of level '%s' has two curves",
                                 dtp_coll_name(kind), (int)ranks, m->levels[level].name);
        }
    }
    DTP_TRY(read_curve(m->arena, v, &curve, err));
    for (int32_t l = 0; l < level; l++) {
        inside *= m->levels[l].size;
    }
    const int64_t blocks = level == 0 ? 1 : ranks > inside ? ranks / inside : ranks;
    DTP_TRY(dtp_json_prefixed(
        v, dtp_group_filling(m, level, (int32_t)ranks, (int32_t)blocks, &group, err), err));
    for (int32_t i = 0; i < curve.n; i++) {
        samples[(*n)++] = (dtp_coll_sample){group, {kind, curve.x[i], 1}, curve.measured[i]};
    }
    return DTP_OK;
}

static dtp_status read_coll_curves(dtp_machine *m, const dtp_json *curves, dtp_err *err)
{
    const dtp_json *list = NULL;
    dtp_coll_sample *samples;
    int32_t n = 0, n_samples = 0;
    int64_t room = 0;
    double error = 0.0;
    DTP_TRY(read_list(curves, "collectives", MAX_COLL_CURVES, &list, &n, err));
    for (int32_t i = 0; i < n; i++) {
        room += dtp_json_size(dtp_json_get(dtp_json_at(list, i), "points"));
    }
    if (room > MAX_COLL_POINTS) {
        return dtp_json_fail(list, err, "%" PRId64 " points, at most %d are allowed", room,
                             MAX_COLL_POINTS);
    }
    DTP_TRY(DTP_NEW(m->arena, samples, room, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_coll_curve(m, dtp_json_at(list, i), samples, &n_samples, err));
    }
    for (int32_t l = 0; l < m->n_levels && n > 0; l++) {
        DTP_TRY(dtp_level_fit(m->levels, l, n_samples, samples, &error, err));
    }
    return DTP_OK;
}

static dtp_status read_device(dtp_machine *m, const dtp_json *device, dtp_err *err)
{
    const dtp_json *v = NULL;
    DTP_TRY(dtp_json_keys(device, DEVICE_KEYS, err));
    const char *kind = NULL;
    DTP_TRY(dtp_json_require(device, "kind", &v, err));
    DTP_TRY(dtp_json_string(v, &kind, err));
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        m->kind = strcmp(kind, KINDS[i]) == 0 ? KINDS[i] : m->kind;
    }
    if (strcmp(kind, m->kind) != 0) {
        return dtp_json_fail(v, err, "expected \"cpu\", \"cuda\", \"hip\" or \"tpu\", found \"%s\"",
                             kind);
    }
    DTP_TRY(dtp_json_require(device, "memory_bytes", &v, err));
    DTP_TRY(dtp_json_bytes(v, 1, (int64_t)dtp_machine_range_of(DTP_NUMBER_MEMORY)->most,
                           &m->memory_bytes, err));
    DTP_TRY(read_member(device, "mem_bw_Bps", DTP_NUMBER_BW, &m->mem_bw_Bps, err));
    DTP_TRY(read_member(device, "launch_s", DTP_NUMBER_DELAY, &m->launch_s, err));
    v = dtp_json_get(device, "launch_graph_s");
    DTP_TRY(v != NULL ? dtp_machine__read_number(v, DTP_NUMBER_DELAY, &m->launch_graph_s, err)
                      : DTP_OK);
    v = dtp_json_get(device, "host_s");
    DTP_TRY(v != NULL ? dtp_machine__read_number(v, DTP_NUMBER_DELAY, &m->host_s, err) : DTP_OK);
    const dtp_json *flops = NULL;
    DTP_TRY(dtp_json_get_kind(device, "flops", DTP_JSON_OBJECT, &flops, err));
    if (dtp_json_size(flops) == 0) {
        return dtp_json_fail(flops, err, "at least one dtype is needed");
    }
    for (int32_t i = 0; i < dtp_json_size(flops); i++) {
        const dtp_json *rate = dtp_json_at(flops, i);
        dtp_arithmetic of = DTP_F32;
        DTP_TRY(dtp_json_prefixed(rate, dtp_arithmetic_parse(dtp_json_key(rate), &of, err), err));
        DTP_TRY(dtp_machine__read_number(rate, DTP_NUMBER_FLOPS, &m->flops[of], err));
    }
    v = dtp_json_get(device, "overlap");
    if (v != NULL) {
        DTP_TRY(dtp_json_bool(v, &m->overlap, err));
    }
    v = dtp_json_get(device, "overlap_slowdown");
    if (v != NULL && dtp_json_kind_of(v) == DTP_JSON_OBJECT) {
        DTP_TRY(read_member(v, "compute", DTP_NUMBER_SLOWDOWN, &m->slowdown.compute, err));
        return read_member(v, "comm", DTP_NUMBER_SLOWDOWN, &m->slowdown.comm, err);
    }
    if (v != NULL) { /* one number for both */
        DTP_TRY(dtp_machine__read_number(v, DTP_NUMBER_SLOWDOWN, &m->slowdown.compute, err));
        m->slowdown.comm = m->slowdown.compute;
    }
    return DTP_OK;
}

/* [m, n, k, trans_a, trans_b, flops, arithmetic, batch] with 0 or 1 for the transpositions; without
 * the last two f32 and 1. */
static dtp_status read_gemm_point(const dtp_json *row, dtp_gemm_point *p, dtp_err *err)
{
    enum { LEAST = 6, MOST = 8 };
    int64_t trans_a = 0, trans_b = 0;
    const int32_t n = dtp_json_kind_of(row) == DTP_JSON_ARRAY ? dtp_json_size(row) : 0;
    DTP_TRY(read_row(row, n > LEAST && n <= MOST ? n : LEAST, err));
    DTP_TRY(dtp_json_int(dtp_json_at(row, 0), 1, INT32_MAX, &p->m, err));
    DTP_TRY(dtp_json_int(dtp_json_at(row, 1), 1, INT32_MAX, &p->n, err));
    DTP_TRY(dtp_json_int(dtp_json_at(row, 2), 1, INT32_MAX, &p->k, err));
    DTP_TRY(dtp_json_int(dtp_json_at(row, 3), 0, 1, &trans_a, err));
    DTP_TRY(dtp_json_int(dtp_json_at(row, 4), 0, 1, &trans_b, err));
    p->trans_a = trans_a == 1;
    p->trans_b = trans_b == 1;
    DTP_TRY(dtp_machine__read_number(dtp_json_at(row, 5), DTP_NUMBER_FLOPS, &p->flops, err));
    if (n > LEAST) {
        const dtp_json *v = dtp_json_at(row, LEAST);
        const char *name = NULL;
        DTP_TRY(dtp_json_string(v, &name, err));
        DTP_TRY(dtp_json_prefixed(v, dtp_arithmetic_parse(name, &p->arithmetic, err), err));
        if (p->arithmetic < DTP_TF32 && !dtp_dtype_is_float((dtp_dtype)p->arithmetic)) {
            return dtp_json_fail(v, err, "expected a float type, found %s", name);
        }
    }
    p->batch = 1;
    return n < MOST ? DTP_OK
                    : dtp_json_int(dtp_json_at(row, MOST - 1), 1, INT32_MAX, &p->batch, err);
}

/* The member "dtype", f32 by default. */
static dtp_status read_dtype(const dtp_json *parent, dtp_dtype *out, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(parent, "dtype");
    const char *name = NULL;
    *out = DTP_F32;
    if (v == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_string(v, &name, err));
    return dtp_json_prefixed(v, dtp_dtype_parse(name, out, err), err);
}

static dtp_status read_curves(dtp_machine *m, const dtp_json *device, dtp_err *err)
{
    const dtp_json *curves = dtp_json_get(device, "curves");
    if (curves == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_keys(curves, CURVES_KEYS, err));
    const dtp_json *list = NULL;
    int32_t n = 0;
    DTP_TRY(read_list(curves, "ops", MAX_OP_CURVES, &list, &n, err));
    DTP_TRY(DTP_NEW(m->arena, m->op_curves, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *v = dtp_json_at(list, i);
        dtp_op_curve *c = &m->op_curves[i];
        const dtp_json *name = NULL;
        DTP_TRY(dtp_json_keys(v, OP_KEYS, err));
        DTP_TRY(dtp_json_require(v, "op", &name, err));
        DTP_TRY(read_name(m->arena, name, &c->op, err));
        DTP_TRY(read_dtype(v, &c->dtype, err));
        for (const dtp_op_curve *other = m->op_curves; other < c; other++) {
            if (strcmp(other->op, c->op) == 0 && other->dtype == c->dtype) {
                return dtp_json_fail(name, err, "op '%s' has two curves of %s", c->op,
                                     dtp_dtype_name(c->dtype));
            }
        }
        if (dtp_json_get(v, "flops") != NULL) {
            DTP_TRY(read_member(v, "flops", DTP_NUMBER_FLOPS, &c->flops, err));
        }
        DTP_TRY(read_curve(m->arena, v, &c->time_s, err));
    }
    m->n_op_curves = n;
    const dtp_json *gemm = dtp_json_get(curves, "gemm");
    if (gemm != NULL) {
        const dtp_json *rows = NULL;
        int32_t n_points = 0;
        double stated_error = 0.0;
        DTP_TRY(dtp_json_keys(gemm, GEMM_KEYS, err));
        DTP_TRY(read_fit_error(gemm, &stated_error, err));
        DTP_TRY(dtp_json_require(gemm, "points", &rows, err));
        DTP_TRY(read_list(gemm, "points", MAX_GEMM, &rows, &n_points, err));
        DTP_TRY(DTP_NEW(m->arena, m->gemm, n_points, err));
        for (int32_t i = 0; i < n_points; i++) {
            DTP_TRY(read_gemm_point(dtp_json_at(rows, i), &m->gemm[i], err));
        }
        m->n_gemm = n_points;
    }
    return read_coll_curves(m, curves, err);
}

/* What a level states of large groups. */
static dtp_status read_network(const dtp_json *v, dtp_level *level, dtp_err *err)
{
    if (dtp_json_get(v, "hop_s") != NULL) {
        DTP_TRY(read_member(v, "hop_s", DTP_NUMBER_DELAY, &level->hop_s, err));
    }
    return dtp_json_get(v, "skew") != NULL
               ? read_member(v, "skew", DTP_NUMBER_SKEW, &level->skew, err)
               : DTP_OK;
}

static dtp_status read_level(dtp_machine *m, const dtp_json *v, dtp_level *level, dtp_err *err)
{
    const dtp_json *at = NULL;
    int64_t size = 0;
    DTP_TRY(dtp_json_keys(v, LEVEL_KEYS, err));
    DTP_TRY(dtp_json_require(v, "name", &at, err));
    DTP_TRY(read_name(m->arena, at, &level->name, err));
    for (const dtp_level *other = m->levels; other < level; other++) {
        if (strcmp(other->name, level->name) == 0) {
            return dtp_json_fail(at, err, "level '%s' occurs twice", level->name);
        }
    }
    DTP_TRY(dtp_json_get_int(v, "size", 1, MAX_LEVEL_SIZE, &size, err));
    level->size = (int32_t)size;
    DTP_TRY(read_member(v, "latency_s", DTP_NUMBER_DELAY, &level->latency_s, err));
    DTP_TRY(read_member(v, "bw_Bps", DTP_NUMBER_BW, &level->bw_Bps, err));
    DTP_TRY(read_network(v, level, err));
    at = dtp_json_get(v, "collectives");
    const dtp_json *kinds = at;
    if (kinds == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_expect(kinds, DTP_JSON_OBJECT, err));
    for (int32_t i = 0; i < dtp_json_size(kinds); i++) {
        const dtp_json *of = dtp_json_at(kinds, i), *switched = NULL;
        dtp_coll_kind kind = DTP_ALL_REDUCE;
        DTP_TRY(dtp_json_expect(of, DTP_JSON_OBJECT, err));
        DTP_TRY(coll_kind_of(of, dtp_json_key(of), &kind, err));
        DTP_TRY(dtp_json_keys(of, RATE_KEYS, err));
        dtp_coll_rate r = {.in_switch = DTP_NO_SWITCH};
        DTP_TRY(read_member(of, "start_s", DTP_NUMBER_DELAY, &r.start_s, err));
        DTP_TRY(read_member(of, "rank_s", DTP_NUMBER_DELAY, &r.rank_s, err));
        DTP_TRY(read_member(of, "ramp_bytes", DTP_NUMBER_RAMP, &r.ramp_bytes, err));
        DTP_TRY(read_member(of, "share", DTP_NUMBER_SHARE, &r.share, err));
        switched = dtp_json_get(of, "in_switch");
        DTP_TRY(switched != NULL
                    ? dtp_machine__read_number(switched, DTP_NUMBER_SWITCHED, &r.in_switch, err)
                    : DTP_OK);
        level->rates[kind] = r;
    }
    return DTP_OK;
}

static dtp_status read_count(const dtp_json *obj, const char *key, int32_t *out, dtp_err *err)
{
    const dtp_json *v = dtp_json_get(obj, key);
    int64_t n = 0;
    if (v != NULL) {
        DTP_TRY(dtp_json_int(v, 1, INT32_MAX, &n, err));
    }
    *out = (int32_t)n;
    return DTP_OK;
}

static dtp_status read_provenance(dtp_machine *m, const dtp_json *root, dtp_err *err)
{
    const dtp_json *p = NULL;
    DTP_TRY(dtp_json_require(root, "provenance", &p, err));
    DTP_TRY(dtp_json_keys(p, PROVENANCE_KEYS, err));
    const dtp_json *how = NULL;
    DTP_TRY(dtp_json_require(p, "how", &how, err));
    DTP_TRY(read_name(m->arena, how, &m->provenance_how, err));
    static const char *const hows[] = {"datasheet", "measured", "fitted", NULL};
    int32_t known = 0;
    DTP_TRY(dtp_json_choice(how, hows, &known, err));
    struct {
        const char *key, **out;
    } texts[] = {{"date", &m->provenance_date},
                 {"host", &m->provenance_host},
                 {"tool", &m->provenance_tool},
                 {"device", &m->provenance_device},
                 {"blas", &m->blas}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const dtp_json *v = dtp_json_get(p, texts[i].key);
        if (v != NULL) {
            DTP_TRY(read_name(m->arena, v, texts[i].out, err));
        }
    }
    DTP_TRY(read_count(p, "threads", &m->provenance_threads, err));
    return read_count(p, "ranks", &m->provenance_ranks, err);
}

static dtp_status read_root(const char *file, const dtp_json *root, dtp_machine **out, dtp_err *err)
{
    const dtp_json *v = NULL;
    const char *text = NULL;
    DTP_TRY(dtp_json_keys(root, ROOT_KEYS, err));
    DTP_TRY(dtp_json_require(root, "format", &v, err));
    DTP_TRY(dtp_json_string(v, &text, err));
    if (strcmp(text, "dtp.machine/1") != 0) {
        return dtp_json_fail(v, err, "expected \"dtp.machine/1\", found \"%.80s\"", text);
    }
    DTP_TRY(dtp_json_require(root, "name", &v, err));
    DTP_TRY(dtp_json_string(v, &text, err));
    if (text[0] == '\0') {
        return dtp_json_fail(v, err, "the name is empty");
    }
    DTP_TRY(dtp_machine_create(text, out, err));
    dtp_machine *m = *out;
    m->place = dtp_arena_strdup(m->arena, file);
    DTP_TRY(DTP_MEMORY(err, m->place));
    const dtp_json *device = NULL;
    DTP_TRY(dtp_json_require(root, "device", &device, err));
    DTP_TRY(read_device(m, device, err));
    const dtp_json *list = NULL;
    int32_t n = 0;
    DTP_TRY(dtp_json_require(root, "levels", &list, err));
    DTP_TRY(read_list(root, "levels", DTP_MAX_LEVELS, &list, &n, err));
    for (int32_t l = 0; l < n; l++) {
        DTP_TRY(read_level(m, dtp_json_at(list, l), &m->levels[l], err));
        m->n_levels = l + 1;
        if (dtp_machine_devices(m) > INT_MAX) {
            return dtp_json_fail(dtp_json_at(list, l), err, "more than %d devices", INT_MAX);
        }
    }
    DTP_TRY(read_curves(m, device, err));
    DTP_TRY(dtp_kernel_models_read(m, device, err));
    v = dtp_json_get(root, "runtime");
    DTP_TRY(v != NULL ? read_name(m->arena, v, &m->runtime, err) : DTP_OK);
    const dtp_json *sets = dtp_json_get(root, "efficiency");
    if (sets != NULL && v != NULL) {
        return dtp_json_fail(v, err,
                             "the rates are those of one runtime, and \"efficiency\" has shares of "
                             "peaks: give one of them");
    }
    DTP_TRY(sets != NULL ? dtp_efficiency_read(m, sets, err) : DTP_OK);
    DTP_TRY(read_provenance(m, root, err));
    v = dtp_json_get(root, "yes_units");
    if (v != NULL) {
        DTP_TRY(dtp_json_bool(v, &m->yes_units, err));
    }
    return dtp_machine__derive(m, err);
}

/* ---- units ---- */

/* What numbers of machines are when they are in the units of the format. */
typedef struct usual_range {
    const char *key;
    double least, most;
    const char *unit, *instead; /* what is written where they are not */
} usual_range;

static const usual_range IN_DEVICE[] = {
    {"memory_bytes", 1e6, 1e14, "bytes", "gigabytes"},
    {"mem_bw_Bps", 1e9, 1e14, "bytes per second", "gigabytes per second"},
    {"launch_s", 0.0, 1e-3, "seconds", "microseconds"},
    {"launch_graph_s", 0.0, 1e-3, "seconds", "microseconds"},
    {"host_s", 0.0, 1e-3, "seconds", "microseconds"},
    {NULL, 0.0, 0.0, NULL, NULL}};
static const usual_range IN_LEVEL[] = {
    {"bw_Bps", 1e9, 1e14, "bytes per second", "gigabytes per second"},
    {"latency_s", 0.0, 1e-2, "seconds", "microseconds"},
    {"hop_s", 0.0, 1e-2, "seconds", "microseconds"},
    {NULL, 0.0, 0.0, NULL, NULL}};
static const usual_range FLOPS = {NULL, 1e9, 1e17, "FLOP/s", "TFLOP/s"};

static dtp_status check_unit(const dtp_json *v, const usual_range *r, dtp_err *err)
{
    double value = 0.0;
    if (v == NULL) {
        return DTP_OK;
    }
    if (dtp_json_kind_of(v) == DTP_JSON_STRING) {
        const char *text;
        int64_t bytes = 0;
        DTP_TRY(dtp_json_string(v, &text, err));
        if (strpbrk(text, "KkMmGgTtPpB") != NULL) {
            return DTP_OK; /* it says its unit */
        }
        DTP_TRY(dtp_json_bytes(v, 0, INT64_MAX, &bytes, err));
        value = (double)bytes;
    } else {
        DTP_TRY(dtp_json_double(v, &value, err));
    }
    if (value >= r->least && value <= r->most) {
        return DTP_OK;
    }
    const bool low = value < r->least;
    return dtp_json_fail(v, err,
                         "%g is %s %g: is it in %s, not in %s? If so, say it with --yes-units or "
                         "\"yes_units\": true in the file",
                         value, low ? "below" : "above", low ? r->least : r->most, r->unit,
                         r->instead);
}

static dtp_status check_members(const dtp_json *object, const usual_range *rows, dtp_err *err)
{
    for (const usual_range *r = rows; r->key != NULL; r++) {
        DTP_TRY(check_unit(dtp_json_get(object, r->key), r, err));
    }
    return DTP_OK;
}

/* DTP_INVALID naming the first number that looks as if it were in another unit. */
static dtp_status check_units(const dtp_json *root, dtp_err *err)
{
    const dtp_json *device = dtp_json_get(root, "device"), *levels = dtp_json_get(root, "levels");
    const dtp_json *flops = dtp_json_get(device, "flops");
    DTP_TRY(check_members(device, IN_DEVICE, err));
    for (int32_t i = 0; i < dtp_json_size(flops); i++) {
        DTP_TRY(check_unit(dtp_json_at(flops, i), &FLOPS, err));
    }
    for (int32_t l = 0; l < dtp_json_size(levels); l++) {
        DTP_TRY(check_members(dtp_json_at(levels, l), IN_LEVEL, err));
    }
    return DTP_OK;
}

static dtp_status parse(const char *file, const char *text, size_t len, bool ask, dtp_machine **out,
                        dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    dtp_machine *m = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    dtp_status status = read_root(file, dtp_json_root(doc), &m, err);
    if (status == DTP_OK && ask && m != NULL && !m->yes_units) {
        status = check_units(dtp_json_root(doc), err);
    }
    dtp_json_destroy(doc);
    if (status != DTP_OK) {
        dtp_machine_destroy(m);
        return status;
    }
    *out = m;
    return DTP_OK;
}

dtp_status dtp_machine_parse(const char *file, const char *text, size_t len, dtp_machine **out,
                             dtp_err *err)
{
    return parse(file, text, len, false, out, err);
}

dtp_status dtp_machine_read_units(const char *path, bool yes_units, dtp_machine **out, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    DTP_TRY(dtp_file_read(path, MAX_FILE_BYTES, &text, &len, err));
    dtp_status status = parse(path, text, len, !yes_units, out, err);
    free(text);
    return status;
}

dtp_status dtp_machine_read(const char *path, dtp_machine **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, path, out));
    return dtp_machine_read_units(path, false, out, err);
}

dtp_status dtp_machine_say_units(dtp_machine *m, dtp_err *err)
{
    char *text = NULL;
    dtp_machine *same = NULL;
    DTP_TRY(dtp_machine_write(m, &text, err));
    m->yes_units = parse(m->place, text, strlen(text), true, &same, NULL) != DTP_OK;
    free(text);
    dtp_machine_destroy(same);
    return DTP_OK;
}

dtp_status dtp_machine_index(dtp_machine *m, dtp_err *err)
{
    char *text = NULL;
    dtp_machine *same = NULL;
    DTP_TRY(dtp_machine_write(m, &text, err));
    const dtp_status s = dtp_machine_parse(m->place, text, strlen(text), &same, err);
    free(text);
    dtp_machine_destroy(same);
    return s == DTP_OK ? dtp_machine__derive(m, err) : s;
}
