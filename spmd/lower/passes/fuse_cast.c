/* Results of 16 bits that are only cast to f32 are made in f32: ops with the attribute "result"
 * (sums, products, gradients of norms and of look-ups) add up in f32 anyway, so a kernel and a
 * rounding go.
 *
 * The result is larger and lives from the op on, not from the cast. That must not raise the bytes
 * that the program needs at its peak; so it runs where it is settled which values share a buffer.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/needed.h"
#include "spmd/program/program_internal.h"

enum { ATTRS = 24 };

typedef struct caster {
    dtp_program *p;
    dtp_usage *usage;
    int32_t *last_read;
    dtp_needed needed;
    bool *gone, *removed; /* by value; by instruction */
} caster;

/* The cast that alone reads what instruction i gives; -1 = none. */
static int32_t find_cast(const caster *c, int32_t i, dtp_value_id v, dtp_dtype dtype)
{
    const dtp_program *p = c->p;
    const dtp_value *from = &p->values[v];
    if (c->usage[v].reads != 1 || c->usage[v].replicas > 0 || from->keep || from->parent >= 0) {
        return -1;
    }
    const dtp_instr *cast = &p->instrs[c->last_read[v]];
    if (cast->kind != DTP_INSTR_KERNEL || (cast->op->flags & DTP_OP_CAST) == 0 ||
        cast->phase != p->instrs[i].phase) {
        return -1;
    }
    const dtp_value *to = &p->values[cast->out[0]];
    const bool fits =
        to->type.dtype == dtype && to->parent < 0 && dtp_layout_equal(&from->layout, &to->layout);
    return fits ? c->last_read[v] : -1;
}

/* The casts of all results that the op would give in f32: cast[o], -1 = it stays as it is. */
static bool match(const caster *c, int32_t i, dtp_attr *attrs, int32_t *cast)
{
    const dtp_program *p = c->p;
    const dtp_instr *instr = &p->instrs[i];
    dtp_ttype in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_op_call call = {.op = instr->op,
                        .dims = &p->dims,
                        .attrs = attrs,
                        .n_attrs = instr->n_attrs,
                        .n_in = instr->n_in,
                        .n_out = instr->n_out,
                        .in = in};
    for (int32_t k = 0; k < instr->n_attrs; k++) {
        attrs[k] = instr->attrs[k];
    }
    dtp_attr *result = &attrs[dtp_call_attr(&call, "result") - attrs];
    if (result->i == DTP_F32) {
        return false;
    }
    result->i = DTP_F32;
    for (int32_t k = 0; k < instr->n_in; k++) {
        in[k] = p->values[instr->in[k]].type;
    }
    out[0] = p->values[instr->out[0]].type;
    if (instr->op->infer(&call, true, out, NULL) != DTP_OK) {
        return false;
    }
    bool fits = true, any = false;
    for (int32_t o = 0; o < instr->n_out; o++) {
        const dtp_dtype dtype = p->values[instr->out[o]].type.dtype;
        const bool wider = out[o].dtype != dtype;
        cast[o] = wider ? find_cast(c, i, instr->out[o], out[o].dtype) : -1;
        fits = fits && (!wider || (dtp_dtype_is_half(dtype) && cast[o] >= 0));
        any = any || wider;
    }
    return fits && any;
}

/* Counts what the casts read as no longer needed, or as needed again. */
static void count_operands(caster *c, int32_t i, const int32_t *cast, bool needed)
{
    const dtp_instr *instr = &c->p->instrs[i];
    for (int32_t o = 0; o < instr->n_out; o++) {
        for (int32_t k = i; k <= cast[o]; k++) {
            const int64_t bytes = c->needed.needs[instr->out[o]].bytes;
            c->needed.bytes[k] += needed ? bytes : -bytes;
        }
    }
}

/* Gives the op its new attributes and results. It stays as it is when it would need more bytes. */
static dtp_status replace(caster *c, int32_t i, const dtp_attr *attrs, const int32_t *cast,
                          dtp_err *err)
{
    dtp_program *p = c->p;
    dtp_value_id *out;
    dtp_instr instr = p->instrs[i];
    DTP_TRY(dtp_program__copy_attrs(p, attrs, instr.n_attrs, &instr.attrs, err));
    DTP_TRY(dtp_program__alloc_ids(p, instr.n_out, &out, err));
    bool fits = true;
    count_operands(c, i, cast, false);
    for (int32_t o = 0; o < instr.n_out; o++) {
        out[o] = cast[o] >= 0 ? p->instrs[cast[o]].out[0] : instr.out[o];
        fits = fits && (cast[o] < 0 || dtp_needed_hold(&c->needed, 1, &out[o], i, cast[o] - 1));
    }
    instr.out = out;
    instr.workspace = -1;
    DTP_TRY(fits ? dtp_program__add_workspace(p, &instr, err) : DTP_OK);
    const dtp_value_id old = p->instrs[i].workspace, now = instr.workspace;
    fits = fits && (now < 0 || (old >= 0 && p->values[now].bytes <= p->values[old].bytes));
    if (!fits) {
        count_operands(c, i, cast, true);
    }
    const dtp_value_id unused = fits ? old : now;
    if (unused >= 0) {
        c->gone[unused] = true;
    }
    for (int32_t o = 0; o < instr.n_out && fits; o++) {
        c->gone[p->instrs[i].out[o]] = cast[o] >= 0;
        if (cast[o] >= 0) {
            c->removed[cast[o]] = true;
        }
    }
    p->instrs[i] = fits ? instr : p->instrs[i];
    return DTP_OK;
}

dtp_status dtp_program__fuse_casts(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    const size_t n_values = (size_t)p->n_values + (size_t)p->n_instrs; /* and new workspaces */
    caster c = {.p = p};
    int32_t kept = 0, cast[DTP_MAX_OP_OUT];
    dtp_attr attrs[ATTRS];
    DTP_TRY(dtp_program__count_uses(p, scratch, &c.usage, err));
    DTP_TRY(dtp_program__last_reads(p, scratch, &c.last_read, err));
    DTP_TRY(dtp_needed_find(p, p->instrs, p->n_instrs, scratch, &c.needed, err));
    DTP_TRY(DTP_NEW(scratch, c.gone, n_values, err));
    DTP_TRY(DTP_NEW(scratch, c.removed, p->n_instrs, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const bool kernel = instr->kind == DTP_INSTR_KERNEL && instr->n_attrs <= ATTRS;
        const dtp_attr_spec *result = kernel ? dtp_op_attr(instr->op, "result") : NULL;
        if (result != NULL && result->hidden && match(&c, i, attrs, cast)) {
            DTP_TRY(replace(&c, i, attrs, cast, err));
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (!c.removed[i]) {
            p->instrs[kept++] = p->instrs[i];
        }
    }
    p->n_instrs = kept;
    return dtp_program__remove_values(p, c.gone, scratch, err);
}
