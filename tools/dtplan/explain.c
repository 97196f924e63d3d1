/* dtplan explain: why a tensor or node of a plan is as it is, and what every alternative would
 * cost. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "core/base/units.h"
#include "planner/reports/explain.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/progress.h"

typedef struct explain_command {
    tool_source source;
    dtp_explain_request request;
    dtp_ctx ctx;
    tool_plan input;
    dtp_arena *arena;
} explain_command;

/* ---- JSON ---- */

static void alternative_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_alternative *a = &((const dtp_explanation *)user)->alternatives[i];
    const bool within = a->priced && !a->none;
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("choice", a->text), FIELD_BOOL("chosen", a->chosen),
                         FIELD_TEXT_IF(a->excluded != NULL, "excluded", a->excluded),
                         FIELD_OBJECT_IF(a->priced && !a->apart, "alone",
                                         FIELD_INT("cost_ps", dtp_cost_split_sum(&a->alone)),
                                         FIELD_INT("compute_ps", a->alone.compute),
                                         FIELD_INT("communication_ps", a->alone.communication),
                                         FIELD_INT("redistribution_ps", a->alone.redistribution),
                                         FIELD_INT("memory_bytes", a->alone_memory),
                                         FIELD_BOOL("fits", a->alone_fits)),
                         FIELD_INT_IF(within, "at_least_ps", a->at_least),
                         FIELD_BOOL_IF(within, "at_least_is_best", a->at_least_is_best)));
}

typedef struct coll_rows {
    const dtp_explanation *x;
    const dtp_mesh *mesh;
} coll_rows;

static void coll_row(tool_rows *rows, const void *user, int32_t i)
{
    const coll_rows *all = user;
    const dtp_explained_coll *c = &all->x->colls[i];
    tool_row(rows,
             TOOL_FIELDS(FIELD_TEXT("kind", dtp_coll_name(c->kind)),
                         FIELD_DIMS("mesh_dims", all->mesh, c->set),
                         FIELD_BYTES("bytes", (int64_t)c->bytes), FIELD_INT("times", c->times),
                         FIELD_INT("start_ps", dtp_picoseconds(c->time.start_s)),
                         FIELD_INT("transfer_ps", dtp_picoseconds(c->time.transfer_s))));
}

/* ---- text ---- */

/* A cost, a difference of costs; in picoseconds. */
static dtp_quantity cost(int64_t ps)
{
    return dtp_seconds(1e-12 * (double)ps);
}

static dtp_quantity more(int64_t ps)
{
    return dtp_seconds_more(1e-12 * (double)ps);
}

static void print_alternative(const dtp_alternative *a, dtp_strbuf *out)
{
    if (a->excluded != NULL && (!a->priced || a->apart)) {
        dtp_strbuf_addf(out, "%s: excluded: %s\n", a->text, a->excluded);
        return;
    }
    dtp_strbuf_addf(out, "%s%s%s%s\n", a->text, a->chosen ? ": chosen" : "",
                    !a->apart && !a->alone_fits ? ": alone it exceeds the memory limit" : "",
                    a->excluded != NULL ? ": excluded: nothing within limits and pins has it" : "");
    if (a->apart) {
        dtp_strbuf_addf(out, " %10s %43s", "not alone", "");
    } else {
        dtp_strbuf_addf(out, " %10s %10s %10s %10s %10s", more(dtp_cost_split_sum(&a->alone)).text,
                        more(a->alone.compute).text, more(a->alone.communication).text,
                        more(a->alone.redistribution).text,
                        dtp_bytes_more((double)a->alone_memory).text);
    }
    if (!a->none) {
        dtp_strbuf_addf(out, " %10s%s", more(a->at_least).text,
                        a->at_least_is_best ? " exact" : "");
    }
    dtp_strbuf_add(out, "\n");
}

static void print_explanation(const explain_command *c, const dtp_explanation *x, dtp_strbuf *out)
{
    static const char *const among[2][2] = {{"", " with tied layers"},
                                            {" with its pins", " with its pins and tied layers"}};
    dtp_strbuf_addf(out, "%s '%s'", x->node && x->via == NULL ? "node" : "tensor", x->name);
    if (x->via != NULL) {
        dtp_strbuf_addf(out, " is kept as node '%s' leaves or reads it; the node", x->via);
    }
    dtp_strbuf_addf(out, ": %s\n", x->chosen);
    if (x->instances > 1) {
        dtp_strbuf_addf(out,
                        "%d instances of repeated blocks decide together; differences are those of "
                        "all of them\n",
                        x->instances);
    }
    dtp_strbuf_addf(out, "the plan costs %s, no plan%s less than %s (additive cost%s)\n",
                    cost(x->plan_ps).text, among[x->pinned][x->tied], cost(x->bound_ps).text,
                    tool_rates_note(tool_rates(c->input.machine, NULL)));
    if (x->plan_ps != x->cost_ps) {
        dtp_strbuf_addf(out,
                        "differences are from %s: the plan with the cheapest redistributions "
                        "on this machine\n",
                        cost(x->cost_ps).text);
    }
    dtp_strbuf_addf(out, "\ndifference if it were\n %10s %10s %10s %10s %10s %10s\n", "alone",
                    "compute", "inside ops", "moving", "memory", "at least");
    for (int32_t i = 0; i < x->n && i < c->source.rows; i++) {
        print_alternative(&x->alternatives[i], out);
    }
    if (x->n > c->source.rows) {
        dtp_strbuf_addf(out, "and %d more (--rows, --json)\n", (int)(x->n - c->source.rows));
    }
    int32_t n = 0, exact = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const dtp_alternative *a = &x->alternatives[i];
        n += a->priced && !a->none ? 1 : 0;
        exact += a->priced && !a->none && a->at_least_is_best ? 1 : 0;
    }
    dtp_strbuf_addf(out, "%d of %d differences are exact%s\n", (int)exact, (int)n,
                    exact < n ? ", the others are at least that (--exact)" : "");
    if (x->n_colls > 0) {
        dtp_strbuf_addf(out, "\n%-18s %-8s %10s %5s %9s %9s\n", "its collectives", "mesh dims",
                        "bytes", "times", "start", "transfer");
    }
    for (int32_t i = 0; i < x->n_colls; i++) {
        const dtp_explained_coll *coll = &x->colls[i];
        char dims[DTP_MESH_TEXT_BYTES];
        dtp_mesh_set_print(&c->input.plan->mesh, coll->set, "+", dims);
        dtp_strbuf_addf(out, "%-18s %-8s %10s %5lld %9s %9s%s\n", dtp_coll_name(coll->kind), dims,
                        dtp_byte_count(coll->bytes).text, (long long)coll->times,
                        dtp_seconds(coll->time.start_s).text,
                        dtp_seconds(coll->time.transfer_s).text,
                        coll->time.start_s > coll->time.transfer_s ? "  mostly start" : "");
    }
    if (x->n_colls > 0) {
        dtp_strbuf_addf(out, "as the step runs: %s in its collectives, %s of it exposed\n",
                        dtp_seconds(x->comm_s).text, dtp_seconds(x->exposed_comm_s).text);
    }
}

/* ---- command ---- */

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    explain_command *c = command;
    c->source.model = operands[0];
    c->source.plan = operands[1];
    DTP_TRY(tool_plan_read(&c->source, &c->ctx, &c->input, err));
    c->arena = dtp_arena_create();
    dtp_explanation x;
    c->request.graph = c->input.graph;
    c->request.machine = c->input.machine;
    c->request.plan = c->input.plan;
    c->request.plan_is_current = c->input.current;
    c->request.name = operands[2];
    const char *rates = tool_rates(c->input.machine, NULL);
    dtp_json_writer w = {0};
    tool_progress_begin("solving");
    DTP_TRY(dtp_explain(&c->request, c->arena, &x, err));
    const coll_rows colls = {&x, &c->input.plan->mesh};
    if (c->source.json) {
        tool_report(
            &w, "dtp.explain/1",
            TOOL_FIELDS(
                FIELD_TEXT("name", x.name), FIELD_TEXT("decides", x.node ? "node" : "tensor"),
                FIELD_TEXT_IF(x.via != NULL, "via", x.via), FIELD_INT("instances", x.instances),
                FIELD_TEXT("chosen", x.chosen), FIELD_TEXT_IF(rates != NULL, "rates", rates),
                FIELD_INT("plan_ps", x.plan_ps), FIELD_INT("cost_ps", x.cost_ps),
                FIELD_INT("bound_ps", x.bound_ps), FIELD_BOOL("tied", x.tied),
                FIELD_BOOL("pinned", x.pinned), FIELD_INT("peak_bytes", x.peak_bytes),
                FIELD_INT("limit_bytes", x.limit_bytes), FIELD_REAL("comm_s", x.comm_s),
                FIELD_REAL("exposed_comm_s", x.exposed_comm_s),
                FIELD_LIST("collectives", x.n_colls, coll_row, &colls),
                FIELD_LIST("alternatives", x.n, alternative_row, &x)));
    } else {
        print_explanation(c, &x, &w.buf);
    }
    return (c->source.json ? tool_put : tool_put_text)(&w.buf, err);
}

int dtplan_explain(int argc, char **argv)
{
    explain_command c = {0};
    const tool_call call = {TOOL_EXPLAIN, execute, &c, &c.source, &c.request};
    c.ctx = dtp_ctx_default();
    const int code = tool_run(&call, argc, argv);
    dtp_arena_destroy(c.arena);
    tool_plan_free(&c.input);
    return code;
}
