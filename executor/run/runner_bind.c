/* Binding a program to this rank: where every value lies, what every instruction calls. */
#include "executor/run/runner_bind.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/transform/microbatch.h"
#include "core/base/safe_int.h"
#include "executor/comm/communicator.h"
#include "executor/run/runner_names.h"
#include "executor/run/runner_queue.h"
#include "spmd/program/ranges.h"

enum { BUFFER_ALIGN = 64 };

/* Place of a value in the arena: its own, or that of the value it lies in; -1 = none. */
static int64_t place_of(const dtp_program *p, dtp_value_id v)
{
    while (p->values[v].offset < 0 && p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return p->values[v].offset;
}

/* Remembers that *pointer is the address of value v when that may change. */
static dtp_status keep_moving(dtp_runner *r, dtp_value_id v, void **pointer, dtp_err *err)
{
    const dtp_program *p = r->program;
    bool external = p->values[v].external;
    const bool slot = p->values[v].in_slot;
    const int64_t inside = external ? 0 : place_of(p, v) - (slot ? p->slots_at : 0);
    if (inside < 0 || (!external && !slot && !r->borrowed)) {
        return DTP_OK;
    }
    DTP_TRY(DTP_ONE_MORE(r->arena, r->moving, r->n_moving, r->cap_moving, err));
    r->moving[r->n_moving++] = (dtp_runner__moving){
        .pointer = pointer,
        .inside = inside,
        .buffer = external ? dtp_value_root(p, v) : p->n_values + (slot ? 1 : 0)};
    return DTP_OK;
}

/* Sorts the moving pointers by buffer (counting sort). */
static dtp_status sort_moving(dtp_runner *r, dtp_err *err)
{
    const int32_t buffers = r->program->n_values + 2;
    dtp_runner__moving *sorted;
    DTP_TRY(DTP_NEW(r->arena, sorted, r->n_moving, err));
    DTP_TRY(DTP_NEW(r->arena, r->moving_start, (size_t)buffers + 1, err));
    for (int32_t i = 0; i < r->n_moving; i++) {
        r->moving_start[r->moving[i].buffer + 1]++;
    }
    for (int32_t b = 0; b < buffers; b++) {
        r->moving_start[b + 1] += r->moving_start[b];
    }
    for (int32_t i = r->n_moving - 1; i >= 0; i--) {
        sorted[--r->moving_start[r->moving[i].buffer + 1]] = r->moving[i];
    }
    for (int32_t b = 0; b < buffers; b++) {
        r->moving_start[b] = r->moving_start[b + 1];
    }
    r->moving_start[buffers] = r->n_moving;
    r->moving = sorted;
    return DTP_OK;
}

void dtp_runner__place(dtp_runner *r, int32_t buffer, void *data)
{
    bool moved = false;
    for (int32_t i = r->moving_start[buffer]; i < r->moving_start[buffer + 1]; i++) {
        void *to = data == NULL ? NULL : (char *)data + r->moving[i].inside;
        moved = moved || *r->moving[i].pointer != to;
        *r->moving[i].pointer = to;
    }
    if (moved && buffer <= r->program->n_values) { /* each recording is of one slot */
        dtp_runner__forget(r);
    }
}

void dtp_runner__shift(dtp_runner *r, int32_t microbatch)
{
    const int64_t by = (int64_t)microbatch - r->state.record.microbatch;
    for (int32_t i = 0; i < r->n_shifted; i++) {
        *r->shifted[i].offset += by * r->shifted[i].part;
    }
    r->state.record.microbatch = microbatch;
}

static dtp_status bind_value(dtp_runner *r, dtp_value_id v, dtp_err *err)
{
    const dtp_program *p = r->program;
    const dtp_value *value = &p->values[v];
    dtp_view *view = &r->views[v];
    dtp_value_local(p, v, r->comm->rank, &view->local, view->offset);
    for (int32_t d = 0; d < value->type.rank; d++) {
        view->global[d] = value->type.dims[d].size;
    }
    int64_t place = place_of(p, v), end;
    DTP_TRY(keep_moving(r, v, &view->data, err));
    if (place < 0) {
        return DTP_OK; /* no memory of ours: external, or nothing may touch it */
    }
    if (!dtp_add_i64(place, value->bytes, &end) || end > p->peak_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "value '%s' at byte %" PRId64 " ends beyond the arena of %" PRId64,
                        value->name != NULL ? value->name : "-", place, p->peak_bytes);
    }
    view->data = r->memory != NULL ? r->memory + place : NULL;
    return DTP_OK;
}

/* Buffers begin at multiples of BUFFER_ALIGN and own the rest of their last line. */
static void touch(dtp_runner *r, dtp_value_id v)
{
    int64_t end = place_of(r->program, v) + r->program->values[v].bytes;
    if (r->program->values[v].external) {
        return;
    }
    end += r->program->values[v].in_slot ? (r->program->slots - 1) * r->program->slot_bytes : 0;
    end = dtp_ceil_div(end, BUFFER_ALIGN) * BUFFER_ALIGN;
    r->touched_bytes = end > r->touched_bytes ? end : r->touched_bytes;
}

static dtp_status copy_replicas(dtp_runner *r, int32_t n, const dtp_value_id *ids, dtp_view **out,
                                dtp_err *err)
{
    DTP_TRY(DTP_NEW(r->arena, *out, n, err));
    for (int32_t i = 0; i < n; i++) {
        (*out)[i] = r->views[ids[i]];
        const dtp_value *value = &r->program->values[ids[i]];
        /* Gives a view of one microbatch the sizes of the whole batch. */
        const dtp_ttype *type = &value->type;
        dtp_view *view = &(*out)[i];
        const dtp_graph *g = r->program->graph;
        for (int32_t d = 0; d < type->rank && g->microbatches > 1; d++) {
            if (!dtp_is_micro_dim(g, type->dims[d].id)) {
                continue;
            }
            DTP_TRY(DTP_ONE_MORE(r->arena, r->shifted, r->n_shifted, r->cap_shifted, err));
            view->global[d] = type->dims[d].size * g->microbatches;
            r->shifted[r->n_shifted++] =
                (dtp_runner__shifted){&view->offset[d], type->dims[d].size};
        }
        DTP_TRY(keep_moving(r, ids[i], &(*out)[i].data, err));
        if (place_of(r->program, ids[i]) < 0 && !value->external && value->bytes > 0) {
            const char *name = value->name;
            return DTP_FAIL(err, DTP_INTERNAL, "value '%s' has no place in the arena",
                            name != NULL ? name : "-");
        }
        touch(r, ids[i]);
    }
    return DTP_OK;
}

static dtp_status bind_kernel(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b,
                              dtp_err *err)
{
    dtp_call_types types;
    b->call = dtp_instr_call(r->program, instr, r->comm->rank, &types);
    size_t n_in = (size_t)b->call.n_in, n_out = (size_t)b->call.n_out;
    dtp_ttype *in;
    DTP_TRY(DTP_NEW(r->arena, in, n_in + n_out, err));
    memcpy(in, types.in, n_in * sizeof *in);
    memcpy(in + n_in, types.out, n_out * sizeof *in);
    b->call.in = in;
    b->call.out = in + n_in;
    dtp_kernel_args args = {.call = &b->call, .in = b->in, .out = b->out};
    dtp_step_state_link(&r->state, &args);
    if (instr->workspace >= 0) {
        args.workspace = r->views[instr->workspace].data;
        args.workspace_bytes = r->program->values[instr->workspace].bytes;
        DTP_TRY(keep_moving(r, instr->workspace, &b->kernel.args.workspace, err));
        touch(r, instr->workspace);
    }
    return dtp_backend_bind(r->backend, &args, r->arena, &b->kernel, err);
}

/* Where the range of this rank begins in its piece, and in what others send it; of a copy out what
 * another member wants. */
static void bind_range(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b)
{
    const dtp_copy *copy = &instr->move;
    const dtp_value *v = &r->program->values[instr->in[0]];
    const dtp_split_dim d = dtp_split_dim_of(&r->program->mesh, &v->layout, &v->type, copy->axis);
    const int64_t own = b->in[0].offset[copy->axis];
    b->part = b->in[0].local;
    if (copy->kind == DTP_COPY_RANGE_OUT) {
        const int64_t to = ((b->index + copy->shift) % d.places + d.places) % d.places;
        const dtp_extent e = dtp_margin_at(&d, copy->range, to, copy->shift);
        b->start = dtp_index_of(&d, e.from) - own;
        b->part.dims[copy->axis].size = dtp_extent_size(e);
        return;
    }
    const int64_t from = b->out->offset[copy->axis];
    const dtp_extent here = dtp_margin_at(&d, copy->range, b->index, 0);
    b->start = from - own - (here.from - dtp_index_of(&d, here.from));
    for (int32_t i = 1; i < instr->n_in; i++) {
        const dtp_extent e =
            dtp_margin_at(&d, copy->range, b->index, i == 1 ? copy->shift : copy->shift2);
        b->margin[i - 1].start = from - e.from;
        b->margin[i - 1].size = dtp_extent_size(e);
    }
}

static dtp_status bind_copy(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b,
                            dtp_err *err)
{
    const dtp_program *p = r->program;
    const dtp_copy *copy = &instr->move;
    b->parts = dtp_mesh_set_size(&p->mesh, copy->set);
    b->index = dtp_mesh_set_index(&p->mesh, copy->set, r->comm->rank);
    if (copy->kind == DTP_COPY_SLICE) {
        b->start = b->out->local.dims[copy->axis].size > 0
                       ? b->out->offset[copy->axis] - b->in->offset[copy->axis]
                       : 0;
    }
    if (copy->kind == DTP_COPY_RANGE_OUT || copy->kind == DTP_COPY_RANGE_IN) {
        bind_range(r, instr, b);
    }
    if (copy->kind != DTP_COPY_PACK && copy->kind != DTP_COPY_UNPACK) {
        return DTP_OK;
    }
    dtp_value_id tensor = copy->kind == DTP_COPY_PACK ? instr->in[0] : instr->out[0];
    dtp_value_id staging = copy->kind == DTP_COPY_PACK ? instr->out[0] : instr->in[0];
    const dtp_value *t = &p->values[tensor];
    dtp_layout_local_max(&t->layout, &p->mesh, &t->type, &b->part);
    if (t->type.rank > 0) {
        b->part.dims[copy->axis].size = dtp_ceil_div(b->part.dims[copy->axis].size, b->parts);
    }
    if (dtp_ttype_bytes(&b->part) * b->parts > p->values[staging].bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "%d parts of %" PRId64 " bytes in a staging buffer of %" PRId64, b->parts,
                        dtp_ttype_bytes(&b->part), p->values[staging].bytes);
    }
    return DTP_OK;
}

/* Collective k of a START: its count fits its buffers. */
static dtp_status check_counts(const dtp_runner *r, const dtp_instr *instr, int32_t k, dtp_err *err)
{
    const dtp_coll *c = dtp_coll_at(&instr->coll, k);
    const dtp_value *in = &r->program->values[instr->in[k]],
                    *out = &r->program->values[instr->out[k]];
    int64_t n = dtp_mesh_set_size(&r->program->mesh, c->set), bytes;
    if (c->count < 0 || !dtp_mul_i64(c->count, dtp_dtype_bytes(c->dtype) * n, &bytes)) {
        return DTP_FAIL(err, DTP_RANGE, "a collective of %" PRId64 " elements", c->count);
    }
    int64_t one = bytes / n;
    int64_t need_in = dtp_coll_parts_in(c, n) * one, need_out = dtp_coll_parts_out(c, n) * one;
    if (need_in > in->bytes || need_out > out->bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "needs %" PRId64 " and %" PRId64 " bytes, the buffers have %" PRId64
                        " and %" PRId64,
                        need_in, need_out, in->bytes, out->bytes);
    }
    return DTP_OK;
}

static dtp_status bind_collective(dtp_runner *r, const dtp_instr *instr, dtp_runner__bound *b,
                                  dtp_err *err)
{
    DTP_TRY(DTP_NEW(r->arena, b->ends, instr->n_in, err));
    for (int32_t k = 0; k < instr->n_in; k++) {
        DTP_TRY(check_counts(r, instr, k, err));
    }
    return DTP_OK;
}

static dtp_status bind_instr(dtp_runner *r, int32_t index, dtp_err *err)
{
    const dtp_instr *instr = &r->program->instrs[index];
    dtp_runner__bound *b = &r->instrs[index];
    b->n_in = instr->n_in;
    b->n_out = instr->n_out;
    if (r->backend->ops->queue != NULL) {
        b->range = dtp_arena_printf(r->arena, "%d %s %s", index, dtp_instr_name(instr),
                                    dtp_runner__node_name(r->program, instr));
        DTP_TRY(DTP_MEMORY(err, b->range));
    }
    DTP_TRY(copy_replicas(r, instr->n_in, instr->in, &b->in, err));
    DTP_TRY(copy_replicas(r, instr->n_out, instr->out, &b->out, err));
    switch (instr->kind) {
    case DTP_INSTR_KERNEL:
        return bind_kernel(r, instr, b, err);
    case DTP_INSTR_START:
        return bind_collective(r, instr, b, err);
    case DTP_INSTR_WAIT:
        return DTP_OK;
    default:
        return bind_copy(r, instr, b, err);
    }
}

static dtp_status count_collectives(dtp_runner *r, dtp_err *err)
{
    const dtp_program *p = r->program;
    DTP_TRY(DTP_NEW(r->arena, r->stats, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_coll *c = &p->instrs[i].coll;
        if (p->instrs[i].kind != DTP_INSTR_START) {
            continue;
        }
        int32_t s = 0;
        while (s < r->n_stats && (r->stats[s].kind != c->kind || r->stats[s].set != c->set)) {
            s++;
        }
        r->n_stats = s == r->n_stats ? s + 1 : r->n_stats;
        int64_t n = dtp_mesh_set_size(&p->mesh, c->set);
        int64_t in = dtp_coll_parts_in(c, n), out = dtp_coll_parts_out(c, n);
        int64_t parts = in > out ? in : out;
        r->stats[s].kind = c->kind;
        r->stats[s].set = c->set;
        const int64_t runs = dtp_instr_runs(p, &p->instrs[i]);
        r->stats[s].count += runs;
        r->stats[s].bytes += runs * c->count * parts * dtp_dtype_bytes(c->dtype);
    }
    return DTP_OK;
}

dtp_status dtp_runner__bind_all(dtp_runner *r, bool profile, dtp_err *err)
{
    const dtp_program *p = r->program;
    r->views = dtp_arena_alloc(r->arena, (size_t)p->n_values, sizeof *r->views);
    r->instrs = dtp_arena_alloc(r->arena, (size_t)p->n_instrs, sizeof *r->instrs);
    if (r->views == NULL || r->instrs == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory to bind the program");
    }
    r->body = dtp_program_body(p);
    if (profile) {
        r->n_spans = (int64_t)(dtp_program_microbatches(p) - 1) * r->body + p->n_instrs;
        DTP_TRY(DTP_NEW(r->arena, r->profile, p->n_instrs, err));
        DTP_TRY(DTP_NEW(r->arena, r->spans, r->n_spans, err));
    }
    if (p->peak_bytes > 0 && !r->borrowed) {
        void *memory = NULL;
        DTP_TRY(dtp_transport_alloc(&r->comm->transport, r->backend, (size_t)p->peak_bytes, true,
                                    &memory, err));
        r->memory = memory;
        r->memory_bytes = p->peak_bytes;
    }
    int32_t n_words = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n_words += p->instrs[i].kind == DTP_INSTR_KERNEL &&
                   (p->instrs[i].op->flags & DTP_OP_CHECKS_DATA) != 0;
    }
    DTP_TRY(dtp_step_state_init(&r->state, r->backend, n_words, err));
    r->backend->tf32 = p->graph->tf32;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        DTP_TRY(bind_value(r, v, err));
        bool fed = p->values[v].kind == DTP_VALUE_RESIDENT || p->values[v].kind == DTP_VALUE_INPUT;
        if (fed && place_of(p, v) >= 0) {
            touch(r, v);
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        DTP_TRY(dtp_err_prefixed(bind_instr(r, i, err), err, "instruction %d (%s, node '%s')", i,
                                 dtp_instr_name(&p->instrs[i]),
                                 dtp_runner__node_name(p, &p->instrs[i])));
    }
    DTP_TRY(sort_moving(r, err));
    DTP_TRY(count_collectives(r, err));
    return r->backend->ops->queue != NULL ? dtp_runner__open_queue(r, err) : DTP_OK;
}
