/* Running a bound program (runner_bind.c): its steps, and what is known of them. */
#include "executor/run/runner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "executor/comm/communicator.h"
#include "executor/run/runner_bind.h"
#include "executor/run/runner_names.h"
#include "executor/run/runner_queue.h"
#include "spmd/program/stage_table.h"

dtp_status dtp_runner_create(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                             const dtp_runner_options *options, dtp_runner **out, dtp_err *err)
{
    const dtp_runner_options none = {0};
    options = options != NULL ? options : &none;
    int32_t ranks = dtp_mesh_ranks(&p->mesh);
    bool same = ranks == comm->size && (ranks == 1 || p->mesh.n_dims == comm->mesh.n_dims);
    for (int32_t m = 0; same && ranks > 1 && m < p->mesh.n_dims; m++) {
        same = p->mesh.sizes[m] == comm->mesh.sizes[m];
    }
    if (!same) {
        char want[DTP_MESH_TEXT_BYTES], have[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&p->mesh, want);
        dtp_mesh_print(&comm->mesh, have);
        return DTP_FAIL(err, DTP_INVALID,
                        "the program is for the mesh '%.200s', the ranks form '%.200s'", want,
                        have);
    }
    const dtp_transport *over = &comm->transport;
    DTP_TRY(dtp_target_runs_on(p->target, backend->ops->name, err));
    DTP_TRY(dtp_target_runs_over(p->target, over->ops->name, over->caps.strided,
                                 over->caps.deterministic, err));
    dtp_arena *arena = dtp_arena_create();
    dtp_runner *r = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *r) : NULL;
    if (r == NULL) {
        dtp_arena_destroy(arena);
        return DTP_FAIL(err, DTP_NOMEM, "no memory to bind the program");
    }
    r->arena = arena;
    r->program = p;
    r->backend = backend;
    r->comm = comm;
    r->beside = r;
    if (options->beside != NULL) {
        r->beside = options->beside->beside;
        options->beside->beside = r;
    }
    r->borrowed = options->borrowed_memory;
    r->failure = options->failure;
    r->graphs = !options->no_graph && !options->profile;
    const dtp_stages *stages = p->graph != NULL ? p->graph->stages : NULL;
    r->n_sections = stages != NULL ? DTP_SECTION_UPDATE + stages->n_parts : 1;
    dtp_status status = DTP_OK;
    if (backend->ops->queue == NULL) {
        status = DTP_NEW(arena, r->flights[0].raw, DTP_RUNNER_RAW, err);
    }
    status = status == DTP_OK ? dtp_runner__bind_all(r, options->profile, err) : status;
    if (status != DTP_OK) {
        dtp_runner_destroy(r);
        return status;
    }
    *out = r;
    return DTP_OK;
}

void dtp_runner_destroy(dtp_runner *r)
{
    if (r != NULL) {
        dtp_runner__close_queue(r);
        dtp_runner *before = r;
        while (before->beside != r) {
            before = before->beside;
        }
        before->beside = r->beside;
        dtp_step_state_free(&r->state);
        if (r->memory != NULL && !r->borrowed) {
            dtp_transport_free(&r->comm->transport, r->backend, r->memory, (size_t)r->memory_bytes);
        }
        dtp_arena_destroy(r->arena);
    }
}

void dtp_runner_bind(dtp_runner *r, dtp_value_id root, void *data)
{
    dtp_runner__place(r, root, data);
}

void dtp_runner_set_memory(dtp_runner *r, void *memory)
{
    r->memory = memory;
    dtp_runner__place(r, r->program->n_values, memory);
}

void *dtp_runner_memory(const dtp_runner *r)
{
    return r->memory;
}

dtp_status dtp_runner_prepare(dtp_runner *r, dtp_err *err)
{
    dtp_transport *t = &r->comm->transport;
    for (int32_t i = 0; i < r->n_stats; i++) {
        DTP_TRY(t->ops->prepare(t, r->stats[i].set, err));
    }
    return DTP_OK;
}

/* ---- running ---- */

/* A view of n elements of a type, without shape: for copies and zero fill of any tensor. */
static dtp_view flat(const dtp_view *like, int64_t n)
{
    dtp_view v = {.data = like->data};
    v.local = (dtp_ttype){.dtype = like->local.dtype, .rank = 1, .dims = {{-1, n}}};
    v.global[0] = n;
    return v;
}

/* Copies a tensor, or makes zeros: packing one part from an empty source is all padding. */
static dtp_status copy_or_zero(dtp_backend *backend, const dtp_view *in, const dtp_view *out,
                               bool copy, dtp_err *err)
{
    if (copy && in->data == out->data) {
        return DTP_OK;
    }
    int64_t n = dtp_ttype_elems(&out->local);
    dtp_view from = flat(in, copy ? n : 0), part = flat(out, n);
    return backend->ops->pack(backend, &from, 0, 1, &part.local, out->data, err);
}

/* The range of a dim: what the piece has of it, and what others have sent. */
static dtp_status range_in(dtp_runner *r, const dtp_copy *m, dtp_runner__bound *b, dtp_err *err)
{
    const dtp_backend_ops *ops = r->backend->ops;
    DTP_TRY(ops->slice(r->backend, b->in, m->axis, b->start, b->out, err));
    for (int32_t i = 1; i < b->n_in; i++) {
        dtp_view margin = {.local = b->out->local, .data = b->in[i].data};
        margin.local.dims[m->axis].size = b->margin[i - 1].size;
        DTP_TRY(ops->slice(r->backend, &margin, m->axis, b->margin[i - 1].start, b->out, err));
    }
    return DTP_OK;
}

static dtp_status run_copy(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b,
                           dtp_err *err)
{
    const dtp_backend_ops *ops = r->backend->ops;
    const dtp_copy *m = &instr->move;
    switch (m->kind) {
    case DTP_COPY_PACK:
        return ops->pack(r->backend, b->in, m->axis, b->parts, &b->part, b->out->data, err);
    case DTP_COPY_UNPACK:
        return ops->unpack(r->backend, b->in->data, m->axis, b->parts, &b->part, b->out, err);
    case DTP_COPY_SLICE:
        return ops->slice(r->backend, b->in, m->axis, b->start, b->out, err);
    case DTP_COPY_SCALE:
        return ops->scale(r->backend, b->in, m->factor, b->out, err);
    case DTP_COPY_RANGE_OUT:
        return ops->slice(r->backend, b->in, m->axis, b->start,
                          &(dtp_view){.local = b->part, .data = b->out->data}, err);
    case DTP_COPY_RANGE_IN:
        return range_in(r, m, b, err);
    case DTP_COPY_KEEP_FIRST:
        return copy_or_zero(r->backend, b->in, b->out, b->index == 0, err);
    default:
        return copy_or_zero(r->backend, b->in, b->out, true, err);
    }
}

/* A failure of a kernel in `at`. It ends the step, or is noted if the caller wishes so. */
static dtp_status note(dtp_runner *r, int64_t step, int32_t i, dtp_status status, dtp_err *at)
{
    if (status != DTP_OK && at != NULL) {
        if (at->code != status) {
            (void)DTP_FAIL(at, status, "%s", dtp_status_text(status));
        }
        dtp_runner__name_instr(r, step, i, at);
    }
    return r->failure == NULL ? status : DTP_OK;
}

/* Where the next failure of a kernel is noted; NULL: there was one. */
static dtp_err *noted_in(const dtp_runner *r, dtp_err *err)
{
    return r->failure == NULL ? err : r->failure->code == DTP_OK ? r->failure : NULL;
}

static dtp_status run_instr(dtp_runner *r, int32_t i, dtp_err *err)
{
    const dtp_instr *instr = &r->program->instrs[i];
    dtp_runner__bound *b = &r->instrs[i];
    dtp_transport *t = &r->comm->transport;
    switch (instr->kind) {
    case DTP_INSTR_START:
        for (int32_t k = 0; k < instr->n_in; k++) {
            b->ends[k] = (dtp_coll_ends){b->in[k].data, b->out[k].data};
        }
        return t->ops->start(t, &instr->coll, b->ends, &b->request, err);
    case DTP_INSTR_WAIT:
        return t->ops->wait(t, &r->instrs[instr->pair].request, err);
    default:
        return run_copy(r, instr, b, err);
    }
}

/* Kernels that are joined run as one launch on a queue, unless someone watches what each does. */
static bool joins(const dtp_runner *r, int32_t i)
{
    return i < r->program->n_instrs && r->program->instrs[i].joined && r->watch.event == NULL;
}

static dtp_status run_kernel(dtp_runner *r, int32_t i, dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    const bool before = queue != NULL && joins(r, i), after = queue != NULL && joins(r, i + 1);
    if (!before && after) {
        queue->join_begin(r->backend);
    }
    DTP_TRY(dtp_bound_kernel_run(&r->instrs[i].kernel, err));
    return before && !after ? queue->join_end(r->backend, err) : DTP_OK;
}

/* An instruction, with what is noted of it. */
static dtp_status run_one(dtp_runner *r, dtp_runner__flight *f, int32_t i, dtp_err *err)
{
    const bool queue = r->backend->ops->queue != NULL;
    const bool by_host = !queue || !r->comm->transport.caps.queued; /* collectives are timed */
    const dtp_instr_kind kind = r->program->instrs[i].kind;
    const bool collective = kind == DTP_INSTR_START || kind == DTP_INSTR_WAIT;
    if (r->watch.event != NULL) {
        r->watch.event(r->watch.user, r, i, false);
    }
    if (queue && collective && by_host) {
        DTP_TRY(r->backend->ops->sync(r->backend, err));
    }
    DTP_TRY(queue ? dtp_runner__mark(r, f, i, err) : DTP_OK);
    const bool timed = by_host && (collective || (r->profile != NULL && !queue));
    const double before = timed ? dtp_now_s() : 0;
    if (kind == DTP_INSTR_KERNEL) {
        dtp_err *at = noted_in(r, err);
        DTP_TRY(note(r, f->step, i, run_kernel(r, i, at), at));
    } else {
        const dtp_status run = run_instr(r, i, err);
        if (run != DTP_OK) {
            dtp_runner__name_instr(r, f->step, i, err);
            return run;
        }
    }
    if (r->watch.event != NULL) {
        r->watch.event(r->watch.user, r, i, true);
    }
    if (timed) {
        const double s = dtp_now_s() - before;
        f->times.comm_s += collective ? s : 0;
        if (r->profile != NULL && !queue) {
            dtp_runner__note_time(r, r->state.record.microbatch, i, before - f->zero_s, s);
        }
    }
    return DTP_OK;
}

/* Instructions [from, n) of a microbatch, one by one. Those that run once run in the first one. */
static dtp_status run_instrs(dtp_runner *r, dtp_runner__flight *f, int32_t from, int32_t n,
                             dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    for (int32_t i = from; i < n; i++) {
        if (!dtp_instr_runs_in(r->program, &r->program->instrs[i], r->state.record.microbatch)) {
            DTP_TRY(queue != NULL ? dtp_runner__mark(r, f, i, err) : DTP_OK);
            continue;
        }
        if (queue != NULL) {
            queue->range_begin(r->backend, r->instrs[i].range);
        }
        const dtp_status status = run_one(r, f, i, err);
        if (queue != NULL) {
            queue->range_end(r->backend);
        }
        DTP_TRY(status);
        DTP_TRY(queue != NULL ? dtp_runner__pace(r, f->step, err) : DTP_OK);
    }
    return queue != NULL ? dtp_runner__mark(r, f, n, err) : DTP_OK;
}

/* The same on a queue, as a graph where that can be. */
static dtp_status put_instrs(dtp_runner *r, dtp_runner__flight *f, int32_t from, int32_t n,
                             dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    dtp_runner__part *part = dtp_runner__part_at(r);
    const dtp_transport_caps caps = r->comm->transport.caps;
    if (!r->graphs || !part->ran || r->watch.event != NULL || from == n ||
        (r->n_stats > 0 && !(caps.queued && caps.captured))) {
        part->ran = true;
        return run_instrs(r, f, from, n, err);
    }
    f->marked = false;
    if (part->recording == NULL) {
        DTP_TRY(queue->recording_begin(r->backend, err));
        r->recording = true;
        const dtp_status status = run_instrs(r, f, from, n, err);
        r->recording = false;
        if (status != DTP_OK) {
            (void)queue->recording_end(r->backend, NULL, NULL);
            return status;
        }
        DTP_TRY(queue->recording_end(r->backend, &part->recording, err));
    }
    DTP_TRY(queue->recording_put(r->backend, part->recording, err));
    return dtp_runner__pace(r, f->step, err);
}

/* The step that is being started. */
static dtp_runner__flight *next_flight(dtp_runner *r)
{
    return &r->flights[r->n_ended % dtp_runner_ahead(r)];
}

/* Instructions [from, to) of a microbatch. `first`: of the step. */
static dtp_status run_part(dtp_runner *r, int64_t step, int32_t from, int32_t to, bool first,
                           dtp_err *err)
{
    const dtp_queue_ops *queue = r->backend->ops->queue;
    dtp_runner__flight *f = next_flight(r);
    if (r->n_ended - r->n_finished >= dtp_runner_ahead(r)) {
        return DTP_FAIL(err, DTP_INVALID, "step %" PRId64 ": %d steps are not finished", step,
                        dtp_runner_ahead(r));
    }
    const double start = dtp_now_s();
    if (first) {
        f->step = step;
        f->times = (dtp_runner_times){0};
        f->marked = true;
        DTP_TRY(queue != NULL ? queue->event_put(r->backend, DTP_QUEUE_COMPUTE, f->begin, err)
                              : DTP_OK);
    }
    f->zero_s = start - f->times.total_s;
    r->state.record.step = step;
    DTP_TRY(dtp_step_state_put(&r->state, err));
    if (queue == NULL) {
        DTP_TRY(run_instrs(r, f, from, to, err));
    } else {
        char range[96];
        (void)snprintf(range, sizeof range, "step %" PRId64 ", microbatch %d%s%s", step,
                       r->state.record.microbatch, r->n_sections > 1 ? ", " : "",
                       r->n_sections > 1 ? dtp_section_name(r->section).text : "");
        queue->range_begin(r->backend, range);
        const dtp_status status = put_instrs(r, f, from, to, err);
        queue->range_end(r->backend);
        DTP_TRY(status);
    }
    f->times.total_s += dtp_now_s() - start;
    return DTP_OK;
}

dtp_status dtp_runner_microbatch(dtp_runner *r, uint64_t seed, int64_t step, int32_t microbatch,
                                 dtp_err *err)
{
    const dtp_program *p = r->program;
    const bool last = microbatch + 1 == dtp_program_microbatches(p);
    dtp_runner__shift(r, microbatch);
    r->state.record.seed = seed;
    return run_part(r, step, 0, last ? p->n_instrs : dtp_program_body(p), microbatch == 0, err);
}

void dtp_runner_set_slot(dtp_runner *r, int32_t slot)
{
    const dtp_program *p = r->program;
    r->slot = slot;
    dtp_runner__place(r, p->n_values + 1, r->memory + p->slots_at + slot * p->slot_bytes);
}

dtp_status dtp_runner_section(dtp_runner *r, uint64_t seed, int64_t step, int32_t microbatch,
                              int32_t section, bool first, dtp_err *err)
{
    const dtp_program *p = r->program;
    const int32_t from = dtp_section_begin(p, p->instrs, p->n_instrs, section);
    const int32_t to = dtp_section_begin(p, p->instrs, p->n_instrs, section + 1);
    dtp_runner__shift(r, microbatch);
    r->section = section;
    r->state.record.seed = seed;
    return run_part(r, step, from, to, first, err);
}

/* Puts the first element of value `read` at `to`. */
static dtp_status read_element(dtp_runner *r, dtp_value_id read, char *to, dtp_err *err)
{
    dtp_backend *b = r->backend;
    const dtp_queue_ops *queue = b->ops->queue;
    const size_t bytes = (size_t)dtp_dtype_bytes(r->program->values[read].type.dtype);
    const void *from = r->views[read].data;
    return queue == NULL ? b->ops->download(b, to, from, bytes, err)
                         : queue->copy(b, DTP_QUEUE_COMPUTE, to, from, bytes, err);
}

dtp_status dtp_runner_end(dtp_runner *r, const dtp_value_id *read, dtp_err *err)
{
    dtp_backend *b = r->backend;
    const dtp_queue_ops *queue = b->ops->queue;
    dtp_runner__flight *f = next_flight(r);
    for (int32_t i = 0; i < DTP_RUNNER_READS && read != NULL; i++) {
        DTP_TRY(read[i] >= 0 ? read_element(r, read[i], f->raw + (size_t)i * 8, err) : DTP_OK);
    }
    if (queue != NULL) {
        const size_t n = (size_t)r->state.used_words * sizeof *r->state.words;
        char *words = f->raw + DTP_RUNNER_RAW;
        DTP_TRY(queue->copy(b, DTP_QUEUE_COMPUTE, words, r->state.words, n, err));
        DTP_TRY(queue->copy(b, DTP_QUEUE_COMPUTE, r->state.words, words + n, n, err));
        DTP_TRY(queue->event_put(b, DTP_QUEUE_COMPUTE, f->end, err));
    }
    r->n_ended++;
    return DTP_OK;
}

/* What the kernels of a step on a queue noted in their error words. */
static dtp_status judge(dtp_runner *r, const dtp_runner__flight *f, dtp_err *err)
{
    for (int32_t i = 0; i < r->program->n_instrs; i++) {
        dtp_bound_kernel *k = &r->instrs[i].kernel;
        if (r->program->instrs[i].kind != DTP_INSTR_KERNEL || k->args.error == &k->error) {
            continue;
        }
        dtp_error_word found;
        memcpy(&found,
               f->raw + DTP_RUNNER_RAW + (size_t)(k->args.error - r->state.words) * sizeof found,
               sizeof found);
        if (found.code != DTP_DATA_OK) {
            dtp_err *at = noted_in(r, err);
            DTP_TRY(note(r, f->step, i, dtp_bound_kernel_judge(k, &found, at), at));
        }
    }
    return DTP_OK;
}

dtp_status dtp_runner_finish(dtp_runner *r, dtp_runner_times *times, void *raw, dtp_err *err)
{
    dtp_runner__flight *f = &r->flights[r->n_finished % dtp_runner_ahead(r)];
    if (r->n_finished == r->n_ended) {
        return DTP_FAIL(err, DTP_INVALID, "there is no step to finish");
    }
    if (r->backend->ops->queue != NULL) {
        DTP_TRY(dtp_runner__await(r, f, err));
    }
    f->times.compute_s = f->times.total_s - f->times.comm_s;
    *times = f->times;
    if (raw != NULL) {
        memcpy(raw, f->raw, DTP_RUNNER_RAW);
    }
    r->n_finished++;
    return r->backend->ops->queue != NULL ? judge(r, f, err) : DTP_OK;
}

dtp_status dtp_runner_step(dtp_runner *r, uint64_t seed, int64_t step, dtp_runner_times *times,
                           dtp_err *err)
{
    *times = (dtp_runner_times){0};
    for (int32_t j = 0; j < dtp_program_microbatches(r->program); j++) {
        DTP_TRY(dtp_runner_microbatch(r, seed, step, j, err));
    }
    DTP_TRY(dtp_runner_end(r, NULL, err));
    return dtp_runner_finish(r, times, NULL, err);
}

void dtp_runner_give_up(dtp_runner *r, const char *why)
{
    dtp_runner__forget_all(r);
    dtp_comm_abort(r->comm, why);
}

int32_t dtp_runner_ahead(const dtp_runner *r)
{
    return r->backend->ops->queue != NULL ? DTP_RUNNER_AHEAD : 1;
}

/* ---- what is known ---- */

void dtp_runner_set_watch(dtp_runner *r, dtp_runner_watch watch)
{
    r->watch = watch;
}

dtp_step_record *dtp_runner_record(dtp_runner *r)
{
    return &r->state.record;
}

const dtp_view *dtp_runner_view(const dtp_runner *r, dtp_value_id v)
{
    return &r->views[v];
}

dtp_shard dtp_runner_shard(const dtp_runner *r, dtp_value_id v)
{
    const dtp_value *value = &r->program->values[v];
    return dtp_shard_of(&value->type, &value->layout, &r->program->mesh, r->comm->rank);
}

int64_t dtp_runner_touched_bytes(const dtp_runner *r)
{
    return r->touched_bytes;
}

int32_t dtp_runner_coll_stats(const dtp_runner *r, const dtp_coll_stat **out)
{
    *out = r->stats;
    return r->n_stats;
}

const double *dtp_runner_profile(const dtp_runner *r)
{
    return r->profile;
}

int64_t dtp_runner_spans(const dtp_runner *r, const dtp_span **out)
{
    *out = r->spans;
    return r->n_spans;
}

const char *dtp_runner_why_apart(const dtp_runner *r, int32_t instr)
{
    return r->program->instrs[instr].kind == DTP_INSTR_KERNEL
               ? dtp_bound_kernel_why_apart(&r->instrs[instr].kernel)
               : NULL;
}

const dtp_program *dtp_runner_program(const dtp_runner *r)
{
    return r->program;
}
