/* Plans from styles and pins on virtual ranks against one device; the communication report of each
 * has the totals of the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "cost_models/comm_report.h"
#include "interop/counters.h"
#include "tests/support/plan_case.h"
#include "tests/support/plan_styles.h"

static const plan_model GPT = {
    .file = "models/gpt_bytes.json", .dims = "length=32 layers=2 batch=8", .text = true};
static const plan_model TRANSFORMER = {.file = "tests/planner/styles/transformer.json"};

#define TENSOR_PARALLEL                                                                            \
    PLAN_STYLES("{tok,pos}_embeddings: rowwise", "layers.*.attention.{wq,wk,wv}: colwise",         \
                "layers.*.attention.wo: rowwise", "layers.*.feed_forward.w1: colwise",             \
                "layers.*.feed_forward.w2: rowwise", "output: colwise(output=replicated)")

static const plan_row OF_TRANSFORMER[] = {
    {.mesh = "tp:2", .machine = "a100_8", .options = {PINS_MODE, TENSOR_PARALLEL, .strict = true}},
    {.mesh = "tp:2", .machine = "a100_8", .options = {PINS_MODE, TENSOR_PARALLEL, .torch = true}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_PINS("tokens: batch@x", "h0: batch@x", "output.weight: vocab@x")}},
};

static const plan_row OF_GPT[] = {
    {.mesh = "dp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**: data", "**: fsdp"), .strict = true}},
    {.mesh = "dp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**: data", "**: zero2")}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, .n_style_files = 1,
                 .style_files =
                     (const char *const[]){DTP_SOURCE_DIR "/models/styles/gpt_bytes.tp.json"},
                 .n_style_names = 8,
                 .style_names = (const char *const[]){"self_attn=attn", "q_proj=q", "k_proj=k",
                                                      "v_proj=v", "o_proj={mm,out}", "up_proj=up",
                                                      "down_proj={down,out}", "lm_head=logits"}}},
    {.mesh = "cp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("layers.*.attn: context(ring)"),
                 PLAN_PINS("x0: length@cp")}},
    {.mesh = "cp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("layers.*.attn: context(gather)"),
                 PLAN_PINS("x0: length@cp")}},
    {.mesh = "dp:2;cp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**: data", "layers.*.attn: context(cp, ring)"),
                 PLAN_PINS("x0: batch@dp, length@cp")}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE,
                 PLAN_STYLES("layers.*.attn.{q,k,v}: colwise", "layers.*.mlp.up: colwise",
                             "layers.*.attn.{mm,out}: rowwise(output=length)",
                             "layers.*.mlp.{down,out}: rowwise(output=length)",
                             "{layers.*.ln_*,ln_f}: sequence")}},
};

/* Totals of the report are those of the plan, and as many collectives are listed. */
static void check_report(const dtp_program *program, const dtp_plan *plan, const char *what)
{
    dtp_comm_report report;
    dtp_counters counters;
    int64_t all = 0;
    dtp_arena *arena = dtp_arena_create();
    assert_non_null(arena);
    assert_int_equal(dtp_comm_report_make(program, arena, &report, NULL), DTP_OK);
    for (int32_t k = 0; k < DTP_N_COLL_TOTALS; k++) {
        const dtp_coll_total *planned = &plan->predicted.collectives[k];
        dtp_comm_amount sum = {0};
        for (int32_t i = 0; i < report.n_totals; i++) {
            const dtp_comm_total *total = &report.totals[i];
            const bool same = strcmp(dtp_coll_name(total->kind), planned->kind) == 0;
            sum.count += same ? total->sum.count : 0;
            sum.bytes += same ? total->sum.bytes : 0;
        }
        if (sum.count != planned->count || sum.bytes != planned->bytes) {
            fail_msg("%s: other totals of %s than the plan's", what, planned->kind);
        }
        all += sum.count;
    }
    assert_int_equal(report.n_entries, all);
    assert_int_equal(dtp_counters_of(program, arena, &counters, NULL), DTP_OK);
    const double unique = dtp_counters_get(&counters, "einsum_unique");
    assert_true(unique > 0 && dtp_counters_get(&counters, "einsum") >= unique);
    dtp_arena_destroy(arena);
}

static void verify_rows(const plan_model *of, size_t n, const plan_row *rows)
{
    one_device d;
    one_device_open(of, &d);
    for (size_t i = 0; i < n; i++) {
        const char *what = plan_name(&d, &rows[i]);
        dtp_plan *plan = plan_make(&d, &rows[i]);
        dtp_job_options options = dtp_job_options_init();
        dtp_job *job = NULL;
        options.plan = plan;
        assert_false(plan->rules_mode);
        assert_string_equal(plan->certificate.solver, "propagation");
        assert_int_equal(plan->redistribution == DTP_REDISTRIBUTION_TORCH, rows[i].options.torch);
        assert_int_equal(dtp_job_create(d.model, &options, &job, NULL), DTP_OK);
        check_report(job->program, plan, what);
        dtp_job_destroy(job);
        dtp_verify_result r = plan_verify(&d, plan, what);
        (void)plan_run(&d, plan, what);
        dtp_verify_result_free(&r);
        dtp_plan_destroy(plan);
    }
    one_device_close(&d);
}

static void test_styles__of_a_transformer(void **unused)
{
    (void)unused;
    verify_rows(&TRANSFORMER, sizeof OF_TRANSFORMER / sizeof OF_TRANSFORMER[0], OF_TRANSFORMER);
}

static void test_styles__of_the_byte_level_gpt(void **unused)
{
    (void)unused;
    verify_rows(&GPT, sizeof OF_GPT / sizeof OF_GPT[0], OF_GPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_styles__of_a_transformer),
        cmocka_unit_test(test_styles__of_the_byte_level_gpt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
