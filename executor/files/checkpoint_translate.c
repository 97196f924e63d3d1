/* Checkpoints of other frameworks: their whole tensors become slices of the parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "executor/files/checkpoint_internal.h"

/* The stored tensor of a name of the framework; NULL: there is none. */
static const dtp_slice *find(const dtp_catalog *c, const char *name)
{
    const dtp_slice *first;
    char text[1024];
    if (c->dropped != NULL && strncmp(name, c->dropped, strlen(c->dropped)) == 0) {
        name += strlen(c->dropped);
    }
    if (c->added != NULL &&
        snprintf(text, sizeof text, "%s%s", c->added, name) < (int)sizeof text &&
        dtp_catalog_find(c, text, &first) > 0) {
        return first;
    }
    return dtp_catalog_find(c, name, &first) > 0 ? first : NULL;
}

static void shape_text(int32_t rank, const int64_t *dims, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t d = 0; d < rank && used < room; d++) {
        used += (size_t)snprintf(out + used, room - used, "%s%" PRId64, d > 0 ? "," : "", dims[d]);
    }
}

/* The stored tensor is what the view is of. */
static dtp_status check(const dtp_catalog *c, const dtp_stored_view *v, const dtp_slice *whole,
                        dtp_err *err)
{
    const dtp_st_entry *e = whole->entry;
    const char *path = c->files[whole->file].path;
    if (e->unreadable != NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: tensor '%.200s' cannot be read: %s", path,
                        e->name, e->unreadable);
    }
    if (e->rank != v->n_axes || memcmp(e->dims, v->axes, (size_t)e->rank * sizeof *e->dims) != 0) {
        char have[256], want[256];
        shape_text(e->rank, e->dims, have, sizeof have);
        shape_text(v->n_axes, v->axes, want, sizeof want);
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: tensor '%.200s' has shape [%s], parameter '%.100s' needs [%s]", path,
                        e->name, have, v->tensor, want);
    }
    if (dtp_store_is_float(e->store) != dtp_dtype_is_float(v->type)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: tensor '%.200s' has elements of type %s, parameter '%.100s' of %s",
                        path, e->name, dtp_store_name(e->store), v->tensor,
                        dtp_store_name((dtp_store)v->type));
    }
    return DTP_OK;
}

static dtp_slice slice_of(const dtp_stored_view *v, const dtp_slice *whole)
{
    dtp_slice s = {.name = v->tensor,
                   .file = whole->file,
                   .entry = whole->entry,
                   .shard = {.rank = v->rank},
                   .first = v->first};
    memcpy(s.shard.global, v->global, sizeof s.shard.global);
    memcpy(s.shard.offset, v->from, sizeof s.shard.offset);
    memcpy(s.shard.size, v->size, sizeof s.shard.size);
    memcpy(s.stride, v->stride, sizeof s.stride);
    return s;
}

/* The slice of a view, and its twins. */
static dtp_status translate_view(dtp_catalog *c, const dtp_stored_view *v, dtp_slice *out,
                                 bool *used, dtp_err *err)
{
    *out = (dtp_slice){0};
    for (int32_t i = -1; i < v->n_tied; i++) {
        const dtp_slice *whole = find(c, i < 0 ? v->name : v->tied[i]);
        if (whole == NULL) {
            continue;
        }
        DTP_TRY(check(c, v, whole, err));
        used[whole - c->slices] = true;
        if (out->name == NULL) {
            *out = slice_of(v, whole);
            continue;
        }
        DTP_TRY(DTP_ONE_MORE(c->arena, c->twins, c->n_twins, c->cap_twins, err));
        c->twins[c->n_twins++] = slice_of(v, whole);
    }
    return out->name != NULL ? DTP_OK
                             : DTP_FAIL(err, DTP_INVALID,
                                        "%s: there is no tensor '%.200s', in which parameter "
                                        "'%.100s' lies",
                                        c->path, v->name, v->tensor);
}

/* How many names of theirs some tensor has. */
static int32_t names_found(const dtp_catalog *c, const dtp_stored_params *stored)
{
    int32_t n = 0;
    for (int32_t i = 0; i < stored->n; i++) {
        const dtp_stored_view *v = &stored->views[i];
        bool found = find(c, v->name) != NULL;
        for (int32_t k = 0; k < v->n_tied && !found; k++) {
            found = find(c, v->tied[k]) != NULL;
        }
        n += found ? 1 : 0;
    }
    return n;
}

/* A model without its head is stored without the name that the whole model has for it ("model.",
 * "transformer."), and the other way round. *n: names found. */
static dtp_status find_prefix(dtp_catalog *c, const dtp_stored_params *stored, int32_t *n,
                              dtp_err *err)
{
    *n = names_found(c, stored);
    for (int32_t i = 0; i < 2; i++) {
        const char *name = i == 0 ? stored->views[0].name : c->slices[0].name;
        const char *dot = strchr(name, '.');
        const char *part =
            dtp_arena_printf(c->arena, "%.*s", dot == NULL ? 0 : (int)(dot + 1 - name), name);
        dtp_catalog other = *c;
        DTP_TRY(DTP_MEMORY(err, part));
        *(i == 0 ? &other.dropped : &other.added) = part;
        other.added = i == 0 ? NULL : other.added;
        other.dropped = i == 0 ? other.dropped : NULL;
        const int32_t found = part[0] == '\0' ? 0 : names_found(&other, stored);
        if (found > *n) {
            *n = found;
            c->dropped = other.dropped;
            c->added = other.added;
        }
    }
    return DTP_OK;
}

dtp_status dtp_catalog_translate(dtp_catalog *c, const dtp_stored_params *stored, dtp_dtype *types,
                                 dtp_err *err)
{
    dtp_slice *slices;
    bool *used;
    int32_t n = 0;
    if (stored == NULL || c->ours || stored->n == 0 || c->n_slices == 0) {
        return DTP_OK;
    }
    DTP_TRY(find_prefix(c, stored, &n, err));
    if (n == 0) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(c->arena, slices, stored->n, err));
    DTP_TRY(DTP_NEW(c->arena, used, c->n_slices, err));
    for (int32_t i = 0; i < stored->n; i++) {
        DTP_TRY(translate_view(c, &stored->views[i], &slices[i], used, err));
        types[i] = (dtp_dtype)slices[i].entry->store; /* floats of files are types, as checked */
    }
    for (int32_t i = 0; i < c->n_slices; i++) {
        c->unused = !used[i] && c->n_unused == 0 ? c->slices[i].name : c->unused;
        c->n_unused += used[i] ? 0 : 1;
    }
    c->slices = slices;
    c->n_slices = stored->n;
    return dtp_catalog__check(c, err);
}

dtp_status dtp_checkpoint_is_foreign(const char *path, bool *out, dtp_err *err)
{
    dtp_catalog c;
    const dtp_status status = dtp_catalog_open(path, &c, NULL); /* a load says what fails */
    *out = status == DTP_OK && !c.ours;
    if (status == DTP_OK) {
        dtp_catalog_close(&c);
    }
    return status == DTP_NOMEM ? DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path) : DTP_OK;
}
