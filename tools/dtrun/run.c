/* dtrun run: trains or runs a model and reports predicted beside measured. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/units.h"
#include "core/files/file_in.h"
#include "cost_models/model_flops.h"
#include "tools/run_report.h"
#include "tools/dtrun/evaluation.h"
#include "tools/dtrun/run_log.h"
#include "tools/dtrun/run_trace.h"
#include "tools/interrupt.h"

typedef struct run_command {
    tool_source source;
    tool_ranks ranks;
    dtp_session_options options;
    /* from here on: derived */
    int64_t save_steps, save_s; /* of --save-every: one of the two; 0: it is not given */
    int32_t n_fetch;
    const char *fetch_names[TOOL_LIST_MAX], *fetch_files[TOOL_LIST_MAX];
    char fetch_text[TOOL_LIST_MAX][256];
    dtrun_feeds feed_specs;
    tool_job job;
    dtrun_evaluation evaluation;
    dtp_ctx ctx;
} run_command;

/* Entropy of single bytes in nats: what a model reaches that only knows letter frequencies. */
static double byte_entropy(const unsigned char *text, size_t n)
{
    double counts[256] = {0}, h = 0.0;
    for (size_t i = 0; i < n; i++) {
        counts[text[i]] += 1.0;
    }
    for (int b = 0; b < 256; b++) {
        double p = counts[b] / (double)n;
        h -= p > 0.0 ? p * log(p) : 0.0;
    }
    return h;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), k = strlen(tail);
    return n >= k && strcmp(text + n - k, tail) == 0;
}

/* For every file of bytes fed: what its single bytes say about the loss to expect. */
static dtp_status print_entropies(const run_command *c, double last_loss, dtp_strbuf *out,
                                  dtp_err *err)
{
    for (int32_t i = 0; i < c->feed_specs.n; i++) {
        char *text = NULL;
        size_t n = 0;
        const char *file = c->feed_specs.specs[i].file, *dtype = c->feed_specs.specs[i].dtype;
        if (ends_with(file, ".npy") || (dtype != NULL && strcmp(dtype, "u1") != 0)) {
            continue;
        }
        const dtp_status s = dtp_file_read(file, (size_t)1 << 31, &text, &n, err);
        if (s == DTP_NOMEM) {
            return s;
        }
        if (s != DTP_OK) {
            continue; /* it was fed, so it is larger than that, or gone since */
        }
        double h = byte_entropy((const unsigned char *)text, n);
        dtp_strbuf_addf(out, "%s: %s, entropy of single bytes %.4f nats; final loss %.4f (%s)\n",
                        file, dtp_byte_count((double)n).text, h, last_loss,
                        last_loss < h ? "below" : "not below");
        free(text);
    }
    return DTP_OK;
}

static dtp_status print_report(const run_command *c, dtp_report *report, dtp_err *err)
{
    if (c->source.json || c->source.output != NULL) {
        dtp_strbuf text = {0};
        dtp_status s = dtp_report_json(report, c->options.profile, &text, err);
        s = s == DTP_OK ? tool_put_in(c->source.output, &text, err) : s;
        dtp_strbuf_free(&text);
        DTP_TRY(s);
    }
    if (!c->source.json && report->n_steps > 0) {
        dtp_strbuf text = {0};
        dtp_report_text(report, &text);
        dtp_status s = DTP_OK;
        if (report->steps[report->n_steps - 1].has_loss) {
            s = print_entropies(c, report->steps[report->n_steps - 1].loss, &text, err);
        }
        s = s == DTP_OK ? tool_put_text(&text, err) : s;
        dtp_strbuf_free(&text);
        return s;
    }
    return DTP_OK;
}

/* One rank of a run. */
typedef struct rank_run {
    dtp_session *session;
    dtp_backend *backend;
    dtp_comm *comm;
    dtp_report report;
    dtrun_log log;     /* rank 0 */
    int64_t next, end; /* the step to finish next; behind the last one */
    int sig;           /* of the signal that ends the run */
    bool due;          /* a save is, by time */
    int64_t saved;     /* next step of what was saved last; -1: nothing was */
    double saved_s;    /* when */
} rank_run;

static dtp_status save(const run_command *c, rank_run *r, dtp_err *err)
{
    DTP_TRY(dtp_session_save(r->session, c->options.save, err));
    r->saved = dtp_session_next_step(r->session);
    r->saved_s = dtp_now_s();
    r->due = false;
    return DTP_OK;
}

/* What the ranks agree on after a step: whether a signal came, whether a save is due by the clock
 * of rank 0, and `mine`, the outcome of what a rank did alone. */
static dtp_status agree(const run_command *c, rank_run *r, dtp_status mine, dtp_err *err)
{
    int64_t noted[] = {*tool_interrupt_signal(),
                       r->comm->rank == 0 && c->save_s > 0 &&
                           dtp_now_s() - r->saved_s >= (double)c->save_s,
                       mine != DTP_OK};
    if (r->comm->size > 1) {
        const dtp_status s = dtp_comm_all_reduce(r->comm, DTP_REDUCE_MAX, DTP_I64, 3, noted, err);
        DTP_TRY(dtp_err_prefixed(s, err, "rank %d: after step %" PRId64, r->comm->rank, r->next));
    }
    r->sig = r->sig == 0 ? (int)noted[0] : r->sig;
    r->due = r->due || noted[1] != 0;
    return noted[2] == 0 ? DTP_OK : dtp_comm_agree_status(r->comm, mine, err);
}

static void print_progress(const run_command *c, const rank_run *r, bool first)
{
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const bool shown = first || r->next % c->source.log_every == 0 || r->next == r->end;
    if (r->comm->rank == 0 && !c->source.quiet && (terminal || shown)) {
        char line[256], time[DTP_TIME_BYTES];
        dtp_report_progress(&r->report, r->end, line, sizeof line);
        dtp_time_print(time); /* to the second; a terminal has no room for the day */
        (void)fprintf(stderr, "%s%.*sZ %s%s", terminal ? "\r" : "", terminal ? 8 : 19,
                      terminal ? time + 11 : time, line, terminal && !shown ? "  " : "\n");
    }
}

/* The loss over the files of --eval-feed, with the parameters after the step. */
static dtp_status evaluate(const run_command *c, rank_run *r, dtp_err *err)
{
    dtp_evaluation result = {0};
    dtp_status s =
        dtrun_evaluation_run(&c->evaluation, r->backend, r->comm, r->session, &result, err);
    s = s == DTP_OK ? dtp_report_add_eval(&r->report, r->next, result.loss, err) : s;
    if (s == DTP_OK && r->comm->rank == 0 && !c->source.quiet) {
        dtp_strbuf text = {0};
        dtp_strbuf_add(&text, isatty(STDERR_FILENO) != 0 ? "\reval: " : "eval: ");
        dtrun_evaluation_text(&result, &text);
        s = text.failed ? DTP_FAIL(err, DTP_NOMEM, "no memory for its line") : DTP_OK;
        (void)fputs(dtp_strbuf_text(&text), stderr);
        dtp_strbuf_free(&text);
    }
    dtp_evaluation_free(&result);
    return dtp_err_prefixed(s, err, "evaluation after step %" PRId64, r->next);
}

/* The first step after those that are finished behind which something comes every N steps. */
static int64_t next_multiple(const rank_run *r, int64_t every)
{
    return every > 0 ? (r->next / every + 1) * every : r->end;
}

/* A step is finished. Steps that were started after it are not waited for but before a save. */
static dtp_status after_step(const run_command *c, rank_run *r, const dtp_step_result *step,
                             dtp_err *err)
{
    r->next = step->step + 1;
    dtp_status mine = dtp_report_add(&r->report, step, err);
    const bool whole = dtp_session_next_step(r->session) == r->next && r->sig == 0;
    if (c->source.eval_every > 0 && whole &&
        (r->next % c->source.eval_every == 0 || r->next == r->end)) {
        DTP_TRY(evaluate(c, r, err));
    }
    mine = mine == DTP_OK ? dtrun_log_step(&r->log, &r->report, err) : mine;
    DTP_TRY(agree(c, r, mine, err));
    print_progress(c, r, r->report.n_steps == 1);
    const bool due = r->due || (c->save_steps > 0 && r->next % c->save_steps == 0);
    const bool drained = dtp_session_next_step(r->session) == r->next;
    return due && drained && r->sig == 0 && r->next < r->end ? save(c, r, err) : DTP_OK;
}

/* Whether the next step may be started: nothing is saved, evaluated or ends before it. */
static bool may_start(const run_command *c, const rank_run *r)
{
    const int64_t started = dtp_session_next_step(r->session);
    return r->sig == 0 && !r->due && started < r->end &&
           started < next_multiple(r, c->save_steps) &&
           started < next_multiple(r, c->source.eval_every) &&
           started < r->next + dtp_session_ahead(r->session);
}

/* Runs the steps, or those until a signal. */
static dtp_status train(const run_command *c, rank_run *r, dtp_err *err)
{
    dtp_step_result step;
    while (r->next < r->end && (r->sig == 0 || r->next < dtp_session_next_step(r->session))) {
        while (may_start(c, r)) {
            DTP_TRY(dtp_session_start_step(r->session, err));
        }
        DTP_TRY(dtp_session_finish_step(r->session, &step, err));
        DTP_TRY(after_step(c, r, &step, err));
    }
    return DTP_OK;
}

static dtp_status finish(const run_command *c, rank_run *r, dtp_err *err)
{
    dtp_session *session = r->session;
    dtp_report *report = &r->report;
    if (!c->source.allow_nan && c->options.save == NULL) { /* a save looks by itself */
        DTP_TRY(dtp_session_check(session, err));
    }
    DTP_TRY(dtp_report_finish(report, session, err));
    if (c->options.save != NULL &&
        r->saved != r->next) { /* first: a run that was interrupted may have little time left */
        DTP_TRY(save(c, r, err));
    }
    if (c->source.save_hf != NULL) {
        DTP_TRY(dtp_session_save_stored(session, c->source.save_hf, c->source.save_hf_size, err));
    }
    if (c->n_fetch > 0 && report->n_steps == 0) {
        return DTP_FAIL(err, DTP_INVALID, "--fetch: no step is left to run: raise --steps");
    }
    for (int32_t i = 0; i < c->n_fetch; i++) {
        dtp_tensor_id t;
        DTP_TRY(dtp_job_tensor(c->job.run, c->fetch_names[i], &t, NULL, err));
        DTP_TRY(dtp_session_fetch_npy(session, t, c->fetch_files[i], err));
    }
    if (c->source.trace != NULL && report->n_steps > 0) {
        DTP_TRY(dtrun_write_trace(c->source.trace, session, r->comm,
                                  &report->steps[report->n_steps - 1], c->job.machine, c->job.run,
                                  err));
    }
    return r->comm->rank == 0 ? print_report(c, report, err) : DTP_OK;
}

/* A trace is made of what a profile notes. */
static bool is_profiled(const run_command *c)
{
    return c->options.profile || c->source.trace != NULL;
}

/* Of --resume: what the run goes on from. */
static void print_start(const run_command *c, const rank_run *r)
{
    const char *from = dtp_session_resumed(r->session);
    (void)fprintf(stderr, "dtrun: ");
    if (from != NULL) {
        (void)fprintf(stderr, "%s: goes on after step %" PRId64 " of %" PRId64 "%s\n", from,
                      r->next, r->end, r->next >= r->end ? ": nothing is left to do" : "");
    } else {
        (void)fprintf(stderr, "%s: holds no checkpoint: starts %s%s\n", c->options.save,
                      c->source.load != NULL ? "from " : "at the first step",
                      c->source.load != NULL ? c->source.load : "");
    }
}

/* The steps of a session that was made, and what is written after them. */
static dtp_status run_steps(run_command *c, rank_run *r, const char *backend, dtp_err *err)
{
    r->next = dtp_session_next_step(r->session);
    r->end = c->options.resume ? c->source.steps : r->next + c->source.steps;
    r->saved = dtp_session_resumed(r->session) != NULL ? r->next : -1;
    r->saved_s = dtp_now_s();
    DTP_TRY(dtp_report_start(&r->report, r->session, backend, r->comm->ops->name,
                             dtp_job_predicted(c->job.run), err));
    r->report.rates = r->report.has_prediction ? tool_rates(c->job.machine, c->job.plan) : NULL;
    r->report.pipeline = c->job.run->pipeline;
    r->report.tokens = dtp_model_flops_of(c->job.model).tokens;
    const dtp_status opened = dtrun_log_open(
        &r->log, r->comm->rank == 0 ? c->source.log_json : NULL, c->options.resume, r->next, err);
    DTP_TRY(dtp_comm_agree_status(r->comm, opened, err));
    if (c->options.resume && r->comm->rank == 0) {
        print_start(c, r);
    }
    tool_interrupt_catch();
    DTP_TRY(train(c, r, err));
    DTP_TRY(finish(c, r, err));
    if (r->sig != 0) { /* after everything was saved and reported */
        if (r->comm->rank == 0) {
            (void)fprintf(stderr, "%sdtrun: interrupted by %s after step %" PRId64 "\n",
                          isatty(STDERR_FILENO) != 0 && !c->source.quiet ? "\n" : "",
                          tool_interrupt_name(r->sig), r->next);
        }
        atomic_store(&c->ranks.code, 128 + r->sig);
    }
    return DTP_OK;
}

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    run_command *c = user;
    rank_run r = {.comm = comm, .backend = backend, .saved = -1};
    dtp_ctx ctx = c->ctx;
    ctx.rank = comm->size > 1 ? comm->rank : -1;
    dtp_session_options options = c->options; /* of this rank */
    options.load = c->source.load;
    options.allow_nan = c->source.allow_nan;
    options.n_feeds = c->feed_specs.n;
    options.feeds = c->feed_specs.specs;
    options.ctx = &ctx;
    options.profile = is_profiled(c);
    if (c->source.trace != NULL && dtp_job_program(c->job.run)->chunks != NULL &&
        backend->ops->queue != NULL) { /* sections begin when the queue runs them */
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "--trace of a plan with stages is for backends without a queue, not '%s'",
                        backend->ops->name);
    }
    DTP_TRY(
        dtp_session_create(dtp_job_program(c->job.run), backend, comm, &options, &r.session, err));
    dtp_status s =
        c->evaluation.all.run != NULL ? dtrun_evaluation_agree(&c->evaluation, comm, err) : DTP_OK;
    s = s == DTP_OK ? run_steps(c, &r, backend->ops->name, err) : s;
    dtrun_log_close(&r.log);
    dtp_report_free(&r.report);
    dtp_session_destroy(r.session);
    return s;
}

/* Whether steps with collectives are recorded, as far as the command line says: over `nccl`, which
 * ranks that are processes get where each has a card. */
static bool transport_records(const tool_source *source)
{
    const char *transport = source->transport != NULL ? source->transport : "auto";
    const bool threads = source->comm != NULL && strcmp(source->comm, "sim") == 0;
    return strcmp(transport, "nccl") == 0 || (strcmp(transport, "auto") == 0 && !threads);
}

/* Options about the checkpoint that others must stand beside. */
static dtp_status check_saves(run_command *c, dtp_err *err)
{
    const char *to = c->options.save, *every = c->source.save_every;
    if (c->source.steps == 0 && to == NULL && c->source.save_hf == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--steps: '0' is for --save or --save-hf alone");
    }
    if (c->options.keep > 0 && (to == NULL || ends_with(to, ".safetensors"))) {
        return DTP_FAIL(err, DTP_INVALID, "--keep needs --save with a directory");
    }
    if (to == NULL && (every != NULL || c->options.resume)) {
        return DTP_FAIL(err, DTP_INVALID, "%s needs --save",
                        every != NULL ? "--save-every" : "--resume");
    }
    if (every == NULL) {
        return DTP_OK;
    }
    const bool good = dtp_int_parse(every, &c->save_steps) ? c->save_steps > 0
                                                           : dtp_duration_parse(every, &c->save_s);
    return good ? DTP_OK
                : DTP_FAIL(err, DTP_INVALID,
                           "--save-every: '%s' is neither a number of steps such as 500 nor a time "
                           "such as 30s, 10m or 2h",
                           every);
}

/* The programs of --eval-every. */
static dtp_status open_evaluation(run_command *c, dtp_err *err)
{
    if ((c->source.eval_every > 0) != (c->source.eval_feeds.n > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "--eval-every and --eval-feed need each other");
    }
    if (c->source.eval_every == 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_err_prefixed(
        dtrun_evaluation_open(&c->source, &c->source.eval_feeds, NULL, &c->evaluation, err), err,
        "evaluation"));
    c->evaluation.options.seed = c->options.seed;
    c->evaluation.options.allow_nan = c->source.allow_nan;
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    run_command *c = command;
    c->source.model = operands[0];
    c->source.unrecorded = c->options.no_graph || is_profiled(c) || !transport_records(&c->source);
    DTP_TRY(check_saves(c, err));
    c->source.any_stages = true;
    c->options.any_seed = c->source.seed < 0;
    c->options.seed = c->source.seed < 0 ? 0 : (uint64_t)c->source.seed;
    for (int32_t i = 0; i < c->source.fetches.n; i++) {
        DTP_TRY(dtp_err_prefixed(tool_split_pair(c->source.fetches.items[i], c->fetch_text[i],
                                                 sizeof c->fetch_text[i], &c->fetch_files[i], err),
                                 err, "--fetch"));
        c->fetch_names[i] = c->fetch_text[i];
    }
    c->n_fetch = c->source.fetches.n;
    DTP_TRY(dtrun_feeds_parse(&c->source.feeds, &c->feed_specs, err));
    DTP_TRY(tool_job_create(&c->source, c->n_fetch, c->fetch_names, false, &c->ctx, &c->job, err));
    if (c->source.eval_every > 0 && c->job.run->pipeline != NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "--eval-every is of plans without stages: the plan has %d",
                        c->job.run->pipeline->table.n_stages);
    }
    DTP_TRY(dtrun_stored(&c->source, &c->job, c->source.load, c->source.save_hf, &c->options.stored,
                         err));
    DTP_TRY(open_evaluation(c, err));
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->job.run), run_rank, c, err);
}

int dtrun_run(int argc, char **argv)
{
    run_command c = {.source = {.seed = -1}, .options = dtp_session_options_init()};
    const tool_call call = {TOOL_RUN, execute, &c, &c.source, &c.options};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &call, argc, argv);
    tool_job_free(&c.job);
    dtrun_evaluation_close(&c.evaluation);
    dtrun_feeds_free(&c.feed_specs);
    return code;
}
