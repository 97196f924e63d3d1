/* The problem of tensor mode against what it stands for: the price of every selection is that of
 * the plainly lowered program, no program needs less memory than the problem says, and tied
 * decisions cost what they cost untied. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/predict.h"
#include "planner/solver/solve.h"
#include "planner/tensors/memory_corrections.h"
#include "spmd/program/peak.h"
#include "spmd/program/program_check.h"
#include "tests/support/random_graphs.h"
#include "tests/support/tensor_cases.h"
#include "tests/support/quarter.h"

/* Two renames that split and merge dims around a contraction. */
static const char RELABEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"relabel\","
    " \"dims\": {\"batch\": 8, \"a\": 8, \"b\": 8, \"c\": 4},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"a\"], \"dtype\": \"f32\"},"
    "  \"dy\": {\"dims\": [\"batch\", \"c\"], \"dtype\": \"f32\"}},"
    " \"params\": {\"w\": {\"dims\": [\"b\", \"c\"], \"init\": \"ones\"}},"
    " \"nodes\": ["
    "  {\"id\": \"r\", \"op\": \"relabel\", \"in\": [\"x\"], \"out\": [\"batch\", \"b\"]},"
    "  {\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"r\", \"w\"], \"out\": [\"batch\", \"c\"]},"
    "  {\"id\": \"z\", \"op\": \"relu\", \"in\": [\"y\"]},"
    "  {\"id\": \"loss\", \"op\": \"einsum\", \"in\": [\"z\", \"dy\"], \"out\": []}],"
    " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"momentum\": {\"lr\": 0.25}}}}";

/* What costs something by itself: a roll by nothing, views of a parameter that survive the step,
 * one of them of another, and the norm of the gradients, which clipping reports. */
static const char KEPT[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"kept\","
    " \"dims\": {\"batch\": 8, \"a\": 8, \"b\": 8, \"c\": 8},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"a\"], \"dtype\": \"f32\"}},"
    " \"params\": {\"w\": {\"dims\": [\"a\"], \"init\": \"ones\"}},"
    " \"nodes\": ["
    "  {\"id\": \"v\", \"op\": \"relabel\", \"in\": [\"w\"], \"out\": [\"b\"]},"
    "  {\"id\": \"u\", \"op\": \"relabel\", \"in\": [\"v\"], \"out\": [\"c\"]},"
    "  {\"id\": \"r\", \"op\": \"roll\", \"in\": [\"w\"], \"dim\": \"a\", \"shift\": 0},"
    "  {\"id\": \"y\", \"op\": \"mul\", \"in\": [\"x\", \"r\"]},"
    "  {\"id\": \"loss\", \"op\": \"einsum\", \"in\": [\"y\", \"x\"], \"out\": []}],"
    " \"outputs\": [\"v\", \"u\"],"
    " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.25}}, \"clip_norm\": "
    "1.0}}";

static const tensor_case CASES[] = {
    {.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:2;y:1;z:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:3", .dims = "batch=9 pixels=12 hidden=6 classes=4"},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:2;y:4", .dims = TENSOR_GPT_DIMS},
    {.model = "gpt_bytes_dropout.json", .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS},
    {.model = "mtf_lm.json", .mesh = "x:2;y:2", .dims = NULL},
    {.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS, .microbatches = 4},
    {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS, .microbatches = 2},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .remat = true},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .microbatches = 4},
    {.model = TENSOR_GPT,
     .mesh = "x:2;y:2",
     .dims = TENSOR_GPT_DIMS,
     .remat = true,
     .microbatches = 2},
    {.model = "gpt_bytes_dropout.json",
     .mesh = "x:2",
     .dims = TENSOR_GPT_DIMS,
     .remat = true,
     .microbatches = 2},
};

/* Operands are read by windows: of convolutions and pools, with larger kernels by gathers, and of
 * ops that move elements. */
#define TENSOR_CONVS "../tests/run/convs.json"
#define TENSOR_MOVES "../tests/run/moves.json"
static const tensor_case CONVS[] = {
    {.model = TENSOR_CONVS, .mesh = "x:2;y:2"},
    {.model = TENSOR_CONVS, .mesh = "x:4", .microbatches = 2},
    {.model = TENSOR_CONVS, .mesh = "x:4", .dims = "kh=7 kw=5"},
    {.model = TENSOR_MOVES, .mesh = "x:2;y:2"},
    {.model = TENSOR_MOVES, .mesh = "x:4", .microbatches = 2},
};

enum { N_CASES = sizeof CASES / sizeof CASES[0], PER_CASE = 30 };

typedef struct tally {
    int32_t tried, unrepaired;
    double memory; /* sum of problem's peak / program's peak */
} tally;

/* With corrections the overlay says of a selection at least what its program needs; the problem
 * below says what it said before. */
static void check_corrections(const dtp_tensor_problem *p, const int32_t *selection,
                              const dtp_program *program)
{
    dtp_overlay overlay;
    const size_t n_nodes = (size_t)p->graph->n_nodes;
    dtp_problem_value before, with, after;
    int32_t n;
    int64_t most = 0;
    int64_t *need = calloc(n_nodes + 1, sizeof *need);
    assert_non_null(need);
    assert_int_equal(dtp_peak_by_node(program, need, NULL), DTP_OK);
    for (size_t i = 0; i < n_nodes; i++) {
        most = need[i] > most ? need[i] : most;
    }
    assert_true(most > 0 && most <= program->peak_bytes);
    assert_int_equal(dtp_problem_evaluate(p->select, selection, &before, NULL), DTP_OK);
    dtp_overlay_init(p->select, &overlay);
    assert_int_equal(dtp_memory_correction_add(p, selection, program, most, &overlay, &n, NULL),
                     DTP_OK);
    assert_int_equal(n, 0);
    assert_int_equal(dtp_memory_correction_add(p, selection, program, most - 1, &overlay, &n, NULL),
                     DTP_OK);
    assert_true(n > 0 || before.peak >= most);
    assert_int_equal(dtp_problem_evaluate(&overlay.problem, selection, &with, NULL), DTP_OK);
    assert_true(with.peak >= most && with.peak >= before.peak);
    assert_int_equal(with.cost, before.cost);
    dtp_overlay_free(&overlay);
    assert_int_equal(dtp_problem_evaluate(p->select, selection, &after, NULL), DTP_OK);
    assert_int_equal(after.peak, before.peak);
    free(need);
}

static void check_selection(const tensor_fixture *f, dtp_tensor_problem *p,
                            const int32_t *selection, tally *t)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_sharding s;
    dtp_problem_value value;
    dtp_program *program = NULL;
    dtp_lower_options options = dtp_lower_options_init(f->redistributor);
    dtp_err err = {0};
    int64_t cost = 0;
    options.target = f->pricer.target;
    assert_int_equal(dtp_problem_evaluate(p->select, selection, &value, NULL), DTP_OK);
    dtp_status st = dtp_tensor_sharding(p, selection, arena, &s, &err);
    st = st == DTP_OK ? dtp_additive_cost(f->graph, &f->pricer, &s, f->redistributor, &cost, &err)
                      : st;
    st = st == DTP_OK ? dtp_lower(f->graph, &s, &options, &program, &err) : st;
    st = st == DTP_OK ? dtp_program_check(program, &err) : st;
    if (st != DTP_OK || program == NULL) {
        fail_msg("%s", err.msg);
        return;
    }
    assert_int_equal(value.cost, cost);
    if (value.peak > program->peak_bytes) {
        fail_msg("the program needs %" PRId64 " bytes, the problem says %" PRId64,
                 program->peak_bytes, value.peak);
    }
    check_corrections(p, selection, program);
    t->tried++;
    t->memory += (double)value.peak / (double)program->peak_bytes;
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
}

static void check_case(const tensor_case *c, bool tie)
{
    tensor_fixture f;
    dtp_tensor_options options = dtp_tensor_options_init();
    tally t = {0};
    uint64_t seed = 7;
    options.runs = tie ? 1 : 0;
    options.uneven = c->uneven;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
    assert_non_null(selection);
    for (int32_t k = 0; k < PER_CASE; k++) {
        if (!tensor_random_selection(p, &seed, selection)) {
            t.unrepaired++;
        } else if (quarter_has(k, PER_CASE)) {
            check_selection(&f, p, selection, &t);
        }
    }
    print_message("%.20s on %s%s%s, %d microbatches: %d selections, peak %.3f of the program's\n",
                  c->model, c->mesh, tie ? ", folded" : "", c->remat ? ", recomputed" : "",
                  c->microbatches, t.tried, t.memory / t.tried);
    assert_true(t.tried > quarter_of(PER_CASE / 2));
    free(selection);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_problem__selections_cost_what_their_programs_cost(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        static const char *const precisions[] = {"f32", "bf16", "f16", "bf16,gradients=f32"};
        tensor_case packed = CASES[i], fused = CASES[i];
        packed.target = &dtp_target_cpu_packed;
        fused.target = &dtp_target_cuda;
        fused.precision = precisions[i % 4];
        check_case(&CASES[i], false);
        check_case(&CASES[i], true);
        check_case(&packed, false);
        check_case(&fused, true);
    }
    for (size_t i = 0; i < sizeof CONVS / sizeof CONVS[0]; i++) {
        tensor_case other = CONVS[i];
        other.target = i % 2 == 0 ? &dtp_target_cuda : &dtp_target_torch;
        check_case(&CONVS[i], i > 0);
        check_case(&other, i == 0);
    }
    check_case(&(tensor_case){.model = RELABEL, .mesh = "x:2;y:2", .dims = NULL}, false);
    check_case(&(tensor_case){.model = KEPT, .mesh = "x:2;y:2", .dims = NULL}, false);
    check_case(&(tensor_case){.model = KEPT, .mesh = "x:4", .precision = "f16"}, false);
    /* Gradients of keys and values leave a decomposition otherwise than their op. */
    check_case(&(tensor_case){.model = "llama3_8b.json",
                              .mesh = "x:2;y:2",
                              .dims =
                                  "batch=3 length=4 layers=1 kv_heads=2 group=2 d_head=2 d_ff=4 "
                                  "vocab=8"},
               false);
}

static void test_tensor_problem__uneven_selections_cost_what_their_programs_cost(void **state)
{
    (void)state;
    static const char mlp[] = "batch=10 pixels=9 hidden=7 classes=5";
    static const char gpt[] = "batch=6 length=5 vocab=11 layers=2 heads=3 d_head=4";
    const tensor_case cases[] = {
        {.model = TENSOR_MLP, .mesh = "x:4", .dims = mlp},
        {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = mlp},
        {.model = TENSOR_MLP, .mesh = "x:2", .dims = mlp, .microbatches = 2},
        {.model = TENSOR_CONVS, .mesh = "x:3", .dims = "h=13 w=7 c=4 batch=3"},
        {.model = TENSOR_GPT, .mesh = "x:2", .dims = gpt},
        {.model = TENSOR_GPT, .mesh = "x:3", .dims = TENSOR_GPT_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = gpt, .remat = true, .microbatches = 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const dtp_target *const targets[] = {&dtp_target_cpu, &dtp_target_cpu_packed,
                                                    &dtp_target_cuda};
        for (size_t k = 0; k < sizeof targets / sizeof targets[0]; k++) {
            tensor_case c = cases[i];
            c.target = targets[k];
            c.uneven = true;
            check_case(&c, k != 1);
        }
    }
}

typedef dtp_graph *graph_maker(uint64_t seed, char **text);

static void random_graphs(graph_maker *make, int32_t n_graphs, bool uneven, const char *regather)
{
    enum { FIRST_SEED = 811190, PER_GRAPH = 6, PER_TRAINED = 16 };
    static const dtp_target *const targets[] = {&dtp_target_cpu, &dtp_target_cuda,
                                                &dtp_target_torch};
    tally t = {0};
    for (uint64_t seed = FIRST_SEED; seed < FIRST_SEED + (uint64_t)n_graphs; seed++) {
        char *text = NULL;
        dtp_graph_destroy(make(seed, &text));
        tensor_fixture f;
        dtp_tensor_options options = dtp_tensor_options_init();
        const tensor_case c = {.model = text,
                               .mesh = seed % 3 == 0 ? "x:2;y:2" : "x:2",
                               .target = targets[seed % (regather != NULL ? 3 : 2)],
                               .regather = regather};
        uint64_t draws = seed;
        options.uneven = uneven;
        tensor_fixture_create(&c, &f);
        dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
        int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
        assert_non_null(selection);
        print_message("seed %" PRIu64 ", %s\n", seed, c.target->name);
        for (int32_t k = 0; k < (regather != NULL ? PER_TRAINED : PER_GRAPH); k++) {
            if (tensor_random_selection(p, &draws, selection)) {
                check_selection(&f, p, selection, &t);
            }
        }
        free(selection);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&f);
        free(text);
    }
    print_message("%d selections, peak %.3f of the program's\n", t.tried, t.memory / t.tried);
    assert_true(t.tried > 100);
}

/* Views of views, outputs that nobody reads, sums of sums. */
static void test_tensor_problem__random_graphs(void **state)
{
    (void)state;
    random_graphs(random_graph, 80, false, NULL);
    random_graphs(random_graph, 80, true, NULL);
}

/* A later phase reads copies of an earlier one instead of tensors and replicas, which then end
 * earlier: the problem counts no more than the copy takes. */
static void test_tensor_problem__random_graphs_that_keep_copies(void **state)
{
    (void)state;
    random_graphs(random_training_graph, 60, false, "none");
    random_graphs(random_training_graph, 30, true, "none");
    random_graphs(random_training_graph, 20, false, "params");
}

/* A tied selection, instance by instance. */
static void check_folded(const tensor_case *c)
{
    tensor_fixture f;
    uint64_t seed = 3;
    int32_t checked = 0;
    tensor_fixture_create(c, &f);
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_tensor_problem *tied = tensor_fixture_problem(&f, &options);
    options.runs = 0;
    dtp_tensor_problem *plain = tensor_fixture_problem(&f, &options);
    int32_t *a = calloc((size_t)tied->n_variables, sizeof *a);
    int32_t *b = calloc((size_t)plain->n_variables, sizeof *b);
    assert_true(a != NULL && b != NULL && tied->n_variables < plain->n_variables);
    for (int32_t k = 0; k < PER_CASE; k++) {
        dtp_problem_value x, y;
        dtp_sharding s;
        bool found;
        dtp_arena *arena = dtp_arena_create();
        if (tensor_random_selection(tied, &seed, a) && quarter_has(k, PER_CASE)) {
            assert_int_equal(dtp_tensor_sharding(tied, a, arena, &s, NULL), DTP_OK);
            assert_int_equal(dtp_tensor_assignment(plain, &s, b, &found, NULL), DTP_OK);
            assert_true(found);
            assert_int_equal(dtp_problem_evaluate(tied->select, a, &x, NULL), DTP_OK);
            assert_int_equal(dtp_problem_evaluate(plain->select, b, &y, NULL), DTP_OK);
            assert_int_equal(x.cost, y.cost);
            assert_true(x.peak <= y.peak && y.peak - x.peak <= y.peak / 20);
            checked++;
        }
        dtp_arena_destroy(arena);
    }
    assert_true(checked > quarter_of(PER_CASE / 2));
    free(a);
    free(b);
    dtp_tensor_problem_destroy(tied);
    dtp_tensor_problem_destroy(plain);
    tensor_fixture_destroy(&f);
}

static void test_tensor_problem__folded_is_the_same_decision_everywhere(void **state)
{
    (void)state;
    check_folded(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS});
    check_folded(&(tensor_case){.model = TENSOR_GPT,
                                .mesh = "x:2;y:2",
                                .dims = "batch=8 length=8 vocab=16 layers=4 heads=4 d_head=4"});
    check_folded(&(tensor_case){.model = TENSOR_GPT,
                                .mesh = "x:2",
                                .dims = TENSOR_GPT_DIMS,
                                .remat = true,
                                .microbatches = 2});
}

/* The sharding of a selection is found again. */
static void test_tensor_problem__selection_and_back(void **state)
{
    (void)state;
    tensor_fixture f;
    uint64_t seed = 5;
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    int32_t *a = calloc((size_t)p->n_variables, sizeof *a);
    int32_t *b = calloc((size_t)p->n_variables, sizeof *b);
    assert_true(a != NULL && b != NULL);
    for (int32_t k = 0; k < PER_CASE; k++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_sharding s;
        bool found;
        if (tensor_random_selection(p, &seed, a) && quarter_has(k, PER_CASE)) {
            assert_int_equal(dtp_tensor_sharding(p, a, arena, &s, NULL), DTP_OK);
            assert_int_equal(dtp_tensor_assignment(p, &s, b, &found, NULL), DTP_OK);
            assert_true(found);
            assert_memory_equal(a, b, (size_t)p->n_variables * sizeof *a);
        }
        dtp_arena_destroy(arena);
    }
    free(a);
    free(b);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

/* ---- baselines and pins ---- */

static void test_tensor_problem__has_the_baselines(void **state)
{
    (void)state;
    static const char *const rules[] = {"", "batch:x;batch:y", "batch:x;heads:y;d_ff:y;vocab:y"};
    tensor_fixture f;
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    const dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result best;
    int32_t *a = calloc((size_t)p->n_variables, sizeof *a);
    assert_non_null(a);
    assert_int_equal(dtp_solve(p->select, &options, &best, NULL), DTP_OK);
    assert_non_null(best.assignment);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        dtp_layout_rules r;
        dtp_sharding s;
        dtp_problem_value value;
        bool found = false;
        int64_t cost = 0;
        dtp_arena *arena = dtp_arena_create();
        dtp_err err = {0};
        if (dtp_layout_rules_parse(rules[i], &f.pricer.mesh, &f.graph->dims, arena, &r, &err) !=
                DTP_OK ||
            dtp_sharding_from_rules(f.graph, &f.pricer.mesh, &r, false, arena, &s, &err) !=
                DTP_OK ||
            dtp_tensor_assignment(p, &s, a, &found, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        assert_true(found);
        assert_int_equal(dtp_problem_evaluate(p->select, a, &value, NULL), DTP_OK);
        assert_int_equal(dtp_additive_cost(f.graph, &f.pricer, &s, f.redistributor, &cost, NULL),
                         DTP_OK);
        assert_true(value.cost < DTP_FORBIDDEN && best.value.cost <= value.cost);
        assert_true(best.bound <= cost);
        dtp_arena_destroy(arena);
    }
    free(a);
    dtp_solve_result_free(&best);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_problem__pins(void **state)
{
    (void)state;
    tensor_fixture f;
    dtp_err err = {0};
    dtp_tensor_options options = dtp_tensor_options_init();
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, &f);
    const dtp_tensor_id w1 = dtp_graph_find(f.graph, "w1"), h = dtp_graph_find(f.graph, "h");
    const dtp_node_id reader = f.graph->tensors[dtp_graph_find(f.graph, "h.mm")].producer;
    dtp_pin pins[] = {{.tensor = w1, .node = -1}, {.tensor = w1, .node = reader}};
    for (int i = 0; i < 2; i++) {
        pins[i].layout = dtp_layout_replicated(2, 2);
        pins[i].layout.placement[0] = (dtp_placement){.kind = DTP_SHARD, .axis = 1};
        pins[i].dims = 1U;
    }
    options.n_pins = 2;
    options.pins = pins;
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    const dtp_tensor_variable *kept = &p->variables[p->variable_of_tensor[w1]];
    const dtp_tensor_variable *op = &p->variables[p->variable_of_node[reader]];
    assert_int_equal(kept->n_strategies, 3); /* y: whole, split either way */
    for (int32_t k = 0; k < kept->n_strategies; k++) {
        assert_memory_equal(&kept->strategies[k].layout.placement[0], &pins[0].layout.placement[0],
                            sizeof pins[0].layout.placement[0]);
    }
    for (int32_t k = 1; k < op->n_strategies; k++) {
        assert_int_equal(op->strategies[k].strategy.row[0], op->strategies[0].strategy.row[0]);
    }
    dtp_tensor_problem_destroy(p);
    pins[0].tensor = h; /* 8 hidden: not over an axis that is not there */
    pins[0].layout.placement[0].axis = 2;
    assert_int_equal(dtp_tensor_problem_create(f.graph, &f.pricer, &options, &p, &err),
                     DTP_INVALID);
    tensor_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_problem__selections_cost_what_their_programs_cost),
        cmocka_unit_test(test_tensor_problem__uneven_selections_cost_what_their_programs_cost),
        cmocka_unit_test(test_tensor_problem__random_graphs),
        cmocka_unit_test(test_tensor_problem__random_graphs_that_keep_copies),
        cmocka_unit_test(test_tensor_problem__folded_is_the_same_decision_everywhere),
        cmocka_unit_test(test_tensor_problem__selection_and_back),
        cmocka_unit_test(test_tensor_problem__has_the_baselines),
        cmocka_unit_test(test_tensor_problem__pins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
