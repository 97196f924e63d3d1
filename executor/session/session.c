/* Sessions (dtp/session.h): what a report and a verification ask beyond what is public. */
#include "executor/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/transform/microbatch.h"
#include "core/plan/plan.h"
#include "executor/files/checkpoint.h"
#include "executor/files/safetensors.h"
#include "executor/device/convert.h"
#include "executor/session/session_internal.h"
#include "core/graph/optimizer.h"

/* ---- agreement ---- */

static uint64_t hash_schedule(uint64_t h, const dtp_schedule *s)
{
    h = dtp_hash_i64(dtp_hash_i64(h, s->kind), s->n);
    h = dtp_hash_i64(dtp_hash_i64(h, s->warmup), s->steps);
    h = dtp_hash_bytes(h, &s->last, sizeof s->last);
    h = dtp_hash_bytes(h, s->at, sizeof s->at);
    return dtp_hash_bytes(h, s->scale, sizeof s->scale);
}

/* Everything that must be the same on all ranks. */
static uint64_t hash_job(const dtp_program *p, const dtp_session_options *o)
{
    uint64_t h = dtp_program_hash(p->chunks != NULL ? p->chunks[0] : p);
    for (int32_t k = 1; p->chunks != NULL && k < p->graph->stages->n_chunks; k++) {
        h = dtp_hash_i64(dtp_hash_i64(h, (int64_t)dtp_program_hash(p->chunks[k])),
                         p->chunks[k]->slots); /* the tables follow from slots and graph */
    }
    h = dtp_hash_i64(h, dtp_graph_stages(p->graph));
    h = dtp_hash_i64(h, (int64_t)o->seed);
    h = dtp_hash_i64(dtp_hash_i64(h, o->keep), o->allow_nan);
    h = dtp_hash_i64(h, o->order);
    h = dtp_hash_i64(dtp_hash_i64(h, o->resume), o->any_seed);
    h = hash_schedule(h, &p->graph->training.schedule);
    h = dtp_hash_i64(h, o->n_feeds);
    for (int32_t i = 0; i < o->n_feeds; i++) {
        h = dtp_hash_text(dtp_hash_text(h, o->feeds[i].input), o->feeds[i].file);
        h = dtp_hash_i64(h, o->feeds[i].shift);
        h = dtp_hash_text(h, o->feeds[i].dtype != NULL ? o->feeds[i].dtype : "");
    }
    h = dtp_hash_text(h, o->save != NULL ? o->save : "");
    return dtp_hash_text(h, o->load != NULL ? o->load : "");
}

/* Where parameters lie in the files of a framework. */
static uint64_t hash_stored(const dtp_stored_params *stored)
{
    uint64_t h = dtp_hash_i64(DTP_HASH_SEED, stored != NULL ? stored->n : -1);
    for (int32_t i = 0; stored != NULL && i < stored->n; i++) {
        const dtp_stored_view *v = &stored->views[i];
        h = dtp_hash_text(dtp_hash_text(h, v->tensor), v->name);
        h = dtp_hash_bytes(h, v->from, sizeof v->from[0] * (size_t)v->rank);
        h = dtp_hash_bytes(dtp_hash_i64(h, v->first), v->size, sizeof v->size[0] * (size_t)v->rank);
        h = dtp_hash_bytes(h, v->stride, sizeof v->stride[0] * (size_t)v->rank);
    }
    return h;
}

/* What of it people can tell apart. */
static void describe_job(const dtp_program *p, const dtp_session_options *o, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room,
                                   "model '%.60s' on %" PRId64 " ranks, %d instructions, "
                                   "seed %" PRIu64,
                                   p->graph->name,
                                   (int64_t)dtp_graph_stages(p->graph) * dtp_mesh_ranks(&p->mesh),
                                   p->n_instrs, o->seed);
    for (int32_t i = 0; i < o->n_feeds && used < room; i++) {
        used += (size_t)snprintf(out + used, room - used, ", feed %.60s=%.60s", o->feeds[i].input,
                                 o->feeds[i].file);
    }
    if (used < room) {
        (void)snprintf(out + used, room - used, "%s%.60s%s%.60s", o->load != NULL ? ", load " : "",
                       o->load != NULL ? o->load : "", o->save != NULL ? ", save " : "",
                       o->save != NULL ? o->save : "");
    }
}

/* ---- the lock of a checkpoint ---- */

static bool is_single(const char *path)
{
    static const char suffix[] = ".safetensors";
    const size_t n = strlen(path), k = sizeof suffix - 1;
    return n > k && strcmp(path + n - k, suffix) == 0;
}

/* Where the lock of a checkpoint lies; NULL: out of memory. Free it. */
static char *lock_name(const char *path)
{
    const size_t bytes = strlen(path) + 32;
    char *name = malloc(bytes);
    if (name != NULL) {
        (void)snprintf(name, bytes, "%s%s", path, is_single(path) ? ".lock" : "/checkpoint.lock");
    }
    return name;
}

/* Keeps other jobs from writing the checkpoint `path` until `unlock`; collective. The lock lies in
 * the folder, which is made, or beside the file. DTP_IO when another job holds it or the path
 * cannot be written to. */
static dtp_status lock(dtp_session *s, const char *path, dtp_err *err)
{
    char *name = lock_name(path);
    dtp_status status = DTP_OK;
    s->locked = strdup(path);
    if (name == NULL || s->locked == NULL) {
        status = DTP_FAIL(err, DTP_NOMEM, "%s: no memory", path);
    } else if (s->comm->rank == 0) {
        const bool single = is_single(path);
        s->made_folder = !single && mkdir(path, 0777) == 0;
        status = single || s->made_folder || errno == EEXIST
                     ? dtp_file_lock_take(name, &s->lock, err)
                     : DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
    }
    free(name);
    return dtp_comm_agree_status(s->comm, status, err);
}

/* Makes the folders above the last part of a path that are not there. */
static dtp_status make_folders(char *path, dtp_err *err)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        const dtp_status status =
            made ? DTP_OK : DTP_FAIL(err, DTP_IO, "%s: %s", path, strerror(errno));
        *slash = '/';
        DTP_TRY(status);
    }
    return DTP_OK;
}

/* A folder that was removed while the job ran is made again, and locked again; collective. */
static dtp_status lock_again(dtp_session *s, dtp_err *err)
{
    dtp_status status = DTP_OK;
    if (s->lock != NULL && !dtp_file_lock_holds(s->lock)) {
        char *name = lock_name(s->locked);
        dtp_file_lock_release(s->lock);
        s->lock = NULL;
        status = DTP_MEMORY(err, name);
        status = status == DTP_OK ? make_folders(name, err) : status;
        status = status == DTP_OK ? dtp_file_lock_take(name, &s->lock, err) : status;
        if (status == DTP_OK) {
            dtp_log(s->log ? &s->ctx : NULL, DTP_LOG_WARN, "checkpoint", "removed",
                    "lock=%s made=again", name);
        }
        free(name);
    }
    return dtp_comm_agree_status(s->comm, status, err);
}

/* A folder that was made and is empty goes, too. */
static void unlock(dtp_session *s)
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

/* ---- creation ---- */

static dtp_status upload(dtp_session *s, dtp_value_id v, dtp_err *err)
{
    const dtp_view *view = dtp_runner_view(s->runner, v);
    return s->backend->ops->upload(s->backend, view->data, s->host,
                                   (size_t)dtp_ttype_bytes(&view->local), err);
}

/* Every resident value of a chunk gets its initial contents. */
static dtp_status initialise_chunk(dtp_session *s, dtp_err *err)
{
    const dtp_program *p = s->program;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if (value->kind != DTP_VALUE_RESIDENT || dtp_runner_view(s->runner, v)->data == NULL) {
            continue;
        }
        dtp_shard shard = dtp_runner_shard(s->runner, v);
        DTP_TRY(dtp_init_fill(&p->graph->tensors[value->tensor], s->seed, &shard,
                              s->backend->threads, s->host, err));
        DTP_TRY(upload(s, v, err));
    }
    return DTP_OK;
}

static dtp_status initialise(dtp_session *s, dtp_err *err)
{
    for (int32_t k = 0; k < s->n_chunks; k++) {
        dtp_session__enter(s, k);
        DTP_TRY(initialise_chunk(s, err));
    }
    return DTP_OK;
}

dtp_status dtp_session__restart(dtp_session *s, dtp_err *err)
{
    s->step = 0;
    return initialise(s, err);
}

/* The element types of the framework's files are those of the parameters, unless files are read. */
static dtp_status take_stored(dtp_session *s, const dtp_session_options *o, dtp_err *err)
{
    s->stored = o->stored;
    const int32_t n = s->stored != NULL ? s->stored->n : 0;
    s->types = malloc(((size_t)n + 1) * sizeof *s->types);
    DTP_TRY(DTP_MEMORY(err, s->types));
    for (int32_t i = 0; i < n; i++) {
        s->types[i] = s->stored->views[i].type;
    }
    /* what a run that goes on began with */
    return s->resumed != NULL && o->load != NULL && n > 0
               ? dtp_checkpoint_types(o->load, s->stored, s->types, err)
               : DTP_OK;
}

/* The runner of chunk k of this rank, in the memory of the first one. */
static dtp_status open_chunk(dtp_session *s, int32_t k, const dtp_session_options *o, dtp_err *err)
{
    const dtp_program *first = s->program;
    const dtp_program *p =
        k > 0 ? first->chunks[s->pipeline.stage + k * s->pipeline.stages->n] : first;
    const dtp_runner_options runner = {.profile = o->profile,
                                       .no_graph = o->no_graph,
                                       .borrowed_memory = k > 0,
                                       .beside = k > 0 ? s->runners[0] : NULL};
    dtp_runner **made = &s->runners[k];
    DTP_TRY(dtp_runner_create(p, s->backend, s->pipeline.comm, &runner, made, err));
    if (runner.borrowed_memory) {
        dtp_runner_set_memory(*made, dtp_runner_memory(s->runners[0]));
    }
    /* What a reader of a tensor gets: the resident value, or a value that survives the step. */
    s->tensor_values[k] = malloc(((size_t)p->graph->n_tensors + 1) * sizeof *s->tensor_values[k]);
    DTP_TRY(DTP_MEMORY(err, s->tensor_values[k]));
    dtp_session__readable(p, s->tensor_values[k]);
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        if ((value->kind == DTP_VALUE_RESIDENT || value->kind == DTP_VALUE_INPUT) &&
            value->bytes > s->host_bytes) {
            s->host_bytes = value->bytes;
        }
    }
    return DTP_OK;
}

static dtp_status local_setup(dtp_session *s, const dtp_session_options *o, dtp_err *err)
{
    for (int32_t k = 0; k < s->n_chunks; k++) {
        DTP_TRY(open_chunk(s, k, o, err));
    }
    dtp_session__enter(s, 0);
    s->host = malloc(s->host_bytes > 0 ? (size_t)s->host_bytes : 1);
    DTP_TRY(DTP_MEMORY(err, s->host));
    DTP_TRY(take_stored(s, o, err));
    DTP_TRY(dtp_session__feed_open(s, err));
    DTP_TRY(
        dtp_feed_create(s->program->graph, o->n_feeds, o->feeds, s->seed, o->order, &s->feed, err));
    DTP_TRY(dtp_session__run_describe(s, err));
    return o->load == NULL && s->resumed == NULL ? initialise(s, err) : DTP_OK;
}

static dtp_checkpoint_job checkpoint_job(dtp_session *s)
{
    return (dtp_checkpoint_job){.n_runners = s->n_chunks,
                                .runners = s->runners,
                                .backend = s->backend,
                                .comm = s->comm,
                                .ctx = s->log ? &s->ctx : NULL,
                                .step = s->step,
                                .seed = s->seed,
                                .run = &s->run,
                                .stored = s->stored,
                                .types = s->types,
                                .keep = s->keep};
}

static dtp_status load(dtp_session *s, const char *path, bool checked, dtp_err *err)
{
    dtp_checkpoint_job job = checkpoint_job(s);
    job.checked = checked;
    job.run = checked ? &s->run : NULL; /* the run goes on */
    DTP_TRY(dtp_checkpoint_load(&job, path, err));
    s->step = job.step;
    return DTP_OK;
}

/* Looks for what the session goes on from, and takes its seed. */
static dtp_status find_resumed(dtp_session *s, const dtp_session_options *o,
                               dtp_checkpoint_found *found, dtp_err *err)
{
    if (o->save == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "resuming needs a path to save to");
    }
    DTP_TRY(dtp_checkpoint_find(s->comm, s->log ? &s->ctx : NULL, o->save, is_single(o->save),
                                found, err));
    if (found->path[0] == '\0') {
        return DTP_OK;
    }
    if (found->has_seed && found->seed != o->seed && !o->any_seed) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: the run has seed %" PRIu64 ", and cannot go on with seed %" PRIu64,
                        found->path, found->seed, o->seed);
    }
    s->seed = found->has_seed ? found->seed : o->seed;
    s->resumed = strdup(found->path);
    return DTP_MEMORY(err, s->resumed);
}

/* What the session goes on from, or loads. */
static dtp_status start_from(dtp_session *s, const dtp_session_options *o,
                             const dtp_checkpoint_found *found, dtp_err *err)
{
    DTP_TRY(dtp_comm_agree_status(s->comm, local_setup(s, o, err), err));
    DTP_TRY(dtp_feed_agree(s->feed, s->comm, err));
    if (s->resumed != NULL) {
        DTP_TRY(dtp_comm_agree_status(
            s->comm, dtp_session__run_compare(s, s->resumed, &found->run, err), err));
    }
    for (int32_t k = 0; k < s->n_chunks; k++) {
        DTP_TRY(dtp_runner_prepare(s->runners[k], err));
    }
    if (s->pipeline.stages == NULL) {
        dtp_session__origin_open(s);
    }
    const char *from = s->resumed != NULL ? s->resumed : o->load;
    if (from == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_comm_agree_status(s->comm, initialise(s, err), err));
    return load(s, from, s->resumed != NULL, err);
}

static dtp_status setup(dtp_session *s, const dtp_session_options *o, dtp_err *err)
{
    char words[400];
    dtp_checkpoint_found found = {0};
    describe_job(s->program, o, words, sizeof words);
    DTP_TRY(dtp_comm_agree_words(s->comm, hash_job(s->program, o),
                                 "model, plan, program and options", words, err));
    const uint64_t stored = hash_stored(o->stored);
    (void)snprintf(words, sizeof words, "%d parameters, checksum %08" PRIx32,
                   o->stored != NULL ? o->stored->n : 0, dtp_hash_fold(stored));
    DTP_TRY(dtp_comm_agree_words(s->comm, stored, "the names file", words, err));
    if (o->save != NULL) {
        DTP_TRY(lock(s, o->save, err));
    }
    dtp_status status = o->resume ? find_resumed(s, o, &found, err) : DTP_OK;
    status = status == DTP_OK ? start_from(s, o, &found, err) : status;
    dtp_run_texts_free(&found.run);
    return status;
}

dtp_status dtp_session_create(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                              const dtp_session_options *options, dtp_session **out, dtp_err *err)
{
    dtp_err local = {0};
    dtp_session_options known;
    err = err != NULL ? err : &local;
    DTP_TRY(DTP_NOT_NULL(err, p, backend, comm, out));
    DTP_TRY(dtp_options_read(__func__, options, sizeof known, &known, err));
    dtp_session *s = calloc(1, sizeof *s);
    DTP_TRY(DTP_MEMORY(err, s));
    s->program = p;
    s->n_chunks = 1;
    s->origin.first_update = -1;
    s->backend = backend;
    s->comm = comm;
    s->seed = known.seed;
    s->allow_nan = known.allow_nan;
    s->keep = known.keep;
    s->log = known.ctx != NULL;
    s->ctx = s->log ? *known.ctx : dtp_ctx_default();
    dtp_backend_say(backend, known.ctx);
    dtp_status status = dtp_session__stages_open(s, p, err);
    status = status == DTP_OK ? setup(s, &known, err) : status;
    if (status != DTP_OK) {
        dtp_session_destroy(s);
        return status;
    }
    s->first_fed = known.order != DTP_FEED_SHUFFLED ? s->step : 0; /* of the checkpoint */
    *out = s;
    return DTP_OK;
}

void dtp_session_destroy(dtp_session *s)
{
    if (s != NULL) {
        dtp_session__origin_close(s);
        for (int32_t k = s->n_chunks - 1; k >= 0; k--) { /* the first has the memory of all */
            dtp_runner_destroy(s->runners[k]);           /* nothing is on the queue afterwards */
        }
        dtp_session__feed_close(s);
        dtp_feed_destroy(s->feed);
        unlock(s);
        free(s->resumed);
        dtp_run_texts_free(&s->run);
        for (int32_t k = 0; k < s->n_chunks; k++) {
            free(s->tensor_values[k]);
        }
        free(s->types);
        free(s->host);
        dtp_session__stages_close(s);
        free(s);
    }
}

/* ---- steps ---- */

/* The learning rate of the optimizer, before its schedule; NaN: nothing is trained. */
static double rate_of(const dtp_graph *g)
{
    const dtp_optimizer_spec *o = &g->training.optimizer;
    for (int32_t i = 0; g->n_grads > 0 && o->op != NULL && i < dtp_optimizer_hypers(o->op); i++) {
        if (strcmp(o->op->attrs[i].key, "lr") == 0) {
            return o->hyper[i];
        }
    }
    return (double)NAN;
}

static dtp_value_id value_of(const dtp_session *s, dtp_tensor_id t)
{
    return t >= 0 ? s->tensor_value[t] : -1;
}

static dtp_status start(dtp_session *s, dtp_session__started *started, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    const double scale = dtp_schedule_at(&g->training.schedule, s->step);
    const bool stages = s->pipeline.stages != NULL;
    *started = (dtp_session__started){.step = s->step, .rate = rate_of(g) * scale};
    for (int32_t k = 0; k < s->n_chunks; k++) {
        dtp_runner_record(s->runners[k])->lr_scale = scale;
    }
    DTP_TRY(stages ? dtp_session__stage_step(s, &started->feed_s, err) : DTP_OK);
    for (int32_t j = 0; !stages && j < dtp_program_microbatches(s->program); j++) {
        const double before = dtp_now_s();
        DTP_TRY(dtp_session__feed(s, j, err));
        started->feed_s += dtp_now_s() - before;
        DTP_TRY(dtp_runner_microbatch(s->runner, s->seed, s->step, j, err));
    }
    for (int32_t k = 0; k < s->n_chunks; k++) {
        dtp_session__enter(s, k);
        const dtp_value_id read[DTP_RUNNER_READS] = {value_of(s, g->loss), value_of(s, g->norm)};
        DTP_TRY(dtp_runner_end(s->runner, read, err));
    }
    return DTP_OK;
}

dtp_status dtp_session_start_step(dtp_session *s, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    DTP_TRY(DTP_NOT_NULL(err, s));
    if (s->n_started - s->n_finished == dtp_session_ahead(s)) {
        return DTP_FAIL(err, DTP_INVALID, "step %" PRId64 ": %d started steps are not finished",
                        s->step, dtp_session_ahead(s));
    }
    const dtp_status status = start(s, &s->started[s->n_started % 2], err);
    if (status != DTP_OK) {
        dtp_session__abandon(s, err->msg);
        return status;
    }
    s->n_started++;
    s->step++;
    return DTP_OK;
}

/* The step's result on every rank, and this rank's part of the loss: all of it when it is not
 * partial. */
static dtp_status finish(dtp_session *s, dtp_step_result *out, double *own, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    const dtp_session__started *started = &s->started[s->n_finished % 2];
    double loss, norm;
    *out = (dtp_step_result){.step = started->step,
                             .feed_s = started->feed_s,
                             .rate = started->rate,
                             .grad_norm = (double)NAN,
                             .has_loss = g->loss >= 0 && dtp_session_can_fetch(s, g->loss)};
    DTP_TRY(dtp_session__finish_chunks(s, &out->times, &loss, &norm, err));
    if (g->norm >= 0 && dtp_session_can_fetch(s, g->norm)) {
        out->grad_norm = norm;
        DTP_TRY(dtp_session__share(s, g->norm, &out->grad_norm, err));
    }
    if (!out->has_loss) {
        return DTP_OK;
    }
    out->loss = *own = loss;
    const dtp_collection collection = dtp_session__collection(s, g->loss);
    dtp_status status = dtp_collect_reduce(&collection, DTP_F64, 1, &out->loss, err);
    status = status == DTP_OK ? dtp_session__share(s, g->loss, &out->loss, err) : status;
    return dtp_err_prefixed(status, err, "rank %d: step %" PRId64 ": loss", s->comm->rank,
                            out->step);
}

dtp_status dtp_session_finish_step(dtp_session *s, dtp_step_result *out, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    double own = 0;
    DTP_TRY(DTP_NOT_NULL(err, s, out));
    if (s->n_started == s->n_finished) {
        return DTP_FAIL(err, DTP_INVALID, "no step is started");
    }
    const dtp_status status = finish(s, out, &own, err);
    if (status != DTP_OK) {
        dtp_session__abandon(s, err->msg);
        return status;
    }
    s->n_finished++;
    return s->allow_nan ? DTP_OK : dtp_session__check_loss(s, out, own, err);
}

dtp_status dtp_session_step(dtp_session *s, dtp_step_result *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, s, out));
    if (s->n_started != s->n_finished) {
        return DTP_FAIL(err, DTP_INVALID, "step %" PRId64 ": a started step is not finished",
                        s->step);
    }
    DTP_TRY(dtp_session_start_step(s, err));
    return dtp_session_finish_step(s, out, err);
}

int32_t dtp_session_ahead(const dtp_session *s)
{
    return dtp_runner_ahead(s->runner);
}

int64_t dtp_session_next_step(const dtp_session *s)
{
    return s->step;
}

const char *dtp_session_resumed(const dtp_session *s)
{
    return s->resumed;
}

dtp_runner *dtp_session_runner(const dtp_session *s)
{
    return s->runners[0];
}

void dtp_session_peak(const dtp_session *s, int64_t *allocated, int64_t *touched)
{
    *allocated = s->backend->peak_allocated_bytes;
    *touched = 0;
    for (int32_t k = 0; k < s->n_chunks; k++) {
        const int64_t own = dtp_runner_touched_bytes(s->runners[k]);
        *touched = own > *touched ? own : *touched;
    }
}

dtp_status dtp_session_peaks(dtp_session *s, int64_t *out, dtp_err *err)
{
    int64_t mine = s->backend->peak_allocated_bytes;
    dtp_coll coll = {
        .kind = DTP_ALL_GATHER, .set = dtp_comm_all(s->comm), .dtype = DTP_I64, .count = 1};
    return s->comm->ops->run(s->comm, &coll, &mine, out, err);
}

dtp_status dtp_session_numbers(dtp_session *s, int32_t n, const double *mine, double *out,
                               dtp_err *err)
{
    const dtp_coll coll = {
        .kind = DTP_ALL_GATHER, .set = dtp_comm_all(s->comm), .dtype = DTP_F64, .count = n};
    return s->comm->ops->run(s->comm, &coll, mine, out, err);
}

/* ---- saving ---- */

/* The writer of one file for all parameters and states. */
static dtp_status open_single(dtp_session *s, const char *path, dtp_st_writer **w, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    dtp_st_entry *entries = calloc((size_t)g->n_tensors + 1, sizeof *entries);
    int32_t n = 0;
    DTP_TRY(DTP_MEMORY(err, entries));
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
    char step[24], seed[24];
    (void)snprintf(step, sizeof step, "%" PRId64, s->step);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, s->seed);
    dtp_st_meta meta[DTP_N_RUN_TEXTS + 5] = {{"format", DTP_ST_FORMAT},
                                             {"step", step},
                                             {"seed", seed},
                                             {DTP_ST_CRC, ""},
                                             {DTP_ST_HEADER_CRC, ""}};
    int32_t n_meta = 5;
    for (int i = 0; i < DTP_N_RUN_TEXTS; i++) {
        if (s->run.text[i] != NULL) {
            meta[n_meta++] = (dtp_st_meta){dtp_run_text_key((dtp_run_text)i), s->run.text[i]};
        }
    }
    dtp_status status = dtp_st_create(path, n, entries, n_meta, meta, w, err);
    free(entries);
    return status;
}

/* Rank 0 gathers and writes one tensor after the other. All ranks share a failure of writing. */
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
        void *whole = NULL;
        dtp_status status = dtp_session__gather_new(s, t, &whole, err);
        if (status == DTP_OK) {
            const int64_t bytes = dtp_ttype_bytes(&g->tensors[t].type);
            status = writes ? dtp_st_put(w, whole, bytes, err) : DTP_OK;
            status = dtp_comm_agree_status(s->comm, status, err);
        }
        free(whole);
        if (status != DTP_OK) {
            dtp_st_discard(w);
            return status;
        }
    }
    return dtp_comm_agree_status(s->comm, writes ? dtp_st_commit(w, NULL, NULL, err) : DTP_OK, err);
}

dtp_status dtp_session_save(dtp_session *s, const char *path, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    DTP_TRY(DTP_NOT_NULL(err, s, path));
    dtp_status status = dtp_session_check(s, err);
    DTP_TRY(dtp_err_prefixed(status, err, "%s: not saved", path));
    const bool reserved = s->locked != NULL;
    if (reserved && strcmp(s->locked, path) != 0) {
        return DTP_FAIL(err, DTP_INVALID, "%s: the session was made to save to '%s'", path,
                        s->locked);
    }
    status = reserved ? lock_again(s, err) : lock(s, path, err);
    if (status == DTP_OK) {
        const dtp_checkpoint_job job = checkpoint_job(s);
        status = is_single(path) ? save_single(s, path, err) : dtp_checkpoint_save(&job, path, err);
    }
    if (!reserved) {
        unlock(s);
    }
    return status;
}

dtp_status dtp_session_load(dtp_session *s, const char *path, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, s, path));
    return load(s, path, false, err);
}
