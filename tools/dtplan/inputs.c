#include "tools/dtplan/inputs.h"

#include <string.h>

dtp_status tool_read_changed(const tool_source *source, dtp_graph **model, dtp_graph **out,
                             dtp_err *err)
{
    dtp_graph_variant variant;
    DTP_TRY(tool_read_graph(source, model, err));
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory")
                                 : dtp_graph_variant_parse(source->remat, source->microbatches,
                                                           *model, arena, &variant, err);
    if (s == DTP_OK) {
        s = dtp_graph_with_variant(*model, &variant, 0, NULL, out, err);
    }
    dtp_arena_destroy(arena);
    if (s != DTP_OK) {
        dtp_graph_destroy(*model);
        *model = NULL;
    }
    return s;
}

dtp_status tool_plan_read(const tool_source *source, const dtp_ctx *ctx, tool_plan *out,
                          dtp_err *err)
{
    memset(out, 0, sizeof *out);
    if (source->machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--machine FILE is missing");
    }
    DTP_TRY(tool_read_graph(source, &out->model, err));
    DTP_TRY(dtp_machine_read(source->machine, &out->machine, err));
    DTP_TRY(dtp_plan_load(source->plan, out->model, &out->plan, err));
    DTP_TRY(dtp_plan_graph(out->plan, out->model, &out->graph, err));
    out->current = tool_plan_is_current(source, out->plan, out->model, out->machine, ctx);
    return DTP_OK;
}

void tool_plan_free(tool_plan *plan)
{
    dtp_plan_destroy(plan->plan);
    dtp_machine_destroy(plan->machine);
    dtp_graph_destroy(plan->graph);
    dtp_graph_destroy(plan->model);
    memset(plan, 0, sizeof *plan);
}
