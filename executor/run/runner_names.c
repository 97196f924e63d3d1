/* How messages name a place of a runner: its rank, step, instruction and node. */
#include "executor/run/runner_names.h"

#include <inttypes.h>

const char *dtp_runner__node_name(const dtp_program *p, const dtp_instr *i)
{
    return i->node >= 0 ? p->graph->nodes[i->node].name : "-";
}

void dtp_runner__name_instr(const dtp_runner *r, int64_t step, int32_t i, dtp_err *err)
{
    if (i < 0) {
        dtp_err_prefix(err, "rank %d: step %" PRId64, r->comm->rank, step);
        return;
    }
    const dtp_instr *instr = &r->program->instrs[i];
    dtp_err_prefix(err, "rank %d: step %" PRId64 ": instruction %d (%s, node '%s')", r->comm->rank,
                   step, i, dtp_instr_name(instr), dtp_runner__node_name(r->program, instr));
}
