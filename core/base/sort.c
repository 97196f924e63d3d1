/* Sorting by integer keys, stable and without comparisons: by one byte of the keys after the
 * other, those left out that are the same in all of them. */
#include "core/base/sort.h"

#include <string.h>

enum { FEW = 24, BYTES = 8, VALUES = 256 };

/* By the byte at a shift, from one array into the other. */
static void distribute(const dtp_keyed *from, dtp_keyed *to, int64_t n, uint32_t shift)
{
    int64_t first[VALUES + 1] = {0};
    for (int64_t i = 0; i < n; i++) {
        first[(from[i].key >> shift & 0xFFU) + 1]++;
    }
    for (int32_t v = 0; v < VALUES; v++) {
        first[v + 1] += first[v];
    }
    for (int64_t i = 0; i < n; i++) {
        to[first[from[i].key >> shift & 0xFFU]++] = from[i];
    }
}

void dtp_sort_keyed(dtp_keyed *items, dtp_keyed *scratch, int64_t n)
{
    uint64_t differ = 0;
    dtp_keyed *from = items, *to = scratch;
    if (n <= FEW) {
        for (int64_t i = 1; i < n; i++) {
            const dtp_keyed x = items[i];
            int64_t at = i;
            for (; at > 0 && items[at - 1].key > x.key; at--) {
                items[at] = items[at - 1];
            }
            items[at] = x;
        }
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        differ |= items[i].key ^ items[0].key;
    }
    for (uint32_t b = 0; b < BYTES; b++) {
        if ((differ >> 8 * b & 0xFFU) != 0) {
            distribute(from, to, n, 8 * b);
            dtp_keyed *sorted = to;
            to = from;
            from = sorted;
        }
    }
    if (from != items) {
        memcpy(items, from, (size_t)n * sizeof *items);
    }
}

int dtp_compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
