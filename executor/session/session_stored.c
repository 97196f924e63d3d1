/* Parameters as the files of another framework have them: rank 0 gathers and writes one tensor
 * after the other. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "executor/files/safetensors.h"
#include "executor/files/weights_folder.h"
#include "executor/session/session_internal.h"

#define FILE_BYTES INT64_C(5000000000)

/* A tensor of theirs. */
typedef struct target {
    int32_t view, last; /* its views, in a list */
    int64_t elems;      /* of them */
    int64_t bytes;
    int32_t file;
} target;

typedef struct exporter {
    dtp_session *s;
    dtp_arena *arena;
    bool writes; /* rank 0 */
    int32_t n, n_files;
    target *targets; /* in the order of the files */
    int32_t *next;   /* by view: the next one of its tensor, -1 */
    int64_t bytes;
    dtp_weights_folder folder; /* rank 0 */
    int32_t n_written;         /* files that have their names */
    /* what was gathered last, on rank 0 in the type of the files; NULL: nothing */
    const char *held;
    dtp_dtype held_type;
    void *data;
} exporter;

static const dtp_stored_view *view_of(const exporter *e, const target *t)
{
    return &e->s->stored->views[t->view];
}

static dtp_dtype type_of(const exporter *e, const target *t)
{
    return e->s->types[t->view];
}

/* ---- which tensors, and which of them in which file ---- */

static dtp_status add_view(exporter *e, dtp_hash_table *names, int32_t v, dtp_err *err)
{
    const dtp_stored_view *view = &e->s->stored->views[v];
    const uint32_t hash = dtp_hash_name(view->name);
    uint32_t at = hash;
    int32_t i;
    do {
        i = dtp_hash_table_next(names, hash, &at);
    } while (i >= 0 && strcmp(view_of(e, &e->targets[i])->name, view->name) != 0);
    e->next[v] = -1;
    if (i < 0) {
        i = e->n++;
        e->targets[i] = (target){.view = v, .last = v};
        DTP_TRY(dtp_hash_table_add(names, e->arena, hash, i, err));
    } else {
        e->next[e->targets[i].last] = v;
        e->targets[i].last = v;
    }
    int64_t elems = 1;
    for (int32_t d = 0; d < view->rank; d++) {
        elems *= view->size[d];
    }
    e->targets[i].elems += elems;
    return DTP_OK;
}

/* Every tensor is all of its views. */
static dtp_status measure(exporter *e, target *t, dtp_err *err)
{
    const dtp_stored_view *view = view_of(e, t);
    int64_t elems = 1;
    for (int32_t a = 0; a < view->n_axes; a++) {
        elems *= view->axes[a];
    }
    t->bytes = elems * dtp_dtype_bytes(type_of(e, t));
    return elems == t->elems ? DTP_OK
                             : DTP_FAIL(err, DTP_INTERNAL,
                                        "parameters such as '%.100s' are %" PRId64
                                        " of the %" PRId64 " elements of '%.200s'",
                                        view->tensor, t->elems, elems, view->name);
}

/* The widest elements come first, so that all are aligned. */
static dtp_status arrange(exporter *e, int64_t most, dtp_err *err)
{
    dtp_hash_table names = {0};
    target *sorted;
    int32_t n = 0;
    int64_t used = 0;
    DTP_TRY(DTP_NEW(e->arena, e->targets, e->s->stored->n, err));
    DTP_TRY(DTP_NEW(e->arena, sorted, e->s->stored->n, err));
    DTP_TRY(DTP_NEW(e->arena, e->next, e->s->stored->n, err));
    for (int32_t v = 0; v < e->s->stored->n; v++) {
        DTP_TRY(add_view(e, &names, v, err));
    }
    for (int64_t width = 8; width > 0; width /= 2) {
        for (int32_t i = 0; i < e->n; i++) {
            if (dtp_dtype_bytes(type_of(e, &e->targets[i])) != width) {
                continue;
            }
            target *t = &sorted[n++];
            *t = e->targets[i];
            DTP_TRY(measure(e, t, err));
            e->n_files += used > most - t->bytes && used > 0 ? 1 : 0;
            used = used > most - t->bytes ? t->bytes : used + t->bytes;
            t->file = e->n_files;
            e->bytes += t->bytes;
        }
    }
    e->n_files++;
    e->targets = sorted;
    return DTP_OK;
}

/* ---- writing ---- */

/* Values that are finite in the model may not be in 16 bits. */
static dtp_status check_finite(const void *data, int64_t n, dtp_dtype type, dtp_err *err)
{
    const uint16_t exponent = type == DTP_F16 ? 0x7c00 : 0x7f80, *bits = data;
    for (int64_t i = 0; i < n && dtp_dtype_is_half(type); i++) {
        if ((bits[i] & exponent) == exponent) {
            return DTP_FAIL(err, DTP_NOT_FINITE, "element %" PRId64 " is too large for %s", i,
                            dtp_store_name((dtp_store)type));
        }
    }
    return DTP_OK;
}

/* Gathers a parameter, unless it is held; collective. */
static dtp_status hold(exporter *e, const dtp_stored_view *v, dtp_dtype type, dtp_err *err)
{
    if (e->held != NULL && strcmp(e->held, v->tensor) == 0 && e->held_type == type) {
        return DTP_OK;
    }
    free(e->data);
    e->data = NULL;
    e->held = NULL;
    const dtp_graph *g = e->s->program->graph;
    const dtp_tensor_id t = dtp_graph_find(g, v->tensor);
    if (t < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model has no parameter '%.100s'", v->tensor);
    }
    void *whole = NULL;
    dtp_status status = dtp_session__gather_new(e->s, t, &whole, err);
    if (status == DTP_OK && e->writes) {
        const int64_t n = dtp_ttype_elems(&g->tensors[t].type);
        e->data = malloc((size_t)(n * dtp_dtype_bytes(type)) + 1);
        status = DTP_MEMORY(err, e->data);
        status = status == DTP_OK ? dtp_convert((dtp_store)g->tensors[t].type.dtype, whole, type,
                                                e->data, n, err)
                                  : status;
        status = status == DTP_OK ? check_finite(e->data, n, type, err) : status;
        status = dtp_err_prefixed(status, err, "%s: parameter '%.100s'", e->folder.dir, v->tensor);
    }
    free(whole);
    e->held = v->tensor;
    e->held_type = type;
    return dtp_comm_agree_status(e->s->comm, status, err);
}

/* What is held goes to its place in a tensor of theirs. */
static void put_view(const exporter *e, const dtp_stored_view *v, void *out)
{
    dtp_shard box = {.rank = v->rank}, whole = {.rank = v->rank};
    memcpy(box.offset, v->from, sizeof box.offset);
    memcpy(box.size, v->size, sizeof box.size);
    memcpy(whole.size, v->global, sizeof whole.size);
    dtp_strided from = dtp_strided_of(&box, &whole);
    dtp_strided to = {.rank = v->rank, .first = v->first};
    memcpy(to.size, v->size, sizeof to.size);
    memcpy(to.stride, v->stride, sizeof to.stride);
    dtp_strided_sort(&from, &to);
    dtp_strided_copy(&from, e->data, &to, out, dtp_dtype_bytes(e->held_type));
}

/* Makes and writes one tensor; collective. */
static dtp_status put_target(exporter *e, const target *t, dtp_st_writer *w, dtp_err *err)
{
    void *out = e->writes ? malloc((size_t)t->bytes + 1) : NULL;
    dtp_status status = e->writes ? DTP_MEMORY(err, out) : DTP_OK;
    status = dtp_comm_agree_status(e->s->comm, status, err);
    for (int32_t v = t->view; v >= 0 && status == DTP_OK; v = e->next[v]) {
        const dtp_stored_view *view = &e->s->stored->views[v];
        status = hold(e, view, type_of(e, t), err);
        if (status == DTP_OK && e->writes) {
            put_view(e, view, out);
        }
    }
    if (status == DTP_OK) {
        status = e->writes ? dtp_st_put(w, out, t->bytes, err) : DTP_OK;
        status = dtp_comm_agree_status(e->s->comm, status, err);
    }
    free(out);
    return status;
}

static dtp_status open_file(exporter *e, int32_t file, dtp_st_writer **w, dtp_err *err)
{
    static const dtp_st_meta meta[] = {{"format", "pt"}};
    char path[DTP_WEIGHTS_PATH_BYTES];
    const char *name = NULL;
    dtp_st_entry *entries;
    int32_t n = 0;
    DTP_TRY(DTP_NEW(e->arena, entries, e->n, err));
    for (int32_t i = 0; i < e->n; i++) {
        const dtp_stored_view *v = view_of(e, &e->targets[i]);
        if (e->targets[i].file == file) {
            entries[n] = (dtp_st_entry){
                .name = v->name, .store = (dtp_store)type_of(e, &e->targets[i]), .rank = v->n_axes};
            memcpy(entries[n++].dims, v->axes, sizeof v->axes);
        }
    }
    return dtp_weights_path(&e->folder, file, path, &name)
               ? dtp_st_create_name(path, n, entries, 1, meta, w, err)
               : DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", e->folder.dir);
}

static dtp_status write_file(exporter *e, int32_t file, dtp_err *err)
{
    dtp_st_writer *w = NULL;
    dtp_status status = e->writes ? open_file(e, file, &w, err) : DTP_OK;
    status = dtp_comm_agree_status(e->s->comm, status, err);
    for (int32_t i = 0; i < e->n && status == DTP_OK; i++) {
        status = e->targets[i].file == file ? put_target(e, &e->targets[i], w, err) : DTP_OK;
    }
    if (status != DTP_OK) {
        dtp_st_discard(w);
        return status;
    }
    status = e->writes ? dtp_st_commit(w, NULL, NULL, err) : DTP_OK;
    e->n_written += status == DTP_OK ? 1 : 0;
    return dtp_comm_agree_status(e->s->comm, status, err);
}

/* The index of several files; rank 0. */
static dtp_status finish(const exporter *e, dtp_err *err)
{
    dtp_json_writer j = {0};
    char path[DTP_WEIGHTS_PATH_BYTES];
    const char *name;
    dtp_json_begin_object(&j, NULL);
    dtp_json_begin_object(&j, "metadata");
    dtp_json_write_int(&j, "total_size", e->bytes);
    dtp_json_end_object(&j);
    dtp_json_begin_object(&j, "weight_map");
    for (int32_t i = 0; i < e->n; i++) {
        if (dtp_weights_path(&e->folder, e->targets[i].file, path, &name)) {
            dtp_json_write_string(&j, view_of(e, &e->targets[i])->name, name);
        }
    }
    dtp_json_end_object(&j);
    dtp_json_end_object(&j);
    dtp_strbuf_add(&j.buf, "\n");
    const dtp_status status = j.buf.failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for the index")
                                           : dtp_weights_finish(&e->folder, &j.buf, err);
    dtp_strbuf_free(&j.buf);
    return status;
}

/* Makes the folder, and keeps other jobs from it; rank 0. */
static dtp_status open_folder(const dtp_session *s, const char *dir, bool *made,
                              dtp_file_lock **lock, dtp_err *err)
{
    char path[DTP_WEIGHTS_PATH_BYTES];
    *made = mkdir(dir, 0777) == 0;
    if (!*made && errno != EEXIST) {
        return DTP_FAIL(err, DTP_IO, "%s: %s", dir, strerror(errno));
    }
    if (s->locked != NULL && strcmp(s->locked, dir) == 0) {
        return DTP_OK;
    }
    const int n = snprintf(path, sizeof path, "%s/checkpoint.lock", dir);
    return n > 0 && (size_t)n < sizeof path
               ? dtp_file_lock_take(path, lock, err)
               : DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", dir);
}

static dtp_status write_all(exporter *e, const char *dir, int64_t most, dtp_err *err)
{
    dtp_comm *comm = e->s->comm;
    dtp_status status = arrange(e, most > 0 ? most : FILE_BYTES, err);
    if (status == DTP_OK && e->writes) {
        status = dtp_weights_open(dir, e->n_files, &e->folder, err);
    }
    status = dtp_comm_agree_status(comm, status, err);
    for (int32_t f = 0; f < e->n_files && status == DTP_OK; f++) {
        status = write_file(e, f, err);
    }
    if (status == DTP_OK) {
        status = dtp_comm_agree_status(comm, e->writes ? finish(e, err) : DTP_OK, err);
    }
    if (status != DTP_OK && e->writes) {
        dtp_weights_discard(&e->folder, e->n_written);
    }
    return status;
}

dtp_status dtp_session_save_stored(dtp_session *s, const char *dir, int64_t most, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    DTP_TRY(DTP_NOT_NULL(err, s, dir));
    if (s->stored == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: the session was made without names of a framework",
                        dir);
    }
    DTP_TRY(dtp_err_prefixed(dtp_session_check(s, err), err, "%s: not saved", dir));
    exporter e = {.s = s, .arena = dtp_arena_create(), .writes = s->comm->rank == 0};
    dtp_file_lock *lock = NULL;
    bool made = false;
    dtp_status status = DTP_MEMORY(err, e.arena);
    if (status == DTP_OK && e.writes) {
        status = open_folder(s, dir, &made, &lock, err);
    }
    status = dtp_comm_agree_status(s->comm, status, err);
    status = status == DTP_OK ? write_all(&e, dir, most, err) : status;
    dtp_file_lock_release(lock);
    if (status != DTP_OK && made) {
        (void)rmdir(dir);
    }
    free(e.data);
    dtp_arena_destroy(e.arena);
    return status;
}
