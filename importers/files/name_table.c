/* Names and what they number: a value, a node, a dim. */
#include "importers/files/name_table.h"

static uint32_t hash_of(const char *name)
{
    return dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, name));
}

int32_t dtp_name_find(const dtp_name_table *t, const char *name)
{
    const uint32_t hash = hash_of(name);
    uint32_t at = hash;
    for (int32_t i; (i = dtp_hash_table_next(&t->table, hash, &at)) >= 0;) {
        if (strcmp(t->names[i].name, name) == 0) {
            return t->names[i].index;
        }
    }
    return -1;
}

dtp_status dtp_name_add(dtp_name_table *t, dtp_arena *arena, const char *name, int32_t index,
                        dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(arena, &t->names, t->n, t->n + 1, &t->capacity, sizeof *t->names, err));
    t->names[t->n] = (dtp_named){name, index};
    return dtp_hash_table_add(&t->table, arena, hash_of(name), t->n++, err);
}
