/* What several passes need: how values are used and when last, copies, workspaces, and removing
 * values that nothing uses any more. */
#include <string.h>

#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

dtp_status dtp_program__count_uses(const dtp_program *p, dtp_arena *scratch, dtp_usage **out,
                                   dtp_err *err)
{
    dtp_usage *u;
    DTP_TRY(DTP_NEW(scratch, u, p->n_values, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        u[v].written = -1;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].parent >= 0) {
            u[p->values[v].parent].replicas++;
        }
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            u[p->instrs[i].in[k]].reads++;
        }
        for (int32_t k = 0; k < p->instrs[i].n_out; k++) {
            u[p->instrs[i].out[k]].written = i;
        }
    }
    *out = u;
    return DTP_OK;
}

dtp_status dtp_program__last_reads(const dtp_program *p, dtp_arena *scratch, int32_t **out,
                                   dtp_err *err)
{
    int32_t *last;
    DTP_TRY(DTP_NEW(scratch, last, p->n_values, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        last[v] = -1;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        for (int32_t k = 0; k < p->instrs[i].n_in; k++) {
            last[dtp_value_root(p, p->instrs[i].in[k])] = i;
        }
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (p->values[v].keep && p->values[v].kind != DTP_VALUE_RESIDENT) {
            last[dtp_value_root(p, v)] = p->n_instrs;
        }
    }
    *out = last;
    return DTP_OK;
}

dtp_status dtp_program__copy_value(dtp_program *p, dtp_value_id v, dtp_phase phase,
                                   dtp_value_id *out, dtp_err *err)
{
    const dtp_layout layout = p->values[v].layout;
    dtp_instr instr = dtp_program__instr_init(DTP_INSTR_COPY, -1, phase);
    DTP_TRY(dtp_program__add_version(p, v, &layout, out, err));
    instr.move.kind = DTP_COPY_WHOLE;
    instr.n_in = instr.n_out = 1;
    instr.in = &v;
    instr.out = out;
    return dtp_program__add_instr(p, &instr, err);
}

/* As much as the hungriest rank needs: a kernel may use more on a smaller shard. */
dtp_status dtp_program__add_workspace(dtp_program *p, dtp_instr *instr, dtp_err *err)
{
    bool even = true; /* all ranks have the same local shapes */
    int64_t most = 0;
    if (!dtp_target_has_workspace(p->target, instr->op)) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < instr->n_in + instr->n_out && even; i++) {
        const dtp_value *v =
            &p->values[i < instr->n_in ? instr->in[i] : instr->out[i - instr->n_in]];
        even = v->ranges == NULL && dtp_layout_is_even(&v->layout, &p->mesh, &v->type);
    }
    for (int32_t r = 0; r < (even ? 1 : dtp_mesh_ranks(&p->mesh)); r++) {
        dtp_call_types types;
        dtp_op_call call = dtp_instr_call(p, instr, r, &types);
        const int64_t bytes = dtp_target_workspace(p->target, &call);
        most = bytes > most ? bytes : most;
    }
    if (most == 0) {
        return DTP_OK;
    }
    dtp_value v = dtp_program__value_init("workspace", DTP_VALUE_WORKSPACE);
    v.type = (dtp_ttype){.dtype = DTP_BOOL, .rank = 1, .dims = {{-1, most}}};
    v.layout = dtp_layout_replicated(1, p->mesh.n_dims);
    return dtp_program__add_value(p, &v, &instr->workspace, err);
}

/* ---- removing values ---- */

static dtp_value_id mapped(dtp_value_id v, const dtp_value_id *map)
{
    return v >= 0 ? map[v] : -1;
}

/* v or its latest earlier version that stays. */
static dtp_value_id remaining(const dtp_program *p, dtp_value_id v, const bool *gone)
{
    while (v >= 0 && gone[v]) {
        v = p->values[v].previous;
    }
    return v;
}

dtp_status dtp_program__remove_values(dtp_program *p, const bool *gone, dtp_arena *scratch,
                                      dtp_err *err)
{
    int32_t n = 0;
    dtp_value_id *map;
    DTP_TRY(DTP_NEW(scratch, map, p->n_values, err));
    for (int32_t v = 0; v < p->n_values; v++) {
        map[v] = gone[v] ? -1 : n++;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].previous = remaining(p, p->values[v].previous, gone);
    }
    for (int32_t t = 0; t < p->graph->n_tensors; t++) {
        p->tensor_latest[t] = mapped(remaining(p, p->tensor_latest[t], gone), map);
        p->tensor_value[t] = mapped(p->tensor_value[t], map);
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        p->values[v].previous = mapped(p->values[v].previous, map);
        p->values[v].parent = mapped(p->values[v].parent, map);
    }
    for (int32_t i = 0; i < p->n_updates; i++) {
        p->updates[i].target = map[p->updates[i].target];
        p->updates[i].value = map[p->updates[i].value];
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        if (!gone[v]) {
            p->values[map[v]] = p->values[v];
        }
    }
    p->n_values = n;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        dtp_value_id *ids;
        DTP_TRY(dtp_program__alloc_ids(p, instr->n_in + instr->n_out, &ids, err));
        for (int32_t k = 0; k < instr->n_in + instr->n_out; k++) {
            ids[k] = map[k < instr->n_in ? instr->in[k] : instr->out[k - instr->n_in]];
        }
        instr->in = ids;
        instr->out = ids + instr->n_in;
        instr->workspace = mapped(instr->workspace, map);
    }
    return DTP_OK;
}
