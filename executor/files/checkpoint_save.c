/* Saving into a directory: every rank its shards under new names, then rank 0 the index. */
#include "executor/files/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/files/file_out.h"
#include "core/transform/stages.h"
#include "executor/files/checkpoint_internal.h"

/* The slice that a rank of the program writes of a value: false when another rank has the same
 * shard, or it is empty. */
static bool slice_of(const dtp_program *p, const dtp_value *value, int32_t rank, dtp_shard *out)
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    dtp_mesh_coords(&p->mesh, rank, coords);
    for (int32_t m = 0; m < value->layout.n_mesh; m++) {
        if (value->layout.placement[m].kind != DTP_SHARD && coords[m] != 0) {
            return false;
        }
    }
    *out = dtp_shard_of(&value->type, &value->layout, &p->mesh, rank);
    return dtp_shard_elems(out) > 0;
}

/* Of chunks one writes a tensor: its home. */
static bool is_saved(const dtp_program *p, const dtp_value *value)
{
    const dtp_stages *stages = p->graph->stages;
    return value->kind == DTP_VALUE_RESIDENT && value->tensor >= 0 &&
           dtp_tensor_lasts(&p->graph->tensors[value->tensor]) &&
           (stages == NULL || stages->home[value->tensor] == p->chunk);
}

/* ---- own slices ---- */

static dtp_status put_values(const dtp_checkpoint_job *job, dtp_st_writer *w, int32_t n,
                             const dtp_view *const *views, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const dtp_view *view = views[i];
        int64_t bytes = dtp_ttype_bytes(&view->local);
        void *host = malloc((size_t)bytes);
        DTP_TRY(DTP_MEMORY(err, host));
        dtp_status status =
            job->backend->ops->download(job->backend, host, view->data, (size_t)bytes, err);
        if (status == DTP_OK) {
            status = dtp_st_put(w, host, bytes, err);
        }
        free(host);
        DTP_TRY(status);
    }
    return DTP_OK;
}

/* Adds what a rank of the mesh writes of a program to n entries; returns how many there are. */
static int32_t add_entries(const dtp_runner *r, int32_t rank, int32_t n, dtp_st_entry *entries,
                           const dtp_view **views)
{
    const dtp_program *p = dtp_runner_program(r);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        dtp_shard shard;
        if (!is_saved(p, &p->values[v]) || !slice_of(p, &p->values[v], rank, &shard)) {
            continue;
        }
        dtp_st_entry *e = &entries[n];
        e->name = p->graph->tensors[p->values[v].tensor].name;
        e->store = (dtp_store)p->values[v].type.dtype;
        e->rank = shard.rank;
        memcpy(e->dims, shard.size, sizeof e->dims);
        views[n++] = dtp_runner_view(r, v);
    }
    return n;
}

/* stamp: bytes and checksum of the file. */
static dtp_status write_slices(const dtp_checkpoint_job *job, const char *dir, int64_t set,
                               int64_t stamp[2], dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(job->runners[0]);
    char path[DTP_CHECKPOINT_PATH_BYTES];
    if (!dtp_checkpoint__part_path(dir, set, job->comm->rank, job->comm->size, path)) {
        return DTP_FAIL(err, DTP_RANGE, "%.200s: the path is too long", dir);
    }
    const int32_t rank = job->comm->rank % dtp_mesh_ranks(&p->mesh);
    size_t room = 1;
    for (int32_t k = 0; k < job->n_runners; k++) {
        room += (size_t)dtp_runner_program(job->runners[k])->n_values;
    }
    dtp_st_entry *entries = calloc(room, sizeof *entries);
    const dtp_view **views = calloc(room, sizeof(const dtp_view *));
    dtp_st_writer *w = NULL;
    dtp_status status = DTP_OK;
    if (entries == NULL || views == NULL) {
        status = DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    } else {
        int32_t n = 0;
        for (int32_t k = 0; k < job->n_runners; k++) {
            n = add_entries(job->runners[k], rank, n, entries, views);
        }
        status = dtp_st_create_name(path, n, entries, 0, NULL, &w, err);
        if (status == DTP_OK) {
            status = put_values(job, w, n, views, err);
        }
    }
    if (status == DTP_OK) {
        uint32_t crc = 0;
        status = dtp_st_commit(w, &stamp[0], &crc, err);
        stamp[1] = crc;
    } else {
        dtp_st_discard(w);
    }
    free(entries);
    free(views);
    return status;
}

/* ---- the index ---- */

/* The tensors that a program holds, with their slices. */
static void add_tensors(const dtp_program *p, dtp_json_writer *j)
{
    const int32_t ranks = dtp_mesh_ranks(&p->mesh);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        if (is_saved(p, &p->values[v])) {
            const dtp_value *value = &p->values[v];
            dtp_shard whole = dtp_shard_whole(&value->type), shard;
            dtp_json_begin_object(j, p->graph->tensors[value->tensor].name);
            dtp_json_write_string(j, "dtype", dtp_store_name((dtp_store)value->type.dtype));
            dtp_json_write_ints(j, "shape", whole.rank, whole.size);
            dtp_json_begin_array(j, "slices", false);
            for (int32_t r = 0; r < ranks; r++) {
                if (slice_of(p, value, r, &shard)) {
                    dtp_json_begin_object(j, NULL);
                    dtp_json_write_int(j, "file", dtp_chunk_stage(p->graph, p->chunk) * ranks + r);
                    dtp_json_write_ints(j, "offset", shard.rank, shard.offset);
                    dtp_json_write_ints(j, "size", shard.rank, shard.size);
                    dtp_json_end_object(j);
                }
            }
            dtp_json_end_array(j);
            dtp_json_end_object(j);
        }
    }
}

/* Written over an older index. */
static dtp_status write_index(const dtp_checkpoint_job *job, const char *dir, int64_t set,
                              const int64_t *stamps, dtp_err *err)
{
    const dtp_program *p = dtp_runner_program(job->runners[0]);
    char path[DTP_CHECKPOINT_PATH_BYTES], seed[24];
    dtp_json_writer j = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, DTP_CHECKPOINT_INDEX);
    dtp_json_begin_object(&j, NULL);
    dtp_json_begin_object(&j, "metadata");
    dtp_json_write_string(&j, "format", DTP_CHECKPOINT_FORMAT);
    dtp_json_write_int(&j, "step", job->step);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, job->seed);
    dtp_json_write_string(&j, DTP_CHECKPOINT_SEED, seed);
    for (int i = 0; i < DTP_N_RUN_TEXTS && job->run != NULL; i++) {
        if (job->run->text[i] != NULL) {
            dtp_json_write_string(&j, dtp_run_text_key((dtp_run_text)i), job->run->text[i]);
        }
    }
    dtp_json_write_string(&j, DTP_CHECKPOINT_CRC, DTP_CRC_ZEROS);
    dtp_json_end_object(&j);
    dtp_json_begin_array(&j, "files", false);
    for (int32_t r = 0; r < job->comm->size; r++) {
        char name[DTP_CHECKPOINT_PATH_BYTES], crc[16];
        if (dtp_checkpoint__part_path(dir, set, r, job->comm->size, name)) {
            snprintf(crc, sizeof crc, "%08" PRIx32, (uint32_t)stamps[2 * r + 1]);
            dtp_json_begin_object(&j, NULL);
            dtp_json_write_string(&j, "name", name + strlen(dir) + 1);
            dtp_json_write_int(&j, "bytes", stamps[2 * r]);
            dtp_json_write_string(&j, "crc32", crc);
            dtp_json_end_object(&j);
        }
    }
    dtp_json_end_array(&j);
    dtp_json_begin_object(&j, "tensors");
    for (int32_t k = 0; k < dtp_graph_chunks(p->graph); k++) {
        add_tensors(p->chunks != NULL ? p->chunks[k] : p, &j);
    }
    dtp_json_end_object(&j);
    dtp_json_end_object(&j);
    dtp_strbuf_add(&j.buf, "\n");
    dtp_status status = j.buf.failed || !dtp_crc_seal(j.buf.text, j.buf.len, DTP_CHECKPOINT_CRC)
                            ? DTP_FAIL(err, DTP_NOMEM, "%s: no memory for the index", path)
                            : dtp_file_replace(path, dtp_strbuf_text(&j.buf), j.buf.len, err);
    dtp_strbuf_free(&j.buf);
    return status;
}

/* The new files are complete and have their names. The older index stays until the new one takes
 * its name. */
static dtp_status publish(const dtp_checkpoint_job *job, const char *dir, int64_t set,
                          const int64_t *stamps, dtp_err *err)
{
    int64_t next;
    DTP_TRY(dtp_checkpoint__keep_index(dir, err));
    DTP_TRY(write_index(job, dir, set, stamps, err));
    return dtp_checkpoint__clean(dir, job->keep > 1 ? job->keep - 1 : 0, job->ctx, &next, err);
}

static dtp_status write_set(const dtp_checkpoint_job *job, const char *dir, int64_t set,
                            dtp_err *err)
{
    dtp_comm *comm = job->comm;
    int64_t stamp[2] = {0, 0};
    int64_t *stamps = calloc((size_t)comm->size, sizeof stamp);
    dtp_status status = stamps != NULL ? write_slices(job, dir, set, stamp, err)
                                       : DTP_FAIL(err, DTP_NOMEM, "%s: no memory", dir);
    status = dtp_comm_agree_status(comm, status, err);
    dtp_coll coll = {
        .kind = DTP_ALL_GATHER, .set = dtp_comm_all(comm), .dtype = DTP_I64, .count = 2};
    if (status == DTP_OK && stamps != NULL) {
        status = comm->ops->run(comm, &coll, stamp, stamps, err);
    }
    if (status == DTP_OK && stamps != NULL) {
        status = comm->rank == 0 ? publish(job, dir, set, stamps, err) : DTP_OK;
        status = dtp_comm_agree_status(comm, status, err);
    }
    free(stamps);
    return status;
}

dtp_status dtp_checkpoint_save(const dtp_checkpoint_job *job, const char *dir, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    int64_t set = 0;
    /* Rank 0 removes what killed saves left, and tells the number of the new set. */
    dtp_status status = DTP_OK;
    if (job->comm->rank == 0) {
        status = dtp_checkpoint__clean(dir, INT32_MAX, job->ctx, &set, err);
    }
    DTP_TRY(dtp_comm_agree_status(job->comm, status, err));
    DTP_TRY(dtp_comm_all_reduce(job->comm, DTP_REDUCE_MAX, DTP_I64, 1, &set, err));
    status = write_set(job, dir, set, err);
    if (status == DTP_OK) {
        return DTP_OK;
    }
    /* a rank that ends first may take the others with it: they wait for rank 0 */
    dtp_status cleaned =
        job->comm->rank == 0 ? dtp_checkpoint__clean(dir, INT32_MAX, job->ctx, &set, NULL) : DTP_OK;
    dtp_status met = job->comm->ops->barrier(job->comm, NULL);
    if (job->comm->rank == 0 && (cleaned != DTP_OK || met != DTP_OK)) {
        dtp_log(job->ctx, DTP_LOG_WARN, "checkpoint", "left", "folder=%s", dir);
    }
    return status;
}
