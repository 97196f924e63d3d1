/* Names of the variables and strategies of tensor mode. */
#include "planner/problem/tensors/tensor_names.h"

#include "core/plan/plan.h"
#include "cost_models/comm_report.h"

static void print_variable(const void *user, int32_t variable, dtp_strbuf *out)
{
    const dtp_tensor_problem *p = user;
    const dtp_tensor_variable *v = &p->variables[variable];
    if (v->kind == DTP_DECIDE_OP) {
        const dtp_node *node = &p->graph->nodes[v->node];
        dtp_strbuf_addf(out, "node %s (%s)", node->name, node->op->name);
        return;
    }
    dtp_strbuf_addf(out, "%s %s", v->kind == DTP_DECIDE_TENSOR ? "tensor" : "replica of",
                    p->graph->tensors[v->tensor].name);
    if (v->kind == DTP_DECIDE_REPLICA) {
        dtp_strbuf_addf(out, " in the %s phase", dtp_phase_name(v->phase));
    }
}

static void print_strategy(const void *user, int32_t variable, int32_t strategy, dtp_strbuf *out)
{
    const dtp_tensor_problem *p = user;
    const dtp_tensor_variable *v = &p->variables[variable];
    const dtp_tensor_strategy *s = &v->strategies[strategy];
    char text[DTP_STRATEGY_TEXT_BYTES];
    if (v->kind == DTP_DECIDE_OP) {
        dtp_strategy_print(p->graph, v->node, &p->pricer->mesh, &s->strategy, text);
    } else {
        dtp_layout_print(&s->layout, &p->pricer->mesh, &p->graph->tensors[v->tensor].type,
                         &p->graph->dims, text);
    }
    dtp_strbuf_add(out, text);
    dtp_strbuf_add(out, v->kind == DTP_DECIDE_REPLICA && s->own ? ", no copy" : "");
}

dtp_problem_names dtp_tensor_names(const dtp_tensor_problem *p)
{
    return (dtp_problem_names){p, print_variable, print_strategy};
}
