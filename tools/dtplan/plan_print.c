/* What dtplan plan prints and writes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/dtplan/plan.h"
#include "tools/dtplan/print.h"
#include "tools/dtplan/print_comm.h"

static dtp_status print_comm_report(const plan_command *c, const dtp_plan *plan, const dtp_graph *g,
                                    dtp_strbuf *out, dtp_err *err)
{
    dtp_plan_lowering lowering;
    dtp_program *program = NULL;
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    dtp_status s = dtp_lower(g, &plan->sharding, &lowering.options, &program, err);
    s = s != DTP_OK ? s : tool_print_comm(program, c->json, out, err);
    dtp_program_destroy(program);
    return s;
}

/* What became of every mesh of the search. */
static void print_meshes(const dtp_plan_result *result, dtp_strbuf *out)
{
    if (result->n_meshes > 0) {
        dtp_strbuf_addf(out, "\nmeshes (the last dim lies innermost in the network):\n");
    }
    for (int32_t i = 0; i < result->n_meshes; i++) {
        const dtp_mesh_report *r = &result->meshes[i];
        char mesh[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&r->mesh, mesh);
        dtp_strbuf_addf(out, "%-22s %-10s", mesh, dtp_mesh_outcome_name(r->outcome));
        if (r->outcome == DTP_MESH_PLANNED) {
            dtp_strbuf_addf(out, " %12.6f s, cost %" PRId64 ", bound %" PRId64, r->step_time_s,
                            r->cost, r->bound);
        } else if (r->outcome == DTP_MESH_CUT) {
            dtp_strbuf_addf(out, " nothing costs less than %" PRId64 " there", r->bound);
        }
        dtp_strbuf_add(out, "\n");
    }
}

/* The communication report takes the place of the plan on standard output. g: the plan's graph. */
static dtp_status put_planned(const plan_command *c, const dtp_plan_result *result,
                              const dtp_graph *g, dtp_err *err)
{
    const dtp_plan *plan = result->plan;
    dtp_strbuf text = {0}, report = {0};
    DTP_TRY(dtp_plan_write(plan, g, c->timings, &text.text, err));
    text.len = strlen(text.text);
    dtp_status s = DTP_OK;
    if (c->comm_report) {
        s = print_comm_report(c, plan, g, &report, err);
    } else if (c->json) {
        dtp_strbuf_add(&report, text.text);
    } else {
        tool_print_plan(plan, g, &report);
        print_meshes(result, &report);
    }
    s = s == DTP_OK ? tool_put_both(c->output, &text, &report, err) : s;
    dtp_strbuf_free(&text);
    dtp_strbuf_free(&report);
    return s;
}

dtp_status plan_put(const plan_command *c, const dtp_plan_result *result, const dtp_graph *model,
                    dtp_err *err)
{
    dtp_graph *planned = NULL;
    DTP_TRY(dtp_plan_graph(result->plan, model, &planned, err));
    dtp_status s = put_planned(c, result, planned, err);
    dtp_graph_destroy(planned);
    return s;
}

/* ---- no plan ------------------------------------------------------------------------------------
 */

static void print_infeasible(const plan_command *c, const dtp_plan_result *result, dtp_strbuf *out)
{
    dtp_strbuf_add(out, "dtplan: infeasible: no layout");
    dtp_strbuf_add(out, plan_is_tensor_mode(c)          ? "s"
                        : tool_styles_given(&c->styles) ? "s that follow from the pins"
                                                        : " rules");
    if (c->source.rules != NULL) {
        dtp_strbuf_addf(out, " with '%s'", c->source.rules);
    }
    if (c->limit_bytes > 0) {
        dtp_strbuf_addf(out, " fit into %" PRId64 " bytes per rank", c->limit_bytes);
    }
    if (result->smallest_peak_bytes > 0) {
        dtp_strbuf_addf(out, "; the smallest memory limit that works is %s%" PRId64,
                        result->smallest_bound == result->smallest_peak_bytes ? "" : "about ",
                        result->smallest_peak_bytes);
        if (result->smallest_bound > 0 && result->smallest_bound < result->smallest_peak_bytes) {
            dtp_strbuf_addf(out, " (none below %" PRId64 " does)", result->smallest_bound);
        }
    }
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < result->n_tried; i++) {
        dtp_strbuf_addf(out, "%s%s\n", i == 0 ? "tried:\n  " : "  ", result->tried[i]);
    }
    for (int32_t i = 0; i < result->n_conflict; i++) {
        dtp_strbuf_addf(out, "%s%s\n", i == 0 ? "these cannot hold together:\n  " : "  ",
                        result->conflict[i]);
    }
}

dtp_status plan_say_infeasible(const plan_command *c, const dtp_plan_result *result,
                               dtp_strbuf *hint, dtp_err *err)
{
    dtp_strbuf text = {0};
    print_infeasible(c, result, &text);
    dtp_strbuf_join(&text, hint);
    const dtp_status s =
        text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    if (s == DTP_OK) {
        (void)fputs(dtp_strbuf_text(&text), stderr);
    }
    dtp_strbuf_free(&text);
    return s;
}
