/* Buffer sharing: updated parameters go into their resident buffers, and outputs take the buffers
 * of operands that die.
 *
 * An output may take an operand's buffer when nothing inside that buffer is read later (other
 * values in it included), the two have the same local shape on every rank, and no other operand of
 * the same instruction lies in that buffer (the same operand given twice is harmless to an op that
 * works element by element).
 */
#include "core/transform/microbatch.h"
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

static bool same_shape(const dtp_value *a, const dtp_value *b)
{
    bool same = a->type.rank == b->type.rank && a->bytes == b->bytes && a->ranges == NULL &&
                b->ranges == NULL &&
                dtp_dtype_bytes(a->type.dtype) == dtp_dtype_bytes(b->type.dtype);
    for (int32_t i = 0; i < a->type.rank && same; i++) {
        same = a->type.dims[i].id == b->type.dims[i].id &&
               a->type.dims[i].size == b->type.dims[i].size;
    }
    for (int32_t m = 0; m < a->layout.n_mesh && same; m++) {
        const dtp_placement *x = &a->layout.placement[m], *y = &b->layout.placement[m];
        bool split = x->kind == DTP_SHARD;
        same = split == (y->kind == DTP_SHARD) &&
               (!split || (x->axis == y->axis && x->order == y->order));
    }
    return same;
}

/* Whether output o of instruction i may take the buffer of its operand j, lifetimes apart. */
static bool operand_fits(const dtp_program *p, int32_t i, int32_t o, int32_t j)
{
    const dtp_instr *instr = &p->instrs[i];
    dtp_value_id in = instr->in[j];
    bool by_element =
        instr->kind == DTP_INSTR_KERNEL && (instr->op->flags & DTP_OP_ELEMENTWISE) != 0;
    for (int32_t k = 0; k < instr->n_in; k++) {
        bool twice = instr->in[k] == in && by_element;
        if (k != j && !twice && dtp_value_root(p, instr->in[k]) == dtp_value_root(p, in)) {
            return false;
        }
    }
    for (int32_t k = 0; k < instr->n_out; k++) {
        if (k != o && p->values[instr->out[k]].parent == in) {
            return false;
        }
    }
    return p->values[instr->out[o]].parent < 0 &&
           same_shape(&p->values[in], &p->values[instr->out[o]]);
}

/* ---- updates ---- */

/* Tries to let the instruction that makes the value write into the resident buffer: an update op,
 * or a redistribution of the new value when nothing reads the old one any more. */
static bool update_in_place(dtp_program *p, const dtp_value_update *u, int32_t writer,
                            const int32_t *last_read)
{
    dtp_value *value = &p->values[u->value];
    const dtp_value *target = &p->values[u->target];
    if (writer < 0) {
        return false;
    }
    const dtp_instr *instr = &p->instrs[writer];
    if (instr->kind != DTP_INSTR_KERNEL) {
        const bool fits = instr->n_out == 1 && value->parent < 0 && !value->keep &&
                          last_read[u->target] < writer && same_shape(value, target) &&
                          dtp_layout_equal(&value->layout, &target->layout);
        value->parent = fits ? u->target : value->parent;
        return fits;
    }
    for (int32_t o = 0; o < instr->n_out && (instr->op->flags & DTP_OP_UPDATE) != 0; o++) {
        int32_t j = instr->op->inplace_in[o] - 1;
        if (instr->out[o] == u->value && j >= 0 && j < instr->n_in &&
            dtp_value_root(p, instr->in[j]) == u->target && last_read[u->target] <= writer &&
            operand_fits(p, writer, o, j)) {
            value->parent = instr->in[j];
            return true;
        }
    }
    return false;
}

dtp_status dtp_program__resolve_updates(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    int32_t *last_read;
    dtp_usage *usage;
    DTP_TRY(dtp_program__last_reads(p, scratch, &last_read, err));
    DTP_TRY(dtp_program__count_uses(p, scratch, &usage, err));
    for (int32_t i = 0; i < p->n_updates; i++) {
        dtp_value_update *u = &p->updates[i];
        if (dtp_value_root(p, u->value) != u->target &&
            !update_in_place(p, u, usage[u->value].written, last_read)) {
            dtp_value_id copy;
            const dtp_value *value = &p->values[u->value], *target = &p->values[u->target];
            dtp_value_kind root = p->values[dtp_value_root(p, u->value)].kind;
            if (value->tensor >= 0 && dtp_microbatch_changes(p->graph, value->tensor)) {
                return DTP_FAIL(err, DTP_UNSUPPORTED,
                                "'%s', which every microbatch changes, has another layout than its "
                                "value '%s', or is read behind it",
                                target->name, value->name);
            }
            if (!dtp_layout_equal(&value->layout, &target->layout) || root == DTP_VALUE_RESIDENT) {
                return DTP_FAIL(err, DTP_UNSUPPORTED,
                                "'%s' cannot be replaced by '%s' at the end of the step: %s",
                                target->name, value->name,
                                root == DTP_VALUE_RESIDENT ? "it is a view of a parameter"
                                                           : "their layouts differ");
            }
            DTP_TRY(dtp_program__copy_value(p, u->value, DTP_UPDATE, &copy, err));
            p->values[copy].parent = u->target;
            u->value = copy;
        }
    }
    return DTP_OK;
}

/* ---- dying operands ---- */

enum { MAX_DEPTH = 64 };

/* `depth`: of in-place values in each other; deep ones lie in the buffer itself, so that finding a
 * buffer takes no time that grows with the program. */
static void try_share(dtp_program *p, int32_t i, int32_t o, int32_t j, int32_t *last_read,
                      int32_t *depth)
{
    const dtp_instr *instr = &p->instrs[i];
    dtp_value_id root = dtp_value_root(p, instr->in[j]);
    dtp_value_kind kind = p->values[root].kind;
    if ((kind == DTP_VALUE_TEMP || kind == DTP_VALUE_STAGING) && last_read[root] <= i &&
        operand_fits(p, i, o, j)) {
        const bool deep = depth[instr->in[j]] >= MAX_DEPTH;
        p->values[instr->out[o]].parent = deep ? root : instr->in[j];
        depth[instr->out[o]] = deep ? 1 : depth[instr->in[j]] + 1;
        last_read[root] = last_read[instr->out[o]];
    }
}

dtp_status dtp_program__in_place(dtp_program *p, dtp_arena *scratch, dtp_err *err)
{
    int32_t *last_read, *depth;
    bool *by_collective; /* by value */
    DTP_TRY(dtp_program__last_reads(p, scratch, &last_read, err));
    DTP_TRY(DTP_NEW(scratch, depth, p->n_values, err));
    DTP_TRY(DTP_NEW(scratch, by_collective, p->n_values, err));
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        /* What another collective made stays until that one ends: the two need no WAIT between. */
        if (instr->kind == DTP_INSTR_START && instr->coll.kind == DTP_ALL_REDUCE &&
            !by_collective[instr->in[0]]) {
            try_share(p, i, 0, 0, last_read, depth);
        }
        for (int32_t o = 0; o < instr->n_out && instr->kind == DTP_INSTR_START; o++) {
            by_collective[instr->out[o]] = true;
        }
        for (int32_t o = 0; o < instr->n_out && instr->kind == DTP_INSTR_KERNEL; o++) {
            int32_t j = instr->op->inplace_in[o] - 1;
            if (j >= 0 && j < instr->n_in) {
                try_share(p, i, o, j, last_read, depth);
            }
        }
    }
    return DTP_OK;
}
