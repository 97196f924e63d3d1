/* Graphs of microbatches: sizes, accumulators, refusals; programs and prices of them. */
#include "core/transform/microbatch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/transform/mean_loss.h"
#include "cost_models/predict.h"
#include "cost_models/timeline.h"
#include "planner/plan_rules.h"
#include "planner/problem/check.h"
#include "planner/problem/rules/rules_problem.h"
#include "tests/support/graph_check.h"

static dtp_graph *model(const char *name)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", name);
    if (dtp_model_read(path, NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static dtp_graph *cut(const dtp_graph *g, int32_t count)
{
    dtp_err err = {0};
    dtp_graph *out = NULL;
    if (dtp_graph_microbatched(g, -1, count, &out, &err) != DTP_OK ||
        graph_check(out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return out;
}

static void test_microbatch__sizes_and_accumulators(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes"), *m = cut(g, 4);
    const dtp_dim_id batch = dtp_dims_find(&m->dims, "batch");
    int32_t accumulators = 0;
    assert_int_equal(m->microbatches, 4);
    assert_true(dtp_is_micro_dim(m, batch));
    assert_int_equal(m->dims.sizes[batch], 6);
    for (dtp_tensor_id t = 0; t < m->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &m->tensors[t];
        const dtp_tensor_id same = dtp_graph_find(g, tensor->name);
        const dtp_ttype whole = dtp_microbatch_whole(m, &tensor->type);
        assert_true(same < 0 || dtp_ttype_equal(&whole, &g->tensors[same].type));
        accumulators += tensor->per_step ? 1 : 0;
        assert_true(tensor->per_step == (strncmp(tensor->name, "accum.", 6) == 0));
        assert_true(!tensor->per_step || !dtp_tensor_lasts(tensor));
    }
    assert_int_equal(accumulators, g->n_grads + 1);
    assert_int_equal(m->n_updates, g->n_updates + accumulators);
    assert_true(dtp_graph_find(m, "accum.layers.0.mlp.w2") >= 0);
    assert_string_equal(m->tensors[m->loss].name, "loss");
    assert_string_equal(m->nodes[m->tensors[m->loss].producer].op->name, "accumulate");
    assert_true(dtp_graph_find(m, "micro.loss") >= 0);
    for (int32_t i = 0; i < g->n_grads; i++) {
        assert_string_equal(m->tensors[m->grads[i].grad].name, g->tensors[g->grads[i].grad].name);
        assert_string_equal(m->tensors[m->grads[i].param].name, g->tensors[g->grads[i].param].name);
    }
    assert_int_equal(g->n_outputs, 1); /* logits, one row per row of the batch */
    assert_int_equal(m->n_outputs, 0);
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* Every node of the model is found by its name there, and does what it does there. */
static void test_microbatch__nodes_have_their_names_in_the_model(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes"), *m = cut(g, 4);
    int32_t renamed = 0;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node_id found = dtp_microbatch_node(m, g->nodes[n].name);
        if (found < 0 || m->nodes[found].op != g->nodes[n].op) {
            fail_msg("%s: %s", g->nodes[n].name,
                     found < 0 ? "not found" : m->nodes[found].op->name);
        }
        assert_string_equal(dtp_microbatch_name(m, found), g->nodes[n].name);
        assert_int_equal(dtp_microbatch_node(m, m->nodes[found].name), found);
        renamed += strcmp(m->nodes[found].name, g->nodes[n].name) != 0 ? 1 : 0;
        assert_int_equal(dtp_microbatch_node(g, g->nodes[n].name), n);
    }
    assert_true(renamed > 20);
    assert_int_equal(dtp_microbatch_node(m, "nosuch"), -1);
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* A model of one parameter whose loss comes from `nodes`. */
static dtp_status try_nodes(const char *nodes, int32_t count, dtp_err *err)
{
    char text[2048];
    dtp_graph *g = NULL, *m = NULL;
    (void)snprintf(text, sizeof text,
                   "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 12, \"f\": 3},"
                   "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"}},"
                   "\"params\": {\"w\": {\"dims\": [\"f\"], \"init\": \"ones\"},"
                   "\"wb\": {\"dims\": [\"b\"], \"init\": \"ones\"}}, \"nodes\": [%s],"
                   "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}",
                   nodes);
    if (strstr(nodes, "\"wb\"") == NULL) {
        char *at = strstr(text, ",\"wb\"");
        memset(at, ' ', (size_t)(strstr(at, "}}") + 1 - at));
    }
    if (dtp_model_parse("t", text, strlen(text), NULL, &g, err) != DTP_OK) {
        fail_msg("%s", err->msg);
    }
    dtp_status s = dtp_graph_microbatched(g, -1, count, &m, err);
    s = s == DTP_OK ? graph_check(m, err) : s;
    dtp_graph_destroy(s == DTP_OK ? m : NULL);
    dtp_graph_destroy(g);
    return s;
}

#define DOT "{\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"b\"]},"
#define MEAN(of)                                                                                   \
    "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"mean\", \"in\": [\"" of                    \
    "\"], \"over\": [\"b\"]}"

#define SUM(name, of)                                                                              \
    "{\"id\": \"" name "\", \"op\": \"reduce\", \"kind\": \"sum\", \"in\": [\"" of                 \
    "\"], \"over\": [\"b\"]},"
#define MASK                                                                                       \
    "{\"id\": \"m\", \"op\": \"reduce\", \"kind\": \"max\", \"in\": [\"x\"], \"over\": [\"f\"]},"  \
    "{\"id\": \"my\", \"op\": \"mul\", \"in\": [\"y\", \"m\"]}," SUM("t", "my")

/* A loss with an ignored label. */
#define LABELLED(name, reduce)                                                                     \
    "{\"id\": \"xw\", \"op\": \"mul\", \"in\": [\"x\", \"w\"]},"                                   \
    "{\"id\": \"best\", \"op\": \"argmax\", \"in\": [\"x\"], \"over\": \"f\"},"                    \
    "{\"id\": \"" name                                                                             \
    "\", \"op\": \"cross_entropy\", \"in\": [\"xw\", \"best\"], \"over\": \"f\", "                 \
    "\"ignore\": 1, \"reduce\": \"" reduce "\"},"

static void test_microbatch__refusals(void **state)
{
    static const struct {
        const char *nodes;
        int32_t count;
        dtp_status status;
        const char *text;
    } cases[] = {
        {DOT MEAN("y"), 4, DTP_OK, NULL},
        {DOT "{\"id\": \"s\", \"op\": \"square\", \"in\": [\"y\"]}," MEAN("s"), 3, DTP_OK, NULL},
        {DOT "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"sum\", \"in\": [\"y\"], \"over\": "
             "[\"b\"]}",
         2, DTP_OK, NULL},
        {DOT MEAN("y"), 5, DTP_INVALID, "has size 12, which 5 does not divide"},
        {DOT MEAN("y"), 1, DTP_INVALID, "cannot be cut"},
        {DOT "{\"id\": \"p\", \"op\": \"softmax\", \"in\": [\"y\"], \"over\": \"b\"},"
             "{\"id\": \"q\", \"op\": \"square\", \"in\": [\"p\"]}," MEAN("q"),
         2, DTP_UNSUPPORTED, "node 'p' (softmax) needs the whole of dim 'b'"},
        {DOT "{\"id\": \"m\", \"op\": \"reduce\", \"kind\": \"mean\", \"in\": [\"y\"], \"over\": "
             "[\"b\"]},{\"id\": \"c\", \"op\": \"sub\", \"in\": [\"y\", \"m\"]},"
             "{\"id\": \"q\", \"op\": \"square\", \"in\": [\"c\"]}," MEAN("q"),
         2, DTP_UNSUPPORTED, "node 'c' (sub) reads 'm', a sum over all of dim 'b'"},
        {DOT "{\"id\": \"m\", \"op\": \"reduce\", \"kind\": \"mean\", \"in\": [\"y\"], \"over\": "
             "[\"b\"]},{\"id\": \"loss\", \"op\": \"mul\", \"in\": [\"m\", \"m\"]}",
         2, DTP_UNSUPPORTED, "compute 'loss' row by row of 'b' and sum up last"},
        /* a sum over a mask is a count, one that has a parameter is none */
        {DOT MASK SUM("n", "m") "{\"id\": \"loss\", \"op\": \"div\", \"in\": [\"t\", \"n\"]}", 2,
         DTP_OK, NULL},
        {DOT MASK SUM("n", "y") "{\"id\": \"loss\", \"op\": \"div\", \"in\": [\"t\", \"n\"]}", 2,
         DTP_UNSUPPORTED, "node 'loss' (div) reads 't', a sum over all of dim 'b'"},
        {LABELLED(
             "labelled",
             "mean") "{\"id\": \"loss\", \"op\": \"scale\", \"in\": [\"labelled\"], \"factor\": 2}",
         2, DTP_UNSUPPORTED, "'labelled' (cross_entropy) divides by the weights of the labels"},
        {LABELLED(
             "labelled",
             "sum") "{\"id\": \"loss\", \"op\": \"scale\", \"in\": [\"labelled\"], \"factor\": 2}",
         2, DTP_OK, NULL},
        {LABELLED(
             "loss",
             "mean") "{\"id\": \"twice\", \"op\": \"scale\", \"in\": [\"loss\"], \"factor\": 2}",
         2, DTP_UNSUPPORTED, "node 'twice' (scale) reads the loss 'loss'"},
        {DOT "{\"id\": \"z\", \"op\": \"mul\", \"in\": [\"y\", \"wb\"]}," MEAN("z"), 2,
         DTP_UNSUPPORTED, "the parameter 'wb' has the dim 'b'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_err err = {0};
        const dtp_status s = try_nodes(cases[i].nodes, cases[i].count, &err);
        if (s != cases[i].status ||
            (cases[i].text != NULL && strstr(err.msg, cases[i].text) == NULL)) {
            fail_msg("case %zu: %d %s", i, (int)s, err.msg);
        }
    }
}

/* Sum and count are added up, the quotient is the loss; the gradients are those of the sum. */
static void test_microbatch__of_a_mean_over_labels(void **state)
{
    (void)state;
    dtp_graph *g = model("bert_large"), *m = cut(g, 4);
    const dtp_node *loss = &m->nodes[m->tensors[m->loss].producer];
    assert_string_equal(m->tensors[m->loss].name, "loss");
    assert_string_equal(loss->op->name, "div");
    assert_int_equal(loss->phase, DTP_UPDATE);
    for (int32_t i = 0; i < 2; i++) {
        const dtp_graph_tensor *part = &m->tensors[loss->in[i]];
        assert_string_equal(m->nodes[part->producer].op->name, "accumulate");
    }
    assert_true(m->grad_factor >= 0);
    for (int32_t i = 0; i < m->n_grads; i++) {
        assert_string_equal(m->tensors[m->grads[i].grad].name, g->tensors[g->grads[i].grad].name);
    }
    for (dtp_node_id n = 0; n < m->n_nodes; n++) {
        const dtp_node *node = &m->nodes[n];
        if (strncmp(node->name, "update.", 7) == 0) {
            assert_int_equal(node->in[node->n_in - 1], m->grad_factor);
        }
    }
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* Of a forward graph sum, count and loss are nodes of it. */
static void test_mean_loss__of_a_forward_graph(void **state)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 12, \"f\": 3},"
        "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"w\": {\"dims\": [\"f\"], \"init\": \"ones\"}}, \"nodes\": [" LABELLED(
            "loss", "mean") "{\"id\": \"twice\", \"op\": \"scale\", \"in\": [\"loss\"], "
                            "\"factor\": 2}], \"outputs\": [\"twice\"]}";
    dtp_graph *g = NULL, *sums = NULL;
    dtp_mean_loss parts;
    dtp_err err = {0};
    (void)state;
    assert_int_equal(dtp_model_parse("t", text, strlen(text), NULL, &g, &err), DTP_OK);
    assert_false(dtp_has_mean_loss(g));
    g->loss = dtp_graph_find(g, "loss"); /* which evaluation reads */
    assert_true(dtp_has_mean_loss(g));
    assert_int_equal(dtp_graph_with_summed_loss(g, &sums, &parts, &err), DTP_OK);
    assert_int_equal(graph_check(sums, &err), DTP_OK);
    const dtp_node *loss = &sums->nodes[sums->tensors[sums->loss].producer];
    assert_int_equal(loss->phase, DTP_FORWARD);
    assert_int_equal(loss->in[0], parts.sum);
    assert_int_equal(loss->in[1], parts.count);
    assert_int_equal(sums->grad_factor, -1);
    assert_int_equal(sums->n_outputs, 1);
    dtp_graph_destroy(sums);
    dtp_graph_destroy(g);
}

static void test_microbatch__texts_and_choices(void **state)
{
    static const char *const bad[] = {
        "", "x", "-1", "0", "2.5", "batch", "q=2", "=2", "99999999999999", "batch=", "batch=0"};
    (void)state;
    dtp_graph *g = model("gpt_bytes");
    dtp_arena *arena = dtp_arena_create();
    dtp_err err = {0};
    dtp_dim_id dim;
    int32_t count, n, *choices;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (dtp_microbatches_parse(bad[i], g, &dim, &count, &err) != DTP_INVALID) {
            fail_msg("'%s' is accepted", bad[i]);
        }
    }
    assert_int_equal(dtp_microbatches_parse("batch=8", g, &dim, &count, &err), DTP_OK);
    assert_int_equal(dim, dtp_microbatch_dim(g));
    assert_int_equal(count, 8);
    assert_int_equal(dtp_microbatch_variants(g, 10, arena, &n, &choices, &err), DTP_OK);
    assert_int_equal(n, 6); /* of 24: 1 2 3 4 6 8 */
    assert_int_equal(choices[5], 8);
    dtp_arena_destroy(arena);
    dtp_graph_destroy(g);
}

/* ---- programs and prices ---- */

typedef struct lowered {
    dtp_arena *arena;
    dtp_machine *machine;
    dtp_pricer pricer;
    dtp_sharding sharding;
    dtp_program *program;
} lowered;

static void lower(const dtp_graph *g, const char *rules_text, bool passes, lowered *l)
{
    dtp_err err = {0};
    dtp_mesh mesh;
    dtp_layout_rules rules;
    const dtp_lower_options none = {.redistributor = dtp_redistributor_generic(),
                                    .target = &dtp_target_cpu};
    const dtp_lower_options all = dtp_lower_options_init(dtp_redistributor_generic());
    l->arena = dtp_arena_create();
    dtp_status s =
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &l->machine, &err);
    s = s == DTP_OK ? dtp_mesh_parse("x:2;y:2", &mesh, &err) : s;
    s = s == DTP_OK ? dtp_pricer_init(l->machine, &mesh, &dtp_target_cpu, &l->pricer, &err) : s;
    s = s == DTP_OK ? dtp_layout_rules_parse(rules_text, &mesh, &g->dims, l->arena, &rules, &err)
                    : s;
    s = s == DTP_OK ? dtp_sharding_from_rules(g, &mesh, &rules, false, l->arena, &l->sharding, &err)
                    : s;
    s = s == DTP_OK ? dtp_lower(g, &l->sharding, passes ? &all : &none, &l->program, &err) : s;
    s = s == DTP_OK ? dtp_program_check(l->program, &err) : s;
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

static void free_lowered(lowered *l)
{
    dtp_program_destroy(l->program);
    dtp_machine_destroy(l->machine);
    dtp_arena_destroy(l->arena);
}

/* Gradients are reduced over the batch's mesh dim once per step, in the update phase. */
static void test_microbatch__reductions_wait(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes"), *m = cut(g, 4);
    lowered l;
    int64_t reduced = 0, elems = 0;
    lower(m, "batch:x", true, &l);
    for (int32_t i = 0; i < l.program->n_instrs; i++) {
        const dtp_instr *instr = &l.program->instrs[i];
        if (instr->kind == DTP_INSTR_START) {
            assert_int_equal(instr->phase, DTP_UPDATE);
            reduced += instr->coll.count;
        }
    }
    for (int32_t i = 0; i < m->n_grads; i++) {
        elems += dtp_ttype_elems(&m->tensors[m->grads[i].grad].type);
    }
    assert_int_equal(reduced, elems + 1); /* and the loss */
    assert_true(dtp_program_body(l.program) < l.program->n_instrs);
    free_lowered(&l);
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* A parameter that is read twice: the sum of its two gradients is formed from the parts. */
static void test_microbatch__sums_of_gradients_wait(void **state)
{
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"tied\", \"dims\": {\"b\": 16, \"f\": 3},"
        "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"},"
        "\"z\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"}},"
        "\"params\": {\"w\": {\"dims\": [\"f\"], \"init\": \"ones\"}}, \"nodes\": ["
        "{\"id\": \"p\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"b\"]},"
        "{\"id\": \"q\", \"op\": \"einsum\", \"in\": [\"z\", \"w\"], \"out\": [\"b\"]},"
        "{\"id\": \"r\", \"op\": \"mul\", \"in\": [\"p\", \"q\"]}," MEAN(
            "r") "],\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}";
    (void)state;
    dtp_graph *g = NULL;
    dtp_err err = {0};
    lowered l;
    int32_t reduced = 0;
    if (dtp_model_parse("tied", text, strlen(text), NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_graph *m = cut(g, 4);
    lower(m, "b:x", true, &l);
    for (int32_t i = 0; i < l.program->n_instrs; i++) {
        const dtp_instr *instr = &l.program->instrs[i];
        reduced += instr->kind == DTP_INSTR_START ? instr->n_out : 0;
        assert_true(instr->kind != DTP_INSTR_START || instr->phase == DTP_UPDATE);
    }
    assert_int_equal(reduced, 2); /* the gradient and the loss */
    free_lowered(&l);
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* Time = 4 x (forward + backward) + update, and collectives as often as they run. */
static void test_microbatch__prediction_counts_runs(void **state)
{
    (void)state;
    dtp_graph *g = model("gpt_bytes"), *m = cut(g, 4);
    lowered l;
    dtp_prediction p;
    double body = 0, tail = 0;
    int64_t counts[2] = {0, 0}, timeline = 0;
    lower(m, "batch:x;heads:y;d_ff:y;vocab:y", true, &l);
    assert_int_equal(dtp_predict(&l.pricer, l.program, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < l.program->n_instrs; i++) {
        const dtp_instr *instr = &l.program->instrs[i];
        const bool once = instr->phase == DTP_UPDATE;
        *(once ? &tail : &body) += instr->time_s;
        counts[once] += instr->kind == DTP_INSTR_START ? 1 : 0;
        timeline += instr->kind == DTP_INSTR_WAIT ? 0 : once ? 1 : 4;
    }
    int64_t all = 0;
    for (int32_t k = 0; k < DTP_N_COLLS; k++) {
        all += p.collectives[k].count;
    }
    assert_true(counts[0] > 0 && counts[1] > 0);
    assert_int_equal(all, 4 * counts[0] + counts[1]);
    assert_true(fabs(p.compute_s + p.comm_s - (4 * body + tail)) <= 1e-12 * p.compute_s);
    assert_true(p.step_time_s <= (p.compute_s + p.comm_s) * (1 + 1e-12));
    assert_int_equal(dtp_schedule_count(l.program), timeline);
    free_lowered(&l);
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* The rules problem counts what the plain program costs. */
static void test_microbatch__rules_problem_agrees(void **state)
{
    static const char *const rules[] = {"", "batch:x", "batch:x;hidden:y", "hidden:x;pixels:y"};
    (void)state;
    dtp_graph *g = model("mlp_digits"), *m = cut(g, 4);
    for (int i = 0; i < 4; i++) {
        lowered l;
        dtp_err err = {0};
        dtp_layout_rules parsed;
        dtp_rules_problem *problem = NULL;
        int64_t cost;
        lower(m, rules[i], false, &l);
        assert_int_equal(dtp_rules_problem_create(m, &l.pricer, dtp_redistributor_generic(), NULL,
                                                  false, &problem, &err),
                         DTP_OK);
        assert_int_equal(
            dtp_layout_rules_parse(rules[i], &l.pricer.mesh, &m->dims, l.arena, &parsed, &err),
            DTP_OK);
        assert_int_equal(
            dtp_additive_cost(m, &l.pricer, &l.sharding, dtp_redistributor_generic(), &cost, &err),
            DTP_OK);
        int32_t *assignment =
            dtp_arena_alloc(l.arena, (size_t)problem->select->n_variables, sizeof *assignment);
        dtp_problem_value v;
        assert_non_null(assignment);
        assert_true(dtp_rules_assignment(problem, &parsed, assignment));
        assert_int_equal(dtp_problem_evaluate(problem->select, assignment, &v, &err), DTP_OK);
        assert_true(v.feasible);
        assert_int_equal(v.cost, cost);
        dtp_rules_problem_destroy(problem);
        free_lowered(&l);
    }
    dtp_graph_destroy(m);
    dtp_graph_destroy(g);
}

/* ---- plans ---- */

static void test_microbatch__plans_keep_choices(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *g = model("gpt_bytes"), *again = NULL;
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    dtp_plan_result r;
    dtp_plan *read = NULL;
    char *first = NULL, *second = NULL;
    const char *const items[] = {"layer:0-2"};
    const dtp_graph_variant choices = {
        .remat = {.n = 1, .items = items}, .microbatches = 3, .micro_dim = -1};
    dtp_plan_request request = dtp_plan_request_init();
    assert_int_equal(dtp_machine_read(DTP_SOURCE_DIR "/models/machines/cpu_2.json", &machine, &err),
                     DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, &err), DTP_OK);
    request.options.mesh = &mesh;
    request.variant = &choices;
    assert_int_equal(dtp_plan_rules(g, machine, &request, &r, &err), DTP_OK);
    assert_true(r.plan->model_hash == dtp_graph_hash(g));
    assert_int_equal(dtp_plan_graph(r.plan, g, &again, &err), DTP_OK);
    assert_int_equal(dtp_plan_write(r.plan, again, false, &first, &err), DTP_OK);
    assert_non_null(strstr(first, "\"remat\": [\"layer:0-2\"]"));
    assert_non_null(strstr(first, "\"microbatches\": 3"));
    if (dtp_plan_read("p", first, strlen(first), g, &read, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(dtp_plan_write(read, again, false, &second, &err), DTP_OK);
    assert_string_equal(first, second);
    /* The written prediction is that of the program which the plan's graph gives. */
    lowered l = {0};
    dtp_prediction p;
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    assert_int_equal(dtp_lower(again, &read->sharding, &passes, &l.program, &err), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &mesh, &dtp_target_cpu, &l.pricer, &err), DTP_OK);
    assert_int_equal(dtp_predict(&l.pricer, l.program, &p, NULL), DTP_OK);
    assert_int_equal(p.peak_bytes, read->predicted.peak_bytes);
    assert_true(fabs(p.step_time_s - read->predicted.step_time_s) <= 1e-9 * p.step_time_s);
    dtp_program_destroy(l.program);
    free(first);
    free(second);
    dtp_plan_destroy(read);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(again);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_microbatch__sizes_and_accumulators),
        cmocka_unit_test(test_microbatch__nodes_have_their_names_in_the_model),
        cmocka_unit_test(test_microbatch__refusals),
        cmocka_unit_test(test_microbatch__of_a_mean_over_labels),
        cmocka_unit_test(test_mean_loss__of_a_forward_graph),
        cmocka_unit_test(test_microbatch__texts_and_choices),
        cmocka_unit_test(test_microbatch__reductions_wait),
        cmocka_unit_test(test_microbatch__sums_of_gradients_wait),
        cmocka_unit_test(test_microbatch__prediction_counts_runs),
        cmocka_unit_test(test_microbatch__rules_problem_agrees),
        cmocka_unit_test(test_microbatch__plans_keep_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
