/* The log of communication: one line for every collective that a call has made,
 *   info tensor collective op=relu operand=0 from="f32[6,4] +sum(x)" to="replicated"
 *       kind=all_reduce over=x bytes=96
 * `operand` is its number, "result" for the result of the op, "inside" for a collective of the op
 * itself; bytes is the larger buffer, as in dtp_device_mesh_counts. */
#include <stdio.h>
#include <string.h>

#include "dtensor/internal.h"

enum { OPERAND_BYTES = 16 };

/* The tensor value that is packed into, or unpacked from, a staging value. */
static dtp_value_id unstaged(const dtp_program *p, dtp_value_id v)
{
    for (int32_t i = 0; i < p->n_instrs && p->values[v].kind == DTP_VALUE_STAGING; i++) {
        const dtp_instr *instr = &p->instrs[i];
        if (instr->kind == DTP_INSTR_COPY && instr->out[0] == v) {
            return instr->in[0];
        }
        for (int32_t k = 0; k < instr->n_in && instr->kind == DTP_INSTR_COPY; k++) {
            if (instr->in[k] == v) {
                return instr->out[0];
            }
        }
    }
    return v;
}

/* Whose value it is. Inputs of a call are named "in0", "in1", ... by operand; a renaming of one is
 * that operand. */
static void name_operand(const dtp_program *p, dtp_value_id v, char out[OPERAND_BYTES])
{
    const dtp_graph *g = p->graph;
    dtp_tensor_id t = p->values[v].tensor;
    if (t < 0) {
        (void)snprintf(out, OPERAND_BYTES, "inside");
        return;
    }
    while (g->tensors[t].producer >= 0 &&
           g->tensors[t].producer + 1 < g->n_nodes) { /* the op is the last node */
        t = g->nodes[g->tensors[t].producer].in[0];
    }
    const bool input = g->tensors[t].producer < 0;
    (void)snprintf(out, OPERAND_BYTES, "%s", input ? g->tensors[t].name + 2 : "result");
}

/* Collective k of a START. */
static void log_collective(const dtp_device_mesh *mesh, const dtp_program *p,
                           const dtp_instr *instr, int32_t k)
{
    const dtp_coll *coll = dtp_coll_at(&instr->coll, k);
    const dtp_value *from = &p->values[unstaged(p, instr->in[k])];
    const dtp_value *to = &p->values[unstaged(p, instr->out[k])];
    char before[DTP_TENSOR_TEXT_BYTES], after[DTP_LAYOUT_TEXT_BYTES], over[DTP_MESH_TEXT_BYTES];
    char operand[OPERAND_BYTES];
    dtp_ttype type = from->type;
    for (int32_t d = 0; d < type.rank; d++) {
        type.dims[d].id = d;
    }
    dtp_tensor__text(mesh, &type, &from->layout, before);
    dtp_layout_print(&to->layout, &p->mesh, &type, &mesh->dims, after);
    dtp_mesh_set_print(&p->mesh, coll->set, "+", over);
    name_operand(p, (dtp_value_id)(from - p->values), operand);
    const int64_t n = dtp_mesh_set_size(&p->mesh, coll->set);
    const int64_t in = dtp_coll_parts_in(coll, n), out = dtp_coll_parts_out(coll, n);
    const int64_t bytes = (in > out ? in : out) * coll->count * dtp_dtype_bytes(coll->dtype);
    dtp_log(mesh->options.ctx, DTP_LOG_INFO, "tensor", "collective",
            "op=%s operand=%s from=\"%.300s\" to=\"%.300s\" kind=%s over=%.150s bytes=%lld",
            p->graph->name, operand, before, after, dtp_coll_name(coll->kind), over,
            (long long)bytes);
}

void dtp_call__log(const dtp_device_mesh *mesh, const dtp_program *p)
{
    if (mesh->options.ctx == NULL || mesh->options.ctx->level < DTP_LOG_INFO) {
        return;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const bool start = p->instrs[i].kind == DTP_INSTR_START;
        for (int32_t k = 0; k < p->instrs[i].n_in && start; k++) {
            log_collective(mesh, p, &p->instrs[i], k);
        }
    }
}
