/* dtplan export: a plan in the words of another framework. */
#include <stdio.h>

#include "interop/export/forms.h"
#include "tools/dtplan/options.h"

typedef struct export_command {
    tool_source source;
    const char *form, *output;
    dtp_ctx ctx;
    dtp_arena *arena;
    dtp_graph *model, *graph;
    dtp_plan *plan;
} export_command;

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    export_command *c = command;
    const dtp_export_form *form;
    dtp_names names;
    dtp_placements placements;
    dtp_lost lost;
    tool_path path;
    if (c->form == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--as FORM is missing");
    }
    DTP_TRY(dtp_err_prefixed(dtp_export_form_find(c->form, &form, err), err, "--as"));
    c->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, c->arena));
    c->source.model = operands[0];
    c->source.plan = operands[1];
    DTP_TRY(tool_read_planned(&c->source, &c->model, &c->plan, err));
    tool_plan_say_changes(&c->source, c->plan, c->model, NULL, NULL, &c->ctx);
    DTP_TRY(dtp_plan_graph(c->plan, c->model, &c->graph, err));
    const char *file = tool_beside(&c->source, c->source.names, "names", &path);
    if (file != NULL) {
        DTP_TRY(dtp_names_read(file, c->arena, &names, err));
    }
    DTP_TRY(dtp_placements_make(c->plan, c->graph, file != NULL ? &names : NULL, c->arena,
                                &placements, err));
    dtp_json_writer w = {0};
    dtp_status s = dtp_export_write(form, &placements, &w, &lost, err);
    s = s == DTP_OK ? tool_put_in(c->output, &w.buf, err) : s;
    dtp_strbuf_free(&w.buf);
    const char *degrees = NULL;
    s = s == DTP_OK && c->output != NULL ? dtp_export_degrees(&placements, &degrees, err) : s;
    if (degrees != NULL) {
        printf("%s: %s\n", c->output, degrees);
    }
    return s;
}

int dtplan_export(int argc, char **argv)
{
    export_command c = {.ctx = dtp_ctx_default(), .source = {.any_dims = true}};
    const tool_option options[] = {
        {"--as", TOOL_STRING, "FORM", &c.form, 0, 0,
         "placements: where every parameter, activation, input and output lies; torch: that, and "
         "what parallelize_module and fully_shard take; jax: a PartitionSpec of each; hf: a "
         "tp_plan "
         "of transformers' style names; rules: logical axis rules of MaxText and flax"},
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0, "write there (-o; default: print)"},
        TOOL_NAMES_OPTION(c.source),
        TOOL_MODEL_OPTIONS(c.source),
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {"dtplan export MODEL PLAN --as FORM [options]", options, 2, 2};
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    dtp_graph_destroy(c.graph);
    dtp_graph_destroy(c.model);
    dtp_plan_destroy(c.plan);
    dtp_arena_destroy(c.arena);
    return code;
}
