/* Element conversion between stored types (files) and tensor types, on host memory. */
#include "executor/device/convert.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int64_t dtp_store_bytes(dtp_store store)
{
    switch (store) {
    case DTP_STORE_F64:
    case DTP_STORE_I64:
    case DTP_STORE_U64:
        return 8;
    case DTP_STORE_F32:
    case DTP_STORE_I32:
    case DTP_STORE_U32:
        return 4;
    case DTP_STORE_BF16:
    case DTP_STORE_F16:
    case DTP_STORE_I16:
    case DTP_STORE_U16:
        return 2;
    default:
        return 1;
    }
}

void dtp_swap_bytes(void *data, int64_t n, int64_t elem_bytes)
{
    unsigned char *at = data;
    for (int64_t i = 0; i < n; i++, at += elem_bytes) {
        for (int64_t a = 0, b = elem_bytes - 1; a < b; a++, b--) {
            const unsigned char byte = at[a];
            at[a] = at[b];
            at[b] = byte;
        }
    }
}

bool dtp_store_is_float(dtp_store s)
{
    return s == DTP_STORE_F32 || s == DTP_STORE_F64 || s == DTP_STORE_BF16 || s == DTP_STORE_F16;
}

static double half_to_double(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double mantissa = h & 1023, sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(mantissa + 1024, exponent - 25));
}

/* Round to nearest, ties to even, by scaling so that the last kept bit has weight one. */
static uint16_t double_to_half(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v)) {
        return (uint16_t)(sign | 0x7e00);
    }
    if (a >= 65520.0) {
        return (uint16_t)(sign | 0x7c00);
    }
    int exponent = 0;
    frexp(a, &exponent); /* a = m * 2^exponent with m in [0.5, 1) */
    exponent = exponent < -13 || a == 0.0 ? -13 : exponent;
    double units = nearbyint(ldexp(a, 11 - exponent)); /* 1024..2048 when normal */
    uint32_t bits = (uint32_t)units + (uint32_t)(exponent + 13) * 1024U;
    return (uint16_t)(sign | bits);
}

/* By way of an f32 that was rounded to odd, which keeps on which side of a tie v is. */
static uint16_t double_to_bf16(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((double)f != v && isfinite(f) && (bits & 1) == 0) {
        bits += fabs((double)f) < fabs(v) ? 1 : (uint32_t)-1;
    }
    if (isnan(f)) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double load_float(dtp_store s, const void *data, int64_t i)
{
    uint32_t bits;
    float f;
    switch (s) {
    case DTP_STORE_F32:
        return (double)((const float *)data)[i];
    case DTP_STORE_F64:
        return ((const double *)data)[i];
    case DTP_STORE_F16:
        return half_to_double(((const uint16_t *)data)[i]);
    default:
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
}

static int64_t load_int(dtp_store s, const void *data, int64_t i)
{
    switch (s) {
    case DTP_STORE_I64:
        return ((const int64_t *)data)[i];
    case DTP_STORE_I32:
        return ((const int32_t *)data)[i];
    case DTP_STORE_I16:
        return ((const int16_t *)data)[i];
    case DTP_STORE_I8:
        return ((const int8_t *)data)[i];
    case DTP_STORE_U16:
        return ((const uint16_t *)data)[i];
    case DTP_STORE_U32:
        return ((const uint32_t *)data)[i];
    case DTP_STORE_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void store_float(dtp_dtype to, void *dst, int64_t i, double v)
{
    switch (to) {
    case DTP_F32:
        ((float *)dst)[i] = (float)v;
        break;
    case DTP_F64:
        ((double *)dst)[i] = v;
        break;
    case DTP_F16:
        ((uint16_t *)dst)[i] = double_to_half(v);
        break;
    default:
        ((uint16_t *)dst)[i] = double_to_bf16(v);
        break;
    }
}

dtp_status dtp_convert(dtp_store from, const void *src, dtp_dtype to, void *dst, int64_t n,
                       dtp_err *err)
{
    if (from == DTP_STORE_F8) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "8-bit floats cannot be read");
    }
    if ((int)from == (int)to && to != DTP_BOOL) {
        if (n > 0) {
            memcpy(dst, src, (size_t)(n * dtp_dtype_bytes(to)));
        }
        return DTP_OK;
    }
    if (dtp_dtype_is_float(to)) {
        bool is_float = dtp_store_is_float(from);
        for (int64_t i = 0; i < n; i++) {
            double v = is_float                ? load_float(from, src, i)
                       : from == DTP_STORE_U64 ? (double)((const uint64_t *)src)[i]
                                               : (double)load_int(from, src, i);
            store_float(to, dst, i, v);
        }
        return DTP_OK;
    }
    if (dtp_store_is_float(from)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s values cannot become %s",
                        dtp_dtype_name((dtp_dtype)from), dtp_dtype_name(to));
    }
    int64_t low = to == DTP_I64 ? INT64_MIN : to == DTP_I32 ? INT32_MIN : 0;
    int64_t high = to == DTP_I64 ? INT64_MAX : to == DTP_I32 ? INT32_MAX : 1;
    for (int64_t i = 0; i < n; i++) {
        bool huge = from == DTP_STORE_U64 && ((const uint64_t *)src)[i] > INT64_MAX;
        int64_t v = from == DTP_STORE_U64 && !huge ? (int64_t)((const uint64_t *)src)[i]
                                                   : load_int(from, src, i);
        if (huge || v < low || v > high) {
            return DTP_FAIL(err, DTP_RANGE,
                            "element %" PRId64 " is %" PRId64 "%s, which is not a %s", i, v,
                            huge ? " (beyond 2^63)" : "", dtp_dtype_name(to));
        }
        dtp_element_set_int(to, dst, i, v);
    }
    return DTP_OK;
}

dtp_status dtp_check_below(dtp_dtype dtype, const void *data, int64_t n, int64_t below,
                           const int64_t *also, dtp_err *err)
{
    if (below <= 0 || (dtype != DTP_I32 && dtype != DTP_I64)) {
        return DTP_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t v = load_int((dtp_store)dtype, data, i);
        if ((v < 0 || v >= below) && (also == NULL || v != *also)) {
            return DTP_FAIL(err, DTP_RANGE,
                            "element %" PRId64 " is %" PRId64 ", outside 0..%" PRId64, i, v,
                            below - 1);
        }
    }
    return DTP_OK;
}

double dtp_element(dtp_dtype dtype, const void *data, int64_t index)
{
    return dtp_dtype_is_float(dtype) ? load_float((dtp_store)dtype, data, index)
                                     : (double)load_int((dtp_store)dtype, data, index);
}

void dtp_element_set(dtp_dtype dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case DTP_I32:
        ((int32_t *)data)[index] = (int32_t)value;
        break;
    case DTP_I64:
        ((int64_t *)data)[index] = (int64_t)value;
        break;
    case DTP_BOOL:
        ((uint8_t *)data)[index] = value != 0.0;
        break;
    default:
        store_float(dtype, data, index, value);
        break;
    }
}
