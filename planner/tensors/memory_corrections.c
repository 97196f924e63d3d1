/* Memory corrections: what programs need beyond what the problem of tensor mode counts. */
#include "planner/tensors/memory_corrections.h"

#include <stdlib.h>

#include "planner/problem/lifetimes.h"
#include "planner/problem/tensors/tensor_internal.h"
#include "spmd/program/peak.h"

static dtp_status compare(const dtp_tensor_problem *p, const int32_t *assignment,
                          const int64_t *need, int64_t *said, int64_t limit, dtp_overlay *overlay,
                          int32_t *n, dtp_err *err)
{
    /* What the problem says that an assignment needs, by node of the graph: the most of its times.
     * */
    const int64_t n_times = (int64_t)DTP_NODE_TICKS * p->graph->n_nodes;
    int64_t now = 0;
    int64_t *change = calloc((size_t)n_times + 1, sizeof *change);
    DTP_TRY(DTP_MEMORY(err, change));
    for (int32_t i = 0; i < dtp_problem_n_intervals(&overlay->problem); i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(&overlay->problem, i);
        if (x.begin < x.end) {
            change[x.begin] += x.usage[assignment[x.variable]];
            change[x.end] -= x.usage[assignment[x.variable]];
        }
    }
    for (int64_t t = 0; t < n_times; t++) {
        const int64_t node = t / DTP_NODE_TICKS;
        now += change[t];
        said[node] = t % DTP_NODE_TICKS == 0 || now > said[node] ? now : said[node];
    }
    free(change);
    for (dtp_node_id i = 0; i < p->graph->n_nodes; i++) {
        const int32_t option = assignment[p->variable_of_node[i]];
        const int64_t missing = need[i] - said[i];
        if (missing > 0 && need[i] > limit) {
            const int32_t variable = p->variable_of_node[i];
            const size_t k = (size_t)p->variables[variable].n_strategies;
            const int64_t at = (int64_t)DTP_NODE_TICKS * i;
            int64_t *usage = calloc(k, sizeof *usage);
            DTP_TRY(DTP_MEMORY(err, usage));
            usage[option] = missing;
            const dtp_status s =
                dtp_overlay_add_interval(overlay, variable, at, at + DTP_NODE_TICKS, usage, err);
            free(usage);
            DTP_TRY(s);
            (*n)++;
        }
    }
    return DTP_OK;
}

dtp_status dtp_memory_correction_add(const dtp_tensor_problem *p, const int32_t *assignment,
                                     const dtp_program *program, int64_t limit,
                                     dtp_overlay *overlay, int32_t *n, dtp_err *err)
{
    const size_t n_nodes = (size_t)p->graph->n_nodes;
    int64_t *need = calloc(2 * n_nodes + 1, sizeof *need);
    *n = 0;
    DTP_TRY(DTP_MEMORY(err, need));
    dtp_status s = dtp_peak_by_node(program, need, err);
    s = s == DTP_OK ? compare(p, assignment, need, need + n_nodes, limit, overlay, n, err) : s;
    free(need);
    return s;
}
