/* The order of the reductions, to a fixed point. */
#include "planner/solver/presolve/presolve.h"

#include "planner/solver/reduced/work.h"

dtp_presolve_options dtp_presolve_options_init(void)
{
    return (dtp_presolve_options){true, true, true, true, true, true};
}

dtp_presolve_size solver_size(solver_work *w)
{
    dtp_presolve_size n = {.rows = w->n_rows};
    for (int32_t i = 0; i < w->n_nodes; i++) {
        n.nodes += w->nodes[i].alive ? 1 : 0;
        n.strategies += w->nodes[i].alive ? w->nodes[i].n_live : 0;
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        n.edges += edge->alive ? 1 : 0;
        n.entries += edge->alive ? (int64_t)w->nodes[edge->u].n_live * w->nodes[edge->v].n_live : 0;
    }
    return n;
}

/* Consistency and merges until neither finds work; nodes are compact afterwards. */
static dtp_status settle(solver_work *w, dtp_err *err)
{
    do {
        DTP_TRY(solver_propagate(w, err));
        DTP_TRY(solver_compact(w, err));
        if (!w->infeasible) {
            DTP_TRY(solver_merge_dependent(w, err));
        }
    } while (!w->infeasible && w->dirty.n > 0);
    return DTP_OK;
}

dtp_status solver_presolve(solver_work *w, dtp_err *err)
{
    int64_t before = -1;
    while (!w->infeasible && !solver_work_late(w)) {
        DTP_TRY(settle(w, err));
        if (w->options.cap && !w->infeasible) {
            DTP_TRY(solver_filter_by_incumbent(w, err));
            DTP_TRY(settle(w, err));
        }
        const dtp_presolve_size size = solver_size(w);
        const int64_t now = size.nodes + size.strategies + size.edges;
        if (w->infeasible || now == before) {
            break;
        }
        before = now;
        DTP_TRY(solver_memory_refresh(w, err));
        DTP_TRY(settle(w, err));
        if (!w->infeasible) {
            DTP_TRY(solver_eliminate(w, err));
            DTP_TRY(settle(w, err));
        }
        if (!w->infeasible) {
            DTP_TRY(solver_memory_refresh(w, err));
            DTP_TRY(settle(w, err));
            DTP_TRY(solver_dominance(w, err));
        }
    }
    if (!w->infeasible) {
        DTP_TRY(solver_memory_refresh(w, err));
        DTP_TRY(settle(w, err));
    }
    w->report.after = solver_size(w);
    return DTP_OK;
}
