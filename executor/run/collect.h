/* Shards in bounded memory: an iterator over the elements of one, and the collection of those that
 * the ranks of a group hold. */
#ifndef DTP_EXECUTOR_RUN_COLLECT_H
#define DTP_EXECUTOR_RUN_COLLECT_H

#include "executor/comm/communicator.h"
#include "executor/device/backend.h"
#include "executor/device/shard.h"

/* In the order in which the shard stores its elements, in runs that are also contiguous in the
 * whole tensor. */
typedef struct dtp_shard_iterator {
    dtp_shard_runs runs;
    int64_t used; /* elements of the current run that were handed out */
    bool absent;  /* of a collection: the rank does not have the tensor */
} dtp_shard_iterator;

dtp_shard_iterator dtp_shard_iterator_of(const dtp_shard *shard);
/* The next at most `most` elements: the index in the tensor of the first of them, and how many.
 * False at the end. */
bool dtp_shard_iterator_next(dtp_shard_iterator *iterator, int64_t most, int64_t *in_tensor,
                             int64_t *n);

/* Gets n elements that are consecutive in the tensor. */
typedef void (*dtp_collect_visit)(void *user, int64_t in_tensor, const void *data, int64_t n);

/* In every round the members of the group of `set` show the next elements of their shards; partial
 * values are reduced before. Every member calls the functions in the same order. */
typedef struct dtp_collection {
    dtp_comm *comm;
    dtp_backend *backend;
    const dtp_mesh *mesh; /* of the layout */
    const dtp_ttype *type;
    dtp_layout layout;
    const void *data; /* the shard of this rank, in device memory */
    uint64_t stages;  /* bit s: ranks at s of mesh dim 0 have it; 0: all ranks do */
    dtp_mesh_set set;
    void *out;               /* gets the elements of the whole tensor; NULL: `visit` sees them */
    dtp_collect_visit visit; /* NULL, too: this rank only takes part */
    void *user;
    /* filled by dtp_collect_prepare */
    int64_t elems, chunk, width;
    int32_t members;
    char *mine, *all;              /* a chunk of this rank, of all members */
    dtp_shard_iterator *iterators; /* by member */
} dtp_collection;

/* Takes memory; does not communicate. dtp_collect_free gives it back, also after a failure. */
dtp_status dtp_collect_prepare(dtp_collection *c, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_collect_run(dtp_collection *c, dtp_err *err) DTP_MUST_CHECK;
void dtp_collect_free(dtp_collection *c);

/* What the layout's partial placements say, over the ranks: n elements, in place. */
dtp_status dtp_collect_reduce(const dtp_collection *c, dtp_dtype dtype, int64_t n, void *data,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
