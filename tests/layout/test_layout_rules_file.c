/* Files of layout rules: what is read, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/layout/layout_rules.h"
#include "core/layout/layout_rules_file.h"

#include "tests/support/bad_files.h"

static const char TEXT[] = "{\"format\": \"dtp.rules/1\", \"rules\": {\n"
                           " \"data\": \"batch:all\",\n"
                           " \"two\": \"batch:0;d_ff:1\",\n"
                           " \"rest\": \"batch:0;heads:rest;d_ff:rest\",\n"
                           " \"none\": \"\"}}";

static void test_layout_rules_file__fills_in_the_mesh(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *expected;
    } cases[] = {
        {"", "none="},
        {"x:2", "data=batch:x none="},
        {"x:2;y:3", "data=batch:x;batch:y two=batch:x;d_ff:y rest=batch:x;heads:y;d_ff:y none="},
        {"a:2;b:3;c:4", "data=batch:a;batch:b;batch:c two=batch:a;d_ff:b "
                        "rest=batch:a;heads:b;heads:c;d_ff:b;d_ff:c none="}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_mesh mesh;
        dtp_layout_rules_file f = {0};
        char all[512] = "";
        assert_int_equal(dtp_mesh_parse(cases[i].mesh, &mesh, NULL), DTP_OK);
        assert_int_equal(
            dtp_layout_rules_file_parse("r.json", TEXT, sizeof TEXT - 1, &mesh, arena, &f, NULL),
            DTP_OK);
        for (int32_t k = 0; k < f.n; k++) {
            size_t used = strlen(all);
            (void)snprintf(all + used, sizeof all - used, "%s%s=%s", k > 0 ? " " : "", f.names[k],
                           f.rules[k]);
        }
        assert_string_equal(all, cases[i].expected);
        dtp_arena_destroy(arena);
    }
}

static void test_layout_rules_file__rejects_bad_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\"rules\": {}}", "r.json:1:1: the key 'format' is missing"},
        {"{\"format\": \"dtp.rules/2\", \"rules\": {}}", "expected 'dtp.rules/1'"},
        {"{\"format\": \"dtp.rules/1\"}", "the key 'rules' is missing"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": []}", "rules: expected an object"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": 1}}", "rules.a: expected a string"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"\": \"\"}}", "a rule set without a name"},
        {"{\"format\": \"dtp.rules/1\", \"rule\": {}, \"rules\": {}}", "unknown key 'rule'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b\"}}", "expected 'DIM:PLACE'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b:x\"}}", "rules.a: expected"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b:9\"}}", "at 'b:9'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \":0\"}}", "at ':0'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b:\"}}", "at 'b:'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b:00\"}}", "at 'b:00'"},
        {"{\"format\": \"dtp.rules/1\", \"rules\": {\"a\": \"b:0;;c:1\"}}", "at ';c:1'"},
    };
    dtp_arena *arena = dtp_arena_create();
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_layout_rules_file f = {0};
        dtp_err err = {0};
        dtp_status s = dtp_layout_rules_file_parse("r.json", cases[i].text, strlen(cases[i].text),
                                                   &mesh, arena, &f, &err);
        if (s != DTP_INVALID || strstr(err.msg, cases[i].message) == NULL) {
            fail_msg("'%s': status %d, '%s'", cases[i].text, (int)s, err.msg);
        }
    }
    dtp_arena_destroy(arena);
}

static dtp_status read_rules(const char *path, const void *user, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_layout_rules_file rules;
    dtp_status s = dtp_layout_rules_file_read(path, user, arena, &rules, err);
    dtp_arena_destroy(arena);
    return s;
}

static void test_layout_rules_file__bad_files_are_refused_with_their_place(void **state)
{
    (void)state;
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    assert_true(check_bad_files("rules", read_rules, &mesh) >= 12);
}

/* The hand-written rules that ship beside the models name dims that the models have. */
static void test_layout_rules_file__shipped_rules_fit_their_models(void **state)
{
    (void)state;
    static const char *const models[] = {
        "mlp_digits", "gpt_bytes",         "gpt_bytes_dropout", "gpt2_small",   "gpt3_175b",
        "mtf_lm",     "llama3_8b",         "llama3_70b",        "mixtral_8x7b", "bert_large",
        "vit_b16",    "gpt_bytes_experts", "mixtral_8x7b_index"};
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char path[512];
        const dtp_model_options options = {.size = sizeof options, .forward_only = true};
        dtp_graph *g;
        dtp_err err = {0};
        dtp_layout_rules_file f;
        (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", models[i]);
        if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.rules.json", models[i]);
        if (dtp_layout_rules_file_read(path, &mesh, g->arena, &f, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        assert_true(f.n >= 3);
        for (int32_t k = 0; k < f.n; k++) {
            dtp_layout_rules r;
            if (dtp_layout_rules_parse(f.rules[k], &mesh, &g->dims, g->arena, &r, &err) != DTP_OK) {
                fail_msg("%s: %s: %s", path, f.names[k], err.msg);
            }
        }
        dtp_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_rules_file__fills_in_the_mesh),
        cmocka_unit_test(test_layout_rules_file__rejects_bad_texts),
        cmocka_unit_test(test_layout_rules_file__bad_files_are_refused_with_their_place),
        cmocka_unit_test(test_layout_rules_file__shipped_rules_fit_their_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
