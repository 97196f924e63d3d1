/* What a program costs, split by what for: the work of the ops, the communication inside ops,
 * and the redistributions between the layouts of tensors. */
#include "cost_models/cost_split.h"

#include <string.h>

#include "cost_models/comm_report.h"
#include "cost_models/price_limit.h"

int64_t dtp_cost_split_sum(const dtp_cost_split *c)
{
    return c->compute + c->communication + c->redistribution;
}

static void add(dtp_cost_split *to, const dtp_cost_split *c)
{
    to->compute += c->compute;
    to->communication += c->communication;
    to->redistribution += c->redistribution;
}

dtp_status dtp_cost_split_program(const dtp_pricer *pricer, dtp_program *p, dtp_arena *scratch,
                                  dtp_cost_split *by_node, dtp_cost_split *total, dtp_err *err)
{
    dtp_dearest dearest = {0};
    int64_t sum = 0;
    dtp_tensor_id *tensor;
    DTP_TRY(dtp_comm_tensors(p, scratch, &tensor, err));
    *total = (dtp_cost_split){0};
    memset(by_node, 0, (size_t)p->graph->n_nodes * sizeof *by_node);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        dtp_instr *instr = &p->instrs[i];
        dtp_cost_split one = {0};
        int64_t ps = 0;
        DTP_TRY(dtp_price_instr_ps(pricer, p, instr, &dearest, &ps, err));
        if (!dtp_cost_add(&sum, ps, 1)) {
            return dtp_cost_fail(pricer, &dearest, err);
        }
        if (instr->kind == DTP_INSTR_KERNEL) {
            one.compute = ps;
        } else if (instr->n_in == 0 || tensor[instr->in[0]] < 0) {
            one.communication = ps;
        } else {
            one.redistribution = ps;
        }
        add(total, &one);
        if (instr->node >= 0) {
            add(&by_node[instr->node], &one);
        }
    }
    return DTP_OK;
}
