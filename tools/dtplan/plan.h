/* Steps of dtplan plan, one file each: options (dtplan_plan.c), planning (dtplan_plan_run.c), what
 * is printed and written (dtplan_plan_print.c), Mesh TensorFlow's optimizer
 * (dtplan_plan_compat.c). */
#ifndef DTP_TOOLS_DTPLAN_PLAN_H
#define DTP_TOOLS_DTPLAN_PLAN_H

#include "planner/variant_search.h"
#include "tools/job.h"
#include "tools/styles.h"

typedef struct plan_command {
    tool_source source;
    const char *mode;                 /* NULL: what --style and --pin say, else rules */
    const char *remat, *microbatches; /* as given */
    const char *objective, *memory, *rules_file, *compat, *output;
    int64_t devices, candidates, seed, threads;
    double gap;
    int64_t limit_bytes; /* 0 = none */
    bool torch;          /* --compat torch */
    bool json, timings, verbose, comm_report, prices, unfold;
    tool_style_source styles;
    dtp_variant_search search; /* --remat auto, --microbatches auto */
    dtp_ctx ctx;
    int exit_code;
} plan_command;

/* --mode tensor. */
bool plan_is_tensor_mode(const plan_command *c);
/* Follows --style and --pin and searches nothing. */
bool plan_is_by_pins(const plan_command *c);

/* Plans the model's graph and prints and writes the result; what is infeasible sets the exit code.
 */
dtp_status plan_run(plan_command *c, const dtp_graph *g, const dtp_machine *machine,
                    const dtp_graph_variant *choices, dtp_err *err) DTP_MUST_CHECK;
/* --compat auto_mtf: reads the model, prints rules. */
dtp_status plan_run_compat(const plan_command *c, dtp_err *err) DTP_MUST_CHECK;

/* Writes and prints the plan of a result, or its communication report in its place. */
dtp_status plan_put(const plan_command *c, const dtp_plan_result *result, const dtp_graph *model,
                    dtp_err *err) DTP_MUST_CHECK;
/* Says on standard error why there is no plan, and the hint, which it frees. */
dtp_status plan_say_infeasible(const plan_command *c, const dtp_plan_result *result,
                               dtp_strbuf *hint, dtp_err *err) DTP_MUST_CHECK;

#endif
