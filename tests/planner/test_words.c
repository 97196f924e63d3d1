/* The words about a plan against plans whose parallelism is known: baselines of GPT-2 small and of
 * a mixture of experts. Communication by kind against its prediction; where memory peaks against a
 * sum over the values that live at each instruction. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/units.h"
#include "core/plan/plan.h"
#include "dtp/model.h"
#include "dtp/planner.h"
#include "planner/baselines/baselines.h"
#include "planner/reports/words.h"
#include "spmd/lower/lower.h"
#include "tests/support/small_models.h"
#include "tests/support/tensor_cases.h"

/* The words about each mesh dim of a baseline. */
typedef struct expectation {
    const char *model, *mesh, *baseline;
    const char *words[2]; /* of mesh dims 0 and 1; parts that must be there, by '|' */
} expectation;

static const expectation CASES[] = {
    {"gpt2_small", "x:4", "replicated", {"replicated", NULL}},
    {"gpt2_small", "x:4", "data_parallel", {"data parallel over batch\n", NULL}},
    {"gpt2_small",
     "x:4",
     "zero1",
     {"data parallel over batch|ZeRO: |of the optimizer states kept split", NULL}},
    {"gpt2_small",
     "x:4",
     "zero3",
     {"data parallel over batch|FSDP: 100 % of the parameters kept split", NULL}},
    {"gpt2_small", "x:4", "megatron", {"tensor parallel by |heads|d_ff", NULL}},
    {"gpt_bytes",
     "x:4",
     "megatron",
     {"tensor parallel by |heads|d_ff|vocab|embedding table wte split by rows, vocab", NULL}},
    {"gpt2_small",
     "x:4",
     "megatron_sp",
     {"tensor parallel by |heads|d_ff|sequence parallel: norms by length", NULL}},
    {"gpt2_small",
     "x:2;y:2",
     "data_megatron",
     {"data parallel over batch", "tensor parallel by |heads|d_ff"}},
    {"gpt2_small",
     "x:2;y:2",
     "zero3_megatron_sp",
     {"data parallel over batch|FSDP: ",
      "tensor parallel by |heads|d_ff|sequence parallel: norms by length"}},
    {"mixtral_8x7b",
     "x:4",
     "expert_parallel",
     {"mixed: data parallel over batch |expert parallel by experts", NULL}},
    {"mixtral_8x7b",
     "x:2;y:4",
     "zero3_expert",
     {"data parallel over batch|FSDP: ", "expert parallel by experts"}},
};

static void check_words(const dtp_graph *g, const expectation *e, const dtp_candidate *c)
{
    for (int32_t m = 0; m < 2 && e->words[m] != NULL; m++) {
        dtp_words_dim dim;
        dtp_strbuf text = {0};
        char parts[256];
        assert_int_equal(dtp_words_dim_of(g, &c->sharding, m, &dim, NULL), DTP_OK);
        dtp_words_dim_print(g, &dim, &text);
        (void)snprintf(parts, sizeof parts, "%s", e->words[m]);
        for (char *save, *part = strtok_r(parts, "|", &save); part != NULL;
             part = strtok_r(NULL, "|", &save)) {
            if (strstr(text.text, "Ulysses") != NULL) {
                fail_msg("%s of %s on '%s': '%s'", e->baseline, e->model, e->mesh, text.text);
            }
            if (strstr(text.text, part) == NULL) {
                fail_msg("%s of %s on '%s', mesh dim %d: '%s' lacks '%s'", e->baseline, e->model,
                         e->mesh, m, text.text, part);
            }
        }
        dtp_strbuf_free(&text);
    }
}

/* Most bytes of buffers that live at one instruction, by a plain sum. */
static int64_t most_bytes(const dtp_program *p)
{
    int64_t most = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        int64_t sum = 0;
        for (dtp_value_id root = 0; root < p->n_values; root++) {
            bool lives = false;
            for (dtp_value_id v = root; v < p->n_values && !lives && p->values[root].parent < 0;
                 v++) {
                const dtp_value *value = &p->values[v];
                lives = dtp_value_root(p, v) == root && value->first >= 0 && value->first <= i &&
                        i <= value->last;
            }
            sum += lives ? p->values[root].bytes : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void check_peak(const dtp_graph *g, const dtp_candidate *c)
{
    const dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_program *p = NULL;
    dtp_strbuf text = {0};
    char peak[64];
    assert_int_equal(dtp_lower(g, &c->sharding, &options, &p, NULL), DTP_OK);
    assert_int_equal(dtp_words_print(g, &c->sharding, p, NULL, NULL, &text, NULL), DTP_OK);
    (void)snprintf(peak, sizeof peak, ": %s\n", dtp_byte_count((double)most_bytes(p)).text);
    const char *line = strstr(text.text, "memory peaks in the ");
    assert_non_null(line);
    assert_non_null(strstr(line, peak));
    assert_true(strstr(line, peak) < strchr(line, '\n') + 1);
    dtp_strbuf_free(&text);
    dtp_program_destroy(p);
}

static void test_words__name_the_parallelism(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const expectation *e = &CASES[i];
        const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                              .generic = dtp_redistributor_generic()};
        small_pricer pricer = small_pricer_read("h100_64", e->mesh);
        dtp_arena *arena = dtp_arena_create();
        dtp_candidate *list = NULL;
        dtp_graph *g = NULL;
        char path[256];
        int32_t n = 0, k = 0;
        dtp_err err = {0};
        (void)snprintf(path, sizeof path, "%s/models/%s.json", DTP_SOURCE_DIR, e->model);
        assert_int_equal(dtp_model_read(path, NULL, &g, &err), DTP_OK);
        assert_int_equal(dtp_baselines_create(g, &pricer.pricer, &options, arena, &n, &list, &err),
                         DTP_OK);
        while (k < n && strcmp(list[k].name, e->baseline) != 0) {
            k++;
        }
        if (k == n || !list[k].legal) {
            fail_msg("%s of %s on '%s': %s", e->baseline, e->model, e->mesh,
                     k == n ? "none" : list[k].why);
        }
        check_words(g, e, &list[k]);
        if (strcmp(e->baseline, "data_megatron") == 0) {
            check_peak(g, &list[k]);
        }
        dtp_graph_destroy(g);
        dtp_arena_destroy(arena);
        small_pricer_free(&pricer);
    }
}

/* ---- communication ---- */

/* The seconds that a text begins with. */
static double seconds_of(const char *text)
{
    char unit[4];
    double value;
    assert_int_equal(sscanf(text, "%lf %3[a-z]", &value, unit), 2);
    return value * (unit[0] == 'm' ? 1e-3 : unit[0] == 'u' ? 1e-6 : unit[0] == 'n' ? 1e-9 : 1.0);
}

/* What the words say of a plan's communication: every kind that `some` names and none that `none`
 * names, with sums that are those of the prediction. Baselines of bf16, whose gradients are cast
 * behind their reductions. */
static void check_kinds(bool overlaps, const char *baseline, const char *some, const char *none)
{
    const tensor_case c = {.model = "gpt2_small.json",
                           .mesh = "x:4",
                           .dims = "batch=8 length=128 layers=2",
                           .machine = "h100_64.json",
                           .precision = "bf16",
                           .target = &dtp_target_cuda};
    tensor_fixture f;
    tensor_fixture_create(&c, &f);
    f.machine->overlap = overlaps;
    const dtp_baseline_options all = {.machine = f.redistributor,
                                      .generic = dtp_redistributor_generic()};
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_arena *arena = dtp_arena_create();
    dtp_candidate *list = NULL;
    dtp_program *p = NULL;
    dtp_prediction predicted;
    dtp_strbuf text = {0}, head = {0};
    char parts[256];
    double sent_s = 0.0, exposed_s = 0.0;
    int32_t n = 0, k = 0;
    assert_int_equal(dtp_baselines_create(f.graph, &f.pricer, &all, arena, &n, &list, NULL),
                     DTP_OK);
    while (k < n && strcmp(list[k].name, baseline) != 0) {
        k++;
    }
    assert_true(k < n && list[k].legal);
    options.target = c.target;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    assert_int_equal(
        dtp_sharding_program(f.graph, &f.pricer, &list[k].sharding, &options, &predicted, &p, NULL),
        DTP_OK);
    assert_int_equal(dtp_words_print(f.graph, &list[k].sharding, p, NULL, f.machine, &text, NULL),
                     DTP_OK);
    dtp_strbuf_addf(&head, "\ncommunication of %s, %.1f %% of it beside compute, %s exposed\n",
                    dtp_seconds(predicted.comm_s).text,
                    100.0 * (1.0 - predicted.exposed_comm_s / predicted.comm_s),
                    dtp_seconds(predicted.exposed_comm_s).text);
    char *kinds = strstr(text.text, dtp_strbuf_text(&head));
    assert_non_null(kinds);
    kinds += head.len;
    *strstr(kinds, "\n\n") = '\0';
    (void)snprintf(parts, sizeof parts, "%s", some);
    for (char *save, *part = strtok_r(parts, "|", &save); part != NULL;
         part = strtok_r(NULL, "|", &save)) {
        if (strstr(kinds, part) == NULL) {
            fail_msg("%s: '%s' lacks '%s'", baseline, kinds, part);
        }
    }
    if (strstr(kinds, none) != NULL) {
        fail_msg("%s: '%s' has '%s'", baseline, kinds, none);
    }
    assert_int_equal(overlaps, strstr(kinds, " exposed") != NULL);
    for (char *save, *line = strtok_r(kinds, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        sent_s += seconds_of(line);
        exposed_s += overlaps ? seconds_of(strrchr(line, ',') + 1) : seconds_of(line);
    }
    assert_true(fabs(sent_s - predicted.comm_s) <= 1e-3 * predicted.comm_s);
    assert_true(fabs(exposed_s - predicted.exposed_comm_s) <= 1e-3 * predicted.comm_s);
    dtp_strbuf_free(&text);
    dtp_strbuf_free(&head);
    dtp_program_destroy(p);
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
}

static void test_words__say_what_is_exposed_by_kind(void **state)
{
    (void)state;
    check_kinds(true, "zero3", "all_gather of parameters|reduce_scatter of gradients",
                "reduce_scatter of activations");
    check_kinds(true, "data_parallel", "all_reduce of gradients", "of parameters");
    check_kinds(true, "megatron", "all_reduce of activations", "of parameters");
    check_kinds(false, "zero3", "all_gather of parameters|reduce_scatter of gradients", "exposed");
}

/* ---- Ulysses ---- */

enum { PINS = 64, PIN_BYTES = 160 };

/* Pins: the sequence of what is looked up is split, and attention reads its operands split by heads
 * or by queries. The first operand has the batch, dims of heads, queries, features. */
static int32_t pin_attention(const dtp_graph *g, bool heads, char pins[PINS][PIN_BYTES])
{
    int32_t n = 0;
    for (dtp_node_id i = 0; i < g->n_nodes && n < PINS; i++) {
        const dtp_node *node = &g->nodes[i];
        const dtp_ttype *q = &g->tensors[node->in[0]].type;
        dtp_dim_id query = -1, feature = -1, head = -1;
        if (node->phase != DTP_FORWARD || (node->op->flags & DTP_OP_ATTENTION) == 0) {
            continue;
        }
        for (int32_t a = 0; a < node->n_attrs; a++) {
            query = strcmp(node->attrs[a].key, "query") == 0 ? (dtp_dim_id)node->attrs[a].i : query;
            feature =
                strcmp(node->attrs[a].key, "feature") == 0 ? (dtp_dim_id)node->attrs[a].i : feature;
        }
        for (int32_t d = 1; d < q->rank && head < 0; d++) {
            head = q->dims[d].id != query && q->dims[d].id != feature ? q->dims[d].id : -1;
        }
        for (int32_t k = 0; k < 3; k++) {
            (void)snprintf(pins[n++], PIN_BYTES, "%s at %s: %s@x", g->tensors[node->in[k]].name,
                           node->name, dtp_dims_name(&g->dims, heads ? head : query));
        }
        /* What its products read: the residual stream, split over the sequence. */
        if (n == 3) {
            (void)snprintf(pins[n++], PIN_BYTES, "embed: %s@x", dtp_dims_name(&g->dims, query));
        }
    }
    return n;
}

static void test_words__tell_attention_by_heads_from_attention_by_queries(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt_bytes", "llama3_8b"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        const bool heads = i % 2 == 0;
        dtp_graph *model = small_model_read(small_model_find(names[i / 2]), false), *g = NULL;
        char pins[PINS][PIN_BYTES];
        const char *texts[PINS];
        dtp_plan_options o = dtp_plan_options_init();
        dtp_plan_result r;
        dtp_words_dim dim;
        dtp_strbuf text = {0};
        dtp_mesh mesh;
        dtp_err err = {0};
        assert_int_equal(dtp_mesh_parse("x:2", &mesh, &err), DTP_OK);
        o.mode = DTP_PLAN_PINS;
        o.mesh = &mesh;
        o.objective = DTP_OBJECTIVE_MEMORY;
        o.n_pins = pin_attention(model, heads, pins);
        o.pins = texts;
        for (int32_t k = 0; k < o.n_pins; k++) {
            texts[k] = pins[k];
        }
        if (dtp_plan_make(model, NULL, &o, &r, &err) != DTP_OK) {
            fail_msg("%s: %s", names[i / 2], err.msg);
        }
        assert_int_equal(dtp_plan_graph(r.plan, model, &g, &err), DTP_OK);
        assert_int_equal(dtp_words_dim_of(g, &r.plan->sharding, 0, &dim, &err), DTP_OK);
        dtp_words_dim_print(g, &dim, &text);
        const char *by_heads = strstr(text.text, "Ulysses: attention by ");
        const char *by_queries = strstr(text.text, "context parallel: attention by length");
        if ((by_heads != NULL) != heads || (by_queries != NULL) == heads ||
            (heads && strstr(by_heads, "heads between splits of length") == NULL)) {
            fail_msg("%s by %s: '%s'", names[i / 2], heads ? "heads" : "queries", text.text);
        }
        dtp_strbuf_free(&text);
        dtp_graph_destroy(g);
        dtp_plan_result_free(&r);
        dtp_graph_destroy(model);
    }
}

/* ---- beside FSDP and tensor parallelism ---- */

static dtp_baseline rival(const char *name, double compute_s, double exposed_s, int64_t peak_bytes)
{
    return (dtp_baseline){.name = name,
                          .legal = true,
                          .why = "",
                          .predicted = {.step_time_s = compute_s + exposed_s,
                                        .compute_s = compute_s,
                                        .comm_s = exposed_s,
                                        .exposed_comm_s = exposed_s,
                                        .peak_bytes = peak_bytes}};
}

static void check_rivals(dtp_plan *plan, int32_t n, dtp_baseline *list, const char *expected)
{
    dtp_strbuf text = {0};
    plan->n_baselines = n;
    plan->baselines = list;
    dtp_words_rivals_print(plan, &text);
    assert_string_equal(dtp_strbuf_text(&text), expected);
    dtp_strbuf_free(&text);
}

#define BESIDE "\nbeside FSDP and tensor parallelism\n  "

/* The faster tensor parallelism that fits is the rival; what is a tenth of the difference and more
 * is named, with its sign. */
static void test_words__say_what_rivals_take_more_and_in_what(void **state)
{
    (void)state;
    dtp_plan *plan;
    assert_int_equal(dtp_plan_create(&plan, NULL), DTP_OK);
    plan->predicted = rival("", 0.9, 0.1, 1024).predicted;
    plan->memory_limit_bytes = 4096;
    dtp_baseline all[] = {rival("data_parallel", 0.1, 0.0, 8192), rival("zero3", 0.9, 0.35, 2048),
                          rival("megatron", 1.5, 1.5, 4096), rival("megatron_sp", 1.1, 0.9, 4096)};
    plan->machine = NULL;
    check_rivals(plan, 4, all, ""); /* no machine, no times */
    plan->machine = "h100";
    check_rivals(plan, 1, all, "");
    check_rivals(plan, 4, all,
                 BESIDE "FSDP (zero3) takes 1.250 s, +25.0 %: exposed communication +250.0 ms; "
                        "tensor parallelism (megatron_sp) takes 2.000 s, +100.0 %: exposed "
                        "communication +800.0 ms, compute +200.0 ms\n");
    all[3] = rival("megatron_sp", 0.1, 0.1, 4097);
    check_rivals(plan, 4, all,
                 BESIDE "FSDP (zero3) takes 1.250 s, +25.0 %: exposed communication +250.0 ms; "
                        "tensor parallelism (megatron) takes 3.000 s, +200.0 %: exposed "
                        "communication +1.400 s, compute +600.0 ms\n");
    all[1] = rival("zero3", 0.9001, 0.1, 2048);
    all[2].legal = false;
    check_rivals(plan, 4, all,
                 BESIDE "FSDP (zero3) takes as long, with a peak of 2.000 KiB; tensor parallelism "
                        "(megatron_sp) needs 4.001 KiB, more than the limit\n");
    plan->n_baselines = 0;
    plan->machine = NULL;
    dtp_plan_destroy(plan);
}

static void test_units__have_four_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *seconds, *bytes;
    } cases[] = {{0, "0 s", "0 B"},
                 {1, "1.000 s", "1 B"},
                 {0.00018249, "182.5 us", NULL},
                 {9.9996e-4, "1.000 ms", NULL},
                 {12.3456, "12.35 s", NULL},
                 {3.2e9, "3.2e+09 s", "2.980 GiB"},
                 {2e-13, "0.000 ns", NULL},
                 {-0.5, "-500.0 ms", NULL},
                 {1023, NULL, "1023 B"},
                 {1024, NULL, "1.000 KiB"},
                 {1048575, NULL, "1.000 MiB"},
                 {55842955328.0, NULL, "52.01 GiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].seconds != NULL) {
            assert_string_equal(dtp_seconds(cases[i].value).text, cases[i].seconds);
        }
        if (cases[i].bytes != NULL) {
            assert_string_equal(dtp_byte_count(cases[i].value).text, cases[i].bytes);
        }
    }
    assert_string_equal(dtp_amount(999999).text, "999999");
    assert_string_equal(dtp_amount(12.36e6).text, "12.4 million");
    assert_string_equal(dtp_amount(999.6e6).text, "1 billion");
    assert_string_equal(dtp_amount(8.03e9).text, "8.03 billion");
    assert_string_equal(dtp_seconds_more(0.25).text, "+250.0 ms");
    assert_string_equal(dtp_bytes_more(-2048).text, "-2.000 KiB");
}

/* Rows of images are no replicas. */
static void test_words__know_convolutions(void **state)
{
    static const char *const WORDS[] = {"split over h\n", "data parallel over batch\n"};
    const tensor_case c = {.model = "../tests/run/convs.json", .mesh = "x:2;y:2"};
    tensor_fixture f;
    dtp_layout_rules rules;
    dtp_sharding s;
    (void)state;
    tensor_fixture_create(&c, &f);
    dtp_arena *arena = dtp_arena_create();
    assert_int_equal(
        dtp_layout_rules_parse("h:x;batch:y", &f.pricer.mesh, &f.graph->dims, arena, &rules, NULL),
        DTP_OK);
    assert_int_equal(
        dtp_sharding_from_rules(f.graph, &f.pricer.mesh, &rules, false, arena, &s, NULL), DTP_OK);
    for (int32_t m = 0; m < 2; m++) {
        dtp_words_dim words;
        dtp_strbuf text = {0};
        assert_int_equal(dtp_words_dim_of(f.graph, &s, m, &words, NULL), DTP_OK);
        dtp_words_dim_print(f.graph, &words, &text);
        if (strstr(dtp_strbuf_text(&text), WORDS[m]) == NULL) {
            fail_msg("mesh dim %d: '%s'", m, dtp_strbuf_text(&text));
        }
        dtp_strbuf_free(&text);
    }
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
}

/* Four devices with one large image split it, without pins; its margins are sent. */
static void test_words__one_image_on_several_devices(void **state)
{
    const tensor_case c = {.model = "../tests/run/convs.json",
                           .mesh = "x:4",
                           .dims = "batch=1 h=2048 w=2048 c=64 d=64",
                           .machine = "h100_64.json",
                           .target = &dtp_target_cuda};
    tensor_fixture f;
    (void)state;
    tensor_fixture_create(&c, &f);
    const dtp_plan_request request = tensor_fixture_request(&f);
    dtp_plan_result r = tensor_fixture_plan(&f, &request);
    assert_non_null(r.plan);
    assert_true(r.plan->predicted.collectives[DTP_PERMUTE].count > 10);
    assert_true(r.plan->predicted.collectives[DTP_ALL_GATHER].count == 0);
    dtp_plan_result_free(&r);
    tensor_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units__have_four_digits),
        cmocka_unit_test(test_words__name_the_parallelism),
        cmocka_unit_test(test_words__say_what_is_exposed_by_kind),
        cmocka_unit_test(test_words__tell_attention_by_heads_from_attention_by_queries),
        cmocka_unit_test(test_words__know_convolutions),
        cmocka_unit_test(test_words__one_image_on_several_devices),
        cmocka_unit_test(test_words__say_what_rivals_take_more_and_in_what),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
