/* The table of dim names of a graph. */
#include "core/layout/dims.h"

#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"

void dtp_dims_init(dtp_dims *dims, dtp_arena *arena)
{
    *dims = (dtp_dims){.arena = arena};
}

dtp_dim_id dtp_dims_find(const dtp_dims *dims, const char *name)
{
    const uint32_t hash = dtp_hash_name(name);
    uint32_t at = hash;
    dtp_dim_id id;
    do {
        id = dtp_hash_table_next(&dims->by_name, hash, &at);
    } while (id >= 0 && strcmp(dims->names[id], name) != 0);
    return id;
}

dtp_status dtp_dims_intern(dtp_dims *dims, const char *name, int64_t size, dtp_dim_id *out,
                           dtp_err *err)
{
    *out = dtp_dims_find(dims, name);
    if (*out >= 0) {
        return DTP_OK;
    }
    int32_t size_capacity = dims->capacity;
    DTP_TRY(DTP_ONE_MORE(dims->arena, dims->names, dims->n, dims->capacity, err));
    DTP_TRY(DTP_ONE_MORE(dims->arena, dims->sizes, dims->n, size_capacity, err));
    const char *copy = dtp_arena_strdup(dims->arena, name);
    DTP_TRY(DTP_MEMORY(err, copy));
    DTP_TRY(dtp_hash_table_add(&dims->by_name, dims->arena, dtp_hash_name(name), dims->n, err));
    dims->names[dims->n] = copy;
    dims->sizes[dims->n] = size;
    *out = dims->n++;
    return DTP_OK;
}

const char *dtp_dims_name(const dtp_dims *dims, dtp_dim_id id)
{
    return id >= 0 && id < dims->n ? dims->names[id] : "?";
}

void dtp_ttype_print(const dtp_ttype *type, const dtp_dims *dims, char out[DTP_TTYPE_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(out, DTP_TTYPE_TEXT_BYTES, "%s[", dtp_dtype_name(type->dtype));
    for (int32_t i = 0; i < type->rank && used < DTP_TTYPE_TEXT_BYTES; i++) {
        used += (size_t)snprintf(out + used, DTP_TTYPE_TEXT_BYTES - used, "%s%s=%lld",
                                 i > 0 ? ", " : "", dtp_dims_name(dims, type->dims[i].id),
                                 (long long)type->dims[i].size);
    }
    if (used < DTP_TTYPE_TEXT_BYTES) {
        (void)snprintf(out + used, DTP_TTYPE_TEXT_BYTES - used, "]");
    }
}
