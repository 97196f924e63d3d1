/* What is computed of values of all rows, once: on one device, with everything replicated. */
#include "executor/session/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/transform/evaluation.h"
#include "dtp/device_mesh.h"
#include "executor/device/convert.h"
#include "executor/session/session_internal.h"
#include "spmd/lower/lower.h"

typedef struct end_run {
    dtp_graph *graph;
    dtp_arena *arena;
    dtp_program *program;
    dtp_backend *backend;
    dtp_comm *comm;
    dtp_session *session;
} end_run;

static dtp_status open_end(end_run *r, dtp_err *err)
{
    dtp_lower_options lower = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_session_options options = dtp_session_options_init();
    dtp_sharding one = {.n_tensors = r->graph->n_tensors, .n_nodes = r->graph->n_nodes};
    r->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, r->arena));
    DTP_TRY(DTP_NEW(r->arena, one.layouts, one.n_tensors, err));
    DTP_TRY(DTP_NEW(r->arena, one.strategies, one.n_nodes, err));
    for (dtp_tensor_id t = 0; t < one.n_tensors; t++) {
        one.layouts[t] = dtp_layout_replicated(r->graph->tensors[t].type.rank, 0);
    }
    DTP_TRY(dtp_graph_results(r->graph, r->arena, &lower.n_fetch, &lower.fetch, err));
    DTP_TRY(dtp_backend_create("ref", 1, &r->backend, err));
    lower.target = dtp_target_of_backend(r->backend->ops->name);
    DTP_TRY(dtp_lower(r->graph, &one, &lower, &r->program, err));
    DTP_TRY(dtp_comm_self_create(&r->comm, err));
    options.allow_nan = true;
    return dtp_session_create(r->program, r->backend, r->comm, &options, &r->session, err);
}

/* The parameters are the folds of `g`. */
static dtp_status fill_end(const dtp_graph *g, const dtp_evaluation *sum, end_run *r, dtp_err *err)
{
    for (int32_t k = 0; k < g->n_folds; k++) {
        const dtp_graph_tensor *tensor = &g->tensors[g->folds[k].tensor];
        const dtp_tensor_id t = dtp_graph_find(r->graph, tensor->name);
        const dtp_value_id v = t >= 0 ? r->session->tensor_value[t] : -1;
        const int64_t bytes = dtp_ttype_bytes(&tensor->type);
        if (v < 0) {
            continue; /* a result itself */
        }
        void *data = malloc((size_t)bytes + 1);
        DTP_TRY(DTP_MEMORY(err, data));
        for (int64_t i = 0; i < sum->folded[k].n; i++) {
            dtp_element_set(tensor->type.dtype, data, i, sum->folded[k].values[i]);
        }
        const dtp_status s = r->backend->ops->upload(
            r->backend, dtp_runner_view(r->session->runner, v)->data, data, (size_t)bytes, err);
        free(data);
        DTP_TRY(s);
    }
    return DTP_OK;
}

/* ---- results ---- */

static dtp_status take_result(const dtp_graph *g, dtp_tensor_id t, const end_run *r,
                              const dtp_evaluation *sum, double *out, dtp_err *err)
{
    const dtp_ttype *type = &g->tensors[t].type;
    const int64_t n = dtp_ttype_elems(type);
    const int32_t k = dtp_evaluation_fold(g, t);
    if (k >= 0) {
        memcpy(out, sum->folded[k].values, (size_t)n * sizeof *out);
        return DTP_OK;
    }
    void *data = malloc((size_t)dtp_ttype_bytes(type) + 1);
    DTP_TRY(DTP_MEMORY(err, data));
    const dtp_tensor_id made = dtp_graph_find(r->graph, g->tensors[t].name);
    const dtp_status s = dtp_session_gather(r->session, made, data, err);
    for (int64_t i = 0; i < n && s == DTP_OK; i++) {
        out[i] = dtp_element(type->dtype, data, i);
    }
    free(data);
    return s;
}

static dtp_status take_results(const dtp_graph *g, const end_run *r, dtp_evaluation *sum,
                               dtp_err *err)
{
    sum->metrics = calloc((size_t)g->n_results, sizeof *sum->metrics);
    DTP_TRY(DTP_MEMORY(err, sum->metrics));
    DTP_TRY(take_result(g, g->results[0], r, sum, &sum->loss, err));
    for (int32_t i = 1; i < g->n_results; i++) {
        const dtp_graph_tensor *t = &g->tensors[g->results[i]];
        struct dtp_metric *m = &sum->metrics[sum->n_metrics++];
        m->n = dtp_ttype_elems(&t->type);
        m->name = strdup(t->name);
        m->values = calloc((size_t)m->n + 1, sizeof *m->values);
        DTP_TRY(DTP_MEMORY(err, m->name, m->values));
        DTP_TRY(take_result(g, g->results[i], r, sum, m->values, err));
    }
    return DTP_OK;
}

static dtp_status compute_results(const dtp_graph *g, dtp_evaluation *sum, dtp_err *err)
{
    end_run r = {0};
    dtp_step_result step;
    dtp_status s = dtp_graph_evaluation_end(g, &r.graph, err);
    if (s == DTP_OK && r.graph != NULL) {
        s = open_end(&r, err);
        s = s == DTP_OK ? fill_end(g, sum, &r, err) : s;
        s = s == DTP_OK ? dtp_session_step(r.session, &step, err) : s;
    }
    s = s == DTP_OK ? take_results(g, &r, sum, err) : s;
    dtp_session_destroy(r.session);
    dtp_comm_destroy(r.comm);
    dtp_program_destroy(r.program);
    dtp_backend_destroy(r.backend);
    dtp_arena_destroy(r.arena);
    dtp_graph_destroy(r.graph);
    return s;
}

static dtp_status end(const dtp_graph *g, bool allow_nan, dtp_evaluation *sum, dtp_err *err)
{
    bool empty = false; /* a mean over labels has no label that counts */
    for (int32_t k = 0; k < g->n_folds; k++) {
        empty = empty || (g->folds[k].by == DTP_ROWS_WEIGHTED && !(sum->folded[k].weight > 0.0));
        const bool mean = g->folds[k].by == DTP_ROWS_MEAN || g->folds[k].by == DTP_ROWS_WEIGHTED;
        for (int64_t i = 0; i < sum->folded[k].n && mean; i++) {
            sum->folded[k].values[i] /= sum->folded[k].weight;
        }
    }
    DTP_TRY(compute_results(g, sum, err));
    if (!allow_nan && !isfinite(sum->loss)) {
        return DTP_FAIL(err, DTP_NOT_FINITE, "the loss over %" PRId64 " rows is not finite: %g%s",
                        sum->rows, sum->loss,
                        empty ? ": no label has a weight, all are ignored" : "");
    }
    return DTP_OK;
}

dtp_status dtp_evaluation_end(const dtp_graph *g, dtp_comm *comm, bool allow_nan,
                              dtp_evaluation *sum, dtp_err *err)
{
    return dtp_comm_agree_status(comm, comm->rank == 0 ? end(g, allow_nan, sum, err) : DTP_OK, err);
}

void dtp_evaluation_free(dtp_evaluation *sum)
{
    for (int32_t k = 0; k < sum->n_metrics; k++) {
        free(sum->metrics[k].name);
        free(sum->metrics[k].values);
    }
    for (int32_t k = 0; k < sum->n_folded; k++) {
        free(sum->folded[k].values);
    }
    free(sum->metrics);
    free(sum->folded);
    *sum = (dtp_evaluation){0};
}
