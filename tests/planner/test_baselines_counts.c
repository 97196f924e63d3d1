/* What baselines communicate and hold, against what their definitions say: collectives per
 * parameter of ZeRO, activations reduced by Megatron, all-to-alls of experts, shards of parameters
 * and optimizer states, the order of the peaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/redistribution_price.h"
#include "planner/baselines/baselines.h"
#include "spmd/lower/lower.h"
#include "tests/support/small_models.h"

typedef struct fixture {
    dtp_graph *g;
    small_pricer pricer;
    dtp_arena *arena;
    int32_t n;
    dtp_candidate *list;
} fixture;

static fixture setup(const small_model *m, const char *machine, const char *mesh)
{
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
    fixture f = {.g = small_model_read(m, false),
                 .pricer = small_pricer_read(machine, mesh),
                 .arena = dtp_arena_create()};
    dtp_err err = {0};
    if (dtp_baselines_create(f.g, &f.pricer.pricer, &options, f.arena, &f.n, &f.list, &err) !=
        DTP_OK) {
        fail_msg("%s: %s", m->name, err.msg);
    }
    return f;
}

static void teardown(fixture *f)
{
    dtp_arena_destroy(f->arena);
    small_pricer_free(&f->pricer);
    dtp_graph_destroy(f->g);
}

static const dtp_candidate *find(const fixture *f, const char *name)
{
    int32_t i = 0;
    while (i < f->n && strcmp(f->list[i].name, name) != 0) {
        i++;
    }
    if (i == f->n || !f->list[i].legal) {
        fail_msg("%s: no baseline %s: %s", f->g->name, name, i == f->n ? "" : f->list[i].why);
    }
    return &f->list[i];
}

/* Collectives of the plain lowering by phase and kind, those of one element left out; with
 * elements > 0 only those of an array of so many elements. */
typedef struct counts {
    int of[3][DTP_N_COLLS];
} counts;

static counts count(const fixture *f, const char *baseline, int64_t elements)
{
    const dtp_lower_options plain = {.redistributor = dtp_redistributor_generic(),
                                     .target = &dtp_target_cpu};
    const dtp_mesh *mesh = &f->pricer.pricer.mesh;
    dtp_program *p = NULL;
    counts c = {0};
    dtp_err err = {0};
    if (dtp_lower(f->g, &find(f, baseline)->sharding, &plain, &p, &err) != DTP_OK) {
        fail_msg("%s: %s", baseline, err.msg);
    }
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *x = &p->instrs[i];
        if (x->kind != DTP_INSTR_START || x->coll.count <= 1) {
            continue;
        }
        const double bytes = dtp_coll_full_bytes(x->coll.kind, x->coll.count, x->coll.dtype,
                                                 (int32_t)mesh->sizes[0]);
        if (elements == 0 || bytes == 4.0 * (double)elements) {
            c.of[x->phase][x->coll.kind]++;
        }
    }
    dtp_program_destroy(p);
    return c;
}

static int total(const counts *c, dtp_coll_kind kind)
{
    return c->of[DTP_FORWARD][kind] + c->of[DTP_BACKWARD][kind] + c->of[DTP_UPDATE][kind];
}

/* Parameters that some node of a phase reads. */
static int params_read_in(const dtp_graph *g, dtp_phase phase)
{
    int n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        bool reads = false;
        for (int32_t i = 0; i < g->n_nodes && !reads; i++) {
            const dtp_node *node = &g->nodes[i];
            for (int32_t k = 0; k < node->n_in && node->phase == phase; k++) {
                reads = reads || node->in[k] == t;
            }
        }
        n += reads && g->tensors[t].kind == DTP_TENSOR_PARAM ? 1 : 0;
    }
    return n;
}

/* ---- ZeRO ---- */

static void test_zero__collectives_per_parameter(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp_digits", "gpt_bytes", "llama3_8b", "mixtral_8x7b"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        fixture f = setup(small_model_find(models[i]), "a100_8", "x:4");
        const int params = params_read_in(f.g, DTP_UPDATE);
        const counts dp = count(&f, "data_parallel", 0), one = count(&f, "zero1", 0);
        const counts two = count(&f, "zero2", 0), three = count(&f, "zero3", 0);
        assert_int_equal(params, f.g->n_grads);
        assert_int_equal(total(&dp, DTP_ALL_REDUCE), params);
        assert_int_equal(total(&dp, DTP_ALL_GATHER) + total(&dp, DTP_REDUCE_SCATTER), 0);
        assert_int_equal(total(&one, DTP_ALL_REDUCE), params);
        assert_int_equal(one.of[DTP_UPDATE][DTP_ALL_GATHER], params);
        assert_int_equal(total(&one, DTP_ALL_GATHER), params);
        assert_int_equal(total(&two, DTP_ALL_REDUCE), 0);
        assert_int_equal(total(&two, DTP_REDUCE_SCATTER), params);
        assert_int_equal(two.of[DTP_UPDATE][DTP_ALL_GATHER], params);
        assert_int_equal(total(&three, DTP_ALL_REDUCE), 0);
        assert_int_equal(total(&three, DTP_REDUCE_SCATTER), params);
        assert_int_equal(three.of[DTP_FORWARD][DTP_ALL_GATHER], params);
        assert_int_equal(three.of[DTP_BACKWARD][DTP_ALL_GATHER], params_read_in(f.g, DTP_BACKWARD));
        assert_int_equal(three.of[DTP_UPDATE][DTP_ALL_GATHER], 0);
        (void)printf("%s: %d parameters\n", models[i], params);
        teardown(&f);
    }
}

/* Elements of a tensor on rank 0. */
static int64_t held(const fixture *f, const dtp_candidate *c, dtp_tensor_id t)
{
    dtp_ttype local;
    dtp_layout_local(&c->sharding.layouts[t], &f->pricer.pricer.mesh, &f->g->tensors[t].type, 0,
                     &local, NULL);
    return dtp_ttype_elems(&local);
}

static void check_held(const fixture *f, const char *baseline, int64_t params_over,
                       int64_t states_over)
{
    const dtp_candidate *c = find(f, baseline);
    for (dtp_tensor_id t = 0; t < f->g->n_tensors; t++) {
        const int64_t all = dtp_ttype_elems(&f->g->tensors[t].type);
        if (f->g->tensors[t].kind == DTP_TENSOR_PARAM) {
            assert_int_equal(held(f, c, t) * params_over, all);
        } else if (f->g->tensors[t].kind == DTP_TENSOR_STATE) {
            assert_int_equal(held(f, c, t) * states_over, all);
        }
    }
}

/* Over one mesh dim and over two. */
static void test_zero__shards_of_parameters_and_states(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:4", "x:2;y:2"};
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        fixture f = setup(small_model_find("llama3_8b"), "a100_8", meshes[i]);
        check_held(&f, "replicated", 1, 1);
        check_held(&f, "data_parallel", 1, 1);
        check_held(&f, "zero1", 1, 4);
        check_held(&f, "zero2", 1, 4);
        check_held(&f, "zero3", 4, 4);
        teardown(&f);
    }
}

static void test_zero__peaks_fall_with_the_stage(void **state)
{
    (void)state;
    static const small_model wide = {
        "llama3_8b", {{"layers", 3}, {"batch", 8}, {"length", 512}}, true};
    static const char *const order[] = {"replicated", "data_parallel", "zero1", "zero2", "zero3"};
    fixture f = setup(&wide, "h100_64", "x:8");
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const int64_t peak = find(&f, order[i])->predicted.peak_bytes;
        (void)printf("%-14s peak %12lld bytes, step %.4f s\n", order[i], (long long)peak,
                     find(&f, order[i])->predicted.step_time_s);
        assert_true(i == 0 || peak < find(&f, order[i - 1])->predicted.peak_bytes);
    }
    teardown(&f);
}

/* ---- Megatron, experts ---- */

/* Two activations per layer each way, one of the embedding and one of the output layer. */
static void test_megatron__activations_are_reduced_twice_per_layer(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt_bytes", "llama3_8b"};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        fixture f = setup(small_model_find(models[i]), "a100_8", "x:2");
        const int64_t activation =
            dtp_ttype_elems(&f.g->tensors[dtp_graph_find(f.g, "layers.0.x1")].type);
        const counts tp = count(&f, "megatron", activation);
        const counts sp = count(&f, "megatron_sp", activation);
        assert_int_equal(tp.of[DTP_FORWARD][DTP_ALL_REDUCE], 5);
        assert_int_equal(tp.of[DTP_BACKWARD][DTP_ALL_REDUCE], 5);
        assert_int_equal(total(&tp, DTP_ALL_GATHER) + total(&tp, DTP_REDUCE_SCATTER), 0);
        assert_int_equal(sp.of[DTP_FORWARD][DTP_REDUCE_SCATTER], 5);
        assert_int_equal(sp.of[DTP_FORWARD][DTP_ALL_GATHER], 5);
        assert_int_equal(sp.of[DTP_BACKWARD][DTP_REDUCE_SCATTER], 5);
        assert_int_equal(total(&sp, DTP_ALL_REDUCE), 0);
        teardown(&f);
    }
}

/* Tokens go to the experts and back, forward and backward, in every layer. */
static void test_experts__tokens_travel(void **state)
{
    (void)state;
    fixture f = setup(small_model_find("mixtral_8x7b"), "a100_8", "x:4");
    const counts c = count(&f, "expert_parallel", 0);
    const dtp_tensor_id gate = dtp_graph_find(f.g, "layers.1.moe.gate");
    assert_int_equal(c.of[DTP_FORWARD][DTP_ALL_TO_ALL], 4);
    assert_int_equal(c.of[DTP_BACKWARD][DTP_ALL_TO_ALL], 4);
    assert_int_equal(total(&c, DTP_ALL_GATHER), 0);
    assert_int_equal(held(&f, find(&f, "expert_parallel"), gate) * 4,
                     dtp_ttype_elems(&f.g->tensors[gate].type));
    teardown(&f);
}

/* ---- what is found in a graph ---- */

static bool has_style(const dtp_candidate *c, const char *text)
{
    bool found = false;
    for (int32_t i = 0; i < c->n_styles; i++) {
        found = found || strcmp(c->styles[i], text) == 0;
    }
    return found;
}

static void test_megatron__styles_of_the_models(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int32_t n;
        const char *styles[14];
    } cases[] = {
        {"mlp_digits",
         3,
         {"h.mm: colwise(x, dim=hidden)", "b1: colwise(x, dim=hidden)",
          "logits.mm: rowwise(x, dim=hidden)"}},
        {"llama3_8b",
         10,
         {"embed: rowwise(x, dim=vocab)", "layers.*.attn.q.mm: colwise(x, dim=kv_heads)",
          "layers.*.attn.k.mm: colwise(x, dim=kv_heads)",
          "layers.*.attn.v: colwise(x, dim=kv_heads)",
          "layers.*.attn.out: rowwise(x, dim=kv_heads)",
          "layers.*.mlp.gate.mm: colwise(x, dim=d_ff)", "layers.*.mlp.up.mm: colwise(x, dim=d_ff)",
          "layers.*.mlp.out: rowwise(x, dim=d_ff)", "logits: colwise(x, dim=vocab)",
          "loss: loss_parallel(x)"}},
        {"mixtral_8x7b",
         10,
         {"layers.*.moe.gate.mm: colwise(x, dim=d_ff)", "layers.*.moe.y$: rowwise(x, dim=d_ff)"}},
        {"bert_large",
         14,
         {"embed$: rowwise(x, dim=vocab)", "mlm.bias: colwise(x, dim=vocab)",
          "layers.*.mlp.b1: colwise(x, dim=d_ff)"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f = setup(small_model_find(cases[i].model), "a100_8", "x:2");
        const dtp_candidate *c = find(&f, "megatron");
        if (c->n_styles != cases[i].n) {
            fail_msg("%s: %d styles", cases[i].model, c->n_styles);
        }
        for (int32_t k = 0; k < 14 && cases[i].styles[k] != NULL; k++) {
            if (!has_style(c, cases[i].styles[k])) {
                fail_msg("%s: no style '%s'", cases[i].model, cases[i].styles[k]);
            }
        }
        teardown(&f);
    }
}

/* Those of rules are priced as everywhere else. */
static void test_baselines__rules_only(void **state)
{
    (void)state;
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic(),
                                          .rules_file =
                                              DTP_SOURCE_DIR "/models/mixtral_8x7b.rules.json",
                                          .rules_only = true};
    fixture f = setup(small_model_find("mixtral_8x7b"), "a100_8", "x:2;y:2");
    dtp_candidate *list = NULL;
    dtp_err err = {0};
    int32_t n = 0;
    assert_int_equal(
        dtp_baselines_create(f.g, &f.pricer.pricer, &options, f.arena, &n, &list, &err), DTP_OK);
    assert_int_equal(n, 6);
    for (int32_t i = 0; i < n; i++) {
        dtp_lower_options lowering = dtp_lower_options_init(list[i].redistributor);
        dtp_sharding again;
        dtp_prediction predicted;
        int64_t cost_ps = 0;
        assert_int_equal(dtp_sharding_from_rules(f.g, &f.pricer.pricer.mesh, &list[i].rules, false,
                                                 f.arena, &again, &err),
                         DTP_OK);
        assert_int_equal(dtp_sharding_predict(f.g, &f.pricer.pricer, &again, &lowering, &predicted,
                                              &cost_ps, &err),
                         DTP_OK);
        assert_true(list[i].legal && list[i].rules_text != NULL);
        assert_int_equal(cost_ps, list[i].cost_ps);
        assert_int_equal(predicted.peak_bytes, list[i].predicted.peak_bytes);
    }
    teardown(&f);
}

/* Lowered with the machine's own redistributions a baseline costs no more than with those of the
 * generic machine, and somewhere less. */
static void test_baselines__cost_least_with_the_redistributions_of_the_machine(void **state)
{
    static const char *const machines[] = {"a100_8", "v100_16", "l4_16", "h100_64"};
    static const char *const meshes[] = {"x:4", "x:2;y:2"};
    (void)state;
    int32_t compared = 0, less = 0;
    for (size_t i = 0; i < 2 * sizeof machines / sizeof machines[0]; i++) {
        for (const small_model *m = small_models(); m->name != NULL; m++) {
            fixture f = setup(m, machines[i / 2], meshes[i % 2]);
            const dtp_pricer *pricer = &f.pricer.pricer;
            dtp_redistribution_pricer *prices;
            assert_int_equal(dtp_redistribution_pricer_create(pricer, &prices, NULL), DTP_OK);
            const dtp_redistributor *own = dtp_redistribution_pricer_redistributor(prices);
            for (int32_t k = 0; k < f.n; k++) {
                int64_t cost;
                if (!f.list[k].legal) {
                    continue;
                }
                assert_int_equal(
                    dtp_additive_cost(f.g, pricer, &f.list[k].sharding, own, &cost, NULL), DTP_OK);
                if (cost > f.list[k].cost_ps) {
                    fail_msg("%s, %s on %s %s: %lld, %lld on the generic machine", m->name,
                             f.list[k].name, machines[i / 2], meshes[i % 2], (long long)cost,
                             (long long)f.list[k].cost_ps);
                }
                less += cost < f.list[k].cost_ps ? 1 : 0;
                compared++;
            }
            dtp_redistribution_pricer_destroy(prices);
            teardown(&f);
        }
    }
    print_message("%d of %d baselines cost less\n", less, compared);
    assert_true(compared > 200 && less > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero__collectives_per_parameter),
        cmocka_unit_test(test_zero__shards_of_parameters_and_states),
        cmocka_unit_test(test_zero__peaks_fall_with_the_stage),
        cmocka_unit_test(test_megatron__activations_are_reduced_twice_per_layer),
        cmocka_unit_test(test_experts__tokens_travel),
        cmocka_unit_test(test_megatron__styles_of_the_models),
        cmocka_unit_test(test_baselines__rules_only),
        cmocka_unit_test(test_baselines__cost_least_with_the_redistributions_of_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
