/* libFuzzer on .pt2 and .onnx files: no bytes make the import crash, and what it gives is a whole
 * model. Mutants of archives are archives: a value, a key or a whole part of one of their JSON
 * files is another one. bad_pt2.py and bad_onnx.py break files in every build. */
#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "importers/files/zip.h"
#include "importers/graph_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const dtp_graph_import_options options = {.name = "fuzz"};
    dtp_graph_import_result result;
    dtp_err err;
    const dtp_status s = dtp_graph_file_import_bytes("fuzz.pt2", (const char *)data, (int64_t)size,
                                                     &options, &result, &err);
    const char *model = dtp_strbuf_text(&result.model);
    if (s == DTP_INTERNAL || (s == DTP_OK && strstr(model, "\"outputs\"") == NULL)) {
        abort();
    }
    dtp_graph_file_free(&result);
    return 0;
}

/* ---- random numbers ---- */

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static uint32_t below(uint32_t *rng, uint32_t n)
{
    return n == 0 ? 0 : next(rng) % n;
}

/* ---- JSON ---- */

/* Part number *left of a document, counted in its order; NULL: it has fewer. */
static cJSON *part(cJSON *v, uint32_t *left)
{
    for (; v != NULL; v = v->next) {
        if ((*left)-- == 0) {
            return v;
        }
        cJSON *found = part(v->child, left);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static uint32_t parts(const cJSON *v)
{
    uint32_t n = 0;
    for (; v != NULL; v = v->next) {
        n += 1 + parts(v->child);
    }
    return n;
}

static cJSON *any_part(cJSON *root, uint32_t *rng)
{
    uint32_t k = below(rng, parts(root->child));
    return part(root->child, &k);
}

/* The object or list that holds a part. */
static cJSON *holder(cJSON *v, const cJSON *of)
{
    for (cJSON *c = v->child; c != NULL; c = c->next) {
        cJSON *found = c == of ? v : holder(c, of);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

static cJSON *odd_value(uint32_t *rng)
{
    static const double numbers[] = {0,   -1,   1,     2,    3,     5,     7,       13,
                                     0.5, 1e18, -1e18, 1e38, 1e300, 65536, 1 << 30, 4294967296.0};
    static const char *const texts[] = {"",         "x",        "-1",   "NaN",
                                        "Infinity", "dtp.rope", "../x", "a.b.c"};
    switch (below(rng, 7)) {
    case 0:
        return cJSON_CreateNull();
    case 1:
        return cJSON_CreateObject();
    case 2:
        return cJSON_CreateArray();
    case 3:
        return cJSON_CreateBool(below(rng, 2) == 0);
    case 4:
        return cJSON_CreateString(texts[below(rng, 8)]);
    default:
        return cJSON_CreateNumber(numbers[below(rng, 16)]);
    }
}

static void replace(cJSON *root, cJSON *old, cJSON *by)
{
    cJSON *in = holder(root, old);
    if (in == NULL || by == NULL) {
        cJSON_Delete(by);
        return;
    }
    if (old->string != NULL && by->string == NULL) {
        cJSON *named = cJSON_CreateObject(); /* gives it the key */
        cJSON_AddItemToObject(named, old->string, by);
        by = cJSON_DetachItemViaPointer(named, by);
        cJSON_Delete(named);
    }
    cJSON_ReplaceItemViaPointer(in, old, by);
}

static void nudge(cJSON *v, uint32_t *rng)
{
    static const double by[] = {-2, -1, 1, 2, 1 << 20, -0.5};
    if (cJSON_IsNumber(v)) {
        cJSON_SetNumberValue(v, v->valuedouble + by[below(rng, 6)]);
    }
}

/* A part becomes an odd value, is another part of the document, is gone, is there twice, has a
 * number beside its own, or the key of another one. */
static void mutate(cJSON *root, uint32_t *rng)
{
    cJSON *at = any_part(root, rng), *other = any_part(root, rng);
    if (at == NULL || other == NULL) {
        return;
    }
    cJSON *in = holder(root, at);
    switch (below(rng, 7)) {
    case 0:
        replace(root, at, odd_value(rng));
        break;
    case 1:
    case 2:
        replace(root, at, cJSON_Duplicate(other, true));
        break;
    case 3:
        cJSON_Delete(cJSON_DetachItemViaPointer(in, at));
        break;
    case 4:
        if (cJSON_IsArray(in)) {
            cJSON_AddItemToArray(in, cJSON_Duplicate(at, true));
        } else {
            cJSON_AddItemToObject(in, at->string, cJSON_Duplicate(other, true));
        }
        break;
    case 5:
        nudge(at, rng);
        break;
    default:
        if (cJSON_IsObject(in) && other->string != NULL) {
            cJSON_AddItemToObject(in, other->string, cJSON_DetachItemViaPointer(in, at));
        }
        break;
    }
}

/* The text of an entry after some mutations, to be freed; NULL: it is no JSON. */
static char *mutant(const dtp_zip_entry *e, uint32_t *rng)
{
    cJSON *root = cJSON_ParseWithLength(e->data, (size_t)e->bytes);
    char *text = NULL;
    if (root != NULL) {
        for (uint32_t n = 1 + below(rng, 3); n > 0; n--) {
            mutate(root, rng);
        }
        text = cJSON_PrintUnformatted(root);
        cJSON_Delete(root);
    }
    return text;
}

/* ---- zip ---- */

typedef struct bytes {
    uint8_t *of;
    size_t n, most; /* what is above is not written */
} bytes;

static void put_bytes(bytes *b, const void *data, size_t n)
{
    if (n > 0 && b->n + n <= b->most) {
        memcpy(b->of + b->n, data, n);
    }
    b->n += n;
}

static void put(bytes *b, uint64_t x, int n)
{
    for (int i = 0; i < n; i++) {
        const uint8_t c = i < 8 ? (uint8_t)(x >> (8 * i) & 0xff) : 0;
        put_bytes(b, &c, 1);
    }
}

/* What both headers of a stored entry say. */
static void put_entry(bytes *b, const dtp_zip_entry *e)
{
    put(b, 0, 2); /* flags */
    put(b, 0, 2); /* stored */
    put(b, 0, 4); /* time and date */
    put(b, crc32(0, (const Bytef *)e->data, (uInt)e->bytes), 4);
    put(b, (uint64_t)e->bytes, 4);
    put(b, (uint64_t)e->bytes, 4);
    put(b, strlen(e->name), 2);
    put(b, 0, 2);
}

static void pack(const dtp_zip *z, bytes *out, bytes *directory)
{
    for (int32_t i = 0; i < z->n; i++) {
        const dtp_zip_entry *e = &z->entries[i];
        const size_t at = out->n;
        put(out, 0x04034b50, 4);
        put(out, 10, 2);
        put_entry(out, e);
        put_bytes(out, e->name, strlen(e->name));
        put_bytes(out, e->data, (size_t)e->bytes);
        put(directory, 0x02014b50, 4);
        put(directory, 10, 2);
        put(directory, 10, 2);
        put_entry(directory, e);
        put(directory, 0, 10); /* comment, disk, attributes */
        put(directory, 0, 2);
        put(directory, at, 4);
        put_bytes(directory, e->name, strlen(e->name));
    }
    const size_t at = out->n;
    put_bytes(out, directory->of, directory->n);
    put(out, 0x06054b50, 4);
    put(out, 0, 4);
    put(out, (uint64_t)z->n, 2);
    put(out, (uint64_t)z->n, 2);
    put(out, directory->n, 4);
    put(out, at, 4);
    put(out, 0, 2);
}

/* One of the JSON files, most often the graph. */
static dtp_zip_entry *pick(const dtp_zip *z, uint32_t *rng)
{
    dtp_zip_entry *found = NULL;
    const bool graph = below(rng, 8) != 0;
    uint32_t n = 0;
    for (int32_t i = 0; i < z->n; i++) {
        const char *name = z->entries[i].name;
        if (strstr(name, ".json") != NULL && (!graph || strstr(name, "models/") != NULL) &&
            below(rng, ++n) == 0) {
            found = &z->entries[i];
        }
    }
    return found;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    uint32_t rng = seed * 2654435761U + 1;
    dtp_arena *arena = dtp_arena_create();
    bytes out = {malloc(max), 0, max}, directory = {malloc(max), 0, max};
    dtp_zip z;
    char *text = NULL;
    size_t n = 0;
    if (arena != NULL && out.of != NULL && directory.of != NULL && below(&rng, 16) != 0 &&
        dtp_zip_read("fuzz", (const char *)data, (int64_t)size, arena, &z, NULL) == DTP_OK) {
        dtp_zip_entry *e = pick(&z, &rng);
        text = e == NULL ? NULL : mutant(e, &rng);
        if (text != NULL) {
            e->data = text;
            e->bytes = (int64_t)strlen(text);
            pack(&z, &out, &directory);
            n = directory.n > max || out.n > max ? 0 : out.n;
        }
    }
    if (n > 0) {
        memcpy(data, out.of, n);
    }
    cJSON_free(text);
    free(out.of);
    free(directory.of);
    dtp_arena_destroy(arena);
    return n > 0 ? n : LLVMFuzzerMutate(data, size, max);
}
