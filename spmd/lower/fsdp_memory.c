#include "spmd/lower/fsdp_memory.h"

#include "spmd/program/program_internal.h"

/* A parameter, or a copy of it in another type. */
static bool is_param(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id producer = t >= 0 ? g->tensors[t].producer : -1;
    if (producer >= 0 && (g->nodes[producer].op->flags & DTP_OP_CAST) != 0) {
        t = g->nodes[producer].in[0];
    }
    return t >= 0 && g->tensors[t].kind == DTP_TENSOR_PARAM;
}

/* Whether an instruction gathers parameters for the forward pass. */
static bool gathers_params(const dtp_program *p, const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_START && instr->phase == DTP_FORWARD &&
           instr->coll.kind == DTP_ALL_GATHER && is_param(p->graph, p->values[instr->in[0]].tensor);
}

static bool reduces_grads(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_START && instr->phase != DTP_FORWARD &&
           instr->coll.kind == DTP_REDUCE_SCATTER;
}

static int64_t bytes_of(const dtp_program *p, const dtp_value_id *values, int32_t n)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += p->values[values[i]].bytes;
    }
    return sum;
}

/* Of outputs that the backward pass does not read, and so would not be there any more. */
static int64_t held_bytes(const dtp_program *p, const dtp_instr *instr)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < instr->n_out; i++) {
        const dtp_value *v = &p->values[instr->out[i]];
        const bool later =
            v->last >= 0 && v->last < p->n_instrs && p->instrs[v->last].phase != DTP_FORWARD;
        sum += later ? 0 : v->bytes;
    }
    return sum;
}

dtp_status dtp_fsdp_bytes(const dtp_program *p, dtp_arena *arena, int64_t *bytes, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    int32_t instances = 1;
    int64_t *of_block, outside = 0, most = 0;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        instances = g->nodes[n].instance >= instances ? g->nodes[n].instance + 1 : instances;
    }
    DTP_TRY(DTP_NEW(arena, of_block, ((size_t)g->n_blocks + 1) * (size_t)instances, err));
    bool any = false;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const bool gathers = gathers_params(p, instr);
        if (instr->node < 0 || !(gathers || reduces_grads(instr))) {
            continue;
        }
        const dtp_node *node = &g->nodes[instr->node];
        any = any || gathers;
        if (node->block >= 0) {
            of_block[(size_t)node->block * (size_t)instances + (size_t)node->instance] +=
                gathers ? bytes_of(p, instr->out, instr->n_out)
                        : bytes_of(p, instr->in, instr->n_in);
        } else if (gathers) {
            outside += held_bytes(p, instr);
        }
    }
    for (size_t b = 0; b < (size_t)g->n_blocks * (size_t)instances; b++) {
        most = of_block[b] > most ? of_block[b] : most;
    }
    *bytes = any ? dtp_program__aligned(outside + most) : 0;
    return DTP_OK;
}
