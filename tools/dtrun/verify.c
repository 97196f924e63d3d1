/* dtrun verify: N ranks against one device: outputs, gradients and updates of k steps. */
#include <stdio.h>
#include <string.h>

#include "cost_models/job.h"
#include "tools/run_report.h"
#include "tools/dtrun/options.h"
#include "tools/progress.h"
#include "dtp/device_mesh.h"

typedef struct verify_command {
    tool_source source;
    tool_ranks ranks;
    tool_list feeds;
    dtp_verify_options options;
    const char *one_device; /* --reference NAME: its backend */
    bool json;
    dtrun_feeds feed_specs;
    tool_job job;
    dtp_graph *precise;         /* the model in the job's precision; NULL: it is f32 */
    const dtp_graph *reference; /* without recomputation and microbatches; NULL: the job's */
    dtp_ctx ctx;
} verify_command;

static dtp_status verify_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    verify_command *c = user;
    dtp_backend *reference = NULL;
    dtp_verify_result result = {0};
    if (comm->rank == 0) {
        DTP_TRY(dtp_backend_create(c->one_device, backend->threads, &reference, err));
    }
    dtp_verify_options options = c->options; /* of this rank */
    options.n_feeds = c->feed_specs.n;
    options.feeds = c->feed_specs.specs;
    options.reference = reference;
    options.reference_graph = c->reference;
    const dtp_job *job = c->job.run;
    dtp_strbuf text = {0};
    if (comm->rank == 0) {
        tool_progress_begin("verifying");
    }
    dtp_status s = dtp_verify(job->graph, job->program, backend, comm, &options, &result, err);
    if (comm->rank == 0) {
        tool_progress_end();
    }
    if (s == DTP_OK && comm->rank == 0) {
        if (c->json) {
            s = dtp_verify_json(&result, c->job.model->name, dtp_job_mesh(job), &text, err);
        } else {
            dtp_verify_text(&result, &text);
        }
        s = s == DTP_OK ? (c->json ? tool_put : tool_put_text)(&text, err) : s;
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
    if (c->ranks.backend == NULL) {
        c->ranks.backend = "cpu";
    }
    c->source.backend = c->ranks.backend;
    c->one_device = c->one_device != NULL ? c->one_device : c->ranks.backend;
    DTP_TRY(dtrun_feeds_parse(&c->feeds, &c->feed_specs, err));
    c->source.any_dims = true;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, true, &c->ctx, &c->job, err));
    const dtp_precision *precision = &c->job.run->variant.precision;
    if (!dtp_precision_is_f32(precision)) {
        DTP_TRY(dtp_graph_with_precision(c->job.model, precision, &c->precise, err));
    }
    c->reference = c->precise != NULL                            ? c->precise
                   : dtp_graph_variant_any(&c->job.run->variant) ? c->job.model
                                                                 : NULL;
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->job.run), verify_rank, c, err);
}

int dtrun_verify(int argc, char **argv)
{
    verify_command c = {.options = dtp_verify_options_init()};
    const tool_option options[] = {
        DTRUN_SOURCE_OPTIONS(c.source),
        {"--steps", TOOL_COUNT, "N", &c.options.steps, 1, 1e6, "steps to compare (default 3)"},
        {"--tolerance", TOOL_REAL, "X", &c.options.tolerance, 0, 1,
         "largest relative error (default 2e-5; tf32, 16 bits: docs/precision.md)"},
        {"--seed", TOOL_INT, "N", &c.options.seed, 0, 9e15,
         "seed of weights, dropout and data order"},
        {"--feed", TOOL_LIST, "NAME=FILE", &c.feeds, 0, 0, "data of an input, as for run"},
        {"--reference", TOOL_STRING, "NAME", &c.one_device, 0, 0,
         "backend of the one device (default: that of --backend)"},
        DTRUN_RANK_OPTIONS(c.ranks),
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "result as JSON"},
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {"dtrun verify MODEL [options]", options, 1, 1};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &parse, argc, argv, execute, &c);
    dtp_graph_destroy(c.precise);
    tool_job_free(&c.job);
    dtrun_feeds_free(&c.feed_specs);
    return code;
}
