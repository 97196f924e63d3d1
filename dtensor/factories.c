/* Factories: every rank computes the elements of its own shard from their index in the whole
 * tensor, so values do not depend on the layout and nothing is sent.
 *
 * Where a layout says partial, the members of a group must reduce to the value: with sum the first
 * member has it and the others 0, with prod the others have 1; with avg, min and max all have it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "executor/device/convert.h"
#include "executor/run/collect.h"
#include "dtensor/canonical_call.h"

enum { CHUNK_ELEMS = 1 << 14 };

typedef enum source { SOURCE_FULL, SOURCE_IOTA, SOURCE_UNIFORM, SOURCE_NORMAL } source;

/* What the elements are. */
typedef struct filling {
    source source;
    dtp_dtype dtype;
    double a, b;      /* FULL: a; IOTA: start, step; UNIFORM: low, high; NORMAL: mean, deviation */
    double low, high; /* UNIFORM: the least and the greatest value of the type in [a, b) */
    uint64_t seed;
    uint32_t stream;
} filling;

/* ---- elements ---- */

static void fill_uniform(const filling *f, int64_t first, int64_t n, void *out)
{
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)(first + i);
        if (i == 0 || index % 4 == 0) {
            dtp_philox_block(f->seed, f->stream, 0, index / 4, words);
        }
        double v = f->a + (f->b - f->a) * (double)dtp_uniform_f32(words[index % 4]);
        dtp_element_set(f->dtype, out, i, v);
        double stored = dtp_element(f->dtype, out, i);
        if (stored < f->low || stored > f->high) { /* rounded out of the interval */
            dtp_element_set(f->dtype, out, i, stored < f->low ? f->low : f->high);
        }
    }
}

static void fill_normal(const filling *f, int64_t first, int64_t n, void *out)
{
    double block[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)(first + i);
        if (i == 0 || index % 4 == 0) {
            dtp_normal_block(f->seed, f->stream, 0, index / 4, block);
        }
        dtp_element_set(f->dtype, out, i, f->a + f->b * block[index % 4]);
    }
}

/* ---- shards ---- */

bool dtp_tensor__neutral(const dtp_device_mesh *mesh, const dtp_layout *layout, double *value)
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    bool sum = false, prod = false;
    dtp_device_mesh_coords(mesh, coords);
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *at = &layout->placement[m];
        bool other = at->kind == DTP_PARTIAL && coords[m] > 0;
        sum = sum || (other && at->op == DTP_REDUCE_SUM);
        prod = prod || (other && at->op == DTP_REDUCE_PROD);
    }
    *value = sum ? 0 : 1;
    return sum || prod;
}

/* Writes this rank's shard, a chunk at a time. */
static dtp_status fill_shard(dtp_tensor t, const filling *f, dtp_err *err)
{
    dtp_device_mesh *mesh = t.mesh;
    const dtp_tensor_slot *slot = &mesh->slots[t.slot];
    void *chunk = malloc(CHUNK_ELEMS * sizeof(double));
    DTP_TRY(DTP_MEMORY(err, chunk));
    const int64_t width = dtp_dtype_bytes(f->dtype);
    dtp_shard shard = dtp_shard_of(&slot->type, &slot->layout, &mesh->comm->mesh, mesh->comm->rank);
    dtp_shard_iterator iterator = dtp_shard_iterator_of(&shard);
    char *to = slot->storage->data;
    dtp_status status = DTP_OK;
    for (bool more = true; more && status == DTP_OK;) {
        int64_t have = 0, first, n;
        while (have < CHUNK_ELEMS &&
               (more = dtp_shard_iterator_next(&iterator, CHUNK_ELEMS - have, &first, &n))) {
            /* Elements first .. first + n - 1 of the tensor. */
            void *out = (char *)chunk + have * width;
            switch (f->source) {
            case SOURCE_UNIFORM:
                fill_uniform(f, first, n, out);
                break;
            case SOURCE_NORMAL:
                fill_normal(f, first, n, out);
                break;
            default:
                for (int64_t i = 0; i < n; i++) {
                    double v = f->source == SOURCE_FULL ? f->a : f->a + f->b * (double)(first + i);
                    dtp_element_set(f->dtype, out, i, v);
                }
                break;
            }
            have += n;
        }
        status = mesh->backend->ops->upload(mesh->backend, to, chunk, (size_t)(have * width), err);
        to += have * width;
    }
    free(chunk);
    return status;
}

dtp_status dtp_tensor__fill(dtp_tensor t, double value, dtp_err *err)
{
    const dtp_dtype dtype = t.mesh->slots[t.slot].type.dtype;
    return fill_shard(t, &(filling){.source = SOURCE_FULL, .dtype = dtype, .a = value}, err);
}

/* The same on all ranks when they ask for the same. */
static uint64_t identity(const dtp_ttype *type, const dtp_layout *layout, const filling *f)
{
    dtp_tensor_key key;
    dtp_call__tensor_key("factory", type, layout, &key);
    key.number = (int64_t)f->stream << 8 | (int64_t)f->source;
    uint64_t h = dtp_hash_bytes(DTP_HASH_SEED, &key, sizeof key);
    return dtp_hash_bytes(dtp_hash_bytes(h, &f->a, sizeof f->a), &f->b, sizeof f->b);
}

static dtp_status make(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, filling f,
                       dtp_tensor *out, dtp_err *err)
{
    dtp_ttype type;
    dtp_tensor t;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    f.dtype = type.dtype;
    f.seed = mesh->options.seed;
    const uint64_t made = identity(&type, &desc->layout, &f);
    double neutral;
    if (dtp_tensor__neutral(mesh, &desc->layout, &neutral)) {
        f.source = SOURCE_FULL;
        f.a = neutral;
    }
    DTP_TRY(dtp_tensor__make(mesh, &type, &desc->layout, NULL, &t, err));
    mesh->slots[t.slot].storage->made = made;
    const dtp_status status = fill_shard(t, &f, err);
    if (status != DTP_OK) {
        dtp_tensor_destroy(t);
        return status;
    }
    *out = t;
    return DTP_OK;
}

/* ---- what fits ---- */

/* A constant of an integer type must be one. */
static dtp_status check_value(dtp_dtype dtype, double v, const char *what, dtp_err *err)
{
    double low = 0, high = 1;
    if (dtp_dtype_is_float(dtype)) {
        return DTP_OK;
    }
    if (dtype != DTP_BOOL) {
        low = dtype == DTP_I32 ? -0x1p31 : -0x1p63;
        high = dtype == DTP_I32 ? 0x1p31 - 1 : 0x1p63 - 1024; /* the largest double below 2^63 */
    }
    if (!(v >= low && v <= high) || v != floor(v)) {
        return DTP_FAIL(err, DTP_RANGE, "%s: %.17g is no value of %s", what, v,
                        dtp_dtype_name(dtype));
    }
    return DTP_OK;
}

static dtp_status check_float(const dtp_device_mesh *mesh, const dtp_tensor_desc *desc,
                              const char *what, dtp_err *err)
{
    dtp_ttype type;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    if (!dtp_dtype_is_float(desc->dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "%s: only float types have random values", what);
    }
    return DTP_OK;
}

/* The neighbour of a value of a type, above or below. 16-bit floats are ordered like their bits
 * without the sign. */
static double neighbour(dtp_dtype dtype, double v, bool above)
{
    double towards = above ? INFINITY : -INFINITY;
    if (dtype == DTP_F64) {
        return nextafter(v, towards);
    }
    if (dtype == DTP_F32) {
        return (double)nextafterf((float)v, (float)towards);
    }
    uint16_t bits;
    dtp_element_set(dtype, &bits, 0, v);
    if ((bits & 0x7fffU) == 0) {
        bits = above ? 0x0001U : 0x8001U;
    } else {
        bool grows = ((bits & 0x8000U) == 0) == above; /* away from zero */
        bits = (uint16_t)(grows ? bits + 1U : bits - 1U);
    }
    return dtp_element(dtype, &bits, 0);
}

static double rounded(dtp_dtype dtype, double v)
{
    double storage;
    dtp_element_set(dtype, &storage, 0, v);
    return dtp_element(dtype, &storage, 0);
}

/* ---- the factories ---- */

dtp_status dtp_tensor_full(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, double value,
                           dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    dtp_ttype type;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    DTP_TRY(check_value(desc->dtype, value, "full", err));
    return make(mesh, desc, (filling){.source = SOURCE_FULL, .a = value}, out, err);
}

dtp_status dtp_tensor_zeros(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, dtp_tensor *out,
                            dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    return dtp_tensor_full(mesh, desc, 0, out, err);
}

dtp_status dtp_tensor_ones(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, dtp_tensor *out,
                           dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    return dtp_tensor_full(mesh, desc, 1, out, err);
}

dtp_status dtp_tensor_iota(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, double start,
                           double step, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    dtp_ttype type;
    DTP_TRY(dtp_tensor__type(mesh, desc, &type, err));
    double last = start + step * (double)(dtp_ttype_elems(&type) - 1);
    DTP_TRY(check_value(desc->dtype, start, "iota", err));
    DTP_TRY(check_value(desc->dtype, last, "iota", err));
    if (!dtp_dtype_is_float(desc->dtype) && step != floor(step)) {
        return DTP_FAIL(err, DTP_RANGE, "iota: a step of %.17g in %s", step,
                        dtp_dtype_name(desc->dtype));
    }
    return make(mesh, desc, (filling){.source = SOURCE_IOTA, .a = start, .b = step}, out, err);
}

dtp_status dtp_tensor_uniform(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, uint32_t stream,
                              double low, double high, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    filling f = {.source = SOURCE_UNIFORM, .a = low, .b = high, .stream = stream};
    DTP_TRY(check_float(mesh, desc, "uniform", err));
    f.low = rounded(desc->dtype, f.a);
    f.low = f.low < f.a ? neighbour(desc->dtype, f.low, true) : f.low;
    f.high = rounded(desc->dtype, f.b);
    f.high = f.high >= f.b ? neighbour(desc->dtype, f.high, false) : f.high;
    if (!isfinite(f.a) || !isfinite(f.b) || !(f.low <= f.high) || !isfinite(f.low) ||
        !isfinite(f.high)) {
        return DTP_FAIL(err, DTP_INVALID, "uniform: no value of %s is in [%.17g, %.17g)",
                        dtp_dtype_name(desc->dtype), f.a, f.b);
    }
    return make(mesh, desc, f, out, err);
}

dtp_status dtp_tensor_normal(dtp_device_mesh *mesh, const dtp_tensor_desc *desc, uint32_t stream,
                             double mean, double stddev, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, desc, out));
    DTP_TRY(check_float(mesh, desc, "normal", err));
    return make(mesh, desc,
                (filling){.source = SOURCE_NORMAL, .a = mean, .b = stddev, .stream = stream}, out,
                err);
}

/* ---- variables ---- */

dtp_status dtp_variable_create(dtp_tensor initial, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor made;
    DTP_TRY(dtp_tensor_share(initial, &made, err));
    made.mesh->slots[made.slot].variable = true;
    *out = made;
    return DTP_OK;
}

dtp_status dtp_variable_assign(dtp_tensor variable, dtp_tensor value, dtp_err *err)
{
    dtp_tensor_slot *to, *from;
    DTP_TRY(dtp_tensor__slot(variable, "assign", &to, err));
    DTP_TRY(dtp_tensor__slot_on(variable.mesh, value, "assign", &from, err));
    if (!to->variable) {
        return DTP_FAIL(err, DTP_INVALID, "assign: the target is not a variable");
    }
    if (!dtp_ttype_equal(&to->type, &from->type) || !dtp_layout_equal(&to->layout, &from->layout)) {
        char have[DTP_TENSOR_TEXT_BYTES], given[DTP_TENSOR_TEXT_BYTES];
        dtp_tensor__text(variable.mesh, &to->type, &to->layout, have);
        dtp_tensor__text(variable.mesh, &from->type, &from->layout, given);
        return DTP_FAIL(err, DTP_INVALID, "assign: the variable is %.400s, the value %.400s", have,
                        given);
    }
    DTP_TRY(dtp_tape__record_assign(variable, value, err));
    to = &variable.mesh->slots[variable.slot]; /* slots have moved */
    from = &value.mesh->slots[value.slot];
    dtp_storage *old = to->storage;
    from->storage->refs++;
    to->storage = from->storage;
    dtp_storage__release(old);
    return DTP_OK;
}
