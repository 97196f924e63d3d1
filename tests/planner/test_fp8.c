/* Prices of products in 8 bits, by target and machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "cost_models/job.h"
#include "cost_models/machine/machine.h"
#include "core/graph/graph.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp8__has_its_rate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
