/* FNV-1a, 64 bit: for hash tables and for telling whether two inputs are the same; a mixer of whole
 * words. Not cryptographic. The hash table. */
#ifndef DTP_CORE_BASE_HASH_H
#define DTP_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/arena.h"

#define DTP_HASH_SEED UINT64_C(0xcbf29ce484222325)

static inline uint64_t dtp_hash_bytes(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = (const unsigned char *)data;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

/* Includes the terminating NUL, so that "ab","c" and "a","bc" differ. */
static inline uint64_t dtp_hash_text(uint64_t h, const char *text)
{
    return dtp_hash_bytes(h, text, strlen(text) + 1);
}

static inline uint64_t dtp_hash_double(uint64_t h, double v)
{
    return dtp_hash_bytes(h, &v, sizeof v);
}

/* The bytes of v, lowest first. Of a small number all but one are zero, and a zero only
 * multiplies. */
static inline uint64_t dtp_hash_i64(uint64_t h, int64_t v)
{
    const uint64_t prime = UINT64_C(0x100000001b3), to_4 = prime * prime * prime * prime;
    uint64_t u = (uint64_t)v;
    if (u < 256) {
        return (h ^ u) * to_4 * to_4;
    }
    for (int i = 0; i < 8; i++) {
        h = (h ^ (u & 0xFFU)) * prime;
        u >>= 8;
    }
    return h;
}

/* h with a further word; the upper bits are the good ones. For keys that are hashed often. */
static inline uint64_t dtp_hash_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

/* 32 bits of all 64, for dtp_hash_table. */
static inline uint32_t dtp_hash_fold(uint64_t h)
{
    return (uint32_t)(h ^ h >> 32);
}

/* Of a name, for dtp_hash_table. */
static inline uint32_t dtp_hash_name(const char *name)
{
    return dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, name));
}

/* ---- table ---- */

/* The hash table: indices into an array that the caller keeps, open addressing with linear probing
 * (Knuth, TAOCP 3, 6.4). The caller hashes and compares; a zeroed table is empty. Slots are from an
 * arena. To find an item:
 *
 *   uint32_t at = hash;
 *   int32_t i;
 *   do {
 *       i = dtp_hash_table_next(&table, hash, &at);
 *   } while (i >= 0 && !same(&items[i], item));
 */
typedef struct dtp_hash_slot {
    uint32_t hash;
    int32_t entry; /* 1 + index; 0: empty */
} dtp_hash_slot;

typedef struct dtp_hash_table {
    uint32_t n, n_slots; /* n_slots: a power of two, or 0 */
    dtp_hash_slot *slots;
} dtp_hash_table;

/* Indices >= 0; those of one hash are found in the order in which they were added. */
dtp_status dtp_hash_table_add(dtp_hash_table *table, dtp_arena *arena, uint32_t hash, int32_t index,
                              dtp_err *err) DTP_MUST_CHECK;
/* Empties it; it keeps its slots. */
void dtp_hash_table_clear(dtp_hash_table *table);

/* The next index that was added with this hash, -1 after the last. *at is the hash at first. */
static inline int32_t dtp_hash_table_next(const dtp_hash_table *table, uint32_t hash, uint32_t *at)
{
    while (table->n_slots > 0) {
        const dtp_hash_slot *slot = &table->slots[(*at)++ & (table->n_slots - 1)];
        if (slot->entry == 0 || slot->hash == hash) {
            return slot->entry - 1;
        }
    }
    return -1;
}

#endif
