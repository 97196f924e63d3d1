/* dtrun sample: continues a prompt. Every token is one forward step over all tokens before it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/files/file_in.h"
#include "cost_models/job.h"
#include "executor/device/convert.h"
#include "executor/session/session.h"
#include "tools/dtrun/options.h"

enum { BYTES = 256, MAX_PROMPT = 1 << 28 };

typedef struct sample_command {
    tool_source source;
    tool_ranks ranks;
    const dtp_stored_params *stored;
    /* from here on: derived */
    dtrun_feeds feed_specs;
    tool_job job;
    dtp_ctx ctx;
    dtp_tensor_id in, out;
    int64_t rows, window, places, vocab; /* input [rows, window], logits [rows, places, vocab] */
    int64_t *start, n_start;             /* the tokens of the prompt */
} sample_command;

/* ---- the model and the prompt ---- */

static bool named(const char *wanted, const dtp_graph_tensor *t)
{
    return wanted == NULL || strcmp(wanted, t->name) == 0;
}

/* Whether tokens in `in` give logits in `out`, by their shapes. */
static bool fits(const dtp_graph_tensor *in, const dtp_graph_tensor *out)
{
    const dtp_ttype *a = &in->type, *b = &out->type;
    const bool integer = a->dtype == DTP_I32 || a->dtype == DTP_I64;
    return in->kind == DTP_TENSOR_INPUT && integer && a->rank == 2 && in->below > 0 &&
           dtp_dtype_is_float(b->dtype) && b->rank == 3 && b->dims[0].id == a->dims[0].id &&
           b->dims[1].size <= a->dims[1].size && b->dims[2].size == in->below;
}

static dtp_status find_tensors(sample_command *c, dtp_err *err)
{
    const dtp_graph *g = c->job.run->graph;
    const char *first = NULL;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
            const dtp_graph_tensor *in = &g->tensors[t], *out = &g->tensors[g->outputs[i]];
            if (!fits(in, out) || !named(c->source.input, in) || !named(c->source.logits, out)) {
                continue;
            }
            if (first != NULL) {
                return DTP_FAIL(err, DTP_INVALID,
                                "%s: tokens of '%.80s' or of '%.80s', logits '%.80s' or '%.80s': "
                                "choose by --input and --logits",
                                c->source.model, first, in->name, g->tensors[c->out].name,
                                out->name);
            }
            first = in->name;
            c->in = t;
            c->out = g->outputs[i];
        }
    }
    if (first == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%s: no integer input [batch, length] with 'below' has an output [batch, "
                        "length, below] of this name and shape: the model cannot be sampled",
                        c->source.model);
    }
    const dtp_ttype *in = &g->tensors[c->in].type, *out = &g->tensors[c->out].type;
    c->rows = in->dims[0].size;
    c->window = in->dims[1].size;
    c->places = out->dims[1].size;
    c->vocab = out->dims[2].size;
    return g->microbatches > 1
               ? DTP_FAIL(err, DTP_INVALID, "microbatches are for training: sample without them")
               : DTP_OK;
}

/* Numbers of tokens, with spaces or commas between them. */
static dtp_status read_ids(sample_command *c, const char *text, dtp_err *err)
{
    static const char between[] = " ,\t\r\n";
    for (text += strspn(text, between); *text != '\0'; text += strspn(text, between)) {
        const char *at = text;
        int64_t id;
        if (!dtp_int_read(&text, &id) || id < 0 || id >= c->vocab ||
            strspn(text, between) + (*text == '\0') == 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "the prompt: '%.20s' is not a token, a number below %" PRId64, at,
                            c->vocab);
        }
        c->start[c->n_start++] = id;
    }
    return DTP_OK;
}

static dtp_status read_prompt(sample_command *c, dtp_err *err)
{
    char *file = NULL;
    const char *text = c->source.prompt != NULL ? c->source.prompt : "";
    size_t n = strlen(text);
    if (c->source.prompt_file != NULL) {
        DTP_TRY(dtp_file_read(c->source.prompt_file, MAX_PROMPT, &file, &n, err));
    }
    text = file != NULL ? file : text;
    c->start = malloc((n + 1) * sizeof *c->start);
    dtp_status status = DTP_MEMORY(err, c->start);
    if (status == DTP_OK && c->vocab == BYTES) {
        for (size_t i = 0; i < n; i++) {
            c->start[c->n_start++] = (unsigned char)text[i];
        }
    } else if (status == DTP_OK) {
        status = read_ids(c, text, err);
    }
    free(file);
    DTP_TRY(status);
    return c->n_start > 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "the prompt is empty");
}

/* ---- one rank ---- */

typedef struct ranked_token {
    double logit;
    int64_t id;
} ranked_token;

typedef struct sampler {
    const sample_command *c;
    dtp_session *session;
    dtp_comm *comm;
    int64_t n;     /* tokens of a row so far */
    int64_t *rows; /* [rows, prompt and tokens] */
    int64_t *next; /* [rows] */
    void *input, *logits;
    ranked_token *ranked; /* [vocab] */
} sampler;

static int64_t *row_of(const sampler *s, int64_t row)
{
    return s->rows + row * (s->c->n_start + s->c->source.tokens);
}

static dtp_dtype dtype_of(const sampler *s, dtp_tensor_id t)
{
    return s->c->job.run->graph->tensors[t].type.dtype;
}

static int by_logit(const void *a, const void *b)
{
    const ranked_token *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1)
                                : (x->id > y->id) - (x->id < y->id);
}

/* A step over the last tokens; places behind them have the token `rest`. The logits of the token
 * after them are at the place that is returned. */
static dtp_status forward(sampler *s, int64_t rest, int64_t *place, dtp_err *err)
{
    const sample_command *c = s->c;
    const int64_t seen = s->n < c->places ? s->n : c->places;
    dtp_step_result step;
    for (int64_t i = 0; i < c->rows * c->window; i++) {
        const int64_t row = i / c->window, at = i % c->window;
        dtp_element_set_int(dtype_of(s, c->in), s->input, i,
                            at < seen ? row_of(s, row)[s->n - seen + at] : rest);
    }
    dtp_session_set_input(s->session, c->in, s->input);
    DTP_TRY(dtp_session_step(s->session, &step, err));
    *place = seen - 1;
    return dtp_session_gather(s->session, c->out, s->logits, err);
}

static double logit(const sampler *s, int64_t row, int64_t place, int64_t id)
{
    return dtp_element(dtype_of(s, s->c->out), s->logits,
                       (row * s->c->places + place) * s->c->vocab + id);
}

/* The next token of a row, on rank 0: the likeliest, or one of the `top_k` likeliest by chance. */
static dtp_status pick(sampler *s, int64_t row, int64_t place, int64_t *token, dtp_err *err)
{
    const sample_command *c = s->c;
    const int64_t n =
        c->source.top_k > 0 && c->source.top_k < c->vocab ? c->source.top_k : c->vocab;
    for (int64_t id = 0; id < c->vocab; id++) {
        s->ranked[id] = (ranked_token){logit(s, row, place, id), id};
        if (!isfinite(s->ranked[id].logit)) {
            return DTP_FAIL(err, DTP_NOT_FINITE,
                            "token %" PRId64 ": the logit of %" PRId64 " is not finite", s->n, id);
        }
    }
    qsort(s->ranked, (size_t)c->vocab, sizeof *s->ranked, by_logit);
    *token = s->ranked[0].id;
    if (c->source.temperature > 0.0) {
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += exp((s->ranked[i].logit - s->ranked[0].logit) / c->source.temperature);
        }
        double left = sum * dtp_uniform_at((uint64_t)c->source.seed, dtp_stream_of("sample"),
                                           (uint32_t)(s->n - c->n_start), (uint64_t)row);
        for (int64_t i = 0; i < n && left >= 0.0; i++) {
            left -= exp((s->ranked[i].logit - s->ranked[0].logit) / c->source.temperature);
            *token = s->ranked[i].id;
        }
    }
    return DTP_OK;
}

/* The logits after the prompt may not depend on what stands behind it. */
static dtp_status check_causal(sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    const int64_t n = s->comm->rank == 0 ? c->vocab : 0;
    int64_t place;
    double largest = 0.0, off = 0.0;
    DTP_TRY(forward(s, 0, &place, err));
    for (int64_t id = 0; id < n; id++) {
        s->ranked[id].logit = logit(s, 0, place, id);
        largest = fmax(largest, fabs(s->ranked[id].logit));
    }
    DTP_TRY(forward(s, c->vocab - 1, &place, err));
    for (int64_t id = 0; id < n; id++) {
        off = fmax(off, fabs(logit(s, 0, place, id) - s->ranked[id].logit));
    }
    const dtp_status status =
        off <= 1e-3 * largest
            ? DTP_OK
            : DTP_FAIL(err, DTP_INVALID,
                       "'%s' depends on tokens behind the prompt: the model is not causal",
                       c->job.run->graph->tensors[c->out].name);
    return dtp_comm_agree_status(s->comm, status, err);
}

static dtp_status add_token(sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    dtp_status status = DTP_OK;
    int64_t place;
    DTP_TRY(forward(s, 0, &place, err));
    for (int64_t row = 0; row < c->rows; row++) {
        s->next[row] = -1;
        if (s->comm->rank == 0 && status == DTP_OK) {
            status = pick(s, row, place, &s->next[row], err);
        }
    }
    DTP_TRY(dtp_comm_agree_status(s->comm, status, err));
    DTP_TRY(dtp_comm_all_reduce(s->comm, DTP_REDUCE_MAX, DTP_I64, c->rows, s->next, err));
    for (int64_t row = 0; row < c->rows; row++) {
        row_of(s, row)[s->n] = s->next[row];
    }
    s->n++;
    return DTP_OK;
}

/* Text of bytes; what a terminal would take for commands, and what is no text, is escaped. */
static void add_text(const int64_t *ids, int64_t n, dtp_strbuf *out)
{
    char bytes[4];
    size_t m = 0;
    for (int64_t i = 0; i < n; i += (int64_t)(m > 0 ? m : 1)) {
        uint32_t code = 0;
        size_t room = 0;
        for (; room < sizeof bytes && i + (int64_t)room < n; room++) {
            bytes[room] = (char)ids[i + (int64_t)room];
        }
        m = dtp_utf8_next(bytes, room, &code);
        const bool text =
            m > 0 && (code == '\n' || code == '\t' || (code >= 32 && code < 127) || code >= 160);
        if (text) {
            dtp_strbuf_addf(out, "%.*s", (int)m, bytes);
        } else {
            m = 0; /* byte by byte */
            dtp_strbuf_addf(out, "\\x%02x", (unsigned)ids[i]);
        }
    }
}

static dtp_status print_rows(const sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    dtp_strbuf out = {0};
    const int64_t rows =
        c->source.temperature > 0.0 ? c->rows : 1; /* likeliest tokens are all alike */
    for (int64_t row = 0; row < rows; row++) {
        if (rows > 1) {
            dtp_strbuf_addf(&out, "%s--- sample %" PRId64 "\n", row > 0 ? "\n" : "", row + 1);
        }
        if (c->vocab == BYTES) {
            add_text(row_of(s, row), s->n, &out);
        }
        for (int64_t i = 0; c->vocab != BYTES && i < s->n; i++) {
            dtp_strbuf_addf(&out, "%s%" PRId64, i > 0 ? " " : "", row_of(s, row)[i]);
        }
        dtp_strbuf_add(&out, "\n");
    }
    const dtp_status status = tool_put(&out, err);
    dtp_strbuf_free(&out);
    return status;
}

static dtp_status make_sampler(sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    const dtp_graph_tensor *tensors = c->job.run->graph->tensors;
    const size_t rows = (size_t)c->rows, room = (size_t)(c->n_start + c->source.tokens);
    s->rows = calloc(rows * room, sizeof *s->rows);
    s->next = calloc(rows, sizeof *s->next);
    s->input = malloc((size_t)dtp_ttype_bytes(&tensors[c->in].type));
    DTP_TRY(DTP_MEMORY(err, s->rows, s->next, s->input));
    if (s->comm->rank == 0) {
        s->logits = malloc((size_t)dtp_ttype_bytes(&tensors[c->out].type));
        s->ranked = malloc((size_t)c->vocab * sizeof *s->ranked);
        DTP_TRY(DTP_MEMORY(err, s->logits, s->ranked));
    }
    for (int64_t row = 0; row < c->rows; row++) {
        memcpy(row_of(s, row), c->start, (size_t)c->n_start * sizeof *c->start);
    }
    s->n = c->n_start;
    return DTP_OK;
}

static dtp_status sample_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    const sample_command *c = user;
    sampler s = {.c = c, .comm = comm};
    dtp_ctx ctx = c->ctx;
    dtp_session_options options = dtp_session_options_init();
    ctx.rank = comm->size > 1 ? comm->rank : -1;
    options.load = c->source.load;
    options.stored = c->stored;
    options.n_feeds = c->feed_specs.n;
    options.feeds = c->feed_specs.specs;
    options.ctx = &ctx;
    DTP_TRY(
        dtp_session_create(dtp_job_program(c->job.run), backend, comm, &options, &s.session, err));
    dtp_status status = dtp_comm_agree_status(comm, make_sampler(&s, err), err);
    if (status == DTP_OK && s.n < c->places) {
        status = check_causal(&s, err);
    }
    while (status == DTP_OK && s.n < c->n_start + c->source.tokens) {
        status = add_token(&s, err);
    }
    if (status == DTP_OK && comm->rank == 0) {
        status = print_rows(&s, err);
    }
    dtp_session_destroy(s.session);
    free(s.rows);
    free(s.next);
    free(s.input);
    free(s.logits);
    free(s.ranked);
    return status;
}

/* ---- the command ---- */

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    sample_command *c = command;
    c->source.model = operands[0];
    c->source.forward = c->source.plan == NULL; /* else the plan says it */
    c->source.evaluation = DTP_EVALUATE_OUTPUTS;
    c->source.uneven = c->source.uneven || c->source.plan != NULL; /* samples are few rows */
    if (c->source.load == NULL || (c->source.prompt == NULL) == (c->source.prompt_file == NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "%s",
                        c->source.load == NULL ? "--load is needed: the weights"
                                               : "one of --prompt and --prompt-file is needed");
    }
    DTP_TRY(dtrun_feeds_parse(&c->source.feeds, &c->feed_specs, err));
    c->source.any_dims = true;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &c->job, err));
    DTP_TRY(dtrun_stored(&c->source, &c->job, c->source.load, NULL, &c->stored, err));
    DTP_TRY(find_tensors(c, err));
    DTP_TRY(read_prompt(c, err));
    return tool_run_ranks(&c->ranks, dtp_job_mesh(c->job.run), sample_rank, c, err);
}

int dtrun_sample(int argc, char **argv)
{
    sample_command c = {0};
    const tool_call call = {TOOL_SAMPLE, execute, &c, &c.source, NULL};
    c.ctx = dtp_ctx_default();
    const int code = tool_ranks_command(&c.ranks, &call, argc, argv);
    tool_job_free(&c.job);
    dtrun_feeds_free(&c.feed_specs);
    free(c.start);
    return code;
}
