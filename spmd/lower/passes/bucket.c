/* Fuses collectives into buckets, so that many small tensors cost the latency of one.
 *
 * All-gathers of a bucket run where the first one was: what they gather, mostly parameters, has
 * been there before. Reductions, mostly of gradients, run where the last one was, and so do gathers
 * into parameters, which are updated before. Sums over microbatches are there before any of them is
 * reduced: these reductions run where the first one was. Members have the same kind, set, operation
 * and dtype, and lie in the same phase, so they run equally often. Copies that pack an operand or
 * unpack a result go with their collective, and so do casts beside it and the sum over microbatches
 * that reads its result. No member passes an instruction that writes what it
 * reads, or touches what it writes.
 *
 * Members are needed for longer than before: the serial program may need 1 % more memory at its
 * peak, and no more than a bucket. It may not need less at its peak than before, as it could where
 * the cast of a reduced gradient comes behind: any program needs so much, the planner proves.
 *
 * On a target with FSDP the parameters of an instance of a block are gathered by one collective,
 * and so are those outside of blocks, whatever their bytes and the memory that it takes; their
 * gradients are reduced likewise (fully_shard's groups). What else joins before the update are
 * reductions over mesh dims that split an input: averages of gradients over data ranks. Others are
 * DTensor's redistributions, each a collective of its own.
 *
 * There are two sweeps, the first of which only moves collectives up, the second only down. So the
 * places before a sweep say enough: whoever depends on a member that moved up lies behind it still.
 */
#include "core/graph/uses.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/needed.h"
#include "spmd/program/program_internal.h"

typedef struct bucket {
    int32_t n;      /* members: units */
    int32_t place;  /* the first member where they move up, the last one where they move down */
    int32_t closes; /* where they move down: the first instruction that none may pass */
    int64_t bytes;  /* of the larger sides of all members */
    int32_t first, last; /* members, in the order of units */
} bucket;

typedef struct sweep {
    dtp_program *p;
    bool up; /* the first sweep */
    int64_t limit;
    const bool *grads; /* by tensor: a gradient of a parameter; on a target with FSDP, else NULL */
    dtp_mesh_set data; /* mesh dims that split an input */
    int32_t n_units;
    dtp_comm_unit *units;
    int32_t *unit_of; /* by instruction, -1 = none */
    int32_t *bound;   /* by unit: where it may move to: up to behind, or down to before this
                              instruction */
    dtp_needed needed;
    dtp_value_id *roots; /* of one unit */
    int32_t n_buckets;
    bucket *buckets;
    int32_t *bucket_of; /* by unit, -1 = none */
    int32_t *next;      /* by unit: the next member of its bucket, -1 = none */
    int32_t n_kinds;
    int32_t *latest; /* by kind of units that may join: its latest bucket */
} sweep;

/* ---- how far members may move ---- */

/* The nearest instructions that write and that touch a buffer. */
typedef struct nearest {
    int32_t write, touch;
} nearest;

static int32_t nearer(const sweep *s, int32_t a, int32_t b)
{
    return s->up == (a > b) ? a : b;
}

static void note(const sweep *s, nearest *at, int32_t i)
{
    const dtp_instr *instr = &s->p->instrs[i];
    for (int32_t k = 0; k < instr->n_in; k++) {
        at[s->needed.roots[instr->in[k]]].touch = i;
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        at[s->needed.roots[instr->out[k]]] = (nearest){i, i};
    }
    if (instr->workspace >= 0) {
        at[s->needed.roots[instr->workspace]] = (nearest){i, i};
    }
}

/* From what is noted of the instructions that it would pass. */
static int32_t bound_of(const sweep *s, const nearest *at, const dtp_comm_unit *u)
{
    int32_t bound = s->up ? -1 : s->p->n_instrs;
    for (int32_t i = u->head; i <= u->tail; i++) {
        const dtp_instr *instr = &s->p->instrs[i];
        for (int32_t k = 0; k < instr->n_in; k++) {
            bound = nearer(s, bound, at[s->needed.roots[instr->in[k]]].write);
        }
        for (int32_t k = 0; k < instr->n_out; k++) {
            bound = nearer(s, bound, at[s->needed.roots[instr->out[k]]].touch);
        }
    }
    return bound;
}

static dtp_status find_bounds(sweep *s, dtp_arena *scratch, dtp_err *err)
{
    const int32_t n = s->p->n_instrs;
    nearest *at;
    DTP_TRY(DTP_NEW(scratch, at, s->p->n_values, err));
    for (int32_t v = 0; v < s->p->n_values; v++) {
        at[v] = s->up ? (nearest){-1, -1} : (nearest){n, n};
    }
    for (int32_t k = 0; k < n; k++) {
        const int32_t i = s->up ? k : n - 1 - k;
        const dtp_comm_unit *u = s->unit_of[i] >= 0 ? &s->units[s->unit_of[i]] : NULL;
        if (u != NULL && i == (s->up ? u->head : u->tail)) {
            s->bound[s->unit_of[i]] = bound_of(s, at, u);
        }
        note(s, at, i);
    }
    return DTP_OK;
}

/* ---- joining ---- */

/* Whether it adds to a sum over microbatches. */
static bool is_sum(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_UPDATE) != 0 &&
           instr->phase != DTP_UPDATE;
}

static const dtp_instr *start_of(const sweep *s, int32_t unit)
{
    return &s->p->instrs[s->units[unit].start];
}

static int64_t bytes_of(const sweep *s, int32_t unit)
{
    const dtp_instr *start = start_of(s, unit);
    const int64_t in = s->p->values[start->in[0]].bytes, out = s->p->values[start->out[0]].bytes;
    return in > out ? in : out;
}

/* The value that a unit leads from, or to, behind the copy that packs it, or unpacks it. */
static dtp_value_id end_of(const sweep *s, int32_t unit, bool input)
{
    const dtp_comm_unit *u = &s->units[unit];
    const dtp_instr *start = start_of(s, unit);
    dtp_value_id end = (input ? start->in : start->out)[0];
    for (int32_t i = input ? u->head : u->start + 1; i < (input ? u->start : u->tail + 1); i++) {
        const dtp_instr *copy = &s->p->instrs[i];
        if (copy->kind == DTP_INSTR_COPY && (input ? copy->out : copy->in)[0] == end) {
            return (input ? copy->in : copy->out)[0];
        }
    }
    return end;
}

/* Whether FSDP gathers a parameter or reduces its gradient here. A copy of ZeRO that is whole where
 * it is kept is none. */
static bool is_fsdp(const sweep *s, int32_t unit)
{
    const dtp_program *p = s->p;
    const dtp_instr *start = start_of(s, unit);
    if (s->grads == NULL || start->coll.n_bucket != 0 || start->phase == DTP_UPDATE) {
        return false;
    }
    const dtp_tensor_id t = p->values[end_of(s, unit, true)].tensor;
    if (t < 0 || start->coll.kind != DTP_ALL_GATHER) {
        return t >= 0 && !s->up && start->coll.kind == DTP_REDUCE_SCATTER && s->grads[t];
    }
    return s->up && dtp_graph_param_of(p->graph, t) >= 0 &&
           end_of(s, unit, false) != p->tensor_value[t];
}

/* Of two collectives of FSDP: whether they are of one group. */
static bool same_group(const sweep *s, const dtp_instr *a, const dtp_instr *b)
{
    const dtp_node *x = &s->p->graph->nodes[a->node], *y = &s->p->graph->nodes[b->node];
    return x->block == y->block && (x->block < 0 || x->instance == y->instance);
}

static bool may_join(const sweep *s, int32_t unit)
{
    const dtp_instr *start = start_of(s, unit);
    if (is_fsdp(s, unit)) {
        return true;
    }
    if (s->p->target->apart && start->coll.kind != DTP_ALL_REDUCE) {
        return false;
    }
    const bool gathers = start->coll.kind == DTP_ALL_GATHER;
    const bool reduces = dtp_coll_reduces(start->coll.kind) && start->coll.op == DTP_REDUCE_SUM &&
                         start->phase != DTP_FORWARD;
    /* A result that is needed later than before could need less memory than the problem says. */
    const dtp_value_id root = dtp_value_root(s->p, s->p->instrs[s->units[unit].tail].out[0]);
    const bool stays = s->p->values[root].kind == DTP_VALUE_RESIDENT;
    const bool summed = reduces && start->phase == DTP_UPDATE && dtp_program_microbatches(s->p) > 1;
    if (s->grads != NULL && start->phase != DTP_UPDATE &&
        (!reduces || (start->coll.set & ~s->data) != 0)) {
        return false;
    }
    return start->coll.n_bucket == 0 && bytes_of(s, unit) <= s->limit &&
           (s->up ? gathers || summed : reduces || (gathers && stays));
}

static bool alike(const sweep *s, int32_t unit, int32_t other)
{
    const dtp_instr *a = start_of(s, unit), *b = start_of(s, other);
    const bool group = is_fsdp(s, unit);
    return group == is_fsdp(s, other) && (!group || same_group(s, a, b)) &&
           a->coll.kind == b->coll.kind && a->coll.set == b->coll.set &&
           a->coll.dtype == b->coll.dtype && dtp_instrs_alike(s->p, a, b);
}

/* Keeps all that a unit touches at instructions first..last. */
static bool hold(sweep *s, int32_t unit, int32_t first, int32_t last)
{
    const dtp_comm_unit *u = &s->units[unit];
    const int32_t n = dtp_needed_buffers(&s->needed, s->p->instrs, u->head, u->tail, 0, s->roots);
    return dtp_needed_hold(&s->needed, n, s->roots, first, last);
}

/* Whether fewer bytes are needed at the peak when a unit moves past it, or away from it: of results
 * that come later (or operands that are read before), against what they are made from (or
 * become). */
static bool eases_peak(const sweep *s, int32_t unit)
{
    const dtp_comm_unit *u = &s->units[unit];
    const int32_t peak = s->needed.peak_at;
    const int32_t n = dtp_needed_buffers(&s->needed, s->p->instrs, u->head, u->tail, 0, s->roots);
    int64_t more = 0;
    for (int32_t k = 0; k < n; k++) {
        const dtp_need *need = &s->needed.needs[s->roots[k]];
        const bool at_peak = need->first <= peak && peak <= need->last;
        const bool stays = s->up ? need->last > u->tail : need->first < u->head;
        more += stays && !at_peak ? need->bytes : 0;
        more -= !stays && at_peak ? need->bytes : 0;
    }
    return more < 0;
}

static bool join(sweep *s, int32_t id, int32_t unit)
{
    bucket *b = &s->buckets[id];
    const dtp_comm_unit *at = &s->units[b->place], *u = &s->units[unit];
    const bool group = is_fsdp(s, unit);
    const int64_t limit = s->needed.limit;
    bool fits = b->n < DTP_MAX_BUCKET && (group || bytes_of(s, unit) <= s->limit - b->bytes) &&
                (s->up ? s->bound[unit] < at->head : b->closes > u->tail);
    const int32_t peak = s->needed.peak_at;
    const bool past = !group && at->head <= peak && peak <= u->tail;
    s->needed.limit = group ? INT64_MAX : limit;
    if (s->up) {
        fits = fits && !(past && eases_peak(s, unit)) && hold(s, unit, at->head, u->tail);
    }
    for (int32_t k = b->first; k >= 0 && !s->up && fits; k = s->next[k]) {
        fits = !(past && eases_peak(s, k)) && hold(s, k, at->head, u->tail);
    }
    s->needed.limit = limit;
    if (fits) {
        b->n++;
        b->bytes += bytes_of(s, unit);
        b->place = s->up ? b->place : unit;
        b->closes = s->bound[unit] < b->closes ? s->bound[unit] : b->closes;
        s->bucket_of[unit] = id;
        s->next[b->last] = unit;
        b->last = unit;
    }
    return fits;
}

static void fill_buckets(sweep *s)
{
    for (int32_t unit = 0; unit < s->n_units; unit++) {
        s->bucket_of[unit] = s->next[unit] = -1;
        if (!may_join(s, unit)) {
            continue;
        }
        int32_t kind = s->n_kinds - 1;
        while (kind >= 0 && !alike(s, s->buckets[s->latest[kind]].place, unit)) {
            kind--;
        }
        if (kind < 0 || !join(s, s->latest[kind], unit)) {
            kind = kind < 0 ? s->n_kinds++ : kind;
            s->latest[kind] = s->bucket_of[unit] = s->n_buckets;
            s->buckets[s->n_buckets++] = (bucket){.n = 1,
                                                  .place = unit,
                                                  .closes = s->bound[unit],
                                                  .bytes = bytes_of(s, unit),
                                                  .first = unit,
                                                  .last = unit};
        }
    }
}

/* ---- the new list ---- */

static dtp_status fuse(const sweep *s, int32_t id, dtp_instr *to, int32_t *n_to, dtp_err *err)
{
    const bucket *b = &s->buckets[id];
    dtp_instr fused = *start_of(s, b->place);
    dtp_value_id *ids;
    dtp_coll *colls;
    int32_t m = 0, before = -1;
    DTP_TRY(dtp_program__alloc_ids(s->p, 2 * b->n, &ids, err));
    DTP_TRY(DTP_NEW(s->p->arena, colls, b->n, err));
    fused.coll.count = 0;
    fused.coll.in_outer = fused.coll.out_outer = 0;
    fused.coll.n_bucket = b->n;
    fused.coll.bucket = colls;
    fused.n_in = fused.n_out = b->n;
    fused.in = ids;
    fused.out = ids + b->n;
    for (int32_t unit = b->first; unit >= 0; unit = s->next[unit]) {
        const dtp_comm_unit *u = &s->units[unit];
        const dtp_instr *start = start_of(s, unit);
        for (int32_t i = u->head; i < u->start; i++) {
            to[(*n_to)++] = s->p->instrs[i];
        }
        ids[m] = start->in[0];
        ids[b->n + m] = start->out[0];
        fused.coll.count += start->coll.count;
        colls[m++] = start->coll;
    }
    to[(*n_to)++] = fused;
    /* Sums come last: what is unpacked stands together (spmd/program/program_check.h). */
    for (int32_t k = 0; k < 2 * b->n; k++) {
        const int32_t unit = k == 0 || k == b->n ? b->first : s->next[before];
        const dtp_comm_unit *u = &s->units[unit];
        for (int32_t i = u->start + 1; i <= u->tail; i++) {
            if (is_sum(&s->p->instrs[i]) == (k >= b->n)) {
                to[(*n_to)++] = s->p->instrs[i];
            }
        }
        before = unit;
    }
    return DTP_OK;
}

static dtp_status write_list(sweep *s, dtp_arena *scratch, dtp_err *err)
{
    const int32_t n = s->p->n_instrs;
    int32_t kept = 0;
    dtp_instr *list;
    DTP_TRY(DTP_NEW(scratch, list, n, err));
    for (int32_t i = 0; i < n; i++) {
        const int32_t unit = s->unit_of[i], id = unit >= 0 ? s->bucket_of[unit] : -1;
        if (id < 0 || s->buckets[id].n == 1) {
            list[kept++] = s->p->instrs[i];
        } else if (s->buckets[id].place == unit && i == s->units[unit].head) {
            DTP_TRY(fuse(s, id, list, &kept, err));
        }
    }
    for (int32_t i = 0; i < kept; i++) {
        s->p->instrs[i] = list[i];
    }
    s->p->n_instrs = kept;
    return DTP_OK;
}

/* Sums over microbatches go with the reductions of what they add. */
static void take_sums(sweep *s)
{
    const dtp_instr *instrs = s->p->instrs;
    for (int32_t unit = 0; unit < s->n_units; unit++) {
        dtp_comm_unit *u = &s->units[unit];
        for (int32_t i = u->tail + 1; i < s->p->n_instrs && i == u->tail + 1; i++) {
            const dtp_instr *sum = &instrs[i];
            bool adds = is_sum(sum) && dtp_instrs_alike(s->p, sum, &instrs[u->start]) &&
                        dtp_coll_reduces(instrs[u->start].coll.kind);
            for (int32_t k = 0; k < sum->n_in && adds; k++) {
                if (sum->in[k] == instrs[u->tail].out[0]) {
                    s->unit_of[i] = unit;
                    u->tail = i;
                    adds = false;
                }
            }
        }
    }
}

static dtp_mesh_set data_dims(const dtp_program *p)
{
    dtp_mesh_set data = 0;
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        for (int32_t m = 0; m < p->mesh.n_dims && p->values[v].kind == DTP_VALUE_INPUT; m++) {
            data |= p->values[v].layout.placement[m].kind == DTP_SHARD ? 1U << m : 0U;
        }
    }
    return data;
}

static dtp_status run_sweep(dtp_program *p, bool up, int64_t limit, const bool *grads,
                            dtp_arena *scratch, dtp_err *err)
{
    const int32_t n = p->n_instrs;
    sweep s = {.p = p, .up = up, .limit = limit, .grads = grads, .data = data_dims(p)};
    int32_t most = 0;
    DTP_TRY(DTP_NEW(scratch, s.units, n, err));
    DTP_TRY(DTP_NEW(scratch, s.unit_of, n, err));
    s.n_units = dtp_comm_units_find(p, p->instrs, n, true, s.units, s.unit_of);
    if (!up) {
        take_sums(&s);
    }
    DTP_TRY(dtp_needed_find(p, p->instrs, n, scratch, &s.needed, err));
    const int64_t slack = s.needed.peak / 100;
    s.needed.limit += slack < limit ? slack : limit;
    for (int32_t unit = 0; unit < s.n_units; unit++) {
        const int32_t size = s.units[unit].tail - s.units[unit].head + 1;
        most = size > most ? size : most;
    }
    DTP_TRY(DTP_NEW(scratch, s.roots, 3 * (size_t)most + 1, err)); /* a sum has two in, one out */
    DTP_TRY(DTP_NEW(scratch, s.bound, s.n_units, err));
    DTP_TRY(DTP_NEW(scratch, s.buckets, s.n_units, err));
    DTP_TRY(DTP_NEW(scratch, s.bucket_of, s.n_units, err));
    DTP_TRY(DTP_NEW(scratch, s.next, s.n_units, err));
    DTP_TRY(DTP_NEW(scratch, s.latest, s.n_units, err));
    DTP_TRY(find_bounds(&s, scratch, err));
    fill_buckets(&s);
    return write_list(&s, scratch, err);
}

dtp_status dtp_program__bucket(dtp_program *p, int64_t bytes, dtp_arena *scratch, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    bool *grads = NULL;
    if (p->target->fsdp) {
        DTP_TRY(DTP_NEW(scratch, grads, (size_t)g->n_tensors + 1, err));
        dtp_graph_mark_gradients(g, grads);
    }
    DTP_TRY(run_sweep(p, true, bytes, grads, scratch, err));
    return run_sweep(p, false, bytes, grads, scratch, err);
}
