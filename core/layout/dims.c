#include "core/layout/dims.h"

#include <stdio.h>
#include <string.h>

#include "core/base/hash.h"

void dtp_dims_init(dtp_dims *dims, dtp_arena *arena)
{
    *dims = (dtp_dims){.arena = arena};
}

/* Slot of the name, or the free slot where it belongs. */
static int32_t slot_of(const dtp_dims *dims, const char *name)
{
    uint64_t h = dtp_hash_text(DTP_HASH_SEED, name);
    int32_t mask = dims->hash_size - 1;
    int32_t slot = (int32_t)(h & (uint64_t)mask);
    while (dims->hash[slot] >= 0 && strcmp(dims->names[dims->hash[slot]], name) != 0) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

dtp_dim_id dtp_dims_find(const dtp_dims *dims, const char *name)
{
    return dims->hash_size == 0 ? -1 : dims->hash[slot_of(dims, name)];
}

static dtp_status rehash(dtp_dims *dims, dtp_err *err)
{
    int32_t size = dims->hash_size == 0 ? 32 : dims->hash_size * 2;
    dims->hash = dtp_arena_alloc(dims->arena, (size_t)size, sizeof *dims->hash);
    if (dims->hash == NULL) {
        dims->hash_size = 0;
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d dim names", size);
    }
    dims->hash_size = size;
    for (int32_t i = 0; i < size; i++) {
        dims->hash[i] = -1;
    }
    for (int32_t i = 0; i < dims->n; i++) {
        dims->hash[slot_of(dims, dims->names[i])] = i;
    }
    return DTP_OK;
}

dtp_status dtp_dims_intern(dtp_dims *dims, const char *name, int64_t size, dtp_dim_id *out,
                           dtp_err *err)
{
    *out = dtp_dims_find(dims, name);
    if (*out >= 0) {
        return DTP_OK;
    }
    if (2 * (dims->n + 1) > dims->hash_size) {
        DTP_TRY(rehash(dims, err));
    }
    int32_t size_capacity = dims->capacity;
    DTP_TRY(dtp_arena_grow(dims->arena, &dims->names, dims->n, dims->n + 1, &dims->capacity,
                           sizeof *dims->names, err));
    DTP_TRY(dtp_arena_grow(dims->arena, &dims->sizes, dims->n, dims->n + 1, &size_capacity,
                           sizeof *dims->sizes, err));
    const char *copy = dtp_arena_strdup(dims->arena, name);
    if (copy == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for dim '%s'", name);
    }
    int32_t slot = slot_of(dims, name);
    dims->names[dims->n] = copy;
    dims->sizes[dims->n] = size;
    dims->hash[slot] = dims->n;
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
