/* How far the rates of a machine may be off before another plan is better. */
#include "planner/reports/sensitivity.h"

#include <math.h>
#include <string.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "planner/reports/plan_diff.h"

dtp_sensitivity_request dtp_sensitivity_request_init(void)
{
    return (dtp_sensitivity_request){.widest = 16.0, .tolerance = 1e-3, .steps = 8};
}

typedef struct asking {
    const dtp_sensitivity_request *request;
    dtp_plan_request search;
    dtp_arena *arena;
} asking;

/* ---- one machine ---- */

/* Names what the other plan does differently, parameters first. */
static dtp_status describe(const asking *a, const dtp_plan *other, dtp_takeover *out, dtp_err *err)
{
    dtp_plan_diff diff;
    const dtp_plan *plans[2] = {a->request->plan, other};
    dtp_plan_lowering lowerings[2];
    dtp_diff_input inputs[2];
    for (int i = 0; i < 2; i++) {
        DTP_TRY(dtp_plan_lowering_init(&lowerings[i], plans[i], err));
        inputs[i] = (dtp_diff_input){a->request->graph, &plans[i]->sharding, &lowerings[i].options};
    }
    DTP_TRY(dtp_plan_diff_make(inputs, NULL, a->arena, &diff, err));
    out->n_tensors = diff.n_tensors;
    out->n_nodes = diff.n_nodes;
    out->n_examples = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < diff.n_tensors && out->n_examples < 3; i++) {
            const dtp_diff_tensor *t = &diff.tensors[i];
            if ((t->kind == DTP_TENSOR_PARAM) != (pass == 0)) {
                continue;
            }
            out->examples[out->n_examples] =
                dtp_arena_printf(a->arena, "%s: %s -> %s", t->name, t->layout[0], t->layout[1]);
            DTP_TRY(DTP_MEMORY(err, out->examples[out->n_examples]));
            out->n_examples++;
        }
    }
    return DTP_OK;
}

/* Whether another plan is better on a machine; then *out says which. */
static dtp_status compare_on(const asking *a, const dtp_machine *machine, bool *better,
                             dtp_takeover *out, dtp_err *err)
{
    dtp_plan_result r;
    const dtp_plan *plan = a->request->plan;
    dtp_plan_lowering lowering;
    dtp_pricer pricer;
    dtp_prediction predicted;
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    DTP_TRY(dtp_pricer_init(machine, &plan->mesh, lowering.options.target, &pricer, err));
    DTP_TRY(dtp_sharding_predict(a->request->graph, &pricer, &plan->sharding, &lowering.options,
                                 &predicted, NULL, err));
    DTP_TRY(a->request->search(a->request->model, machine, &a->search, &r, err));
    dtp_status s = DTP_OK;
    *better = false;
    if (r.plan != NULL) {
        const double gain = 1.0 - r.plan->predicted.step_time_s / predicted.step_time_s;
        *better = gain > a->request->tolerance;
        if (*better) {
            out->gain = gain;
            s = describe(a, r.plan, out, err);
        }
    }
    dtp_plan_result_free(&r);
    return s;
}

static dtp_status compare_at(const asking *a, const dtp_machine_param *param, double factor,
                             bool *better, dtp_takeover *out, dtp_err *err)
{
    dtp_machine *scaled = NULL;
    DTP_TRY(dtp_machine_scaled(a->request->machine, param, factor, &scaled, err));
    dtp_status s = compare_on(a, scaled, better, out, err);
    dtp_machine_destroy(scaled);
    return s;
}

/* ---- bisection ---- */

/* Between 1 and the outermost factor on one side, in equal ratios. */
static dtp_status find_side(const asking *a, const dtp_machine_param *param, double outermost,
                            dtp_takeover *out, dtp_err *err)
{
    bool better;
    *out = (dtp_takeover){.stays = 1.0, .goes = outermost};
    DTP_TRY(compare_at(a, param, outermost, &better, out, err));
    out->found = better;
    if (!better) {
        out->stays = outermost;
        return DTP_OK;
    }
    for (int32_t i = 0; i < a->request->steps; i++) {
        const double middle = sqrt(out->stays * out->goes);
        DTP_TRY(compare_at(a, param, middle, &better, out, err));
        out->goes = better ? middle : out->goes;
        out->stays = better ? out->stays : middle;
    }
    return DTP_OK;
}

dtp_status dtp_sensitivity_find(const dtp_sensitivity_request *request, dtp_arena *arena,
                                dtp_sensitivity *out, dtp_err *err)
{
    asking a = {.request = request, .arena = arena};
    dtp_machine_param *params = NULL;
    int32_t n = 0;
    bool better;
    memset(out, 0, sizeof *out);
    /* The search that the plan came from, on its mesh and within its limit and pins. */
    const dtp_plan *plan = request->plan;
    a.search = dtp_plan_request_init();
    a.search.tying_bound = false;
    a.search.options.mesh = &plan->mesh;
    DTP_TRY(dtp_target_find(plan->target, &a.search.target, err));
    a.search.options.objective = DTP_OBJECTIVE_TIME;
    a.search.options.memory_limit_bytes = plan->memory_limit_bytes;
    a.search.variant = &plan->variant;
    const char **texts;
    DTP_TRY(DTP_NEW(arena, texts, plan->n_pins, err));
    for (int32_t i = 0; i < plan->n_pins; i++) {
        texts[i] = plan->pins[i];
        if (strncmp(texts[i], "rules ", 6) == 0) {
            a.search.options.rules = texts[i] + 6;
        }
    }
    a.search.n_texts = plan->n_pins;
    a.search.texts = texts;
    DTP_TRY(dtp_machine_params(request->machine, arena, &n, &params, err));
    DTP_TRY(DTP_NEW(arena, out->rows, n, err));
    DTP_TRY(compare_on(&a, request->machine, &better, &out->now, err));
    out->best_now = !better;
    for (int32_t i = 0; i < n && !better; i++) {
        dtp_sensitivity_row *row = &out->rows[out->n];
        if (request->only == NULL || strcmp(request->only, params[i].name) == 0) {
            row->param = params[i];
            DTP_TRY(find_side(&a, &params[i], 1.0 / request->widest, &row->below, err));
            DTP_TRY(find_side(&a, &params[i], request->widest, &row->above, err));
            out->n++;
        }
    }
    if (better || out->n > 0 || request->only == NULL) {
        return DTP_OK;
    }
    dtp_strbuf names = {0};
    for (int32_t i = 0; i < n; i++) {
        dtp_strbuf_addf(&names, "%s%s", i > 0 ? ", " : "", params[i].name);
    }
    const dtp_status s = DTP_FAIL(err, DTP_NOT_FOUND, "the machine '%s' has no '%.80s' but %s",
                                  request->machine->name, request->only, dtp_strbuf_text(&names));
    dtp_strbuf_free(&names);
    return s;
}
