/* Every legal rule set of the digits MLP, and hand-written rules of the byte-level GPT, on virtual
 * ranks against one device: outputs, gradients and parameters after 3 steps, and the predicted
 * peak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "tests/support/verify_case.h"
#include "tests/support/quarter.h"

#define MLP DTP_SOURCE_DIR "/models/mlp_digits.json"
#define GPT DTP_SOURCE_DIR "/models/gpt_bytes.json"

static const double TOLERANCE = 2e-5;

/* The text that the GPT is meant for: on random bytes nearly all gradients cancel, and Adam's first
 * steps enlarge what rounding leaves of them (docs/decisions/0004-gpt-bytes-optimizer.md). */
static const dtp_feed_spec TEXT = {.input = "text", .file = DTP_SOURCE_DIR "/models/data/text.txt"};

static void verify(const dtp_graph *g, const dtp_sharding *s, const char *what)
{
    verify_case c = verify_case_init(what);
    c.options.tolerance = TOLERANCE;
    c.options.n_feeds = dtp_graph_find(g, TEXT.input) >= 0 ? 1 : 0;
    c.options.feeds = &TEXT;
    verify_sharding(g, s, NULL, &c);
}

static dtp_graph *read_model(const char *path, int32_t n, const dtp_dim_override *overrides)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_model_options options = {.size = sizeof options, .n_overrides = n, .overrides = overrides};
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* Whether the rules are legal; fills the sharding then. */
static bool follow_rules(const dtp_graph *g, const dtp_mesh *mesh, const dtp_layout_rules *rules,
                         dtp_arena *arena, dtp_sharding *out)
{
    return dtp_sharding_from_rules(g, mesh, rules, false, arena, out, NULL) == DTP_OK;
}

static int verify_all_rules(const dtp_graph *g, const char *mesh_text)
{
    dtp_mesh mesh;
    int legal = 0;
    int64_t total = 1;
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    const int64_t choices = mesh.n_dims + 1;
    for (int32_t d = 0; d < g->dims.n; d++) {
        total *= choices;
    }
    assert_in_range(total, 2, 100000);
    for (int64_t code = 0; code < total; code++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_layout_rules rules;
        dtp_sharding s;
        assert_int_equal(dtp_layout_rules_create(arena, g->dims.n, &rules, NULL), DTP_OK);
        int64_t c = code;
        for (int32_t d = 0; d < g->dims.n; d++, c /= choices) {
            if (c % choices > 0) {
                rules.splits[d] =
                    (dtp_rule_splits){.n = 1, .mesh_dims = {(int8_t)(c % choices - 1)}};
            }
        }
        if (follow_rules(g, &mesh, &rules, arena, &s)) {
            char what[256];
            (void)snprintf(what, sizeof what, "%s rules '%s'", mesh_text,
                           dtp_layout_rules_print(&rules, &mesh, &g->dims, arena));
            if (quarter_has(legal++, INT32_MAX)) {
                verify(g, &s, what);
            }
        }
        dtp_arena_destroy(arena);
    }
    (void)printf("mesh %s: %d legal rule sets\n", mesh_text, legal);
    return legal;
}

static void test_mlp__every_legal_rule_set(void **state)
{
    (void)state;
    const dtp_dim_override small[] = {{"batch", 16}, {"classes", 12}};
    dtp_graph *g = read_model(MLP, 2, small);
    assert_true(verify_all_rules(g, "x:2") >= 4);
    assert_true(verify_all_rules(g, "x:4") >= 4);
    assert_true(verify_all_rules(g, "x:2;y:2") >= 9);
    dtp_graph_destroy(g);
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
        {"x:8", "batch:x"},
        {"x:8", "d_ff:x;vocab:x"},
        {"x:2;y:4", "batch:x;heads:y;d_ff:y;vocab:y"},
        {"x:2;y:4", "batch:y;heads:x;d_ff:x"},
    };
    const dtp_dim_override small[] = {{"length", 32}};
    dtp_graph *g = read_model(GPT, 1, small);
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
            verify(g, &s, what);
        }
        dtp_arena_destroy(arena);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__every_legal_rule_set),
        cmocka_unit_test(test_gpt__hand_written_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
