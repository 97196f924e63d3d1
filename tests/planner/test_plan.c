/* Plan files: written, read back, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "core/files/file_in.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"
#include "core/base/strbuf.h"

#include "tests/support/bad_files.h"
#include "tests/support/graph_check.h"
#include "core/graph/op_rules.h"

static dtp_graph *read_model(const char *name)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s", name);
    if (dtp_model_read(path, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static void fill_prediction(dtp_prediction *p, double scale)
{
    p->step_time_s = 0.125 * scale;
    p->compute_s = 0.1 * scale;
    p->comm_s = 1e-5 * scale;
    p->exposed_comm_s = 0.0;
    p->peak_bytes = 123456789012345;
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        p->collectives[i].count = i;
        p->collectives[i].bytes = 1000 * i;
    }
}

/* A plan of the graph under rules, with every field set. */
static dtp_plan *make_plan(const dtp_graph *g, const char *mesh, const char *rules, bool rules_mode)
{
    static const char *pins[] = {"rules batch:x", "memory 1000000000"};
    static const char *const styles[] = {"**: data(x)", "**: zero3(x)"};
    static dtp_baseline baselines[3];
    dtp_plan *plan = NULL;
    dtp_err err = {0};
    assert_int_equal(dtp_plan_create(&plan, NULL), DTP_OK);
    plan->model = g->name;
    plan->machine = "test";
    plan->rules_mode = rules_mode;
    plan->objective = DTP_OBJECTIVE_MEMORY;
    plan->memory_limit_bytes = 1000000000;
    assert_int_equal(dtp_mesh_parse(mesh, &plan->mesh, NULL), DTP_OK);
    assert_int_equal(
        dtp_layout_rules_parse(rules, &plan->mesh, &g->dims, plan->arena, &plan->rules, NULL),
        DTP_OK);
    if (dtp_sharding_from_rules(g, &plan->mesh, &plan->rules, false, plan->arena, &plan->sharding,
                                &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    fill_prediction(&plan->predicted, 1.0);
    plan->fastest =
        (dtp_plan_fastest){.slack = 0.005, .step_time_s = 0.1245, .peak_bytes = 130000000000000};
    static dtp_shadow_price prices[] = {{"memory 1000000000", 1 << 30, 17, true},
                                        {"pin h: batch@x", 0, 5, false}};
    plan->certificate = (dtp_certificate){.status = DTP_CERT_OPTIMAL,
                                          .cost = 126,
                                          .bound = 125,
                                          .gap = 1.0 / 126,
                                          .least_cost = 126,
                                          .solver = "glpk",
                                          .nodes = 7,
                                          .solve_s = 0.5,
                                          .has_prices = true,
                                          .n_prices = 2,
                                          .prices = prices};
    plan->n_pins = 2;
    plan->pins = pins;
    baselines[0] = (dtp_baseline){.name = "replicated", .rules = "", .legal = true};
    fill_prediction(&baselines[0].predicted, 3.0);
    baselines[1] = (dtp_baseline){.name = "odd", .rules = "d:x", .why = "3 does not divide 4"};
    baselines[2] = (dtp_baseline){.name = "zero3", .n_styles = 2, .styles = styles, .legal = true};
    fill_prediction(&baselines[2].predicted, 2.0);
    plan->n_baselines = 3;
    plan->baselines = baselines;
    plan->model_hash = dtp_graph_hash(g);
    plan->machine_hash = UINT64_C(0x0123456789abcdef);
    return plan;
}

static char *write_ok(const dtp_plan *plan, const dtp_graph *g)
{
    char *text = NULL;
    assert_int_equal(dtp_plan_write(plan, g, true, &text, NULL), DTP_OK);
    return text;
}

static dtp_plan *read_ok(const char *text, const dtp_graph *g)
{
    dtp_plan *plan = NULL;
    dtp_err err = {0};
    if (dtp_plan_read("p.json", text, strlen(text), g, &plan, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return plan;
}

static void assert_same_decision(const dtp_plan *a, const dtp_plan *b)
{
    const dtp_sharding *x = &a->sharding, *y = &b->sharding;
    assert_int_equal(x->n_tensors, y->n_tensors);
    assert_int_equal(x->n_nodes, y->n_nodes);
    for (int32_t t = 0; t < x->n_tensors; t++) {
        assert_true(dtp_layout_equal(&x->layouts[t], &y->layouts[t]));
    }
    assert_int_equal(dtp_sharding_has_replicas(x), dtp_sharding_has_replicas(y));
    for (int phase = 0; phase < 3 && dtp_sharding_has_replicas(x); phase++) {
        for (int32_t t = 0; t < x->n_tensors; t++) {
            assert_true(dtp_layout_equal(&x->replicas[phase][t], &y->replicas[phase][t]));
        }
    }
    for (int32_t n = 0; n < x->n_nodes; n++) {
        assert_memory_equal(&x->strategies[n], &y->strategies[n], sizeof x->strategies[n]);
    }
}

static void test_plan__round_trips_in_both_modes(void **state)
{
    (void)state;
    static const struct {
        const char *model, *mesh, *rules;
    } cases[] = {{"mlp_digits.json", "x:2;y:2", "batch:x;hidden:y"},
                 {"mlp_digits.json", "x:2;y:2", "batch:y;batch:x"},
                 {"mlp_digits.json", "", ""},
                 {"gpt_bytes.json", "x:2;y:3", "batch:x;heads:y;d_ff:y"},
                 {"gpt_bytes.json", "m:4", "d_model:m"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int mode = 0; mode < 2; mode++) {
            dtp_graph *g = read_model(cases[i].model);
            dtp_plan *plan = make_plan(g, cases[i].mesh, cases[i].rules, mode == 0);
            char *text = write_ok(plan, g);
            dtp_plan *again = read_ok(text, g);
            char *second = write_ok(again, g);
            assert_string_equal(text, second);
            assert_same_decision(plan, again);
            assert_true(again->model_hash == dtp_graph_hash(g));
            free(text);
            free(second);
            dtp_plan_destroy(plan);
            dtp_plan_destroy(again);
            dtp_graph_destroy(g);
        }
    }
}

/* Views that differ from the tensors in some phases, and replicas that do not. */
static void test_plan__views_round_trip(void **state)
{
    (void)state;
    for (int changed = 0; changed < 2; changed++) {
        dtp_graph *g = read_model("mlp_digits.json");
        dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x;hidden:y", false);
        dtp_sharding *s = &plan->sharding;
        assert_int_equal(dtp_sharding_add_replicas(s, plan->arena, NULL), DTP_OK);
        for (int32_t t = 0; t < g->n_tensors && changed == 1; t++) {
            s->replicas[t % 3][t] =
                dtp_layout_replicated(g->tensors[t].type.rank, plan->mesh.n_dims);
        }
        char *text = write_ok(plan, g);
        dtp_plan *again = read_ok(text, g);
        assert_same_decision(plan, again);
        assert_true(dtp_sharding_has_replicas(&again->sharding));
        free(text);
        dtp_plan_destroy(plan);
        dtp_plan_destroy(again);
        dtp_graph_destroy(g);
    }
}

/* Every row of every op has a name of its own, so that tensor mode can state any strategy. */
static void test_plan__every_strategy_round_trips(void **state)
{
    (void)state;
    dtp_graph *g = read_model("gpt_bytes.json");
    dtp_plan *plan = make_plan(g, "x:2;y:2", "", false);
    int32_t longest = 0;
    for (int32_t r = 0; r == 0 || r < longest; r++) {
        for (int32_t n = 0; n < g->n_nodes; n++) {
            dtp_call_types types;
            dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
            dtp_sharding_rules set;
            dtp_sharding_rules_of(&call, true, &set);
            longest = set.n > longest ? set.n : longest;
            plan->sharding.strategies[n].row[0] = (int16_t)(r < set.n ? r : 0);
            plan->sharding.strategies[n].row[1] = (int16_t)(set.n - 1);
        }
        char *text = write_ok(plan, g);
        dtp_plan *again = read_ok(text, g);
        assert_same_decision(plan, again);
        dtp_plan_destroy(again);
        free(text);
    }
    assert_true(longest > 4);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

/* Without the key a plan is for `cpu`; one that names no target of ours is not lowered. */
static void test_plan__records_its_target(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "cpu_packed", "gpu"};
    dtp_graph *g = read_model("mlp_digits.json");
    for (int32_t k = 0; k < 3; k++) {
        dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x hidden:y", true);
        dtp_plan_lowering lowering;
        dtp_err err = {0};
        plan->target = names[k];
        char *text = write_ok(plan, g);
        assert_int_equal(strstr(text, "\"target\"") != NULL, k > 0);
        dtp_plan *again = read_ok(text, g);
        assert_string_equal(again->target, names[k]);
        const dtp_status s = dtp_plan_lowering_init(&lowering, again, &err);
        assert_int_equal(s, k < 2 ? DTP_OK : DTP_INVALID);
        assert_true(k == 2 || strcmp(lowering.options.target->name, names[k]) == 0);
        assert_true(k < 2 ||
                    strcmp(err.msg, "the plan's target: there is no target 'gpu'; targets "
                                    "are cpu, cpu_packed, ref, cuda, torch, "
                                    "torch_compile, megatron, megatron_overlap, nanotron") == 0);
        free(text);
        dtp_plan_destroy(again);
        dtp_plan_destroy(plan);
    }
    dtp_graph_destroy(g);
}

/* A plan says with which parameters frozen its model is to be read, and takes no other. */
static void test_plan__freezes_what_its_model_does(void **state)
{
    (void)state;
    static const char *const globs[] = {"w1", "b?"};
    dtp_model_options options = dtp_model_options_init(), said;
    dtp_graph *g = NULL, *whole = read_model("mlp_digits.json");
    dtp_arena *arena = dtp_arena_create();
    dtp_err err = {0};
    options.n_freeze = 2;
    options.freeze = globs;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", &options, &g, &err),
                     DTP_OK);
    for (int tensor_mode = 0; tensor_mode < 2; tensor_mode++) {
        dtp_plan *plan = make_plan(g, "x:2", "batch:x", tensor_mode == 0), *no_plan = NULL;
        assert_int_equal(dtp_plan_set_model(plan, g, &err), DTP_OK);
        char *text = write_ok(plan, g);
        dtp_plan *again = read_ok(text, g);
        assert_int_equal(again->n_freeze, 2);
        assert_string_equal(again->freeze[1], "b?");
        assert_int_equal(dtp_plan_read_model("p.json", text, strlen(text), arena, &said, &err),
                         DTP_OK);
        assert_int_equal(said.n_freeze, 2);
        assert_string_equal(said.freeze[0], "w1");
        assert_int_equal(dtp_plan_read("p.json", text, strlen(text), whole, &no_plan, &err),
                         DTP_INVALID);
        assert_non_null(strstr(err.msg, "freeze: the plan freezes 'w1', 'b?', and the model was "
                                        "read with no parameters frozen"));
        free(text);
        dtp_plan_destroy(again);
        dtp_plan_destroy(plan);
    }
    dtp_plan *plan = make_plan(whole, "x:2", "batch:x", true), *no_plan = NULL;
    char *text = write_ok(plan, whole);
    assert_int_equal(dtp_plan_read("p.json", text, strlen(text), g, &no_plan, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the plan freezes no parameters, and the model was read with "
                                    "'w1', 'b?' frozen"));
    free(text);
    dtp_plan_destroy(plan);
    dtp_arena_destroy(arena);
    dtp_graph_destroy(g);
    dtp_graph_destroy(whole);
}

static void test_plan__timings_are_optional(void **state)
{
    (void)state;
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2", "batch:x", true);
    char *with = write_ok(plan, g), *without = NULL;
    assert_int_equal(dtp_plan_write(plan, g, false, &without, NULL), DTP_OK);
    assert_non_null(strstr(with, "\"solve_s\": 0.5"));
    assert_null(strstr(without, "solve_s"));
    dtp_plan_destroy(read_ok(without, g));
    free(with);
    free(without);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

/* A plan that nobody could read is not written. */
static void test_plan__save_checks_what_it_writes(void **state)
{
    (void)state;
    static const char path[] = "test_plan_saved.json";
    dtp_err err = {0};
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2", "batch:x", true), *again = NULL;
    const int64_t bound = plan->certificate.bound;
    (void)remove(path);
    plan->certificate.bound = plan->certificate.cost + 1;
    assert_int_equal(dtp_plan_save(plan, g, path, &err), DTP_INTERNAL);
    assert_non_null(strstr(err.msg, "certificate.bound: "));
    assert_int_equal(dtp_plan_load(path, g, &again, &err), DTP_IO);
    plan->certificate.bound = bound;
    assert_int_equal(dtp_plan_save(plan, g, path, &err), DTP_OK);
    assert_int_equal(dtp_plan_load(path, g, &again, &err), DTP_OK);
    (void)remove(path);
    dtp_plan_destroy(again);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

/* ---- edits of a plan's text ---- */

typedef struct edit {
    const char *old, *fresh, *message;
} edit;

static void check_edit(const dtp_graph *g, const char *text, const edit *e)
{
    dtp_strbuf b = {0};
    dtp_plan *plan = NULL;
    dtp_err err = {0};
    const char *at = strstr(text, e->old);
    if (at == NULL) {
        fail_msg("the plan has no '%s'", e->old);
        return;
    }
    dtp_strbuf_addf(&b, "%.*s%s%s", (int)(at - text), text, e->fresh, at + strlen(e->old));
    dtp_status s = dtp_plan_read("p.json", dtp_strbuf_text(&b), b.len, g, &plan, &err);
    if (!dtp_status_is_input(s) || strncmp(err.msg, "p.json:", 7) != 0 ||
        strstr(err.msg, e->message) == NULL) {
        fail_msg("'%s' to '%s': status %d, '%s', expected '%s'", e->old, e->fresh, (int)s, err.msg,
                 e->message);
    }
    dtp_strbuf_free(&b);
}

/* ---- implementations ---- */

/* The first node of an op from `from` on. */
static dtp_node_id find_op(const dtp_graph *g, const char *op, dtp_node_id from)
{
    while (from < g->n_nodes && strcmp(g->nodes[from].op->name, op) != 0) {
        from++;
    }
    assert_true(from < g->n_nodes);
    return from;
}

static int64_t context_of(const dtp_graph *g, dtp_node_id n)
{
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(g, &g->nodes[n], &types);
    return dtp_call_int(&call, "context");
}

/* A plan keeps its implementations, a graph with them differs in these attributes alone. */
static void test_plan__settings_are_kept(void **state)
{
    (void)state;
    dtp_graph *g = read_model("gpt_bytes.json"), *set = NULL;
    dtp_plan *plan = make_plan(g, "x:2", "batch:x", false);
    const dtp_node_id a = find_op(g, "attention", 0), b = find_op(g, "attention", a + 1);
    dtp_implementation implementations[] = {{a, "context", 1}, {b, "context", 0}};
    plan->n_implementations = 2;
    plan->implementations = implementations;
    plan->redistribution = DTP_REDISTRIBUTION_TORCH;
    char *text = write_ok(plan, g);
    dtp_plan *again = read_ok(text, g);
    assert_int_equal(again->redistribution, DTP_REDISTRIBUTION_TORCH);
    assert_int_equal(again->n_implementations, 2);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(again->implementations[i].node, implementations[i].node);
        assert_string_equal(again->implementations[i].key, implementations[i].key);
        assert_int_equal(again->implementations[i].value, implementations[i].value);
    }
    assert_int_equal(dtp_graph_with_implementations(g, 2, again->implementations, &set, NULL),
                     DTP_OK);
    assert_int_equal(graph_check(set, NULL), DTP_OK);
    assert_int_equal(context_of(set, a), 1);
    assert_int_equal(context_of(set, b), 0);
    assert_int_equal(context_of(g, a), 0);
    assert_true(dtp_graph_hash(set) != dtp_graph_hash(g));
    dtp_graph_destroy(set);
    const edit bad = {"\"context\": \"ring\"", "\"context\": \"star\"",
                      "context: 'star' is none of: gather ring"};
    check_edit(g, text, &bad);
    free(text);
    dtp_plan_destroy(again);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

static void test_graph_with_settings__refuses_what_is_no_setting(void **state)
{
    (void)state;
    dtp_graph *g = read_model("gpt_bytes.json"), *set = NULL;
    const dtp_node_id a = find_op(g, "attention", 0);
    const dtp_implementation bad[] = {{a, "context", 2},  {a, "context", -1},
                                      {a, "causal", 0},   {0, "context", 1},
                                      {-1, "context", 1}, {g->n_nodes, "context", 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dtp_graph_with_implementations(g, 1, &bad[i], &set, NULL), DTP_INVALID);
    }
    dtp_graph_destroy(g);
}

/* ---- bad plans ---- */

static void test_plan__bad_rules_plans_are_refused(void **state)
{
    (void)state;
    static const edit edits[] = {
        {"dtp.plan/1", "dtp.plan/2", "format: expected 'dtp.plan/1'"},
        {"\"machine\": \"test\"", "\"machin\": \"test\"", "unknown key 'machin'"},
        {"[\"x\", 2]", "[\"x\", 0]", "mesh[0][1]: 0 is not in 1.."},
        {"[\"x\", 2]", "[\"y\", 2]", "mesh: mesh: dim 'y' occurs twice"},
        {"[\"x\", 2]", "[\"x:3\", 2]", "mesh[0]: 'x:3' is not a name"},
        {"[\"x\", 2]", "[\"x\", 2, 3]", "mesh[0]: expected [name, size]"},
        {"[\"x\", 2]", "[\"x\", 5]", "rules: tensor "},
        {"\"mode\": \"rules\"", "\"mode\": \"rule\"", "mode: 'rule' is none of: rules tensor"},
        {"\"mode\": \"rules\"", "\"mode\": \"tensor\"", "a plan in tensor mode has no rules"},
        {"\"objective\": \"memory\"", "\"objective\": \"speed\"",
         "'speed' is none of: time memory"},
        {"\"memory_limit_bytes\": 1000000000", "\"memory_limit_bytes\": 0", "0 is not in 1.."},
        {"\"batch\": [\"x\"]", "\"bach\": [\"x\"]",
         "rules.bach: the model 'mlp_digits' has no dim"},
        {"\"batch\": [\"x\"]", "\"batch\": [\"z\"]", "rules.batch[0]: the mesh has no dim 'z'"},
        {"\"batch\": [\"x\"]", "\"batch\": [\"x\", \"x\"]", "mesh dim 'x' occurs twice"},
        {"\"batch\": [\"x\"]", "\"batch\": [\"y\"]", "both are split over mesh dim 'y'"},
        {"\"batch\": [\"x\"]", "\"batch\": \"x\"", "rules.batch: expected a list"},
        {"\"batch\": [\"x\"]", "\"classes\": [\"x\"]", "tensors.images: layout 'batch@x'"},
        {"\"images\": \"batch@x\"", "\"images\": \"batch@z\"", "mesh dim 'z' is not in the mesh"},
        {"\"images\": \"batch@x\"", "\"images\": \"pixels@x\"",
         "tensors.images: layout 'pixels@x', but the rules give 'batch@x'"},
        {"\"images\": \"batch@x\"", "\"pictures\": \"batch@x\"", "has no such tensor"},
        {"\"images\": \"batch@x\"", "\"images\": 3", "tensors.images: expected a string"},
        {"\"step_time_s\": 0.125", "\"step_time_s\": -1", "predicted.step_time_s: -1 is negative"},
        {"\"step_time_s\": 0.125", "\"step_time_s\": null", "expected a number, found null"},
        {"\"step_time_s\": 0.1245", "\"step_time_s\": 0.5",
         "fastest.step_time_s: 0.5 is not below the plan's own step, 0.125"},
        {"\"step_time_s\": 0.1245", "\"step_time_s\": 0", "0 is not below"},
        {"\"slack\": 0.005", "\"slack\": -1", "fastest.slack: -1 is negative"},
        {"\"peak_bytes\": 123456789012345", "\"peak_bytes\": 1.5", "expected an integer"},
        {"\"status\": \"optimal\"", "\"status\": \"best\"",
         "certificate.status: 'best' is none of"},
        {"\"all_gather\"", "\"allgather\"", "unknown key 'allgather'"},
        {"\"rules batch:x\"", "7", "pins[0]: expected a string"},
        {"\"legal\": true", "\"legal\": 1", "baselines.replicated.legal: expected true or false"},
        {"\"why\"", "\"cost_s\"", "baselines.odd.cost_s: unknown key"},
        {"\"styles\": [", "\"rules\": \"\", \"styles\": [", "rules or styles, not both"},
        {"**: data(x)\",", "**: data(x)\", 1,", "baselines.zero3.styles[1]: expected a string"},
        {"0123456789abcdef", "0123456789ABCDEF", "is not 16 hexadecimal digits"},
        {"0123456789abcdef", "123456789abcdef", "is not 16 hexadecimal digits"},
        {"\"tensors\"", "\"strategies\": {}, \"tensors\"",
         "a plan in rules mode has no strategies"},
        {"\"tensors\"", "\"uneven\": 1, \"tensors\"", "uneven: expected true or false"},
        {"\"tensors\"", "\"redistribution\": \"torch\", \"tensors\"",
         "redistribution: a plan in rules mode redistributes in our own way"},
        {"\"tensors\"", "\"settings\": {}, \"tensors\"", "a plan in rules mode has no settings"},
    };
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x;hidden:y", true);
    char *text = write_ok(plan, g);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        check_edit(g, text, &edits[i]);
    }
    free(text);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

static void test_plan__bad_tensor_plans_are_refused(void **state)
{
    (void)state;
    static const edit edits[] = {
        {"\"images\": \"batch@x\",", "", "tensors: tensor 'images' has no layout"},
        {"\"images\": \"batch@x\"", "\"images\": \"batch@x+x\"", "mesh dim 'x' is used twice"},
        {"\"images\": \"batch@x\"", "\"images\": \"hidden@x\"", "with a dim of the tensor"},
        {"\"b2\": \"replicated\"", "\"b2\": \"classes@x+y\"", "does not divide"},
        {"\"h.mm\": {", "\"h.nn\": {", "has no such node"},
        {"\"h.mm\": {\n      \"x\": \"batch\"", "\"h.mm\": {\n      \"x\": \"classes\"",
         "strategies[\"h.mm\"].x: op 'einsum' has no strategy 'classes' here"},
        {"\"h.mm\": {\n      \"x\": \"batch\"", "\"h.mm\": {\n      \"z\": \"batch\"",
         "the mesh has no dim 'z'"},
        {"\"strategies\"", "\"strategy\"", "unknown key 'strategy'"},
        {"\"strategies\"", "\"redistribution\": \"jax\", \"strategies\"",
         "redistribution: 'jax' is none of: torch"},
        {"\"strategies\"", "\"settings\": {\"h.nn\": {}}, \"strategies\"", "has no such node"},
        {"\"strategies\"", "\"settings\": {\"h.mm\": 1}, \"strategies\"", "expected an object"},
        {"\"strategies\"", "\"settings\": {\"h.mm\": {\"context\": \"ring\"}}, \"strategies\"",
         "op 'einsum' has no attribute that a plan may set so"},
    };
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x;hidden:y", false);
    char *text = write_ok(plan, g);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        check_edit(g, text, &edits[i]);
    }
    free(text);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

static void test_plan__least_cost(void **state)
{
    (void)state;
    static const edit edits[] = {
        {"\"least_cost\": 125", "\"least_cost\": 127",
         "certificate.least_cost: 127 is above the cost, 126"},
        {"\"least_cost\": 125", "\"least_cost\": 124",
         "certificate.least_cost: 124 is below the bound, 125"},
        {"\"least_cost\": 125", "\"least_cost\": null", "expected an integer"},
    };
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x;hidden:y", false);
    char *text = write_ok(plan, g);
    assert_null(strstr(text, "least_cost"));
    free(text);
    plan->certificate.least_cost = 125;
    text = write_ok(plan, g);
    dtp_plan *again = read_ok(text, g);
    assert_int_equal(again->certificate.least_cost, 125);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        check_edit(g, text, &edits[i]);
    }
    free(text);
    dtp_plan_destroy(again);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

static void test_plan__bound_without_folding(void **state)
{
    (void)state;
    static const edit edits[] = {
        {"\"untied_bound\": 119", "\"untied_bound\": 126",
         "certificate.untied_bound: 126 is above the bound, 125"},
        {"\"untied_bound\": 119", "\"untied_bound\": 118",
         "certificate.untied_gap: 0.0555556, but cost and bound give 0.0634921"},
        {"\"untied_bound\": 119,", "", "the key 'untied_bound' is missing"},
        {"\"untied_bound\": 119", "\"untied_bound\": 119.5", "expected an integer"},
        {"\"untied_gap\"", "\"untied_gab\"", "unknown key 'untied_gab'"},
        {"\"objective\": \"time\"", "\"objective\": \"memory\"",
         "only plans in tensor mode with objective time have this"},
        {"\"bound\": 125", "\"bound\": 127", "certificate.bound: 127 is above the cost, 126"},
        {"\"cost\": 126", "\"cost\": 124", "certificate.bound: 125 is above the cost, 124"},
    };
    dtp_graph *g = read_model("mlp_digits.json");
    dtp_plan *plan = make_plan(g, "x:2;y:2", "batch:x;hidden:y", false);
    plan->objective = DTP_OBJECTIVE_TIME;
    plan->certificate.has_untied = true;
    plan->certificate.untied_bound = 119;
    plan->certificate.untied_gap = 7.0 / 126;
    char *text = write_ok(plan, g);
    dtp_plan *again = read_ok(text, g);
    assert_true(again->certificate.has_untied);
    assert_int_equal(again->certificate.untied_bound, 119);
    assert_true(again->certificate.untied_gap >= 7.0 / 126 &&
                again->certificate.untied_gap <= 7.0 / 126);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        check_edit(g, text, &edits[i]);
    }
    free(text);
    dtp_plan_destroy(again);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(g);
}

static dtp_status read_plan_file(const char *path, const void *user, dtp_err *err)
{
    char *text = NULL;
    size_t len;
    dtp_plan *plan = NULL;
    DTP_TRY(dtp_file_read(path, 1 << 20, &text, &len, err));
    dtp_status s = dtp_plan_read(path, text, len, user, &plan, err);
    free(text);
    dtp_plan_destroy(plan);
    return s;
}

static void test_plan__bad_files_are_refused_with_their_place(void **state)
{
    (void)state;
    dtp_graph *g = read_model("mlp_digits.json");
    assert_true(check_bad_files("plans", read_plan_file, g) >= 36);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__round_trips_in_both_modes),
        cmocka_unit_test(test_plan__views_round_trip),
        cmocka_unit_test(test_plan__every_strategy_round_trips),
        cmocka_unit_test(test_plan__records_its_target),
        cmocka_unit_test(test_plan__freezes_what_its_model_does),
        cmocka_unit_test(test_plan__timings_are_optional),
        cmocka_unit_test(test_plan__settings_are_kept),
        cmocka_unit_test(test_graph_with_settings__refuses_what_is_no_setting),
        cmocka_unit_test(test_plan__bad_rules_plans_are_refused),
        cmocka_unit_test(test_plan__bad_tensor_plans_are_refused),
        cmocka_unit_test(test_plan__save_checks_what_it_writes),
        cmocka_unit_test(test_plan__least_cost),
        cmocka_unit_test(test_plan__bound_without_folding),
        cmocka_unit_test(test_plan__bad_files_are_refused_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
