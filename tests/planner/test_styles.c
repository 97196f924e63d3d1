/* Globs, reading styles and style plans, and the pins that styles mean. */
#include "interop/styles/styles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/base/text.h"
#include "core/transform/microbatch.h"
#include "core/base/glob.h"
#include "planner/plan_pins.h"

typedef struct fixture {
    dtp_graph *g;
    dtp_arena *arena;
    dtp_mesh mesh;
} fixture;

static fixture setup(const char *mesh)
{
    fixture f = {.arena = dtp_arena_create()};
    dtp_err err = {0};
    if (dtp_model_read(DTP_SOURCE_DIR "/tests/planner/styles/transformer.json", NULL, &f.g, &err) !=
        DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(dtp_mesh_parse(mesh, &f.mesh, NULL), DTP_OK);
    return f;
}

static void teardown(fixture *f)
{
    dtp_graph_destroy(f->g);
    dtp_arena_destroy(f->arena);
}

/* ---- globs ---- */

static void test_glob__matches(void **state)
{
    (void)state;
    static const struct {
        const char *glob, *name;
        bool whole, prefix;
    } cases[] = {
        {"layers.3.attn.wq", "layers.3.attn.wq", true, true},
        {"layers.3", "layers.3.attn.wq", false, true},
        {"layers.3", "layers.30", false, false},
        {"layers.*.attn", "layers.12.attn", true, true},
        {"layers.*", "layers.1.attn", false, true},
        {"*.attn", "layers.1.attn", false, false},
        {"**.attn", "layers.1.attn", true, true},
        {"**", "a.b.c", true, true},
        {"*", "a.b", false, true},
        {"w?", "w1", true, true},
        {"w?", "w", false, false},
        {"a?b", "a.b", false, false},
        {"{q,k,v}", "k", true, true},
        {"attn.{q,k}.w{1,2}", "attn.k.w2", true, true},
        {"attn.{q,k}.w{1,2}", "attn.v.w2", false, false},
        {"{a.{b,c*},d}.e", "a.cxx.e", true, true},
        {"{,un}even", "uneven", true, true},
        {"{**.x,y}.z", "a.b.x.z", true, true},
        {"a**c", "a.b.c", true, true},
        {"layers.*.attn$", "layers.3.attn", true, true},
        {"layers.*.attn$", "layers.3.attn.wq", false, false},
        {"a$b", "ab", false, false},
        {"", "a", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("'%s' and '%s'\n", cases[i].glob, cases[i].name);
        char whole[64];
        const size_t n = strlen(cases[i].glob);
        (void)snprintf(whole, sizeof whole, "%s%s", cases[i].glob,
                       n > 0 && cases[i].glob[n - 1] == '$' ? "" : "$");
        assert_int_equal(dtp_glob_match_prefix(whole, cases[i].name), cases[i].whole);
        assert_int_equal(dtp_glob_match_prefix(cases[i].glob, cases[i].name), cases[i].prefix);
    }
}

static void test_glob__hostile_patterns_end(void **state)
{
    (void)state;
    char glob[DTP_GLOB_BYTES], name[400];
    dtp_err err;
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 200; i++) {
        glob[2 * i] = 'a';
        glob[2 * i + 1] = '*';
    }
    glob[400] = 'b';
    glob[401] = '\0';
    assert_int_equal(dtp_glob_check(glob, &err), DTP_OK);
    assert_false(dtp_glob_match_prefix(glob, name));
    assert_int_equal(dtp_glob_check("a{b", &err), DTP_INVALID);
    assert_int_equal(dtp_glob_check("a}b{", &err), DTP_INVALID);
    assert_int_equal(dtp_glob_check("", &err), DTP_INVALID);
    assert_int_equal(dtp_glob_check("{{{{{{{{{{{{{{{{{{{{a}}}}}}}}}}}}}}}}}}}}", &err),
                     DTP_INVALID);
}

static void test_name_distance__counts_edits(void **state)
{
    (void)state;
    assert_int_equal(dtp_name_distance("mlp.up", "mlp.up", 5), 0);
    assert_int_equal(dtp_name_distance("mlp.up", "mlp.ups", 5), 1);
    assert_int_equal(dtp_name_distance("kitten", "sitting", 5), 3);
    assert_int_equal(dtp_name_distance("kitten", "sitting", 2), 3);
    assert_int_equal(dtp_name_distance("a", "abcdefghijk", 4), 5);
}

/* ---- styles ---- */

/* The pin of a tensor (as `node` reads it, when given) as text; "" when there is none. */
static void pin_text(const fixture *f, int32_t n, const dtp_pin *pins, const char *tensor,
                     const char *node, char out[DTP_LAYOUT_TEXT_BYTES])
{
    const dtp_tensor_id t = dtp_graph_find(f->g, tensor);
    assert_true(t >= 0);
    out[0] = '\0';
    for (int32_t i = 0; i < n; i++) {
        const bool same_node =
            node == NULL ? pins[i].node < 0
                         : pins[i].node >= 0 && strcmp(f->g->nodes[pins[i].node].name, node) == 0;
        if (pins[i].tensor == t && same_node) {
            dtp_layout_print(&pins[i].layout, &f->mesh, &f->g->tensors[t].type, &f->g->dims, out);
        }
    }
}

static void test_styles__pins(void **state)
{
    (void)state;
    static const struct {
        const char *style, *tensor, *node, *pin;
    } cases[] = {
        {"layers.*.attention.wq: colwise(tp)", "layers.0.attention.wq.weight", NULL, "heads@tp"},
        {"layers.*.attention.wq: colwise(tp)", "layers.1.attention.wq", NULL, "heads@tp"},
        {"layers.*.attention.wq: colwise(tp, dim=head_dim)", "layers.1.attention.wq", NULL,
         "head_dim@tp"},
        {"layers.*.attention.wq: colwise", "layers.0.attention_norm", "layers.0.attention.wq",
         "replicated"},
        {"layers.*.attention.wq.weight: colwise", "layers.0.attention.wq", NULL, "heads@tp"},
        {"layers.0.feed_forward.w1: colwise", "layers.0.feed_forward.w1.bias", NULL, "ff@tp"},
        {"layers.0.feed_forward.w1: colwise", "layers.1.feed_forward.w1.bias", NULL, ""},
        {"layers.*.feed_forward.w2: rowwise", "layers.0.feed_forward.w2.weight", NULL, "ff@tp"},
        {"layers.*.feed_forward.w2: rowwise", "layers.0.feed_forward.gelu",
         "layers.0.feed_forward.w2.mm", "ff@tp"},
        {"layers.*.feed_forward.w2: rowwise", "layers.0.feed_forward.w2", NULL, "replicated"},
        {"layers.*.feed_forward.w2: rowwise(output=seq)", "layers.0.feed_forward.w2", NULL,
         "seq@tp"},
        {"tok_embeddings: rowwise", "tok_embeddings.weight", NULL, "vocab@tp"},
        {"tok_embeddings: colwise", "tok_embeddings.weight", NULL, "dim@tp"},
        {"tok_embeddings: colwise", "tok_embeddings", NULL, "dim@tp"},
        {"output: colwise(output=replicated)", "output", NULL, "replicated"},
        {"output: colwise(output=replicated)", "output.weight", NULL, "vocab@tp"},
        {"norm: sequence", "norm", NULL, "seq@tp"},
        {"norm: sequence", "norm.gamma", NULL, "replicated"},
        {"norm: sequence(dp, dim=batch)", "layers.1.h2", "norm", "batch@dp"},
        {"norm: prepare_input=seq@tp", "layers.1.h2", "norm", "seq@tp"},
        {"norm: prepare_output(dp)=replicated", "norm", NULL, "replicated"},
        {"norm: replicate", "layers.1.h2", "norm", "replicated"},
        {"loss: loss_parallel", "output", "loss", "vocab@tp"},
        {"**: data", "tokens", NULL, "batch@dp"},
        {"targets: data(dp, dim=seq)", "targets", NULL, "seq@dp"},
        {"output.weight: fsdp", "output.weight", NULL, "dim@dp"},
        {"output.weight: fsdp", "output.weight", "output", "replicated"},
        {"output.weight: zero2", "output.weight", NULL, ""},
        {"output.weight: zero3(dim=vocab)", "output.weight", NULL, "vocab@dp"},
    };
    fixture f = setup("dp:2;tp:2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_styles list;
        dtp_pin *pins = NULL;
        int32_t n = 0;
        dtp_err err = {0};
        char text[DTP_LAYOUT_TEXT_BYTES];
        dtp_styles_init(&list, f.arena);
        dtp_status s = dtp_styles_parse(cases[i].style, &list, &err);
        s = s == DTP_OK ? dtp_styles_pins(f.g, &f.mesh, &list, &n, &pins, &err) : s;
        if (s != DTP_OK) {
            fail_msg("%s: %s", cases[i].style, err.msg);
        }
        pin_text(&f, n, pins, cases[i].tensor, cases[i].node, text);
        print_message("%s: %s %s\n", cases[i].style, cases[i].tensor, text);
        assert_string_equal(text, cases[i].pin);
    }
    teardown(&f);
}

/* Two styles on two mesh dims put one layout together, the later one inside. */
static void test_styles__combine(void **state)
{
    (void)state;
    fixture f = setup("dp:2;tp:2");
    dtp_styles list;
    dtp_pin *pins = NULL;
    int32_t n = 0;
    char text[DTP_LAYOUT_TEXT_BYTES];
    dtp_styles_init(&list, f.arena);
    assert_int_equal(dtp_styles_parse("**: fsdp", &list, NULL), DTP_OK);
    assert_int_equal(dtp_styles_parse("layers.*.feed_forward.w1: colwise", &list, NULL), DTP_OK);
    assert_int_equal(dtp_styles_pins(f.g, &f.mesh, &list, &n, &pins, NULL), DTP_OK);
    pin_text(&f, n, pins, "layers.0.feed_forward.w1.weight", NULL, text);
    assert_string_equal(text, "dim@dp, ff@tp");
    pin_text(&f, n, pins, "layers.0.feed_forward.w1.bias", NULL, text);
    assert_string_equal(text, "ff@tp+dp");
    pin_text(&f, n, pins, "layers.0.feed_forward.w1.bias", "layers.0.feed_forward.w1", text);
    assert_string_equal(text, "ff@tp");
    teardown(&f);
}

static void test_styles__bad_ones_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *mesh, *styles[2], *words;
    } cases[] = {
        {"tp:2", {"output colwise"}, "expected GLOB: STYLE"},
        {"tp:2", {"output: colwize"}, "there is no style 'colwize'; there are colwise, rowwise"},
        {"tp:2", {"output: colwise(x)"}, "the mesh 'tp:2' has no dim 'x'"},
        {"x:2;y:2", {"output: colwise(x+y)"}, "has no dim 'x+y'"},
        {"x:2;y:2", {"**: data(x+z)"}, "the mesh 'x:2;y:2' has no dim 'z'"},
        {"x:2;y:2", {"**: zero3(y+y)"}, "'y+y' names a mesh dim twice"},
        {"x:2;y:2", {"**: zero3(x+)"}, "has no dim ''"},
        {"x:2;y:2", {"output: colwise"}, "There is none called 'tp'; say colwise(DIM)"},
        {"tp:2", {"output: colwise(tp"}, "end with ')'"},
        {"tp:2", {"output: colwise(tp,tp)"}, "option 'tp'"},
        {"tp:2", {"output: colwise(dim=)"}, "option 'dim='"},
        {"tp:2", {"output: colwise=seq@tp"}, "takes no layout"},
        {"tp:2", {"output: prepare_input"}, "prepare_input=LAYOUT"},
        {"tp:2", {"norm: prepare_input=nosuch@tp"}, "nosuch"},
        {"tp:2", {"norm: prepare_input=+sum(tp)"}, "partial"},
        {"tp:2", {"otput: colwise"}, "the nearest names are 'output'"},
        {"tp:2", {"layers.*.atention.wq: colwise"}, "matches no node and no parameter"},
        {"tp:2", {"output: colwise(dim=dim)"}, "has no output feature"},
        {"tp:2", {"output: rowwise(dim=vocab)"}, "has no contracted dim"},
        {"tp:2", {"output: rowwise(output=heads)"}, "output=heads"},
        {"tp:2", {"norm: colwise"}, "is layer_norm"},
        {"tp:2", {"h0: colwise"}, "reads a parameter"},
        {"tp:2", {"norm: loss_parallel"}, "cross_entropy"},
        {"tp:2", {"norm: context"}, "attention"},
        {"tp:2", {"layers.*.attention.sdpa: context(ring, gather)"}, "option 'gather'"},
        {"tp:2", {"layers.*.attention.sdpa: context(rng)"}, "has no dim 'rng'"},
        {"tp:2", {"output: colwise(ring)"}, "has no dim 'ring'"},
        {"tp:2",
         {"layers.0.attention: context(ring)", "**: context(gather)"},
         "another style set 'context' of node 'layers.0.attention.sdpa' to 'ring'"},
        {"tp:2", {"norm: data"}, "no input"},
        {"tp:2", {"{norm: colwise"}, "do not pair up"},
        {"tp:2", {"output: colwise", "output: rowwise"}, "but 'output: colwise' pinned it to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f = setup(cases[i].mesh);
        dtp_styles list;
        dtp_pin *pins = NULL;
        int32_t n = 0;
        dtp_err err = {0};
        dtp_status s = DTP_OK;
        dtp_styles_init(&list, f.arena);
        for (int k = 0; k < 2 && cases[i].styles[k] != NULL && s == DTP_OK; k++) {
            s = dtp_styles_parse(cases[i].styles[k], &list, &err);
        }
        s = s == DTP_OK ? dtp_styles_pins(f.g, &f.mesh, &list, &n, &pins, &err) : s;
        print_message("%s\n", err.msg);
        assert_int_equal(s, DTP_INVALID);
        assert_non_null(strstr(err.msg, cases[i].words));
        teardown(&f);
    }
}

/* ---- style plans of other systems ---- */

static void test_styles__import_hf(void **state)
{
    (void)state;
    static const char PLAN[] = "{\"layers.*.self_attn.q_proj\": \"colwise\",\n"
                               " \"layers.*.self_attn.o_proj\": \"rowwise\",\n"
                               " \"layers.*.mlp.gate_up\": \"local_colwise\",\n"
                               " \"layers.*.mlp\": \"local\",\n"
                               " \"norm\": \"sequence_parallel\",\n"
                               " \"lm_head\": \"colwise_rep\"}";
    static const dtp_style_rename names[] = {{"self_attn", "attention"}, {"q_proj", "wq"},
                                             {"o_proj", "wo"},           {"mlp", "feed_forward"},
                                             {"gate_up", "w1"},          {"lm_head", "output"}};
    static const char *const texts[] = {"layers.*.attention.wq: colwise",
                                        "layers.*.attention.wo: rowwise",
                                        "layers.*.feed_forward.w1: colwise", "norm: sequence",
                                        "output: colwise(output=replicated)"};
    fixture f = setup("tp:2");
    dtp_styles list;
    dtp_pin *pins = NULL;
    int32_t n = 0;
    dtp_err err = {0};
    dtp_styles_init(&list, f.arena);
    const dtp_style_naming naming = {6, names, NULL};
    assert_int_equal(dtp_styles_import_hf("hf.json", PLAN, strlen(PLAN), &naming, &list, &err),
                     DTP_OK);
    assert_int_equal(list.n, 5);
    for (int32_t i = 0; i < list.n; i++) {
        assert_string_equal(list.items[i].text, texts[i]);
    }
    assert_int_equal(dtp_styles_pins(f.g, &f.mesh, &list, &n, &pins, &err), DTP_OK);
    assert_true(n > 20);
    teardown(&f);
}

static void test_styles__import_hf_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
        dtp_status status;
    } cases[] = {
        {"{\"a\": \"ep_router\"}", "hf.json:1:2: a: style 'ep_router': expert parallel",
         DTP_UNSUPPORTED},
        {"{\"a\": \"local_packed_rowwise\"}", "packed weights", DTP_UNSUPPORTED},
        {"{\"a\": \"sideways\"}", "'sideways' is not a style", DTP_INVALID},
        {"{\"a\": 3}", "expected a string", DTP_INVALID},
        {"{\"a{\": \"colwise\"}", "do not pair up", DTP_INVALID},
        {"[]", "expected an object", DTP_INVALID},
        {"{\"a\": \"colwise\", \"a\": \"rowwise\"}", "a", DTP_INVALID},
    };
    const dtp_style_naming naming = {0};
    fixture f = setup("tp:2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_styles list;
        dtp_err err = {0};
        dtp_styles_init(&list, f.arena);
        assert_int_equal(dtp_styles_import_hf("hf.json", cases[i].text, strlen(cases[i].text),
                                              &naming, &list, &err),
                         cases[i].status);
        print_message("%s\n", err.msg);
        assert_non_null(strstr(err.msg, cases[i].words));
    }
    teardown(&f);
}

/* ---- pins by hand ---- */

static void test_pin__parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words; /* words NULL: good */
    } cases[] = {{"h0: batch@dp, seq@tp", NULL},
                 {" output.weight at output : replicated", NULL},
                 {"h0 batch@dp", "TENSOR: LAYOUT"},
                 {"nosuch: batch@dp", "has no tensor 'nosuch'"},
                 {"h0 at output: batch@dp", "does not read 'h0'"},
                 {"h0 at nosuch: batch@dp", "has no node 'nosuch'"},
                 {"h0: vocab@dp", "vocab"}};
    fixture f = setup("dp:2;tp:2");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_pin pin;
        dtp_err err = {0};
        dtp_status s = dtp_pin_parse(cases[i].text, f.g, &f.mesh, &pin, &err);
        assert_int_equal(s, cases[i].words == NULL ? DTP_OK : DTP_INVALID);
        assert_true(cases[i].words == NULL || strstr(err.msg, cases[i].words) != NULL);
    }
    teardown(&f);
}

/* ---- names ---- */

/* In microbatches a style means what it means in the model: names are those of the model; names of
 * the graph do as well. */
static void test_styles__names_are_those_of_the_model(void **state)
{
    (void)state;
    static const char *const globs[] = {"loss", "loss$", "l*s", "{loss,micro.loss}", "micro.loss"};
    dtp_graph *g = NULL, *m = NULL;
    dtp_mesh mesh;
    dtp_arena *arena = dtp_arena_create();
    dtp_pin *pins[5] = {NULL};
    int32_t n[5] = {0};
    dtp_err err = {0};
    assert_int_equal(dtp_mesh_parse("tp:2", &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/gpt_bytes.json", NULL, &g, &err), 0);
    assert_int_equal(dtp_graph_microbatched(g, -1, 2, &m, &err), DTP_OK);
    for (int i = 0; i < 5; i++) {
        char text[64];
        dtp_styles list;
        (void)snprintf(text, sizeof text, "%s: loss_parallel(tp)", globs[i]);
        dtp_styles_init(&list, arena);
        assert_int_equal(dtp_styles_parse(text, &list, &err), DTP_OK);
        if (dtp_styles_pins(m, &mesh, &list, &n[i], &pins[i], &err) != DTP_OK) {
            fail_msg("%s: %s", text, err.msg);
        }
        assert_true(n[i] > 0 && n[i] == n[0]);
        for (int32_t k = 0; k < n[i]; k++) {
            assert_int_equal(pins[i][k].tensor, pins[0][k].tensor);
            assert_int_equal(pins[i][k].node, pins[0][k].node);
            assert_memory_equal(&pins[i][k].layout, &pins[0][k].layout, sizeof(dtp_layout));
        }
    }
    dtp_styles list;
    dtp_styles_init(&list, arena);
    assert_int_equal(dtp_styles_parse("losss: loss_parallel(tp)", &list, &err), DTP_OK);
    assert_int_equal(dtp_styles_pins(m, &mesh, &list, &n[0], &pins[0], &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the nearest names are 'loss'"));
    assert_null(strstr(err.msg, "micro."));
    static const char *const by_hand[] = {"logits at loss: vocab@tp",
                                          "logits at micro.loss: vocab@tp",
                                          "micro.loss at loss: replicated"};
    for (int i = 0; i < 3; i++) {
        dtp_pin pin;
        if (dtp_pin_parse(by_hand[i], m, &mesh, &pin, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        assert_string_equal(m->nodes[pin.node].op->name, i < 2 ? "cross_entropy" : "accumulate");
    }
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
}

/* A plan that does not fit is a result that says how much it needs. */
static void test_plan_pins__memory_limit(void **state)
{
    (void)state;
    fixture f = setup("tp:2");
    dtp_machine *machine = NULL;
    dtp_plan_result r;
    dtp_err err = {0};
    const dtp_pin_set none = {0};
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &f.mesh;
    request.pins = &none;
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/a100_8.json", &machine, &err), DTP_OK);
    assert_int_equal(dtp_plan_pins(f.g, machine, &request, &r, &err), DTP_OK);
    const int64_t peak = r.plan->predicted.peak_bytes;
    assert_int_equal(r.plan->certificate.status, DTP_CERT_FEASIBLE);
    assert_int_equal(r.plan->certificate.bound, 0);
    assert_int_equal(r.plan->n_baselines, 7);
    dtp_plan_result_free(&r);
    request.options.memory_limit_bytes = peak - 1;
    assert_int_equal(dtp_plan_pins(f.g, machine, &request, &r, &err), DTP_OK);
    assert_true(r.infeasible && r.plan == NULL);
    assert_int_equal(r.smallest_peak_bytes, peak);
    dtp_machine_destroy(machine);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob__matches),
        cmocka_unit_test(test_glob__hostile_patterns_end),
        cmocka_unit_test(test_name_distance__counts_edits),
        cmocka_unit_test(test_styles__pins),
        cmocka_unit_test(test_styles__combine),
        cmocka_unit_test(test_styles__bad_ones_are_errors),
        cmocka_unit_test(test_styles__import_hf),
        cmocka_unit_test(test_styles__import_hf_refuses),
        cmocka_unit_test(test_pin__parse),
        cmocka_unit_test(test_styles__names_are_those_of_the_model),
        cmocka_unit_test(test_plan_pins__memory_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
