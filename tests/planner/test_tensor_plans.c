/* Selections of tensor mode as programs on virtual ranks: they compute what one device computes.
 * The best selection without and with a tight memory limit, and random ones; plans that list the
 * steps of their redistributions; random graphs with random choices of what is gathered again, by
 * hand COUNT of them from a seed on:
 *
 *     build/dev/bin/test_tensor_plans 910000 1000
 */
#include <inttypes.h>
#include <math.h>
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
#include "planner/tensors/plan_tensor.h"
#include "spmd/redistribute/redistribute_listed.h"
#include "tests/support/random_graphs.h"
#include "tests/support/tensor_cases.h"
#include "tests/support/verify_case.h"
#include "tests/support/quarter.h"

static const double TOLERANCE = 5e-5;

static void run(const tensor_fixture *f, const dtp_sharding *s, const dtp_lower_options *lowering,
                const char *what)
{
    verify_case c = verify_case_init(what);
    c.options.reference_graph = f->model;
    c.options.tolerance = TOLERANCE;
    c.options.steps = 2;
    verify_sharding(f->graph, s, lowering, &c);
}

static void verify(const tensor_fixture *f, const dtp_tensor_problem *p, const int32_t *selection,
                   const char *what)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_lower_options options = dtp_lower_options_init(dtp_tensor_redistributor(p));
    dtp_sharding s;
    options.target = f->pricer.target;
    assert_int_equal(dtp_tensor_sharding(p, selection, arena, &s, NULL), DTP_OK);
    run(f, &s, &options, what);
    bool *again = dtp_arena_alloc(arena, (size_t)f->graph->n_tensors, sizeof *again);
    assert_non_null(again);
    for (dtp_tensor_id t = 0; t < f->graph->n_tensors; t++) {
        again[t] = (t * 7 + selection[t % p->n_variables]) % 3 == 0;
    }
    s.regather = again; /* other copies of replicas are kept from forward to backward */
    run(f, &s, &options, what);
    dtp_arena_destroy(arena);
}

/* Solves within a limit (0: none) and runs the answer; returns its peak. */
static int64_t check_best(const tensor_fixture *f, dtp_tensor_problem *p, int64_t limit,
                          const char *what)
{
    const dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result r;
    const int64_t none = p->select->usage_limit;
    p->select->usage_limit = limit > 0 ? limit : none;
    assert_int_equal(dtp_solve(p->select, &options, &r, NULL), DTP_OK);
    p->select->usage_limit = none;
    assert_true(r.assignment != NULL || limit > 0);
    const int64_t peak = r.assignment != NULL ? r.value.peak : 0;
    if (r.assignment != NULL) {
        verify(f, p, r.assignment, what);
    }
    dtp_solve_result_free(&r);
    return peak;
}

static void check_case(const tensor_case *c, int32_t n_random)
{
    tensor_fixture f;
    uint64_t seed = 17;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
    assert_non_null(selection);
    const int64_t peak = check_best(&f, p, 0, c->mesh);
    (void)check_best(&f, p, peak * 9 / 10, c->mesh);
    for (int32_t k = 0; k < n_random; k++) {
        if (tensor_random_selection(p, &seed, selection) && quarter_has(k, n_random)) {
            verify(&f, p, selection, c->mesh);
        }
    }
    free(selection);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_plans__mlp(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, 20);
}

static void test_tensor_plans__gpt(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT,
                              .mesh = "x:2;y:2",
                              .dims = TENSOR_GPT_DIMS,
                              .target = &dtp_target_cpu_packed},
               8);
}

static void test_tensor_plans__microbatches_and_recomputation(void **state)
{
    (void)state;
    check_case(
        &(tensor_case){
            .model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS, .microbatches = 2},
        20);
    check_case(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .remat = true},
        6);
    check_case(
        &(tensor_case){
            .model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .microbatches = 4},
        6);
    check_case(&(tensor_case){.model = TENSOR_GPT,
                              .mesh = "x:2;y:2",
                              .dims = TENSOR_GPT_DIMS,
                              .remat = true,
                              .microbatches = 2},
               6);
}

/* ---- what is gathered again ---- */

enum { FIRST_SEED = 910000, N_GRAPHS = 48 };
static uint64_t first_seed = FIRST_SEED;
static int64_t n_graphs; /* 0: those of the test */

/* Losses, gradients and updates of random graphs cancel: copies that are made again may be no
 * further from one device than those that are kept. Returns whether the errors were below the
 * tolerance. */
static bool no_further(const tensor_fixture *f, dtp_sharding *s, const bool *again,
                       const dtp_lower_options *lowering, const char *what)
{
    verify_case c = verify_case_init(what);
    bool near = true;
    c.options.reference_graph = f->model;
    c.options.tolerance = (double)INFINITY; /* judged here */
    c.options.steps = 2;
    dtp_verify_result kept = verify_sharding_result(f->graph, s, lowering, &c);
    s->regather = again;
    dtp_verify_result made = verify_sharding_result(f->graph, s, lowering, &c);
    assert_int_equal(kept.n, made.n);
    for (int32_t i = 0; i < kept.n; i++) {
        const double most = fmax(2e-5, 4 * kept.items[i].rel_err), error = made.items[i].rel_err;
        near = near && error <= 2e-5;
        if (!(error <= most)) {
            fail_msg("%s: %s: relative error %g, kept %g", what, made.items[i].name, error,
                     kept.items[i].rel_err);
        }
    }
    dtp_verify_result_free(&kept);
    dtp_verify_result_free(&made);
    return near;
}

/* By a rule for every mesh dim, without replicas; false where they do not fit. */
static bool random_rules(const tensor_fixture *f, uint64_t *draws, dtp_arena *arena,
                         dtp_sharding *out)
{
    dtp_layout_rules rules;
    dtp_strbuf text = {0};
    dtp_err err = {0};
    for (int32_t m = 0; m < f->pricer.mesh.n_dims; m++) {
        dtp_strbuf_addf(&text, "%s%s:%s", m > 0 ? ";" : "",
                        dtp_dims_name(&f->graph->dims, random_below(draws, f->graph->dims.n)),
                        f->pricer.mesh.names[m]);
    }
    const bool fits = dtp_layout_rules_parse(dtp_strbuf_text(&text), &f->pricer.mesh,
                                             &f->graph->dims, arena, &rules, &err) == DTP_OK &&
                      dtp_sharding_from_rules(f->graph, &f->pricer.mesh, &rules, false, arena, out,
                                              &err) == DTP_OK;
    dtp_strbuf_free(&text);
    return fits;
}

/* Random layouts of a random graph, with replicas or by rules, in which random tensors are gathered
 * again. Whether there were some. */
static bool check_again(uint64_t seed, int32_t *near)
{
    static const dtp_target *const targets[] = {&dtp_target_cpu, &dtp_target_cpu_packed};
    char *text = NULL, what[48];
    uint64_t draws = ~seed;
    tensor_fixture f;
    dtp_sharding s;
    dtp_graph_destroy(random_training_graph(seed, &text));
    const tensor_case c = {.model = text,
                           .mesh = (const char *const[]){"x:2", "x:4", "x:2;y:2"}[seed % 3],
                           .target = targets[random_below(&draws, 2)]};
    (void)snprintf(what, sizeof what, "seed %" PRIu64, seed);
    tensor_fixture_create(&c, &f);
    dtp_arena *arena = dtp_arena_create();
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    dtp_lower_options options = dtp_lower_options_init(dtp_tensor_redistributor(p));
    int32_t *selection = dtp_arena_alloc(arena, (size_t)p->n_variables, sizeof *selection);
    bool *again = dtp_arena_alloc(arena, (size_t)f.graph->n_tensors, sizeof *again);
    assert_true(selection != NULL && again != NULL);
    for (dtp_tensor_id t = 0; t < f.graph->n_tensors; t++) {
        again[t] = random_below(&draws, 2) == 0;
    }
    const bool found = random_below(&draws, 2) == 0
                           ? random_rules(&f, &draws, arena, &s)
                           : tensor_random_selection(p, &draws, selection) &&
                                 dtp_tensor_sharding(p, selection, arena, &s, NULL) == DTP_OK;
    options.target = c.target;
    *near += found && no_further(&f, &s, again, &options, what) ? 1 : 0;
    dtp_tensor_problem_destroy(p);
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
    free(text);
    return found;
}

static void test_tensor_plans__random_graphs_gather_again(void **state)
{
    (void)state;
    const int64_t n = n_graphs > 0 ? n_graphs : N_GRAPHS;
    int32_t ran = 0, near = 0;
    for (int64_t i = 0; i < n; i++) {
        ran += (n_graphs > 0 || quarter_has(i, n)) && check_again(first_seed + (uint64_t)i, &near);
    }
    print_message("%d random graphs, %d within 2e-5 of one device\n", ran, near);
    assert_true(ran > (n_graphs > 0 ? n / 2 : quarter_of(N_GRAPHS / 2)) && near > ran / 2);
}

/* ---- steps that only the plan knows ---- */

/* Prices without sense, so that the cheapest steps are seldom those of the default price. */
static double odd_price(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                        const dtp_layout *before, const dtp_step *step)
{
    uint64_t seed = *(const uint64_t *)user;
    (void)mesh, (void)type;
    for (int32_t m = 0; m < before->n_mesh; m++) {
        seed = seed * 31 + (uint64_t)before->placement[m].kind * 7 +
               (uint64_t)step->after.placement[m].kind;
        seed = seed * 31 + (uint64_t)(before->placement[m].axis + 2) * 5 +
               (uint64_t)(step->after.placement[m].axis + 2);
    }
    return 1.0 + (double)tensor_draw(&seed, 1000);
}

static dtp_status plan_oddly(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                             const dtp_layout *from, const dtp_layout *to, dtp_steps *out,
                             dtp_err *err)
{
    return dtp_redistribute_plan(mesh, type, from, to, odd_price, user, out, err);
}

/* A plan of the selection with the steps that r takes, written and read again. */
static dtp_plan *list_steps(const tensor_fixture *f, const dtp_tensor_problem *p,
                            const int32_t *selection, const dtp_redistributor *r)
{
    dtp_plan_request request = dtp_plan_request_init();
    dtp_plan_result made;
    dtp_plan *again = NULL;
    char *text = NULL;
    dtp_err err = {0};
    int64_t cost;
    request.options.mesh = &f->pricer.mesh;
    assert_int_equal(dtp_plan_tensor(f->graph, f->machine, &request, &made, &err), DTP_OK);
    dtp_plan *plan = made.plan;
    dtp_redistribution_recorder recorder = {.inner = r, .arena = plan->arena};
    const dtp_redistributor recording = dtp_recording_redistributor(&recorder);
    assert_int_equal(dtp_tensor_sharding(p, selection, plan->arena, &plan->sharding, NULL), DTP_OK);
    dtp_status s =
        dtp_additive_cost(f->graph, &f->pricer, &plan->sharding, &recording, &cost, &err);
    plan->redistribution = DTP_REDISTRIBUTION_LISTED;
    plan->n_redistributions = recorder.n;
    plan->redistributions = recorder.redistributions;
    s = s == DTP_OK ? dtp_plan_write(plan, f->graph, false, &text, &err) : s;
    s = s == DTP_OK ? dtp_plan_read("plan", text, strlen(text), f->graph, &again, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    free(text);
    dtp_plan_result_free(&made);
    return again;
}

/* The plan's program takes the listed steps and computes what one device computes. Returns whether
 * it costs something else than with the default's steps. */
static bool check_steps(const tensor_fixture *f, const dtp_plan *plan, const dtp_redistributor *r,
                        const char *what)
{
    dtp_plan_lowering lowering;
    int64_t listed, wanted, usual;
    const dtp_sharding *s = &plan->sharding;
    assert_int_equal(dtp_plan_lowering_init(&lowering, plan, NULL), DTP_OK);
    assert_int_equal(
        dtp_additive_cost(f->graph, &f->pricer, s, lowering.redistributor, &listed, NULL), DTP_OK);
    assert_int_equal(dtp_additive_cost(f->graph, &f->pricer, s, r, &wanted, NULL), DTP_OK);
    assert_int_equal(
        dtp_additive_cost(f->graph, &f->pricer, s, dtp_redistributor_generic(), &usual, NULL),
        DTP_OK);
    assert_int_equal(listed, wanted);
    run(f, s, &lowering.options, what);
    return usual != wanted;
}

static void test_tensor_plans__listed_steps(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS},
        {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:2;y:1;z:2", .dims = TENSOR_GPT_DIMS}};
    int32_t plans = 0, others = 0, listed = 0;
    uint64_t seed = 29;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensor_fixture f;
        tensor_fixture_create(&cases[i], &f);
        dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
        int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
        assert_non_null(selection);
        for (uint64_t k = 0; k < 6; k++) {
            const dtp_redistributor odd = {plan_oddly, &k};
            if (tensor_random_selection(p, &seed, selection) &&
                quarter_has((int64_t)(6 * i + k), 24)) {
                dtp_plan *plan = list_steps(&f, p, selection, &odd);
                others += check_steps(&f, plan, &odd, cases[i].mesh) ? 1 : 0;
                listed += plan->n_redistributions;
                plans++;
                dtp_plan_destroy(plan);
            }
        }
        free(selection);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&f);
    }
    print_message("%d plans, %d of other prices, %d redistributions listed\n", plans, others,
                  listed);
    assert_true(plans > quarter_of(12) && others > plans / 2 && listed > 10 * plans);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_plans__mlp),
        cmocka_unit_test(test_tensor_plans__gpt),
        cmocka_unit_test(test_tensor_plans__microbatches_and_recomputation),
        cmocka_unit_test(test_tensor_plans__random_graphs_gather_again),
        cmocka_unit_test(test_tensor_plans__listed_steps),
    };
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        n_graphs = strtoll(argv[2], NULL, 10);
        cmocka_set_test_filter("*gather_again");
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
