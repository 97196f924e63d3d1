/* Candidates of planning, and what is predicted of them. */
#include "cost_models/candidate.h"

#include "core/base/stop.h"
#include "cost_models/pipeline.h"
#include "cost_models/regather_choice.h"

/* Decides as one redistributor, and notes whether another one ever decides otherwise. */
typedef struct comparison {
    const dtp_redistributor *one, *other;
    bool differ;
} comparison;

static bool steps_equal(const dtp_steps *a, const dtp_steps *b)
{
    bool equal = a->n == b->n;
    for (int32_t i = 0; i < a->n && equal; i++) {
        const dtp_step *x = &a->steps[i], *y = &b->steps[i];
        equal = x->kind == y->kind && x->set == y->set && x->axis == y->axis &&
                x->to_axis == y->to_axis && x->op == y->op && x->factor == y->factor &&
                dtp_layout_equal(&x->after, &y->after);
    }
    return equal;
}

static dtp_status plan_compared(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                                const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                                dtp_err *err)
{
    comparison *c = user;
    dtp_steps steps;
    DTP_TRY(dtp_redistribute_by(c->one, mesh, type, from, to, out, err));
    c->differ = c->differ ||
                dtp_redistribute_by(c->other, mesh, type, from, to, &steps, NULL) != DTP_OK ||
                !steps_equal(out, &steps);
    return DTP_OK;
}

dtp_status dtp_candidate_predict(const dtp_graph *g, const dtp_pricer *pricer,
                                 const dtp_lower_options *options, dtp_candidate *c,
                                 const dtp_redistributor *other, bool *differs, dtp_err *err)
{
    comparison compared = {.one = options->redistributor, .other = other};
    const dtp_redistributor compares = {plan_compared, &compared};
    dtp_lower_options chosen = *options;
    chosen.redistributor = &compares;
    const int64_t limit = options->overlap.memory_bytes;
    bool decided = false;
    dtp_program *program = NULL;
    if (g->stages != NULL) {
        DTP_TRY(
            dtp_pipeline_choose(g, pricer, &c->sharding, &chosen, &c->predicted, &c->cost_ps, err));
        c->redistributor = options->redistributor;
        c->overlap = chosen.overlap;
        *differs = compared.differ;
        return DTP_OK;
    }
    DTP_TRY(dtp_sharding_program(g, pricer, &c->sharding, &chosen, &c->predicted, &program, err));
    dtp_status s = dtp_program_additive_cost(pricer, program, &c->cost_ps, err);
    const bool slow = chosen.below_s > 0.0 && c->predicted.step_time_s >= chosen.below_s;
    if (s == DTP_OK && c->arena != NULL && limit > 0 && c->predicted.peak_bytes > limit && !slow) {
        s = dtp_regather_choose(program, &chosen, limit, c->arena, &c->sharding, &decided, err);
    }
    dtp_program_destroy(program);
    DTP_TRY(s);
    if (decided) {
        chosen.overlap = options->overlap;
        DTP_TRY(dtp_sharding_predict(g, pricer, &c->sharding, &chosen, &c->predicted, &c->cost_ps,
                                     err));
    }
    c->redistributor = options->redistributor;
    c->overlap = chosen.overlap;
    *differs = compared.differ;
    return DTP_OK;
}

dtp_status dtp_candidate_faster(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_lower_options *options, const dtp_redistributor *generic,
                                dtp_candidate *candidate, dtp_err *err)
{
    dtp_lower_options of_generic = *options, of_machine = *options;
    dtp_candidate other = *candidate;
    bool differs, same;
    of_generic.redistributor = generic;
    DTP_TRY(dtp_candidate_predict(g, pricer, &of_generic, candidate, options->redistributor,
                                  &differs, err));
    if (!differs) {
        candidate->redistributor = options->redistributor;
    } else if (!dtp_stopped(pricer->stop)) {
        of_machine.below_s = candidate->predicted.step_time_s;
        DTP_TRY(dtp_candidate_predict(g, pricer, &of_machine, &other, generic, &same, err));
        *candidate =
            other.predicted.step_time_s < candidate->predicted.step_time_s ? other : *candidate;
    }
    return DTP_OK;
}
