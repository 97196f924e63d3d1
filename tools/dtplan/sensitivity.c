/* dtplan sensitivity: how far the machine may be off before another plan is better. */
#include <stdio.h>

#include "core/base/json_writer.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/reports/sensitivity.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/progress.h"

typedef struct sensitivity_command {
    tool_source source;
    dtp_sensitivity_request request;
    dtp_ctx ctx;
    tool_plan input;
    dtp_arena *arena;
} sensitivity_command;

#define TAKEOVER_FIELDS(t)                                                                         \
    FIELD_BOOL("found", (t).found), FIELD_REAL("stays", (t).stays),                                \
        FIELD_REAL_IF((t).found, "goes", (t).goes), FIELD_REAL_IF((t).found, "gain", (t).gain),    \
        FIELD_INT_IF((t).found, "tensors", (t).n_tensors),                                         \
        FIELD_INT_IF((t).found, "nodes", (t).n_nodes),                                             \
        FIELD_LINES_IF((t).found, "examples", (t).n_examples, (t).examples)

static void quantity_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_sensitivity_row *r = &((const dtp_sensitivity *)user)->rows[i];
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("quantity", r->param.name), FIELD_REAL("value", r->param.value),
                         FIELD_OBJECT("below", TAKEOVER_FIELDS(r->below)),
                         FIELD_OBJECT("above", TAKEOVER_FIELDS(r->above))));
}

static void print_takeover(const char *where, const dtp_takeover *t, dtp_strbuf *out)
{
    if (!t->found) {
        return;
    }
    dtp_strbuf_addf(out, "    %s x%.4g a plan is %.2f %% faster that ", where, t->goes,
                    100.0 * t->gain);
    if (t->n_tensors == 0 && t->n_nodes == 0) {
        dtp_strbuf_add(out, "redistributes in other steps");
    } else {
        dtp_strbuf_addf(out, "lays out %d tensors and runs %d nodes otherwise", t->n_tensors,
                        t->n_nodes);
    }
    for (int32_t i = 0; i < t->n_examples; i++) {
        dtp_strbuf_addf(out, "%s %s", i > 0 ? "," : ";", t->examples[i]);
    }
    dtp_strbuf_add(out, "\n");
}

static void print_range_end(const dtp_takeover *t, bool above, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, " %s%-10.4g", t->found ? (above ? "< " : "> ") : "to ",
                    t->found ? t->goes : t->stays);
}

static void print_sensitivity(const sensitivity_command *c, const dtp_sensitivity *s,
                              dtp_strbuf *out)
{
    const char *note = tool_rates_note(tool_rates(c->input.machine, NULL));
    if (!s->best_now) {
        dtp_takeover now = s->now;
        now.found = true;
        now.goes = 1.0;
        dtp_strbuf_addf(out, "another plan is better on the machine as it is%s\n", note);
        print_takeover("at", &now, out);
        return;
    }
    dtp_strbuf_addf(
        out,
        "the plan stays best (within %.3g %%) while a quantity is off by these factors, "
        "looked at from 1/%.4g to %.4g%s\n\n",
        100.0 * c->request.tolerance, c->request.widest, c->request.widest, note);
    for (int32_t i = 0; i < s->n; i++) {
        const dtp_sensitivity_row *r = &s->rows[i];
        dtp_strbuf_addf(out, "%-20s", r->param.name);
        print_range_end(&r->below, false, out);
        print_range_end(&r->above, true, out);
        dtp_strbuf_add(out, "\n");
        print_takeover("below", &r->below, out);
        print_takeover("above", &r->above, out);
    }
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    sensitivity_command *c = command;
    c->source.model = operands[0];
    c->source.plan = operands[1];
    DTP_TRY(tool_plan_read(&c->source, &c->ctx, &c->input, err));
    c->arena = dtp_arena_create();
    dtp_sensitivity result;
    dtp_json_writer w = {0};
    c->request.model = c->input.model;
    c->request.graph = c->input.graph;
    c->request.machine = c->input.machine;
    c->request.plan = c->input.plan;
    c->request.search = c->input.plan->rules_mode ? dtp_plan_rules : dtp_plan_tensor;
    const char *rates = tool_rates(c->input.machine, NULL);
    tool_progress_begin("planning on other machines");
    DTP_TRY(dtp_sensitivity_find(&c->request, c->arena, &result, err));
    if (c->source.json) {
        tool_report(
            &w, "dtp.sensitivity/1",
            TOOL_FIELDS(FIELD_TEXT("model", c->input.model->name),
                        FIELD_TEXT("machine", c->input.machine->name),
                        FIELD_TEXT_IF(rates != NULL, "rates", rates),
                        FIELD_BOOL("best_now", result.best_now),
                        FIELD_OBJECT_IF(!result.best_now, "now", TAKEOVER_FIELDS(result.now)),
                        FIELD_LIST("rows", result.n, quantity_row, &result)));
    } else {
        print_sensitivity(c, &result, &w.buf);
    }
    return (c->source.json ? tool_put : tool_put_text)(&w.buf, err);
}

int dtplan_sensitivity(int argc, char **argv)
{
    sensitivity_command c = {.request = dtp_sensitivity_request_init()};
    const tool_call call = {TOOL_SENSITIVITY, execute, &c, &c.source, &c.request};
    c.ctx = dtp_ctx_default();
    const int code = tool_run(&call, argc, argv);
    dtp_arena_destroy(c.arena);
    tool_plan_free(&c.input);
    return code;
}
