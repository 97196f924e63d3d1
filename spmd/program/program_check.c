/* The independent check of a program. It shares nothing with the lowering but the layout functions
 * and works in three parts:
 *
 *  - every value and every instruction by itself: ids, layouts, sizes, counts, and what each step
 *    means for the layouts of its operands;
 *  - kernels of one launch do not touch what another one of them writes;
 *  - a run over memory: it keeps, for every value, whether its bytes in the arena still hold its
 *    contents. Writing a value makes all others invalid whose bytes it overlaps (those it shares a
 *    buffer with included); reading an invalid value is an error. This covers definitions before
 *    uses, buffers that overlap while live, and in-place writes over something still needed. What a
 *    collective writes is pending from its START to its WAIT: only other STARTs may read it; and at
 *    the WAIT its operands must still be there. Of several microbatches two are run, the second one
 *    without what runs once, from what the first one left of parameters, sums and what runs once;
 *  - what must hold at the end: kept values intact, every updated parameter in its place.
 *
 * Of a stage sections alternate with those of other microbatches. It is enough that one microbatch
 * is right: sections do not mix, what lives between them lies in the slots and nothing else does.
 *
 * Buffers of the caller (external values) have no place in the arena; for the run over memory they
 * lie behind it, each by itself.
 */
#include <string.h>

#include "core/base/safe_int.h"
#include "core/transform/microbatch.h"
#include "core/transform/stages.h"
#include "spmd/program/program_check.h"
#include "spmd/program/program_check_ranges.h"

enum { ALIGNMENT = 64 };

typedef struct checker {
    const dtp_program *p;
    bool *valid;   /* by value: the arena holds what was written to it (or fed) */
    bool *written; /* by value: some instruction writes it */
    bool *pending; /* by value: a result of a collective that is not waited for yet */
    bool *once;    /* by value: what writes it runs once for all microbatches */
    bool *changes; /* by root: a microbatch writes into it */
    bool again;    /* this is not the first microbatch */
    int64_t *at;   /* by value: its first byte */
    int32_t n_active;
    dtp_value_id *active; /* the valid values by offset; their bytes are disjoint */
} checker;

/* ---- values ---- */

static dtp_value_id root_of(const dtp_program *p, dtp_value_id v)
{
    while (p->values[v].parent >= 0) {
        v = p->values[v].parent;
    }
    return v;
}

/* A value of the caller: no offset, in a buffer of the caller, inside its parent, and an operand of
 * the call is not written. */
static dtp_status check_external(const checker *c, dtp_value_id id, dtp_err *err)
{
    const dtp_program *p = c->p;
    const dtp_value *v = &p->values[id], *up = v->parent >= 0 ? &p->values[v->parent] : NULL;
    const dtp_value *root = &p->values[root_of(p, id)];
    if (!v->external || !root->external || v->offset >= 0 || v->kind == DTP_VALUE_RESIDENT ||
        v->kind == DTP_VALUE_WORKSPACE) {
        return DTP_FAIL(err, DTP_INTERNAL, "in part in a buffer of the caller");
    }
    if (up != NULL && v->bytes > up->bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld bytes do not lie inside '%s' (%lld)",
                        (long long)v->bytes, up->name, (long long)up->bytes);
    }
    return root->kind == DTP_VALUE_INPUT && c->written[id]
               ? DTP_FAIL(err, DTP_INTERNAL, "written into '%s', an input of the caller",
                          root->name)
               : DTP_OK;
}

static dtp_status check_place(const dtp_program *p, const dtp_value *v, dtp_err *err)
{
    if (v->offset < 0 || v->offset > p->peak_bytes - v->bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld bytes at %lld do not fit into %lld",
                        (long long)v->bytes, (long long)v->offset, (long long)p->peak_bytes);
    }
    if (v->parent < 0) {
        return v->offset % ALIGNMENT == 0
                   ? DTP_OK
                   : DTP_FAIL(err, DTP_INTERNAL, "offset %lld is not aligned",
                              (long long)v->offset);
    }
    const dtp_value *up = &p->values[v->parent];
    if (v->offset != up->offset || v->bytes > up->bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "%lld bytes at %lld do not lie inside '%s' (%lld at "
                        "%lld)",
                        (long long)v->bytes, (long long)v->offset, up->name, (long long)up->bytes,
                        (long long)up->offset);
    }
    return DTP_OK;
}

static dtp_status check_type(const dtp_program *p, const dtp_value *v, dtp_err *err)
{
    dtp_ttype local;
    if (v->type.dtype < 0 || v->type.dtype > DTP_F8 || v->type.rank < 0 ||
        v->type.rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INTERNAL, "no such type");
    }
    DTP_TRY(dtp_layout_check(&v->layout, &p->mesh, &v->type, err));
    DTP_TRY(dtp_check__value_ranges(p, v, err));
    dtp_value_local(p, (dtp_value_id)(v - p->values), DTP_ANY_RANK, &local, NULL);
    if (v->bytes != dtp_ttype_bytes(&local)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%lld bytes, but its largest shard has %lld",
                        (long long)v->bytes, (long long)dtp_ttype_bytes(&local));
    }
    for (int32_t m = 0; dtp_check__is_flat(v) && m < p->mesh.n_dims; m++) {
        if (v->layout.placement[m].kind != DTP_REPLICATE) {
            return DTP_FAIL(err, DTP_INTERNAL, "a flat buffer that is split");
        }
    }
    const bool known = v->tensor >= -1 && v->tensor < p->graph->n_tensors;
    const dtp_ttype type =
        known && v->tensor >= 0 ? dtp_target_type(p->target, p->graph, v->tensor) : v->type;
    return known && dtp_ttype_equal(&v->type, &type)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "not of the type of its tensor %d", v->tensor);
}

static dtp_status check_value(const checker *c, dtp_value_id id, dtp_err *err)
{
    const dtp_program *p = c->p;
    const dtp_value *v = &p->values[id];
    /* Follows parents at most n_values times, so that a cycle is found. */
    int32_t steps = 0;
    for (dtp_value_id up = id; up >= 0; up = p->values[up].parent) {
        if (up >= p->n_values || steps++ > p->n_values) {
            return DTP_FAIL(err, DTP_INTERNAL, "its parents do not end");
        }
    }
    DTP_TRY(check_type(p, v, err));
    bool external = v->external || p->values[root_of(p, id)].external;
    DTP_TRY(external ? check_external(c, id, err) : check_place(p, v, err));
    bool source = v->kind == DTP_VALUE_RESIDENT || v->kind == DTP_VALUE_INPUT;
    if (source && (c->written[id] || v->parent >= 0)) {
        return DTP_FAIL(err, DTP_INTERNAL, "a parameter or input that is written by the program");
    }
    bool lives =
        v->first >= 0 && v->first <= v->last && v->last < (p->n_instrs > 0 ? p->n_instrs : 1);
    return lives ? DTP_OK
                 : DTP_FAIL(err, DTP_INTERNAL, "live from %d to %d of %d instructions", v->first,
                            v->last, p->n_instrs);
}

/* ---- sections and slots of a stage ---- */

static dtp_status check_slot(const dtp_program *p, dtp_value_id id, int32_t back, dtp_err *err)
{
    const dtp_value *v = &p->values[id], *root = &p->values[root_of(p, id)];
    const int64_t end = p->slots_at + p->slot_bytes, all = p->slots_at + p->slots * p->slot_bytes;
    const bool body = v->first < dtp_program_body(p);
    const bool stays = root->kind == DTP_VALUE_RESIDENT || root->once;
    const bool crosses = v->first < back && v->last >= back;
    const bool received = v->kind == DTP_VALUE_INPUT && v->tensor >= 0 &&
                          p->graph->tensors[v->tensor].kind == DTP_TENSOR_VALUE;
    if (v->in_slot ? v->offset < p->slots_at || v->offset > end - v->bytes
                   : v->bytes > 0 && v->offset < all && v->offset > p->slots_at - v->bytes) {
        return DTP_FAIL(err, DTP_INTERNAL,
                        "%lld bytes at %lld, slots lie at %lld, %d of %lld bytes",
                        (long long)v->bytes, (long long)v->offset, (long long)p->slots_at, p->slots,
                        (long long)p->slot_bytes);
    }
    return v->in_slot || stays || !body || !(crosses || received || v->sent > 0)
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "it outlives its section outside of the slots");
}

static dtp_status check_sections(const dtp_program *p, dtp_err *err)
{
    const int32_t back = dtp_section_begin(p, p->instrs, p->n_instrs, DTP_SECTION_BACKWARD);
    int64_t all;
    if (p->graph->stages == NULL) {
        return DTP_OK;
    }
    if (p->slots < 1 || p->slot_bytes < 0 || p->slot_bytes % ALIGNMENT != 0 ||
        !dtp_mul_i64(p->slots, p->slot_bytes, &all) || p->slots_at < 0 ||
        p->slots_at > p->peak_bytes - all) {
        return DTP_FAIL(err, DTP_INTERNAL, "program: %d slots of %lld bytes do not fit", p->slots,
                        (long long)p->slot_bytes);
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const int32_t section = dtp_instr_section(p, instr);
        const bool pair = instr->kind == DTP_INSTR_START || instr->kind == DTP_INSTR_WAIT;
        if ((i > 0 && section < dtp_instr_section(p, instr - 1)) ||
            (pair && (instr->pair < 0 || instr->pair >= p->n_instrs ||
                      dtp_instr_section(p, &p->instrs[instr->pair]) != section)) ||
            (instr->joined && (i == 0 || dtp_instr_section(p, instr - 1) != section))) {
            return DTP_FAIL(err, DTP_INTERNAL, "program: instruction %d leaves its section", i);
        }
        for (int32_t k = 0; k < instr->n_in; k++) {
            if (p->values[instr->in[k]].arrives > section) {
                return DTP_FAIL(err, DTP_INTERNAL,
                                "program: instruction %d reads '%s' before it arrives", i,
                                p->values[instr->in[k]].name);
            }
        }
    }
    for (dtp_value_id v = 0; v < p->n_values; v++) {
        DTP_TRY(dtp_err_prefixed(check_slot(p, v, back, err), err, "program: value %d '%s'", v,
                                 p->values[v].name));
    }
    return DTP_OK;
}

/* Whether the chunk has the tensor itself, and not a copy. */
static bool is_at_home(const dtp_program *p, dtp_tensor_id t)
{
    return p->graph->stages == NULL || p->graph->stages->home[t] == p->chunk;
}

/* ---- the run over memory ---- */

static int64_t end_of(const checker *c, dtp_value_id v)
{
    return c->at[v] + c->p->values[v].bytes;
}

static bool overlap(const checker *c, dtp_value_id a, dtp_value_id b)
{
    return c->at[a] < end_of(c, b) && c->at[b] < end_of(c, a);
}

/* Whether the bytes of v still hold its contents; a view's contents are its parent's. */
static bool is_valid(const checker *c, dtp_value_id v)
{
    while (v >= 0 && !c->valid[v] && !c->written[v]) {
        v = c->p->values[v].parent;
    }
    return v >= 0 && c->valid[v];
}

/* Whether a collective under way writes v. */
static bool is_pending(const checker *c, dtp_value_id v)
{
    while (c->p->values[v].parent >= 0 && !c->written[v]) {
        v = c->p->values[v].parent;
    }
    return c->pending[v];
}

/* First place in `active` whose value ends after `offset`. */
static int32_t find_active(const checker *c, int64_t offset)
{
    int32_t low = 0, high = c->n_active;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (end_of(c, c->active[middle]) <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Writes the bytes of v at instruction i: what lay there is gone. The old contents must be dead,
 * except that an update may replace the parameter whose buffer it shares. */
static dtp_status write_value(checker *c, dtp_value_id v, int32_t i, bool stays, dtp_err *err)
{
    const dtp_program *p = c->p;
    const dtp_value *value = &p->values[v];
    int32_t from = find_active(c, c->at[v]), to = from;
    while (to < c->n_active && c->at[c->active[to]] < end_of(c, v)) {
        dtp_value_id old = c->active[to++];
        bool replaced = p->values[old].kind == DTP_VALUE_RESIDENT && root_of(p, v) == old;
        if (p->values[old].last > i && !replaced && !(c->again && c->once[old])) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' overwrites '%s', which is live until %d",
                            value->name, p->values[old].name, p->values[old].last);
        }
        c->valid[old] = false;
    }
    int32_t keep = stays ? 1 : 0;
    memmove(&c->active[from + keep], &c->active[to],
            (size_t)(c->n_active - to) * sizeof *c->active);
    c->n_active += keep - (to - from);
    if (stays) {
        c->active[from] = v;
        c->valid[v] = true;
    }
    return DTP_OK;
}

static dtp_status check_reads(const checker *c, int32_t i, dtp_err *err)
{
    const dtp_instr *instr = &c->p->instrs[i];
    const bool compute = instr->kind == DTP_INSTR_KERNEL || instr->kind == DTP_INSTR_COPY;
    for (int32_t k = 0; k < instr->n_in; k++) {
        const dtp_value *v = &c->p->values[instr->in[k]];
        if (!is_valid(c, instr->in[k])) {
            return DTP_FAIL(err, DTP_INTERNAL, "it reads '%s', which is not there", v->name);
        }
        if (compute && is_pending(c, instr->in[k])) {
            return DTP_FAIL(err, DTP_INTERNAL, "it reads '%s' before the WAIT for it", v->name);
        }
        if (i < v->first || i > v->last) {
            return DTP_FAIL(err, DTP_INTERNAL, "it reads '%s', which is live from %d to %d",
                            v->name, v->first, v->last);
        }
    }
    return DTP_OK;
}

static dtp_status check_sharing(const checker *c, const dtp_instr *instr, int32_t o, dtp_err *err)
{
    const dtp_program *p = c->p;
    const dtp_value *out = &p->values[instr->out[o]];
    bool reduces = instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_REDUCE;
    /* which operand the output may overwrite; -1 = none */
    int32_t may = instr->kind == DTP_INSTR_KERNEL ? instr->op->inplace_in[o] - 1 : reduces ? o : -1;
    may = may < instr->n_in ? may : -1;
    for (int32_t k = 0; k < instr->n_in; k++) {
        const dtp_value *in = &p->values[instr->in[k]];
        bool allowed = may >= 0 && instr->in[k] == instr->in[may] &&
                       c->at[instr->in[k]] == c->at[instr->out[o]] &&
                       root_of(p, instr->in[k]) == root_of(p, instr->out[o]);
        bool meet = overlap(c, instr->in[k], instr->out[o]);
        if (meet && !allowed) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' overwrites operand '%s'", out->name, in->name);
        }
        if (meet && allowed && in->bytes != out->bytes) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' takes the buffer of '%s' but not its size",
                            out->name, in->name);
        }
    }
    return DTP_OK;
}

static bool any_overlap(const checker *c, int32_t n, const dtp_value_id *a, int32_t m,
                        const dtp_value_id *b)
{
    bool found = false;
    for (int32_t k = 0; k < n * m; k++) {
        found = found || overlap(c, a[k / m], b[k % m]);
    }
    return found;
}

/* Kernels of one launch are updates whose results lie in their operands. */
static bool may_join(const dtp_program *p, const dtp_instr *instr)
{
    bool may = instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_UPDATE) != 0 &&
               instr->workspace < 0;
    for (int32_t o = 0; may && o < instr->n_out; o++) {
        const int32_t j = instr->op->inplace_in[o] - 1;
        may = j >= 0 && j < instr->n_in && root_of(p, instr->out[o]) == root_of(p, instr->in[j]);
    }
    return may;
}

static dtp_status check_joined(const checker *c, int32_t i, dtp_err *err)
{
    const dtp_instr *instrs = c->p->instrs, *instr = &instrs[i];
    int32_t before = i;
    do {
        before--;
        const dtp_instr *other = before >= 0 ? &instrs[before] : NULL;
        if (other == NULL || i - before >= c->p->target->join || other->phase != instr->phase ||
            !may_join(c->p, instr) || !may_join(c->p, other)) {
            return DTP_FAIL(err, DTP_INTERNAL, "it cannot run in the launch before it");
        }
        if (any_overlap(c, instr->n_in, instr->in, other->n_out, other->out) ||
            any_overlap(c, other->n_in, other->in, instr->n_out, instr->out)) {
            return DTP_FAIL(err, DTP_INTERNAL, "it needs instruction %d, of the same launch",
                            before);
        }
    } while (instrs[before].joined);
    return DTP_OK;
}

/* What runs once for all microbatches is part of one, and reads what is the same in each. */
static dtp_status check_once(const checker *c, int32_t i, dtp_err *err)
{
    const dtp_program *p = c->p;
    const dtp_instr *instr = &p->instrs[i];
    bool fits = dtp_program_microbatches(p) > 1 && instr->phase != DTP_UPDATE && !instr->joined;
    if (instr->kind == DTP_INSTR_WAIT || instr->kind == DTP_INSTR_START) {
        const bool paired = instr->pair >= 0 && instr->pair < p->n_instrs;
        fits = fits && paired && p->instrs[instr->pair].once;
    }
    for (int32_t k = 0; k < instr->n_in && fits; k++) {
        dtp_value_id v = instr->in[k];
        while (!c->written[v] && p->values[v].parent >= 0) {
            v = p->values[v].parent;
        }
        fits = c->once[v] || (p->values[v].kind == DTP_VALUE_RESIDENT && !c->changes[v]);
    }
    return fits ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "it cannot run once for all microbatches");
}

static dtp_status run_instr(checker *c, int32_t i, dtp_err *err)
{
    const dtp_instr *instr = &c->p->instrs[i];
    DTP_TRY(check_reads(c, i, err));
    if (instr->workspace >= 0) {
        DTP_TRY(write_value(c, instr->workspace, i, false, err));
        DTP_TRY(check_reads(c, i, err));
        for (int32_t o = 0; o < instr->n_out; o++) {
            if (overlap(c, instr->workspace, instr->out[o])) {
                return DTP_FAIL(err, DTP_INTERNAL, "its workspace overlaps its result '%s'",
                                c->p->values[instr->out[o]].name);
            }
        }
    }
    for (int32_t o = 0; o < instr->n_out; o++) {
        DTP_TRY(check_sharing(c, instr, o, err));
    }
    for (int32_t o = 0; o < instr->n_out; o++) {
        dtp_value_id v = instr->out[o];
        if (c->p->values[v].first != i && !(instr->once && c->p->values[v].first == 0)) {
            return DTP_FAIL(err, DTP_INTERNAL, "it writes '%s', which is live from %d",
                            c->p->values[v].name, c->p->values[v].first);
        }
        DTP_TRY(write_value(c, v, i, true, err));
    }
    const dtp_instr *start = instr->kind == DTP_INSTR_WAIT ? &c->p->instrs[instr->pair] : instr;
    for (int32_t o = 0; o < start->n_out; o++) {
        c->pending[start->out[o]] = instr->kind == DTP_INSTR_START;
    }
    for (int32_t o = 0; o < instr->n_out; o++) {
        if (!is_valid(c, instr->out[o])) {
            return DTP_FAIL(err, DTP_INTERNAL, "its result '%s' is overwritten by another",
                            c->p->values[instr->out[o]].name);
        }
    }
    return DTP_OK;
}

/* Inputs come at the begin of their section, before instruction i; what arrives during the update
 * may come at its begin. */
static dtp_status arrive(checker *c, int32_t i, dtp_err *err)
{
    const dtp_program *p = c->p;
    const int32_t before = i > 0 ? dtp_instr_section(p, &p->instrs[i - 1]) : -1;
    const int32_t now = i > 0 ? dtp_instr_section(p, &p->instrs[i]) : 0;
    for (dtp_value_id v = 0; v < p->n_values && before < now; v++) {
        const int32_t arrives = p->values[v].arrives;
        const int32_t at = arrives < DTP_SECTION_UPDATE ? arrives : DTP_SECTION_UPDATE;
        if (p->values[v].kind == DTP_VALUE_INPUT && before < at && at <= now) {
            DTP_TRY(write_value(c, v, i - 1, true, err));
        }
    }
    return DTP_OK;
}

/* What the next microbatch finds: parameters and states, sums where they are added up, what runs
 * once, and other inputs. */
static dtp_status next_microbatch(checker *c, dtp_err *err)
{
    const dtp_program *p = c->p;
    int32_t kept = 0;
    for (int32_t u = 0; u < p->n_updates; u++) {
        const dtp_tensor_id t = p->values[p->updates[u].value].tensor;
        if (t >= 0 && dtp_microbatch_changes(p->graph, t) && is_valid(c, p->updates[u].value)) {
            DTP_TRY(write_value(c, p->updates[u].target, p->n_instrs, true, err));
        }
    }
    for (int32_t k = 0; k < c->n_active; k++) {
        const dtp_value_id v = c->active[k];
        c->valid[v] = p->values[v].kind == DTP_VALUE_RESIDENT || c->once[v];
        if (c->valid[v]) {
            c->active[kept++] = v;
        }
    }
    c->n_active = kept;
    c->again = true;
    for (int32_t v = 0; v < p->n_values; v++) {
        c->pending[v] = false;
    }
    return arrive(c, 0, err);
}

/* ---- the end ---- */

static dtp_status check_updates(const checker *c, dtp_err *err)
{
    const dtp_program *p = c->p;
    for (int32_t k = 0; k < p->graph->n_updates; k++) {
        dtp_value_id target = -1, value = -1;
        for (int32_t u = 0; u < p->n_updates; u++) {
            target = p->updates[u].target;
            value = p->updates[u].value;
            if (target < 0 || target >= p->n_values || value < 0 || value >= p->n_values) {
                return DTP_FAIL(err, DTP_INTERNAL, "update %d names no values", u);
            }
            if (p->values[target].tensor == p->graph->updates[k].target) {
                break;
            }
            target = -1;
        }
        if (!is_at_home(p, p->graph->updates[k].target)) {
            continue;
        }
        const char *name = p->graph->tensors[p->graph->updates[k].target].name;
        if (target < 0 || p->values[target].kind != DTP_VALUE_RESIDENT) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' is not updated", name);
        }
        if (root_of(p, value) != target || p->values[value].offset != p->values[target].offset ||
            p->values[value].tensor != p->graph->updates[k].value ||
            !dtp_layout_equal(&p->values[value].layout, &p->values[target].layout) ||
            !is_valid(c, value)) {
            return DTP_FAIL(err, DTP_INTERNAL, "the update of '%s' does not reach its buffer",
                            name);
        }
    }
    return DTP_OK;
}

static dtp_status check_kept(const checker *c, dtp_tensor_id t, dtp_err *err)
{
    dtp_value_id v = c->p->tensor_value[t];
    if (!is_at_home(c->p, t)) {
        return DTP_OK;
    }
    if (v < 0 || v >= c->p->n_values || !c->p->values[v].keep || c->p->values[v].tensor != t) {
        return DTP_FAIL(err, DTP_INTERNAL, "result '%s' is not kept", c->p->graph->tensors[t].name);
    }
    return DTP_OK;
}

static dtp_status check_end(const checker *c, dtp_err *err)
{
    const dtp_program *p = c->p;
    DTP_TRY(check_updates(c, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        bool stays = value->kind == DTP_VALUE_RESIDENT;
        for (int32_t u = 0; u < p->n_updates && stays; u++) {
            stays = p->updates[u].target != v;
        }
        stays = stays || (value->kind != DTP_VALUE_RESIDENT && value->keep && value->sent == 0);
        if (stays && !is_valid(c, v)) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' must survive the step but is overwritten",
                            value->name);
        }
    }
    if (p->graph->loss >= 0) {
        DTP_TRY(check_kept(c, p->graph->loss, err));
    }
    for (int32_t i = 0; i < p->graph->n_outputs; i++) {
        DTP_TRY(check_kept(c, p->graph->outputs[i], err));
    }
    return DTP_OK;
}

/* ---- entry ---- */

static bool ids_in_range(const dtp_program *p, const dtp_value_id *ids, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        if (ids[k] < 0 || ids[k] >= p->n_values) {
            return false;
        }
    }
    return n >= 0;
}

static dtp_status check_ids(checker *c, int32_t i, dtp_err *err)
{
    const dtp_instr *instr = &c->p->instrs[i];
    bool kernel = instr->kind == DTP_INSTR_KERNEL;
    if (!ids_in_range(c->p, instr->in, instr->n_in) ||
        !ids_in_range(c->p, instr->out, instr->n_out) || instr->workspace >= c->p->n_values ||
        (kernel && (instr->n_in > DTP_MAX_OP_IN || instr->n_out > DTP_MAX_OP_OUT))) {
        return DTP_FAIL(err, DTP_INTERNAL, "operands that are no values");
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        if (c->written[instr->out[k]]) {
            return DTP_FAIL(err, DTP_INTERNAL, "'%s' is written twice",
                            c->p->values[instr->out[k]].name);
        }
        c->written[instr->out[k]] = true;
        c->once[instr->out[k]] = instr->once;
    }
    return DTP_OK;
}

static dtp_status in_instr(const dtp_program *p, int32_t i, dtp_status status, dtp_err *err)
{
    if (status != DTP_OK) {
        const dtp_instr *instr = &p->instrs[i];
        bool named = instr->node >= 0 && instr->node < p->graph->n_nodes;
        dtp_err_prefix(err, "program: instruction %d (%s)", i,
                       named ? p->graph->nodes[instr->node].name : "-");
    }
    return status;
}

/* What runs for every microbatch comes before what runs after the last one. */
static dtp_status check_parts(checker *c, dtp_err *err)
{
    const dtp_program *p = c->p;
    const bool several = dtp_program_microbatches(p) > 1;
    const int32_t body = several ? dtp_program_body(p) : 0;
    for (int32_t i = 0; i < body; i++) {
        if (p->instrs[i].phase == DTP_UPDATE) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "instruction %d of phase update comes before others of a microbatch",
                            i);
        }
        for (int32_t k = 0; k < p->instrs[i].n_out; k++) {
            c->changes[root_of(p, p->instrs[i].out[k])] = true;
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        DTP_TRY(in_instr(p, i, p->instrs[i].once ? check_once(c, i, err) : DTP_OK, err));
    }
    return DTP_OK;
}

static dtp_status run_all(checker *c, dtp_err *err)
{
    const dtp_program *p = c->p;
    const int32_t body = dtp_program_body(p);
    for (int32_t i = 0; i < body; i++) {
        DTP_TRY(i > 0 ? arrive(c, i, err) : DTP_OK);
        DTP_TRY(in_instr(p, i, dtp_check__instr(p, i, err), err));
        DTP_TRY(in_instr(p, i, run_instr(c, i, err), err));
        const int32_t now = dtp_instr_section(p, &p->instrs[i]);
        const bool ends = i + 1 == body || dtp_instr_section(p, &p->instrs[i + 1]) != now;
        for (dtp_value_id v = 0; v < p->n_values && ends; v++) {
            if (p->values[v].sent == now + 1 && !is_valid(c, v)) {
                return DTP_FAIL(err, DTP_INTERNAL, "program: '%s' is overwritten before it is sent",
                                p->values[v].name);
            }
        }
    }
    DTP_TRY(dtp_program_microbatches(p) > 1 ? next_microbatch(c, err) : DTP_OK);
    for (int32_t i = 0; i < body && dtp_program_microbatches(p) > 1; i++) {
        DTP_TRY(i > 0 ? arrive(c, i, err) : DTP_OK);
        DTP_TRY(in_instr(p, i, p->instrs[i].once ? DTP_OK : run_instr(c, i, err), err));
    }
    for (int32_t i = body; i < p->n_instrs; i++) {
        DTP_TRY(i > 0 ? arrive(c, i, err) : DTP_OK);
        DTP_TRY(in_instr(p, i, dtp_check__instr(p, i, err), err));
        DTP_TRY(in_instr(p, i, run_instr(c, i, err), err));
    }
    DTP_TRY(check_parts(c, err));
    return check_end(c, err);
}

static dtp_status check(checker *c, dtp_arena *arena, dtp_err *err)
{
    const dtp_program *p = c->p;
    DTP_TRY(DTP_NEW(arena, c->valid, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->written, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->pending, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->once, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->changes, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->at, p->n_values, err));
    DTP_TRY(DTP_NEW(arena, c->active, p->n_values, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        DTP_TRY(in_instr(p, i, check_ids(c, i, err), err));
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        DTP_TRY(dtp_err_prefixed(check_value(c, v, err), err, "program: value %d '%s'", v,
                                 p->values[v].name));
    }
    DTP_TRY(check_sections(p, err));
    int64_t behind = p->peak_bytes;
    for (int32_t v = 0; v < p->n_values; v++) {
        c->at[v] = p->values[v].external ? behind : p->values[v].offset;
        if (p->values[v].external && p->values[v].parent < 0 &&
            !dtp_add_i64(behind, p->values[v].bytes, &behind)) {
            return DTP_FAIL(err, DTP_RANGE, "program: the caller's buffers exceed 2^63 bytes");
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].external && p->values[v].parent >= 0) {
            c->at[v] = c->at[root_of(p, v)];
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].kind == DTP_VALUE_RESIDENT) {
            DTP_TRY(write_value(c, v, -1, true, err));
        }
    }
    DTP_TRY(arrive(c, 0, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        DTP_TRY(in_instr(p, i, p->instrs[i].joined ? check_joined(c, i, err) : DTP_OK, err));
    }
    return run_all(c, err);
}

dtp_status dtp_program_check(const dtp_program *p, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    checker c = {.p = p};
    const dtp_status status = check(&c, arena, err);
    dtp_arena_destroy(arena);
    return status;
}
