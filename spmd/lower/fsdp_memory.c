/* What PyTorch's FSDP keeps beside the values of a program. */
#include "spmd/lower/fsdp_memory.h"

#include "core/base/safe_int.h"
#include "spmd/program/program_internal.h"

/* Whether an instruction gathers parameters for the forward or the backward pass. */
static bool gathers_params(const dtp_program *p, const dtp_instr *instr)
{
    if (instr->kind != DTP_INSTR_START || instr->phase == DTP_UPDATE ||
        instr->coll.kind != DTP_ALL_GATHER) {
        return false;
    }
    const dtp_tensor_id t = p->values[instr->in[0]].tensor;
    return t >= 0 && dtp_graph_param_of(p->graph, t) >= 0;
}

static bool reduces_grads(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_START && instr->phase != DTP_FORWARD &&
           instr->coll.kind == DTP_REDUCE_SCATTER;
}

/* Whether the backward pass reads a value, which is there until then anyway. */
static bool is_read_later(const dtp_program *p, const dtp_value *v)
{
    return v->last >= 0 && v->last < p->n_instrs && p->instrs[v->last].phase != DTP_FORWARD;
}

/* Adds the bytes of values; of those that are gathered outside of blocks what would not be there.
 * */
static bool add(const dtp_program *p, const dtp_value_id *values, int32_t n, bool outside,
                int64_t *sum)
{
    bool fits = true;
    for (int32_t i = 0; i < n && fits; i++) {
        const dtp_value *v = &p->values[values[i]];
        fits = (outside && is_read_later(p, v)) || dtp_add_i64(*sum, v->bytes, sum);
    }
    return fits;
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
    bool any = false, fits = true;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *instr = &p->instrs[i];
        const bool gathers = instr->phase == DTP_FORWARD && gathers_params(p, instr);
        if (instr->node < 0 || !(gathers || reduces_grads(instr))) {
            continue;
        }
        const dtp_node *node = &g->nodes[instr->node];
        any = any || gathers;
        if (node->block >= 0) {
            const size_t at = (size_t)node->block * (size_t)instances + (size_t)node->instance;
            fits = fits && add(p, gathers ? instr->out : instr->in,
                               gathers ? instr->n_out : instr->n_in, false, &of_block[at]);
        } else if (gathers) {
            fits = fits && add(p, instr->out, instr->n_out, true, &outside);
        }
    }
    for (size_t b = 0; b < (size_t)g->n_blocks * (size_t)instances; b++) {
        most = of_block[b] > most ? of_block[b] : most;
    }
    if (!fits || !dtp_add_i64(outside, most, &outside) || outside > INT64_MAX - DTP_BUFFER_ALIGN) {
        return DTP_FAIL(err, DTP_RANGE, "the buffers of one rank exceed 2^63 bytes");
    }
    *bytes = any ? dtp_program__aligned(outside) : 0;
    return DTP_OK;
}

int32_t dtp_fsdp_depth(const dtp_program *p)
{
    int32_t starts = 0, gathers = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        starts += p->instrs[i].kind == DTP_INSTR_START ? 1 : 0;
        gathers += gathers_params(p, &p->instrs[i]) ? 1 : 0;
    }
    return gathers > 0 ? (starts + gathers - 1) / gathers : 0;
}
