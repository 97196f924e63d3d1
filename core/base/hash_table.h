/* A hash table of indices into an array that the caller keeps, with open addressing. The caller
 * hashes and compares; zeroed it is empty. Slots are from an arena.
 *
 *   uint32_t at = hash;
 *   int32_t i = dtp_index_table_next(&table, hash, &at);
 *   while (i >= 0 && !same(&items[i], item)) {
 *       i = dtp_index_table_next(&table, hash, &at);
 *   }
 */
#ifndef DTP_CORE_BASE_HASH_TABLE_H
#define DTP_CORE_BASE_HASH_TABLE_H

#include "core/base/arena.h"

typedef struct dtp_index_slot {
    uint32_t hash;
    int32_t entry; /* 1 + index; 0: empty */
} dtp_index_slot;

typedef struct dtp_index_table {
    uint32_t n, n_slots; /* n_slots: a power of two, or 0 */
    dtp_index_slot *slots;
} dtp_index_table;

/* Indices >= 0; those of one hash are found in the order in which they were added. */
dtp_status dtp_index_table_add(dtp_index_table *table, dtp_arena *arena, uint32_t hash,
                               int32_t index, dtp_err *err) DTP_MUST_CHECK;
/* Empties it; it keeps its slots. */
void dtp_index_table_clear(dtp_index_table *table);

/* The next index that was added with this hash, -1 after the last. *at is the hash at first. */
static inline int32_t dtp_index_table_next(const dtp_index_table *table, uint32_t hash,
                                           uint32_t *at)
{
    while (table->n_slots > 0) {
        const dtp_index_slot *slot = &table->slots[(*at)++ & (table->n_slots - 1)];
        if (slot->entry == 0 || slot->hash == hash) {
            return slot->entry - 1;
        }
    }
    return -1;
}

#endif
