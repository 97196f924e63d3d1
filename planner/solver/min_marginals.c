/* Two runs: one without the usage limit, whose problem is much smaller, because usage no longer
 * ties variables together. Its bounds hold with the limit as well, and where its solution is within
 * it, that is the answer. The others run again with the limit. */
#include "planner/solver/min_marginals.h"

#include <stdlib.h>

#include "planner/solver/min_marginals_internal.h"

dtp_min_marginal_options dtp_min_marginal_options_init(const dtp_problem *p, int32_t variable,
                                                       const int32_t *start)
{
    const dtp_solver_parameters *c = dtp_solver_parameters_default();
    const int64_t work_units = c->marginals_work_per_entry * dtp_problem_n_entries(p);
    return (dtp_min_marginal_options){
        .parameters = c,
        .variable = variable,
        .start = start,
        .work_units = work_units > c->marginals_work ? work_units : c->marginals_work};
}

/* What the run without the limit says about strategy s with it. Where there is more to say (its
 * solution is dearer with the limit), it stays open. */
static dtp_status take_over(const solver_min_marginals *free_one, solver_min_marginals *m,
                            int32_t s, dtp_err *err)
{
    const dtp_min_marginal *x = &free_one->out[s];
    const size_t n = (size_t)m->p->n_variables;
    m->out[s].bound = x->bound > m->out[s].bound ? x->bound : m->out[s].bound;
    if (x->cost < DTP_FORBIDDEN) {
        DTP_TRY(solver_primal_marginals_offer(&m->primal,
                                              free_one->primal.assignments + (size_t)s * n, err));
        m->out[s].cost = m->primal.cost[s] < m->out[s].cost ? m->primal.cost[s] : m->out[s].cost;
    }
    m->open[s] = m->out[s].bound < m->out[s].cost && x->cost < m->out[s].cost;
    return DTP_OK;
}

static dtp_status run_free(const dtp_min_marginal_options *o, solver_min_marginals *m, dtp_err *err)
{
    dtp_problem p = *m->p; /* borrows all of it */
    p.usage_limit = INT64_MAX / 4;
    p.end = p.begin;
    p.n_extra = 0;
    solver_min_marginals free_one;
    dtp_min_marginal *out = calloc((size_t)m->k + 1, sizeof *out);
    DTP_TRY(DTP_MEMORY(err, out));
    for (int32_t s = 0; s < m->k; s++) {
        out[s].cost = m->out[s].cost;
    }
    dtp_status status = solver_min_marginals_create(&p, o, m->work_units, out, &free_one, err);
    if (status == DTP_OK) {
        status = solver_min_marginals_run(&free_one, err);
        for (int32_t s = 0; s < m->k && status == DTP_OK; s++) {
            status = take_over(&free_one, m, s, err);
        }
        solver_min_marginals_destroy(&free_one);
    }
    free(out);
    return status;
}

static dtp_status run(const dtp_min_marginal_options *o, solver_min_marginals *m, dtp_err *err)
{
    bool open = false;
    dtp_problem_value value;
    DTP_TRY(dtp_evaluator_run(m->primal.evaluator, o->start, &value, err));
    /* Where the start nearly fills the limit, what is best without it hardly ever is within it. */
    if (value.peak <= m->p->usage_limit / 10 * m->parameters->marginals_full_tenths) {
        DTP_TRY(run_free(o, m, err));
    } else if (dtp_problem_n_entries(m->p) >= m->parameters->marginals_large_entries) {
        *m->work_units /= 2; /* more hardly narrows the intervals */
    }
    for (int32_t s = 0; s < m->k; s++) {
        open = open || m->open[s];
    }
    if (open && *m->work_units > 0) {
        DTP_TRY(solver_min_marginals_run(m, err));
    }
    for (int32_t s = 0; s < m->k && o->exact; s++) {
        if (m->out[s].bound < m->out[s].cost) {
            DTP_TRY(solver_min_marginals_finish(m, s, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_min_marginals(const dtp_problem *p, const dtp_min_marginal_options *options,
                             dtp_min_marginal *out, dtp_err *err)
{
    int64_t work_units = options->work_units;
    solver_min_marginals m;
    for (int32_t s = 0; s < dtp_problem_n_strategies(p, options->variable); s++) {
        out[s].bound = 0;
    }
    DTP_TRY(solver_min_marginals_create(p, options, &work_units, out, &m, err));
    const dtp_status status = run(options, &m, err);
    solver_min_marginals_destroy(&m);
    return status;
}
