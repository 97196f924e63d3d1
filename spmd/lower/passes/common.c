/* What several passes need: how values are used, and removing values that nothing uses any more. */
#include <stdlib.h>

#include "spmd/lower/passes/passes.h"
#include "spmd/program/program_internal.h"

void dtp_program__count_uses(const dtp_program *p, dtp_usage *u)
{
    for (int32_t v = 0; v < p->n_values; v++) {
        u[v] = (dtp_usage){.written = -1};
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
}

/* ---- removing values ----------------------------------------------------------------------------
 */

static void renumber_list(const dtp_value_id *list, int32_t n, const dtp_value_id *map,
                          dtp_value_id *out)
{
    for (int32_t k = 0; k < n; k++) {
        out[k] = map[list[k]];
    }
}

static dtp_status renumber_instrs(dtp_program *p, const dtp_value_id *map, dtp_err *err)
{
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        dtp_value_id *ids;
        DTP_TRY(dtp_program__alloc_ids(p, instr->n_in + instr->n_out, &ids, err));
        renumber_list(instr->in, instr->n_in, map, ids);
        renumber_list(instr->out, instr->n_out, map, ids + instr->n_in);
        instr->in = ids;
        instr->out = ids + instr->n_in;
        instr->workspace = instr->workspace >= 0 ? map[instr->workspace] : -1;
    }
    return DTP_OK;
}

static dtp_value_id mapped(dtp_value_id v, const dtp_value_id *map)
{
    return v >= 0 ? map[v] : -1;
}

static dtp_status remove_values(dtp_program *p, const bool *gone, dtp_value_id *map, dtp_err *err)
{
    int32_t n = 0;
    for (int32_t v = 0; v < p->n_values; v++) {
        map[v] = gone[v] ? -1 : n++;
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        dtp_value_id previous = p->values[v].previous;
        while (previous >= 0 && gone[previous]) {
            previous = p->values[previous].previous;
        }
        p->values[v].previous = mapped(previous, map);
        p->values[v].parent = mapped(p->values[v].parent, map);
    }
    for (int32_t t = 0; t < p->graph->n_tensors; t++) {
        dtp_value_id latest = p->tensor_latest[t];
        while (latest >= 0 && gone[latest]) {
            latest = p->values[latest].previous;
        }
        p->tensor_latest[t] = mapped(latest, map);
        p->tensor_value[t] = mapped(p->tensor_value[t], map);
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
    return renumber_instrs(p, map, err);
}

dtp_status dtp_program__remove_values(dtp_program *p, const bool *gone, dtp_err *err)
{
    dtp_value_id *map = malloc(((size_t)p->n_values + 1) * sizeof *map);
    dtp_status status = map == NULL
                            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for %d values", p->n_values)
                            : remove_values(p, gone, map, err);
    free(map);
    return status;
}
