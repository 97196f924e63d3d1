/* A memo of planned redistributions: each pair of layouts of a tensor on a mesh is planned once.
 *
 * The key is exact: mesh sizes, element type, tensor sizes, both layouts; names of mesh and tensor
 * dims do not matter to a plan. A pair without a plan is not kept, and the planner refuses it
 * again. Not shared between threads: each rank has its own.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_CACHE_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_CACHE_H

#include "spmd/redistribute/redistribute.h"

typedef struct dtp_redistribute_cache dtp_redistribute_cache;

/* `planner` (copied; what it refers to is borrowed) decides on new pairs. A cache
 * that is full drops all entries; max_entries 0: 65536. DTP_NOMEM. */
dtp_status dtp_redistribute_cache_create(const dtp_redistributor *planner, int32_t max_entries,
                                         dtp_redistribute_cache **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_redistribute_cache_destroy(dtp_redistribute_cache *cache);

/* For programs and calls; borrowed from the cache. */
const dtp_redistributor *dtp_redistribute_cache_planner(const dtp_redistribute_cache *cache);

typedef struct dtp_redistribute_cache_stats {
    int64_t hits, misses, entries;
} dtp_redistribute_cache_stats;

dtp_redistribute_cache_stats dtp_redistribute_cache_counts(const dtp_redistribute_cache *cache);

#endif
