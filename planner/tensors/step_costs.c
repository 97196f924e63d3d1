/* What a step pays of the prices of a selection problem (docs/how-a-plan-is-found.md). */
#include "planner/tensors/step_costs.h"

#include <stdlib.h>
#include "cost_models/timeline.h"

dtp_status dtp_step_costs_create(const dtp_tensor_problem *p, dtp_arena *arena, dtp_step_costs *out,
                                 dtp_err *err)
{
    const dtp_graph *g = p->graph;
    bool *early, *late, *read; /* by tensor: of parameters alone, for updates alone, read at all */
    *out = (dtp_step_costs){.problem = p};
    DTP_TRY(DTP_NEW(arena, early, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, late, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, read, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->deferrable, p->select->n_edges, err));
    DTP_TRY(DTP_NEW(arena, out->paid, p->select->n_edges, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        early[t] = g->tensors[t].kind == DTP_TENSOR_PARAM;
        late[t] = true;
    }
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const dtp_node *node = &g->nodes[id];
        for (int32_t i = 0; i < node->n_out && node->n_in == 1 && node->phase != DTP_UPDATE; i++) {
            early[node->out[i]] = early[node->in[0]];
        }
    }
    for (dtp_node_id id = g->n_nodes - 1; id >= 0; id--) {
        const dtp_node *node = &g->nodes[id];
        bool waits = node->n_out > 0; /* for updates: all of its results do */
        for (int32_t i = 0; i < node->n_out; i++) {
            waits = waits && late[node->out[i]] && read[node->out[i]];
        }
        for (int32_t i = 0; i < node->n_in; i++) {
            late[node->in[i]] = late[node->in[i]] && (waits || node->phase == DTP_UPDATE);
            read[node->in[i]] = true;
        }
    }
    for (int32_t i = 0; i < p->n_sent; i++) {
        const dtp_sent_tensor *t = &p->sent[i];
        out->deferrable[t->edge] = early[t->tensor] || (late[t->tensor] && read[t->tensor]);
        out->paid[t->edge] = -1.0;
    }
    return DTP_OK;
}

dtp_status dtp_step_costs_pay(dtp_step_costs *c, const dtp_program *program, dtp_err *err)
{
    const dtp_tensor_problem *p = c->problem;
    const size_t n = DTP_N_PHASES * (size_t)p->graph->n_tensors;
    const size_t n_edges = (size_t)p->n_redistributions;
    dtp_schedule_result r;
    double *exposed_s = calloc((size_t)program->n_instrs + 1, sizeof *exposed_s);
    double *sent = calloc(2 * (n + n_edges) + 1, sizeof *sent);
    const bool ok = exposed_s != NULL && sent != NULL &&
                    dtp_schedule_program(program, p->pricer->machine, &r, exposed_s);
    if (ok) {
        double *alone = sent + n, *edge_sent = alone + n, *edge_alone = edge_sent + n_edges;
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const dtp_instr *instr = &program->instrs[i];
            const int32_t n_sent = instr->kind == DTP_INSTR_START ? instr->n_in : 0;
            for (int32_t k = 0; k < n_sent; k++) {
                const dtp_tensor_id t = program->values[instr->in[k]].tensor;
                const int32_t at = DTP_N_PHASES * t + (int32_t)instr->phase;
                if (t >= 0) {
                    sent[at] += dtp_instr_runs(program, instr) * instr->time_s;
                    alone[at] += exposed_s[i];
                }
            }
        }
        for (int32_t i = 0; i < p->n_sent; i++) {
            const dtp_sent_tensor *t = &p->sent[i];
            edge_sent[t->edge] += sent[DTP_N_PHASES * t->tensor + (int32_t)t->phase];
            edge_alone[t->edge] += alone[DTP_N_PHASES * t->tensor + (int32_t)t->phase];
        }
        for (size_t e = 0; e < n_edges; e++) {
            c->paid[e] = edge_sent[e] > 0.0 ? edge_alone[e] / edge_sent[e] : -1.0;
        }
    }
    free(exposed_s);
    free(sent);
    return ok ? DTP_OK
              : DTP_FAIL(err, DTP_NOMEM, "out of memory for a timeline of %d instructions",
                         program->n_instrs);
}

dtp_status dtp_step_costs_weigh(const dtp_step_costs *c, const dtp_step_weights *w, dtp_overlay *o,
                                dtp_err *err)
{
    const dtp_tensor_problem *p = c->problem;
    const dtp_problem *s = o->base;
    const double issue_ps = 1e12 * w->issue * p->pricer->machine->host_s;
    int64_t *cost = NULL, *edge = NULL;
    DTP_TRY(dtp_overlay_costs(o, &cost, err));
    DTP_TRY(dtp_overlay_edges(o, &edge, err));
    for (int64_t k = 0; k < s->first[s->n_variables]; k++) {
        const double kernel = (double)p->kernel_ps[k];
        cost[k] = s->cost[k] >= DTP_FORBIDDEN
                      ? DTP_FORBIDDEN
                      : (int64_t)(w->compute * kernel + w->waiting * ((double)s->cost[k] - kernel));
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        const bool sends = e < p->n_redistributions;
        const bool made = p->variables[s->edge_a[e]].kind == DTP_DECIDE_OP;
        const double kind = sends && c->deferrable[e] ? w->deferrable : w->waiting;
        const double own = sends && c->paid[e] >= 0.0 ? c->paid[e] : kind;
        const double scale =
            (kind + w->paid * (own - kind)) * (made ? 1.0 - w->late : 1.0 + w->late);
        const double issue = sends ? issue_ps * (double)p->edge_runs[e] : 0.0;
        const int64_t *full = s->edge_cost + s->edge_first[e];
        int64_t *scaled = edge + o->problem.edge_first[e];
        const int64_t size = dtp_problem_edge_end(s, e) - s->edge_first[e];
        for (int64_t k = 0; k < size; k++) {
            const double paid = scale * (double)full[k] + (full[k] > 0 ? issue : 0.0);
            scaled[k] = full[k] >= DTP_FORBIDDEN ? full[k] : (int64_t)paid;
        }
    }
    return DTP_OK;
}
