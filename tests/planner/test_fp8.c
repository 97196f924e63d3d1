/* Prices of products in 8 bits, by target and machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cost_models/job.h"
#include "dtp/planner.h"
#include "cost_models/machine/machine.h"
#include "core/graph/graph.h"
#include "spmd/program/program.h"

/* Its products have their own rate where target and card have them, and not on another: there they
 * are those of bf16. Quantizations are paid, and what is kept is what bf16 keeps. */
static void test_fp8__has_its_rate(void **state)
{
    (void)state;
    static const struct {
        const char *target, *machine;
        bool quicker;
    } cases[] = {{"torch", "h100_64", true},
                 {"torch_compile", "h100_64", true},
                 {"cuda", "h100_64", false},
                 {"torch", "a100_8", false}};
    dtp_err err = {0};
    dtp_graph *model = NULL;
    dtp_mesh mesh;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/llama3_8b.json", NULL, &model, &err),
                     DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:4", &mesh, &err), DTP_OK);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char path[512];
        dtp_machine *machine = NULL;
        dtp_prediction p[2];
        (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/machines/%s.json",
                       cases[c].machine);
        assert_int_equal(dtp_machine_read(path, &machine, &err), DTP_OK);
        for (int i = 0; i < 2; i++) {
            dtp_job *job = NULL;
            dtp_job_options options = dtp_job_options_init();
            options.mesh = &mesh;
            options.rules = "batch:x";
            options.target = cases[c].target;
            options.machine = machine;
            options.precision = i == 0 ? "bf16" : "fp8";
            assert_int_equal(dtp_job_create(model, &options, &job, &err), DTP_OK);
            p[i] = *dtp_job_predicted(job);
            dtp_job_destroy(job);
        }
        const double bf16_s = p[0].compute_parts_s[DTP_COMPUTE_PRODUCTS],
                     fp8_s = p[1].compute_parts_s[DTP_COMPUTE_PRODUCTS];
        print_message("%s, %s: products %.4g and %.4g s\n", cases[c].target, cases[c].machine,
                      bf16_s, fp8_s);
        assert_true(cases[c].quicker ? fp8_s < 0.9 * bf16_s : fabs(fp8_s - bf16_s) < 1e-9 * bf16_s);
        assert_true(p[1].compute_parts_s[DTP_COMPUTE_MEMORY] >
                    p[0].compute_parts_s[DTP_COMPUTE_MEMORY]);
        assert_true((double)p[1].peak_bytes < 1.1 * (double)p[0].peak_bytes);
        dtp_machine_destroy(machine);
    }
    dtp_graph_destroy(model);
}

/* Bytes of all-gathers with tensor parallelism and sequences split between the products. */
static int64_t gathered(const dtp_graph *model, const dtp_machine *machine, const char *target,
                        const char *precision)
{
    static const char *const styles[] = {
        "layers.*.attn.{q,k,v}: colwise(tp)", "layers.*.attn.out: rowwise(tp, output=length)",
        "layers.*.mlp.{gate,up}: colwise(tp)", "layers.*.mlp.out: rowwise(tp, output=length)",
        "{layers.*.norm_*,norm_f}: sequence(tp)"};
    dtp_plan_options o = dtp_plan_options_init();
    dtp_plan_result r = {0};
    dtp_mesh mesh;
    dtp_err err = {0};
    assert_int_equal(dtp_mesh_parse("tp:4", &mesh, &err), DTP_OK);
    o.mode = DTP_PLAN_PINS;
    o.mesh = &mesh;
    o.styles = styles;
    o.n_styles = (int32_t)(sizeof styles / sizeof *styles);
    o.precision = precision;
    o.target = target;
    o.alone = true;
    o.memory_limit_bytes = -1;
    if (dtp_plan_make(model, machine, &o, &r, &err) != DTP_OK) {
        fail_msg("%s, %s: %s", target, precision, err.msg);
    }
    const int64_t bytes = r.plan->predicted.collectives[DTP_ALL_GATHER].bytes;
    dtp_plan_result_free(&r);
    return bytes;
}

/* What is quantized is sent as 8-bit floats where the target has them, activations forward and
 * gradients backward: half of the bytes, but for what no quantized product of a block reads. */
static void test_fp8__is_sent_in_a_byte(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *model = NULL;
    dtp_machine *machine = NULL;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/llama3_8b.json", NULL, &model, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, &err), DTP_OK);
    const int64_t bf16 = gathered(model, machine, "torch", "bf16");
    const int64_t fp8 = gathered(model, machine, "torch", "fp8");
    const int64_t ours = gathered(model, machine, "cuda", "fp8");
    print_message("gathered in bf16 %.4g bytes, in fp8 %.4g, by target cuda %.4g\n", (double)bf16,
                  (double)fp8, (double)ours);
    assert_true((double)fp8 < 0.55 * (double)bf16 && (double)fp8 >= 0.5 * (double)bf16);
    assert_true(ours >= bf16);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp8__has_its_rate),
                                       cmocka_unit_test(test_fp8__is_sent_in_a_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
