#include "executor/run/runner_internal.h"

#include <inttypes.h>

#include "core/base/clock.h"
#include "executor/comm/communicator.h"

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
    r->borrowed = options->borrowed_memory;
    r->failure = options->failure;
    r->record = dtp_step_record_init(0, 0);
    dtp_status status = dtp_runner__bind_all(r, options->profile, err);
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
        if (r->memory != NULL && !r->borrowed) {
            dtp_transport_free(&r->comm->transport, r->backend, r->memory, (size_t)r->memory_bytes);
        }
        dtp_arena_destroy(r->arena);
    }
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
    case DTP_COPY_KEEP_FIRST:
        return copy_or_zero(r->backend, b->in, b->out, b->index == 0, err);
    default:
        return copy_or_zero(r->backend, b->in, b->out, true, err);
    }
}

/* "rank 1: step 0: instruction 12 (exp, node 'h'): ..." */
static void name_instr(const dtp_runner *r, const dtp_runner__bound *b, dtp_err *err)
{
    const int32_t i = (int32_t)(b - r->instrs);
    const dtp_instr *instr = &r->program->instrs[i];
    dtp_err_prefix(err, "rank %d: step %" PRId64 ": instruction %d (%s, node '%s')", r->comm->rank,
                   r->record.step, i, dtp_instr_name(instr),
                   dtp_runner__node_name(r->program, instr));
}

/* Runs a kernel, or checks one that has run for errors in its data. A failure is noted, if the
 * caller wishes so, and the step goes on. */
static dtp_status call_kernel(dtp_runner *r, dtp_runner__bound *b,
                              dtp_status (*call)(dtp_bound_kernel *, dtp_err *), dtp_err *err)
{
    if (r->failure == NULL) {
        return call(&b->kernel, err);
    }
    const bool first = r->failure->code == DTP_OK;
    const dtp_status status = call(&b->kernel, first ? r->failure : NULL);
    if (status != DTP_OK && first) {
        if (r->failure->code != status) {
            (void)DTP_FAIL(r->failure, status, "%s", dtp_status_text(status));
        }
        name_instr(r, b, r->failure);
    }
    return DTP_OK;
}

/* Waits for queued kernels, if the backend has a queue, and checks those from instruction *checked
 * up to `end` for errors in their data. */
static dtp_status sync_kernels(dtp_runner *r, int32_t *checked, int32_t end, dtp_err *err)
{
    if (r->backend->ops->sync == NULL) {
        return DTP_OK;
    }
    DTP_TRY(r->backend->ops->sync(r->backend, err));
    for (; *checked < end; ++*checked) {
        dtp_runner__bound *b = &r->instrs[*checked];
        if (r->program->instrs[*checked].kind == DTP_INSTR_KERNEL) {
            const dtp_status status = call_kernel(r, b, dtp_bound_kernel_check, err);
            if (status != DTP_OK) {
                name_instr(r, b, err);
                return status;
            }
        }
    }
    return DTP_OK;
}

static dtp_status run_instr(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b,
                            dtp_err *err)
{
    dtp_transport *t = &r->comm->transport;
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        return call_kernel(r, b, dtp_bound_kernel_run, err);
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

dtp_status dtp_runner_step(dtp_runner *r, uint64_t seed, int64_t step, dtp_runner_times *times,
                           dtp_err *err)
{
    *times = (dtp_runner_times){0};
    for (int32_t j = 0; j < dtp_program_microbatches(r->program); j++) {
        DTP_TRY(dtp_runner_microbatch(r, seed, step, j, times, err));
    }
    return DTP_OK;
}

dtp_status dtp_runner_microbatch(dtp_runner *r, uint64_t seed, int64_t step, int32_t microbatch,
                                 dtp_runner_times *times, dtp_err *err)
{
    const dtp_program *p = r->program;
    const bool last = microbatch + 1 == dtp_program_microbatches(p);
    const int32_t n_instrs = last ? p->n_instrs : dtp_program_body(p);
    int32_t checked = 0;
    double start = dtp_now_s(), before = start, comm_s = 0;
    dtp_runner__shift(r, microbatch);
    r->record.seed = seed;
    r->record.step = step;
    if (r->backend->ops->record_put != NULL) {
        DTP_TRY(r->backend->ops->record_put(r->backend, &r->record, err));
    }
    for (int32_t i = 0; i < n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        dtp_runner__bound *b = &r->instrs[i];
        bool collective = instr->kind == DTP_INSTR_START || instr->kind == DTP_INSTR_WAIT;
        if (r->watch.event != NULL) {
            r->watch.event(r->watch.user, r, i, false);
        }
        if (collective || r->profile != NULL) {
            DTP_TRY(sync_kernels(r, &checked, i, err));
        }
        if (collective) {
            before = dtp_now_s();
        }
        const dtp_status status = run_instr(r, instr, b, err);
        if (status != DTP_OK) {
            name_instr(r, b, err);
            return status;
        }
        if (r->watch.event != NULL) {
            r->watch.event(r->watch.user, r, i, true);
        }
        if (collective || r->profile != NULL) {
            double after = dtp_now_s();
            comm_s += collective ? after - before : 0;
            if (r->profile != NULL) {
                r->profile[i] += after - before;
            }
            before = after;
        }
    }
    DTP_TRY(sync_kernels(r, &checked, n_instrs, err));
    double total = dtp_now_s() - start;
    times->total_s += total;
    times->compute_s += total - comm_s;
    times->comm_s += comm_s;
    return DTP_OK;
}

/* ---- what is known ---- */

void dtp_runner_set_watch(dtp_runner *r, dtp_runner_watch watch)
{
    r->watch = watch;
}

dtp_step_record *dtp_runner_record(dtp_runner *r)
{
    return &r->record;
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

const dtp_program *dtp_runner_program(const dtp_runner *r)
{
    return r->program;
}
