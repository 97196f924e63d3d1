/* A folder of weights as Hugging Face's transformers writes it: model.safetensors, or several
 * files model-00001-of-00003.safetensors that model.safetensors.index.json names. */
#include "executor/files/weights_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/files/file_in.h"
#include "core/files/file_out.h"

#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"

enum { MAX_INDEX_BYTES = 256 << 20 };

static bool join(const char *dir, const char *name, char out[DTP_WEIGHTS_PATH_BYTES])
{
    const int n = snprintf(out, DTP_WEIGHTS_PATH_BYTES, "%s/%s", dir, name);
    return n > 0 && n < DTP_WEIGHTS_PATH_BYTES;
}

bool dtp_weights_path(const dtp_weights_folder *f, int32_t i, char out[DTP_WEIGHTS_PATH_BYTES],
                      const char **name)
{
    char edition[16] = "", text[96];
    if (f->edition > 1) {
        (void)snprintf(edition, sizeof edition, ".%d", f->edition);
    }
    (void)snprintf(text, sizeof text, "model%s-%05d-of-%05d.safetensors", edition, i + 1,
                   f->n_files);
    *name = out + strlen(f->dir) + 1;
    return join(f->dir, f->n_files == 1 ? SINGLE : text, out);
}

/* "model-00001-of-00003.safetensors", of any edition. */
static bool is_part(const char *name)
{
    int edition = 1, i = 0, n = 0, end = 0;
    if (sscanf(name, "model-%d-of-%d.safetensors%n", &i, &n, &end) != 2 || end == 0) {
        end = 0;
        if (sscanf(name, "model.%d-%d-of-%d.safetensors%n", &edition, &i, &n, &end) != 3) {
            return false;
        }
    }
    return end > 0 && name[end] == '\0' && edition > 0 && i > 0 && i <= n;
}

/* The index of the folder, if there is one, is of such a folder. */
static dtp_status check_index(const char *dir, dtp_err *err)
{
    char path[DTP_WEIGHTS_PATH_BYTES], *text = NULL;
    size_t len = 0;
    struct stat st;
    dtp_json_doc *doc = NULL;
    if (!join(dir, INDEX, path)) {
        return DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", dir);
    }
    if (stat(path, &st) != 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_file_read(path, MAX_INDEX_BYTES, &text, &len, err));
    dtp_status status = dtp_json_parse(path, text, len, &doc, err);
    if (status == DTP_OK && dtp_json_get(dtp_json_root(doc), "weight_map") == NULL) {
        status = DTP_FAIL(err, DTP_INVALID, "%s: has no weight_map, and would be replaced", path);
    }
    dtp_json_destroy(doc);
    free(text);
    return status;
}

dtp_status dtp_weights_open(const char *dir, int32_t n_files, dtp_weights_folder *out, dtp_err *err)
{
    *out = (dtp_weights_folder){.dir = dir, .n_files = n_files, .edition = 1};
    DTP_TRY(check_index(dir, err));
    for (int32_t i = 0; i < n_files && n_files > 1; i++) {
        char path[DTP_WEIGHTS_PATH_BYTES];
        const char *name;
        struct stat st;
        if (!dtp_weights_path(out, i, path, &name)) {
            return DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", dir);
        }
        if (lstat(path, &st) == 0) {
            out->edition++;
            i = -1;
        }
    }
    return DTP_OK;
}

static void drop(const char *dir, const char *name)
{
    char path[DTP_WEIGHTS_PATH_BYTES];
    if (join(dir, name, path)) {
        (void)unlink(path); /* one that stays costs space */
    }
}

/* Whether a name is one of the save. */
static bool counts(const dtp_weights_folder *f, const char *name)
{
    char path[DTP_WEIGHTS_PATH_BYTES];
    const char *own;
    for (int32_t i = 0; i < f->n_files; i++) {
        if (dtp_weights_path(f, i, path, &own) && strcmp(own, name) == 0) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_weights_finish(const dtp_weights_folder *f, const dtp_strbuf *index, dtp_err *err)
{
    char path[DTP_WEIGHTS_PATH_BYTES];
    if (f->n_files > 1) {
        DTP_TRY(join(f->dir, INDEX, path)
                    ? dtp_file_replace(path, dtp_strbuf_text(index), index->len, err)
                    : DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", f->dir));
    }
    drop(f->dir, f->n_files > 1 ? SINGLE : INDEX);
    DIR *d = opendir(f->dir);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (is_part(e->d_name) && !counts(f, e->d_name)) {
            drop(f->dir, e->d_name);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return DTP_OK;
}

void dtp_weights_discard(const dtp_weights_folder *f, int32_t n)
{
    char path[DTP_WEIGHTS_PATH_BYTES];
    const char *name;
    for (int32_t i = 0; i < n && f->n_files > 1; i++) {
        if (dtp_weights_path(f, i, path, &name)) {
            (void)unlink(path);
        }
    }
}
