/* libFuzzer on the files of a folder of weights: a safetensors file, an index, a names file. No
 * text makes a reader crash; views of a names file stay inside their tensors, and what can be
 * opened can be read. weights_hf.py mutates files in every build. Run from the top of the sources.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "dtp/model.h"
#include "executor/files/checkpoint_internal.h"
#include "interop/names.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/dtp-fuzz-XXXXXX";
static dtp_graph *model;

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void put(const char *name, const void *data, size_t size, char path[64])
{
    snprintf(path, 64, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb"); /* dtp_file_write waits for the disk */
    must(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static int at_end(void)
{
    char path[64];
    static const char *const names[] = {"f.safetensors", "model.safetensors.index.json",
                                        "a.safetensors", "n.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    return remove(folder);
}

static void end(void)
{
    (void)at_end();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const dtp_st_entry entry = {.name = "a", .store = DTP_STORE_F32, .rank = 1, .dims = {2}};
    char path[64];
    dtp_st_writer *w;
    (void)argc;
    (void)argv;
    must(mkdtemp(folder) != NULL && atexit(end) == 0);
    must(dtp_model_read("models/mlp_digits.json", NULL, &model, NULL) == DTP_OK);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    must(dtp_st_create(path, 1, &entry, 0, NULL, &w, NULL) == DTP_OK);
    must(dtp_st_put(w, "12345678", 8, NULL) == DTP_OK);
    must(dtp_st_commit(w, NULL, NULL, NULL) == DTP_OK);
    return 0;
}

/* The last element of every view is inside its tensor. */
static void check_views(const char *path)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_names names;
    dtp_stored_params stored;
    if (dtp_names_read(path, arena, &names, NULL) == DTP_OK &&
        dtp_names_stored(&names, model, arena, &stored, NULL) == DTP_OK) {
        for (int32_t i = 0; i < stored.n; i++) {
            const dtp_stored_view *v = &stored.views[i];
            int64_t elems = 1, last = v->first;
            for (int32_t a = 0; a < v->n_axes; a++) {
                elems *= v->axes[a];
            }
            for (int32_t d = 0; d < v->rank; d++) {
                last += (v->size[d] - 1) * v->stride[d];
                must(v->stride[d] >= 0 && v->from[d] + v->size[d] <= v->global[d]);
            }
            must(v->first >= 0 && last < elems);
        }
    }
    dtp_arena_destroy(arena);
}

/* Every slice can be read where its elements are of a known type. */
static void check_checkpoint(const char *path)
{
    dtp_catalog c;
    if (dtp_catalog_open(path, &c, NULL) != DTP_OK) {
        return;
    }
    for (int32_t i = 0; i < c.n_slices; i++) {
        const dtp_slice *s = &c.slices[i];
        const int64_t elems = dtp_shard_elems(&s->shard);
        if (s->entry->unreadable == NULL && elems > 0) {
            const dtp_strided all = dtp_strided_of(&s->shard, &s->shard);
            void *data = malloc((size_t)(elems * dtp_store_bytes(s->entry->store)));
            must(data != NULL);
            must(dtp_st_read(c.files[s->file].st, s->entry, &all, data, NULL) == DTP_OK);
            free(data);
        }
    }
    dtp_catalog_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size > 0 && data[0] != '{') { /* the length of a header */
        put("f.safetensors", data, size, path);
        check_checkpoint(path);
        return 0;
    }
    put("n.json", data, size, path);
    check_views(path);
    put("model.safetensors.index.json", data, size, path);
    check_checkpoint(path);
    return 0;
}
