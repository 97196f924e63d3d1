/* Plans and their files (dtp/plan.h). */
#include <stdlib.h>
#include <string.h>

#include "core/files/file_in.h"
#include "core/files/file_out.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"

enum { MAX_FILE_BYTES = 1 << 28 };

dtp_status dtp_plan_file_read(const char *path, char **text, size_t *len, dtp_err *err)
{
    return dtp_file_read(path, MAX_FILE_BYTES, text, len, err);
}

dtp_status dtp_plan_load(const char *path, const dtp_graph *model, dtp_plan **out, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    DTP_TRY(DTP_NOT_NULL(err, path, model, out));
    DTP_TRY(dtp_plan_file_read(path, &text, &len, err));
    dtp_status s = dtp_plan_read(path, text, len, model, out, err);
    free(text);
    return s;
}

dtp_status dtp_plan_describe(const dtp_plan *plan, const dtp_graph *model, dtp_plan_form form,
                             char **text, dtp_err *err)
{
    dtp_graph *g = NULL;
    dtp_strbuf out = {0};
    DTP_TRY(DTP_NOT_NULL(err, plan, model, text));
    DTP_TRY(dtp_plan_graph(plan, model, &g, err));
    dtp_status s = DTP_OK;
    if (form == DTP_PLAN_TEXT) {
        dtp_plan_print(plan, g, NULL, &out);
        s = out.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    } else {
        s = dtp_plan_write(plan, g, form == DTP_PLAN_TIMINGS, &out.text, err);
    }
    dtp_graph_destroy(g);
    *text = s == DTP_OK ? out.text : NULL;
    if (s != DTP_OK) {
        dtp_strbuf_free(&out);
    }
    return s;
}

dtp_status dtp_plan_save(const dtp_plan *plan, const dtp_graph *model, const char *path,
                         dtp_err *err)
{
    char *text = NULL;
    DTP_TRY(DTP_NOT_NULL(err, plan, model, path));
    DTP_TRY(dtp_plan_describe(plan, model, DTP_PLAN_JSON, &text, err));
    /* What is written is what the reader takes: a plan that it refuses is no plan, and a fault. */
    dtp_plan *again = NULL;
    dtp_err why = {0};
    dtp_status s = dtp_plan_read("the plan that was made", text, strlen(text), model, &again, &why);
    dtp_plan_destroy(again);
    s = s == DTP_OK ? DTP_OK : DTP_FAIL(err, s == DTP_NOMEM ? s : DTP_INTERNAL, "%s", why.msg);
    s = s == DTP_OK ? dtp_file_write(path, text, strlen(text), err) : s;
    free(text);
    return s;
}

const dtp_mesh *dtp_plan_mesh(const dtp_plan *plan)
{
    return &plan->mesh;
}

const dtp_prediction *dtp_plan_predicted(const dtp_plan *plan)
{
    return &plan->predicted;
}

const dtp_certificate *dtp_plan_certificate(const dtp_plan *plan)
{
    return &plan->certificate;
}

const char *dtp_plan_runtime(const dtp_plan *plan)
{
    return plan->runtime;
}

dtp_dtype dtp_plan_compute_dtype(const dtp_plan *plan)
{
    return plan->variant.precision.compute;
}

dtp_status dtp_plan_set_model(dtp_plan *plan, const dtp_graph *model, dtp_err *err)
{
    dtp_dim_override *dims;
    plan->model = dtp_arena_strdup(plan->arena, model->name);
    plan->model_hash = dtp_graph_hash(model);
    DTP_TRY(DTP_MEMORY(err, plan->model));
    DTP_TRY(DTP_NEW(plan->arena, dims, model->n_given, err));
    for (int32_t d = 0; d < model->n_given; d++) {
        dims[d] = model->given[d];
        dims[d].name = dtp_arena_strdup(plan->arena, dims[d].name);
        DTP_TRY(DTP_MEMORY(err, dims[d].name));
    }
    plan->dims = dims;
    plan->n_dims = model->n_given;
    plan->forward = model->forward_only;
    const char **globs;
    DTP_TRY(DTP_NEW(plan->arena, globs, model->n_freeze, err));
    for (int32_t i = 0; i < model->n_freeze; i++) {
        globs[i] = dtp_arena_strdup(plan->arena, model->freeze[i]);
        DTP_TRY(DTP_MEMORY(err, globs[i]));
    }
    plan->freeze = globs;
    plan->n_freeze = model->n_freeze;
    return DTP_OK;
}

bool dtp_plan_is_for_model(const dtp_plan *plan, const dtp_graph *model)
{
    return plan->model_hash == dtp_graph_hash(model);
}
