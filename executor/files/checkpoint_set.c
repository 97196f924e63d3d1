/* The sets of a checkpoint folder. A save writes set S + 1 under new names, S being the highest
 * number in the folder:
 *   rank-K-of-N.<set>.safetensors       shards of rank K
 *   dtp.checkpoint.json             names the files of the newest set; renamed into place last
 *   dtp.checkpoint.<set>.json       the index of an older set that is kept
 * Older versions gave indexes the names model.safetensors.index.json and
 * model.safetensors.index.<set>.json; they count where there is none of the names above. An index
 * of Hugging Face's with such a name is no set.
 * Files of a set that has no index are what a save left that did not end. Set 0 is a checkpoint
 * with names without a number; of its files only those go that an index named which goes itself.
 * All other names are left alone. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file_in.h"
#include "core/files/file_out.h"
#include "core/base/json.h"
#include "core/base/sort.h"
#include "executor/files/checkpoint_internal.h"

static const char index_head[] = "dtp.checkpoint.", old_index_head[] = "model.safetensors.index.";

/* ---- names ---- */

/* A number as printed: no sign, no leading zeros, below 10^18. */
static bool take_number(const char **at, int64_t *out)
{
    const size_t n = strspn(*at, "0123456789");
    if (n == 0 || n > 18 || (n > 1 && **at == '0')) {
        return false;
    }
    *out = strtoll(*at, NULL, 10);
    *at += n;
    return true;
}

static bool take_text(const char **at, const char *text)
{
    const size_t n = strlen(text);
    const bool same = strncmp(*at, text, n) == 0;
    *at += same ? n : 0;
    return same;
}

/* "rank-K-of-N.<set>.safetensors", or set 0 without ".<set>". */
static bool is_part(const char *name, int64_t *set)
{
    int64_t rank, ranks;
    *set = 0;
    if (!take_text(&name, "rank-") || !take_number(&name, &rank) || !take_text(&name, "-of-") ||
        !take_number(&name, &ranks) || !take_text(&name, ".")) {
        return false;
    }
    if (take_number(&name, set) && (*set == 0 || !take_text(&name, "."))) {
        return false;
    }
    return rank < ranks && strcmp(name, "safetensors") == 0;
}

static bool is_kept_index(const char *name, int64_t *set)
{
    return (take_text(&name, index_head) || take_text(&name, old_index_head)) &&
           take_number(&name, set) && strcmp(name, ".json") == 0;
}

/* Cuts a name that a writer of one of our files gives to its temporary (core/files/file_out.h). */
static bool cut_temporary(char *name)
{
    char *mark = strstr(name, ".tmp.");
    int64_t set;
    if (mark == NULL) {
        return false;
    }
    *mark = '\0';
    return is_part(name, &set) || is_kept_index(name, &set) ||
           strcmp(name, DTP_CHECKPOINT_INDEX) == 0 || strcmp(name, DTP_CHECKPOINT_HF_INDEX) == 0;
}

bool dtp_checkpoint__part_path(const char *dir, int64_t set, int32_t rank, int32_t ranks,
                               char out[DTP_CHECKPOINT_PATH_BYTES])
{
    int n = snprintf(out, DTP_CHECKPOINT_PATH_BYTES, "%s/rank-%d-of-%d.%" PRId64 ".safetensors",
                     dir, rank, ranks, set);
    return n > 0 && n < DTP_CHECKPOINT_PATH_BYTES;
}

/* ---- a folder ---- */

typedef struct part {
    const char *path;
    int64_t set;
} part;

typedef struct folder {
    const char *dir;
    const dtp_ctx *ctx;
    dtp_arena *arena;
    int32_t n_parts, cap_parts, n_kept, cap_kept;
    part *parts;
    dtp_keyed *kept;          /* sets that have a kept index, the newest first */
    const char *index;        /* of the newest set; NULL: there is none */
    const char *replaced;     /* one with the older name beside it; NULL */
    bool readable;            /* the index, where there is one */
    int64_t current, highest; /* its set; the highest number of any name */
} folder;

static const char *path_of(const folder *f, const char *name)
{
    return dtp_arena_printf(f->arena, "%s/%s", f->dir, name);
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* "DIR/HEAD<set>.json" or, of the newest set, "DIR/NAME", where `old` says which head and name. */
static bool print_index(const char *dir, int64_t set, bool old, char out[DTP_CHECKPOINT_PATH_BYTES])
{
    const int n = set == DTP_CHECKPOINT_NEWEST
                      ? snprintf(out, DTP_CHECKPOINT_PATH_BYTES, "%s/%s", dir,
                                 old ? DTP_CHECKPOINT_HF_INDEX : DTP_CHECKPOINT_INDEX)
                      : snprintf(out, DTP_CHECKPOINT_PATH_BYTES, "%s/%s%" PRId64 ".json", dir,
                                 old ? old_index_head : index_head, set);
    return n > 0 && n < DTP_CHECKPOINT_PATH_BYTES;
}

bool dtp_checkpoint__index_path(const char *dir, int64_t set, char out[DTP_CHECKPOINT_PATH_BYTES])
{
    char old[DTP_CHECKPOINT_PATH_BYTES];
    if (!print_index(dir, set, false, out)) {
        return false;
    }
    if (!is_there(out) && print_index(dir, set, true, old) && is_there(old)) {
        memcpy(out, old, sizeof old);
    }
    return true;
}

/* NULL: out of memory. */
static const char *index_path(const folder *f, int64_t set)
{
    char path[DTP_CHECKPOINT_PATH_BYTES];
    return dtp_checkpoint__index_path(f->dir, set, path) ? dtp_arena_strdup(f->arena, path) : NULL;
}

/* A file that stays although it should go costs space and does no harm. */
static void drop(const folder *f, const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        dtp_log(f->ctx, DTP_LOG_WARN, "checkpoint", "left", "file=%s reason=%s", path,
                strerror(errno));
    }
}

static dtp_status add_name(folder *f, char *name, dtp_err *err)
{
    int64_t set;
    if (is_part(name, &set)) {
        DTP_TRY(DTP_ONE_MORE(f->arena, f->parts, f->n_parts, f->cap_parts, err));
        const char *path = path_of(f, name);
        DTP_TRY(DTP_MEMORY(err, path));
        f->parts[f->n_parts++] = (part){path, set};
    } else if (is_kept_index(name, &set)) {
        DTP_TRY(DTP_ONE_MORE(f->arena, f->kept, f->n_kept, f->cap_kept, err));
        f->kept[f->n_kept++] = (dtp_keyed){.key = dtp_sort_key(-set), .item = set};
    } else {
        if (cut_temporary(name)) {
            const char *path = path_of(f, name);
            DTP_TRY(DTP_MEMORY(err, path));
            dtp_file_out_sweep(path);
        }
        return DTP_OK;
    }
    f->highest = set > f->highest ? set : f->highest;
    return DTP_OK;
}

/* Lists the folder; temporaries that no process writes any more are removed on the way. */
static dtp_status list(folder *f, dtp_err *err)
{
    DIR *d = opendir(f->dir);
    if (d == NULL) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", f->dir, strerror(errno));
    }
    dtp_status status = DTP_OK;
    for (struct dirent *e = readdir(d); e != NULL && status == DTP_OK; e = readdir(d)) {
        status = add_name(f, e->d_name, err);
    }
    (void)closedir(d);
    DTP_TRY(status);
    dtp_keyed *scratch;
    DTP_TRY(DTP_NEW(f->arena, scratch, f->n_kept, err));
    if (f->n_kept > 0) {
        dtp_sort_keyed(f->kept, scratch, f->n_kept);
    }
    return DTP_OK;
}

/* Names of the files of an index; *names stays NULL when it is Hugging Face's. */
static dtp_status copy_names(folder *f, const dtp_json *root, int32_t *n, const char ***names,
                             dtp_err *err)
{
    const dtp_json *list;
    if (dtp_json_get(root, "weight_map") != NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_require(root, "files", &list, err));
    *n = dtp_json_size(list);
    *names = dtp_arena_alloc(f->arena, (size_t)*n, sizeof **names);
    DTP_TRY(DTP_MEMORY(err, *names));
    for (int32_t i = 0; i < *n; i++) {
        const dtp_json *row = dtp_json_at(list, i);
        const char *name;
        DTP_TRY(dtp_json_get_string(row, "name", &name, err));
        (*names)[i] = dtp_arena_strdup(f->arena, name);
        DTP_TRY(DTP_MEMORY(err, (*names)[i]));
    }
    return DTP_OK;
}

static dtp_status read_names(folder *f, const char *path, int32_t *n, const char ***names,
                             dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    dtp_json_doc *doc = NULL;
    DTP_TRY(dtp_file_read(path, DTP_CHECKPOINT_MAX_INDEX_BYTES, &text, &len, err));
    dtp_status status = dtp_json_parse(path, text, len, &doc, err);
    if (status == DTP_OK) {
        status = copy_names(f, dtp_json_root(doc), n, names, err);
    }
    dtp_json_destroy(doc);
    free(text);
    return status;
}

/* Which index is that of the newest set, and the names of its files where it can be read. */
static dtp_status find_index(folder *f, int32_t *n, const char ***names, dtp_err *err)
{
    const char *index = path_of(f, DTP_CHECKPOINT_INDEX);
    const char *old = path_of(f, DTP_CHECKPOINT_HF_INDEX);
    DTP_TRY(DTP_MEMORY(err, index, old));
    const bool read_old = is_there(old) && read_names(f, old, n, names, NULL) == DTP_OK;
    const bool foreign = read_old && *names == NULL;
    f->readable = read_old;
    if (is_there(index)) {
        f->index = index;
        f->replaced = read_old && !foreign ? old : NULL;
        f->readable = read_names(f, index, n, names, NULL) == DTP_OK && *names != NULL;
    } else if (is_there(old) && !foreign) {
        f->index = old;
    }
    return DTP_OK;
}

/* Lists the folder and finds the set of the newest index. One that cannot be read is no failure:
 * then nothing is removed. */
static dtp_status open_folder(folder *f, const char *dir, const dtp_ctx *ctx, dtp_err *err)
{
    int32_t n = 0;
    const char **names = NULL;
    *f = (folder){.dir = dir, .ctx = ctx, .arena = dtp_arena_create()};
    DTP_TRY(DTP_MEMORY(err, f->arena));
    DTP_TRY(list(f, err));
    DTP_TRY(find_index(f, &n, &names, err));
    f->readable = f->readable || f->index == NULL;
    for (int32_t i = 0; f->readable && i < n; i++) {
        int64_t set;
        f->current = is_part(names[i], &set) && set > f->current ? set : f->current;
    }
    f->highest = f->current > f->highest ? f->current : f->highest;
    return DTP_OK;
}

/* An older index goes, and of set 0 its files. */
static void drop_index(folder *f, int64_t set)
{
    int32_t n = 0;
    const char **names = NULL;
    const char *path = index_path(f, set);
    if (path == NULL ||
        (set == 0 && set != f->current && read_names(f, path, &n, &names, NULL) != DTP_OK)) {
        return;
    }
    drop(f, path);
    for (int32_t i = 0; i < n; i++) {
        int64_t of;
        const char *file = is_part(names[i], &of) && of == 0 ? path_of(f, names[i]) : NULL;
        if (file != NULL) {
            drop(f, file);
        }
    }
}

/* Drops older indexes but the newest `keep`, then the files of all sets without an index. */
static void sweep(folder *f, int32_t keep)
{
    int32_t n = 0;
    if (!f->readable) {
        return;
    }
    if (f->replaced != NULL) {
        drop(f, f->replaced);
    }
    for (int32_t i = 0; i < f->n_kept; i++) {
        /* a kept index of the current set: a save ended between the copy and the new index */
        if (n >= keep || f->kept[i].item == f->current) {
            drop_index(f, f->kept[i].item);
        } else {
            f->kept[n++] = f->kept[i];
        }
    }
    for (int32_t i = 0; i < f->n_parts; i++) {
        const int64_t set = f->parts[i].set;
        bool named = set == 0 || set == f->current;
        for (int32_t k = 0; k < n && !named; k++) {
            named = f->kept[k].item == set;
        }
        if (!named) {
            drop(f, f->parts[i].path);
        }
    }
}

dtp_status dtp_checkpoint__clean(const char *dir, int32_t keep, const dtp_ctx *ctx, int64_t *next,
                                 dtp_err *err)
{
    folder f;
    dtp_status status = open_folder(&f, dir, ctx, err);
    if (status == DTP_OK) {
        *next = f.highest + 1;
        sweep(&f, keep);
    }
    dtp_arena_destroy(f.arena);
    return status;
}

dtp_status dtp_checkpoint__keep_index(const char *dir, dtp_err *err)
{
    folder f;
    char *text = NULL;
    size_t len = 0;
    dtp_status status = open_folder(&f, dir, NULL, err);
    if (status == DTP_OK && f.index != NULL && f.readable) {
        char kept[DTP_CHECKPOINT_PATH_BYTES];
        status = print_index(dir, f.current, false, kept)
                     ? dtp_file_read(f.index, DTP_CHECKPOINT_MAX_INDEX_BYTES, &text, &len, err)
                     : DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", dir);
        if (status == DTP_OK) {
            status = dtp_file_replace(kept, text, len, err);
        }
    }
    free(text);
    dtp_arena_destroy(f.arena);
    return status;
}

dtp_status dtp_checkpoint__index_at(const char *dir, int32_t i, int64_t *set, dtp_err *err)
{
    folder f;
    const dtp_status status = open_folder(&f, dir, NULL, err);
    if (status == DTP_OK) {
        const int32_t kept = i - (f.index != NULL ? 1 : 0);
        *set = kept < 0          ? DTP_CHECKPOINT_NEWEST
               : kept < f.n_kept ? f.kept[kept].item
                                 : DTP_CHECKPOINT_NO_SET;
    }
    dtp_arena_destroy(f.arena);
    return status;
}

/* ---- what else can be loaded ---- */

enum { SHOWN_SETS = 3 };

/* " PATH (step 12)" of a set that opens. */
static void name_set(const char *path, const char *failed, int32_t *n, dtp_strbuf *out)
{
    dtp_catalog c;
    if (path == NULL || strcmp(path, failed) == 0 || *n == SHOWN_SETS ||
        dtp_catalog_open(path, &c, NULL) != DTP_OK) {
        return;
    }
    dtp_strbuf_addf(out, "%s %s (step %" PRId64 ")", *n > 0 ? "," : "", path, c.step);
    dtp_catalog_close(&c);
    ++*n;
}

void dtp_checkpoint__name_others(const char *path, dtp_err *err)
{
    char dir[DTP_CHECKPOINT_PATH_BYTES];
    struct stat st;
    folder f;
    dtp_strbuf sets = {0};
    int32_t n = 0;
    const size_t length = strlen(path);
    const bool index = length > 5 && strcmp(path + length - 5, ".json") == 0;
    if (err == NULL || length >= sizeof dir || stat(path, &st) != 0 ||
        (!index && !S_ISDIR(st.st_mode))) {
        return;
    }
    memcpy(dir, path, length + 1);
    char *slash = strrchr(dir, '/');
    if (!S_ISDIR(st.st_mode)) { /* an index lies in its folder */
        (void)snprintf(slash != NULL ? slash : dir, 2, "%s", slash != NULL ? "" : ".");
    }
    if (open_folder(&f, dir, NULL, NULL) == DTP_OK) {
        const char *failed = S_ISDIR(st.st_mode) && f.index != NULL ? f.index : path;
        name_set(f.index, failed, &n, &sets);
        for (int32_t i = 0; i < f.n_kept; i++) {
            name_set(index_path(&f, f.kept[i].item), failed, &n, &sets);
        }
    }
    if (n > 0 && !sets.failed) {
        const dtp_err was = *err;
        (void)dtp_err_set(err, was.code, was.file, was.line, "%s; --load takes also%s", was.msg,
                          dtp_strbuf_text(&sets));
    }
    dtp_strbuf_free(&sets);
    dtp_arena_destroy(f.arena);
}
