/* Graphs that keep some outputs of their model: names, what is left of the nodes, other
 * transformations on top. */
#include "core/transform/graph_variant.h"
#include "tests/support/graph_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Outputs y, top and share: the loss needs y, nothing needs top but share, and share has no rows of
 * the batch. */
static const char MODEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"heads\", \"dims\": {\"b\": 12, \"f\": 3},"
    "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"]}, \"only\": {\"dims\": [\"b\"]}},"
    "\"params\": {\"w\": {\"dims\": [\"f\"], \"init\": \"ones\"}}, \"nodes\": ["
    "{\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"b\"]},"
    "{\"id\": \"z\", \"op\": \"mul\", \"in\": [\"y\", \"only\"]},"
    "{\"id\": \"top\", \"op\": \"square\", \"in\": [\"z\"]},"
    "{\"id\": \"share\", \"op\": \"reduce\", \"kind\": \"sum\", \"in\": [\"top\"], \"over\": "
    "[\"b\"]},"
    "{\"id\": \"s\", \"op\": \"square\", \"in\": [\"y\"]},"
    "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"mean\", \"in\": [\"s\"], \"over\": "
    "[\"b\"]}],"
    "\"outputs\": [\"y\", \"top\", \"share\"],"
    "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}";

typedef struct fixture {
    dtp_graph *model;
    dtp_arena *arena;
} fixture;

static fixture create(bool forward)
{
    fixture f = {.arena = dtp_arena_create()};
    dtp_err err = {0};
    dtp_model_options options = dtp_model_options_init();
    options.forward_only = forward;
    assert_non_null(f.arena);
    if (dtp_model_parse("t", MODEL, strlen(MODEL), &options, &f.model, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return f;
}

static void destroy(fixture *f)
{
    dtp_graph_destroy(f->model);
    dtp_arena_destroy(f->arena);
}

static dtp_status change(const fixture *f, const dtp_variant_texts *texts, dtp_graph **out,
                         dtp_err *err)
{
    dtp_graph_variant variant, copy;
    DTP_TRY(dtp_graph_variant_parse(texts, f->model, f->arena, &variant, err));
    DTP_TRY(dtp_graph_variant_copy(&variant, f->arena, &copy, err));
    DTP_TRY(dtp_graph_with_variant(f->model, &copy, 0, NULL, out, err));
    return graph_check(*out, err);
}

static dtp_graph *keep(const fixture *f, const char *outputs, const char *precision,
                       const char *microbatches)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_variant_texts texts = {
        .outputs = outputs, .precision = precision, .microbatches = microbatches};
    if (change(f, &texts, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* The names of the outputs are these, separated by blanks. */
static void assert_outputs(const dtp_graph *g, const char *names)
{
    char text[64] = "";
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s%s", i > 0 ? " " : "",
                       g->tensors[g->outputs[i]].name);
    }
    assert_string_equal(text, names);
}

static void test_outputs__all_named_are_the_model(void **state)
{
    (void)state;
    fixture f = create(false);
    static const char *const same[] = {"all", "y,top,share", "share,y,top"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        dtp_graph *g = keep(&f, same[i], NULL, NULL);
        assert_int_equal(dtp_graph_hash(g), dtp_graph_hash(f.model));
        dtp_graph_destroy(g);
    }
    destroy(&f);
}

/* What only outputs needed that are not kept is gone; inputs stay, so the same feeds fit. */
static void test_outputs__nodes_go_with_them(void **state)
{
    static const struct {
        const char *outputs, *kept;
        bool z, top, share;
    } rows[] = {{"none", "", false, false, false},
                {"y", "y", false, false, false},
                {"top", "top", true, true, false},
                {"share,y", "y share", true, true, true}};
    (void)state;
    fixture f = create(false);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = keep(&f, rows[i].outputs, NULL, NULL);
        assert_outputs(g, rows[i].kept);
        assert_int_equal(dtp_graph_find(g, "z") >= 0, rows[i].z);
        assert_int_equal(dtp_graph_find(g, "top") >= 0, rows[i].top);
        assert_int_equal(dtp_graph_find(g, "share") >= 0, rows[i].share);
        assert_true(dtp_graph_find(g, "y") >= 0 && dtp_graph_find(g, "only") >= 0);
        assert_string_equal(g->tensors[g->loss].name, "loss");
        assert_int_equal(g->n_grads, 1);
        assert_int_equal(g->n_updates, f.model->n_updates);
        dtp_graph_destroy(g);
    }
    destroy(&f);
}

/* Without training nodes are there for outputs alone. */
static void test_outputs__of_inference(void **state)
{
    (void)state;
    fixture f = create(true);
    dtp_graph *g = keep(&f, "y", NULL, NULL);
    assert_outputs(g, "y");
    assert_int_equal(g->n_nodes, 1);
    dtp_graph_destroy(g);
    destroy(&f);
}

/* Later transformations see the outputs that are kept; no choice keeps those with rows of the batch
 * in microbatches. */
static void test_outputs__under_precision_and_microbatches(void **state)
{
    (void)state;
    fixture f = create(false);
    static const struct {
        const char *outputs, *precision, *microbatches, *kept;
    } rows[] = {{NULL, NULL, "3", "share"},
                {"all", "bf16", "3", "share"},
                {"share", NULL, "3", "share"},
                {"none", NULL, "3", ""},
                {"none", "bf16", "3", ""},
                {"top", "bf16", NULL, "top"},
                {"none", "bf16,gradients=f32", NULL, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = keep(&f, rows[i].outputs, rows[i].precision, rows[i].microbatches);
        assert_outputs(g, rows[i].kept);
        assert_int_equal(dtp_graph_find(g, "accum.share") >= 0,
                         rows[i].microbatches != NULL && strcmp(rows[i].kept, "share") == 0);
        dtp_graph_destroy(g);
    }
    destroy(&f);
}

static void test_outputs__refusals(void **state)
{
    static const struct {
        const char *outputs, *microbatches;
        bool forward;
        const char *text;
    } rows[] = {
        {"loss", NULL, false,
         "'loss' is no output of the model 'heads', which has 'y', 'top', 'share'"},
        {"", NULL, false, "'' is no output"},
        {"y,", NULL, false, "'' is no output"},
        {"y,none", NULL, false, "'none' is no output"},
        {"top,y,top", NULL, false, "'top' is given twice"},
        {"none", NULL, true, "leaves nothing to compute"},
        {"share,top", "3", false, "'top' has one row per row of the batch"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f = create(rows[i].forward);
        dtp_graph *g = NULL;
        dtp_err err = {0};
        const dtp_variant_texts texts = {.outputs = rows[i].outputs,
                                         .microbatches = rows[i].microbatches};
        assert_int_equal(change(&f, &texts, &g, &err), DTP_INVALID);
        if (strstr(err.msg, rows[i].text) == NULL) {
            fail_msg("'%s' says '%s'", rows[i].outputs, err.msg);
        }
        destroy(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs__all_named_are_the_model),
        cmocka_unit_test(test_outputs__nodes_go_with_them),
        cmocka_unit_test(test_outputs__of_inference),
        cmocka_unit_test(test_outputs__under_precision_and_microbatches),
        cmocka_unit_test(test_outputs__refusals),
    };
    return cmocka_run_group_tests_name("outputs", tests, NULL, NULL);
}
