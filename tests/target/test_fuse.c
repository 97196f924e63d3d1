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
#include "dtp/model.h"
#include "cost_models/price.h"
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

/* Trains on both targets; the relative error of the parameters. */
static double compare(const dtp_graph *g, const char *mesh_text, const char *rules,
                      const dtp_target *fused, double tolerance)
{
    const dtp_target *const targets[2] = {&dtp_target_cpu, fused};
    const int64_t n = param_count(g);
    double losses[2][STEPS];
    float *params[2];
    dtp_err err = {0};
    for (int32_t k = 0; k < 2; k++) {
        dtp_mesh mesh;
        params[k] = calloc((size_t)n, sizeof *params[k]);
        job j = {.g = g,
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
    assert_int_equal(count(p[1].program, "linear_loss"), 1);
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

static void test_fuse__losses_in_chunks(void **state)
{
    (void)state;
    enum { BATCH = 8, LENGTH = 16, VOCAB = 16384 };
    static const dtp_dim_override dims[] = {{"batch", BATCH}, {"length", LENGTH}, {"vocab", VOCAB},
                                            {"layers", 1},    {"heads", 2},       {"d_head", 2}};
    const dtp_model_options options = {
        .size = sizeof options, .overrides = dims, .n_overrides = sizeof dims / sizeof dims[0]};
    dtp_target fused = dtp_target_cpu;
    dtp_graph *g = NULL;
    dtp_err err = {0};
    fused.loss_chunk = 5 * VOCAB * 4; /* the last chunk is smaller */
    must(dtp_model_read(DTP_SOURCE_DIR "/models/gpt_bytes.json", &options, &g, &err), &err);
    g->n_outputs = 0; /* it lists its logits, which would have to survive the step */
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
        cmocka_unit_test(test_fuse__losses_in_chunks),
        cmocka_unit_test(test_fuse__programs_are_cheaper_and_no_larger),
    };
    return cmocka_run_group_tests_name("fuse", tests, NULL, NULL);
}
