#include "dtensor/shard_iterator.h"

#include <string.h>

dtp_shard_iterator dtp_shard_iterator_of(const dtp_shard *shard)
{
    dtp_shard_iterator iterator = {.runs = dtp_shard_runs_of(shard, shard)};
    iterator.used = iterator.runs.run; /* nothing of a run yet */
    return iterator;
}

bool dtp_shard_iterator_next(dtp_shard_iterator *iterator, int64_t most, int64_t *in_tensor,
                             int64_t *n)
{
    if (iterator->used == iterator->runs.run) {
        if (!dtp_shard_next(&iterator->runs)) {
            return false;
        }
        iterator->used = 0;
    }
    int64_t left = iterator->runs.run - iterator->used;
    *in_tensor = iterator->runs.in_tensor + iterator->used;
    *n = left < most ? left : most;
    iterator->used += *n;
    return true;
}

int64_t dtp_shard_iterator_read(dtp_shard_iterator *iterator, int64_t most, const void *whole,
                                void *part, int64_t elem_bytes)
{
    int64_t done = 0, at, n;
    while (done < most && dtp_shard_iterator_next(iterator, most - done, &at, &n)) {
        memcpy((char *)part + done * elem_bytes, (const char *)whole + at * elem_bytes,
               (size_t)(n * elem_bytes));
        done += n;
    }
    return done;
}

int64_t dtp_shard_iterator_write(dtp_shard_iterator *iterator, int64_t most, void *whole,
                                 const void *part, int64_t elem_bytes)
{
    int64_t done = 0, at, n;
    while (done < most && dtp_shard_iterator_next(iterator, most - done, &at, &n)) {
        memcpy((char *)whole + at * elem_bytes, (const char *)part + done * elem_bytes,
               (size_t)(n * elem_bytes));
        done += n;
    }
    return done;
}
