/* What is in a checkpoint: its index (ours or Hugging Face's), or a single file. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/safe_int.h"
#include "core/files/file_in.h"
#include "executor/files/checkpoint_internal.h"

enum { MAX_FILES = 65536 };

static dtp_status add_slice(dtp_catalog *c, const dtp_slice *slice, dtp_err *err)
{
    DTP_TRY(DTP_ONE_MORE(c->arena, c->slices, c->n_slices, c->cap_slices, err));
    c->slices[c->n_slices++] = *slice;
    return DTP_OK;
}

/* A slice whose entry holds it and nothing else. */
static void fill_entry(dtp_slice *s)
{
    const dtp_strided all = dtp_strided_of(&s->shard, &s->shard);
    memcpy(s->stride, all.stride, sizeof s->stride);
}

/* An entry that is a whole tensor. */
static dtp_status add_whole(dtp_catalog *c, int32_t file, const dtp_st_entry *e, dtp_err *err)
{
    dtp_slice s = {.name = e->name, .file = file, .entry = e, .shard = {.rank = e->rank}};
    memcpy(s.shard.global, e->dims, sizeof s.shard.global);
    memcpy(s.shard.size, e->dims, sizeof s.shard.size);
    fill_entry(&s);
    return add_slice(c, &s, err);
}

/* Whether step and checksum of the metadata are ours: other writers use such keys as well. */
static bool has_our_metadata(const dtp_st_file *st)
{
    const char *format = dtp_st_meta_get(st, "format");
    return (format != NULL && strcmp(format, DTP_ST_FORMAT) == 0) ||
           (dtp_st_meta_get(st, "step") != NULL && dtp_st_meta_get(st, DTP_ST_CRC) != NULL);
}

static dtp_status take_seed(dtp_catalog *c, const char *text, dtp_err *err)
{
    char *end;
    errno = 0;
    c->seed = strtoull(text, &end, 10);
    c->has_seed = errno == 0 && *text >= '0' && *text <= '9' && *end == '\0';
    return c->has_seed ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "'%.40s' is not a seed", text);
}

/* Opens f->path. Its own checksum, where it has one, is of the data. */
static dtp_status open_data(dtp_slice_file *f, dtp_err *err)
{
    f->crc_from = -1;
    DTP_TRY(dtp_st_open(f->path, &f->st, err));
    const char *digits = has_our_metadata(f->st) && !dtp_st_is_foreign(f->st)
                             ? dtp_st_meta_get(f->st, DTP_ST_CRC)
                             : NULL;
    if (digits != NULL && !dtp_crc_parse(digits, &f->crc)) {
        dtp_st_close(f->st);
        f->st = NULL;
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: __metadata__.%s '%.20s' is not a checksum of 8 hex digits", f->path,
                        DTP_ST_CRC, digits);
    }
    f->crc_from = digits != NULL ? dtp_st_data_at(f->st) : -1;
    return DTP_OK;
}

/* File `name` beside the index. Names with a directory part are refused. */
static dtp_status open_file(dtp_catalog *c, int32_t index, const char *dir, const char *name,
                            dtp_err *err)
{
    dtp_slice_file *f = &c->files[index];
    if (strchr(name, '/') != NULL || name[0] == '\0') {
        return DTP_FAIL(err, DTP_INVALID, "'%.200s' is not a plain file name", name);
    }
    f->path = dtp_arena_printf(c->arena, "%s/%s", dir, name);
    DTP_TRY(DTP_MEMORY(err, f->path));
    return open_data(f, err);
}

static dtp_status room_for_files(dtp_catalog *c, int32_t n, dtp_err *err)
{
    c->files = dtp_arena_alloc(c->arena, (size_t)n, sizeof *c->files);
    return DTP_MEMORY(err, c->files);
}

/* ---- our index ---- */

static dtp_status read_file_row(dtp_catalog *c, int32_t i, const char *dir, const dtp_json *v,
                                dtp_err *err)
{
    static const char *const keys[] = {"name", "bytes", "crc32", NULL};
    const char *text, *digits;
    uint32_t sum;
    struct stat st;
    int64_t expected;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_string(v, "name", &text, err));
    DTP_TRY(dtp_json_get_int(v, "bytes", 0, INT64_MAX, &expected, err));
    DTP_TRY(dtp_json_get_string(v, "crc32", &digits, err));
    if (!dtp_crc_parse(digits, &sum)) {
        return dtp_json_fail(dtp_json_get(v, "crc32"), err,
                             "'%.20s' is not a checksum of 8 hex digits", digits);
    }
    DTP_TRY(dtp_json_prefixed(dtp_json_get(v, "name"), open_file(c, i, dir, text, err), err));
    c->files[i].crc_from = 0;
    c->files[i].crc = sum;
    c->n_files = i + 1;
    DTP_TRY(DTP_NEW(c->arena, c->files[i].named, dtp_st_count(c->files[i].st), err));
    if (stat(c->files[i].path, &st) != 0 || (int64_t)st.st_size != expected) {
        return dtp_json_fail(dtp_json_get(v, "bytes"), err,
                             "'%.200s' does not have %" PRId64 " bytes", text, expected);
    }
    return DTP_OK;
}

static dtp_status read_numbers(const dtp_json *v, const char *key, int32_t rank, int64_t *out,
                               dtp_err *err)
{
    const dtp_json *list;
    DTP_TRY(dtp_json_require(v, key, &list, err));
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    if (dtp_json_size(list) != rank) {
        return dtp_json_fail(list, err, "expected %d numbers, found %d", rank, dtp_json_size(list));
    }
    for (int32_t i = 0; i < rank; i++) {
        DTP_TRY(dtp_json_int(dtp_json_at(list, i), 0, INT64_C(1) << 53, &out[i], err));
    }
    return DTP_OK;
}

static dtp_status read_slice(dtp_catalog *c, const char *name, const dtp_shard *whole,
                             const char *dtype, const dtp_json *v, dtp_err *err)
{
    static const char *const keys[] = {"file", "offset", "size", NULL};
    dtp_slice s = {.name = name, .shard = *whole};
    int64_t index;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_int(v, "file", 0, c->n_files - 1, &index, err));
    s.file = (int32_t)index;
    DTP_TRY(read_numbers(v, "offset", whole->rank, s.shard.offset, err));
    DTP_TRY(read_numbers(v, "size", whole->rank, s.shard.size, err));
    for (int32_t d = 0; d < whole->rank; d++) {
        if (s.shard.size[d] < 1 || s.shard.offset[d] + s.shard.size[d] > whole->global[d]) {
            return dtp_json_fail(v, err, "dim %d: %" PRId64 " elements at %" PRId64 " of %" PRId64,
                                 d, s.shard.size[d], s.shard.offset[d], whole->global[d]);
        }
    }
    s.entry = dtp_st_find(c->files[s.file].st, name);
    bool fits = s.entry != NULL && s.entry->rank == whole->rank &&
                strcmp(dtp_store_name(s.entry->store), dtype) == 0;
    for (int32_t d = 0; fits && d < whole->rank; d++) {
        fits = s.entry->dims[d] == s.shard.size[d];
    }
    if (!fits) {
        return dtp_json_fail(v, err, "'%.200s' does not hold this slice", c->files[s.file].path);
    }
    bool *named = &c->files[s.file].named[s.entry - dtp_st_at(c->files[s.file].st, 0)];
    if (*named) {
        return dtp_json_fail(v, err, "a second slice of this tensor in '%.200s'",
                             c->files[s.file].path);
    }
    *named = true;
    fill_entry(&s);
    return add_slice(c, &s, err);
}

static dtp_status read_tensor(dtp_catalog *c, const dtp_json *v, dtp_err *err)
{
    static const char *const keys[] = {"dtype", "shape", "slices", NULL};
    const dtp_json *shape, *slices;
    const char *dtype_text;
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_string(v, "dtype", &dtype_text, err));
    DTP_TRY(dtp_json_get_kind(v, "shape", DTP_JSON_ARRAY, &shape, err));
    DTP_TRY(dtp_json_get_kind(v, "slices", DTP_JSON_ARRAY, &slices, err));
    if (dtp_json_size(shape) > DTP_MAX_RANK) {
        return dtp_json_fail(shape, err, "more than %d dims", DTP_MAX_RANK);
    }
    dtp_shard whole = {.rank = dtp_json_size(shape)};
    DTP_TRY(read_numbers(v, "shape", whole.rank, whole.global, err));
    memcpy(whole.size, whole.global, sizeof whole.size);
    int64_t elems = 8; /* bytes of the widest type */
    for (int32_t d = 0; d < whole.rank; d++) {
        if (whole.size[d] > 0 && !dtp_mul_i64(elems, whole.size[d], &elems)) {
            return dtp_json_fail(shape, err, "more than 2^63 bytes");
        }
    }
    char *name = dtp_arena_strdup(c->arena, dtp_json_key(v));
    DTP_TRY(DTP_MEMORY(err, name));
    for (int32_t i = 0; i < dtp_json_size(slices); i++) {
        DTP_TRY(read_slice(c, name, &whole, dtype_text, dtp_json_at(slices, i), err));
    }
    return DTP_OK;
}

/* Every entry of every file is named by a slice. */
static dtp_status check_named(const dtp_catalog *c, dtp_err *err)
{
    for (int32_t f = 0; f < c->n_files; f++) {
        for (int32_t e = 0; e < dtp_st_count(c->files[f].st); e++) {
            if (!c->files[f].named[e]) {
                return DTP_FAIL(err, DTP_INVALID,
                                "%.300s: no slice names tensor '%.100s' of '%.200s'", c->path,
                                dtp_st_at(c->files[f].st, e)->name, c->files[f].path);
            }
        }
    }
    return DTP_OK;
}

/* The index is what its checksum says, where it has one. */
static dtp_status check_text(const dtp_catalog *c, const dtp_json *meta, char *text, size_t len,
                             dtp_err *err)
{
    const char *digits;
    if (dtp_json_get(meta, DTP_CHECKPOINT_CRC) == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_get_string(meta, DTP_CHECKPOINT_CRC, &digits, err));
    return dtp_crc_check(c->path, text, len, DTP_CHECKPOINT_CRC, digits, err);
}

static dtp_status read_run(dtp_catalog *c, const dtp_json *meta, dtp_err *err)
{
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        const char *key = dtp_run_text_key((dtp_run_text)i), *text;
        if (dtp_json_get(meta, key) != NULL) {
            DTP_TRY(dtp_json_get_string(meta, key, &text, err));
            c->run[i] = dtp_arena_line(c->arena, text);
            DTP_TRY(DTP_MEMORY(err, c->run[i]));
        }
    }
    return DTP_OK;
}

static dtp_status read_ours(dtp_catalog *c, const char *dir, const dtp_json *root, char *text,
                            size_t len, dtp_err *err)
{
    static const char *const keys[] = {"metadata", "files", "tensors", NULL};
    const char *meta_keys[DTP_N_RUN_TEXTS + 5] = {"format", "step", DTP_CHECKPOINT_SEED,
                                                  DTP_CHECKPOINT_CRC};
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        meta_keys[4 + i] = dtp_run_text_key((dtp_run_text)i);
    }
    const char *seed = NULL;
    const dtp_json *meta, *files, *tensors;
    DTP_TRY(dtp_json_keys(root, keys, err));
    DTP_TRY(dtp_json_require(root, "metadata", &meta, err));
    DTP_TRY(dtp_json_get_kind(root, "files", DTP_JSON_ARRAY, &files, err));
    DTP_TRY(dtp_json_get_kind(root, "tensors", DTP_JSON_OBJECT, &tensors, err));
    DTP_TRY(dtp_json_format(meta, DTP_CHECKPOINT_FORMAT, meta_keys, err));
    DTP_TRY(check_text(c, meta, text, len, err));
    DTP_TRY(dtp_json_get_int(meta, "step", 0, UINT32_MAX, &c->step, err));
    if (dtp_json_get(meta, DTP_CHECKPOINT_SEED) != NULL) {
        DTP_TRY(dtp_json_get_string(meta, DTP_CHECKPOINT_SEED, &seed, err));
        DTP_TRY(dtp_json_prefixed(dtp_json_get(meta, DTP_CHECKPOINT_SEED), take_seed(c, seed, err),
                                  err));
    }
    DTP_TRY(read_run(c, meta, err));
    c->ours = true;
    int32_t n = dtp_json_size(files);
    if (n < 1 || n > MAX_FILES) {
        return dtp_json_fail(files, err, "%d files, expected 1..%d", n, MAX_FILES);
    }
    DTP_TRY(room_for_files(c, n, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(read_file_row(c, i, dir, dtp_json_at(files, i), err));
    }
    for (int32_t i = 0; i < dtp_json_size(tensors); i++) {
        DTP_TRY(read_tensor(c, dtp_json_at(tensors, i), err));
    }
    return check_named(c, err);
}

/* ---- Hugging Face index ---- */

/* The index names the files; what they hold counts, as for transformers: an entry may name another
 * of the files, or a tensor that none has. */

static const char *plain_name(const dtp_slice_file *f)
{
    return strrchr(f->path, '/') + 1;
}

/* The file of that name, opened when it is named first. */
static dtp_status find_file(dtp_catalog *c, dtp_hash_table *names, const char *dir,
                            const char *name, int32_t *file, dtp_err *err)
{
    const uint32_t hash = dtp_hash_name(name);
    uint32_t at = hash;
    do {
        *file = dtp_hash_table_next(names, hash, &at);
    } while (*file >= 0 && strcmp(plain_name(&c->files[*file]), name) != 0);
    if (*file >= 0) {
        return DTP_OK;
    }
    *file = c->n_files;
    if (c->n_files == MAX_FILES) {
        return DTP_FAIL(err, DTP_INVALID, "more than %d files", MAX_FILES);
    }
    DTP_TRY(open_file(c, *file, dir, name, err));
    c->n_files++;
    return dtp_hash_table_add(names, c->arena, hash, *file, err);
}

static dtp_status add_all(dtp_catalog *c, int32_t file, dtp_err *err)
{
    const dtp_st_file *st = c->files[file].st;
    for (int32_t i = 0; i < dtp_st_count(st); i++) {
        DTP_TRY(add_whole(c, file, dtp_st_at(st, i), err));
    }
    return DTP_OK;
}

static dtp_status read_weight_map(dtp_catalog *c, const char *dir, const dtp_json *map,
                                  dtp_err *err)
{
    dtp_hash_table names = {0};
    DTP_TRY(dtp_json_expect(map, DTP_JSON_OBJECT, err));
    DTP_TRY(room_for_files(c, dtp_json_size(map), err));
    for (int32_t i = 0; i < dtp_json_size(map); i++) {
        const dtp_json *v = dtp_json_at(map, i);
        const char *name;
        int32_t file;
        DTP_TRY(dtp_json_string(v, &name, err));
        DTP_TRY(dtp_json_prefixed(v, find_file(c, &names, dir, name, &file, err), err));
    }
    for (int32_t f = 0; f < c->n_files; f++) {
        DTP_TRY(add_all(c, f, err));
    }
    return DTP_OK;
}

/* ---- opening ---- */

static int by_name(const void *a, const void *b)
{
    const dtp_slice *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    for (int32_t d = 0; order == 0 && d < x->shard.rank; d++) {
        order =
            x->shard.offset[d] < y->shard.offset[d] ? -1 : x->shard.offset[d] > y->shard.offset[d];
    }
    return order;
}

static bool holds(const dtp_shard *s, const int64_t element[DTP_MAX_RANK])
{
    bool inside = true;
    for (int32_t d = 0; d < s->rank; d++) {
        inside = inside && element[d] >= s->offset[d] && element[d] - s->offset[d] < s->size[d];
    }
    return inside;
}

/* The slices of one tensor hold every element exactly once. */
static dtp_status check_tensor(const dtp_catalog *c, const dtp_slice *slices, int32_t n,
                               dtp_err *err)
{
    dtp_shard *shards;
    int64_t element[DTP_MAX_RANK];
    const dtp_slice *first = NULL;
    bool cover;
    DTP_TRY(DTP_NEW(c->arena, shards, n, err));
    for (int32_t i = 0; i < n; i++) {
        shards[i] = slices[i].shard;
    }
    DTP_TRY(dtp_shards_cover(shards, n, &cover, element, err));
    if (cover) {
        return DTP_OK;
    }
    int64_t covered = 0;
    for (int32_t i = 0; i < n; i++) {
        covered += dtp_shard_elems(&shards[i]);
        if (first != NULL && holds(&shards[i], element)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%.300s: tensor '%.100s' has slices that overlap, in '%s' and '%s'",
                            c->path, slices[0].name, plain_name(&c->files[first->file]),
                            plain_name(&c->files[slices[i].file]));
        }
        first = holds(&shards[i], element) ? &slices[i] : first;
    }
    dtp_shard whole = slices[0].shard;
    memcpy(whole.size, whole.global, sizeof whole.size);
    return DTP_FAIL(err, DTP_INVALID,
                    "%.300s: tensor '%.100s': slices hold %" PRId64 " of %" PRId64 " elements",
                    c->path, slices[0].name, covered, dtp_shard_elems(&whole));
}

dtp_status dtp_catalog__check(dtp_catalog *c, dtp_err *err)
{
    if (c->n_slices > 0) {
        qsort(c->slices, (size_t)c->n_slices, sizeof *c->slices, by_name);
    }
    for (int32_t i = 0, n; i < c->n_slices; i += n) {
        n = 1;
        while (i + n < c->n_slices && strcmp(c->slices[i].name, c->slices[i + n].name) == 0) {
            n++;
        }
        DTP_TRY(check_tensor(c, &c->slices[i], n, err));
    }
    return DTP_OK;
}

static dtp_status read_single(dtp_catalog *c, const char *path, dtp_err *err)
{
    c->path = path;
    DTP_TRY(room_for_files(c, 1, err));
    c->files[0].path = c->path;
    DTP_TRY(open_data(&c->files[0], err));
    c->n_files = 1;
    const dtp_st_file *st = c->files[0].st;
    c->ours = has_our_metadata(st);
    const char *step = c->ours ? dtp_st_meta_get(st, "step") : NULL;
    if (step != NULL) {
        char *end;
        errno = 0;
        c->step = strtoll(step, &end, 10);
        if (errno != 0 || end == step || *end != '\0' || c->step < 0 || c->step > UINT32_MAX) {
            return DTP_FAIL(err, DTP_INVALID, "%s: __metadata__.step '%.40s' is not a step", path,
                            step);
        }
    }
    const char *seed = c->ours ? dtp_st_meta_get(st, DTP_CHECKPOINT_SEED) : NULL;
    if (seed != NULL) {
        DTP_TRY(dtp_err_prefixed(take_seed(c, seed, err), err, "%s: __metadata__.%s", path,
                                 DTP_CHECKPOINT_SEED));
    }
    for (int i = 0; i < DTP_N_RUN_TEXTS && c->ours; i++) {
        const char *text = dtp_st_meta_get(st, dtp_run_text_key((dtp_run_text)i));
        c->run[i] = text != NULL ? dtp_arena_line(c->arena, text) : NULL;
        DTP_TRY(text != NULL ? DTP_MEMORY(err, c->run[i]) : DTP_OK);
    }
    return add_all(c, 0, err);
}

static dtp_status read_index(dtp_catalog *c, const char *path, dtp_err *err)
{
    char *text = NULL, *dir = dtp_arena_strdup(c->arena, path);
    size_t len = 0;
    c->path = path;
    DTP_TRY(DTP_MEMORY(err, dir));
    char *slash = strrchr(dir, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    DTP_TRY(dtp_file_read(path, DTP_CHECKPOINT_MAX_INDEX_BYTES, &text, &len, err));
    dtp_json_doc *doc = NULL;
    dtp_status status = dtp_json_parse(path, text, len, &doc, err);
    if (status == DTP_OK) {
        const dtp_json *root = dtp_json_root(doc), *map = dtp_json_get(root, "weight_map");
        const char *where = slash != NULL ? dir : ".";
        status = map != NULL ? read_weight_map(c, where, map, err)
                             : read_ours(c, where, root, text, len, err);
    }
    dtp_json_destroy(doc);
    free(text);
    return status;
}

/* Weights of other kinds that a folder without ours may have, and what to do. */
static dtp_status refuse_folder(const char *path, dtp_err *err)
{
    static const struct {
        const char *name, *what;
    } known[] = {
        {"pytorch_model.bin", "which torch.save wrote: save it as safetensors (save_pretrained)"},
        {"pytorch_model.bin.index.json",
         "which torch.save wrote: save it as safetensors (save_pretrained)"},
        {"consolidated.safetensors", "whose names are those of another program: convert it"},
        {"consolidated.00.pth", "whose names are those of another program: convert it"},
        {"adapter_model.safetensors", "which are weights of an adapter alone"},
    };
    struct dirent *e;
    char found[256] = "";
    DIR *d = opendir(path);
    while (d != NULL && (e = readdir(d)) != NULL) {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (strcmp(e->d_name, known[i].name) == 0) {
                (void)closedir(d);
                return DTP_FAIL(err, DTP_IO, "%s: holds no %s, but %s, %s", path,
                                DTP_CHECKPOINT_SINGLE, known[i].name, known[i].what);
            }
        }
        const bool weights =
            strstr(e->d_name, ".safetensors") != NULL && strncmp(e->d_name, "rank-", 5) != 0;
        if (weights && (found[0] == '\0' || strcmp(e->d_name, found) < 0)) {
            (void)snprintf(found, sizeof found, "%s", e->d_name);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return found[0] == '\0'
               ? DTP_FAIL(err, DTP_IO, "%s: holds no complete checkpoint (no %s, %s or %s)", path,
                          DTP_CHECKPOINT_INDEX, DTP_CHECKPOINT_SINGLE, DTP_CHECKPOINT_HF_INDEX)
               : DTP_FAIL(err, DTP_IO,
                          "%s: holds no complete checkpoint (no %s or %s), but '%.200s': name the "
                          "file or the index itself",
                          path, DTP_CHECKPOINT_SINGLE, DTP_CHECKPOINT_HF_INDEX, found);
}

static dtp_status read_path(dtp_catalog *c, const char *path, dtp_err *err)
{
    struct stat st;
    size_t n = strlen(path);
    if (stat(path, &st) != 0) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    path = dtp_arena_strdup(c->arena, path);
    DTP_TRY(DTP_MEMORY(err, path));
    if (!S_ISDIR(st.st_mode)) {
        bool index = n > 5 && strcmp(path + n - 5, ".json") == 0;
        return index ? read_index(c, path, err) : read_single(c, path, err);
    }
    /* The single file before the index, as transformers. */
    static const char *const names[] = {DTP_CHECKPOINT_INDEX, DTP_CHECKPOINT_SINGLE,
                                        DTP_CHECKPOINT_HF_INDEX};
    for (int i = 0; i < 3; i++) {
        const char *file = dtp_arena_printf(c->arena, "%s/%s", path, names[i]);
        DTP_TRY(DTP_MEMORY(err, file));
        if (stat(file, &st) == 0) {
            return i == 1 ? read_single(c, file, err) : read_index(c, file, err);
        }
    }
    return refuse_folder(path, err);
}

dtp_status dtp_catalog_open(const char *path, dtp_catalog *out, dtp_err *err)
{
    *out = (dtp_catalog){.arena = dtp_arena_create()};
    dtp_status status = out->arena != NULL ? read_path(out, path, err)
                                           : DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    if (status == DTP_OK) {
        status = dtp_catalog__check(out, err);
    }
    if (status != DTP_OK) {
        dtp_catalog_close(out);
    }
    return status;
}

void dtp_catalog_close(dtp_catalog *c)
{
    for (int32_t i = 0; i < c->n_files; i++) {
        dtp_st_close(c->files[i].st);
    }
    dtp_arena_destroy(c->arena);
    *c = (dtp_catalog){0};
}

int32_t dtp_catalog_find(const dtp_catalog *c, const char *name, const dtp_slice **first)
{
    int32_t low = 0, high = c->n_slices;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (strcmp(c->slices[mid].name, name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    int32_t n = 0;
    while (low + n < c->n_slices && strcmp(c->slices[low + n].name, name) == 0) {
        n++;
    }
    *first = n > 0 ? &c->slices[low] : NULL;
    return n;
}
