/* dtrun regress: runs the jobs of a suite one after the other and says what moved. Step times are
 * judged as ratios to that of a reference case of the same run, so that a slow machine is no
 * regression. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/dtrun/options.h"
#include "tools/regress/suite.h"

static const suite_metric METRICS[] = {{"ratio", SUITE_NUMBER, true, true, 0.2},
                                       {"peak", SUITE_BYTES, true, true, 0.0},
                                       {"loss", SUITE_NUMBER, true, true, 0.001},
                                       {"step", SUITE_SECONDS, false, false, 0.0},
                                       {.name = NULL}};
enum { RATIO, PEAK, LOSS, STEP };

static dtp_status read_job(suite *s, suite_case *c, const dtp_json *root, dtp_err *err)
{
    const dtp_json *measured, *losses;
    DTP_TRY(dtp_json_get_kind(root, "measured", DTP_JSON_OBJECT, &measured, err));
    DTP_TRY(dtp_json_get_double(measured, "step_time_s", &c->now.values[STEP], err));
    DTP_TRY(dtp_json_get_double(measured, "peak_bytes", &c->now.values[PEAK], err));
    DTP_TRY(dtp_json_get_kind(root, "loss", DTP_JSON_ARRAY, &losses, err));
    const int32_t n = dtp_json_size(losses);
    if (n > 0) {
        DTP_TRY(dtp_json_double(dtp_json_at(losses, n - 1), &c->now.values[LOSS], err));
    }
    DTP_TRY(suite_add_options(s, c, err));
    return suite_add_fact(s, &c->now, SUITE_MODEL, "file", c->model, err);
}

/* Ratios of step times, once all cases have run. */
static dtp_status set_ratios(suite *s, dtp_err *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        suite_case *c = &s->cases[i];
        int32_t k = 0;
        if (c->reference == NULL) {
            continue;
        }
        while (k < s->n && strcmp(s->cases[k].name, c->reference) != 0) {
            k++;
        }
        if (k == s->n) {
            char why[300];
            (void)snprintf(why, sizeof why, "there is no case '%.200s' to refer to", c->reference);
            DTP_TRY(suite_case_fail(s, c, why, err));
            continue;
        }
        c->now.values[RATIO] = c->now.values[STEP] / s->cases[k].now.values[STEP];
    }
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    static const suite_kind kind = {"dtp.jobs/1", TOOL_RUN, METRICS};
    static const char *const before[] = {"run", "--quiet", "--json", NULL};
    suite_command *c = command;
    suite_run run = {.before = before,
                     .jobs = 1,
                     .quiet = c->source.quiet,
                     .read = read_job,
                     .finish = set_ratios};
    c->file = operands[0];
    return suite_perform(c, &kind, &run, err);
}

int dtrun_regress(int argc, char **argv)
{
    suite_command c = {0};
    const tool_call call = {TOOL_RUN_REGRESS, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    return code != 0 ? code : c.exit_code;
}
