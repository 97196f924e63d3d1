/* From graph and machine to a plan: limits, pins, baselines, mesh search, certificates. */
#include "planner/plan_rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "planner/mesh_search.h"
#include "tests/support/random_graphs.h"

static dtp_machine *machine;

static int setup(void **state)
{
    (void)state;
    return dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, NULL) ==
                   DTP_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    dtp_machine_destroy(machine);
    return 0;
}

static dtp_graph *model(const char *file)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s", file);
    if (dtp_model_read(path, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_plan_result plan(const dtp_graph *g, const dtp_plan_request *request)
{
    dtp_plan_result result;
    dtp_err err = {0};
    if (dtp_plan_rules(g, machine, request, &result, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return result;
}

/* What every plan must hold. */
static void check_plan(const dtp_plan_request *request, const dtp_plan *p)
{
    const dtp_certificate *c = &p->certificate;
    assert_true(c->status == DTP_CERT_OPTIMAL || c->status == DTP_CERT_FEASIBLE);
    assert_true(c->bound <= c->cost && c->bound > 0);
    assert_true(c->status != DTP_CERT_OPTIMAL || c->bound == c->cost);
    if (request->options.memory_limit_bytes > 0) {
        assert_true(p->predicted.peak_bytes <= request->options.memory_limit_bytes);
    }
    for (int32_t i = 0; i < p->n_baselines; i++) {
        const dtp_baseline *b = &p->baselines[i];
        const bool fits =
            b->legal && (request->options.memory_limit_bytes == 0 ||
                         b->predicted.peak_bytes <= request->options.memory_limit_bytes);
        assert_true(b->legal == (b->why == NULL));
        if (!fits || request->options.rules != NULL) {
            continue;
        }
        if (request->options.objective == DTP_OBJECTIVE_TIME) {
            assert_true(p->predicted.step_time_s <= b->predicted.step_time_s);
        } else {
            assert_true(p->predicted.peak_bytes <= b->predicted.peak_bytes);
        }
    }
}

static dtp_mesh mesh_of(const char *text)
{
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse(text, &mesh, NULL), DTP_OK);
    return mesh;
}

static void test_plan_rules__never_worse_than_a_baseline(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2", "x:4", "x:2;y:2", "x:3", "x:2;y:3"};
    int32_t planned = 0;
    for (uint64_t seed = 9000; seed < 9150; seed++) {
        char *text = NULL;
        dtp_graph *g = random_graph(seed, &text);
        print_message("seed %llu\n", (unsigned long long)seed);
        assert_non_null(g);
        const dtp_mesh mesh = mesh_of(meshes[seed % 5]);
        dtp_plan_request request = dtp_plan_request_init();
        request.options.mesh = &mesh;
        request.options.objective = seed % 4 == 0 ? DTP_OBJECTIVE_MEMORY : DTP_OBJECTIVE_TIME;
        dtp_plan_result free_plan = plan(g, &request);
        check_plan(&request, free_plan.plan);
        request.options.memory_limit_bytes = free_plan.plan->predicted.peak_bytes - 1;
        dtp_plan_result tight = plan(g, &request);
        if (tight.infeasible) {
            assert_null(tight.plan);
            assert_true(tight.smallest_peak_bytes > request.options.memory_limit_bytes);
            request.options.memory_limit_bytes = tight.smallest_peak_bytes;
            dtp_plan_result_free(&tight);
            tight = plan(g, &request);
            assert_false(tight.infeasible);
        }
        check_plan(&request, tight.plan);
        planned++;
        dtp_plan_result_free(&tight);
        dtp_plan_result_free(&free_plan);
        dtp_graph_destroy(g);
        free(text);
    }
    assert_int_equal(planned, 150);
}

static void test_plan_rules__same_input_same_plan(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes.json");
    const dtp_mesh mesh = mesh_of("x:2;y:2");
    dtp_plan_request request = dtp_plan_request_init();
    char *texts[2];
    request.options.mesh = &mesh;
    request.options.rules_file = DTP_SOURCE_DIR "/models/gpt_bytes.rules.json";
    for (int32_t i = 0; i < 2; i++) {
        dtp_plan_result r = plan(g, &request);
        check_plan(&request, r.plan);
        assert_true(r.plan->n_baselines > 2);
        assert_int_equal(dtp_plan_write(r.plan, g, false, &texts[i], NULL), DTP_OK);
        dtp_plan_result_free(&r);
    }
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    dtp_graph_destroy(g);
}

static void test_plan_rules__pins_hold(void **state)
{
    (void)state;
    dtp_graph *g = model("mlp_digits.json");
    const dtp_mesh mesh = mesh_of("x:2;y:2");
    const dtp_dim_id batch = dtp_dims_find(&g->dims, "batch");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.rules = "batch:y";
    dtp_plan_result r = plan(g, &request);
    assert_int_equal(r.plan->rules.splits[batch].n, 1);
    assert_int_equal(r.plan->rules.splits[batch].mesh_dims[0], 1);
    dtp_plan_result_free(&r);
    request.options.rules = "batch:x;batch:y";
    r = plan(g, &request);
    assert_int_equal(r.plan->rules.splits[batch].n, 2);
    assert_int_equal(r.plan->certificate.status, DTP_CERT_OPTIMAL);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

static void test_plan_rules__bad_pins_are_errors(void **state)
{
    (void)state;
    dtp_graph *g = model("mlp_digits.json");
    const dtp_mesh mesh = mesh_of("x:2;y:7");
    static const struct {
        const char *pins;
        const char *words;
    } cases[] = {{"nosuch:x", "nosuch"},
                 {"batch:z", "'z'"},
                 {"batch:y", "batch:y"},
                 {"batch", "DIM:MESH DIM"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_plan_request request = dtp_plan_request_init();
        dtp_plan_result r = {0};
        dtp_err err = {0};
        request.options.mesh = &mesh;
        request.options.rules = cases[i].pins;
        const dtp_status s = dtp_plan_rules(g, machine, &request, &r, &err);
        assert_true(dtp_status_is_input(s));
        assert_non_null(strstr(err.msg, cases[i].words));
        assert_null(r.plan);
    }
    dtp_graph_destroy(g);
}

static int64_t product(const dtp_mesh *mesh)
{
    return dtp_mesh_ranks(mesh);
}

static void test_plan_rules__searches_meshes_of_any_size(void **state)
{
    (void)state;
    static const int32_t devices[] = {1, 2, 3, 6, 7, 12};
    dtp_graph *g = model("mlp_digits.json");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        dtp_plan_request request = dtp_plan_request_init();
        request.options.devices = devices[i];
        dtp_plan_result r = plan(g, &request);
        check_plan(&request, r.plan);
        assert_int_equal(product(&r.plan->mesh), devices[i]);
        dtp_plan_result_free(&r);
    }
    dtp_graph_destroy(g);
}

/* The search finds nothing that planning on some mesh alone beats, with more dims by 1 %. */
static void test_plan_rules__search_is_the_best_of_its_meshes(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes.json");
    dtp_arena *arena = dtp_arena_create();
    dtp_mesh *meshes;
    int32_t n;
    dtp_plan_request request = dtp_plan_request_init();
    request.options.devices = 8;
    dtp_plan_result best = plan(g, &request);
    assert_int_equal(dtp_mesh_factorisations(8, 3, arena, &n, &meshes, NULL), DTP_OK);
    assert_int_equal(n, 4);
    for (int32_t i = 0; i < n; i++) {
        request.options.mesh = &meshes[i];
        dtp_plan_result r = plan(g, &request);
        const bool more = meshes[i].n_dims > best.plan->mesh.n_dims;
        assert_true((more ? 0.98 : 1.0) * best.plan->predicted.step_time_s <=
                    r.plan->predicted.step_time_s);
        dtp_plan_result_free(&r);
    }
    dtp_plan_result_free(&best);
    dtp_arena_destroy(arena);
    dtp_graph_destroy(g);
}

static void test_mesh_factorisations__counts(void **state)
{
    (void)state;
    static const int32_t expected[][2] = {{1, 1}, {2, 1},  {3, 1},  {6, 3},
                                          {8, 4}, {12, 8}, {64, 16}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_mesh *meshes;
        int32_t n;
        assert_int_equal(dtp_mesh_factorisations(expected[i][0], 3, arena, &n, &meshes, NULL),
                         DTP_OK);
        assert_int_equal(n, expected[i][1]);
        for (int32_t k = 0; k < n; k++) {
            assert_int_equal(product(&meshes[k]), expected[i][0]);
        }
        dtp_arena_destroy(arena);
    }
}

/* What a purely one-to-one assignment of dims to mesh dims cannot say: batch over both. */
static void test_plan_rules__splits_one_dim_over_two_mesh_dims(void **state)
{
    (void)state;
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"wide\", \"dims\": {\"batch\": 4096, \"d\": 7},"
        "\"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"], \"dtype\": \"f32\"}},"
        "\"nodes\": [{\"id\": \"y\", \"op\": \"tanh\", \"in\": [\"x\"]}], \"outputs\": [\"y\"]}";
    dtp_graph *g = NULL;
    assert_int_equal(dtp_model_parse("wide", text, strlen(text), NULL, &g, NULL), DTP_OK);
    const dtp_mesh mesh = mesh_of("x:2;y:4");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    dtp_plan_result r = plan(g, &request);
    assert_int_equal(r.plan->predicted.peak_bytes, 2 * 4096 * 7 * 4 / 8);
    assert_int_equal(r.plan->certificate.status, DTP_CERT_OPTIMAL);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

/* In every mode, before anything is planned; another target has the kernels. */
static void test_plan_make__dtypes_without_kernels_are_refused(void **state)
{
    (void)state;
    const dtp_model_options f64 = {.size = sizeof f64, .f64 = true};
    const dtp_planning_mode modes[] = {DTP_PLAN_RULES, DTP_PLAN_TENSOR, DTP_PLAN_PINS};
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", &f64, &g, NULL),
                     DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        dtp_plan_options o = dtp_plan_options_init();
        dtp_plan_result r = {0};
        dtp_err err = {0};
        o.mode = modes[i];
        o.mesh = &mesh;
        assert_int_equal(dtp_plan_make(g, machine, &o, &r, &err), DTP_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "target 'cpu' has no kernel of"));
        assert_non_null(strstr(err.msg, "for f64, only for f32"));
        o.target = "ref";
        assert_int_equal(dtp_plan_make(g, machine, &o, &r, &err), DTP_OK);
        assert_string_equal(r.plan->target, "ref");
        dtp_plan_result_free(&r);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_rules__never_worse_than_a_baseline),
        cmocka_unit_test(test_plan_rules__same_input_same_plan),
        cmocka_unit_test(test_plan_rules__pins_hold),
        cmocka_unit_test(test_plan_rules__bad_pins_are_errors),
        cmocka_unit_test(test_plan_rules__searches_meshes_of_any_size),
        cmocka_unit_test(test_plan_rules__search_is_the_best_of_its_meshes),
        cmocka_unit_test(test_mesh_factorisations__counts),
        cmocka_unit_test(test_plan_rules__splits_one_dim_over_two_mesh_dims),
        cmocka_unit_test(test_plan_make__dtypes_without_kernels_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
