/* Programs with fused kernels against the same programs without: values, memory, prices. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "core/transform/graph_variant.h"
#include "core/transform/microbatch.h"
#include "core/transform/outputs.h"
#include "core/transform/precision.h"
#include "dtp/model.h"
#include "cost_models/price.h"
#include "planner/problem/tensors/compute_bound.h"
#include "spmd/program/peak.h"
#include "spmd/program/program.h"
#include "tests/support/job_suite.h"
#include "tests/support/small_models.h"

enum { STEPS = 3, TARGETS = 3 };

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* The CPU's target with no pattern, with those of elementwise functions, with every one. */
static dtp_target fusing(int32_t k)
{
    dtp_target t = dtp_target_cpu;
    t.fuse = k == 0 ? 0U : dtp_target_cuda.fuse & (k == 1 ? ~(uint32_t)DTP_FUSE_PRODUCT : ~0U);
    return t;
}

static int32_t count(const dtp_program *p, const char *op)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].op != NULL && strcmp(p->instrs[i].op->name, op) == 0 ? 1 : 0;
    }
    return n;
}

static int64_t param_count(const dtp_graph *g)
{
    int64_t n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        n += g->tensors[t].kind == DTP_TENSOR_PARAM ? dtp_ttype_elems(&g->tensors[t].type) : 0;
    }
    return n;
}

static double error_of(const float *a, const float *b, int64_t n)
{
    double error = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        error += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    return error / norm;
}

typedef struct row {
    const char *model, *mesh, *rules;
    int32_t two, one, norms; /* least numbers of fused kernels */
    /* With every pattern: a product with functions, with a second result, with their sum, with that
     * of an operand. A partial sum has no functions. */
    int32_t products, products_two, sums, operands;
} row;

static const row ROWS[] = {{"gpt_bytes", "x:1", "", 2, 0, 4, 8, 2, 2, 8},
                           {"gpt_bytes", "x:2", "batch:x", 2, 0, 4, 8, 2, 2, 8},
                           {"gpt_bytes", "x:2;y:2", "batch:x heads:y", 2, 0, 0, 6, 2, 2, 8},
                           {"gpt_bytes", "x:2", "length:x", 2, 0, 4, 8, 2, 2, 8},
                           {"vit_b16", "x:2", "batch:x", 2, 0, 4, 11, 2, 2, 11},
                           {"mixtral_8x7b", "x:2", "batch:x", 2, 0, 4, 0, 0, 0, 0},
                           {"llama3_8b", "x:2", "batch:x", 2, 0, 4, 0, 0, 0, 0},
                           {"mlp_digits", "x:3", "batch:x", 1, 0, 0, 2, 0, 0, 2}};

/* Trains a graph on the CPU's target and one on a fused target; the relative error of the
 * parameters. */
static double compare_graphs(const dtp_graph *g, const dtp_graph *of_fused, const char *mesh_text,
                             const char *rules, const dtp_target *fused, double tolerance)
{
    const dtp_graph *const graphs[2] = {g, of_fused};
    const dtp_target *const targets[2] = {&dtp_target_cpu, fused};
    const int64_t n = param_count(g);
    double losses[2][STEPS];
    float *params[2];
    dtp_err err = {0};
    for (int32_t k = 0; k < 2; k++) {
        dtp_mesh mesh;
        params[k] = calloc((size_t)n, sizeof *params[k]);
        job j = {.g = graphs[k],
                 .mesh = mesh_text,
                 .rules = rules,
                 .target = targets[k],
                 .backend = "cpu",
                 .steps = STEPS,
                 .losses = losses[k],
                 .params = params[k]};
        assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
        must(dtp_comm_sim_run(&mesh, job_run, &j, &err), &err);
    }
    for (int32_t s = 0; s < STEPS; s++) {
        assert_true(fabs(losses[0][s] - losses[1][s]) <= tolerance * losses[0][s]);
    }
    const double error = error_of(params[0], params[1], n);
    free(params[0]);
    free(params[1]);
    return error;
}

static double compare(const dtp_graph *g, const char *mesh, const char *rules,
                      const dtp_target *fused, double tolerance)
{
    return compare_graphs(g, g, mesh, rules, fused, tolerance);
}

static dtp_graph *in_bf16(const dtp_graph *g, dtp_dtype gradients)
{
    const dtp_precision bf16 = {.compute = DTP_BF16, .gradients = gradients};
    dtp_graph *out = NULL;
    dtp_err err = {0};
    must(dtp_graph_with_precision(g, &bf16, &out, &err), &err);
    return out;
}

/* Bitwise the same losses and parameters in f32. job_run also checks that memory is as planned. */
static void test_fuse__f32_trains_to_the_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof ROWS / sizeof ROWS[0]); i++) {
        const row *r = &ROWS[i / 2];
        const dtp_target fused = fusing(1 + (int32_t)(i % 2));
        dtp_graph *g = small_model_read(small_model_find(r->model), false);
        const double error = compare(g, r->mesh, r->rules, &fused, 0.0);
        if (error > 0.0) {
            fail_msg("%s on %s, '%s': parameters differ by %.3g", r->model, r->mesh, r->rules,
                     error);
        }
        dtp_graph_destroy(g);
    }
}

/* The same of recomputed blocks and of steps in microbatches, on whole parameters and on shards;
 * they need no more memory. */
static void test_fuse__variants_train_to_the_bit(void **state)
{
    (void)state;
    static const dtp_variant_texts texts[] = {
        {.remat = "all"}, {.microbatches = "2"}, {.remat = "all", .microbatches = "2"}};
    static const char *const rules[] = {"batch:x", "heads:x d_ff:x"};
    const dtp_target fused = fusing(2);
    dtp_graph *whole = small_model_read(small_model_find("gpt_bytes"), false);
    dtp_arena *arena = dtp_arena_create();
    dtp_err err = {0};
    for (int32_t i = 0; i < 3 * 2; i++) {
        dtp_graph_variant variant;
        dtp_graph *g = NULL;
        must(dtp_graph_variant_parse(&texts[i / 2], whole, arena, &variant, &err), &err);
        must(dtp_graph_with_variant(whole, &variant, 0, NULL, &g, &err), &err);
        assert_true(compare(g, "x:2", rules[i % 2], &fused, 0.0) == 0.0);
        job_program p[2];
        must(job_lower(g, "x:2", rules[i % 2], &dtp_target_cpu, &p[0], &err), &err);
        must(job_lower(g, "x:2", rules[i % 2], &fused, &p[1], &err), &err);
        print_message("remat %s, microbatches %s, '%s': %lld B of %lld B\n",
                      texts[i / 2].remat == NULL ? "none" : "all",
                      texts[i / 2].microbatches == NULL ? "1" : "2", rules[i % 2],
                      (long long)p[1].program->peak_bytes, (long long)p[0].program->peak_bytes);
        assert_true(p[1].program->peak_bytes <= p[0].program->peak_bytes);
        assert_true(count(p[1].program, "fused_operand_sum") > 0);
        job_program_free(&p[0]);
        job_program_free(&p[1]);
        dtp_graph_destroy(g);
    }
    dtp_arena_destroy(arena);
    dtp_graph_destroy(whole);
}

/* In 16 bits a value inside of an expression is not rounded. */
static void test_fuse__halves_train_within_rounding(void **state)
{
    (void)state;
    const dtp_target fused = fusing(2);
    dtp_graph *whole = small_model_read(small_model_find("gpt_bytes"), false);
    dtp_graph *g = in_bf16(whole, DTP_BF16);
    const double error = compare(g, "x:2", "batch:x", &fused, 4e-3);
    print_message("bf16: parameters differ by %.3g\n", error);
    assert_true(error < 1e-4);
    dtp_graph_destroy(g);
    dtp_graph_destroy(whole);
}

/* A model that is trained for its loss alone. */
static dtp_graph *read_without_outputs(const char *name, const dtp_model_options *options)
{
    const dtp_outputs none = {.chosen = true};
    char path[512];
    dtp_graph *g = NULL, *out = NULL;
    dtp_err err = {0};
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%s.json", name);
    must(dtp_model_read(path, options, &g, &err), &err);
    must(dtp_graph_with_outputs(g, &none, &out, &err), &err);
    dtp_graph_destroy(g);
    return out;
}

/* A small model with a batch of 64, beside whose activations gradients are small. */
static dtp_graph *read_wide(const char *name)
{
    small_model m = *small_model_find(name);
    assert_string_equal(m.dims[0].name, "batch");
    m.dims[0].size = 64;
    return small_model_read(&m, false);
}

static int64_t needed_bytes(const job_program *p)
{
    dtp_peak peak;
    dtp_err err = {0};
    must(dtp_peak_find(p->program, p->arena, &peak, &err), &err);
    return peak.bytes;
}

/* Gradients that are only cast to f32 are those of a graph that makes them in f32, to the bit. */
static void test_fuse__gradients_are_made_in_f32(void **state)
{
    (void)state;
    static const struct {
        const char *model, *mesh, *rules;
        int32_t left; /* casts of gradients */
    } rows[] = {{"llama3_8b", "x:1", "", 0},
                {"gpt_bytes", "x:1", "", 0},
                {"gpt_bytes", "x:2", "heads:x d_ff:x", 0},
                {"mlp_digits", "x:1", "", 1},         /* where most bytes are needed */
                {"mlp_digits", "x:2", "batch:x", 4}}; /* sums of 16 bits over ranks */
    dtp_target fused = dtp_target_cpu;
    fused.fuse = DTP_FUSE_CAST;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_graph *g = read_wide(rows[i].model);
        dtp_graph *half = in_bf16(g, DTP_BF16), *wide = in_bf16(g, DTP_F32);
        job_program p[3];
        dtp_err err = {0};
        must(job_lower(half, rows[i].mesh, rows[i].rules, &dtp_target_cpu, &p[0], &err), &err);
        must(job_lower(half, rows[i].mesh, rows[i].rules, &fused, &p[1], &err), &err);
        must(job_lower(wide, rows[i].mesh, rows[i].rules, &dtp_target_cpu, &p[2], &err), &err);
        const int32_t before = count(p[0].program, "cast"), after = count(p[1].program, "cast");
        const int32_t least = count(p[2].program, "cast");
        print_message("%s on %s, '%s': %d casts of %d, %d at least; %lld B needed of %lld B\n",
                      rows[i].model, rows[i].mesh, rows[i].rules, after, before, least,
                      (long long)needed_bytes(&p[1]), (long long)needed_bytes(&p[0]));
        assert_int_equal(after, least + rows[i].left);
        assert_true(needed_bytes(&p[1]) <= needed_bytes(&p[0]));
        if (after == least) {
            assert_true(compare_graphs(wide, half, rows[i].mesh, rows[i].rules, &fused, 0.0) ==
                        0.0);
        } else {
            assert_true(compare(half, rows[i].mesh, rows[i].rules, &fused, 4e-3) < 1e-4);
        }
        for (int32_t k = 0; k < 3; k++) {
            job_program_free(&p[k]);
        }
        dtp_graph_destroy(half);
        dtp_graph_destroy(wide);
        dtp_graph_destroy(g);
    }
}

/* Logits are never whole: no value has their size, and the peak is smaller by most of them. */
static void check_loss(const dtp_graph *g, const char *mesh, const char *rules,
                       const dtp_target *fused, int64_t logits)
{
    job_program p[2];
    dtp_err err = {0};
    for (int32_t k = 0; k < 2; k++) {
        must(job_lower(g, mesh, rules, k == 0 ? &dtp_target_cpu : fused, &p[k], &err), &err);
        must(dtp_program_check(p[k].program, &err), &err);
    }
    print_message("on %s, '%s': %lld B of %lld B\n", mesh, rules,
                  (long long)p[1].program->peak_bytes, (long long)p[0].program->peak_bytes);
    assert_int_equal(count(p[1].program, "linear_loss"), 0);
    assert_int_equal(count(p[1].program, "linear_loss_grad"), 1);
    assert_int_equal(count(p[1].program, "cross_entropy"), 0);
    assert_int_equal(count(p[1].program, "cross_entropy_grad"), 0);
    for (int32_t v = 0; v < p[1].program->n_values; v++) {
        assert_true(strcmp(p[1].program->values[v].name, "logits") != 0);
    }
    assert_true(p[1].program->peak_bytes < p[0].program->peak_bytes - logits / 2);
    job_program_free(&p[0]);
    job_program_free(&p[1]);
}

enum { BATCH = 8, LENGTH = 16, VOCAB = 16384 };

static dtp_graph *with_large_logits(void)
{
    static const dtp_dim_override dims[] = {{"batch", BATCH}, {"length", LENGTH}, {"vocab", VOCAB},
                                            {"layers", 1},    {"heads", 2},       {"d_head", 2}};
    const dtp_model_options options = {
        .size = sizeof options, .overrides = dims, .n_overrides = sizeof dims / sizeof dims[0]};
    return read_without_outputs("gpt_bytes", &options);
}

/* Takes logits in chunks, the last of which is smaller. */
static dtp_target chunking(void)
{
    dtp_target t = dtp_target_cpu;
    t.loss_chunk = 5 * VOCAB * 4;
    return t;
}

static void test_fuse__losses_in_chunks(void **state)
{
    (void)state;
    const dtp_target fused = chunking();
    dtp_graph *g = with_large_logits();
    check_loss(g, "x:1", "", &fused, (int64_t)BATCH * LENGTH * VOCAB * 4);
    check_loss(g, "x:2", "batch:x", &fused, (int64_t)BATCH * LENGTH * VOCAB * 2);
    assert_true(compare(g, "x:1", "", &fused, 1e-6) < 1e-10);
    assert_true(compare(g, "x:2", "batch:x", &fused, 1e-6) < 1e-10);
    assert_true(compare(g, "x:2", "length:x", &fused, 1e-6) < 1e-10);
    for (int32_t k = 0; k < 2; k++) {
        dtp_graph *half = in_bf16(g, k == 0 ? DTP_BF16 : DTP_F32);
        assert_true(compare(half, "x:2", "batch:x", &fused, 4e-3) < 1e-4);
        dtp_graph_destroy(half);
    }
    dtp_graph_destroy(g);
}

/* The loss comes into being in the backward pass: what reads it earlier, the sum over microbatches
 * and the product with the loss scale of f16, comes behind. */
static void test_fuse__readers_of_the_loss_move_behind(void **state)
{
    (void)state;
    const dtp_target fused = chunking();
    const dtp_precision f16 = {.compute = DTP_F16, .gradients = DTP_F16};
    dtp_graph *g = with_large_logits(), *parts = NULL, *scaled = NULL;
    dtp_err err = {0};
    must(dtp_graph_microbatched(g, -1, 2, &parts, &err), &err);
    must(dtp_graph_with_precision(g, &f16, &scaled, &err), &err);
    const struct {
        const dtp_graph *g;
        const char *mesh, *rules;
        double losses, params;
    } rows[] = {{parts, "x:1", "", 1e-6, 1e-10},
                {parts, "x:2", "batch:x", 1e-6, 1e-10},
                {scaled, "x:2", "batch:x", 4e-3, 1e-4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        job_program p;
        must(job_lower(rows[i].g, rows[i].mesh, rows[i].rules, &fused, &p, &err), &err);
        assert_int_equal(count(p.program, "linear_loss_grad"), 1);
        job_program_free(&p);
        assert_true(compare(rows[i].g, rows[i].mesh, rows[i].rules, &fused, rows[i].losses) <
                    rows[i].params);
    }
    dtp_graph_destroy(scaled);
    dtp_graph_destroy(parts);
    dtp_graph_destroy(g);
}

/* Losses of linear layers a and b, and a total of them. */
static void check_total(const char *total, int32_t kernels)
{
    const dtp_target fused = chunking();
    char text[2048];
    dtp_graph *g = NULL;
    job_program p;
    dtp_err err = {0};
    (void)snprintf(
        text, sizeof text,
        "{\"format\": \"dtp.model/1\", \"name\": \"t\", \"dims\": {\"b\": 48, \"f\": 3, \"c\": %d},"
        "\"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"]},"
        "\"y\": {\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": \"c\"}},"
        "\"params\": {\"u\": {\"dims\": [\"f\"], \"init\": \"ones\"},"
        "\"v\": {\"dims\": [\"f\", \"c\"], \"init\": {\"normal\": 0.1}},"
        "\"w\": {\"dims\": [\"c\", \"f\"], \"init\": {\"normal\": 0.1}}}, \"nodes\": ["
        "{\"id\": \"h\", \"op\": \"mul\", \"in\": [\"x\", \"u\"]},"
        "{\"id\": \"la\", \"op\": \"einsum\", \"in\": [\"h\", \"v\"], \"out\": [\"b\", \"c\"]},"
        "{\"id\": \"lb\", \"op\": \"einsum\", \"in\": [\"h\", \"w\"], \"out\": [\"b\", \"c\"]},"
        "{\"id\": \"a\", \"op\": \"cross_entropy\", \"in\": [\"la\", \"y\"], \"over\": \"c\","
        " \"reduce\": \"mean\"},"
        "{\"id\": \"b\", \"op\": \"cross_entropy\", \"in\": [\"lb\", \"y\"], \"over\": \"c\","
        " \"reduce\": \"sum\"}, %s],"
        "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.01}}}}",
        VOCAB, total);
    must(dtp_model_parse("t", text, strlen(text), NULL, &g, &err), &err);
    must(job_lower(g, "x:2", "b:x", &fused, &p, &err), &err);
    must(dtp_program_check(p.program, &err), &err);
    assert_int_equal(count(p.program, "linear_loss_grad"), kernels);
    assert_int_equal(count(p.program, "cross_entropy"), 2 - kernels);
    job_program_free(&p);
    assert_true(compare(g, "x:2", "b:x", &fused, 1e-6) < 1e-10);
    dtp_graph_destroy(g);
}

/* A loss whose gradient needs the loss itself, or another one that does, keeps its logits. */
static void test_fuse__losses_that_need_each_other(void **state)
{
    (void)state;
    check_total("{\"id\": \"loss\", \"op\": \"add\", \"in\": [\"a\", \"b\"]}", 2);
    check_total("{\"id\": \"s\", \"op\": \"square\", \"in\": [\"a\"]},"
                "{\"id\": \"loss\", \"op\": \"add\", \"in\": [\"s\", \"b\"]}",
                1);
    check_total("{\"id\": \"loss\", \"op\": \"mul\", \"in\": [\"a\", \"b\"]}", 1);
}

/* gpt2_small lists its logits: they are whole unless outputs are left out, and on a target without
 * losses in chunks they are there for the step only. */
static void test_fuse__outputs_keep_logits_whole(void **state)
{
    (void)state;
    static const dtp_dim_override dims[] = {{"batch", 4 * BATCH}};
    const dtp_model_options options = {.size = sizeof options, .overrides = dims, .n_overrides = 1};
    static const dtp_target *const targets[] = {&dtp_target_cpu, &dtp_target_cuda};
    dtp_graph *g = NULL, *none = read_without_outputs("gpt2_small", &options);
    dtp_err err = {0};
    must(dtp_model_read(DTP_SOURCE_DIR "/models/gpt2_small.json", &options, &g, &err), &err);
    const int64_t logits = dtp_ttype_bytes(&g->tensors[dtp_graph_find(g, "logits")].type);
    for (size_t t = 0; t < sizeof targets / sizeof targets[0]; t++) {
        job_program all, least;
        const bool chunks = targets[t]->loss_chunk > 0;
        must(job_lower(g, "x:1", "", targets[t], &all, &err), &err);
        must(job_lower(none, "x:1", "", targets[t], &least, &err), &err);
        assert_int_equal(count(all.program, "linear_loss_grad"), 0);
        assert_int_equal(count(least.program, "linear_loss_grad"), chunks ? 1 : 0);
        assert_true(least.program->peak_bytes <= all.program->peak_bytes - logits / 2);
        job_program_free(&all);
        job_program_free(&least);
    }
    dtp_graph_destroy(g);
    dtp_graph_destroy(none);
}

/* The fused kernels of a row are there. */
static void check_kernels(const row *r, int32_t k, const dtp_program *p)
{
    const int32_t two = count(p, "fused_elementwise2"), one = count(p, "fused_elementwise");
    const int32_t norms = count(p, "fused_layer_norm") + count(p, "fused_rms_norm");
    const int32_t products = count(p, "fused_product"), products_two = count(p, "fused_product2");
    const int32_t sums = count(p, "fused_product_sum"), operands = count(p, "fused_operand_sum");
    print_message("%s on %s, '%s': %d and %d expressions, %d norms, %d, %d, %d and %d products\n",
                  r->model, r->mesh, r->rules, one, two, norms, products, products_two, sums,
                  operands);
    if (k == 1) {
        assert_true(two >= r->two && one >= r->one && norms >= r->norms);
        assert_int_equal(products + products_two + sums + operands, 0);
    } else if (k == 2) {
        assert_int_equal(products, r->products);
        assert_int_equal(products_two, r->products_two);
        assert_int_equal(sums, r->sums);
        assert_int_equal(operands, r->operands);
    } else {
        assert_int_equal(one + two + norms + products + products_two + sums + operands, 0);
    }
}

/* Fused kernels are there, the checker takes them, they cost less and need no more memory. */
static void test_fuse__programs_are_cheaper_and_no_larger(void **state)
{
    (void)state;
    dtp_err err = {0};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        const row *r = &ROWS[i];
        small_pricer prices = small_pricer_read("a100_8", r->mesh);
        dtp_graph *g = small_model_read(small_model_find(r->model), false);
        double before = 0.0;
        int64_t peak = 0;
        for (int32_t k = 0; k < TARGETS; k++) {
            const dtp_target target = fusing(k);
            job_program j;
            double sum = 0.0;
            must(job_lower(g, r->mesh, r->rules, &target, &j, &err), &err);
            const dtp_program *p = j.program;
            must(dtp_program_check(p, &err), &err);
            for (int32_t n = 0; n < p->n_instrs; n++) {
                sum += dtp_price_instr(&prices.pricer, p, &p->instrs[n]);
            }
            if (k > 0 && strcmp(r->mesh, "x:1") == 0) {
                double bound;
                small_pricer bounds = small_pricer_read("a100_8", r->mesh);
                bounds.pricer.target = &target;
                must(dtp_compute_bound(g, &bounds.pricer, &bound, NULL, &err), &err);
                print_message("bound %.4g s\n", bound);
                assert_true(bound > 0.5 * sum && bound <= sum);
                small_pricer_free(&bounds);
            }
            check_kernels(r, k, p);
            print_message("%.4g s, %lld B\n", sum, (long long)p->peak_bytes);
            assert_true(k == 0 || sum < before || (k == 2 && r->products == 0 && sum <= before));
            assert_true(k == 0 || p->peak_bytes <= peak);
            before = sum;
            peak = p->peak_bytes;
            job_program_free(&j);
        }
        dtp_graph_destroy(g);
        small_pricer_free(&prices);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fuse__f32_trains_to_the_bit),
        cmocka_unit_test(test_fuse__variants_train_to_the_bit),
        cmocka_unit_test(test_fuse__halves_train_within_rounding),
        cmocka_unit_test(test_fuse__gradients_are_made_in_f32),
        cmocka_unit_test(test_fuse__losses_in_chunks),
        cmocka_unit_test(test_fuse__readers_of_the_loss_move_behind),
        cmocka_unit_test(test_fuse__losses_that_need_each_other),
        cmocka_unit_test(test_fuse__outputs_keep_logits_whole),
        cmocka_unit_test(test_fuse__programs_are_cheaper_and_no_larger),
    };
    return cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
}
