/* Element conversion between stored types (files) and tensor types, on host memory. */
#ifndef DTP_EXECUTOR_DEVICE_CONVERT_H
#define DTP_EXECUTOR_DEVICE_CONVERT_H

#include "core/layout/tensor_type.h"

/* A stored element type: every dtp_dtype, and those that files have and tensors do not. */
typedef enum dtp_store {
    DTP_STORE_F32 = DTP_F32,
    DTP_STORE_F64 = DTP_F64,
    DTP_STORE_BF16 = DTP_BF16,
    DTP_STORE_F16 = DTP_F16,
    DTP_STORE_I32 = DTP_I32,
    DTP_STORE_I64 = DTP_I64,
    DTP_STORE_BOOL = DTP_BOOL,
    DTP_STORE_U8,
    DTP_STORE_I8,
    DTP_STORE_I16,
    DTP_STORE_U16,
    DTP_STORE_U32,
    DTP_STORE_U64,
    DTP_STORE_F8, /* any 8-bit float: known by size only */
    DTP_N_STORES
} dtp_store;

/* Bytes of one element. */
int64_t dtp_store_bytes(dtp_store store);
bool dtp_store_is_float(dtp_store store);

/* Turns the bytes of each of n elements round: from big-endian to little-endian or back. */
void dtp_swap_bytes(void *data, int64_t n, int64_t elem_bytes);

/* Converts n elements. Floats round to nearest even; integers and bools become floats; integers
 * must fit (DTP_RANGE with index and value). DTP_UNSUPPORTED: float to integer or bool, or a type
 * that is known by size only. src and dst do not overlap. */
dtp_status dtp_convert(dtp_store from, const void *src, dtp_dtype to, void *dst, int64_t n,
                       dtp_err *err) DTP_MUST_CHECK;

/* Every element of an integer array in [0, below), or `also` (NULL: nothing)? DTP_RANGE with index
 * and value when not. Floats and below = 0 pass. */
dtp_status dtp_check_below(dtp_dtype dtype, const void *data, int64_t n, int64_t below,
                           const int64_t *also, dtp_err *err) DTP_MUST_CHECK;

/* One element as a double. */
double dtp_element(dtp_dtype dtype, const void *data, int64_t index);
/* One element of an i32, i64 or bool array; storing drops the high bits. */
static inline int64_t dtp_element_int(dtp_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case DTP_I32:
        return ((const int32_t *)data)[index];
    case DTP_I64:
        return ((const int64_t *)data)[index];
    default:
        return ((const uint8_t *)data)[index];
    }
}

static inline void dtp_element_set_int(dtp_dtype dtype, void *data, int64_t index, int64_t value)
{
    switch (dtype) {
    case DTP_I32:
        ((int32_t *)data)[index] = (int32_t)(uint32_t)(uint64_t)value;
        break;
    case DTP_I64:
        ((int64_t *)data)[index] = value;
        break;
    default:
        ((uint8_t *)data)[index] = value != 0;
        break;
    }
}

/* Stores a double as one element of a float type or, truncated, of an integer type. */
void dtp_element_set(dtp_dtype dtype, void *data, int64_t index, double value);

#endif
