/* Merges two all-reduces in a row: when the only reader of an all-reduce's output is an all-reduce
 * of the same kind over other mesh dims, one all-reduce over all of them replaces both. It runs
 * where the second one was. (Within one redistribution the search already finds merged steps; this
 * catches pairs that come from a producer and its consumer.)
 */
#include <stdlib.h>

#include "spmd/lower/passes/passes.h"

static bool is_all_reduce(const dtp_instr *instr)
{
    return instr->kind == DTP_INSTR_COLLECTIVE && instr->coll.kind == DTP_ALL_REDUCE &&
           instr->n_in == 1;
}

/* The all-reduce whose output instruction i alone reads, if the two merge; -1 = none. */
static int32_t first_half(const dtp_program *p, const dtp_usage *u, int32_t i)
{
    const dtp_instr *b = &p->instrs[i];
    if (!is_all_reduce(b)) {
        return -1;
    }
    dtp_value_id v = b->in[0];
    if (u[v].written < 0 || u[v].reads != 1 || u[v].replicas != 0 || p->values[v].keep ||
        p->values[v].parent >= 0) {
        return -1;
    }
    const dtp_instr *a = &p->instrs[u[v].written];
    bool fits = is_all_reduce(a) && a->coll.op == b->coll.op && a->coll.dtype == b->coll.dtype &&
                a->coll.count == b->coll.count && (a->coll.set & b->coll.set) == 0;
    return fits ? u[v].written : -1;
}

/* ---- the pass
 * ------------------------------------------------------------------------------------
 */

static dtp_status merge(dtp_program *p, dtp_usage *u, bool *gone, dtp_err *err)
{
    int32_t n = 0, merged = 0;
    dtp_program__count_uses(p, u);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int32_t a = first_half(p, u, i);
        if (a < 0) {
            continue;
        }
        dtp_instr *second = &p->instrs[i], *first = &p->instrs[a];
        gone[second->in[0]] = true;
        second->coll.set |= first->coll.set;
        second->in = first->in;
        first->n_in = first->n_out = 0;
        merged++;
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].kind != DTP_INSTR_COLLECTIVE || p->instrs[i].n_in > 0) {
            p->instrs[n++] = p->instrs[i];
        }
    }
    p->n_instrs = n;
    return merged == 0 ? DTP_OK : dtp_program__remove_values(p, gone, err);
}

dtp_status dtp_program__merge_collectives(dtp_program *p, dtp_err *err)
{
    size_t n = (size_t)p->n_values + 1;
    dtp_usage *u = calloc(n, sizeof *u);
    bool *gone = calloc(n, sizeof *gone);
    dtp_status status = u == NULL || gone == NULL
                            ? DTP_FAIL(err, DTP_NOMEM, "out of memory for %d values", p->n_values)
                            : merge(p, u, gone, err);
    free(u);
    free(gone);
    return status;
}
