/* An iterator over the elements of a shard in the order in which the shard stores them, in runs
 * that are also contiguous in the whole tensor. */
#ifndef DTP_DTENSOR_SHARD_ITERATOR_H
#define DTP_DTENSOR_SHARD_ITERATOR_H

#include "executor/device/shard.h"

typedef struct dtp_shard_iterator {
    dtp_shard_runs runs;
    int64_t used; /* elements of the current run that were handed out */
} dtp_shard_iterator;

dtp_shard_iterator dtp_shard_iterator_of(const dtp_shard *shard);
/* The next at most `most` elements: the index in the tensor of the first of them, and how many.
 * False at the end. */
bool dtp_shard_iterator_next(dtp_shard_iterator *iterator, int64_t most, int64_t *in_tensor,
                             int64_t *n);

/* Copies the next at most `most` elements of the shard from a whole tensor to `part` (`out`), or
 * from `part` to the whole tensor; returns how many. */
int64_t dtp_shard_iterator_read(dtp_shard_iterator *iterator, int64_t most, const void *whole,
                                void *part, int64_t elem_bytes);
int64_t dtp_shard_iterator_write(dtp_shard_iterator *iterator, int64_t most, void *whole,
                                 const void *part, int64_t elem_bytes);

#endif
