/* Overflow-checked size arithmetic. Each returns false, leaving *out alone, when the exact result
 * does not fit; callers turn that into DTP_RANGE with the values in the message. */
#ifndef DTP_CORE_BASE_SAFE_INT_H
#define DTP_CORE_BASE_SAFE_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool dtp_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool dtp_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline bool dtp_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t dtp_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0 ? 1 : 0);
}

#endif
