/* Fewer all-reduces.
 *
 * Merging: when the only reader of an all-reduce's output is an all-reduce of the same kind over
 * other mesh dims, one all-reduce over all of them replaces both. It runs where the second one was.
 * (Within one redistribution the search already finds merged steps; this catches pairs that come
 * from a producer and its consumer.)
 *
 * Sinking: when every operand of an op that is linear in all of them together (add, sub) is the
 * output of an all-reduce(sum) over the same mesh dims, and nothing else reads these outputs, the
 * op runs on the partial values and its own output is all-reduced instead. One all-reduce remains
 * of several. Chains of sums collapse in one sweep, because the all-reduce left behind one sum is
 * an operand of the next.
 */
#include <string.h>

#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

static bool is_all_reduce(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_REDUCE;
}

/* Copies those of n instructions that are not dropped (collectives without operands); returns how
 * many. */
static int32_t keep_instrs(dtp_instr *to, const dtp_instr *from, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (from[i].kind != DTP_INSTR_START || from[i].n_in > 0) {
            to[kept++] = from[i];
        }
    }
    return kept;
}

/* ---- merging ---- */

/* The all-reduce whose output instruction i alone reads, if the two merge; -1 = none. */
static int32_t first_half(const dtp_program *p, const dtp_usage *u, int32_t i)
{
    const dtp_instr *b = &p->instrs[i];
    if (!is_all_reduce(b)) {
        return -1;
    }
    dtp_value_id v = b->in[0];
    if (u[v].written < 0 || u[v].reads != 1 || u[v].replicas != 0 || p->values[v].keep ||
        p->values[v].parent >= 0) {
        return -1;
    }
    const dtp_instr *a = &p->instrs[u[v].written];
    bool fits = is_all_reduce(a) && a->coll.op == b->coll.op && a->coll.dtype == b->coll.dtype &&
                a->coll.count == b->coll.count && (a->coll.set & b->coll.set) == 0;
    return fits ? u[v].written : -1;
}

dtp_status dtp_program__merge_collectives(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    int32_t merged = 0;
    dtp_usage *u;
    bool *gone;
    DTP_TRY(dtp_program__count_uses(p, scratch, &u, err));
    DTP_TRY(DTP_NEW(scratch, gone, p->n_values, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int32_t a = first_half(p, u, i);
        if (a < 0) {
            continue;
        }
        dtp_instr *second = &p->instrs[i], *first = &p->instrs[a];
        gone[second->in[0]] = true;
        second->coll.set |= first->coll.set;
        second->in = first->in;
        first->n_in = first->n_out = 0;
        merged++;
    }
    p->n_instrs = keep_instrs(p->instrs, p->instrs, p->n_instrs);
    return merged == 0 ? DTP_OK : dtp_program__remove_values(p, gone, scratch, err);
}

/* ---- sinking ---- */

typedef struct sinking {
    dtp_program *p;
    bool numbers; /* sums of one element alone */
    dtp_usage *usage;
    bool *gone;        /* by value: no longer used */
    int32_t *writer;   /* by value: the all-reduce in `instrs` that writes it, -1 = none */
    int32_t n;         /* of the new list */
    dtp_instr *instrs; /* n_in == 0 && kind COLLECTIVE: dropped */
} sinking;

/* The mesh dims over which all operands of the kernel are reduced just for it; 0 = it stays. */
static dtp_mesh_set common_set(const sinking *s, const dtp_instr *kernel)
{
    const dtp_value *out = &s->p->values[kernel->out[0]];
    dtp_mesh_set set = 0;
    if (kernel->kind != DTP_INSTR_KERNEL || kernel->op->linear != DTP_LINEAR_JOINT ||
        kernel->op->rules != NULL || kernel->n_out != 1 || kernel->n_in < 2 ||
        kernel->workspace >= 0 || !dtp_dtype_is_float(out->type.dtype) || out->parent >= 0 ||
        (s->numbers && out->type.rank > 0)) {
        return 0;
    }
    for (int32_t k = 0; k < kernel->n_in; k++) {
        dtp_value_id v = kernel->in[k];
        const dtp_instr *reduce = s->writer[v] >= 0 ? &s->instrs[s->writer[v]] : NULL;
        const dtp_value *value = &s->p->values[v];
        if (reduce == NULL || reduce->coll.op != DTP_REDUCE_SUM || s->usage[v].reads != 1 ||
            s->usage[v].replicas != 0 || value->keep || value->parent >= 0 ||
            (k > 0 && reduce->coll.set != set)) {
            return 0;
        }
        set = reduce->coll.set;
    }
    return set;
}

/* The kernel writes a partial value instead of its output, which is reduced from it. */
static dtp_status sink(sinking *s, dtp_instr kernel, dtp_mesh_set set, dtp_err *err)
{
    dtp_value_id *ids, partial, out = kernel.out[0];
    dtp_layout layout = s->p->values[out].layout;
    for (int32_t m = 0; m < layout.n_mesh && m < DTP_MAX_MESH_DIMS; m++) {
        if ((set >> m & 1U) != 0) {
            layout.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        }
    }
    DTP_TRY(dtp_program__add_version(s->p, out, &layout, &partial, err));
    DTP_TRY(dtp_program__alloc_ids(s->p, kernel.n_in + 3, &ids, err));
    dtp_instr reduce = s->instrs[s->writer[kernel.in[0]]];
    for (int32_t k = 0; k < kernel.n_in; k++) {
        dtp_instr *old = &s->instrs[s->writer[kernel.in[k]]];
        ids[k] = old->in[0];
        old->n_in = old->n_out = 0;
        s->gone[kernel.in[k]] = true;
    }
    ids[kernel.n_in] = ids[kernel.n_in + 1] = partial;
    ids[kernel.n_in + 2] = out;
    kernel.in = ids;
    kernel.out = &ids[kernel.n_in];
    reduce.node = kernel.node;
    reduce.phase = kernel.phase;
    reduce.in = &ids[kernel.n_in + 1];
    reduce.out = &ids[kernel.n_in + 2];
    reduce.coll.count = s->p->values[out].bytes / dtp_dtype_bytes(reduce.coll.dtype);
    s->instrs[s->n++] = kernel;
    s->writer[out] = s->n;
    s->instrs[s->n++] = reduce;
    return DTP_OK;
}

dtp_status dtp_program__sink_reductions(dtp_program *p, bool numbers, dtp_arena *scratch,
                                        dtp_err *err)
{
    const int32_t n_instrs = p->n_instrs, room = p->n_values + n_instrs;
    sinking s = {.p = p, .numbers = numbers};
    int32_t sunk = 0;
    DTP_TRY(dtp_program__count_uses(p, scratch, &s.usage, err));
    DTP_TRY(DTP_NEW(scratch, s.gone, room, err));
    DTP_TRY(DTP_NEW(scratch, s.writer, room, err));
    DTP_TRY(DTP_NEW(scratch, s.instrs, 2 * n_instrs, err));
    for (int32_t v = 0; v < room; v++) {
        s.writer[v] = -1;
    }
    for (int32_t i = 0; i < n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        dtp_mesh_set set = instr->n_out == 1 ? common_set(&s, instr) : 0;
        if (set != 0) {
            DTP_TRY(sink(&s, *instr, set, err));
            sunk++;
            continue;
        }
        if (instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_REDUCE) {
            s.writer[instr->out[0]] = s.n;
        }
        s.instrs[s.n++] = *instr;
    }
    if (sunk == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(p->arena, &p->instrs, n_instrs, s.n, &p->cap_instrs, sizeof *p->instrs,
                           err));
    p->n_instrs = keep_instrs(p->instrs, s.instrs, s.n);
    return dtp_program__remove_values(p, s.gone, scratch, err);
}
