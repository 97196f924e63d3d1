/* dtplan export: a plan in the words of another framework. */
#include <math.h>
#include <stdio.h>

#include "cost_models/plan_lowering.h"
#include "interop/export/forms.h"
#include "interop/export/torch_modules.h"
#include "tools/job.h"

typedef struct export_command {
    tool_source source;
    dtp_ctx ctx;
    dtp_arena *arena;
    dtp_graph *model, *graph;
    dtp_plan *plan;
    dtp_plan_lowering lowering;
    dtp_program *program;
} export_command;

/* Whether the plan is of modules or of placements alone, what the other would take, and why
 * placements alone may fail. */
static dtp_status say_form(const char *file, const dtp_placements *p, const dtp_graph *model,
                           dtp_err *err)
{
    const dtp_plan_expressible *e = &p->plan->expressible;
    const dtp_prediction *own = &p->plan->predicted;
    const bool memory = p->plan->objective == DTP_OBJECTIVE_MEMORY;
    const double other = memory ? (double)e->other_peak_bytes : e->other_step_time_s;
    const double here = memory ? (double)own->peak_bytes : own->step_time_s;
    dtp_torch_plan t;
    DTP_TRY(dtp_torch_plan_make(p, &t, err));
    printf("%s: form %s", file,
           t.by_modules ? "modules (parallelize_module, fully_shard)" : "placements alone");
    if (e->by != NULL && other > 0.0 && t.by_modules != dtp_plan_by_placements(p->plan)) {
        printf("; the best plan by %s takes %.2f %% %s",
               t.by_modules ? "placements alone" : "modules", 100.0 * fabs(other / here - 1.0),
               other < here ? "less" : "more");
    }
    printf("\n");
    if (!t.by_modules) {
        const char *on_cpu = dtp_export_placements_fail(model, "cpu");
        const char *anywhere = dtp_export_placements_fail(model, "cuda");
        printf("%s: not by modules because of %s\n", file,
               t.against != NULL ? t.against : "mesh dims that do not all do the same");
        if (anywhere != NULL || on_cpu != NULL) {
            printf("%s: this may fail in PyTorch%s: %s\n", file, anywhere != NULL ? "" : " on CPUs",
                   anywhere != NULL ? anywhere : on_cpu);
        }
    }
    return DTP_OK;
}

/* The degrees of the plan, and a line for each kind that is lost. */
static dtp_status say(const char *file, const dtp_placements *p, const dtp_lost *lost,
                      const dtp_graph *model, const dtp_export_form *form, dtp_err *err)
{
    const char *degrees;
    DTP_TRY(form->has_modules ? say_form(file, p, model, err) : DTP_OK);
    DTP_TRY(dtp_export_degrees(p, &degrees, err));
    if (degrees != NULL) {
        printf("%s: %s\n", file, degrees);
    }
    for (int32_t k = 0; k < DTP_N_LOST; k++) {
        if (!lost->any[k]) {
            continue;
        }
        printf("%s: lost: %s", file, dtp_lost_name((dtp_lost_kind)k));
        if (lost->n[k] > 0) {
            printf(", of %s", lost->names[k][0]);
        }
        if (lost->n[k] > 1) {
            printf(" and %d more", lost->n[k] - 1);
        }
        printf(": %s\n", dtp_lost_why((dtp_lost_kind)k));
    }
    return DTP_OK;
}

/* The program of the plan, whose buckets the form torch says. */
static dtp_status lower(export_command *c, dtp_err *err)
{
    DTP_TRY(dtp_plan_lowering_init(&c->lowering, c->plan, err));
    if (!dtp_plan_is_for_model(c->plan, c->model)) { /* there may be tensors of other sizes */
        c->lowering.listed.unlisted = dtp_redistributor_of(c->lowering.options.target);
    }
    dtp_lower_options options = c->lowering.options;
    options.unplaced = true;
    return dtp_lower(c->graph, &c->plan->sharding, &options, &c->program, err);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    export_command *c = command;
    const dtp_export_form *form;
    dtp_names names;
    dtp_placements placements;
    dtp_lost lost;
    tool_path path;
    if (c->source.as_form == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--as FORM is missing");
    }
    DTP_TRY(dtp_err_prefixed(dtp_export_form_find(c->source.as_form, &form, err), err, "--as"));
    c->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, c->arena));
    c->source.model = operands[0];
    c->source.plan = operands[1];
    c->source.any_stages = true;
    DTP_TRY(tool_read_planned(&c->source, &c->model, &c->plan, err));
    const bool staged = c->plan->variant.stages.n > 1;
    if (staged && form->write != dtp_export__torch) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "%s: the plan has %d stages, which --as torch alone says", c->source.plan,
                        c->plan->variant.stages.n);
    }
    tool_plan_say_changes(&c->source, c->plan, c->model, NULL, NULL, &c->ctx);
    DTP_TRY(dtp_plan_graph(c->plan, c->model, &c->graph, err));
    const char *file = tool_beside(&c->source, c->source.names, "names", &path);
    if (file != NULL) {
        DTP_TRY(dtp_names_read(file, c->arena, &names, err));
    }
    DTP_TRY(dtp_placements_make(c->plan, c->graph, file != NULL ? &names : NULL, c->arena,
                                &placements, err));
    if (form->write == dtp_export__torch && !staged) {
        DTP_TRY(lower(c, err));
        placements.program = c->program;
    }
    dtp_json_writer w = {0};
    dtp_status s = dtp_export_write(form, &placements, &w, &lost, err);
    s = s == DTP_OK ? tool_put_in(c->source.output, &w.buf, err) : s;
    dtp_strbuf_free(&w.buf);
    return s == DTP_OK && c->source.output != NULL
               ? say(c->source.output, &placements, &lost, c->model, form, err)
               : s;
}

int dtplan_export(int argc, char **argv)
{
    export_command c = {.ctx = dtp_ctx_default(), .source = {.any_dims = true}};
    const tool_call call = {TOOL_EXPORT, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    dtp_program_destroy(c.program);
    dtp_graph_destroy(c.graph);
    dtp_graph_destroy(c.model);
    dtp_plan_destroy(c.plan);
    dtp_arena_destroy(c.arena);
    return code;
}
