/* dtplan diff: what two plans of a model do differently, and what each difference costs. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "core/base/units.h"
#include "planner/reports/plan_diff.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/dtplan/print.h"

typedef struct diff_command {
    tool_source source;
    const char *files[2];
    dtp_ctx ctx;
    tool_job jobs[2];
    dtp_arena *arena;
} diff_command;

/* ---- JSON ---- */

#define SPLIT_FIELDS(c)                                                                            \
    FIELD_INT("compute_ps", (c).compute), FIELD_INT("communication_ps", (c).communication),        \
        FIELD_INT("redistribution_ps", (c).redistribution)

/* The two plans, side by side. */
typedef struct diff_report {
    const diff_command *command;
    dtp_plan_diff diff;
} diff_report;

/* The certificate's bounds where they are on additive costs. */
static void side_row(tool_rows *rows, const void *user, int32_t i)
{
    const diff_report *r = user;
    const dtp_diff_side *s = &r->diff.side[i];
    const dtp_plan *plan = r->command->jobs[i].plan;
    const dtp_certificate *c = &plan->certificate;
    const bool priced = r->diff.priced;
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("file", r->command->files[i]),
                         FIELD_TEXT("mode", plan->rules_mode ? "rules" : "tensor"),
                         FIELD_MESH(&plan->mesh),
                         FIELD_REAL_IF(priced, "step_time_s", s->predicted.step_time_s),
                         FIELD_REAL_IF(priced, "exposed_comm_s", s->predicted.exposed_comm_s),
                         FIELD_INT_IF(priced, "peak_bytes", s->predicted.peak_bytes),
                         FIELD_INT_IF(priced, "cost_ps", dtp_cost_split_sum(&s->cost)),
                         FIELD_OBJECT_IF(priced, "cost", SPLIT_FIELDS(s->cost)),
                         FIELD_INT_IF(priced && plan->objective == DTP_OBJECTIVE_TIME, "bound_ps",
                                      c->bound),
                         FIELD_INT_IF(priced && c->has_untied, "untied_bound_ps", c->untied_bound),
                         FIELD_INT_IF(priced, "needed_bytes", s->needed_bytes),
                         FIELD_INT_IF(priced, "other_bytes", s->other_bytes)));
}

static void tensor_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_plan_diff *diff = user;
    const dtp_diff_tensor *t = &diff->tensors[i];
    tool_row(rows, TOOL_FIELDS(FIELD_TEXT("tensor", t->name),
                               FIELD_TEXT("kind", tool_tensor_kind(t->kind)),
                               FIELD_TEXTS("layout", 2, t->layout),
                               FIELD_INTS_IF(diff->priced, "peak_bytes", 2, t->peak_bytes)));
}

static void cost_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_cost_split *cost = user;
    tool_row(rows, TOOL_FIELDS(SPLIT_FIELDS(cost[i])));
}

static void node_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_plan_diff *diff = user;
    const dtp_diff_node *n = &diff->nodes[i];
    tool_row(rows, TOOL_FIELDS(FIELD_TEXT("node", n->name), FIELD_TEXT("op", n->op),
                               FIELD_TEXTS("strategy", 2, n->strategy),
                               FIELD_LIST_IF(diff->priced, "cost", 2, cost_row, n->cost)));
}

/* ---- text ---- */

static void print_row(dtp_strbuf *out, const char *name, int64_t a, int64_t b)
{
    dtp_strbuf_addf(out, "%-24s %12s %12s %12s\n", name, dtp_seconds(1e-12 * (double)a).text,
                    dtp_seconds(1e-12 * (double)b).text,
                    dtp_seconds_more(1e-12 * (double)(b - a)).text);
}

static const char *text_or_none(const char *text)
{
    return text != NULL ? text : "(not there)";
}

static void print_tensor(const dtp_plan_diff *diff, const dtp_diff_tensor *t, dtp_strbuf *out)
{
    dtp_strbuf_addf(out, "%-6s %s: %s | %s", tool_tensor_kind(t->kind), t->name,
                    text_or_none(t->layout[0]), text_or_none(t->layout[1]));
    if (diff->priced && (t->peak_bytes[0] != 0 || t->peak_bytes[1] != 0)) {
        dtp_strbuf_addf(out, "  (at the peak %s)",
                        dtp_bytes_more((double)(t->peak_bytes[1] - t->peak_bytes[0])).text);
    }
    dtp_strbuf_add(out, "\n");
}

static void print_node(const dtp_plan_diff *diff, const dtp_diff_node *n, dtp_strbuf *out)
{
    const dtp_cost_split *a = &n->cost[0], *b = &n->cost[1];
    dtp_strbuf_addf(out, "%s (%s): %s | %s", n->name, n->op, text_or_none(n->strategy[0]),
                    text_or_none(n->strategy[1]));
    if (diff->priced) {
        dtp_strbuf_addf(
            out, "\n    %s: compute %s, communication %s, redistribution %s",
            dtp_seconds_more(1e-12 * (double)(dtp_cost_split_sum(b) - dtp_cost_split_sum(a))).text,
            dtp_seconds_more(1e-12 * (double)(b->compute - a->compute)).text,
            dtp_seconds_more(1e-12 * (double)(b->communication - a->communication)).text,
            dtp_seconds_more(1e-12 * (double)(b->redistribution - a->redistribution)).text);
    }
    dtp_strbuf_add(out, "\n");
}

static dtp_status print_list(const diff_command *c, const dtp_plan_diff *diff, bool nodes,
                             dtp_strbuf *out, dtp_err *err)
{
    const int32_t n = nodes ? diff->n_nodes : diff->n_tensors;
    const int32_t shown = n < c->source.rows ? n : (int32_t)c->source.rows;
    int32_t *order;
    DTP_TRY(dtp_plan_diff_order(diff, nodes, c->arena, &order, err));
    dtp_strbuf_addf(out, "\n%d %s differ%s, A | B:\n", n, nodes ? "nodes" : "tensors",
                    shown < n ? ", those that differ most" : "");
    for (int32_t i = 0; i < shown; i++) {
        if (nodes) {
            print_node(diff, &diff->nodes[order[i]], out);
        } else {
            print_tensor(diff, &diff->tensors[order[i]], out);
        }
    }
    return DTP_OK;
}

/* ---- command ---- */

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    diff_command *c = command;
    c->arena = dtp_arena_create();
    c->source.model = operands[0];
    for (int i = 0; i < 2; i++) {
        c->files[i] = c->source.plan = operands[1 + i];
        DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &c->jobs[i], err));
    }
    const tool_job *jobs = c->jobs;
    diff_report report = {.command = c};
    dtp_plan_diff *diff = &report.diff;
    const dtp_diff_input inputs[2] = {
        {jobs[0].run->graph, &jobs[0].run->sharding, &jobs[0].run->lowering.options},
        {jobs[1].run->graph, &jobs[1].run->sharding, &jobs[1].run->lowering.options}};
    DTP_TRY(dtp_plan_diff_make(inputs, jobs[0].machine, c->arena, diff, err));
    const char *rates = tool_rates(jobs[0].machine, NULL);
    dtp_json_writer w = {0};
    if (c->source.json) {
        tool_report(&w, "dtp.diff/1",
                    TOOL_FIELDS(FIELD_TEXT("model", jobs[0].model->name),
                                FIELD_TEXT_IF(diff->priced && rates != NULL, "rates", rates),
                                FIELD_LIST("plans", 2, side_row, &report),
                                FIELD_LIST("tensors", diff->n_tensors, tensor_row, diff),
                                FIELD_LIST("nodes", diff->n_nodes, node_row, diff)));
        return tool_put(&w.buf, err);
    }
    dtp_strbuf *out = &w.buf;
    for (int i = 0; i < 2; i++) {
        char mesh[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&jobs[i].plan->mesh, mesh);
        dtp_strbuf_addf(out, "%c: %s, %s mode on mesh '%s'\n", i == 0 ? 'A' : 'B', c->files[i],
                        jobs[i].plan->rules_mode ? "rules" : "tensor", mesh);
    }
    if (diff->priced) {
        const dtp_diff_side *a = &diff->side[0], *b = &diff->side[1];
        if (tool_rates_note(rates)[0] != '\0') {
            dtp_strbuf_addf(out, "predicted%s\n", tool_rates_note(rates));
        }
        dtp_strbuf_addf(out, "%-24s %12s %12s %12s\n", "", "A", "B", "B - A");
        dtp_strbuf_addf(out, "%-24s %12s %12s %12s\n", "step",
                        dtp_seconds(a->predicted.step_time_s).text,
                        dtp_seconds(b->predicted.step_time_s).text,
                        dtp_seconds_more(b->predicted.step_time_s - a->predicted.step_time_s).text);
        print_row(out, "additive cost", dtp_cost_split_sum(&a->cost), dtp_cost_split_sum(&b->cost));
        print_row(out, "  compute", a->cost.compute, b->cost.compute);
        print_row(out, "  communication in ops", a->cost.communication, b->cost.communication);
        print_row(out, "  redistribution", a->cost.redistribution, b->cost.redistribution);
        /* What the certificates say that no plan costs less than. */
        const dtp_plan *p = jobs[0].plan, *q = jobs[1].plan;
        if (p->objective == DTP_OBJECTIVE_TIME && q->objective == DTP_OBJECTIVE_TIME &&
            p->certificate.bound > 0 && q->certificate.bound > 0) {
            print_row(out, "bound", p->certificate.bound, q->certificate.bound);
        }
        if (p->certificate.has_untied && q->certificate.has_untied) {
            print_row(out, "  without layer tying", p->certificate.untied_bound,
                      q->certificate.untied_bound);
        }
        const double more = (double)(b->predicted.peak_bytes - a->predicted.peak_bytes);
        dtp_strbuf_addf(out, "%-24s %12s %12s %12s\n", "peak",
                        dtp_byte_count((double)a->predicted.peak_bytes).text,
                        dtp_byte_count((double)b->predicted.peak_bytes).text,
                        dtp_bytes_more(more).text);
    }
    dtp_status s = print_list(c, diff, false, out, err);
    s = s == DTP_OK ? print_list(c, diff, true, out, err) : s;
    if (s != DTP_OK) {
        dtp_strbuf_free(out);
        return s;
    }
    return tool_put_text(out, err);
}

int dtplan_diff(int argc, char **argv)
{
    diff_command c = {0};
    const tool_call call = {TOOL_DIFF, execute, &c, &c.source, NULL};
    c.ctx = dtp_ctx_default();
    const int code = tool_run(&call, argc, argv);
    tool_job_free(&c.jobs[0]);
    tool_job_free(&c.jobs[1]);
    dtp_arena_destroy(c.arena);
    return code;
}
