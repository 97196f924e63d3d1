/* Moves all-reduces behind sums: when every operand of an op that is linear in all of them together
 * (add, sub) is the output of an all-reduce(sum) over the same mesh dims, and nothing else reads
 * these outputs, the op runs on the partial values and its own output is all-reduced instead. One
 * all-reduce remains of several. Chains of sums collapse in one sweep, because the all-reduce left
 * behind one sum is an operand of the next.
 */
#include <stdlib.h>
#include <string.h>

#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

typedef struct sinking {
    dtp_program *p;
    dtp_usage *usage;
    bool *gone;        /* by value: no longer used */
    int32_t *writer;   /* by value: the all-reduce in `instrs` that writes it, -1 = none */
    int32_t n;         /* of the new list */
    dtp_instr *instrs; /* n_in == 0 && kind COLLECTIVE: dropped */
    int32_t room;      /* values that the tables have room for */
} sinking;

static const dtp_instr *all_reduce_of(const sinking *s, dtp_value_id v)
{
    return s->writer[v] >= 0 ? &s->instrs[s->writer[v]] : NULL;
}

/* The mesh dims over which all operands of the kernel are reduced just for it; 0 = it stays. */
static dtp_mesh_set common_set(const sinking *s, const dtp_instr *kernel)
{
    const dtp_value *out = &s->p->values[kernel->out[0]];
    dtp_mesh_set set = 0;
    if (kernel->kind != DTP_INSTR_KERNEL || kernel->op->linear != DTP_LINEAR_JOINT ||
        kernel->op->rules != NULL || kernel->n_out != 1 || kernel->n_in < 2 ||
        kernel->workspace >= 0 || !dtp_dtype_is_float(out->type.dtype) || out->parent >= 0) {
        return 0;
    }
    for (int32_t k = 0; k < kernel->n_in; k++) {
        dtp_value_id v = kernel->in[k];
        const dtp_instr *reduce = all_reduce_of(s, v);
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

/* The partial value that the kernel writes instead of its output. */
static dtp_status add_partial(sinking *s, dtp_value_id of, dtp_mesh_set set, dtp_value_id *out,
                              dtp_err *err)
{
    dtp_value v = s->p->values[of];
    dtp_layout layout = v.layout;
    for (int32_t m = 0; m < layout.n_mesh && m < DTP_MAX_MESH_DIMS; m++) {
        if ((set >> m & 1U) != 0) {
            layout.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        }
    }
    return dtp_program__add_version(s->p, of, &layout, out, err);
}

static dtp_status sink(sinking *s, dtp_instr kernel, dtp_mesh_set set, dtp_err *err)
{
    dtp_value_id *ids, partial, out = kernel.out[0];
    DTP_TRY(add_partial(s, out, set, &partial, err));
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

static dtp_status sweep(sinking *s, dtp_err *err)
{
    dtp_program *p = s->p;
    int32_t sunk = 0, kept = 0;
    dtp_program__count_uses(p, s->usage);
    for (int32_t v = 0; v < s->room; v++) {
        s->writer[v] = -1;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        dtp_mesh_set set = instr->n_out == 1 ? common_set(s, instr) : 0;
        if (set != 0) {
            DTP_TRY(sink(s, *instr, set, err));
            sunk++;
            continue;
        }
        if (instr->kind == DTP_INSTR_COLLECTIVE && instr->coll.kind == DTP_ALL_REDUCE) {
            s->writer[instr->out[0]] = s->n;
        }
        s->instrs[s->n++] = *instr;
    }
    if (sunk == 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < s->n; i++) {
        if (s->instrs[i].kind != DTP_INSTR_COLLECTIVE || s->instrs[i].n_in > 0) {
            s->instrs[kept++] = s->instrs[i];
        }
    }
    DTP_TRY(dtp_arena_grow(p->arena, &p->instrs, p->n_instrs, kept, &p->cap_instrs,
                           sizeof *p->instrs, err));
    memcpy(p->instrs, s->instrs, (size_t)kept * sizeof *p->instrs);
    p->n_instrs = kept;
    return dtp_program__remove_values(p, s->gone, err);
}

dtp_status dtp_program__sink_reductions(dtp_program *p, dtp_err *err)
{
    sinking s = {.p = p, .room = p->n_values + p->n_instrs + 1};
    s.usage = calloc((size_t)s.room, sizeof *s.usage);
    s.gone = calloc((size_t)s.room, sizeof *s.gone);
    s.writer = calloc((size_t)s.room, sizeof *s.writer);
    s.instrs = calloc(2 * (size_t)p->n_instrs + 1, sizeof *s.instrs);
    bool ok = s.usage != NULL && s.gone != NULL && s.writer != NULL && s.instrs != NULL;
    dtp_status status =
        ok ? sweep(&s, err) : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d values", p->n_values);
    free(s.usage);
    free(s.gone);
    free(s.writer);
    free(s.instrs);
    return status;
}
