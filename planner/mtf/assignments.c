/* Injective partial maps from n dims to k mesh dims: the ways to split the dims that meet in one
 * op. */
#include "planner/mtf/assignments.h"

#include <string.h>

int32_t dtp_assignments_count(int32_t n, int32_t k)
{
    double sum = 0.0, term = 1.0; /* C(n,j) k!/(k-j)! */
    for (int32_t j = 0; j <= n && j <= k; j++) {
        sum += term;
        term *= (double)(n - j) * (double)(k - j) / (double)(j + 1);
    }
    return sum < (double)INT32_MAX ? (int32_t)(sum + 0.5) : INT32_MAX;
}

/* The next map in lexicographic order: an odometer over -1..k-1 that skips used mesh dims. */
static bool next(int8_t *map, int32_t n, int32_t k, uint32_t *used)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        if (map[i] >= 0) {
            *used &= ~(1u << map[i]);
        }
        for (int32_t m = map[i] + 1; m < k; m++) {
            if ((*used >> m & 1u) == 0) {
                map[i] = (int8_t)m;
                *used |= 1u << m;
                return true;
            }
        }
        map[i] = -1;
    }
    return false;
}

dtp_status dtp_assignments_make(dtp_arena *arena, int32_t n, int32_t k, int32_t limit,
                                int8_t **rows, int32_t *count, dtp_err *err)
{
    int32_t total = dtp_assignments_count(n, k);
    if (total > limit) {
        return DTP_FAIL(err, DTP_RANGE, "%d dims on %d mesh dims have more than %d assignments", n,
                        k, limit);
    }
    int8_t *all = dtp_arena_alloc(arena, (size_t)total * (size_t)(n > 0 ? n : 1), 1);
    if (all == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d assignments", total);
    }
    if (n > 0) {
        memset(all, -1, (size_t)n);
    }
    uint32_t used = 0;
    for (int32_t r = 1; r < total; r++) {
        int8_t *map = &all[(size_t)r * (size_t)n];
        memcpy(map, map - n, (size_t)n);
        (void)next(map, n, k, &used);
    }
    *rows = all;
    *count = total;
    return DTP_OK;
}
