/* Entries are found by a key, a short sequence of words; all are in one arena. */
#include "spmd/redistribute/redistribute_cache.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "spmd/redistribute/redistribute_graph.h"

enum { DEFAULT_ENTRIES = 1 << 16, MAX_WORDS = 3 + DTP_MAX_MESH_DIMS + DTP_MAX_RANK };

typedef struct cache_key {
    uint32_t hash;
    int32_t n;
    uint64_t words[MAX_WORDS]; /* word 0 says how many count */
} cache_key;

typedef struct cache_entry {
    const uint64_t *words;
    int32_t n_steps;
    const dtp_step *steps;
} cache_entry;

struct dtp_redistribute_cache {
    dtp_redistributor self, planner;
    dtp_arena *arena; /* of everything below */
    dtp_hash_table index;
    int32_t max_entries, n, capacity;
    cache_entry *entries;
    int64_t hits, misses;
};

static cache_key make_key(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *from,
                          const dtp_layout *to)
{
    cache_key k = {.n = 3};
    uint64_t hash = 0;
    k.words[0] = (uint64_t)type->dtype | (uint64_t)type->rank << 16 | (uint64_t)mesh->n_dims << 32;
    k.words[1] = dtp_layout__key(from);
    k.words[2] = dtp_layout__key(to);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        k.words[k.n++] = (uint64_t)mesh->sizes[m];
    }
    for (int32_t i = 0; i < type->rank; i++) {
        k.words[k.n++] = (uint64_t)type->dims[i].size;
    }
    for (int32_t i = 0; i < k.n; i++) {
        hash = (hash ^ k.words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    k.hash = (uint32_t)hash;
    return k;
}

static dtp_status plan_cached(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                              dtp_err *err)
{
    dtp_redistribute_cache *c = user;
    const cache_key k = make_key(mesh, type, from, to);
    uint32_t at = k.hash;
    int32_t i;
    while ((i = dtp_hash_table_next(&c->index, k.hash, &at)) >= 0) {
        const cache_entry *e = &c->entries[i];
        if (e->words[0] == k.words[0] &&
            memcmp(e->words, k.words, (size_t)k.n * sizeof *k.words) == 0) {
            c->hits++;
            out->n = e->n_steps;
            memcpy(out->steps, e->steps, (size_t)e->n_steps * sizeof *e->steps);
            return DTP_OK;
        }
    }
    c->misses++;
    DTP_TRY(dtp_redistribute_by(&c->planner, mesh, type, from, to, out, err));
    if (c->n == c->max_entries) {
        dtp_arena *fresh = dtp_arena_create();
        DTP_TRY(DTP_MEMORY(err, fresh));
        dtp_arena_destroy(c->arena);
        c->arena = fresh;
        c->index = (dtp_hash_table){0};
        c->n = c->capacity = 0;
        c->entries = NULL;
    }
    uint64_t *words = dtp_arena_alloc(c->arena, (size_t)k.n, sizeof *words);
    dtp_step *copy = dtp_arena_alloc(c->arena, (size_t)out->n, sizeof *copy);
    DTP_TRY(DTP_MEMORY(err, words, copy));
    memcpy(words, k.words, (size_t)k.n * sizeof *words);
    memcpy(copy, out->steps, (size_t)out->n * sizeof *copy);
    DTP_TRY(dtp_arena_grow(c->arena, &c->entries, c->n, c->n + 1, &c->capacity, sizeof *c->entries,
                           err));
    DTP_TRY(dtp_hash_table_add(&c->index, c->arena, k.hash, c->n, err));
    c->entries[c->n++] = (cache_entry){words, out->n, copy};
    return DTP_OK;
}

dtp_status dtp_redistribute_cache_create(const dtp_redistributor *planner, int32_t max_entries,
                                         dtp_redistribute_cache **out, dtp_err *err)
{
    dtp_redistribute_cache *c = calloc(1, sizeof *c);
    dtp_arena *arena = dtp_arena_create();
    if (c == NULL || arena == NULL) {
        free(c);
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a cache of redistributions");
    }
    *c = (dtp_redistribute_cache){.self = {plan_cached, c},
                                  .planner = *planner,
                                  .arena = arena,
                                  .max_entries = max_entries > 0 ? max_entries : DEFAULT_ENTRIES};
    *out = c;
    return DTP_OK;
}

void dtp_redistribute_cache_destroy(dtp_redistribute_cache *cache)
{
    if (cache != NULL) {
        dtp_arena_destroy(cache->arena);
        free(cache);
    }
}

const dtp_redistributor *dtp_redistribute_cache_planner(const dtp_redistribute_cache *cache)
{
    return &cache->self;
}

dtp_redistribute_cache_stats dtp_redistribute_cache_counts(const dtp_redistribute_cache *cache)
{
    return (dtp_redistribute_cache_stats){cache->hits, cache->misses, cache->n};
}
