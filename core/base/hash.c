/* FNV-1a, 64 bit: for hash tables and for telling whether two inputs are the same; a mixer of
 * whole words. */
#include "core/base/hash.h"

#include <string.h>

enum { FIRST_SLOTS = 64 };

static void put(dtp_hash_table *table, dtp_hash_slot slot)
{
    uint32_t at = slot.hash & (table->n_slots - 1);
    while (table->slots[at].entry != 0) {
        at = (at + 1) & (table->n_slots - 1);
    }
    table->slots[at] = slot;
}

static dtp_status grow(dtp_hash_table *table, dtp_arena *arena, dtp_err *err)
{
    const dtp_hash_table old = *table;
    dtp_hash_table fresh = {.n = old.n,
                            .n_slots = old.n_slots == 0 ? FIRST_SLOTS : 4 * old.n_slots};
    fresh.slots = dtp_arena_alloc(arena, fresh.n_slots, sizeof *fresh.slots);
    if (fresh.slots == NULL || fresh.n_slots < old.n_slots) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a table of %u indices", old.n);
    }
    /* From the first slot after an empty one, all around: along every run of full slots, so that
     * those of one hash keep their order. */
    uint32_t begin = 0;
    while (begin < old.n_slots && old.slots[begin].entry != 0) {
        begin++;
    }
    for (uint32_t i = 0; i < old.n_slots; i++) {
        const dtp_hash_slot slot = old.slots[(begin + i) & (old.n_slots - 1)];
        if (slot.entry != 0) {
            put(&fresh, slot);
        }
    }
    *table = fresh;
    return DTP_OK;
}

dtp_status dtp_hash_table_add(dtp_hash_table *table, dtp_arena *arena, uint32_t hash, int32_t index,
                              dtp_err *err)
{
    if (2 * (table->n + 1) > table->n_slots) {
        DTP_TRY(grow(table, arena, err));
    }
    put(table, (dtp_hash_slot){.hash = hash, .entry = index + 1});
    table->n++;
    return DTP_OK;
}

void dtp_hash_table_clear(dtp_hash_table *table)
{
    if (table->n > 0) {
        memset(table->slots, 0, table->n_slots * sizeof *table->slots);
    }
    table->n = 0;
}
