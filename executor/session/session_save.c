/* Saving: parameters and states as one file or as a directory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/files/checkpoint.h"
#include "executor/files/safetensors.h"
#include "executor/session/session_internal.h"

/* ---- one file for everything ---- */

static dtp_status open_single(dtp_session *s, const char *path, dtp_st_writer **w, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_st_entry *entries = calloc((size_t)g->n_tensors + 1, sizeof *entries);
    int32_t n = 0;
    if (entries == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        if (dtp_tensor_lasts(tensor)) {
            dtp_st_entry *e = &entries[n++];
            e->name = tensor->name;
            e->store = (dtp_store)tensor->type.dtype;
            e->rank = tensor->type.rank;
            for (int32_t d = 0; d < e->rank; d++) {
                e->dims[d] = tensor->type.dims[d].size;
            }
        }
    }
    char step[24];
    snprintf(step, sizeof step, "%" PRId64, s->step);
    const dtp_st_meta meta[] = {{"format", "dtp"}, {"step", step}, {DTP_ST_CRC, ""}};
    dtp_status status = dtp_st_create(path, n, entries, 3, meta, w, err);
    free(entries);
    return status;
}

/* Gathers and appends one tensor. A failure of writing is kept until all ranks can share it. */
static dtp_status append(dtp_session *s, dtp_tensor_id t, dtp_st_writer *w, dtp_err *err)
{
    int64_t bytes = dtp_ttype_bytes(&s->program->graph->tensors[t].type);
    void *whole = NULL;
    dtp_status status = dtp_session__whole_buffer(s, bytes, &whole, err);
    if (status == DTP_OK) {
        status = dtp_session_gather(s, t, whole, err);
    }
    if (status == DTP_OK) {
        status = dtp_comm_agree_status(s->comm,
                                       w != NULL ? dtp_st_put(w, whole, bytes, err) : DTP_OK, err);
    }
    free(whole);
    return status;
}

static dtp_status save_single(dtp_session *s, const char *path, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_st_writer *w = NULL;
    bool writes = s->comm->rank == 0;
    DTP_TRY(dtp_comm_agree_status(s->comm, writes ? open_single(s, path, &w, err) : DTP_OK, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        if (!dtp_tensor_lasts(&g->tensors[t])) {
            continue;
        }
        dtp_status status = append(s, t, w, err);
        if (status != DTP_OK) {
            dtp_st_discard(w);
            return status;
        }
    }
    return dtp_comm_agree_status(s->comm, writes ? dtp_st_commit(w, NULL, NULL, err) : DTP_OK, err);
}

/* ---- the lock ---- */

static bool is_single(const char *path)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(path), k = sizeof suffix - 1;
    return n > k && strcmp(path + n - k, suffix) == 0;
}

/* Rank 0: the lock lies in the folder or beside the file. */
static dtp_status take_lock(dtp_session *s, const char *path, dtp_err *err)
{
    const bool single = is_single(path);
    const size_t bytes = strlen(path) + 32;
    char *name = malloc(bytes);
    if (name == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    }
    (void)snprintf(name, bytes, "%s%s", path, single ? ".lock" : "/checkpoint.lock");
    s->made_folder = !single && mkdir(path, 0777) == 0;
    dtp_status status = single || s->made_folder || errno == EEXIST
                            ? dtp_file_lock_take(name, &s->lock, err)
                            : DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    free(name);
    return status;
}

dtp_status dtp_session__lock(dtp_session *s, const char *path, dtp_err *err)
{
    s->locked = strdup(path);
    dtp_status status = s->locked == NULL    ? DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path)
                        : s->comm->rank == 0 ? take_lock(s, path, err)
                                             : DTP_OK;
    return dtp_comm_agree_status(s->comm, status, err);
}

void dtp_session__unlock(dtp_session *s)
{
    dtp_file_lock_release(s->lock);
    if (s->made_folder) {
        (void)rmdir(s->locked); /* fails when something was saved */
    }
    free(s->locked);
    s->lock = NULL;
    s->locked = NULL;
    s->made_folder = false;
}

/* ---- saving ---- */

static dtp_status save_locked(dtp_session *s, const char *path, dtp_err *err)
{
    if (is_single(path)) {
        return save_single(s, path, err);
    }
    const dtp_checkpoint_job job = {.runner = s->runner,
                                    .backend = s->backend,
                                    .comm = s->comm,
                                    .ctx = s->log ? &s->ctx : NULL,
                                    .step = s->step,
                                    .keep = s->keep};
    return dtp_checkpoint_save(&job, path, err);
}

dtp_status dtp_session_save(dtp_session *s, const char *path, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    dtp_status status = dtp_session_check(s, err);
    if (status != DTP_OK) {
        dtp_err_prefix(err, "%s: not saved", path);
        return status;
    }
    const bool reserved = s->locked != NULL;
    if (reserved && strcmp(s->locked, path) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: the session was made to save to '%s'", path,
                        s->locked);
    }
    status = reserved ? DTP_OK : dtp_session__lock(s, path, err);
    if (status == DTP_OK) {
        status = save_locked(s, path, err);
    }
    if (!reserved) {
        dtp_session__unlock(s);
    }
    return status;
}
