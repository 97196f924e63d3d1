/* Frozen parameters: "frozen" of a model and globs of the reader's options. What they leave out of
 * a training graph: gradients, updates, states, and all that only these need. */
#include "core/graph/graph_copy.h"
#include "core/transform/graph_variant.h"
#include "tests/support/graph_check.h"
#include "tests/support/random_graphs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two layers, the first with an adapter beside its weight; the first reads rows of a table, which
 * is tied to the head. %s: "frozen" of each parameter. */
static const char MODEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"adapters\", \"dims\": {\"b\": 4, \"v\": 6, \"d\": 4,"
    " \"h\": 8, \"r\": 2},"
    "\"inputs\": {\"ids\": {\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": \"v\"},"
    " \"labels\": {\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": \"v\"}},"
    "\"params\": {"
    "\"table\": {\"dims\": [\"v\", \"d\"], \"init\": {\"normal\": 1}%s},"
    "\"norm\": {\"dims\": [\"d\"], \"init\": \"ones\"%s},"
    "\"up\": {\"dims\": [\"d\", \"h\"], \"init\": {\"normal\": 1}%s},"
    "\"up.a\": {\"dims\": [\"d\", \"r\"], \"init\": {\"normal\": 1}},"
    "\"up.b\": {\"dims\": [\"r\", \"h\"], \"init\": {\"normal\": 1}},"
    "\"down\": {\"dims\": [\"h\", \"d\"], \"init\": {\"normal\": 1}%s},"
    "\"unused\": {\"dims\": [\"h\"], \"init\": \"zeros\"%s}},"
    "\"nodes\": ["
    "{\"id\": \"x\", \"op\": \"embedding\", \"in\": [\"table\", \"ids\"], \"over\": \"v\"},"
    "{\"id\": \"n\", \"op\": \"rms_norm\", \"in\": [\"x\", \"norm\"], \"over\": \"d\"},"
    "{\"id\": \"u\", \"op\": \"einsum\", \"in\": [\"n\", \"up\"], \"out\": [\"b\", \"h\"]},"
    "{\"id\": \"na\", \"op\": \"einsum\", \"in\": [\"n\", \"up.a\"], \"out\": [\"b\", \"r\"]},"
    "{\"id\": \"nab\", \"op\": \"einsum\", \"in\": [\"na\", \"up.b\"], \"out\": [\"b\", \"h\"]},"
    "{\"id\": \"s\", \"op\": \"add\", \"in\": [\"u\", \"nab\"]},"
    "{\"id\": \"a\", \"op\": \"gelu\", \"in\": [\"s\"]},"
    "{\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"a\", \"down\"], \"out\": [\"b\", \"d\"]},"
    "{\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"y\", \"table\"], \"out\": [\"b\", \"v\"]},"
    "{\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"], \"over\": "
    "\"v\"}],"
    "\"train\": {\"loss\": \"loss\", \"clip_norm\": 1, \"optimizer\": {\"adamw\": {\"lr\": "
    "0.1}}}}";

static dtp_status parse(const char *text, int32_t n, const char *const *globs, dtp_graph **out,
                        dtp_err *err)
{
    dtp_model_options options = dtp_model_options_init();
    options.n_freeze = n;
    options.freeze = globs;
    *out = NULL;
    return dtp_model_parse("t", text, strlen(text), &options, out, err);
}

static dtp_graph *freeze(const char *frozen, int32_t n, const char *const *globs)
{
    char text[sizeof MODEL + 128];
    dtp_graph *g;
    dtp_err err = {0};
    (void)snprintf(text, sizeof text, MODEL, frozen, frozen, frozen, frozen, frozen);
    if (parse(text, n, globs, &g, &err) != DTP_OK || graph_check(g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static int32_t count_op(const dtp_graph *g, const char *op)
{
    int32_t n = 0;
    for (dtp_node_id k = 0; k < g->n_nodes; k++) {
        n += g->nodes[k].phase != DTP_FORWARD && strcmp(g->nodes[k].op->name, op) == 0 ? 1 : 0;
    }
    return n;
}

/* Frozen parameters have neither gradient nor update nor states nor a reader outside of forward
 * and backward pass; every node behind the forward pass is needed. */
static void check_frozen(const dtp_graph *g)
{
    bool *needed = calloc((size_t)g->n_tensors, sizeof *needed);
    assert_non_null(needed);
    for (int32_t i = 0; i < g->n_grads; i++) {
        assert_false(g->tensors[g->grads[i].param].frozen);
        needed[g->grads[i].grad] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        assert_false(g->tensors[g->updates[i].target].frozen);
        needed[g->updates[i].value] = true;
    }
    needed[g->loss] = true;
    if (g->norm >= 0) {
        needed[g->norm] = true;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        needed[g->outputs[i]] = true;
    }
    dtp_graph_mark_needed(g, false, needed);
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        if (node->phase != DTP_FORWARD && !needed[node->out[0]]) {
            fail_msg("nothing needs '%s'", node->name);
        }
        for (int32_t i = 0; i < node->n_in && node->phase == DTP_UPDATE; i++) {
            assert_false(g->tensors[node->in[i]].frozen);
        }
    }
    free(needed);
}

/* ---- what is left out ---- */

static void test_frozen__has_no_gradient_no_update_and_no_state(void **state)
{
    (void)state;
    dtp_graph *all = freeze("", 0, NULL), *g = freeze(", \"frozen\": true", 0, NULL);
    dtp_graph *same = freeze(", \"frozen\": false", 0, NULL);
    check_frozen(all);
    check_frozen(g);
    assert_int_equal(all->n_grads, 6); /* nothing reads "unused" */
    assert_int_equal(g->n_grads, 2);
    assert_string_equal(g->tensors[g->grads[0].param].name, "up.a");
    assert_string_equal(g->tensors[g->grads[1].param].name, "up.b");
    assert_int_equal(g->n_updates, 6); /* of each the parameter and two states */
    assert_int_equal(count_op(g, "adamw"), 2);
    assert_int_equal(count_op(all, "adamw"), 6);
    /* to y, to a, gelu, to na, and of a and b: nothing behind the norm, nothing of the table */
    assert_int_equal(count_op(g, "rms_norm_grad"), 0);
    assert_int_equal(count_op(g, "embedding_grad"), 0);
    assert_int_equal(count_op(g, "gelu_grad"), 1);
    int32_t products = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        products +=
            g->nodes[n].phase == DTP_BACKWARD && strcmp(g->nodes[n].op->name, "einsum") == 0;
    }
    assert_int_equal(products, 5);
    assert_int_equal(dtp_graph_gradient(g, "grad.up"), -1);
    assert_int_equal(dtp_graph_find(g, "adamw.m.up"), -1);
    assert_int_equal(dtp_graph_find(g, "square.up"), -1); /* clipping */
    /* plans of one are no plans of the other */
    assert_true(dtp_graph_hash(all) == dtp_graph_hash(same));
    assert_true(dtp_graph_hash(all) != dtp_graph_hash(g));
    dtp_graph_destroy(all);
    dtp_graph_destroy(same);
    dtp_graph_destroy(g);
}

static void test_frozen__globs_do_what_the_file_says(void **state)
{
    (void)state;
    static const char *const globs[] = {"{table,norm}", "up$", "down", "unused"};
    dtp_graph *g = freeze(", \"frozen\": true", 0, NULL), *other = freeze("", 4, globs);
    check_frozen(other);
    assert_true(dtp_graph_hash(g) == dtp_graph_hash(other));
    assert_int_equal(g->n_freeze, 0);
    assert_int_equal(other->n_freeze, 4);
    assert_string_equal(other->freeze[1], "up$");
    dtp_graph_destroy(g);
    dtp_graph_destroy(other);
}

/* A tied weight is frozen in all its uses; a norm before it is trained still. */
static void test_frozen__lets_gradients_pass(void **state)
{
    (void)state;
    static const char *const globs[] = {"table", "up", "down"};
    dtp_graph *g = freeze("", 3, globs);
    check_frozen(g);
    assert_int_equal(g->n_grads, 1); /* "up" is a prefix of "up.a", too */
    assert_string_equal(g->tensors[g->grads[0].param].name, "norm");
    assert_int_equal(count_op(g, "embedding_grad"), 0);
    assert_int_equal(count_op(g, "rms_norm_grad"), 1);
    dtp_graph_destroy(g);
}

/* ---- variants ---- */

static dtp_graph *change(const dtp_graph *g, const dtp_variant_texts *texts, dtp_arena *arena)
{
    dtp_graph_variant variant;
    dtp_graph *out = NULL;
    dtp_err err = {0};
    if (dtp_graph_variant_parse(texts, g, arena, &variant, &err) != DTP_OK ||
        dtp_graph_with_variant(g, &variant, 0, NULL, &out, &err) != DTP_OK ||
        graph_check(out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return out;
}

static void test_frozen__stays_so_in_every_variant(void **state)
{
    (void)state;
    static const dtp_variant_texts texts[] = {
        {.precision = "f16"},  {.precision = "bf16,gradients=f32"},
        {.microbatches = "2"}, {.precision = "f16", .microbatches = "2"},
        {.precision = "tf32"}, {.outputs = "none"},
    };
    dtp_graph *model = freeze(", \"frozen\": true", 0, NULL);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_graph *g = change(model, &texts[i], arena);
        int32_t frozen = 0, accumulators = 0;
        check_frozen(g);
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            frozen += g->tensors[t].frozen;
            accumulators += g->tensors[t].per_step && g->tensors[t].type.rank > 0;
        }
        assert_int_equal(frozen, 5);
        assert_int_equal(g->n_grads, 2);
        assert_int_equal(accumulators, texts[i].microbatches != NULL ? 2 : 0);
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
    }
    dtp_graph_destroy(model);
}

/* ---- random models ---- */

static void test_frozen__of_random_models(void **state)
{
    (void)state;
    int32_t trained = 0, refused = 0;
    for (uint64_t seed = 0; seed < 240; seed++) {
        char *text, name[64][200];
        dtp_graph *all = random_graph(seed, &text), *g;
        assert_non_null(all);
        const char *globs[64];
        uint64_t random = seed;
        int32_t n = 0;
        for (dtp_tensor_id t = 0; t < all->n_tensors && n < 64; t++) {
            if (all->tensors[t].kind == DTP_TENSOR_PARAM && random_below(&random, 2) == 0) {
                (void)snprintf(name[n], sizeof name[n], "%s$", all->tensors[t].name);
                globs[n] = name[n];
                n++;
            }
        }
        dtp_err err = {0};
        if (all->loss >= 0 && parse(text, n, globs, &g, &err) == DTP_OK) {
            int32_t grads = 0;
            check_frozen(g);
            for (int32_t i = 0; i < all->n_grads; i++) {
                const char *param = all->tensors[all->grads[i].param].name;
                grads += !g->tensors[dtp_graph_find(g, param)].frozen;
            }
            assert_int_equal(g->n_grads, grads);
            assert_true(grads == all->n_grads || g->n_nodes < all->n_nodes);
            trained++;
            dtp_graph_destroy(g);
        } else if (all->loss >= 0) {
            assert_non_null(strstr(err.msg, "no parameter that is not frozen"));
            refused++;
        }
        free(text);
        dtp_graph_destroy(all);
    }
    assert_true(trained > 20 && refused > 5);
}

/* ---- errors ---- */

static void expect_error(const char *text, const char *glob, const char *what)
{
    dtp_graph *g;
    dtp_err err = {0};
    assert_int_not_equal(parse(text, glob != NULL, &glob, &g, &err), DTP_OK);
    if (strstr(err.msg, what) == NULL || strncmp(err.msg, "t:", 2) != 0) {
        fail_msg("'%s' does not say '%s'", err.msg, what);
    }
}

static void test_frozen__errors(void **state)
{
    (void)state;
    char text[sizeof MODEL + 128];
    (void)snprintf(text, sizeof text, MODEL, "", "", "", "", "");
    expect_error(text, "dawn", "freeze: 'dawn' matches no parameter; the nearest names are 'down'");
    expect_error(text, "x", "freeze: 'x' matches no parameter"); /* a value */
    expect_error(text, "{", "freeze: the braces in '{' do not pair up");
    expect_error(text, "", "freeze: ");
    expect_error(text, "**",
                 "the loss 'loss' depends on no parameter that is not frozen: there is nothing");
    (void)snprintf(text, sizeof text, MODEL, "", ", \"frozen\": 1", "", "", "");
    expect_error(text, NULL, "frozen");
    static const char forward[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"f\", \"dims\": {\"b\": 4}, \"inputs\": {\"x\": "
        "{\"dims\": [\"b\"]}}, \"params\": {\"w\": {\"dims\": [\"b\"], \"init\": \"ones\", "
        "\"frozen\": true}}, \"nodes\": [{\"id\": \"y\", \"op\": \"mul\", \"in\": [\"x\", "
        "\"w\"]}], \"outputs\": [\"y\"]}";
    expect_error(forward, "w", "freeze: the model has no 'train'");
    dtp_graph *g;
    assert_int_equal(parse(forward, 0, NULL, &g, NULL), DTP_OK);
    dtp_graph_destroy(g);
}

/* Updates of 16 bits lose what is small; a frozen parameter has none. */
static void test_frozen__may_have_16_bits(void **state)
{
    (void)state;
    static const char model[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"half\", \"dims\": {\"b\": 4, \"d\": 2}, "
        "\"inputs\": {\"x\": {\"dims\": [\"b\", \"d\"]}}, \"params\": {"
        "\"w\": {\"dims\": [\"d\"], \"dtype\": \"bf16\", \"init\": \"ones\"%s},"
        "\"v\": {\"dims\": [\"d\"], \"init\": \"ones\"}}, \"nodes\": ["
        "{\"id\": \"c\", \"op\": \"cast\", \"in\": [\"w\"], \"dtype\": \"f32\"},"
        "{\"id\": \"y\", \"op\": \"add\", \"in\": [\"c\", \"v\"]},"
        "{\"id\": \"z\", \"op\": \"einsum\", \"in\": [\"x\", \"y\"], \"out\": []}],"
        "\"train\": {\"loss\": \"z\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}";
    char text[sizeof model + 32];
    dtp_graph *g;
    (void)snprintf(text, sizeof text, model, "");
    expect_error(text, NULL, "parameter 'w': it is bf16");
    (void)snprintf(text, sizeof text, model, ", \"frozen\": true");
    assert_int_equal(parse(text, 0, NULL, &g, NULL), DTP_OK);
    check_frozen(g);
    assert_int_equal(g->n_grads, 1);
    /* in bf16 it is read as it is, in f16 by a cast from f32 */
    const struct {
        const char *precision;
        int32_t casts;
    } cases[] = {{"bf16", 0}, {"bf16,gradients=f32", 0}, {"f16", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dtp_arena *arena = dtp_arena_create();
        const dtp_variant_texts texts = {.precision = cases[i].precision};
        dtp_graph *half = change(g, &texts, arena);
        int32_t casts = 0;
        check_frozen(half);
        for (dtp_node_id n = 0; n < half->n_nodes; n++) {
            const dtp_node *node = &half->nodes[n];
            const bool cast = node->phase == DTP_FORWARD && strcmp(node->op->name, "cast") == 0;
            casts += cast && (strcmp(node->name, "c") == 0 || strcmp(node->name, "f16.c") == 0);
        }
        assert_int_equal(casts, cases[i].casts);
        assert_int_equal(half->tensors[dtp_graph_find(half, "w")].type.dtype, DTP_BF16);
        dtp_graph_destroy(half);
        dtp_arena_destroy(arena);
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frozen__has_no_gradient_no_update_and_no_state),
        cmocka_unit_test(test_frozen__globs_do_what_the_file_says),
        cmocka_unit_test(test_frozen__lets_gradients_pass),
        cmocka_unit_test(test_frozen__stays_so_in_every_variant),
        cmocka_unit_test(test_frozen__of_random_models),
        cmocka_unit_test(test_frozen__errors),
        cmocka_unit_test(test_frozen__may_have_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
