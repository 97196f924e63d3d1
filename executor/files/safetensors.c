/* Reference: github.com/huggingface/safetensors, README "Format". */
#include "executor/files/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/files/file_in.h"
#include "core/base/json.h"
#include "core/base/safe_int.h"
#include "executor/files/checksum.h"

enum { MAX_HEADER_BYTES = 100000000 };

/* How our writer begins a file with metadata; other writers space it otherwise. No single bit makes
 * one of the other. */
#define OUR_START "{\n  \"__metadata__\": {"

struct dtp_st_file {
    dtp_arena *arena;
    const char *path;
    int fd;
    int64_t data_at, data_bytes;
    int32_t n;
    dtp_st_entry *entries; /* in name order, for the search */
    int32_t n_meta;
    dtp_st_meta *meta;
    bool foreign;
};

typedef struct store_name {
    const char *name;
    dtp_store store;
} store_name;

static const store_name store_names[] = {
    {"F32", DTP_STORE_F32},   {"F64", DTP_STORE_F64},    {"BF16", DTP_STORE_BF16},
    {"F16", DTP_STORE_F16},   {"I32", DTP_STORE_I32},    {"I64", DTP_STORE_I64},
    {"BOOL", DTP_STORE_BOOL}, {"U8", DTP_STORE_U8},      {"I8", DTP_STORE_I8},
    {"I16", DTP_STORE_I16},   {"U16", DTP_STORE_U16},    {"U32", DTP_STORE_U32},
    {"U64", DTP_STORE_U64},   {"F8_E4M3", DTP_STORE_F8}, {"F8_E5M2", DTP_STORE_F8},
};
enum { N_STORE_NAMES = sizeof store_names / sizeof *store_names };

const char *dtp_store_name(dtp_store store)
{
    for (int i = 0; i < N_STORE_NAMES; i++) {
        if (store_names[i].store == store) {
            return store_names[i].name;
        }
    }
    return "?";
}

/* The element type; one that is not known is said in e->unreadable. */
static dtp_status read_store(const dtp_json *dtype, dtp_st_file *f, dtp_st_entry *e, dtp_err *err)
{
    const char *text;
    int store = 0;
    DTP_TRY(dtp_json_string(dtype, &text, err));
    while (store < N_STORE_NAMES && strcmp(text, store_names[store].name) != 0) {
        store++;
    }
    if (store < N_STORE_NAMES) {
        e->store = store_names[store].store;
        return DTP_OK;
    }
    e->store = DTP_N_STORES;
    e->unreadable = dtp_arena_printf(f->arena, "element type '%.40s'", text);
    return DTP_MEMORY(err, e->unreadable);
}

/* The dims and the number of elements. */
static dtp_status read_shape(const dtp_json *shape, dtp_st_file *f, dtp_st_entry *e, int64_t *elems,
                             dtp_err *err)
{
    bool empty = false, fits = true;
    DTP_TRY(dtp_json_expect(shape, DTP_JSON_ARRAY, err));
    const int32_t n = dtp_json_size(shape);
    if (n > DTP_MAX_RANK) {
        e->unreadable = dtp_arena_printf(f->arena, "%d dims, more than %d", n, DTP_MAX_RANK);
        DTP_TRY(DTP_MEMORY(err, e->unreadable));
    }
    e->rank = n > DTP_MAX_RANK ? 0 : n;
    *elems = 1;
    for (int32_t i = 0; i < n; i++) {
        int64_t size;
        DTP_TRY(dtp_json_int(dtp_json_at(shape, i), 0, INT64_C(1) << 53, &size, err));
        empty = empty || size == 0;
        fits = fits && (size == 0 || dtp_mul_i64(*elems, size, elems));
        if (i < e->rank) {
            e->dims[i] = size;
        }
    }
    *elems = empty ? 0 : *elems;
    return fits ? DTP_OK : dtp_json_fail(shape, err, "more than 2^63 elements");
}

static dtp_status read_entry(const dtp_json *v, dtp_st_file *f, dtp_st_entry *e, dtp_err *err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets", NULL};
    const dtp_json *dtype, *shape, *offsets;
    int64_t bytes = 0;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_require(v, "dtype", &dtype, err));
    DTP_TRY(dtp_json_require(v, "shape", &shape, err));
    DTP_TRY(dtp_json_require(v, "data_offsets", &offsets, err));
    DTP_TRY(read_store(dtype, f, e, err));
    DTP_TRY(read_shape(shape, f, e, &bytes, err));
    DTP_TRY(dtp_json_expect(offsets, DTP_JSON_ARRAY, err));
    if (dtp_json_size(offsets) != 2) {
        return dtp_json_fail(offsets, err, "expected [begin, end], found %d values",
                             dtp_json_size(offsets));
    }
    DTP_TRY(dtp_json_int(dtp_json_at(offsets, 0), 0, INT64_MAX, &e->begin, err));
    DTP_TRY(dtp_json_int(dtp_json_at(offsets, 1), 0, INT64_MAX, &e->end, err));
    if (e->begin > e->end || e->end > f->data_bytes) {
        return dtp_json_fail(offsets, err, "bytes %" PRId64 "..%" PRId64 " of %" PRId64, e->begin,
                             e->end, f->data_bytes);
    }
    if (e->store != DTP_N_STORES &&
        (!dtp_mul_i64(bytes, dtp_store_bytes(e->store), &bytes) || bytes != e->end - e->begin)) {
        return dtp_json_fail(v, err, "the shape needs another number of bytes than %" PRId64,
                             e->end - e->begin);
    }
    e->name = dtp_arena_strdup(f->arena, dtp_json_key(v));
    return DTP_MEMORY(err, e->name);
}

static int by_begin(const void *a, const void *b)
{
    const dtp_st_entry *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const dtp_st_entry *)a)->name, ((const dtp_st_entry *)b)->name);
}

/* The texts of "__metadata__"; what else stands there is another writer's. */
static dtp_status read_metadata(const dtp_json *v, dtp_st_file *f, dtp_err *err)
{
    const int32_t n = dtp_json_kind_of(v) == DTP_JSON_OBJECT ? dtp_json_size(v) : 0;
    DTP_TRY(DTP_NEW(f->arena, f->meta, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_json *member = dtp_json_at(v, i);
        const char *text;
        if (dtp_json_string(member, &text, NULL) != DTP_OK) {
            continue;
        }
        const dtp_st_meta meta = {.key = dtp_arena_strdup(f->arena, dtp_json_key(member)),
                                  .value = dtp_arena_strdup(f->arena, text)};
        DTP_TRY(DTP_MEMORY(err, meta.key, meta.value));
        f->meta[f->n_meta++] = meta;
    }
    return DTP_OK;
}

static dtp_status read_member(const dtp_json *v, dtp_st_file *f, dtp_err *err)
{
    if (strcmp(dtp_json_key(v), "__metadata__") == 0) {
        return read_metadata(v, f, err);
    }
    DTP_TRY(read_entry(v, f, &f->entries[f->n], err));
    f->n++;
    return DTP_OK;
}

static dtp_status read_entries(dtp_st_file *f, const dtp_json *root, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(root, DTP_JSON_OBJECT, err));
    int32_t n = dtp_json_size(root);
    DTP_TRY(DTP_NEW(f->arena, f->entries, n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_member(dtp_json_at(root, i), f, err));
    }
    /* Sorted by place, entries must follow each other without overlap or hole up to the end. */
    int64_t at = 0;
    qsort(f->entries, (size_t)f->n, sizeof *f->entries, by_begin);
    for (int32_t i = 0; i < f->n; i++) {
        const dtp_st_entry *e = &f->entries[i];
        if (e->begin != at) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: tensor '%.100s' starts at byte %" PRId64 ", but %" PRId64 " %s",
                            f->path, e->name, e->begin, at,
                            e->begin < at ? "are taken (overlap)" : "was expected (hole)");
        }
        at = e->end;
    }
    if (at != f->data_bytes) {
        return DTP_FAIL(err, DTP_INVALID, "%s: tensors end at byte %" PRId64 " of %" PRId64,
                        f->path, at, f->data_bytes);
    }
    qsort(f->entries, (size_t)f->n, sizeof *f->entries, by_name);
    return DTP_OK;
}

/* Bytes that stand where weights should, and what to do. */
static dtp_status refuse_start(const dtp_st_file *f, int64_t size, dtp_err *err)
{
    static const struct {
        const char *start, *what;
    } known[] = {
        {"version https://git-lfs", "is a pointer of git-lfs, not the weights: run 'git lfs pull'"},
        {"<!DOCTYPE", "is a web page, not the weights: download the file itself"},
        {"<!doctype", "is a web page, not the weights: download the file itself"},
        {"<html", "is a web page, not the weights: download the file itself"},
        {"PK\003\004", "is a zip archive, perhaps of torch.save: save it as safetensors"},
    };
    char start[32] = "";
    const int64_t n = size < (int64_t)sizeof start - 1 ? size : (int64_t)sizeof start - 1;
    DTP_TRY(dtp_read_at(f->fd, f->path, 0, start, n, err));
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(start, known[i].start, strlen(known[i].start)) == 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: %s", f->path, known[i].what);
        }
    }
    return DTP_OK;
}

static dtp_status read_file(dtp_st_file *f, dtp_err *err)
{
    struct stat st;
    unsigned char head[8];
    if (fstat(f->fd, &st) != 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", f->path, strerror(errno));
    }
    if (st.st_size < 8) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: too short for a safetensors file (%" PRId64 " bytes)", f->path,
                        (int64_t)st.st_size);
    }
    DTP_TRY(refuse_start(f, (int64_t)st.st_size, err));
    DTP_TRY(dtp_read_at(f->fd, f->path, 0, head, 8, err));
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--) {
        len = len << 8 | head[i];
    }
    if (len > MAX_HEADER_BYTES || (int64_t)len > (int64_t)st.st_size - 8) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: safetensors header of %" PRIu64 " bytes in a file of %" PRId64,
                        f->path, len, (int64_t)st.st_size);
    }
    f->data_at = 8 + (int64_t)len;
    f->data_bytes = (int64_t)st.st_size - f->data_at;
    char *text = malloc((size_t)len + 1);
    DTP_TRY(DTP_MEMORY(err, text));
    text[len] = '\0';
    dtp_status status = dtp_read_at(f->fd, f->path, 8, text, (int64_t)len, err);
    dtp_json_doc *doc = NULL;
    if (status == DTP_OK) {
        status = dtp_json_parse(f->path, text, (size_t)len, &doc, err);
    }
    if (status == DTP_OK) {
        status = read_entries(f, dtp_json_root(doc), err);
    }
    f->foreign = strncmp(text, OUR_START, strlen(OUR_START)) != 0;
    const char *digits =
        status == DTP_OK && !f->foreign ? dtp_st_meta_get(f, DTP_ST_HEADER_CRC) : NULL;
    if (digits != NULL) {
        status = dtp_crc_check(f->path, text, (size_t)len, DTP_ST_HEADER_CRC, digits, err);
    }
    dtp_json_destroy(doc);
    free(text);
    return status;
}

dtp_status dtp_st_open(const char *path, dtp_st_file **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_st_file *f = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *f) : NULL;
    const char *name = f != NULL ? dtp_arena_strdup(arena, path) : NULL;
    if (name == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    }
    f->arena = arena;
    f->path = name;
    dtp_status status = dtp_file_in_open(path, &f->fd, err);
    status = status == DTP_OK ? read_file(f, err) : status;
    if (status != DTP_OK) {
        dtp_st_close(f);
        return status;
    }
    *out = f;
    return DTP_OK;
}

bool dtp_st_is_foreign(const dtp_st_file *file)
{
    return file->foreign;
}

void dtp_st_close(dtp_st_file *file)
{
    if (file != NULL) {
        if (file->fd >= 0) {
            close(file->fd);
        }
        dtp_arena_destroy(file->arena);
    }
}

int32_t dtp_st_count(const dtp_st_file *file)
{
    return file->n;
}

const dtp_st_entry *dtp_st_at(const dtp_st_file *file, int32_t index)
{
    return &file->entries[index];
}

const dtp_st_entry *dtp_st_find(const dtp_st_file *file, const char *name)
{
    dtp_st_entry key = {.name = name};
    return bsearch(&key, file->entries, (size_t)file->n, sizeof key, by_name);
}

const char *dtp_st_meta_get(const dtp_st_file *file, const char *key)
{
    for (int32_t i = 0; i < file->n_meta; i++) {
        if (strcmp(file->meta[i].key, key) == 0) {
            return file->meta[i].value;
        }
    }
    return NULL;
}

int64_t dtp_st_data_at(const dtp_st_file *file)
{
    return file->data_at;
}

dtp_status dtp_st_read(const dtp_st_file *file, const dtp_st_entry *entry, const dtp_strided *part,
                       void *out, dtp_err *err)
{
    if (entry->unreadable != NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: cannot be read: %s", file->path,
                        entry->unreadable);
    }
    return dtp_strided_read(file->fd, file->path, file->data_at + entry->begin, part,
                            dtp_store_bytes(entry->store), out, err);
}
