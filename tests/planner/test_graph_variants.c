/* The search for recomputation and microbatches: what it finds is the best of all plans with a
 * fixed choice, within a limit that no plan without a choice keeps; and the plan runs on virtual
 * ranks, with the values of one device and the peak that was predicted. */
#include "planner/variant_search.h"

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

#include "core/transform/microbatch.h"
#include "cost_models/job.h"
#include "cost_models/plan_lowering.h"
#include "planner/plan_rules.h"
#include "planner/remat_choices.h"
#include "planner/tensors/plan_tensor.h"
#include "tests/support/quarter.h"
#include "tests/support/tensor_cases.h"
#include "tests/support/verify_case.h"

#define DIMS "batch=16 length=16 vocab=32 layers=3 heads=4 d_head=4"

enum { MAX_MICROBATCHES = 4 };

typedef struct fixture {
    tensor_fixture f;
    dtp_mesh mesh;
    dtp_plan_request request;
    dtp_plan_mode mode;
} fixture;

static void create(fixture *x, const char *mesh, dtp_plan_mode mode)
{
    tensor_fixture_create(&(tensor_case){.model = TENSOR_GPT, .mesh = mesh, .dims = DIMS}, &x->f);
    x->mesh = x->f.pricer.mesh;
    x->request = dtp_plan_request_init();
    x->request.options.mesh = &x->mesh;
    x->mode = mode;
}

static void plan_fixed(const fixture *x, const dtp_graph_variant *choices, dtp_plan_result *out)
{
    dtp_plan_request request = x->request;
    dtp_err err = {0};
    request.variant = choices;
    if (x->mode(x->f.model, x->f.machine, &request, out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static void search(const fixture *x, const dtp_variant_search *what, dtp_plan_result *out)
{
    dtp_err err = {0};
    if (dtp_plan_variants(x->mode, x->f.model, x->f.machine, &x->request, what, out, &err) !=
        DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

/* ---- all choices, one by one ---- */

typedef struct enumeration {
    double best_s;
    int64_t least_bytes; /* with objective memory: of the best plan */
    int32_t feasible, n;
} enumeration;

static void choices_of(const fixture *x, dtp_arena *arena, int32_t *n, dtp_remat **out)
{
    assert_int_equal(
        dtp_remat_choices(x->f.model, x->f.machine, x->request.target, arena, n, out, NULL),
        DTP_OK);
}

static enumeration enumerate(const fixture *x, const dtp_variant_search *what)
{
    enumeration e = {.best_s = 1e30, .least_bytes = INT64_MAX};
    dtp_arena *arena = dtp_arena_create();
    dtp_remat *remat;
    int32_t n_remat, n_counts, *counts;
    choices_of(x, arena, &n_remat, &remat);
    assert_int_equal(
        dtp_microbatch_variants(x->f.model, MAX_MICROBATCHES, arena, &n_counts, &counts, NULL),
        DTP_OK);
    n_remat = what->remat ? n_remat : 1;
    n_counts = what->microbatches ? n_counts : 1;
    for (int32_t i = 0; i < n_remat * n_counts; i++) {
        const dtp_graph_variant c = {
            .remat = remat[i / n_counts], .microbatches = counts[i % n_counts], .micro_dim = -1};
        dtp_plan_result r;
        plan_fixed(x, &c, &r);
        if (r.plan != NULL) {
            const dtp_prediction *p = &r.plan->predicted;
            e.best_s = p->step_time_s < e.best_s ? p->step_time_s : e.best_s;
            e.least_bytes = p->peak_bytes < e.least_bytes ? p->peak_bytes : e.least_bytes;
            e.feasible++;
        }
        e.n++;
        dtp_plan_result_free(&r);
    }
    dtp_arena_destroy(arena);
    return e;
}

/* ---- running a plan ---- */

static void run_plan(const fixture *x, const dtp_plan *plan)
{
    verify_case c = verify_case_init("the plan");
    dtp_plan_lowering lowering;
    dtp_graph *graph = NULL;
    dtp_program *program = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_plan_lowering_init(&lowering, plan, &err), DTP_OK);
    dtp_status s = dtp_plan_graph(plan, x->f.model, &graph, &err);
    s = s == DTP_OK ? dtp_lower(graph, &plan->sharding, &lowering.options, &program, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(program->peak_bytes, plan->predicted.peak_bytes);
    dtp_program_destroy(program);
    c.options.reference_graph = x->f.model;
    c.options.tolerance = 5e-5;
    verify_sharding(graph, &plan->sharding, &lowering.options, &c);
    dtp_graph_destroy(graph);
}

/* ---- tests ---- */

static const dtp_variant_search BOTH = {
    .remat = true, .microbatches = true, .max_microbatches = MAX_MICROBATCHES};

/* The order of the search changes, not its result. */
static const dtp_variant_search BOTH_USUAL = {
    .remat = true, .microbatches = true, .max_microbatches = MAX_MICROBATCHES, .usual = true};

static const dtp_graph_variant IN_BF16 = {.precision = {.compute = DTP_BF16, .gradients = DTP_BF16},
                                          .micro_dim = -1};

/* A limit just below the least that any plan without a choice needs. */
static int64_t limit_between(fixture *x)
{
    dtp_plan_result r;
    x->request.options.objective = DTP_OBJECTIVE_MEMORY;
    plan_fixed(x, x->request.variant, &r);
    assert_non_null(r.plan);
    const int64_t least = r.plan->certificate.bound;
    dtp_plan_result_free(&r);
    x->request.options.objective = DTP_OBJECTIVE_TIME;
    return least - 1;
}

enum { N_BETWEEN = 7 }; /* cases of check_between, in all tests */

static void check_between(const char *mesh, dtp_plan_mode mode, const dtp_variant_search *what)
{
    static int64_t asked;
    fixture x;
    dtp_plan_result r, plain;
    if (!quarter_has(asked++, N_BETWEEN)) {
        return;
    }
    create(&x, mesh, mode);
    x.request.options.memory_limit_bytes = limit_between(&x);
    plan_fixed(&x, NULL, &plain);
    assert_true(plain.infeasible && plain.plan == NULL);
    dtp_plan_result_free(&plain);
    const enumeration e = enumerate(&x, what);
    search(&x, what, &r);
    assert_true(e.feasible > 0);
    assert_non_null(r.plan);
    assert_true(dtp_graph_variant_any(&r.plan->variant));
    assert_true(r.plan->predicted.peak_bytes <= x.request.options.memory_limit_bytes);
    assert_true(r.plan->predicted.step_time_s <= e.best_s &&
                r.plan->predicted.step_time_s >= e.best_s);
    assert_int_equal(r.n_tried, e.n);
    assert_int_equal(r.plan->n_tried, e.n);
    assert_non_null(strstr(r.tried[0], "as it is: infeasible"));
    /* plans come first, and of them the one that is taken */
    const char *taken = dtp_variant_text(what, &r.plan->variant, r.arena);
    assert_int_equal(strncmp(r.tried[1], taken, strlen(taken)), 0);
    assert_int_equal(strncmp(r.tried[1] + strlen(taken), ": ", 2), 0);
    bool plans = true;
    for (int32_t i = 0; i < r.n_tried; i++) {
        const bool planned =
            strstr(r.tried[i], "infeasible") == NULL && strstr(r.tried[i], "dropped") == NULL;
        print_message("  %s\n", r.tried[i]);
        assert_true(i == 0 || plans || !planned);
        plans = i == 0 || (plans && planned);
    }
    run_plan(&x, r.plan);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&x.f);
}

static void test_graph_variants__equal_the_best_fixed_choice_in_tensor_mode(void **state)
{
    (void)state;
    check_between("x:2", dtp_plan_tensor, &BOTH);
    check_between("x:4", dtp_plan_tensor, &BOTH_USUAL);
    check_between("x:2;y:2", dtp_plan_tensor, &BOTH_USUAL);
    check_between("x:2;y:2", dtp_plan_tensor, &(dtp_variant_search){.remat = true});
}

static void test_graph_variants__equal_the_best_fixed_choice_in_rules_mode(void **state)
{
    (void)state;
    check_between("x:2", dtp_plan_rules, &BOTH);
    check_between("x:2;y:2", dtp_plan_rules, &BOTH);
    check_between("x:2", dtp_plan_rules, &(dtp_variant_search){.remat = true});
}

/* With memory enough the plan is that of the graph as it is, in whatever precision is given, and
 * most choices are dropped. */
static void check_free(dtp_plan_mode mode, const dtp_graph_variant *given)
{
    fixture x;
    dtp_plan_result r, plain;
    int32_t dropped = 0;
    create(&x, "x:2;y:2", mode);
    x.request.variant = given;
    plan_fixed(&x, given, &plain);
    search(&x, &BOTH, &r);
    assert_true(plain.plan != NULL && r.plan != NULL);
    assert_true(r.plan->variant.remat.n == 0 && r.plan->variant.microbatches <= 1);
    assert_int_equal(strncmp(r.tried[0], "as it is: ", 10), 0);
    assert_int_equal(r.plan->certificate.cost, plain.plan->certificate.cost);
    for (int32_t i = 1; i < r.n_tried; i++) {
        print_message("  %s\n", r.tried[i]);
        dropped += strstr(r.tried[i], "dropped") != NULL ? 1 : 0;
    }
    assert_true(mode != dtp_plan_tensor || dropped == r.n_tried - 1);
    dtp_plan_result_free(&plain);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&x.f);
}

static void test_graph_variants__nothing_without_need(void **state)
{
    (void)state;
    check_free(dtp_plan_tensor, NULL);
    check_free(dtp_plan_tensor, &IN_BF16);
    check_free(dtp_plan_rules, NULL);
    check_free(dtp_plan_rules, &IN_BF16);
}

/* ---- usual layouts come first ---- */

static int32_t asked_to_stop, stops_at;

static bool counts(void *user)
{
    (void)user;
    return ++asked_to_stop >= stops_at;
}

/* A text such as "--remat layer: 1.234 ms, 3.21 MiB by usual layouts, not reached". */
static double usual_seconds(const char *text)
{
    const char *at = strstr(text, ": ");
    char unit[8] = "";
    double value = 0.0;
    if (at == NULL || strstr(text, "by usual layouts") == NULL) {
        return INFINITY;
    }
    assert_int_equal(sscanf(at + 2, "%lf %7[a-z]", &value, unit), 2);
    return value * (strcmp(unit, "s") == 0 ? 1.0 : strcmp(unit, "ms") == 0 ? 1e-3 : 1e-6);
}

/* Whenever the search ends, its plan is not slower than a usual layout that it says of a variant.
 */
static void test_graph_variants__usual_layouts_come_first(void **state)
{
    (void)state;
    enum { ENDS = 12 };
    fixture x;
    int32_t n_usual = 0, n_plans = 0, all = INT32_MAX;
    const dtp_stop stop = {.interrupted = counts};
    create(&x, "x:2;y:2", dtp_plan_tensor);
    x.request.options.memory_limit_bytes = limit_between(&x);
    x.request.options.mesh = NULL;
    x.request.options.devices = 4;
    x.request.options.threads = 1;
    x.request.stop = &stop;
    for (int32_t i = ENDS; i > 0; i--) {
        dtp_plan_result r;
        dtp_err err = {0};
        asked_to_stop = 0;
        stops_at = i == ENDS ? INT32_MAX : 1 + (int32_t)((int64_t)all * i / ENDS);
        const dtp_status s =
            dtp_plan_variants(x.mode, x.f.model, x.f.machine, &x.request, &BOTH_USUAL, &r, &err);
        assert_true(s == DTP_OK || (s == DTP_STOPPED && i < ENDS));
        all = i == ENDS ? asked_to_stop : all;
        for (int32_t k = 0; s == DTP_OK && r.plan != NULL && k < r.n_tried; k++) {
            const double seconds = usual_seconds(r.tried[k]);
            assert_true(r.plan->predicted.step_time_s <= 1.001 * seconds);
            n_usual += isfinite(seconds) ? 1 : 0;
        }
        n_plans += s == DTP_OK && r.plan != NULL ? 1 : 0;
        dtp_plan_result_free(&r);
    }
    print_message("%d of %d searches have a plan, %d usual layouts are said beside\n", n_plans,
                  ENDS, n_usual);
    assert_true(n_plans > ENDS / 4 && n_usual > n_plans);
    tensor_fixture_destroy(&x.f);
}

/* What helps is said without what was asked for, and it helps. */
static void check_help(fixture *x, dtp_planning_mode mode, const char *microbatches)
{
    dtp_plan_options o = dtp_plan_options_init();
    dtp_plan_result r;
    dtp_err err = {0};
    char *text = NULL;
    o.mode = mode;
    o.mesh = &x->mesh;
    o.precision = "bf16";
    o.microbatches = microbatches;
    o.memory_limit_bytes = x->request.options.memory_limit_bytes;
    if (dtp_plan_what_helps(x->f.model, x->f.machine, &o, &text, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_non_null(text);
    print_message("%s helps\n", text);
    assert_null(strstr(text, "--precision"));
    assert_true(microbatches == NULL || strstr(text, "--microbatches") == NULL);
    o.remat = strstr(text, "--remat") != NULL ? "all" : NULL;
    o.microbatches = microbatches != NULL || strstr(text, "--micro") == NULL ? microbatches : "16";
    assert_int_equal(dtp_plan_make(x->f.model, x->f.machine, &o, &r, &err), DTP_OK);
    assert_non_null(r.plan);
    dtp_plan_result_free(&r);
    free(text);
}

static void test_graph_variants__what_helps(void **state)
{
    (void)state;
    fixture x;
    create(&x, "x:2", dtp_plan_tensor);
    x.request.variant = &IN_BF16;
    x.request.options.memory_limit_bytes = limit_between(&x);
    check_help(&x, DTP_PLAN_TENSOR, NULL);
    check_help(&x, DTP_PLAN_RULES, NULL);
    check_help(&x, DTP_PLAN_TENSOR, "1");
    tensor_fixture_destroy(&x.f);
}

/* People see the first few; the plan file has all. */
static void test_graph_variants__few_are_printed(void **state)
{
    enum { N = 40, MOST = 3 };
    static const int32_t counts[] = {0, 1, MOST, MOST + 1, N};
    static const char *tried[N];
    (void)state;
    for (int32_t i = 0; i < N; i++) {
        tried[i] = "as it is: infeasible";
    }
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        dtp_strbuf out = {0};
        char rest[32];
        int32_t lines = 0;
        dtp_plan_print_tried(counts[k], tried, &out);
        const char *text = dtp_strbuf_text(&out);
        for (const char *c = text; *c != '\0'; c++) {
            lines += *c == '\n' ? 1 : 0;
        }
        (void)snprintf(rest, sizeof rest, "tried: %d more\n", (int)(counts[k] - MOST));
        assert_int_equal(lines, counts[k] <= MOST ? counts[k] : MOST + 1);
        assert_true((strstr(text, rest) != NULL) == (counts[k] > MOST));
        dtp_strbuf_free(&out);
    }
}

static void test_graph_variants__least_memory(void **state)
{
    (void)state;
    fixture x;
    dtp_plan_result r;
    create(&x, "x:2", dtp_plan_tensor);
    x.request.options.objective = DTP_OBJECTIVE_MEMORY;
    const enumeration e = enumerate(&x, &BOTH);
    search(&x, &BOTH, &r);
    assert_non_null(r.plan);
    assert_int_equal(r.plan->predicted.peak_bytes, e.least_bytes);
    assert_true(dtp_graph_variant_any(&r.plan->variant));
    run_plan(&x, r.plan);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&x.f);
}

/* One of the two given, the other searched; and whether anything helps. */
static void test_graph_variants__one_is_given(void **state)
{
    (void)state;
    fixture x;
    dtp_plan_result r;
    const dtp_graph_variant two = {.microbatches = 2, .micro_dim = -1};
    create(&x, "x:2", dtp_plan_tensor);
    x.request.variant = &two;
    search(&x, &(dtp_variant_search){.remat = true}, &r);
    assert_non_null(r.plan);
    assert_int_equal(r.plan->variant.microbatches, 2);
    for (int32_t i = 0; i < r.n_tried; i++) { /* what is given is in all of them */
        assert_null(strstr(r.tried[i], "--microbatches"));
    }
    dtp_plan_result_free(&r);
    x.request.variant = NULL;
    x.request.options.memory_limit_bytes = limit_between(&x);
    search(&x, &(dtp_variant_search){.remat = true, .microbatches = true, .helps = true}, &r);
    assert_non_null(r.plan);
    assert_true(dtp_graph_variant_any(&r.plan->variant));
    dtp_plan_result_free(&r);
    x.request.options.memory_limit_bytes = 1000;
    search(&x, &BOTH, &r);
    dtp_arena *arena = dtp_arena_create();
    dtp_remat *remat;
    int32_t n_remat;
    choices_of(&x, arena, &n_remat, &remat);
    assert_true(r.infeasible && r.plan == NULL && r.smallest_bound > 1000);
    assert_int_equal(r.n_tried, 3 * n_remat);
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&x.f);
}

/* The plan as a file and back. */
static void check_round_trip(const fixture *x, const dtp_plan *plan)
{
    dtp_err err = {0};
    char *text[2] = {NULL, NULL};
    dtp_plan *back = NULL;
    dtp_graph *graph = NULL;
    assert_int_equal(dtp_plan_graph(plan, x->f.model, &graph, &err), DTP_OK);
    assert_int_equal(dtp_plan_write(plan, graph, false, &text[0], &err), DTP_OK);
    if (dtp_plan_read("plan", text[0], strlen(text[0]), x->f.model, &back, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(back->variant.precision.compute, plan->variant.precision.compute);
    assert_int_equal(back->variant.precision.gradients, plan->variant.precision.gradients);
    assert_int_equal(back->variant.precision.tf32, plan->variant.precision.tf32);
    assert_int_equal(back->variant.precision.fp8, plan->variant.precision.fp8);
    assert_int_equal(dtp_plan_compute_dtype(back), plan->variant.precision.compute);
    assert_int_equal(dtp_plan_write(back, graph, false, &text[1], &err), DTP_OK);
    assert_string_equal(text[0], text[1]);
    dtp_plan_destroy(back);
    dtp_graph_destroy(graph);
    free(text[0]);
    free(text[1]);
}

/* f32, bf16 with gradients of parameters in bf16 and in f32: the fastest is taken. */
static void test_graph_variants__precision_is_searched(void **state)
{
    static const dtp_precision all[] = {{DTP_F32, DTP_F32, false, false},
                                        {DTP_BF16, DTP_BF16, false, false},
                                        {DTP_BF16, DTP_F32, false, false}};
    (void)state;
    fixture x;
    dtp_plan_result r;
    double best_s = 1e30, f32_s = 0.0;
    int64_t f32_bytes = 0;
    create(&x, "x:2", dtp_plan_tensor);
    x.request.target = &dtp_target_ref;
    for (int i = 0; i < 3; i++) {
        const dtp_graph_variant c = {
            .precision = all[i], .microbatches = i == 2 ? 2 : 1, .micro_dim = -1};
        plan_fixed(&x, &c, &r);
        assert_non_null(r.plan);
        const dtp_prediction *p = &r.plan->predicted;
        f32_s = i == 0 ? p->step_time_s : f32_s;
        f32_bytes = i == 0 ? p->peak_bytes : f32_bytes;
        assert_true(i == 0 || p->peak_bytes < f32_bytes);
        check_round_trip(&x, r.plan);
        dtp_plan_result_free(&r);
    }
    static const char *const kept[] = {"layer:0 keep=**.{attn,mlp.up}$,**.x1$", "layer:1"};
    const dtp_graph_variant selective = {.remat = {2, kept}, .micro_dim = -1};
    plan_fixed(&x, &selective, &r);
    assert_string_equal(r.plan->variant.remat.items[0], kept[0]);
    check_round_trip(&x, r.plan);
    dtp_plan_result_free(&r);
    for (int i = 0; i < 3; i++) {
        const dtp_graph_variant c = {.precision = all[i], .micro_dim = -1};
        plan_fixed(&x, &c, &r);
        best_s = r.plan->predicted.step_time_s < best_s ? r.plan->predicted.step_time_s : best_s;
        dtp_plan_result_free(&r);
    }
    search(&x, &(dtp_variant_search){.precision = true}, &r);
    assert_non_null(r.plan);
    assert_int_equal(r.n_tried, 3);
    assert_int_equal(strncmp(r.tried[0], "as it is: ", 10), 0);
    const bool whole = strncmp(r.tried[1], "--precision bf16: ", 18) == 0;
    assert_int_equal(strncmp(r.tried[whole ? 1 : 2], "--precision bf16: ", 18), 0);
    assert_int_equal(strncmp(r.tried[whole ? 2 : 1], "--precision bf16,gradients=f32: ", 32), 0);
    assert_true(r.plan->predicted.step_time_s == best_s && best_s < f32_s);
    assert_int_equal(r.plan->variant.precision.compute, DTP_BF16);
    dtp_plan_result_free(&r);
    /* what f32 cannot fit, bf16 does */
    x.request.options.objective = DTP_OBJECTIVE_MEMORY;
    search(&x, &(dtp_variant_search){.precision = true}, &r);
    assert_int_equal(r.plan->variant.precision.compute, DTP_BF16);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&x.f);
}

/* ---- selective recomputation ---- */

static dtp_graph *shipped(const char *name)
{
    char path[256];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", name);
    if (dtp_model_read(path, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* Bytes that a list of recomputation makes again. */
static double again_bytes(const dtp_graph *g, const dtp_remat *remat, dtp_arena *arena)
{
    const bool *again = NULL;
    double bytes = 0.0;
    assert_int_equal(dtp_remat_again(g, remat, arena, &again, NULL), DTP_OK);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        bytes += again[t] ? (double)dtp_ttype_elems(&g->tensors[t].type) : 0.0;
    }
    return bytes;
}

/* What may be tried of a block: at most six lists of what is kept, each shorter than the one
 * before, then the block; they are texts that a user may give. */
static void test_graph_variants__selections_of_every_model(void **state)
{
    static const char *const models[] = {"gpt_bytes",    "gpt2_small", "llama3_8b",
                                         "mixtral_8x7b", "bert_large", "vit_b16"};
    (void)state;
    dtp_machine *machine = NULL;
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        dtp_graph *g = shipped(models[i]);
        dtp_arena *arena = dtp_arena_create();
        dtp_remat *list;
        int32_t n, selections = 0;
        double last = 0.0;
        assert_int_equal(dtp_remat_choices(g, machine, &dtp_target_cuda, arena, &n, &list, NULL),
                         DTP_OK);
        assert_int_equal(list[0].n, 0);
        for (int32_t k = 1; k < n; k++) {
            const bool selects = list[k].n == 1 && strstr(list[k].items[0], " keep=") != NULL;
            const double bytes = again_bytes(g, &list[k], arena);
            dtp_remat read;
            dtp_err err = {0};
            if (list[k].n == 1 &&
                dtp_remat_parse(list[k].items[0], g, arena, &read, &err) != DTP_OK) {
                fail_msg("%s: %s", models[i], err.msg);
            }
            selections = selects ? selections + 1 : 0;
            assert_true(selections <= DTP_REMAT_SELECTIONS &&
                        bytes > (selections > 1 ? last : 0.0));
            last = bytes;
        }
        assert_true(strstr(list[n - 1].items[0], " keep=") == NULL && n > DTP_REMAT_SELECTIONS / 2);
        dtp_arena_destroy(arena);
        dtp_graph_destroy(g);
    }
    dtp_machine_destroy(machine);
}

/* Llama 3 8B over 8 cards: the outputs of attention and of every second product are kept. */
static void test_graph_variants__selective_recomputation_lies_between(void **state)
{
    static const char *const texts[] = {
        NULL, "layer keep=**.{attn.q.mm,attn.v,attn,mlp.gate.mm,mlp.out}$", "layer"};
    static const char *const styles[] = {"**: data", "**: fsdp"};
    (void)state;
    dtp_graph *g = shipped("llama3_8b");
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    double bytes[3], step_s[3];
    dtp_err err = {0};
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("dp:8", &mesh, NULL), DTP_OK);
    for (int i = 0; i < 3; i++) {
        dtp_plan_options o = dtp_plan_options_init();
        dtp_plan_result r;
        o.mode = DTP_PLAN_PINS;
        o.mesh = &mesh;
        o.n_styles = 2;
        o.styles = styles;
        o.target = "cuda";
        o.precision = "bf16";
        o.outputs = "none";
        o.memory_limit_bytes = -1;
        o.remat = texts[i];
        if (dtp_plan_make(g, machine, &o, &r, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        bytes[i] = (double)r.plan->predicted.peak_bytes;
        step_s[i] = r.plan->predicted.step_time_s;
        dtp_plan_result_free(&r);
    }
    print_message("%.2f, %.2f and %.2f GiB; %.3f, %.3f and %.3f s\n", bytes[0] / 0x1p30,
                  bytes[1] / 0x1p30, bytes[2] / 0x1p30, step_s[0], step_s[1], step_s[2]);
    assert_true(bytes[1] < 0.5 * bytes[0] && bytes[1] > bytes[2]);
    assert_true(step_s[0] < step_s[1] && step_s[1] < step_s[2]);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

/* tf32: a plan records it and is as large as in f32; targets without it refuse. */
static void test_graph_variants__tf32_is_planned(void **state)
{
    (void)state;
    const dtp_graph_variant tf32 = {
        .precision = {.compute = DTP_F32, .gradients = DTP_F32, .tf32 = true}, .micro_dim = -1};
    fixture x;
    dtp_plan_result r;
    dtp_err err = {0};
    for (int i = 0; i < 2; i++) {
        create(&x, "x:2", i == 0 ? dtp_plan_tensor : dtp_plan_rules);
        x.request.target = &dtp_target_cuda;
        plan_fixed(&x, &tf32, &r);
        assert_non_null(r.plan);
        assert_true(r.plan->variant.precision.tf32);
        check_round_trip(&x, r.plan);
        dtp_plan_result_free(&r);
        x.request.target = &dtp_target_cpu;
        x.request.variant = &tf32;
        assert_int_equal(x.mode(x.f.model, x.f.machine, &x.request, &r, &err), DTP_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "precision 'tf32': target 'cpu'"));
        tensor_fixture_destroy(&x.f);
    }
}

/* The same layouts in f32 and tf32: quicker on cards that have it, of the same size. */
static void test_graph_variants__tf32_is_quicker(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "tf32", "bf16"};
    dtp_err err = {0};
    dtp_graph *model = NULL;
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    dtp_prediction p[3];
    dtp_job_options options = dtp_job_options_init();
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/gpt2_small.json", NULL, &model, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/a100_8.json", &machine, &err), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:8", &mesh, &err), DTP_OK);
    options.mesh = &mesh;
    options.rules = "d_ff:x";
    options.target = "cuda";
    options.machine = machine;
    for (int i = 0; i < 3; i++) {
        dtp_job *job = NULL;
        options.precision = names[i];
        assert_int_equal(dtp_job_create(model, &options, &job, &err), DTP_OK);
        p[i] = *dtp_job_predicted(job);
        dtp_job_destroy(job);
    }
    assert_true(p[1].compute_s < 0.6 * p[0].compute_s && p[2].compute_s < p[1].compute_s);
    assert_true(p[1].peak_bytes == p[0].peak_bytes && p[2].peak_bytes < p[1].peak_bytes);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graph_variants__equal_the_best_fixed_choice_in_tensor_mode),
        cmocka_unit_test(test_graph_variants__equal_the_best_fixed_choice_in_rules_mode),
        cmocka_unit_test(test_graph_variants__nothing_without_need),
        cmocka_unit_test(test_graph_variants__usual_layouts_come_first),
        cmocka_unit_test(test_graph_variants__what_helps),
        cmocka_unit_test(test_graph_variants__few_are_printed),
        cmocka_unit_test(test_graph_variants__least_memory),
        cmocka_unit_test(test_graph_variants__one_is_given),
        cmocka_unit_test(test_graph_variants__precision_is_searched),
        cmocka_unit_test(test_graph_variants__selections_of_every_model),
        cmocka_unit_test(test_graph_variants__selective_recomputation_lies_between),
        cmocka_unit_test(test_graph_variants__tf32_is_planned),
        cmocka_unit_test(test_graph_variants__tf32_is_quicker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
