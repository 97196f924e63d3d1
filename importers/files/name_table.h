/* Names and what they number: a value, a node, a dim. Names are borrowed; zeroed: empty. */
#ifndef DTP_IMPORTERS_FILES_NAME_TABLE_H
#define DTP_IMPORTERS_FILES_NAME_TABLE_H

#include "core/base/hash.h"

typedef struct dtp_named {
    const char *name;
    int32_t index;
} dtp_named;

typedef struct dtp_name_table {
    dtp_hash_table table;
    int32_t n, capacity;
    dtp_named *names;
} dtp_name_table;

/* The index that was first added with the name; -1. */
int32_t dtp_name_find(const dtp_name_table *t, const char *name);
/* DTP_NOMEM. */
dtp_status dtp_name_add(dtp_name_table *t, dtp_arena *arena, const char *name, int32_t index,
                        dtp_err *err) DTP_MUST_CHECK;

#endif
