/* Every legal rule set of the digits MLP, as shipped and with sizes that more of them split, and
 * hand-written rules of other models, on virtual ranks against one device: outputs, gradients and
 * updates of 3 steps, and the predicted peak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "tests/support/plan_case.h"
#include "tests/support/quarter.h"

static const double TOLERANCE = 2e-5;

/* Fed with the text that it is meant for: on random bytes nearly all gradients cancel, and Adam's
 * first steps enlarge what rounding leaves of them
 * (docs/decisions/0004-gpt-bytes-optimizer.md). */
static const plan_model GPT = {.file = "models/gpt_bytes.json", .dims = "length=32", .text = true};

static void verify(const one_device *d, const dtp_sharding *s, const char *what)
{
    verify_case c = d->verify;
    c.what = what;
    c.options.tolerance = TOLERANCE;
    verify_sharding(d->model, s, NULL, &c);
}

/* Whether the rules are legal; fills the sharding then. */
static bool follow_rules(const dtp_graph *g, const dtp_mesh *mesh, const dtp_layout_rules *rules,
                         dtp_arena *arena, dtp_sharding *out)
{
    return dtp_sharding_from_rules(g, mesh, rules, false, arena, out, NULL) == DTP_OK;
}

static int verify_all_rules(const one_device *d, const char *mesh_text)
{
    const dtp_graph *g = d->model;
    dtp_mesh mesh;
    int legal = 0;
    int64_t total = 1;
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    const int64_t choices = mesh.n_dims + 1;
    for (int32_t i = 0; i < g->dims.n; i++) {
        total *= choices;
    }
    assert_in_range(total, 2, 100000);
    for (int64_t code = 0; code < total; code++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_layout_rules rules;
        dtp_sharding s;
        assert_int_equal(dtp_layout_rules_create(arena, g->dims.n, &rules, NULL), DTP_OK);
        int64_t c = code;
        for (int32_t i = 0; i < g->dims.n; i++, c /= choices) {
            if (c % choices > 0) {
                rules.splits[i] =
                    (dtp_rule_splits){.n = 1, .mesh_dims = {(int8_t)(c % choices - 1)}};
            }
        }
        if (follow_rules(g, &mesh, &rules, arena, &s)) {
            char what[256];
            (void)snprintf(what, sizeof what, "%s rules '%s'", mesh_text,
                           dtp_layout_rules_print(&rules, &mesh, &g->dims, arena));
            if (quarter_has(legal++, INT32_MAX)) {
                verify(d, &s, what);
            }
        }
        dtp_arena_destroy(arena);
    }
    (void)printf("mesh %s: %d legal rule sets\n", mesh_text, legal);
    return legal;
}

static void verify_all_meshes(const char *dims, int least_x4)
{
    one_device d;
    one_device_open(&(plan_model){.file = "models/mlp_digits.json", .dims = dims}, &d);
    assert_true(verify_all_rules(&d, "x:2") >= 4);
    assert_true(verify_all_rules(&d, "x:4") >= least_x4);
    assert_true(verify_all_rules(&d, "x:2;y:2") >= 9);
    one_device_close(&d);
}

static void test_mlp__every_legal_rule_set(void **state)
{
    (void)state;
    verify_all_meshes("batch=16 classes=12", 4);
}

static void test_mlp__every_legal_rule_set_of_it_as_shipped(void **state)
{
    (void)state;
    verify_all_meshes(NULL, 3);
}

static void test_gpt__hand_written_rules(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"x:2", "batch:x"},
        {"x:2", "heads:x;d_ff:x;vocab:x"},
        {"x:3", "heads:x;d_ff:x"},
        {"x:4", "batch:x"},
        {"x:4", "d_ff:x;vocab:x"},
        {"x:2;y:2", "batch:x;heads:y;d_ff:y;vocab:y"},
        {"x:4;y:2", "batch:x;heads:y;d_ff:y;vocab:y"},
        {"x:2", "d_model:x"},
        {"x:2", "length:x"},
        {"x:4", "heads:x;d_ff:x;vocab:x"},
        {"x:8", "batch:x"},
        {"x:8", "d_ff:x;vocab:x"},
        {"x:2;y:4", "batch:x;heads:y;d_ff:y;vocab:y"},
        {"x:2;y:4", "batch:y;heads:x;d_ff:x"},
    };
    one_device d;
    one_device_open(&GPT, &d);
    const dtp_graph *g = d.model;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_mesh mesh;
        dtp_layout_rules rules;
        dtp_sharding s;
        dtp_err err = {0};
        assert_int_equal(dtp_mesh_parse(cases[i][0], &mesh, &err), DTP_OK);
        assert_int_equal(dtp_layout_rules_parse(cases[i][1], &mesh, &g->dims, arena, &rules, &err),
                         DTP_OK);
        if (dtp_sharding_from_rules(g, &mesh, &rules, false, arena, &s, &err) != DTP_OK) {
            fail_msg("%s: %s", cases[i][1], err.msg);
        }
        char what[256];
        (void)snprintf(what, sizeof what, "gpt on '%s' with '%s'", cases[i][0], cases[i][1]);
        if (quarter_has((int64_t)i, sizeof cases / sizeof cases[0])) {
            verify(&d, &s, what);
        }
        dtp_arena_destroy(arena);
    }
    one_device_close(&d);
}

/* ---- rules as a job takes them, with what else it may say ---- */

#define LLAMA "batch=4 layers=2 length=8 vocab=32 kv_heads=2 group=2 d_head=4 d_ff=24"

typedef struct rules_case {
    plan_model model;
    const char *mesh, *rules, *remat, *microbatches;
} rules_case;

static const rules_case JOBS[] = {
    {.model = {.file = "models/mlp_digits.json"},
     .mesh = "x:2",
     .rules = "batch:x",
     .microbatches = "4"},
    {.model = {.file = "models/gpt_bytes.json", .dims = "length=32", .text = true, .ring = true},
     .mesh = "x:2;y:2",
     .rules = "length:x;batch:y"},
    {.model = {.file = "models/gpt_bytes.json", .dims = "length=32", .text = true},
     .mesh = "x:2",
     .rules = "batch:x",
     .remat = "all",
     .microbatches = "3"},
    {.model = {.file = "models/gpt_bytes_dropout.json", .dims = "length=32", .text = true},
     .mesh = "x:2",
     .rules = "heads:x;d_ff:x;vocab:x",
     .remat = "layer:1-3",
     .microbatches = "2"},
    {.model = {.file = "models/llama3_8b.json", .dims = LLAMA},
     .mesh = "x:2",
     .rules = "kv_heads:x;d_ff:x;vocab:x"},
    {.model = {.file = "models/mixtral_8x7b.json", .dims = LLAMA " experts=4 capacity=3"},
     .mesh = "x:2",
     .rules = "batch:x;experts:x"},
};

static void test_jobs__by_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof JOBS / sizeof JOBS[0]; i++) {
        const rules_case *c = &JOBS[i];
        dtp_job_options options = dtp_job_options_init();
        one_device d;
        one_device_open(&c->model, &d);
        options.remat = c->remat;
        options.microbatches = c->microbatches;
        dtp_verify_result r = rules_verify(&d, c->mesh, c->rules, &options);
        assert_true(r.max_rel_err <= TOLERANCE);
        dtp_verify_result_free(&r);
        one_device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__every_legal_rule_set),
        cmocka_unit_test(test_mlp__every_legal_rule_set_of_it_as_shipped),
        cmocka_unit_test(test_gpt__hand_written_rules),
        cmocka_unit_test(test_jobs__by_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
