/* Programs on the caller's buffers: operands and results lie outside the program's memory.
 *
 * An operand is an INPUT value; it is never written (the in-place pass takes only buffers that the
 * program made). A result is the buffer that a kept value lies in, provided that the value is the
 * first to claim it and fills it; other kept values are copied out at the end. A kept value that
 * lies in an operand's buffer is a renaming of the operand and stays where it is.
 */
#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

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
    for (int32_t t = 0; t < p->graph->n_tensors; t++) {
        const dtp_value_id v = p->tensor_value[t];
        if (v < 0 || !p->values[v].keep) {
            continue;
        }
        dtp_value *buffer = &p->values[dtp_value_root(p, v)];
        if (buffer->kind == DTP_VALUE_INPUT) {
            continue; /* a renaming */
        }
        if (!buffer->external && buffer->bytes == p->values[v].bytes) {
            buffer->external = true;
            continue;
        }
        DTP_TRY(dtp_program__copy_value(p, v, DTP_FORWARD, &p->tensor_value[t], err));
        p->values[p->tensor_value[t]].keep = true;
        p->values[p->tensor_value[t]].external = true;
        p->values[v].keep = false;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].external = p->values[dtp_value_root(p, v)].external;
    }
    return DTP_OK;
}
