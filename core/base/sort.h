/* Sorting by integer keys, stable and without comparisons: by one byte of the keys after the other,
 * those left out that are the same in all of them. */
#ifndef DTP_CORE_BASE_SORT_H
#define DTP_CORE_BASE_SORT_H

#include <stdint.h>

#include "core/base/status.h"

typedef struct dtp_keyed {
    uint64_t key;
    int64_t item; /* goes with it */
} dtp_keyed;

/* A signed number as a key, and back. */
static inline uint64_t dtp_sort_key(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

static inline int64_t dtp_sort_value(uint64_t key)
{
    return (int64_t)(key ^ UINT64_C(1) << 63);
}

/* Smallest keys first, equal ones in their order. `scratch` has room for n as well. */
void dtp_sort_keyed(dtp_keyed *items, dtp_keyed *scratch, int64_t n);

/* For qsort: doubles, the smallest first. */
int dtp_compare_doubles(const void *a, const void *b);

#endif
