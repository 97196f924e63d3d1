/* Plans with recomputed blocks and microbatches, from rules and from styles: each is verified on
 * virtual ranks against the unchanged model on one device, and run with the predicted peak, the
 * predicted number of collectives and the same loss as the others. Plans that keep fewer outputs:
 * the peak is lower than with all, losses are the same to the bit, what is kept is verified, and
 * what is not cannot be fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "tests/support/plan_case.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_styles.h"
#include "tests/support/quarter.h"

#define SMALL "length=16 heads=4 batch=8 layers=2"

static const plan_row SAVING[] = {
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "batch:x"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x", .remat = "all", .microbatches = "4"}},
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x;heads:y;d_ff:y;vocab:y",
                 .remat = "layer:0",
                 .microbatches = "2"}},
    {.machine = "a100_8",
     .options = {.devices = 4,
                 .objective = DTP_OBJECTIVE_MEMORY,
                 .remat = "layer",
                 .microbatches = "batch=2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data"), .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero1"), .microbatches = "4"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero2"), .remat = "all",
                 .microbatches = "4"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = "all",
                 .microbatches = "2"}},
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {PINS_MODE,
                 PLAN_STYLES("layers.*.mlp.up.mm:colwise(y)", "layers.*.mlp.down.mm:rowwise(y)",
                             "**:data(x)", "**:zero2(x)"),
                 .microbatches = "4"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE,
                 PLAN_STYLES("layers.*.mlp.up.mm:colwise", "layers.*.mlp.down.mm:rowwise"),
                 .remat = "layer:1", .microbatches = "2"}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .remat = "all", .microbatches = "2"}},
    {.mesh = "cp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, RING_PARALLEL, .remat = "all", .microbatches = "2"}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .regather = "all"}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .regather = "params,layers.*.ln_?"}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .regather = "none", .microbatches = "2",
                 .remat = "layer keep=layers.*.ln_?"}},
    {.mesh = "tp:2",
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .remat = "layer keep=layers.*.ln_?"}},
    {.mesh = "tp:2", /* decided, so that it fits */
     .machine = "a100_8",
     .options = {PINS_MODE, SEQUENCE_PARALLEL, .memory_limit_bytes = 16 << 20}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .regather = "none",
                 .microbatches = "2"}},
    {.mesh = "x:4",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .precision = "bf16",
                 .regather = "all"}},
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x;heads:y;d_ff:y;vocab:y", .regather = "all"}},
};

static void test_plans__that_save_memory(void **unused)
{
    (void)unused;
    plan_losses first = {{0}};
    one_device d;
    one_device_open(
        &(plan_model){.file = "models/gpt_bytes_dropout.json", .dims = SMALL, .text = true}, &d);
    for (size_t i = 0; i < sizeof SAVING / sizeof SAVING[0]; i++) {
        const char *what = plan_name(&d, &SAVING[i]);
        dtp_plan *plan = plan_make(&d, &SAVING[i]);
        dtp_verify_result r = plan_verify(&d, plan, what);
        const plan_losses losses = plan_run(&d, plan, what);
        first = i == 0 ? losses : first;
        plan_losses_near(&losses, &first, 2e-6, what);
        dtp_verify_result_free(&r);
        dtp_plan_destroy(plan);
    }
    one_device_close(&d);
}

/* ---- what is gathered again ---- */

static int64_t prove_again(const one_device *d, const plan_row *row, bool decided)
{
    const char *what = plan_name(d, row);
    dtp_plan *plan = plan_make(d, row);
    const int64_t peak = plan->predicted.peak_bytes;
    dtp_verify_result r = plan_verify(d, plan, what);
    (void)plan_run(d, plan, what);
    if (decided && (plan->variant.regather == NULL || peak > row->options.memory_limit_bytes)) {
        fail_msg("%s: nothing is gathered again, or too little: %lld bytes", what, (long long)peak);
    }
    dtp_verify_result_free(&r);
    dtp_plan_destroy(plan);
    return peak;
}

/* Tensor and sequence parallelism of four models: all copies kept, all gathered again, and as many
 * as a limit between the two needs. */
static void test_plans__that_gather_again(void **unused)
{
#define LONG "batch=4 layers=6 length=128 "
#define LLAMA_SP                                                                                   \
    "layers.*.attn.{q.mm,k.mm,v}:colwise(y,dim=kv_heads)",                                         \
        "layers.*.attn.out:rowwise(y,dim=kv_heads,output=length)",                                 \
        "{layers.*.norm_*,norm_f}$:sequence(y)"
#define GPT_SP                                                                                     \
    "layers.*.{attn.{q,k,v}*,mlp.up*}:colwise(y)",                                                 \
        "layers.*.{attn.mm,mlp.down.mm}:rowwise(y,output=length)", "layers.*.ln_*:sequence(y)"
    static const struct {
        plan_model model;
        const char *styles[4];
    } cases[] = {
        {{.file = "models/gpt_bytes.json", .dims = LONG "heads=4 d_head=8", .text = true},
         {GPT_SP}},
        {{.file = "models/llama3_8b.json",
          .dims = LONG "vocab=32 kv_heads=4 group=1 d_head=4 d_ff=24"},
         {LLAMA_SP}},
        {{.file = "models/mixtral_8x7b.json",
          .dims = LONG "vocab=32 kv_heads=4 group=1 d_head=4 d_ff=24 experts=4 capacity=16"},
         {LLAMA_SP}},
        {{.file = "models/bert_large.json", .dims = LONG "heads=4 d_head=4 vocab=62"}, {GPT_SP}},
    };
    static const char *const meshes[] = {"y:2", "y:4", "x:2;y:2"};
    int32_t ran = 0;
    (void)unused;
    for (int32_t i = 0; i < 12; i++) {
        const char *styles[4] = {NULL, NULL, NULL, "**:data(x)"};
        one_device d;
        if (!quarter_has(i, 12)) {
            continue;
        }
        memcpy(styles, cases[i % 4].styles, 3 * sizeof *styles);
        plan_model model = cases[i % 4].model;
        model.backend = "cpu";
        one_device_open(&model, &d);
        plan_row row = {.mesh = meshes[i / 4],
                        .machine = "a100_8",
                        .options = {PINS_MODE, .styles = styles, .regather = "none"}};
        row.options.n_styles = i / 4 == 2 ? 4 : 3;
        const int64_t kept = prove_again(&d, &row, false);
        row.options.regather = "all";
        const int64_t again = prove_again(&d, &row, false);
        row.options.regather = NULL;
        row.options.memory_limit_bytes = (kept + again) / 2;
        (void)prove_again(&d, &row, true);
        assert_true(again < kept);
        ran++;
        one_device_close(&d);
    }
    assert_true(ran >= quarter_of(12));
}

/* ---- what is kept ---- */

/* Selective recomputation of three models, verified as dtrun does, in microbatches too. */
static void test_plans__that_keep_results(void **unused)
{
    static const struct {
        plan_model of;
        const char *remat;
    } models[] = {
        {{.file = "models/gpt_bytes_dropout.json", .dims = SMALL, .text = true},
         "layer:0 keep=**.{attn,attn.mm,mlp.up.mm}$;layer:1"},
        {{.file = "models/llama3_8b.json", .dims = SMALL_LLAMA},
         "layer keep=**.{attn.q.mm,attn.v,attn,mlp.gate.mm,mlp.out}$"},
        {{.file = "models/llama3_8b.json", .dims = SMALL_LLAMA, .precision = "bf16"},
         "all keep=layers.*.{norm_1,attn.*,x1,norm_2,mlp}"},
        {{.file = "models/mixtral_8x7b.json", .dims = SMALL_LLAMA "experts=4 capacity=3"},
         "all keep=**.attn$"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        one_device d;
        one_device_open(&models[i].of, &d);
        for (int parts = 1; parts <= 2; parts++) {
            const plan_row rows[] = {
                {.mesh = "x:2;y:2",
                 .machine = "a100_8",
                 .options = {.rules = "batch:x;d_ff:y",
                             .remat = models[i].remat,
                             .microbatches = parts > 1 ? "2" : NULL}},
                {.mesh = "dp:2",
                 .machine = "a100_8",
                 .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = models[i].remat,
                             .microbatches = parts > 1 ? "2" : NULL}}};
            for (int k = 0; k < (i == 3 ? 1 : 2); k++) {
                const char *what = plan_name(&d, &rows[k]);
                dtp_plan *plan = plan_make(&d, &rows[k]);
                assert_non_null(strstr(plan->variant.remat.items[0], " keep="));
                dtp_verify_result r = plan_verify(&d, plan, what);
                dtp_verify_result_free(&r);
                (void)plan_run(&d, plan, what);
                dtp_plan_destroy(plan);
            }
        }
        one_device_close(&d);
    }
}

/* ---- outputs ---- */

static const plan_row OUTPUTS[] = {
    {.mesh = "x:1", .machine = "a100_8"},
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "batch:x"}},
    {.mesh = "x:2", .machine = "a100_8", .options = {.rules = "heads:x;d_ff:x;vocab:x"}},
    {.mesh = "x:2;y:2", .machine = "a100_8", .options = {.mode = DTP_PLAN_TENSOR, .threads = 1}},
    {.mesh = "x:2", .machine = "a100_8", .options = {PINS_MODE, PLAN_STYLES("**:data")}},
    {.mesh = "x:1", .machine = "a100_8", .options = {.remat = "layer:0"}},
};
static const plan_row OUTPUTS_BF16 = {
    .mesh = "x:2", .machine = "a100_8", .options = {.rules = "batch:x"}};

static dtp_plan *plan_with(const one_device *d, const plan_row *row, const char *outputs)
{
    plan_row with = *row;
    with.options.outputs = outputs;
    return plan_make(d, &with);
}

static void check_default(const one_device *d, const plan_row *row, const dtp_plan *all)
{
    dtp_plan *plan = plan_with(d, row, NULL);
    char *by_default = plan_text(d, plan), *text = plan_text(d, all);
    assert_string_equal(by_default, text);
    free(by_default);
    free(text);
    dtp_plan_destroy(plan);
}

/* Only the loss is compared; nothing else can be fetched. */
static void check_none(const one_device *d, const dtp_plan *none, const char *what)
{
    static const char *const logits[] = {"logits"};
    dtp_job_options options = dtp_job_options_init();
    dtp_job *job = NULL;
    dtp_err err = {0};
    int32_t compared = 0;
    dtp_verify_result r = plan_verify(d, none, what);
    for (int32_t i = 0; i < r.n; i++) {
        compared += r.items[i].kind == DTP_VERIFY_OUTPUT;
    }
    assert_int_equal(compared, 1);
    dtp_verify_result_free(&r);
    options.plan = none;
    options.n_fetch = 1;
    options.fetch = logits;
    assert_int_equal(dtp_job_create(d->model, &options, &job, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the output 'logits' is not kept"));
}

static void check_outputs(const one_device *d, const plan_row *row)
{
    const char *what = plan_name(d, row);
    dtp_plan *all = plan_with(d, row, "all"), *none = plan_with(d, row, "none");
    check_default(d, row, all);
    assert_false(all->variant.outputs.chosen);
    assert_true(none->variant.outputs.chosen && none->variant.outputs.n == 0);
    assert_true(all->model_hash == none->model_hash && all->machine_hash == none->machine_hash);
    if (none->predicted.peak_bytes >= all->predicted.peak_bytes) {
        fail_msg("%s: a peak as with all outputs", what);
    }
    const plan_losses with = plan_run(d, all, what), without = plan_run(d, none, what);
    plan_losses_near(&without, &with, 0, what);
    check_none(d, none, what);
    dtp_plan_destroy(all);
    dtp_plan_destroy(none);
}

static void test_plans__that_keep_no_outputs(void **unused)
{
    (void)unused;
    plan_model of = {
        .file = "models/gpt_bytes_dropout.json", .dims = SMALL " vocab=512", .text = true};
    one_device d;
    one_device_open(&of, &d);
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof OUTPUTS[0]; i++) {
        check_outputs(&d, &OUTPUTS[i]);
    }
    one_device_close(&d);
    of.precision = "bf16";
    one_device_open(&of, &d);
    check_outputs(&d, &OUTPUTS_BF16);
    one_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__that_save_memory),
        cmocka_unit_test(test_plans__that_gather_again),
        cmocka_unit_test(test_plans__that_keep_results),
        cmocka_unit_test(test_plans__that_keep_no_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
