/* Efficiencies of runtimes, and what tokens per second and MFU are of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/model_flops.h"
#include "cost_models/price.h"
#include "tests/support/plan_fixture.h"

#define DEVICE                                                                                     \
    "{\"format\": \"dtp.machine/1\", \"name\": \"card\", \"device\": {\"kind\": \"cuda\", "        \
    "\"memory_bytes\": 1024, \"mem_bw_Bps\": 1e12, \"launch_s\": 4e-6, \"flops\": {\"bf16\": "     \
    "1e15, "                                                                                       \
    "\"f32\": 5e13}%s}, \"levels\": [], "
#define SETS                                                                                       \
    "\"efficiency\": {\"torch\": {\"products\": 0.7, \"memory\": 0.4, \"attention\": 0.3, "        \
    "\"attention_grad\": 0.2, \"host_s\": 8e-6, \"provenance\": {\"how\": \"fitted\", "            \
    "\"rows\": 12, \"date\": \"2026-11-28\"}}, \"old\": {\"products\": 0.5, \"memory\": 0.4, "     \
    "\"attention\": 0.3, \"attention_grad\": 0.2, \"host_s\": 0, \"provenance\": {\"how\": "       \
    "\"borrowed\", \"from\": \"other\"}}}, "
#define END "\"provenance\": {\"how\": \"datasheet\"}}"

static dtp_status try_parse(const char *sets, dtp_machine **out, dtp_err *err)
{
    char text[4096];
    (void)snprintf(text, sizeof text, DEVICE "%s" END, "", sets);
    return dtp_machine_parse("card.json", text, strlen(text), out, err);
}

static dtp_machine *parse(const char *sets)
{
    dtp_machine *m = NULL;
    dtp_err err = {0};
    if (try_parse(sets, &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return m;
}

static void near_to(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g is not %.17g", value, expected);
    }
}

static double time_of(const dtp_machine *m, const char *op, dtp_work work)
{
    return dtp_price_work(m, dtp_op_find(op), (dtp_arithmetic)DTP_BF16, &work);
}

/* Every kind of kernel is priced at its share of the peak. */
static void test_efficiency__shares_of_the_peaks_are_the_prices(void **state)
{
    (void)state;
    dtp_machine *m = parse(SETS);
    const uint64_t peaks = dtp_machine_hash(m);
    assert_int_equal(dtp_machine_set_runtime(m, "torch", NULL), DTP_OK);
    assert_string_equal(m->runtime, "torch");
    assert_string_equal(m->provenance_how, "fitted");
    assert_true(dtp_machine_hash(m) != peaks);
    near_to(m->host_s, 8e-6);
    const dtp_work product = {
        .cls = DTP_WORK_GEMM, .flops = 1e14, .bytes = 1e6, .m = 1, .n = 1, .k = 1, .batch = 1};
    near_to(time_of(m, "einsum", product), 4e-6 + 1e14 / (0.7 * 1e15));
    const dtp_work bytes = {.cls = DTP_WORK_MEMORY, .flops = 1.0, .bytes = 1e10};
    near_to(time_of(m, "add", bytes), 4e-6 + 1e10 / (0.4 * 1e12));
    const dtp_work attention = {.cls = DTP_WORK_MEMORY, .flops = 1e13, .bytes = 1e9};
    const double moving_s = 1e9 / (0.4 * 1e12);
    near_to(time_of(m, "attention", attention), moving_s + 1e13 / (0.3 * 1e15));
    near_to(time_of(m, "attention_grad", attention), moving_s + 1e13 / (0.2 * 1e15));
    near_to(time_of(m, "attention_part", attention), moving_s + 1e13 / (0.3 * 1e15));
    near_to(time_of(m, "attention_part_grad", attention), moving_s + 1e13 / (0.2 * 1e15));
    dtp_machine_destroy(m);
}

static void test_efficiency__one_runtime_of_those_there_are(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_machine *m = parse(SETS), *none = parse("");
    assert_int_equal(dtp_machine_set_runtime(m, "jax", &err), DTP_INVALID);
    assert_string_equal(err.msg, "card.json: no efficiencies of runtime 'jax', only of torch, old");
    assert_int_equal(dtp_machine_set_runtime(none, "torch", &err), DTP_INVALID);
    assert_string_equal(err.msg, "card.json: no efficiencies of runtime 'torch', nor of others");
    assert_int_equal(dtp_machine_set_runtime(m, "old", NULL), DTP_OK);
    assert_int_equal(dtp_machine_set_runtime(m, "torch", &err), DTP_INVALID);
    assert_string_equal(err.msg, "card.json: runtime 'torch': it is set to 'old' already");
    dtp_machine_destroy(m);
    dtp_machine_destroy(none);
}

static void test_efficiency__written_sets_read_back_and_are_borrowed(void **state)
{
    (void)state;
    dtp_machine *a = parse(SETS), *b = NULL, *other = parse("");
    char *first = NULL, *second = NULL;
    assert_int_equal(dtp_machine_write(a, &first, NULL), DTP_OK);
    assert_int_equal(dtp_machine_parse("card.json", first, strlen(first), &b, NULL), DTP_OK);
    assert_int_equal(dtp_machine_write(b, &second, NULL), DTP_OK);
    assert_string_equal(first, second);
    assert_int_equal(b->n_efficiencies, 2);
    assert_int_equal(b->efficiencies[0].rows, 12);
    assert_int_equal(dtp_efficiency_borrow(other, a, NULL), DTP_OK);
    assert_int_equal(other->n_efficiencies, 2);
    assert_string_equal(other->efficiencies[0].how, "borrowed");
    assert_string_equal(other->efficiencies[0].from, "card");
    assert_string_equal(other->efficiencies[1].from, "other");
    /* Sets that are not chosen change no price. */
    dtp_machine *bare = parse("");
    assert_true(dtp_machine_hash(bare) == dtp_machine_hash(a));
    free(first);
    free(second);
    dtp_machine_destroy(a);
    dtp_machine_destroy(b);
    dtp_machine_destroy(bare);
    dtp_machine_destroy(other);
}

static void test_efficiency__what_is_no_set_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *sets, *message;
    } cases[] = {
        {"\"efficiency\": [], ", "efficiency: expected an object"},
        {"\"efficiency\": {\"torch\": {\"products\": 0.7}}, ",
         "efficiency.torch: the key 'memory' is missing"},
        {"\"efficiency\": {\"torch\": {\"products\": 7, \"memory\": 1, \"attention\": 1, "
         "\"attention_grad\": 1, \"host_s\": 0, \"provenance\": {\"how\": \"fitted\"}}}, ",
         "efficiency.torch.products: expected a number in [0.001, 2] times the peak, found 7"},
        {"\"efficiency\": {\"torch\": {\"products\": 1, \"memory\": 1, \"attention\": 1, "
         "\"attention_grad\": 1, \"host_s\": -1, \"provenance\": {\"how\": \"fitted\"}}}, ",
         "efficiency.torch.host_s: expected a number in [0, 1000] s, found -1"},
        {"\"efficiency\": {\"torch\": {\"products\": 1, \"memory\": 1, \"attention\": 1, "
         "\"attention_grad\": 1, \"host_s\": 0, \"provenance\": {\"how\": \"guessed\"}}}, ",
         "efficiency.torch.provenance.how: 'guessed' is none of"},
        {"\"efficiency\": {\"torch\": {\"product\": 1}}, ",
         "efficiency.torch.product: unknown key 'product'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_machine *m = NULL;
        dtp_err err = {0};
        assert_int_equal(try_parse(cases[i].sets, &m, &err), DTP_INVALID);
        assert_null(m);
        if (strstr(err.msg, cases[i].message) == NULL ||
            strncmp(err.msg, "card.json:1:", 12) != 0) {
            fail_msg("case %zu: '%s' does not say '%s'", i, err.msg, cases[i].message);
        }
    }
}

/* ---- tokens and MFU ---- */

/* Numbers of the parameters that products multiply, by their names. */
static double multiplied(const dtp_graph *g)
{
    double sum = 0.0;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &g->tensors[t];
        const bool matrix = tensor->type.rank >= 2 && strcmp(tensor->name, "wte") != 0;
        sum += tensor->kind == DTP_TENSOR_PARAM && matrix ? (double)dtp_ttype_elems(&tensor->type)
                                                          : 0.0;
    }
    return sum;
}

static int64_t size_of(const dtp_graph *g, const char *dim)
{
    for (int32_t d = 0; d < g->dims.n; d++) {
        if (strcmp(dtp_dims_name(&g->dims, d), dim) == 0) {
            return g->dims.sizes[d];
        }
    }
    fail_msg("no dim %s", dim);
    return 0;
}

/* The formula of torchtitan: a token takes 6 FLOPs for every parameter but those of the embedding,
 * and 12 for layers x heads x features x length. */
static void test_model_flops__are_those_of_the_published_formula(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("llama3_8b.json");
    const dtp_model_flops of = dtp_model_flops_of(g);
    const int64_t batch = size_of(g, "batch"), length = size_of(g, "length");
    assert_int_equal(of.tokens, batch * length);
    const double parameters = multiplied(g);
    assert_true(parameters > 7.4e9 && parameters < 7.6e9);
    const double per_token = 6.0 * parameters + 12.0 * 32.0 * 32.0 * 128.0 * (double)length;
    near_to(of.flops, per_token * (double)of.tokens);
    dtp_machine *m = fixture_machine("h100_64.json");
    const double step_s = 1.5;
    const double published = per_token * (double)of.tokens / (step_s * 8.0 * 989e12);
    assert_true(fabs(dtp_mfu(&of, m, DTP_BF16, 8, step_s) - published) < 0.001);
    /* Peaks are those of the card, whatever runtime prices have. */
    assert_int_equal(dtp_machine_set_runtime(m, "torch", NULL), DTP_OK);
    assert_true(fabs(dtp_mfu(&of, m, DTP_BF16, 8, step_s) - published) < 0.001);
    dtp_machine_destroy(m);
    dtp_graph_destroy(g);
}

static void test_model_flops__models_without_tokens_have_none(void **state)
{
    (void)state;
    static const char *const without[] = {"mlp_digits.json", "vit_b16.json"};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        dtp_graph *g = fixture_model(without[i]);
        const dtp_model_flops of = dtp_model_flops_of(g);
        assert_int_equal(of.tokens, 0);
        assert_true(of.flops > 0.0);
        dtp_prediction p = {.step_time_s = 1.0};
        dtp_machine *m = fixture_machine("h100_64.json");
        dtp_predict_throughput(g, m, &(dtp_precision){0}, 8, &p);
        assert_true(!(p.tokens_per_s > 0.0) && !(p.mfu > 0.0));
        dtp_machine_destroy(m);
        dtp_graph_destroy(g);
    }
}

/* Experts by masks and by indices, with capacities above, at and below the choices: a token takes 6
 * FLOPs for every parameter of the experts that it is sent to, whatever the capacity is; what other
 * slots take is in vain. */
static void test_model_flops__experts_count_the_tokens_that_are_sent_to_them(void **state)
{
    (void)state;
    static const char *const files[] = {"mixtral_8x7b.json", "mixtral_8x7b_index.json",
                                        "gpt_bytes_experts.json"};
    static const double room[] = {4.0, 1.25, 1.0, 0.5}; /* slots over choices */
    for (size_t i = 0; i < sizeof files / sizeof files[0] * 4; i++) {
        dtp_dim_override given[] = {{"batch", 2}, {"length", 64}, {"capacity", 0}};
        dtp_model_options options = dtp_model_options_init();
        given[2].size = (int64_t)(room[i % 4] * 2.0 * 64.0 / 8.0); /* 2 choices of 8 */
        options.n_overrides = 3;
        options.overrides = given;
        dtp_graph *g = fixture_model_with(files[i / 4], &options);
        double dense = 0.0, experts = 0.0, attention = 0.0;
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            const dtp_graph_tensor *tensor = &g->tensors[t];
            const bool matrix = tensor->kind == DTP_TENSOR_PARAM && tensor->type.rank >= 2 &&
                                strncmp(tensor->name, "w", 1) != 0 &&
                                strstr(tensor->name, ".attn.b") == NULL;
            const bool expert =
                matrix && strcmp(dtp_dims_name(&g->dims, tensor->type.dims[0].id), "experts") == 0;
            *(expert ? &experts : &dense) += matrix ? (double)dtp_ttype_elems(&tensor->type) : 0.0;
        }
        for (dtp_node_id n = 0; n < g->n_nodes; n++) {
            const bool is = (g->nodes[n].op->flags & DTP_OP_ATTENTION) != 0;
            const dtp_ttype *q = &g->tensors[g->nodes[n].out[0]].type;
            attention += is && g->nodes[n].phase == DTP_FORWARD
                             ? 12.0 * 64.0 * (double)dtp_ttype_elems(q)
                             : 0.0;
        }
        const dtp_model_flops of = dtp_model_flops_of(g);
        const double tokens = 2.0 * 64.0, share = room[i % 4] < 1.0 ? room[i % 4] : 1.0;
        const double sent = 6.0 * experts * 2.0 / 8.0 * tokens;
        near_to(of.flops, 6.0 * dense * tokens + share * sent + attention);
        assert_true(fabs(of.vain - (room[i % 4] - share) * sent) <= 1e-9 * sent);
        dtp_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_efficiency__shares_of_the_peaks_are_the_prices),
        cmocka_unit_test(test_efficiency__one_runtime_of_those_there_are),
        cmocka_unit_test(test_efficiency__written_sets_read_back_and_are_borrowed),
        cmocka_unit_test(test_efficiency__what_is_no_set_is_refused_with_its_place),
        cmocka_unit_test(test_model_flops__are_those_of_the_published_formula),
        cmocka_unit_test(test_model_flops__experts_count_the_tokens_that_are_sent_to_them),
        cmocka_unit_test(test_model_flops__models_without_tokens_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
