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
#ifndef DTP_CORE_BASE_HASH_TABLE_H
#define DTP_CORE_BASE_HASH_TABLE_H

#include "core/base/arena.h"

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
