/* dtrun eval: the loss and the metrics of a model over the whole of its files. */
#include "tools/dtrun/evaluation.h"

typedef struct eval_command {
    tool_source source;
    tool_ranks ranks;
    tool_list feeds;
    const char *load, *output;
    int64_t seed;
    bool json, no_writes, allow_nan;
    /* from here on: derived */
    dtrun_evaluation evaluation;
    dtp_ctx ctx;
} eval_command;

static dtp_status print_result(const eval_command *c, const dtp_evaluation *result, dtp_err *err)
{
    dtp_strbuf text = {0};
    dtp_status s = DTP_OK;
    if (c->json || c->output != NULL) {
        s = dtrun_evaluation_json(&c->evaluation, result, &text, err);
        s = s == DTP_OK ? tool_put_in(c->output, &text, err) : s;
        dtp_strbuf_free(&text);
    }
    if (s == DTP_OK && !c->json) {
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
    if (c->ranks.backend == NULL) {
        c->ranks.backend = "cpu";
    }
    c->source.backend = c->ranks.backend;
    DTP_TRY(dtrun_evaluation_open(&c->source, &c->feeds, &c->ctx, &c->evaluation, err));
    c->evaluation.options.load = c->load;
    DTP_TRY(dtrun_stored(&c->source, &c->evaluation.all, c->load, NULL,
                         &c->evaluation.options.stored, err));
    c->evaluation.options.seed = (uint64_t)c->seed;
    c->evaluation.options.allow_nan = c->allow_nan;
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->evaluation.all.run), eval_rank, c, err);
}

int dtrun_eval(int argc, char **argv)
{
    eval_command c = {0};
    const tool_option options[] = {
        DTRUN_LAYOUT_OPTIONS(c.source),
        TOOL_CHOICE_OPTIONS(c.source),
        TOOL_MODEL_OPTIONS(c.source),
        {"--load", TOOL_STRING, "PATH", &c.load, 0, 0,
         "checkpoint with the parameters (default: initial values)"},
        TOOL_NAMES_OPTION(c.source),
        {"--feed", TOOL_LIST, "NAME=FILE", &c.feeds, 0, 0,
         "data of an input, as for run; every input needs it"},
        {"--seed", TOOL_INT, "N", &c.seed, 0, 9e15, "seed of initial values"},
        {"--allow-nan", TOOL_FLAG, NULL, &c.allow_nan, 0, 0, "go on when a loss is not finite"},
        DTRUN_RANK_OPTIONS(c.ranks),
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "result as JSON"},
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0, "JSON result into a file (-o)"},
        {"--no-writes", TOOL_NO_WRITES, NULL, &c.no_writes, 0, 0,
         "refuse options that write files"},
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {"dtrun eval MODEL [options]", options, 1, 1};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &parse, argc, argv, execute, &c);
    dtrun_evaluation_close(&c.evaluation);
    return code;
}
