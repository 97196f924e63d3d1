/* dtplan plan: chooses layouts and writes a plan. */
#include "tools/dtplan/plan.h"

#include <string.h>

#include "tools/dtplan/options.h"

bool plan_is_tensor_mode(const plan_command *c)
{
    return c->mode != NULL && strcmp(c->mode, "tensor") == 0;
}

bool plan_is_by_pins(const plan_command *c)
{
    return tool_styles_given(&c->styles) && !plan_is_tensor_mode(c);
}

/* Which options go together. */
static dtp_status check_mode(const plan_command *c, dtp_err *err)
{
    const bool by_pins = plan_is_by_pins(c);
    if (c->mode != NULL && strcmp(c->mode, "rules") != 0 && !plan_is_tensor_mode(c)) {
        return DTP_FAIL(err, DTP_INVALID, "--mode: '%s' is not rules or tensor", c->mode);
    }
    if (plan_is_tensor_mode(c) && (c->source.rules != NULL || c->torch || c->styles.strict)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--mode tensor takes pins by --pin and --style, and no --rules, --strict "
                        "or --compat");
    }
    if ((c->prices || c->unfold) && !plan_is_tensor_mode(c)) {
        return DTP_FAIL(err, DTP_INVALID, "%s is for --mode tensor",
                        c->prices ? "--prices" : "--unfold");
    }
    if (by_pins && c->mode != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--mode rules takes pins by --rules, not --style or --pin");
    }
    if (c->torch && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID, "--compat torch is for plans from --style and --pin");
    }
    if (by_pins && (c->source.mesh == NULL || c->source.rules != NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "--style and --pin need --mesh and no --rules");
    }
    if (by_pins && (c->search.remat || c->search.microbatches)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--remat auto and --microbatches auto are for --mode rules and tensor");
    }
    if (c->styles.strict && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID, "--strict is for plans from --style and --pin");
    }
    return DTP_OK;
}

/* Takes what is searched for out of the options that name choices. */
static void find_searched(plan_command *c)
{
    c->search.remat = c->remat != NULL && strcmp(c->remat, "auto") == 0;
    c->search.microbatches = c->microbatches != NULL && strcmp(c->microbatches, "auto") == 0;
    c->source.remat = c->search.remat ? NULL : c->remat;
    c->source.microbatches = c->search.microbatches ? NULL : c->microbatches;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    plan_command *c = command;
    dtp_graph *g = NULL;
    dtp_graph_variant choices;
    dtp_machine *machine = NULL;
    c->source.model = operands[0];
    c->ctx.level = c->verbose ? DTP_LOG_INFO : DTP_LOG_WARN;
    c->torch = c->compat != NULL && strcmp(c->compat, "torch") == 0;
    if (c->compat != NULL && !c->torch) {
        return plan_run_compat(c, err);
    }
    find_searched(c);
    DTP_TRY(check_mode(c, err));
    if ((c->source.mesh != NULL) == (c->devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "give either --mesh MESH or --devices N");
    }
    if (c->source.machine == NULL && !plan_is_by_pins(c)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--machine FILE is missing ('dtrun bench -o FILE' measures this machine)");
    }
    DTP_TRY(tool_read_graph(&c->source, &g, err));
    dtp_status s =
        c->source.machine != NULL ? dtp_machine_read(c->source.machine, &machine, err) : DTP_OK;
    dtp_arena *arena = dtp_arena_create();
    if (s == DTP_OK) {
        s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory")
                          : tool_read_choices(&c->source, g, arena, &choices, err);
    }
    if (s == DTP_OK) {
        s = plan_run(c, g, machine, &choices, err);
    }
    dtp_arena_destroy(arena);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
    return s;
}

int dtplan_plan(int argc, char **argv)
{
    plan_command c = {.objective = "time", .candidates = 6, .seed = 1, .threads = 2, .gap = 0.001};
    const tool_option options[] = {
        {"--mesh", TOOL_STRING, "MESH", &c.source.mesh, 0, 0, "mesh such as 'x:2;y:2'"},
        {"--devices", TOOL_INT, "N", &c.devices, 1, 1 << 20, "search the mesh shape for N devices"},
        {"--machine", TOOL_STRING, "FILE", &c.source.machine, 0, 0,
         "machine file; plans that follow --style and --pin need none and then say no times"},
        {"--mode", TOOL_STRING, "MODE", &c.mode, 0, 0,
         "rules (default): layout rules; tensor: a layout per tensor. Without it --style and --pin "
         "are followed, nothing is searched"},
        {"--objective", TOOL_STRING, "WHAT", &c.objective, 0, 0, "time (default) or memory"},
        {"--memory", TOOL_STRING, "BYTES", &c.memory, 0, 0,
         "memory limit per rank, such as 80G, or none (default: the device's memory)"},
        {"--rules", TOOL_STRING, "RULES", &c.source.rules, 0, 0, "pins: splits that must hold"},
        TOOL_STYLE_OPTIONS(c.styles),
        {"--strict", TOOL_FLAG, NULL, &c.styles.strict, 0, 0,
         "operands may be sent only where a style or pin asked for it"},
        {"--remat", TOOL_STRING, "BLOCKS", &c.remat, 0, 0,
         "recompute blocks in the backward pass: none, all, names such as 'layer' or 'layer:0-3', "
         "or auto"},
        {"--microbatches", TOOL_STRING, "N", &c.microbatches, 0, 0,
         "run a step as N parts of the batch, such as 4 or 'batch=4', or auto"},
        {"--comm-report", TOOL_FLAG, NULL, &c.comm_report, 0, 0,
         "print what the plan communicates, and why, in place of the plan"},
        {"--rules-file", TOOL_STRING, "FILE", &c.rules_file, 0, 0,
         "hand-written baselines (default: MODEL.rules.json when there is one)"},
        {"--candidates", TOOL_INT, "N", &c.candidates, 1, 8,
         "near-optimal plans compared by their timeline (default 6)"},
        {"--prices", TOOL_FLAG, NULL, &c.prices, 0, 0,
         "say what the memory limit and every pin cost (tensor mode; solves again for each)"},
        {"--unfold", TOOL_FLAG, NULL, &c.unfold, 0, 0,
         "every instance of a repeated block decides for itself (tensor mode; slow)"},
        {"--seed", TOOL_INT, "N", &c.seed, 0, 9e15, "of the solver of tensor mode (default 1)"},
        {"--gap", TOOL_REAL, "G", &c.gap, 0, 1,
         "of large problems in tensor mode: cost and bound may differ by this share (default "
         "0.001)"},
        {"--threads", TOOL_INT, "N", &c.threads, 1, 256,
         "of the solver of tensor mode (default 2); the plan does not depend on them"},
        {"--compat", TOOL_STRING, "WHAT", &c.compat, 0, 0,
         "torch: --style and --pin as PyTorch DTensor decides; auto_mtf: Mesh TensorFlow's layout "
         "optimizer, reproduced"},
        {"--dim", TOOL_LIST, "NAME=N", &c.source.dims, 0, 0, "override a dim of the model"},
        {"--forward", TOOL_FLAG, NULL, &c.source.forward, 0, 0, "leave training out"},
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0, "plan file (-o)"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "print the plan as JSON"},
        {"--timings", TOOL_FLAG, NULL, &c.timings, 0, 0, "write solve times into the plan"},
        {"--verbose", TOOL_FLAG, NULL, &c.verbose, 0, 0, "log each mesh of the search"},
        {NULL, TOOL_FLAG, NULL, NULL, 0, 0, NULL},
    };
    const tool_parse parse = {"dtplan plan MODEL [options]", options, 1, 1};
    c.ctx = dtp_ctx_default();
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    return code == TOOL_OK ? c.exit_code : code;
}
