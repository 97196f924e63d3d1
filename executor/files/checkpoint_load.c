/* Loading: every rank reads the parts of stored slices that fall into its shards. */
#include "executor/files/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"
#include "core/graph/optimizer.h"
#include "executor/files/checkpoint_internal.h"

/* Host memory of one load. */
typedef struct loader {
    dtp_checkpoint_job *job;
    dtp_catalog catalog;
    bool wants_states, states; /* the model has optimizer states, the checkpoint too */
} loader;

static void shape_text(const dtp_shard *p, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t d = 0; d < p->rank && used < room; d++) {
        used +=
            (size_t)snprintf(out + used, room - used, "%s%" PRId64, d > 0 ? "," : "", p->global[d]);
    }
}

/* The part of one slice that falls into `shard` goes to its place in `host`. */
static dtp_status read_slice(const loader *l, const dtp_slice *s, const dtp_shard *shard,
                             dtp_dtype dtype, void *host, dtp_err *err)
{
    dtp_shard common;
    if (!dtp_shard_intersect(&s->shard, shard, &common)) {
        return DTP_OK;
    }
    dtp_strided stored = {.rank = common.rank, .first = s->first};
    dtp_strided held = dtp_strided_of(&common, shard);
    for (int32_t d = 0; d < common.rank; d++) {
        stored.first += (common.offset[d] - s->shard.offset[d]) * s->stride[d];
        stored.size[d] = common.size[d];
        stored.stride[d] = s->stride[d];
    }
    dtp_strided_sort(&stored, &held);
    const dtp_strided dense = dtp_strided_dense(&stored);
    int64_t n = dtp_shard_elems(&common);
    void *raw = malloc((size_t)(n * dtp_store_bytes(s->entry->store)));
    void *values = malloc((size_t)(n * dtp_dtype_bytes(dtype)));
    dtp_status status = raw != NULL && values != NULL
                            ? dtp_st_read(l->catalog.files[s->file].st, s->entry, &stored, raw, err)
                            : DTP_FAIL(err, DTP_NOMEM, "no memory for %" PRId64 " elements", n);
    if (status == DTP_OK) {
        status = dtp_convert(s->entry->store, raw, dtype, values, n, err);
    }
    if (status == DTP_OK) {
        dtp_strided_copy(&dense, values, &held, host, dtp_dtype_bytes(dtype));
    }
    free(raw);
    free(values);
    return status;
}

/* Tensors that hold the value again hold the same. */
static dtp_status check_twins(const loader *l, const char *name, const dtp_shard *shard,
                              dtp_dtype dtype, const void *host, dtp_err *err)
{
    const int64_t bytes = dtp_shard_elems(shard) * dtp_dtype_bytes(dtype);
    for (int32_t i = 0; i < l->catalog.n_twins; i++) {
        const dtp_slice *twin = &l->catalog.twins[i];
        if (strcmp(twin->name, name) != 0 || bytes == 0) {
            continue;
        }
        void *again = malloc((size_t)bytes);
        DTP_TRY(DTP_MEMORY(err, again));
        dtp_status status = read_slice(l, twin, shard, dtype, again, err);
        if (status == DTP_OK && memcmp(again, host, (size_t)bytes) != 0) {
            status =
                DTP_FAIL(err, DTP_INVALID, "'%.200s' holds other values, but the weights are tied",
                         twin->entry->name);
        }
        free(again);
        DTP_TRY(status);
    }
    return DTP_OK;
}

static dtp_status load_value(const loader *l, const dtp_runner *r, dtp_value_id v, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(r);
    const char *name = p->graph->tensors[p->values[v].tensor].name;
    const dtp_view *view = dtp_runner_view(r, v);
    dtp_shard shard = dtp_runner_shard(r, v);
    const dtp_slice *slices;
    int32_t n = dtp_catalog_find(&l->catalog, name, &slices);
    if (n == 0) {
        return DTP_FAIL(err, DTP_INVALID, "the checkpoint has no tensor '%.100s'", name);
    }
    if (slices[0].entry->unreadable != NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "tensor '%.100s' cannot be read: %s", name,
                        slices[0].entry->unreadable);
    }
    bool same = slices[0].shard.rank == shard.rank;
    for (int32_t d = 0; same && d < shard.rank; d++) {
        same = slices[0].shard.global[d] == shard.global[d];
    }
    if (!same) {
        char have[256], want[256];
        shape_text(&slices[0].shard, have, sizeof have);
        shape_text(&shard, want, sizeof want);
        return DTP_FAIL(err, DTP_INVALID,
                        "tensor '%.100s' has shape [%s] in the checkpoint, [%s] in the model", name,
                        have, want);
    }
    int64_t bytes = dtp_ttype_bytes(&view->local);
    void *host = malloc(bytes > 0 ? (size_t)bytes : 1);
    DTP_TRY(DTP_MEMORY(err, host));
    dtp_status status = DTP_OK;
    for (int32_t i = 0; i < n && status == DTP_OK; i++) {
        status = read_slice(l, &slices[i], &shard, view->local.dtype, host, err);
    }
    status = status == DTP_OK ? check_twins(l, name, &shard, view->local.dtype, host, err) : status;
    if (status == DTP_OK) {
        status =
            l->job->backend->ops->upload(l->job->backend, view->data, host, (size_t)bytes, err);
    } else {
        dtp_err_prefix(err, "tensor '%.100s'", name);
    }
    free(host);
    return status;
}

/* Parameters always, states when there are any; those of no optimizer, a loss scale, where they are
 * there. */
static bool is_loaded(const loader *l, const dtp_runner *r, dtp_value_id v)
{
    const dtp_program *p = dtp_runner_program(r);
    const dtp_value *value = &p->values[v];
    if (value->kind != DTP_VALUE_RESIDENT || value->tensor < 0 ||
        dtp_runner_view(r, v)->data == NULL) {
        return false;
    }
    const dtp_graph_tensor *t = &p->graph->tensors[value->tensor];
    const dtp_slice *ignored;
    return t->kind == DTP_TENSOR_PARAM || (l->states && dtp_tensor_lasts(t) &&
                                           (dtp_optimizer_is_state(p->graph, t->name) ||
                                            dtp_catalog_find(&l->catalog, t->name, &ignored) > 0));
}

/* Of the files that this rank looks at. */
static dtp_status check_files(const dtp_comm *comm, const dtp_catalog *c, dtp_err *err)
{
    for (int32_t f = comm->rank; f < c->n_files; f += comm->size) {
        const dtp_slice_file *file = &c->files[f];
        uint32_t crc = 0;
        if (file->crc_from < 0) {
            continue;
        }
        DTP_TRY(dtp_crc_file(file->path, file->crc_from, &crc, err));
        if (crc != file->crc) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: checksum %08" PRIx32 " instead of %08" PRIx32
                            ": the file is damaged",
                            file->path, crc, file->crc);
        }
    }
    return DTP_OK;
}

/* A run that goes on has the states of its optimizer, and no others. */
static dtp_status check_states(const loader *l, dtp_err *err)
{
    const dtp_graph *g = dtp_runner_program(l->job->runners[0])->graph;
    const char *wanted = NULL, *other = NULL;
    const dtp_slice *ignored;
    for (dtp_tensor_id t = 0; t < g->n_tensors && wanted == NULL; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        const bool state = tensor->kind == DTP_TENSOR_STATE && dtp_tensor_lasts(tensor) &&
                           dtp_optimizer_is_state(g, tensor->name);
        wanted = state && dtp_catalog_find(&l->catalog, tensor->name, &ignored) == 0 ? tensor->name
                                                                                     : NULL;
    }
    for (int32_t i = 0; i < l->catalog.n_slices && other == NULL; i++) {
        const char *name = l->catalog.slices[i].name;
        other = dtp_graph_find(g, name) < 0 && dtp_optimizer_is_state(g, name) ? name : NULL;
    }
    if (wanted == NULL && other == NULL) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "the run cannot go on with another optimizer: the checkpoint has %s%s%s, the "
                    "model %s%s%s; --load without --resume starts anew from its parameters",
                    other != NULL ? "the state '" : "no state of it", other != NULL ? other : "",
                    other != NULL ? "'" : "", wanted != NULL ? "the state '" : "none",
                    wanted != NULL ? wanted : "", wanted != NULL ? "'" : "");
}

static dtp_status load_all(loader *l, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(l->job->runners[0]);
    /* Whether the model wants optimizer states, and the checkpoint has any of them. */
    const dtp_slice *ignored;
    for (dtp_tensor_id t = 0; t < p->graph->n_tensors; t++) {
        if (p->graph->tensors[t].kind == DTP_TENSOR_STATE &&
            dtp_tensor_lasts(&p->graph->tensors[t])) {
            l->wants_states = true;
            l->states =
                l->states || dtp_catalog_find(&l->catalog, p->graph->tensors[t].name, &ignored) > 0;
        }
    }
    DTP_TRY(l->job->run != NULL ? check_states(l, err) : DTP_OK);
    for (int32_t k = 0; k < l->job->n_runners; k++) {
        const dtp_runner *r = l->job->runners[k];
        for (dtp_value_id v = 0; v < dtp_runner_program(r)->n_values; v++) {
            DTP_TRY(is_loaded(l, r, v) ? load_value(l, r, v, err) : DTP_OK);
        }
    }
    /* Tensors of the file that the model does not have are named once. A graph without updates,
     * that of a forward run, has no use for optimizer states. */
    const dtp_graph *g = p->graph;
    int32_t unused = l->catalog.n_unused;
    const char *first = l->catalog.unused;
    for (int32_t i = 0; i < l->catalog.n_slices; i++) {
        dtp_tensor_id t = dtp_graph_find(g, l->catalog.slices[i].name);
        bool known = t >= 0 && dtp_tensor_lasts(&g->tensors[t]);
        const bool state =
            g->n_updates == 0 && dtp_optimizer_is_state(g, l->catalog.slices[i].name);
        if (!known && !state) {
            first = unused == 0 ? l->catalog.slices[i].name : first;
            unused++;
        }
    }
    for (int32_t f = 0; f < l->catalog.n_files && l->job->comm->rank == 0; f++) {
        const dtp_st_file *st = l->catalog.files[f].st;
        if (dtp_st_is_foreign(st) && dtp_st_meta_get(st, DTP_ST_HEADER_CRC) != NULL) {
            dtp_log(l->job->ctx, DTP_LOG_WARN, "checkpoint", "rewritten",
                    "file=%s by another program: its checksums are not compared",
                    l->catalog.files[f].path);
        }
    }
    if (unused > 0 && l->job->comm->rank == 0) {
        dtp_log(l->job->ctx, DTP_LOG_WARN, "checkpoint", "unused", "tensors=%d first=%s", unused,
                first);
    }
    return DTP_OK;
}

/* A failure of a load says what else can be loaded; that of a find (job NULL) is the same on all
 * ranks, which go on together. */
static dtp_status agree(dtp_comm *comm, const dtp_checkpoint_job *job, const char *path,
                        dtp_status status, dtp_err *err)
{
    if (job == NULL) {
        return dtp_comm_agree_status_alike(comm, status, err);
    }
    if (status != DTP_OK) {
        dtp_checkpoint__name_others(path, err);
    }
    return dtp_comm_agree_status(comm, status, err);
}

/* What ranks tell checkpoints apart by. Files of other systems have no checksums of their own. */
static dtp_status hash_of(const dtp_catalog *c, uint64_t *out, dtp_err *err)
{
    uint64_t h = dtp_hash_i64(DTP_HASH_SEED, c->step);
    for (int32_t f = 0; f < c->n_files; f++) {
        const dtp_slice_file *file = &c->files[f];
        uint32_t crc = file->crc;
        if (file->crc_from < 0) {
            dtp_file_map map;
            DTP_TRY(dtp_file_map_open(file->path, &map, err));
            const dtp_status s = dtp_crc_sampled(&map, file->path, &crc, err);
            h = dtp_hash_i64(h, map.bytes);
            dtp_file_map_close(&map);
            DTP_TRY(s);
        }
        h = dtp_hash_i64(dtp_hash_i64(h, file->crc_from), crc);
    }
    *out = h;
    return DTP_OK;
}

/* Opens a checkpoint, which is the same one on all ranks, and compares its checksums, for a load or
 * (job NULL) to see whether it is whole. To be closed after a failure as well. */
static dtp_status open_whole(dtp_comm *comm, const dtp_checkpoint_job *job, const char *path,
                             dtp_catalog *out, dtp_err *err)
{
    DTP_TRY(agree(comm, job, path, dtp_catalog_open(path, out, err), err));
    /* Ranks that open a checkpoint while a job replaces it may find different ones. */
    uint64_t h = 0;
    char words[DTP_CHECKPOINT_PATH_BYTES + 96];
    DTP_TRY(agree(comm, job, path, hash_of(out, &h, err), err));
    (void)snprintf(words, sizeof words, "%.300s: step %" PRId64 ", %d files, checksum %08" PRIx32,
                   path, out->step, out->n_files, dtp_hash_fold(h));
    DTP_TRY(dtp_comm_agree_words(comm, h, "the checkpoint", words, err));
    if (job != NULL && job->checked) {
        return DTP_OK;
    }
    dtp_status status = check_files(comm, out, err);
    if (status != DTP_OK && err != NULL && strncmp(err->msg, path, strlen(path)) != 0) {
        status = dtp_err_prefixed(status, err, "%s", path);
    }
    return agree(comm, job, path, status, err);
}

dtp_status dtp_checkpoint_load(dtp_checkpoint_job *job, const char *path, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    loader l = {.job = job};
    dtp_status status = open_whole(job->comm, job, path, &l.catalog, err);
    if (status == DTP_OK) {
        status = dtp_catalog_translate(&l.catalog, job->stored, job->types, err);
        status = status == DTP_OK ? dtp_err_prefixed(load_all(&l, err), err, "%s", path) : status;
        /* without optimizer states training starts over: their bias correction counts from zero */
        job->step = l.states || !l.wants_states ? l.catalog.step : 0;
        status = dtp_comm_agree_status(job->comm, status, err);
    }
    dtp_catalog_close(&l.catalog);
    return status;
}

dtp_status dtp_checkpoint_types(const char *path, const dtp_stored_params *stored, dtp_dtype *types,
                                dtp_err *err)
{
    dtp_catalog c;
    DTP_TRY(dtp_catalog_open(path, &c, err));
    const dtp_status status = dtp_catalog_translate(&c, stored, types, err);
    dtp_catalog_close(&c);
    return status;
}

/* ---- what a job goes on from ---- */

/* Path of the i-th newest checkpoint of the target, "" when there are fewer. Rank 0 looks. */
static dtp_status path_at(dtp_comm *comm, const char *target, bool single, int32_t i,
                          char out[DTP_CHECKPOINT_PATH_BYTES], dtp_err *err)
{
    int64_t set = INT64_MIN;
    dtp_status status = DTP_OK;
    struct stat st;
    if (comm->rank == 0 && single) {
        set = i == 0 && stat(target, &st) == 0 ? DTP_CHECKPOINT_NEWEST : DTP_CHECKPOINT_NO_SET;
    } else if (comm->rank == 0) {
        status = dtp_checkpoint__index_at(target, i, &set, err);
    }
    DTP_TRY(dtp_comm_agree_status(comm, status, err));
    DTP_TRY(dtp_comm_all_reduce(comm, DTP_REDUCE_MAX, DTP_I64, 1, &set, err));
    out[0] = '\0';
    const bool fits =
        set == DTP_CHECKPOINT_NO_SET ||
        (single ? snprintf(out, DTP_CHECKPOINT_PATH_BYTES, "%s", target) < DTP_CHECKPOINT_PATH_BYTES
                : dtp_checkpoint__index_path(target, set, out));
    return fits ? DTP_OK : DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", target);
}

static dtp_status copy_found(const dtp_catalog *c, dtp_checkpoint_found *out, dtp_err *err)
{
    out->has_seed = c->has_seed;
    out->seed = c->seed;
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        if (c->run[i] != NULL) {
            out->run.text[i] = strdup(c->run[i]);
            DTP_TRY(DTP_MEMORY(err, out->run.text[i]));
        }
    }
    return DTP_OK;
}

dtp_status dtp_checkpoint_find(dtp_comm *comm, const dtp_ctx *ctx, const char *target, bool single,
                               dtp_checkpoint_found *out, dtp_err *err)
{
    dtp_err first = {0}, local = {0};
    err = err != NULL ? err : &local;
    for (int32_t i = 0;; i++) {
        dtp_catalog c = {0};
        DTP_TRY(path_at(comm, target, single, i, out->path, err));
        if (out->path[0] == '\0') {
            *err = first;
            return first.code;
        }
        const dtp_status status = open_whole(comm, NULL, out->path, &c, err);
        const dtp_status copied = status == DTP_OK ? copy_found(&c, out, err) : DTP_OK;
        dtp_catalog_close(&c);
        DTP_TRY(copied);
        if (status == DTP_OK && i > 0 && comm->rank == 0) {
            dtp_log(ctx, DTP_LOG_WARN, "checkpoint", "damaged", "sets=%d newest: %s", i, first.msg);
        }
        if (status == DTP_OK || !(dtp_status_is_input(status) || status == DTP_IO)) {
            return status;
        }
        first = i == 0 ? *err : first;
        *err = (dtp_err){0};
    }
}
