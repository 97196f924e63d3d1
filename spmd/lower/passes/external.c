/* Programs on the caller's buffers: operands and results lie outside the program's memory.
 *
 * An operand is an INPUT value; it is never written (the in-place pass takes only buffers that the
 * program made). A result is the buffer that a kept value lies in, provided that the value is the
 * first to claim it and fills it; other kept values are copied out at the end. A kept value that
 * lies in an operand's buffer is a renaming of the operand and stays where it is.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

/* Bytes between the start of the buffer that v lies in and v. */
static int64_t inside(const dtp_program *p, dtp_value_id v)
{
    int64_t offset = 0;
    for (; p->values[v].parent >= 0; v = p->values[v].parent) {
        offset += p->values[v].parent_offset;
    }
    return offset;
}

/* A kept copy of v in a buffer of its own. */
static dtp_status copy_out(dtp_program *p, dtp_value_id v, dtp_value_id *out, dtp_err *err)
{
    dtp_value_id copy;
    dtp_layout layout = p->values[v].layout;
    DTP_TRY(dtp_program__add_version(p, v, &layout, &copy, err));
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COPY, -1, DTP_FORWARD);
    instr.move.kind = DTP_COPY_WHOLE;
    instr.n_in = instr.n_out = 1;
    instr.in = &v;
    instr.out = &copy;
    DTP_TRY(dtp_program__add_instr(p, &instr, err));
    p->values[copy].keep = true;
    p->values[copy].external = true;
    p->values[v].keep = false;
    *out = copy;
    return DTP_OK;
}

static dtp_status claim_results(dtp_program *p, dtp_err *err)
{
    for (int32_t t = 0; t < p->graph->n_tensors; t++) {
        dtp_value_id v = p->tensor_value[t];
        if (v < 0 || !p->values[v].keep) {
            continue;
        }
        dtp_value_id root = dtp_value_root(p, v);
        const dtp_value *buffer = &p->values[root];
        bool renames = buffer->kind == DTP_VALUE_INPUT && inside(p, v) == 0;
        bool fills = !buffer->external && inside(p, v) == 0 && buffer->bytes == p->values[v].bytes;
        if (!renames && fills) {
            p->values[root].external = true;
        } else if (!renames) {
            DTP_TRY(copy_out(p, v, &p->tensor_value[t], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_program__externalize(dtp_program *p, dtp_err *err)
{
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].kind == DTP_VALUE_RESIDENT) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'%s' is a parameter: a program on the caller's buffers takes "
                            "everything as inputs",
                            p->values[v].name);
        }
        p->values[v].external = p->values[v].kind == DTP_VALUE_INPUT;
    }
    DTP_TRY(claim_results(p, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].external = p->values[dtp_value_root(p, v)].external;
    }
    return DTP_OK;
}
