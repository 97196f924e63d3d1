/* Plans of tensor mode for every shipped model: written, read again and lowered without passes,
 * their instructions cost what the certificate says, no less than its bound; lowered with all
 * passes, they take the time and the memory that were predicted. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "planner/reports/explain.h"
#include "planner/tensors/plan_tensor.h"
#include "spmd/program/program_check.h"
#include "tests/support/tensor_cases.h"

static const tensor_case CASES[] = {
    {.model = "mlp_digits.json", .mesh = "x:2", .machine = "cpu_2.json"},
    {.model = "mlp_digits.json", .mesh = "x:8", .machine = "h100_64.json", .microbatches = 4},
    {.model = "gpt_bytes.json", .mesh = "x:4", .machine = "a100_8.json", .remat = true},
    {.model = "gpt_bytes.json", .mesh = "x:2;y:4", .machine = "v100_16.json", .dims = "layers=2"},
    {.model = "gpt_bytes_dropout.json",
     .mesh = "x:2;y:2",
     .machine = "l4_16.json",
     .dims = "layers=2"},
    {.model = "gpt2_small.json", .mesh = "x:2;y:2", .machine = "l4_16.json", .dims = "layers=2"},
    {.model = "mtf_lm.json", .mesh = "x:2;y:4", .machine = "h100_64.json"},
    {.model = "bert_large.json", .mesh = "x:4;y:4", .machine = "v100_16.json", .dims = "layers=3"},
    {.model = "vit_b16.json", .mesh = "x:8", .machine = "a100_8.json", .dims = "layers=3"},
    {.model = "llama3_8b.json", .mesh = "x:4;y:2", .machine = "a100_8.json", .dims = "layers=2"},
    {.model = "llama3_70b.json", .mesh = "x:8;y:8", .machine = "h100_64.json", .dims = "layers=2"},
    {.model = "mixtral_8x7b.json", .mesh = "x:2;y:8", .machine = "l4_16.json", .dims = "layers=1"},
    {.model = "gpt3_175b.json", .mesh = "x:8", .machine = "h100_128.json", .dims = "layers=2"},
};

/* ---- the plan again ---- */

static int64_t price_of(const dtp_pricer *pricer, const dtp_program *p)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        sum += dtp_instr_runs(p, &p->instrs[i]) *
               dtp_picoseconds(dtp_price_instr(pricer, p, &p->instrs[i]));
    }
    return sum;
}

static dtp_program *lower(const dtp_graph *g, const dtp_plan *plan, const dtp_lower_options *o)
{
    dtp_program *program = NULL;
    dtp_err err = {0};
    dtp_status s = dtp_lower(g, &plan->sharding, o, &program, &err);
    s = s == DTP_OK ? dtp_program_check(program, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return program;
}

static char *write_plan(const dtp_plan *plan, const dtp_graph *g)
{
    char *text = NULL;
    assert_int_equal(dtp_plan_write(plan, g, false, &text, NULL), DTP_OK);
    return text;
}

/* What was written and read again, beside the plan as it was made. */
static void check_again(const tensor_fixture *f, const dtp_plan *made, const dtp_plan *again)
{
    dtp_plan_lowering lowering;
    dtp_graph *g = NULL;
    dtp_prediction predicted;
    assert_int_equal(dtp_plan_lowering_init(&lowering, again, NULL), DTP_OK);
    assert_int_equal(dtp_plan_graph(again, f->model, &g, NULL), DTP_OK);
    const dtp_lower_options plain = {
        .redistributor = lowering.redistributor, .target = &dtp_target_cpu, .plain = true};
    dtp_program *one_by_one = lower(g, again, &plain);
    assert_int_equal(price_of(&f->pricer, one_by_one), made->certificate.cost);
    dtp_program *final = lower(g, again, &lowering.options);
    assert_int_equal(dtp_predict(&f->pricer, final, &predicted, NULL), DTP_OK);
    assert_int_equal(predicted.peak_bytes, made->predicted.peak_bytes);
    assert_true(predicted.step_time_s >= made->predicted.step_time_s &&
                predicted.step_time_s <= made->predicted.step_time_s);
    char *first = write_plan(made, g), *second = write_plan(again, g);
    assert_string_equal(first, second);
    free(first);
    free(second);
    dtp_program_destroy(one_by_one);
    dtp_program_destroy(final);
    dtp_graph_destroy(g);
}

static dtp_plan *read_again(const tensor_fixture *f, const dtp_plan *plan)
{
    dtp_plan *again = NULL;
    dtp_graph *g = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_plan_graph(plan, f->model, &g, NULL), DTP_OK);
    char *text = write_plan(plan, g);
    if (dtp_plan_read("plan", text, strlen(text), f->model, &again, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    free(text);
    dtp_graph_destroy(g);
    return again;
}

/* ---- cases ---- */

/* Returns the plan's peak, 0 when there is none; adds to *listed. */
static int64_t check_plan(const tensor_fixture *f, const dtp_plan_request *request, int32_t *listed)
{
    dtp_plan_result r;
    dtp_err err = {0};
    if (dtp_plan_tensor(f->model, f->machine, request, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const dtp_plan *plan = r.plan;
    int64_t peak = 0;
    if (plan != NULL) {
        const dtp_certificate *c = &plan->certificate;
        dtp_plan *again = read_again(f, plan);
        print_message("%s on %s: cost %" PRId64 ", bound %" PRId64 ", %d redistributions listed\n",
                      plan->model, plan->machine, c->cost, c->bound, plan->n_redistributions);
        assert_true(c->bound > 0 && c->bound <= c->cost);
        assert_true(c->status != DTP_CERT_OPTIMAL || c->bound == c->cost);
        check_again(f, plan, again);
        dtp_plan_destroy(again);
        peak = plan->predicted.peak_bytes;
        *listed += plan->n_redistributions;
    }
    dtp_plan_result_free(&r);
    return peak;
}

static void test_plan_prices__certificates_are_the_prices_of_programs(void **state)
{
    (void)state;
    int32_t listed = 0, limited = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        tensor_fixture f;
        dtp_plan_request request = dtp_plan_request_init();
        dtp_graph_variant choices = {.microbatches = CASES[i].microbatches, .micro_dim = -1};
        dtp_arena *arena = dtp_arena_create();
        tensor_fixture_create(&CASES[i], &f);
        assert_int_equal(
            dtp_remat_parse(CASES[i].remat ? "all" : "none", f.model, arena, &choices.remat, NULL),
            DTP_OK);
        request.options.mesh = &f.pricer.mesh;
        request.variant = &choices;
        const int64_t peak = check_plan(&f, &request, &listed);
        assert_true(peak > 0);
        request.options.memory_limit_bytes = peak * 9 / 10;
        request.options.gap = 0.02; /* what is checked holds for any plan: */
        request.brief = true;       /* no long search for a good one */
        limited += check_plan(&f, &request, &listed) > 0 ? 1 : 0;
        tensor_fixture_destroy(&f);
        dtp_arena_destroy(arena);
    }
    assert_true(limited > 5 && listed > 0);
}

/* A plan explained on a machine costs there what its program costs, in which the steps are those of
 * the machine that it was made for. Returns by how much these are dearer than the cheapest. */
static int64_t check_explained(const tensor_fixture *f, const dtp_plan *plan,
                               const dtp_machine *machine, bool is_current)
{
    dtp_pricer pricer;
    dtp_plan_lowering lowering;
    dtp_explanation x;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    const dtp_explain_request request = {.graph = f->graph,
                                         .machine = machine,
                                         .plan = plan,
                                         .plan_is_current = is_current,
                                         .name = f->graph->tensors[f->graph->n_tensors / 2].name};
    if (dtp_explain(&request, arena, &x, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(dtp_pricer_init(machine, &plan->mesh, &dtp_target_cpu, &pricer, NULL), DTP_OK);
    assert_int_equal(dtp_plan_lowering_init(&lowering, plan, NULL), DTP_OK);
    const dtp_lower_options plain = {
        .redistributor = lowering.redistributor, .target = &dtp_target_cpu, .plain = true};
    dtp_program *program = lower(f->graph, plan, &plain);
    assert_int_equal(x.plan_ps, price_of(&pricer, program));
    assert_true(x.bound_ps <= x.cost_ps && x.cost_ps <= x.plan_ps);
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
    return x.plan_ps - x.cost_ps;
}

static void test_plan_prices__explained_at_the_price_of_its_own_steps(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = "mtf_lm.json", .mesh = "x:2;y:4", .machine = "h100_64.json"},
        {.model = "llama3_8b.json",
         .mesh = "x:4;y:2",
         .machine = "a100_8.json",
         .dims = "layers=2"}};
    int32_t cheapest = 0; /* others have fewer collectives, for a shorter step */
    int64_t more = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensor_fixture f, other;
        tensor_case elsewhere = cases[i];
        dtp_plan_request request = dtp_plan_request_init();
        dtp_plan_result r;
        elsewhere.machine = "l4_16.json";
        tensor_fixture_create(&cases[i], &f);
        tensor_fixture_create(&elsewhere, &other);
        request.options.mesh = &f.pricer.mesh;
        assert_int_equal(dtp_plan_tensor(f.model, f.machine, &request, &r, NULL), DTP_OK);
        assert_true(r.plan != NULL && r.plan->n_redistributions > 0);
        cheapest += check_explained(&f, r.plan, f.machine, true) == 0 ? 1 : 0;
        more += check_explained(&f, r.plan, other.machine, false);
        dtp_plan_result_free(&r);
        tensor_fixture_destroy(&other);
        tensor_fixture_destroy(&f);
    }
    assert_true(cheapest > 0 && more > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_prices__certificates_are_the_prices_of_programs),
        cmocka_unit_test(test_plan_prices__explained_at_the_price_of_its_own_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
