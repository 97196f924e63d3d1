/* dtplan explain: why a tensor or node of a plan is as it is, and what every alternative would
 * cost. */
#include <inttypes.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "planner/reports/explain.h"
#include "tools/dtplan/options.h"

typedef struct explain_command {
    tool_source source;
    bool exact, node, json;
    int64_t rows;
    dtp_ctx ctx;
} explain_command;

/* ---- JSON ---------------------------------------------------------------------------------------
 */

static void write_alternative(dtp_json_writer *w, const dtp_alternative *a)
{
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "choice", a->text);
    dtp_json_write_bool(w, "chosen", a->chosen);
    if (a->excluded != NULL) {
        dtp_json_write_string(w, "excluded", a->excluded);
    }
    if (a->priced && !a->apart) {
        dtp_json_begin_object(w, "alone");
        dtp_json_write_int(w, "cost_ps", dtp_cost_split_sum(&a->alone));
        dtp_json_write_int(w, "compute_ps", a->alone.compute);
        dtp_json_write_int(w, "communication_ps", a->alone.communication);
        dtp_json_write_int(w, "redistribution_ps", a->alone.redistribution);
        dtp_json_write_int(w, "memory_bytes", a->alone_memory);
        dtp_json_write_bool(w, "fits", a->alone_fits);
        dtp_json_end_object(w);
    }
    if (a->priced && !a->none) {
        dtp_json_write_int(w, "at_least_ps", a->at_least);
        dtp_json_write_bool(w, "at_least_is_best", a->at_least_is_best);
    }
    if (a->priced && !a->none && a->known) {
        dtp_json_write_int(w, "at_most_ps", a->at_most);
    }
    dtp_json_end_object(w);
}

static void write_explanation(dtp_json_writer *w, const dtp_explanation *x)
{
    tool_report_begin(w, "dtp.explain/1");
    dtp_json_write_string(w, "name", x->name);
    dtp_json_write_string(w, "decides", x->node ? "node" : "tensor");
    if (x->via != NULL) {
        dtp_json_write_string(w, "via", x->via);
    }
    dtp_json_write_int(w, "instances", x->instances);
    dtp_json_write_string(w, "chosen", x->chosen);
    dtp_json_write_int(w, "plan_ps", x->plan_ps);
    dtp_json_write_int(w, "cost_ps", x->cost_ps);
    dtp_json_write_int(w, "bound_ps", x->bound_ps);
    dtp_json_write_int(w, "peak_bytes", x->peak_bytes);
    dtp_json_write_int(w, "limit_bytes", x->limit_bytes);
    dtp_json_begin_array(w, "alternatives", false);
    for (int32_t i = 0; i < x->n; i++) {
        write_alternative(w, &x->alternatives[i]);
    }
    dtp_json_end_array(w);
    tool_report_end(w);
}

/* ---- text ---------------------------------------------------------------------------------------
 */

static double micro(int64_t ps)
{
    return 1e-6 * (double)ps;
}

static void print_alternative(const dtp_alternative *a, dtp_strbuf *out)
{
    if (a->excluded != NULL && (!a->priced || a->apart)) {
        dtp_strbuf_addf(out, "%-32s excluded: %s\n", a->text, a->excluded);
        return;
    }
    dtp_strbuf_addf(out, "%-32s", a->text);
    if (a->apart) {
        dtp_strbuf_addf(out, " %12s %48s", "not alone", "");
    } else {
        dtp_strbuf_addf(out, " %+12.3f %+12.3f %+12.3f %+12.3f %+12" PRId64,
                        micro(dtp_cost_split_sum(&a->alone)), micro(a->alone.compute),
                        micro(a->alone.communication), micro(a->alone.redistribution),
                        a->alone_memory);
    }
    if (!a->none) {
        dtp_strbuf_addf(out, " %+12.3f", micro(a->at_least));
        if (a->at_least_is_best) {
            dtp_strbuf_addf(out, " %12s", "exact");
        } else if (a->known) {
            dtp_strbuf_addf(out, " %+12.3f", micro(a->at_most));
        } else {
            dtp_strbuf_addf(out, " %12s", "?");
        }
    }
    dtp_strbuf_addf(out, "%s%s%s\n", a->chosen ? "  chosen" : "",
                    !a->apart && !a->alone_fits ? "  alone it exceeds the memory limit" : "",
                    a->excluded != NULL ? "  excluded: nothing within limits and pins has it" : "");
}

/* How many differences are exact; the others lie between `at least` and `at most`. */
static void print_exactness(const dtp_explanation *x, dtp_strbuf *out)
{
    int32_t n = 0, exact = 0;
    for (int32_t i = 0; i < x->n; i++) {
        const dtp_alternative *a = &x->alternatives[i];
        n += a->priced && !a->none ? 1 : 0;
        exact += a->priced && !a->none && a->at_least_is_best ? 1 : 0;
    }
    dtp_strbuf_addf(out, "%d of %d differences are exact%s\n", (int)exact, (int)n,
                    exact < n ? ", the others between 'at least' and 'at most' (--exact)" : "");
}

static void print_explanation(const explain_command *c, const dtp_explanation *x, dtp_strbuf *out)
{
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
    dtp_strbuf_addf(out, "the plan costs %.3f us, no plan less than %.3f us (sums of prices)\n",
                    micro(x->plan_ps), micro(x->bound_ps));
    if (x->plan_ps != x->cost_ps) {
        dtp_strbuf_addf(out,
                        "differences are from %.3f us: the plan with the cheapest redistributions "
                        "on this machine\n",
                        micro(x->cost_ps));
    }
    dtp_strbuf_addf(out, "\n%-32s %12s %12s %12s %12s %12s %12s %12s\n",
                    "difference, us, if it were", "alone", "compute", "inside ops", "moving",
                    "bytes", "at least", "at most");
    for (int32_t i = 0; i < x->n && i < c->rows; i++) {
        print_alternative(&x->alternatives[i], out);
    }
    if (x->n > c->rows) {
        dtp_strbuf_addf(out, "and %d more (--rows, --json)\n", (int)(x->n - c->rows));
    }
    print_exactness(x, out);
}

/* ---- command ------------------------------------------------------------------------------------
 */

static dtp_status explain(const explain_command *c, const tool_plan *input, const char *name,
                          dtp_arena *arena, dtp_err *err)
{
    dtp_explanation x;
    const dtp_explain_request request = {.graph = input->graph,
                                         .machine = input->machine,
                                         .plan = input->plan,
                                         .plan_is_current = input->current,
                                         .exact = c->exact,
                                         .name = name,
                                         .node = c->node};
    dtp_json_writer w = {0};
    DTP_TRY(dtp_explain(&request, arena, &x, err));
    if (c->json) {
        write_explanation(&w, &x);
    } else {
        print_explanation(c, &x, &w.buf);
    }
    return tool_put(&w.buf, err);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    explain_command *c = command;
    tool_plan input;
    c->source.model = operands[0];
    c->source.plan = operands[1];
    DTP_TRY(tool_plan_read(&c->source, &c->ctx, &input, err));
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory")
                                 : explain(c, &input, operands[2], arena, err);
    dtp_arena_destroy(arena);
    tool_plan_free(&input);
    return s;
}

int dtplan_explain(int argc, char **argv)
{
    explain_command c = {.rows = 24};
    const tool_option options[] = {
        {"--machine", TOOL_STRING, "FILE", &c.source.machine, 0, 0, "machine file"},
        {"--node", TOOL_FLAG, NULL, &c.node, 0, 0, "NAME is a node, not the tensor of this name"},
        {"--exact", TOOL_FLAG, NULL, &c.exact, 0, 0,
         "solve again with every alternative whose difference is not exact (slow)"},
        {"--dim", TOOL_LIST, "NAME=N", &c.source.dims, 0, 0, "override a dim of the model"},
        {"--forward", TOOL_FLAG, NULL, &c.source.forward, 0, 0, "leave training out"},
        {"--rows", TOOL_INT, "N", &c.rows, 1, 1e9,
         "alternatives printed (default 24; --json has all)"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "report as JSON"},
        {NULL, TOOL_FLAG, NULL, NULL, 0, 0, NULL},
    };
    const tool_parse parse = {"dtplan explain MODEL PLAN NAME --machine FILE [options]", options, 3,
                              3};
    c.ctx = dtp_ctx_default();
    return tool_run("dtplan", &parse, argc, argv, execute, &c);
}
