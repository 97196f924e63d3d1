/* Open addressing over owned entries. A key is a short sequence of words; an entry stores the key's
 * words and then the steps with their layouts as keys, so that a lookup compares whole words. */
#include "spmd/redistribute/redistribute_cache.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/redistribute/redistribute_internal.h"

enum { DEFAULT_ENTRIES = 1 << 16, FIRST_SLOTS = 256 };

enum { MAX_WORDS = 3 + DTP_MAX_MESH_DIMS + DTP_MAX_RANK };

typedef struct key_words {
    uint64_t hash;
    int32_t n;
    uint64_t words[MAX_WORDS];
} key_words;

typedef struct entry {
    uint64_t hash;
    uint64_t words[MAX_WORDS]; /* word 0 says how many count */
    int32_t n_words, n_steps;
    dtp_step steps[];
} entry;

typedef struct slot {
    entry *e; /* NULL: free */
} slot;

struct dtp_redistribute_cache {
    dtp_redistributor self;
    bool has_planner;
    dtp_redistributor planner;
    int32_t max_entries, n_slots;
    slot *slots;
    dtp_redistribute_cache_stats stats;
};

static void put_word(key_words *k, uint64_t word)
{
    k->words[k->n++] = word;
    k->hash = (k->hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    k->hash ^= k->hash >> 32;
}

static void make_key(key_words *k, const dtp_mesh *mesh, const dtp_ttype *type,
                     const dtp_layout *from, const dtp_layout *to)
{
    k->hash = 0;
    k->n = 0;
    put_word(k, (uint64_t)type->dtype | (uint64_t)type->rank << 16 | (uint64_t)mesh->n_dims << 32);
    put_word(k, dtp_layout__key(from));
    put_word(k, dtp_layout__key(to));
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        put_word(k, (uint64_t)mesh->sizes[m]);
    }
    for (int32_t i = 0; i < type->rank; i++) {
        put_word(k, (uint64_t)type->dims[i].size);
    }
}

static int32_t find_slot(const dtp_redistribute_cache *c, uint64_t hash, const uint64_t *words,
                         int32_t n)
{
    int32_t mask = c->n_slots - 1;
    int32_t at = (int32_t)(hash & (uint64_t)mask);
    for (;; at = (at + 1) & mask) {
        const entry *e = c->slots[at].e;
        if (e == NULL || (e->hash == hash && e->n_words == n &&
                          memcmp(e->words, words, (size_t)n * sizeof *words) == 0)) {
            return at;
        }
    }
}

static void drop_all(dtp_redistribute_cache *c)
{
    for (int32_t i = 0; i < c->n_slots; i++) {
        free(c->slots[i].e);
        c->slots[i].e = NULL;
    }
    c->stats.entries = 0;
}

static bool grow(dtp_redistribute_cache *c)
{
    int32_t n = c->n_slots;
    slot *old = c->slots;
    slot *slots = calloc(2 * (size_t)n, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    c->slots = slots;
    c->n_slots = 2 * n;
    for (int32_t i = 0; i < n; i++) {
        const entry *e = old[i].e;
        if (e != NULL) {
            slots[find_slot(c, e->hash, e->words, e->n_words)] = old[i];
        }
    }
    free(old);
    return true;
}

static dtp_status remember(dtp_redistribute_cache *c, const key_words *k, const dtp_steps *steps,
                           dtp_err *err)
{
    if (c->stats.entries == c->max_entries) {
        drop_all(c);
    }
    entry *e = malloc(sizeof *e + (size_t)steps->n * sizeof e->steps[0]);
    if (e == NULL || (2 * c->stats.entries >= c->n_slots && !grow(c))) {
        free(e);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %lld planned redistributions",
                        (long long)c->stats.entries);
    }
    e->hash = k->hash;
    e->n_words = k->n;
    e->n_steps = steps->n;
    memcpy(e->words, k->words, (size_t)k->n * sizeof k->words[0]);
    memcpy(e->steps, steps->steps, (size_t)steps->n * sizeof e->steps[0]);
    c->slots[find_slot(c, e->hash, e->words, e->n_words)].e = e;
    c->stats.entries++;
    return DTP_OK;
}

static dtp_status plan(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                       const dtp_layout *from, const dtp_layout *to, dtp_steps *out, dtp_err *err)
{
    dtp_redistribute_cache *c = user;
    key_words k;
    make_key(&k, mesh, type, from, to);
    const entry *e = c->slots[find_slot(c, k.hash, k.words, k.n)].e;
    if (e != NULL) {
        c->stats.hits++;
        out->n = e->n_steps;
        memcpy(out->steps, e->steps, (size_t)e->n_steps * sizeof e->steps[0]);
        return DTP_OK;
    }
    c->stats.misses++;
    DTP_TRY(
        dtp_redistribute_by(c->has_planner ? &c->planner : NULL, mesh, type, from, to, out, err));
    return remember(c, &k, out, err);
}

dtp_status dtp_redistribute_cache_create(const dtp_redistributor *planner, int32_t max_entries,
                                         dtp_redistribute_cache **out, dtp_err *err)
{
    dtp_redistribute_cache *c = calloc(1, sizeof *c);
    slot *slots = calloc(FIRST_SLOTS, sizeof *slots);
    if (c == NULL || slots == NULL) {
        free(c);
        free(slots);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a cache of redistributions");
    }
    c->self = (dtp_redistributor){plan, c};
    c->has_planner = planner != NULL;
    if (planner != NULL) {
        c->planner = *planner;
    }
    c->max_entries = max_entries > 0 ? max_entries : DEFAULT_ENTRIES;
    c->n_slots = FIRST_SLOTS;
    c->slots = slots;
    *out = c;
    return DTP_OK;
}

void dtp_redistribute_cache_destroy(dtp_redistribute_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    drop_all(cache);
    free(cache->slots);
    free(cache);
}

const dtp_redistributor *dtp_redistribute_cache_planner(const dtp_redistribute_cache *cache)
{
    return &cache->self;
}

dtp_redistribute_cache_stats dtp_redistribute_cache_counts(const dtp_redistribute_cache *cache)
{
    return cache->stats;
}
