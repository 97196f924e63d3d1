#include "cost_models/candidate.h"

#include "cost_models/predict.h"
#include "cost_models/price_limit.h"

dtp_status dtp_additive_cost(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                             const dtp_redistributor *redistributor, int64_t *cost_ps, dtp_err *err)
{
    const dtp_lower_options plain = {.redistributor = redistributor, .unplaced = true};
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(g, s, &plain, &program, err));
    dtp_dearest dearest = {0};
    const dtp_status status = dtp_program_price(pricer, program, &dearest, cost_ps, err);
    dtp_program_destroy(program);
    return status;
}

dtp_status dtp_sharding_program(const dtp_graph *g, const dtp_pricer *pricer, const dtp_sharding *s,
                                const dtp_lower_options *options, dtp_prediction *predicted,
                                dtp_program **out, dtp_err *err)
{
    DTP_TRY(dtp_lower(g, s, options, out, err));
    dtp_status status = dtp_program_check(*out, err);
    status = status == DTP_OK ? dtp_predict(pricer, *out, predicted, err) : status;
    if (status != DTP_OK) {
        dtp_program_destroy(*out);
        *out = NULL;
    }
    return status;
}

dtp_status dtp_sharding_predict(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_sharding *sharding, const dtp_lower_options *options,
                                dtp_prediction *predicted, int64_t *cost_ps, dtp_err *err)
{
    dtp_program *program = NULL;
    DTP_TRY(dtp_sharding_program(g, pricer, sharding, options, predicted, &program, err));
    dtp_program_destroy(program);
    return cost_ps != NULL
               ? dtp_additive_cost(g, pricer, sharding, options->redistributor, cost_ps, err)
               : DTP_OK;
}

dtp_status dtp_candidate_faster(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_redistributor *machine, const dtp_redistributor *generic,
                                dtp_candidate *candidate, dtp_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        dtp_candidate c = *candidate;
        c.redistributor = i == 0 ? machine : generic;
        const dtp_lower_options options = dtp_lower_options_init(c.redistributor);
        DTP_TRY(dtp_sharding_predict(g, pricer, &c.sharding, &options, &c.predicted, NULL, err));
        if (i == 0 || c.predicted.step_time_s < candidate->predicted.step_time_s) {
            *candidate = c;
        }
    }
    return dtp_additive_cost(g, pricer, &candidate->sharding, candidate->redistributor,
                             &candidate->cost_ps, err);
}
