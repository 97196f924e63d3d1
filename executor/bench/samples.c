/* The list of samples. */
#include <stdlib.h>

#include "executor/bench/measure.h"

dtp_status dtp_bench_add(dtp_bench *b, const dtp_sample *sample, dtp_err *err)
{
    if (b->samples->n == b->samples->capacity) {
        int32_t capacity = b->samples->capacity > 0 ? 2 * b->samples->capacity : 256;
        dtp_sample *items = realloc(b->samples->items, (size_t)capacity * sizeof *items);
        DTP_TRY(DTP_MEMORY(err, items));
        b->samples->items = items;
        b->samples->capacity = capacity;
    }
    b->samples->items[b->samples->n++] = *sample;
    return DTP_OK;
}

void dtp_bench_samples_free(dtp_samples *samples)
{
    free(samples->items);
    *samples = (dtp_samples){0};
}
