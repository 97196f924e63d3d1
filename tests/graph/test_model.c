/* The model reader: graphs of models, and files that are refused. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/base/philox.h"
#include "core/plan/plan.h"

#include "tests/support/bad_files.h"
#include "tests/support/graph_check.h"

#define MODELS DTP_SOURCE_DIR "/models/"

static dtp_graph *read_ok(const char *path, const dtp_model_options *options)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    if (dtp_model_read(path, options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_graph *parse_ok(const char *text, const dtp_model_options *options)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    if (dtp_model_parse("m.json", text, strlen(text), options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static int64_t count_params(const dtp_graph *g)
{
    int64_t n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM) {
            n += dtp_ttype_elems(&g->tensors[t].type);
        }
    }
    return n;
}

/* ---- the models of this project ---- */

/* Counts worked out by hand from the published sizes; those from GPT-2 small on are the known ones.
 */
static void test_model__shipped_models_have_their_sizes(void **state)
{
    (void)state;
    const dtp_dim_override exact_vocab = {"vocab", 50257};
    const struct {
        const char *path;
        int64_t params;
        int32_t n_overrides;
    } cases[] = {{MODELS "mlp_digits.json", 64 * 192 + 192 + 192 * 10 + 10, 0},
                 {MODELS "gpt_bytes.json", 1901952, 0},
                 {MODELS "gpt_bytes_dropout.json", 1901952, 0},
                 {MODELS "gpt_bytes_experts.json", 5443200, 0},
                 {MODELS "gpt2_small.json", 124439808, 0},
                 {MODELS "gpt3_175b.json", INT64_C(174604259328), 1},
                 {MODELS "gpt3_175b.json", INT64_C(174615846912), 0},
                 {MODELS "mtf_lm.json", 218379264, 0},
                 {MODELS "llama3_8b.json", INT64_C(8030261248), 0},
                 {MODELS "llama3_70b.json", INT64_C(70553706496), 0},
                 {MODELS "mixtral_8x7b.json", INT64_C(46702792704), 0},
                 {MODELS "mixtral_8x7b_index.json", INT64_C(46702792704), 0},
                 {MODELS "bert_large.json", 335174458, 0},
                 {MODELS "resnet50.json", 25557032 + 53120, 0},
                 {MODELS "unet3d.json", 19067616 + 4672 + 3 + 4672, 0},
                 {MODELS "vit_b16.json", 86567656, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_model_options options = {.size = sizeof options,
                                     .n_overrides = cases[i].n_overrides,
                                     .overrides = &exact_vocab,
                                     .forward_only = true};
        dtp_graph *g = read_ok(cases[i].path, &options);
        dtp_err err = {0};
        if (graph_check(g, &err) != DTP_OK) {
            fail_msg("%s: %s", cases[i].path, err.msg);
        }
        assert_true(count_params(g) == cases[i].params);
        assert_int_equal(g->loss, -1);
        assert_int_equal(g->n_updates, 0);
        const bool counts = dtp_dims_find(&g->dims, "slots") >= 0; /* of experts by index */
        assert_int_equal(g->n_outputs, counts ? 3 : 1);
        dtp_graph_destroy(g);
    }
}

static void test_model__shipped_models_train_every_param(void **state)
{
    (void)state;
    static const char *const paths[] = {
        MODELS "mlp_digits.json",        MODELS "gpt_bytes.json",  MODELS "gpt_bytes_dropout.json",
        MODELS "gpt2_small.json",        MODELS "gpt3_175b.json",  MODELS "mtf_lm.json",
        MODELS "llama3_8b.json",         MODELS "llama3_70b.json", MODELS "mixtral_8x7b.json",
        MODELS "bert_large.json",        MODELS "vit_b16.json",    MODELS "gpt_bytes_experts.json",
        MODELS "mixtral_8x7b_index.json"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        dtp_graph *g = read_ok(paths[i], NULL);
        dtp_err err = {0};
        int32_t n = 0;
        for (int32_t t = 0; t < g->n_tensors; t++) {
            n += g->tensors[t].kind == DTP_TENSOR_PARAM ? 1 : 0;
        }
        assert_int_equal(g->n_grads, n);
        if (graph_check(g, &err) != DTP_OK) {
            fail_msg("%s: %s", paths[i], err.msg);
        }
        dtp_graph_destroy(g);
    }
}

static void test_model__f64_leaves_no_f32(void **state)
{
    (void)state;
    static const char *const paths[] = {MODELS "mlp_digits.json", MODELS "gpt_bytes.json"};
    for (size_t i = 0; i < 2; i++) {
        dtp_model_options options = {.size = sizeof options, .f64 = true, .forward_only = true};
        dtp_graph *g = read_ok(paths[i], &options);
        for (int32_t t = 0; t < g->n_tensors; t++) {
            bool lse = strstr(g->tensors[t].name, ".lse") != NULL; /* attention: always f32 */
            assert_true(lse || g->tensors[t].type.dtype != DTP_F32);
        }
        dtp_graph_destroy(g);
    }
}

/* ---- dims, blocks, repeats ---- */

static const char SMALL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"small\",\n"
    " \"dims\": {\"h\": \"2*d\", \"d\": \"q+2\", \"q\": 4, \"batch\": 3, \"n\": 2},\n"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"]}},\n"
    " \"params\": {\"shift\": {\"dims\": [\"d\"], \"init\": {\"normal\": [1, 2]}}},\n"
    " \"blocks\": {\n"
    "  \"outer\": {\"params\": {\"g\": {\"dims\": [\"d\"], \"init\": \"ones\"}},\n"
    "   \"nodes\": [{\"id\": \"a\", \"op\": \"mul\", \"in\": [\"y\", \"g\"]},\n"
    "    {\"repeat\": \"inner\", \"count\": \"n+1\", \"as\": \"sub\", \"carry\": {\"z\": \"a\"},\n"
    "     \"with\": {\"k\": \"y\"}},\n"
    "    {\"id\": \"b\", \"op\": \"add\", \"in\": [\"sub.z\", \"shift\"]}],\n"
    "   \"out\": {\"y\": \"b\"}},\n"
    "  \"inner\": {\"nodes\": [{\"id\": \"c\", \"op\": \"add\", \"in\": [\"z\", \"k\"]}],\n"
    "   \"out\": {\"z\": \"c\"}}},\n"
    " \"nodes\": [{\"repeat\": \"outer\", \"count\": \"n\", \"as\": \"top\", \"carry\": {\"y\": "
    "\"x\"}},\n"
    "  {\"id\": \"r\", \"op\": \"relu\", \"in\": [\"top.y\"]},\n"
    "  {\"id\": \"s\", \"op\": \"add\", \"in\": [\"r\", \"top.1.sub.2.c\"]}],\n"
    " \"outputs\": [\"s\"]}";

static const dtp_node *node_of(const dtp_graph *g, const char *name)
{
    dtp_tensor_id t = dtp_graph_find(g, name);
    assert_true(t >= 0 && g->tensors[t].producer >= 0);
    return &g->nodes[g->tensors[t].producer];
}

static void assert_operands(const dtp_graph *g, const char *node, const char *a, const char *b)
{
    const dtp_node *n = node_of(g, node);
    assert_string_equal(g->tensors[n->in[0]].name, a);
    assert_string_equal(g->tensors[n->in[1]].name, b);
}

static void test_model__repeats_chain_their_instances(void **state)
{
    (void)state;
    dtp_graph *g = parse_ok(SMALL, NULL);
    assert_int_equal(g->n_nodes, 2 * (1 + 3 + 1) + 2);
    assert_operands(g, "top.0.a", "x", "top.0.g");
    assert_operands(g, "top.0.sub.0.c", "top.0.a", "x");
    assert_operands(g, "top.0.sub.2.c", "top.0.sub.1.c", "x");
    assert_operands(g, "top.0.b", "top.0.sub.2.c", "shift");
    assert_operands(g, "top.1.a", "top.0.b", "top.1.g");
    assert_operands(g, "top.1.sub.1.c", "top.1.sub.0.c", "top.0.b");
    assert_operands(g, "s", "r", "top.1.sub.2.c");
    assert_string_equal(g->tensors[node_of(g, "r")->in[0]].name, "top.1.b");
    dtp_graph_destroy(g);
}

/* A repeat with "first" names its instances from there on, and continues one of the same name. */
static void test_model__a_repeat_goes_on_with_another(void **state)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"two\", \"dims\": {\"d\": 4, \"n\": 2},\n"
        " \"inputs\": {\"x\": {\"dims\": [\"d\"]}},\n"
        " \"blocks\": {\n"
        "  \"a\": {\"nodes\": [{\"id\": \"y\", \"op\": \"relu\", \"in\": [\"z\"]}], \"out\": "
        "{\"z\": \"y\"}},\n"
        "  \"b\": {\"params\": {\"g\": {\"dims\": [\"d\"], \"init\": \"ones\"}},\n"
        "   \"nodes\": [{\"id\": \"y\", \"op\": \"mul\", \"in\": [\"z\", \"g\"]}], \"out\": "
        "{\"z\": \"y\"}}},\n"
        " \"nodes\": [{\"repeat\": \"a\", \"count\": \"n\", \"as\": \"l\", \"carry\": {\"z\": "
        "\"x\"}},\n"
        "  {\"repeat\": \"b\", \"count\": 3, \"first\": \"n\", \"as\": \"l\", \"carry\": {\"z\": "
        "\"l.z\"}},\n"
        "  {\"id\": \"s\", \"op\": \"add\", \"in\": [\"l.z\", \"l.1.y\"]}],\n"
        " \"outputs\": [\"s\"]}";
    (void)state;
    dtp_graph *g = parse_ok(text, NULL);
    assert_int_equal(g->n_nodes, 2 + 3 + 1);
    assert_operands(g, "l.2.y", "l.1.y", "l.2.g");
    assert_operands(g, "l.4.y", "l.3.y", "l.4.g");
    assert_operands(g, "s", "l.4.y", "l.1.y");
    assert_true(dtp_graph_find(g, "l.0.g") < 0 && dtp_graph_find(g, "l.5.g") < 0);
    assert_true(node_of(g, "l.1.y")->block != node_of(g, "l.2.y")->block);
    assert_int_equal(node_of(g, "l.3.y")->instance, 1);
    dtp_graph_destroy(g);
}

static void test_model__nodes_know_their_block_instance(void **state)
{
    (void)state;
    dtp_graph *g = parse_ok(SMALL, NULL);
    assert_int_equal(node_of(g, "r")->block, -1);
    int32_t outer = node_of(g, "top.0.a")->block, inner = node_of(g, "top.0.sub.0.c")->block;
    assert_true(outer >= 0 && inner >= 0 && outer != inner);
    for (int32_t i = 0; i < 2; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "top.%d.b", i);
        assert_int_equal(node_of(g, name)->block, outer);
        assert_int_equal(node_of(g, name)->instance, i);
        for (int32_t k = 0; k < 3; k++) {
            (void)snprintf(name, sizeof name, "top.%d.sub.%d.c", i, k);
            assert_int_equal(node_of(g, name)->block, inner);
            assert_int_equal(node_of(g, name)->instance, 3 * i + k);
        }
    }
    dtp_graph_destroy(g);
}

static void test_model__dims_are_expressions_with_overrides(void **state)
{
    (void)state;
    const dtp_dim_override overrides[] = {{"q", 8}, {"n", 3}};
    const dtp_model_options options = {
        .size = sizeof options, .n_overrides = 2, .overrides = overrides};
    dtp_graph *g = parse_ok(SMALL, &options);
    const dtp_ttype *x = &g->tensors[dtp_graph_find(g, "x")].type;
    assert_int_equal(x->dims[0].size, 3);
    assert_int_equal(x->dims[1].size, 10);
    assert_true(dtp_graph_find(g, "top.2.sub.3.c") >= 0);
    assert_int_equal(dtp_graph_find(g, "top.2.sub.4.c"), -1);
    assert_int_equal(dtp_graph_find(g, "top.3.a"), -1);
    assert_int_equal(dtp_dims_find(&g->dims, "h"), -1);
    dtp_graph_destroy(g);
}

static void test_model__bad_overrides_are_named(void **state)
{
    (void)state;
    const struct {
        dtp_dim_override o[2];
        const char *message;
    } cases[] = {
        {{{"bach", 2}, {"n", 1}}, "m.json: --dim bach=2: the model has no dim 'bach'"},
        {{{"q", 0}, {"n", 1}}, "m.json: --dim q=0: the size is not in 1.."},
        {{{"q", 5}, {"q", 6}}, "m.json: --dim q=6: given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const dtp_model_options options = {
            .size = sizeof options, .n_overrides = 2, .overrides = cases[i].o};
        dtp_graph *g;
        dtp_err err = {0};
        dtp_status s = dtp_model_parse("m.json", SMALL, sizeof SMALL - 1, &options, &g, &err);
        assert_int_equal(s, DTP_INVALID);
        assert_non_null(strstr(err.msg, cases[i].message));
    }
}

static void test_model__inits_are_read(void **state)
{
    (void)state;
    dtp_graph *g = parse_ok(SMALL, NULL);
    const dtp_init *shift = &g->tensors[dtp_graph_find(g, "shift")].init;
    assert_int_equal(shift->kind, DTP_INIT_NORMAL);
    assert_true(shift->b > 0.99 && shift->b < 1.01 && shift->a > 1.99 && shift->a < 2.01);
    assert_int_equal(g->tensors[dtp_graph_find(g, "top.1.g")].init.kind, DTP_INIT_ONES);
    assert_int_not_equal(g->tensors[dtp_graph_find(g, "top.1.g")].stream,
                         g->tensors[dtp_graph_find(g, "top.0.g")].stream);
    dtp_graph_destroy(g);
}

/* ---- bad files ---- */

static dtp_status read_model(const char *path, const void *user, dtp_err *err)
{
    dtp_graph *g = NULL;
    (void)user;
    dtp_status s = dtp_model_read(path, NULL, &g, err);
    dtp_graph_destroy(g);
    return s;
}

static void test_model__bad_files_are_refused_with_their_place(void **state)
{
    (void)state;
    assert_true(check_bad_files("models", read_model, NULL) >= 90);
}

/* Repeats of repeats of nothing: the limit stops them before time or memory runs out. */
static void test_model__hostile_repeats_end(void **state)
{
    (void)state;
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"bomb\", \"dims\": {\"d\": 1},\n"
        " \"inputs\": {\"x\": {\"dims\": [\"d\"]}},\n"
        " \"blocks\": {\"a\": {\"nodes\": [{\"repeat\": \"b\", \"count\": 1000000, \"as\": "
        "\"s\"}]},\n"
        "  \"b\": {\"nodes\": [{\"repeat\": \"c\", \"count\": 1000000, \"as\": \"s\"}]},\n"
        "  \"c\": {\"nodes\": []}},\n"
        " \"nodes\": [{\"repeat\": \"a\", \"count\": 1000000, \"as\": \"s\"}], \"outputs\": "
        "[\"x\"]}";
    dtp_graph *g;
    dtp_err err = {0};
    assert_int_equal(dtp_model_parse("m.json", text, sizeof text - 1, NULL, &g, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the model has more than 1000000"));
}

/* Random edits of a model text: refused as bad input or accepted as a graph that checks. */
/* ---- small files that need much work where it grows with the square ---- */

enum { CHAIN = 120000, GROUPS = 1024, GROUP_PARAMS = 30000 };

static void assert_reads(dtp_strbuf *text)
{
    assert_false(text->failed);
    dtp_graph_destroy(parse_ok(dtp_strbuf_text(text), NULL));
    dtp_strbuf_free(text);
}

/* Every dim is the next one. */
static void test_model__a_long_chain_of_dims(void **state)
{
    (void)state;
    dtp_strbuf text = {0};
    dtp_strbuf_addf(&text, "{\"format\": \"dtp.model/1\", \"name\": \"chain\", \"dims\": {");
    for (int32_t i = 0; i < CHAIN; i++) {
        dtp_strbuf_addf(&text, "\"d%d\": \"d%d\",\n", i, i + 1);
    }
    dtp_strbuf_addf(&text,
                    "\"d%d\": 4}, \"inputs\": {\"x\": {\"dims\": [\"d0\"]}}, \"nodes\": [{\"id\": "
                    "\"y\", \"op\": \"relu\", \"in\": [\"x\"]}], \"outputs\": [\"y\"]}",
                    CHAIN);
    assert_reads(&text);
}

/* As many groups as there may be, each with one of the last parameters. */
static void test_model__many_groups_of_many_params(void **state)
{
    (void)state;
    dtp_strbuf text = {0};
    dtp_strbuf_addf(&text,
                    "{\"format\": \"dtp.model/1\", \"name\": \"groups\", \"dims\": {\"d\": 2}, "
                    "\"inputs\": {\"x\": {\"dims\": [\"d\"]}}, \"params\": {");
    for (int32_t i = 0; i < GROUP_PARAMS; i++) {
        dtp_strbuf_addf(&text, "%s\"p%d\": {\"dims\": [\"d\"], \"init\": \"ones\"}",
                        i > 0 ? "," : "", i);
    }
    dtp_strbuf_addf(&text, "}, \"nodes\": [");
    for (int32_t i = 0; i < GROUP_PARAMS; i++) {
        dtp_strbuf_addf(&text,
                        "{\"id\": \"y%d\", \"op\": \"mul\", \"in\": [\"%s%.0d\", \"p%d\"]},\n",
                        i + 1, i > 0 ? "y" : "x", i, i);
    }
    dtp_strbuf_addf(
        &text,
        "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"sum\", \"in\": [\"y%d\"], "
        "\"over\": [\"d\"]}], \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": "
        "1}}, \"groups\": [",
        GROUP_PARAMS);
    for (int32_t i = 0; i < GROUPS; i++) {
        dtp_strbuf_addf(&text, "%s{\"params\": \"p%d\", \"lr\": 2}", i > 0 ? "," : "",
                        GROUP_PARAMS - 1 - i);
    }
    dtp_strbuf_addf(&text, "]}}");
    assert_reads(&text);
}

static void test_model__survives_random_edits(void **state)
{
    (void)state;
    static const char pieces[] = "{}[]:,\"0123456789dxhnyq*+-/=ab. ";
    const uint64_t seed = 11;
    int accepted = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        char text[sizeof SMALL];
        uint32_t words[4];
        dtp_graph *g;
        dtp_err err = {0};
        memcpy(text, SMALL, sizeof SMALL);
        dtp_philox_block(seed, 3, 0, i, words);
        text[words[0] % (sizeof SMALL - 1)] = pieces[words[1] % (sizeof pieces - 1)];
        dtp_status s = dtp_model_parse("m.json", text, sizeof SMALL - 1, NULL, &g, &err);
        if (s == DTP_OK) {
            s = graph_check(g, &err);
            dtp_graph_destroy(g);
            accepted++;
        } else if (dtp_status_is_input(s) && strncmp(err.msg, "m.json:", 7) == 0) {
            s = DTP_OK;
        }
        if (s != DTP_OK) {
            fail_msg("seed %" PRIu64 " case %" PRIu64 ": %s\n%s", seed, i, err.msg, text);
        }
    }
    assert_in_range(accepted, 40, 3900);
}

/* ---- hash ---- */

static uint64_t hash_of(const char *old, const char *fresh)
{
    char text[2 * sizeof SMALL];
    const char *at = strstr(SMALL, old);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - SMALL), SMALL, fresh,
                   at + strlen(old));
    dtp_graph *g = parse_ok(text, NULL);
    uint64_t h = dtp_graph_hash(g);
    dtp_graph_destroy(g);
    return h;
}

static void test_graph_hash__tells_models_apart(void **state)
{
    (void)state;
    static const struct {
        const char *old, *fresh;
    } changes[] = {{"\"batch\": 3", "\"batch\": 5"},
                   {"\"q\": 4", "\"q\": 3"},
                   {"\"op\": \"mul\"", "\"op\": \"add\""},
                   {"[\"z\", \"k\"]", "[\"k\", \"z\"]"},
                   {"[1, 2]", "[1, 3]"},
                   {"\"ones\"", "\"zeros\""},
                   {"\"outputs\": [\"s\"]", "\"outputs\": [\"r\"]"}};
    uint64_t base = hash_of("3", "3");
    assert_true(hash_of("small", "other") == base);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        assert_true(hash_of(changes[i].old, changes[i].fresh) != base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__shipped_models_have_their_sizes),
        cmocka_unit_test(test_model__shipped_models_train_every_param),
        cmocka_unit_test(test_model__f64_leaves_no_f32),
        cmocka_unit_test(test_model__repeats_chain_their_instances),
        cmocka_unit_test(test_model__a_repeat_goes_on_with_another),
        cmocka_unit_test(test_model__nodes_know_their_block_instance),
        cmocka_unit_test(test_model__dims_are_expressions_with_overrides),
        cmocka_unit_test(test_model__bad_overrides_are_named),
        cmocka_unit_test(test_model__inits_are_read),
        cmocka_unit_test(test_model__bad_files_are_refused_with_their_place),
        cmocka_unit_test(test_model__hostile_repeats_end),
        cmocka_unit_test(test_model__a_long_chain_of_dims),
        cmocka_unit_test(test_model__many_groups_of_many_params),
        cmocka_unit_test(test_model__survives_random_edits),
        cmocka_unit_test(test_graph_hash__tells_models_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
