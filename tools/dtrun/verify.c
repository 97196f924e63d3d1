/* dtrun verify: N ranks against one device: outputs, gradients and updates of k steps. */
#include <stdio.h>
#include <string.h>

#include "core/transform/microbatch.h"
#include "cost_models/job.h"
#include "tools/run_report.h"
#include "tools/dtrun/options.h"
#include "tools/progress.h"
#include "dtp/device_mesh.h"

extern char **environ;

typedef struct verify_command {
    tool_source source;
    tool_ranks ranks;
    dtp_verify_options options;
    dtrun_feeds feed_specs;
    tool_job job;
    dtp_graph *precise; /* the model in the job's precision; NULL: it is f32 */
    const dtp_graph
        *reference; /* without recomputation and microbatches; NULL: the job's, also where
                                   parts of a batch have statistics of their own */
    dtp_ctx ctx;
} verify_command;

static dtp_status verify_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    verify_command *c = user;
    dtp_backend *reference = NULL;
    dtp_verify_result result = {0};
    if (comm->rank == 0) {
        DTP_TRY(dtp_backend_create(c->source.reference, backend->threads, &reference, err));
    }
    dtp_verify_options options = c->options; /* of this rank */
    options.n_feeds = c->feed_specs.n;
    options.feeds = c->feed_specs.specs;
    options.reference = reference;
    options.reference_graph = c->reference;
    const dtp_job *job = c->job.run;
    const bool smaller = c->job.planned_model != NULL;
    const dtp_verified what = {.model = c->job.model,
                               .mesh = dtp_job_mesh(job),
                               .target = job->program->target->name,
                               .planned_target =
                                   c->job.planned_for != NULL ? c->job.planned_for->name : NULL,
                               .without_tf32 = c->job.without_tf32,
                               .planned_model = c->job.planned_model,
                               .planned_mesh = smaller ? &c->job.planned_mesh : NULL};
    dtp_strbuf text = {0};
    if (comm->rank == 0) {
        tool_progress_begin("verifying");
    }
    dtp_status s = dtp_verify(job->graph, job->program, backend, comm, &options, &result, err);
    if (comm->rank == 0) {
        tool_progress_end();
    }
    if (s == DTP_OK && comm->rank == 0) {
        if (c->source.json) {
            s = dtp_verify_json(&result, &what, &text, err);
        } else {
            dtp_verify_text(&result, &what, &text);
        }
        s = s == DTP_OK ? (c->source.json ? tool_put : tool_put_text)(&text, err) : s;
        dtp_strbuf_free(&text);
    }
    if (s == DTP_OK && !result.pass) {
        atomic_store(&c->ranks.code, TOOL_MISMATCH);
    }
    dtp_verify_result_free(&result);
    dtp_backend_destroy(reference);
    return s;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    verify_command *c = command;
    c->source.model = operands[0];
    if (c->source.reference == NULL) {
        c->source.reference = c->source.backend;
    }
    DTP_TRY(dtrun_feeds_parse(&c->source.feeds, &c->feed_specs, err));
    c->source.any_dims = true;
    c->source.any_target = true;
    c->source.any_stages = true;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, true, &c->ctx, &c->job, err));
    const bool as_planned = c->job.planned_for == NULL && c->job.planned_model == NULL;
    if (!as_planned && c->source.comm == NULL && !dtp_comm_in_mpi_job(environ)) {
        c->source.comm = "sim"; /* ranks of another machine are threads here */
    }
    const dtp_precision *precision = &c->job.run->variant.precision;
    if (!dtp_precision_is_f32(precision)) {
        DTP_TRY(dtp_graph_with_precision(c->job.model, precision, &c->precise, err));
    }
    c->reference = dtp_microbatch_has_statistics(c->job.run->graph) ? NULL
                   : c->precise != NULL                             ? c->precise
                   : dtp_graph_variant_any(&c->job.run->variant)    ? c->job.model
                                                                    : NULL;
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->job.run), verify_rank, c, err);
}

int dtrun_verify(int argc, char **argv)
{
    verify_command c = {.options = dtp_verify_options_init()};
    const tool_call call = {TOOL_VERIFY, execute, &c, &c.source, &c.options};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &call, argc, argv);
    dtp_graph_destroy(c.precise);
    tool_job_free(&c.job);
    dtrun_feeds_free(&c.feed_specs);
    return code;
}
