/* One currency: of every model, in both modes, on targets that fuse and that do not, in every
 * precision, with microbatches and recomputation, the cost of a plan is the sum of the prices of
 * its plain program, to the picosecond; its bound is not above that, nor above the cost of a
 * baseline, nor above what explain says. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "planner/baselines/baselines.h"
#include "planner/plan_rules.h"
#include "planner/reports/explain.h"
#include "planner/tensors/plan_tensor.h"
#include "spmd/redistribute/redistribute_cache.h"
#include "tests/support/quarter.h"
#include "tests/support/tensor_cases.h"

static const tensor_case MODELS[] = {
    {.model = "mlp_digits.json", .machine = "a100_8.json"},
    {.model = "gpt_bytes.json", .machine = "a100_8.json", .dims = "layers=2"},
    {.model = "gpt_bytes_dropout.json", .machine = "h100_64.json", .dims = "layers=2"},
    {.model = "gpt2_small.json", .machine = "l4_16.json", .dims = "layers=2"},
    {.model = "mtf_lm.json", .machine = "h100_64.json"},
    {.model = "bert_large.json", .machine = "v100_16.json", .dims = "layers=2"},
    {.model = "vit_b16.json", .machine = "a100_8.json", .dims = "layers=2"},
    {.model = "llama3_8b.json", .machine = "a100_8.json", .dims = "layers=2"},
    {.model = "llama3_70b.json", .machine = "h100_64.json", .dims = "layers=2"},
    {.model = "mixtral_8x7b.json", .machine = "l4_16.json", .dims = "layers=1"},
    {.model = "gpt3_175b.json", .machine = "h100_128.json", .dims = "layers=2"},
};
static const struct {
    const char *target, *precision;
} ARITHMETIC[] = {
    {"cpu", "f32"}, {"cpu", "bf16"}, {"cuda", "f32"}, {"cuda", "bf16"}, {"cuda", "f16"}};
static const struct {
    const char *remat, *microbatches;
} SAVING[] = {{NULL, NULL}, {NULL, "2"}, {"all", NULL}, {"all", "4"}};
static const char *const MESHES[] = {"x:4", "x:2;y:4"};

typedef struct subject {
    tensor_fixture f; /* of the model as it is */
    dtp_graph *g;     /* as it is planned */
    dtp_pricer pricer;
    dtp_plan_request request;
    dtp_graph_variant variant;
    bool rules;
    char name[160];
} subject;

static void must(const subject *s, dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s: %s", s->name, err->msg);
    }
}

/* ---- what is held ---- */

static void check_cost(const subject *s, const dtp_plan *made)
{
    dtp_err err = {0};
    char *text = NULL;
    dtp_plan *plan = NULL;
    dtp_plan_lowering lowering;
    dtp_program *plain = NULL;
    int64_t sum = 0;
    must(s, dtp_plan_write(made, s->g, false, &text, &err), &err);
    must(s, dtp_plan_read("plan", text, strlen(text), s->f.model, &plan, &err), &err);
    must(s, dtp_plan_lowering_init(&lowering, plan, &err), &err);
    const dtp_lower_options options = {
        .redistributor = lowering.redistributor, .target = s->pricer.target, .plain = true};
    must(s, dtp_lower(s->g, &plan->sharding, &options, &plain, &err), &err);
    for (int32_t i = 0; i < plain->n_instrs; i++) {
        sum += dtp_instr_runs(plain, &plain->instrs[i]) *
               dtp_picoseconds(dtp_price_instr(&s->pricer, plain, &plain->instrs[i]));
    }
    if (sum != made->certificate.cost) {
        fail_msg("%s: the plain program costs %" PRId64 ", the plan %" PRId64, s->name, sum,
                 made->certificate.cost);
    }
    dtp_program_destroy(plain);
    dtp_plan_destroy(plan);
    free(text);
}

static void check_bound(const subject *s, const dtp_certificate *c)
{
    if (c->bound < 0 || c->bound > c->cost || c->least_cost < c->bound ||
        (c->status == DTP_CERT_OPTIMAL && c->bound != c->cost)) {
        fail_msg("%s: %s with bound %" PRId64 ", cost %" PRId64 ", least %" PRId64, s->name,
                 dtp_cert_status_name(c->status), c->bound, c->cost, c->least_cost);
    }
}

static void check_baselines(const subject *s, int64_t bound)
{
    dtp_err err = {0};
    dtp_redistribution_pricer *moves = NULL;
    dtp_redistribute_cache *generic = NULL;
    dtp_candidate *list = NULL;
    dtp_arena *arena = dtp_arena_create();
    int32_t n = 0;
    must(s, dtp_redistribution_pricer_create(&s->pricer, &moves, &err), &err);
    must(s, dtp_redistribute_cache_create(dtp_redistributor_generic(), 0, &generic, &err), &err);
    const dtp_baseline_options options = {.machine = dtp_redistribution_pricer_redistributor(moves),
                                          .generic = dtp_redistribute_cache_planner(generic),
                                          .rules_only = s->rules};
    must(s, dtp_baselines_create(s->g, &s->pricer, &options, arena, &n, &list, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        if (list[i].legal && list[i].cost_ps < bound) {
            fail_msg("%s: baseline %s costs %" PRId64 ", the bound is %" PRId64, s->name,
                     list[i].name, list[i].cost_ps, bound);
        }
    }
    dtp_redistribution_pricer_destroy(moves);
    dtp_redistribute_cache_destroy(generic);
    dtp_arena_destroy(arena);
}

static void check_explained(const subject *s, const dtp_plan *plan)
{
    dtp_explanation x;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    const dtp_explain_request request = {.graph = s->g,
                                         .machine = s->f.machine,
                                         .plan = plan,
                                         .plan_is_current = true,
                                         .name = s->g->tensors[s->g->n_tensors / 2].name};
    must(s, dtp_explain(&request, arena, &x, &err), &err);
    if (x.bound_ps > x.cost_ps || x.cost_ps > x.plan_ps) {
        fail_msg("%s: explain says bound %" PRId64 ", cost %" PRId64 ", plan %" PRId64, s->name,
                 x.bound_ps, x.cost_ps, x.plan_ps);
    }
    dtp_arena_destroy(arena);
}

/* ---- cases ---- */

static bool check(subject *s, bool explained)
{
    dtp_plan_result r;
    dtp_err err = {0};
    must(s,
         (s->rules ? dtp_plan_rules : dtp_plan_tensor)(s->f.model, s->f.machine, &s->request, &r,
                                                       &err),
         &err);
    const bool planned = r.plan != NULL;
    if (planned) {
        check_bound(s, &r.plan->certificate);
        check_cost(s, r.plan);
        check_baselines(s, r.plan->certificate.bound);
    }
    if (planned && explained) {
        check_explained(s, r.plan);
    }
    dtp_plan_result_free(&r);
    return planned;
}

/* False where the model has no such variant. */
static bool open_subject(const tensor_case *model, size_t arithmetic, size_t saving, bool rules,
                         dtp_arena *arena, subject *s)
{
    tensor_case c = *model;
    const dtp_target *target;
    dtp_err err = {0};
    c.mesh = MESHES[(arithmetic + saving) % 2];
    (void)snprintf(s->name, sizeof s->name, "%s on %s, %s, %s, %s, remat %s, microbatches %s",
                   c.model, c.mesh, rules ? "rules" : "tensor", ARITHMETIC[arithmetic].target,
                   ARITHMETIC[arithmetic].precision,
                   SAVING[saving].remat != NULL ? SAVING[saving].remat : "none",
                   SAVING[saving].microbatches != NULL ? SAVING[saving].microbatches : "none");
    tensor_fixture_create(&c, &s->f);
    const dtp_variant_texts texts = {.precision = ARITHMETIC[arithmetic].precision,
                                     .remat = SAVING[saving].remat,
                                     .microbatches = SAVING[saving].microbatches};
    s->g = NULL;
    if (dtp_graph_variant_parse(&texts, s->f.model, arena, &s->variant, &err) != DTP_OK ||
        dtp_graph_with_variant(s->f.model, &s->variant, 0, NULL, &s->g, &err) != DTP_OK) {
        tensor_fixture_destroy(&s->f);
        return false;
    }
    must(s, dtp_target_find(ARITHMETIC[arithmetic].target, &target, &err), &err);
    must(s, dtp_pricer_init(s->f.machine, &s->f.pricer.mesh, target, &s->pricer, &err), &err);
    s->rules = rules;
    s->request = dtp_plan_request_init();
    s->request.mesh = &s->f.pricer.mesh;
    s->request.target = target;
    s->request.variant = &s->variant;
    s->request.gap = 0.02; /* what is held holds of any plan */
    s->request.brief = true;
    return true;
}

static void test_certificates__are_of_one_currency(void **state)
{
    (void)state;
    enum { N = sizeof MODELS / sizeof MODELS[0], A = sizeof ARITHMETIC / sizeof ARITHMETIC[0] };
    enum { S = sizeof SAVING / sizeof SAVING[0], ALL = 2 * N * A * S };
    int32_t planned = 0, opened = 0;
    for (size_t i = 0; i < ALL; i++) {
        subject s;
        const size_t m = i / (2 * A * S), a = i / (2 * S) % A, v = i / 2 % S;
        if (!quarter_has((int64_t)i, ALL)) {
            continue;
        }
        dtp_arena *arena = dtp_arena_create();
        if (open_subject(&MODELS[m], a, v, i % 2 == 0, arena, &s)) {
            opened++;
            planned += check(&s, v == 0 && a == 3) ? 1 : 0;
            dtp_graph_destroy(s.g);
            tensor_fixture_destroy(&s.f);
        }
        dtp_arena_destroy(arena);
    }
    print_message("%d of %d cases have a plan\n", planned, opened);
    assert_true(planned == opened && planned >= quarter_of(350));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_certificates__are_of_one_currency)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
