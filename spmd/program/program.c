/* Building blocks of SPMD programs. */
#include "spmd/program/program.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "core/transform/stages.h"
#include "spmd/program/program_internal.h"
#include "spmd/program/ranges.h"

/* A reset starts a fresh arena once this much of the old one is beyond reuse. */
static const int64_t PINNED_LIMIT_BYTES = 16 << 20;

const char *dtp_coll_name(dtp_coll_kind kind)
{
    static const char *const names[DTP_N_COLLS] = {"all_reduce", "all_gather", "reduce_scatter",
                                                   "all_to_all", "collective_permute"};
    return names[kind];
}

int32_t dtp_coll_buffers(const dtp_coll *coll)
{
    return coll->n_bucket > 0 ? coll->n_bucket : 1;
}

const dtp_coll *dtp_coll_at(const dtp_coll *coll, int32_t k)
{
    return coll->n_bucket > 0 ? &coll->bucket[k] : coll;
}

int64_t dtp_coll_parts_in(const dtp_coll *coll, int64_t n)
{
    return coll->kind == DTP_REDUCE_SCATTER || coll->kind == DTP_ALL_TO_ALL ? n : 1;
}

int64_t dtp_coll_parts_out(const dtp_coll *coll, int64_t n)
{
    return coll->kind == DTP_ALL_GATHER || coll->kind == DTP_ALL_TO_ALL ? n : 1;
}

bool dtp_coll_reduces(dtp_coll_kind kind)
{
    return kind == DTP_ALL_REDUCE || kind == DTP_REDUCE_SCATTER;
}

int32_t dtp_coll_source(const dtp_coll *coll, int32_t n, int32_t member)
{
    int64_t back = ((int64_t)member - coll->shift) % n;
    return (int32_t)(back < 0 ? back + n : back);
}

const char *dtp_copy_name(dtp_copy_kind kind)
{
    static const char *const names[DTP_N_COPY_KINDS] = {
        "pack", "unpack", "slice", "scale", "keep_first", "copy", "range_out", "range_in"};
    return names[kind];
}

const char *dtp_instr_name(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL  ? instr->op->name
           : instr->kind == DTP_INSTR_START ? dtp_coll_name(instr->coll.kind)
           : instr->kind == DTP_INSTR_WAIT  ? "wait"
                                            : dtp_copy_name(instr->move.kind);
}

/* ---- the program ---- */

/* Everything that lives in the arena, from nothing. */
static dtp_status init_storage(dtp_program *p, dtp_err *err)
{
    p->arena = dtp_arena_create();
    int32_t n = p->graph->n_tensors;
    DTP_TRY(DTP_NEW(p->arena, p->tensor_value, n, err));
    DTP_TRY(DTP_NEW(p->arena, p->tensor_latest, n, err));
    for (int32_t i = 0; i < n; i++) {
        p->tensor_value[i] = p->tensor_latest[i] = -1;
    }
    dtp_dims_init(&p->dims, p->arena);
    for (int32_t i = 0; i < p->graph->dims.n; i++) {
        dtp_dim_id id;
        DTP_TRY(
            dtp_dims_intern(&p->dims, p->graph->dims.names[i], p->graph->dims.sizes[i], &id, err));
    }
    return DTP_OK;
}

dtp_status dtp_program_create(const dtp_graph *g, const dtp_mesh *mesh, const dtp_target *target,
                              dtp_program **out, dtp_err *err)
{
    dtp_program *p = calloc(1, sizeof *p);
    DTP_TRY(DTP_MEMORY(err, p));
    p->graph = g;
    p->mesh = *mesh;
    p->target = target;
    dtp_status s = init_storage(p, err);
    if (s != DTP_OK) {
        dtp_program_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void dtp_program_destroy(dtp_program *p)
{
    if (p != NULL) {
        dtp_arena_destroy(p->arena);
        free(p);
    }
}

static dtp_status copy_list(dtp_arena *arena, void *list, int32_t n, size_t size, dtp_err *err)
{
    void *old, *copy = dtp_arena_alloc(arena, (size_t)n, size);
    DTP_TRY(DTP_MEMORY(err, copy));
    memcpy(&old, list, sizeof old);
    if (n > 0) {
        memcpy(copy, old, (size_t)n * size);
    }
    memcpy(list, &copy, sizeof copy);
    return DTP_OK;
}

dtp_status dtp_program__copy(const dtp_program *p, dtp_program **out, dtp_err *err)
{
    dtp_program *q;
    DTP_TRY(DTP_NEW(p->arena, q, 1, err));
    *q = *p;
    q->cap_values = p->n_values;
    q->cap_instrs = p->n_instrs;
    q->cap_updates = p->n_updates;
    q->n_ids = q->cap_ids = 0;
    const int32_t n_tensors = p->graph->n_tensors;
    DTP_TRY(copy_list(p->arena, &q->values, p->n_values, sizeof *q->values, err));
    DTP_TRY(copy_list(p->arena, &q->instrs, p->n_instrs, sizeof *q->instrs, err));
    DTP_TRY(copy_list(p->arena, &q->updates, p->n_updates, sizeof *q->updates, err));
    DTP_TRY(copy_list(p->arena, &q->tensor_value, n_tensors, sizeof *q->tensor_value, err));
    DTP_TRY(copy_list(p->arena, &q->tensor_latest, n_tensors, sizeof *q->tensor_latest, err));
    *out = q;
    return DTP_OK;
}

dtp_status dtp_program_reset(dtp_program *p, dtp_err *err)
{
    if (p->pinned_bytes > PINNED_LIMIT_BYTES) {
        dtp_program fresh = {.graph = p->graph,
                             .mesh = p->mesh,
                             .target = p->target,
                             .plain_names = p->plain_names,
                             .redistributor = p->redistributor};
        dtp_arena_destroy(p->arena);
        *p = fresh;
        return init_storage(p, err);
    }
    for (int32_t i = 0; i < p->n_values; i++) {
        dtp_tensor_id t = p->values[i].tensor;
        if (t >= 0) {
            p->tensor_value[t] = p->tensor_latest[t] = -1;
        }
    }
    p->n_values = p->n_instrs = p->n_updates = p->n_ids = 0;
    p->peak_bytes = 0;
    p->serial = NULL;
    return DTP_OK;
}

/* ---- values ---- */

int32_t dtp_program_microbatches(const dtp_program *p)
{
    return p->graph != NULL ? dtp_graph_runs(p->graph, DTP_FORWARD) : 1;
}

int32_t dtp_instr_runs(const dtp_program *p, const dtp_instr *instr)
{
    return instr->phase != DTP_UPDATE && !instr->once ? dtp_program_microbatches(p) : 1;
}

bool dtp_instr_runs_in(const dtp_program *p, const dtp_instr *instr, int32_t j)
{
    return instr->phase == DTP_UPDATE ? j + 1 == dtp_program_microbatches(p)
                                      : j == 0 || !instr->once;
}

int32_t dtp_instr_section(const dtp_program *p, const dtp_instr *instr)
{
    const dtp_stages *stages = p->graph != NULL ? p->graph->stages : NULL;
    if (stages == NULL) {
        return instr->phase == DTP_UPDATE && dtp_program_microbatches(p) > 1 ? DTP_SECTION_UPDATE
                                                                             : 0;
    }
    if (instr->phase != DTP_UPDATE) {
        return instr->phase == DTP_FORWARD ? DTP_SECTION_FORWARD : DTP_SECTION_BACKWARD;
    }
    const bool update = instr->node >= 0 && p->graph->nodes[instr->node].phase == DTP_UPDATE;
    return DTP_SECTION_UPDATE + (update ? stages->part[instr->node] : stages->n_parts - 1);
}

int32_t dtp_section_begin(const dtp_program *p, const dtp_instr *instrs, int32_t n, int32_t section)
{
    int32_t low = 0;
    while (low < n) {
        const int32_t middle = low + (n - low) / 2;
        if (dtp_instr_section(p, &instrs[middle]) < section) {
            low = middle + 1;
        } else {
            n = middle;
        }
    }
    return low;
}

bool dtp_instrs_alike(const dtp_program *p, const dtp_instr *a, const dtp_instr *b)
{
    return a->phase == b->phase && a->once == b->once &&
           dtp_instr_section(p, a) == dtp_instr_section(p, b);
}

dtp_value_id dtp_program__lasting(const dtp_program *p, const dtp_instr *instr, int32_t k)
{
    dtp_value_id v = instr->in[k];
    while (!p->values[v].once && p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return p->values[v].once && !instr->once && instr->phase != DTP_UPDATE ? v : -1;
}

int32_t dtp_program_body(const dtp_program *p)
{
    int32_t n = p->n_instrs;
    while (dtp_program_microbatches(p) > 1 && n > 0 && p->instrs[n - 1].phase == DTP_UPDATE) {
        n--;
    }
    return n;
}

dtp_value_id dtp_value_root(const dtp_program *p, dtp_value_id v)
{
    while (p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return v;
}

void dtp_value_local(const dtp_program *p, dtp_value_id v, int32_t rank, dtp_ttype *local,
                     int64_t offsets[DTP_MAX_RANK])
{
    const dtp_value *value = &p->values[v];
    if (rank == DTP_ANY_RANK) {
        dtp_program__largest(p, value, local);
        return;
    }
    dtp_layout_local(&value->layout, &p->mesh, &value->type, rank, local, offsets);
    for (int32_t i = 0; i < value->type.rank && value->ranges != NULL; i++) {
        const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &value->layout, &value->type, i);
        if (value->ranges[i].of > 0) {
            const dtp_extent e = dtp_range_at(&d, &value->ranges[i], dtp_split_dim_place(&d, rank));
            local->dims[i].size = dtp_extent_size(e);
            if (offsets != NULL) {
                offsets[i] = e.from;
            }
        }
    }
}

void dtp_program__largest(const dtp_program *p, const dtp_value *v, dtp_ttype *local)
{
    dtp_layout_local_max(&v->layout, &p->mesh, &v->type, local);
    for (int32_t i = 0; i < v->type.rank && v->ranges != NULL; i++) {
        const dtp_split_dim d = dtp_split_dim_of(&p->mesh, &v->layout, &v->type, i);
        local->dims[i].size = v->ranges[i].of > 0 ? 0 : local->dims[i].size;
        for (int64_t k = 0; k < d.places && v->ranges[i].of > 0; k++) {
            const int64_t n = dtp_extent_size(dtp_range_at(&d, &v->ranges[i], k));
            local->dims[i].size = n > local->dims[i].size ? n : local->dims[i].size;
        }
    }
}

dtp_value dtp_program__value_init(const char *name, dtp_value_kind kind)
{
    dtp_value v = {.name = name,
                   .kind = kind,
                   .tensor = -1,
                   .parent = -1,
                   .first = -1,
                   .last = -1,
                   .previous = -1,
                   .offset = -1};
    return v;
}

dtp_status dtp_program__add_value(dtp_program *p, const dtp_value *value, dtp_value_id *out,
                                  dtp_err *err)
{
    dtp_ttype local;
    DTP_TRY(dtp_arena_grow(p->arena, &p->values, p->n_values, p->n_values + 1, &p->cap_values,
                           sizeof *p->values, err));
    dtp_value *v = &p->values[p->n_values];
    *v = *value;
    dtp_program__largest(p, v, &local);
    v->bytes = dtp_ttype_bytes(&local);
    *out = p->n_values++;
    return DTP_OK;
}

dtp_status dtp_program__add_staging(dtp_program *p, const char *name, dtp_dtype dtype,
                                    int64_t parts, int64_t count, dtp_value_id *out, dtp_err *err)
{
    dtp_value v = dtp_program__value_init(name, DTP_VALUE_STAGING);
    int64_t elems, bytes;
    if (!dtp_mul_i64(parts, count, &elems) || !dtp_mul_i64(elems, dtp_dtype_bytes(dtype), &bytes)) {
        return DTP_FAIL(err, DTP_RANGE, "'%s': a staging buffer of %lld parts of %lld elements",
                        name, (long long)parts, (long long)count);
    }
    v.type = (dtp_ttype){.dtype = dtype, .rank = 1, .dims = {{-1, elems}}};
    v.layout = dtp_layout_replicated(1, p->mesh.n_dims);
    return dtp_program__add_value(p, &v, out, err);
}

void dtp_program__bind(dtp_program *p, dtp_tensor_id t, dtp_value_id v)
{
    p->values[v].tensor = t;
    p->values[v].previous = p->tensor_latest[t];
    p->tensor_latest[t] = v;
}

dtp_status dtp_program__add_version(dtp_program *p, dtp_value_id of, const dtp_layout *layout,
                                    dtp_value_id *out, dtp_err *err)
{
    dtp_value v = dtp_program__value_init(p->values[of].name, DTP_VALUE_TEMP);
    dtp_tensor_id t = p->values[of].tensor;
    v.type = p->values[of].type;
    v.layout = *layout;
    if (!p->plain_names) {
        char text[DTP_LAYOUT_TEXT_BYTES];
        const char *base = t >= 0 ? p->graph->tensors[t].name : v.name;
        size_t n = t >= 0 ? strlen(base) : strcspn(base, "@");
        dtp_layout_print(layout, &p->mesh, &v.type, &p->dims, text);
        v.name = dtp_arena_printf(p->arena, "%.*s@%s", (int)n, base, text);
        DTP_TRY(DTP_MEMORY(err, v.name));
    }
    DTP_TRY(dtp_program__add_value(p, &v, out, err));
    if (t >= 0) {
        dtp_program__bind(p, t, *out);
    }
    return DTP_OK;
}

/* ---- instructions ---- */

dtp_instr dtp_program__instr_init(dtp_instr_kind kind, dtp_node_id node, dtp_phase phase)
{
    return (dtp_instr){.kind = kind, .node = node, .phase = phase, .workspace = -1, .pair = -1};
}

dtp_status dtp_program__alloc_ids(dtp_program *p, int32_t n, dtp_value_id **out, dtp_err *err)
{
    enum { FIRST_CHUNK = 64, CHUNK = 4096 }; /* many programs are those of single nodes */
    if (p->cap_ids - p->n_ids < n) {
        int32_t cap = p->cap_ids == 0 ? FIRST_CHUNK : 2 * p->cap_ids;
        cap = cap < CHUNK ? cap : CHUNK;
        cap = cap > n ? cap : n;
        p->id_pool = dtp_arena_alloc(p->arena, (size_t)cap, sizeof *p->id_pool);
        if (p->id_pool == NULL) {
            p->cap_ids = p->n_ids = 0;
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d operands", n);
        }
        p->cap_ids = cap;
        p->n_ids = 0;
    }
    *out = p->id_pool + p->n_ids;
    p->n_ids += n;
    return DTP_OK;
}

dtp_status dtp_program__add_instr(dtp_program *p, const dtp_instr *instr, dtp_err *err)
{
    dtp_value_id *ids;
    DTP_TRY(dtp_program__alloc_ids(p, instr->n_in + instr->n_out, &ids, err));
    for (int32_t i = 0; i < instr->n_in; i++) {
        ids[i] = instr->in[i];
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        ids[instr->n_in + i] = instr->out[i];
    }
    DTP_TRY(dtp_arena_grow(p->arena, &p->instrs, p->n_instrs, p->n_instrs + 1, &p->cap_instrs,
                           sizeof *p->instrs, err));
    dtp_instr *copy = &p->instrs[p->n_instrs++];
    *copy = *instr;
    copy->in = ids;
    copy->out = ids + instr->n_in;
    return DTP_OK;
}

dtp_status dtp_program__emit_permute(dtp_program *p, dtp_value_id value, dtp_mesh_set set,
                                     int32_t shift, dtp_node_id node, dtp_phase phase,
                                     dtp_value_id *out, dtp_err *err)
{
    const dtp_value from = p->values[value];
    dtp_ttype local;
    dtp_layout_local_max(&from.layout, &p->mesh, &from.type, &local);
    if (set == 0 || set >> p->mesh.n_dims != 0 ||
        !dtp_layout_is_even_over(&from.layout, &p->mesh, &from.type, set)) {
        char dims[DTP_MESH_SET_TEXT_BYTES];
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "'%s' cannot be passed around %s: its shards differ in size", from.name,
                        dtp_mesh_set_words(&p->mesh, set, dims));
    }
    if (*out < 0) {
        dtp_value to = dtp_program__value_init(from.name, DTP_VALUE_TEMP);
        to.type = from.type;
        to.layout = from.layout;
        DTP_TRY(dtp_program__add_value(p, &to, out, err));
    }
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_START, node, phase);
    instr.coll = (dtp_coll){.kind = DTP_PERMUTE,
                            .set = set,
                            .dtype = from.type.dtype,
                            .count = dtp_ttype_elems(&local),
                            .shift = shift};
    instr.n_in = instr.n_out = 1;
    instr.in = &value;
    instr.out = out;
    return dtp_program__add_instr(p, &instr, err);
}

dtp_status dtp_program__copy_attrs(dtp_program *p, const dtp_attr *attrs, int32_t n,
                                   const dtp_attr **out, dtp_err *err)
{
    dtp_attr *copy;
    DTP_TRY(DTP_NEW(p->arena, copy, n, err));
    p->pinned_bytes += n * (int64_t)sizeof *copy;
    for (int32_t i = 0; i < n; i++) {
        copy[i] = attrs[i];
        if (attrs[i].kind != DTP_ATTR_DIMS && attrs[i].kind != DTP_ATTR_INTS) {
            continue;
        }
        dtp_dim_id *ids;
        DTP_TRY(DTP_NEW(p->arena, ids, attrs[i].n, err));
        p->pinned_bytes += attrs[i].n * (int64_t)sizeof *ids;
        for (int32_t k = 0; k < attrs[i].n; k++) {
            ids[k] = attrs[i].ids[k];
        }
        copy[i].ids = ids;
    }
    *out = copy;
    return DTP_OK;
}

dtp_op_call dtp_instr_call(const dtp_program *p, const dtp_instr *instr, int32_t rank,
                           dtp_call_types *types)
{
    for (int32_t i = 0; i < instr->n_in; i++) {
        dtp_value_local(p, instr->in[i], rank, &types->in[i], NULL);
    }
    for (int32_t i = 0; i < instr->n_out; i++) {
        dtp_value_local(p, instr->out[i], rank, &types->out[i], NULL);
    }
    return (dtp_op_call){.op = instr->op,
                         .dims = &p->dims,
                         .attrs = instr->attrs,
                         .n_attrs = instr->n_attrs,
                         .n_in = instr->n_in,
                         .n_out = instr->n_out,
                         .in = types->in,
                         .out = types->out};
}
