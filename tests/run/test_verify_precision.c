/* Plans in mixed precision, from rules, styles and the planner, alone and with recomputation and
 * microbatches: each is verified on virtual ranks against one device in the same precision, and run
 * with the predicted peak and the predicted number of collectives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "tests/support/plan_case.h"
#include "tests/support/plan_styles.h"

#define SMALL "length=8 heads=2 d_head=4 batch=4 layers=2 vocab=256"
#define ALIGNED "length=8 heads=2 d_head=8 batch=4 layers=2 vocab=256" /* 16 divides all sizes */

static const plan_row BF16[] = {
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "batch:x"}},
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "length:x"}},
    {.mesh = "x:2;y:2", .machine = "a100_8", .options = {.mode = DTP_PLAN_TENSOR, .threads = 1}},
    {.mesh = "x:4",
     .machine = "a100_8",
     .options = {.mode = DTP_PLAN_TENSOR,
                 .objective = DTP_OBJECTIVE_MEMORY,
                 .threads = 1,
                 .microbatches = "2",
                 .remat = "layer"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero2")}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = "all"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero1"), .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero2"), .remat = "all",
                 .microbatches = "2"}},
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {PINS_MODE,
                 PLAN_STYLES("layers.*.mlp.up.mm:colwise(y)", "layers.*.mlp.down.mm:rowwise(y)",
                             "**:data(x)", "**:zero1(x)"),
                 .remat = "layer:1", .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = "all",
                 .microbatches = "2"}},
    {.mesh = "tp:2", .machine = "a100_8", .options = {PINS_MODE, SEQUENCE_PARALLEL}},
    {.mesh = "cp:2", .machine = "a100_8", .options = {PINS_MODE, RING_PARALLEL}},
};
static const plan_row BF16_AND_F32[] = {
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x", .remat = "all", .microbatches = "2"}},
};
static const plan_row F16[] = {
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x;heads:y;d_ff:y;vocab:y",
                 .remat = "layer:0",
                 .microbatches = "2"}},
};
static const plan_row F16_AND_F32[] = {
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero2"), .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .microbatches = "2"}},
};

/* The scale is that of all ranks' elements; a microbatch has its own. */
static const plan_row FP8[] = {
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "batch:x"}},
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "heads:x;d_ff:x"}},
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x;heads:y;d_ff:y;vocab:y"}},
    {.mesh = "x:2;y:2", .machine = "a100_8", .options = {.mode = DTP_PLAN_TENSOR, .threads = 1}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = "all",
                 .microbatches = "2"}},
};

static void verify_rows(const char *precision, const char *dims, size_t n, const plan_row *rows)
{
    one_device d;
    one_device_open(&(plan_model){.file = "models/gpt_bytes_dropout.json",
                                  .dims = dims,
                                  .precision = precision,
                                  .backend = "ref",
                                  .text = true},
                    &d);
    for (size_t i = 0; i < n; i++) {
        const char *what = plan_name(&d, &rows[i]);
        dtp_plan *plan = plan_make(&d, &rows[i]);
        dtp_verify_result r = plan_verify(&d, plan, what);
        (void)plan_run(&d, plan, what);
        dtp_verify_result_free(&r);
        dtp_plan_destroy(plan);
    }
    one_device_close(&d);
}

static void test_plans__in_16_bits(void **unused)
{
    (void)unused;
    verify_rows("bf16", SMALL, sizeof BF16 / sizeof BF16[0], BF16);
    verify_rows("bf16,gradients=f32", SMALL, sizeof BF16_AND_F32 / sizeof BF16_AND_F32[0],
                BF16_AND_F32);
    verify_rows("f16", SMALL, sizeof F16 / sizeof F16[0], F16);
    verify_rows("f16,gradients=f32", SMALL, sizeof F16_AND_F32 / sizeof F16_AND_F32[0],
                F16_AND_F32);
}

static void test_plans__in_8_bit_products(void **unused)
{
    (void)unused;
    verify_rows("fp8", ALIGNED, sizeof FP8 / sizeof FP8[0], FP8);
    verify_rows("fp8,gradients=f32", ALIGNED, 1, &FP8[2]);
    verify_rows("fp8_row", ALIGNED, sizeof FP8 / sizeof FP8[0], FP8);
}

/* ---- what is sent ---- */

typedef struct sent {
    const char *style, *precision;
    dtp_coll_kind kind;
    const char *forward, *backward; /* element types, "": none */
} sent;

static const sent SENT[] = {
    {"**:fsdp", "bf16", DTP_ALL_GATHER, "bf16 ", "bf16 "},
    {"**:fsdp", "bf16", DTP_REDUCE_SCATTER, "", "bf16 "},
    {"**:fsdp", "bf16,gradients=f32", DTP_ALL_GATHER, "bf16 ", "bf16 "},
    {"**:fsdp", "bf16,gradients=f32", DTP_REDUCE_SCATTER, "", "f32 "},
    {"**:zero2", "f16", DTP_REDUCE_SCATTER, "", "f16 "},
    {"**:zero1", "bf16", DTP_ALL_REDUCE, "f32 ", "bf16 "},
};

/* The element types of the collectives of a kind in a phase, each once, in the order of types. */
static void types_of(const dtp_program *p, dtp_coll_kind kind, dtp_phase phase, char out[64])
{
    out[0] = '\0';
    for (int t = 0; t < DTP_N_DTYPES; t++) {
        bool found = false;
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const dtp_instr *instr = &p->instrs[i];
            found = found || (instr->kind == DTP_INSTR_START && instr->phase == phase &&
                              instr->coll.kind == kind && instr->coll.dtype == (dtp_dtype)t);
        }
        const size_t n = strlen(out);
        (void)snprintf(out + n, 64 - n, "%s%s", found ? dtp_dtype_name((dtp_dtype)t) : "",
                       found ? " " : "");
    }
}

/* FSDP and data parallelism send parameters in 16 bits, gradients in 16 bits or in f32. */
static void test_plans__send_16_bits(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof SENT / sizeof SENT[0]; i++) {
        const sent *c = &SENT[i];
        const plan_row row = {.mesh = "x:2",
                              .options = {PINS_MODE, PLAN_STYLES("**:data", c->style)}};
        char types[64];
        dtp_job_options options = dtp_job_options_init();
        dtp_job *job = NULL;
        one_device d;
        one_device_open(&(plan_model){.file = "models/gpt_bytes.json",
                                      .dims = SMALL,
                                      .precision = c->precision,
                                      .backend = "ref"},
                        &d);
        dtp_plan *plan = plan_make(&d, &row);
        options.plan = plan;
        assert_int_equal(dtp_job_create(d.model, &options, &job, NULL), DTP_OK);
        types_of(job->program, c->kind, DTP_FORWARD, types);
        assert_string_equal(types, c->forward);
        types_of(job->program, c->kind, DTP_BACKWARD, types);
        assert_string_equal(types, c->backward);
        dtp_job_destroy(job);
        dtp_plan_destroy(plan);
        one_device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__in_16_bits),
        cmocka_unit_test(test_plans__in_8_bit_products),
        cmocka_unit_test(test_plans__send_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
