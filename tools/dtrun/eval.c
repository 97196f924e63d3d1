/* dtrun eval: the loss and the metrics of a model over the whole of its files. */
#include "tools/dtrun/evaluation.h"

typedef struct eval_command {
    tool_source source;
    tool_ranks ranks;
    /* from here on: derived */
    dtrun_evaluation evaluation;
    dtp_ctx ctx;
} eval_command;

static dtp_status print_result(const eval_command *c, const dtp_evaluation *result, dtp_err *err)
{
    dtp_strbuf text = {0};
    dtp_status s = DTP_OK;
    if (c->source.json || c->source.output != NULL) {
        s = dtrun_evaluation_json(&c->evaluation, result, &text, err);
        s = s == DTP_OK ? tool_put_in(c->source.output, &text, err) : s;
        dtp_strbuf_free(&text);
    }
    if (s == DTP_OK && !c->source.json) {
        dtrun_evaluation_text(result, &text);
        s = tool_put_text(&text, err);
        dtp_strbuf_free(&text);
    }
    return s;
}

static dtp_status eval_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    eval_command *c = user;
    dtrun_evaluation e = c->evaluation; /* of this rank */
    dtp_evaluation result = {0};
    dtp_ctx ctx = c->ctx;
    ctx.rank = comm->size > 1 ? comm->rank : -1;
    e.options.ctx = &ctx;
    dtp_status s = dtrun_evaluation_run(&e, backend, comm, NULL, &result, err);
    if (s == DTP_OK && comm->rank == 0) {
        s = print_result(c, &result, err);
    }
    dtp_evaluation_free(&result);
    return s;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    eval_command *c = command;
    c->source.model = operands[0];
    DTP_TRY(dtrun_evaluation_open(&c->source, &c->source.feeds, &c->ctx, &c->evaluation, err));
    c->evaluation.options.load = c->source.load;
    DTP_TRY(dtrun_stored(&c->source, &c->evaluation.all, c->source.load, NULL,
                         &c->evaluation.options.stored, err));
    c->evaluation.options.seed = (uint64_t)c->source.seed;
    c->evaluation.options.allow_nan = c->source.allow_nan;
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->evaluation.all.run), eval_rank, c, err);
}

int dtrun_eval(int argc, char **argv)
{
    eval_command c = {0};
    const tool_call call = {TOOL_EVAL, execute, &c, &c.source, NULL};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &call, argc, argv);
    dtrun_evaluation_close(&c.evaluation);
    return code;
}
