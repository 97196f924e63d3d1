/* Arithmetic of reductions and buffer rules shared by the communicators. */
#include "executor/comm/communicator_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"

dtp_status dtp_comm__can_reduce(const dtp_coll *coll, dtp_err *err)
{
    if (!dtp_coll_reduces(coll->kind)) {
        return DTP_OK;
    }
    bool op = coll->op == DTP_REDUCE_PROD || coll->op == DTP_REDUCE_MIN ||
              coll->op == DTP_REDUCE_MAX || (coll->op == DTP_REDUCE_SUM && coll->dtype != DTP_BOOL);
    if (!op) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: no '%s' reduction of %s",
                        dtp_coll_name(coll->kind), dtp_reduce_op_name(coll->op),
                        dtp_dtype_name(coll->dtype));
    }
    return DTP_OK;
}

/* combine_<name>(op, a, b, n): a[i] = a[i] op b[i]. Sums and products are formed in `wide`, which
 * is unsigned for integers: they wrap around. A NaN differs from itself and is kept. */
#define COMBINE(name, type, wide)                                                                  \
    static void combine_##name(dtp_reduce_op op, type a[restrict], const type b[restrict],         \
                               int64_t n)                                                          \
    {                                                                                              \
        switch (op) {                                                                              \
        case DTP_REDUCE_SUM:                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                a[i] = (type)((wide)a[i] + (wide)b[i]);                                            \
            }                                                                                      \
            break;                                                                                 \
        case DTP_REDUCE_PROD:                                                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                a[i] = (type)((wide)a[i] * (wide)b[i]);                                            \
            }                                                                                      \
            break;                                                                                 \
        case DTP_REDUCE_MIN:                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                a[i] = b[i] < a[i] || b[i] != b[i] ? b[i] : a[i];                                  \
            }                                                                                      \
            break;                                                                                 \
        default:                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];                                  \
            }                                                                                      \
            break;                                                                                 \
        }                                                                                          \
    }

COMBINE(f32, float, float)
COMBINE(f64, double, double)
COMBINE(i32, int32_t, uint32_t)
COMBINE(i64, int64_t, uint64_t)

static void combine_bool(dtp_reduce_op op, uint8_t *restrict a, const uint8_t *restrict b,
                         int64_t n)
{
    bool either = op == DTP_REDUCE_MAX;
    for (int64_t i = 0; i < n; i++) {
        bool x = a[i] != 0, y = b[i] != 0;
        a[i] = either ? x || y : x && y;
    }
}

/* bf16 and f16: a block at a time as f32. A float type converts to another without failing. */
static void combine_narrow(dtp_reduce_op op, dtp_dtype dtype, uint16_t *acc, const uint16_t *in,
                           int64_t n)
{
    enum { BLOCK = 512 };
    float a[BLOCK] = {0}, b[BLOCK] = {0};
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t k = n - i < BLOCK ? n - i : BLOCK;
        bool ok = dtp_convert((dtp_store)dtype, acc + i, DTP_F32, a, k, NULL) == DTP_OK &&
                  dtp_convert((dtp_store)dtype, in + i, DTP_F32, b, k, NULL) == DTP_OK;
        combine_f32(op, a, b, k);
        ok = ok && dtp_convert(DTP_STORE_F32, a, dtype, acc + i, k, NULL) == DTP_OK;
        assert(ok);
        (void)ok;
    }
}

void dtp_comm__combine(dtp_reduce_op op, dtp_dtype dtype, void *acc, const void *in, int64_t n)
{
    switch (dtype) {
    case DTP_F32:
        combine_f32(op, acc, in, n);
        break;
    case DTP_F64:
        combine_f64(op, acc, in, n);
        break;
    case DTP_I32:
        combine_i32(op, acc, in, n);
        break;
    case DTP_I64:
        combine_i64(op, acc, in, n);
        break;
    case DTP_BOOL:
        combine_bool(op, acc, in, n);
        break;
    default:
        combine_narrow(op, dtype, acc, in, n);
        break;
    }
}

void dtp_comm__elems(const dtp_coll *coll, int32_t n, int64_t *in, int64_t *out)
{
    *in = coll->count * dtp_coll_parts_in(coll, n);
    *out = coll->count * dtp_coll_parts_out(coll, n);
}

dtp_status dtp_comm__reserve(dtp_comm__scratch *scratch, size_t bytes, dtp_err *err)
{
    if (bytes <= scratch->capacity) {
        return DTP_OK;
    }
    void *grown = realloc(scratch->data, bytes);
    DTP_TRY(DTP_MEMORY(err, grown));
    scratch->data = grown;
    scratch->capacity = bytes;
    return DTP_OK;
}

dtp_status dtp_comm__unalias(dtp_comm__scratch *scratch, const dtp_coll *coll, int32_t n,
                             int32_t index, const dtp_coll_ends **ends, dtp_coll_ends *copy,
                             dtp_err *err)
{
    if (coll->n_bucket > 0) {
        return DTP_OK;
    }
    int64_t width = dtp_dtype_bytes(coll->dtype), n_in, n_out;
    dtp_comm__elems(coll, n, &n_in, &n_out);
    uintptr_t a = (uintptr_t)(*ends)->in, b = (uintptr_t)(*ends)->out;
    uintptr_t a_bytes = (uintptr_t)(n_in * width), b_bytes = (uintptr_t)(n_out * width);
    bool in_place = (coll->kind == DTP_ALL_REDUCE && a == b) ||
                    (coll->kind == DTP_ALL_GATHER && coll->out_outer <= 1 &&
                     a == b + (uintptr_t)index * a_bytes);
    if (in_place || a + a_bytes <= b || b + b_bytes <= a) {
        return DTP_OK;
    }
    DTP_TRY(dtp_comm__reserve(scratch, a_bytes, err));
    memcpy(scratch->data, (*ends)->in, a_bytes);
    *copy = (dtp_coll_ends){.in = scratch->data, .out = (*ends)->out};
    *ends = copy;
    return DTP_OK;
}

void dtp_comm__single(const dtp_coll *coll, const dtp_coll_ends *ends)
{
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const int64_t count = dtp_coll_at(coll, k)->count;
        if (ends[k].in != ends[k].out && count > 0) {
            memmove(ends[k].out, ends[k].in, (size_t)(count * dtp_dtype_bytes(coll->dtype)));
        }
    }
}
