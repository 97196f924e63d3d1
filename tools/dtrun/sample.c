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

/* Tokens of a text. */
typedef struct token_list {
    int64_t *ids, n;
} token_list;

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
    token_list start;                    /* the prompt */
    int32_t n_stops;
    token_list *stops; /* each ends a row */
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
static dtp_status read_ids(const sample_command *c, const char *what, const char *text,
                           token_list *out, dtp_err *err)
{
    static const char between[] = " ,\t\r\n";
    for (text += strspn(text, between); *text != '\0'; text += strspn(text, between)) {
        const char *at = text;
        int64_t id;
        if (!dtp_int_read(&text, &id) || id < 0 || id >= c->vocab ||
            strspn(text, between) + (*text == '\0') == 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: '%.20s' is not a token, a number below %" PRId64
                            " (only models of bytes take text)",
                            what, at, c->vocab);
        }
        out->ids[out->n++] = id;
    }
    return DTP_OK;
}

/* Tokens of n bytes of text, behind which there is a 0. */
static dtp_status read_tokens(const sample_command *c, const char *what, const char *text, size_t n,
                              token_list *out, dtp_err *err)
{
    out->ids = malloc((n + 1) * sizeof *out->ids);
    DTP_TRY(DTP_MEMORY(err, out->ids));
    for (size_t i = 0; i < n && c->vocab == BYTES; i++) {
        out->ids[out->n++] = (unsigned char)text[i];
    }
    DTP_TRY(c->vocab == BYTES ? DTP_OK : read_ids(c, what, text, out, err));
    return out->n > 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "%s is empty", what);
}

static dtp_status read_prompt(sample_command *c, dtp_err *err)
{
    char *file = NULL;
    const char *text = c->source.prompt != NULL ? c->source.prompt : "";
    size_t n = strlen(text);
    if (c->source.prompt_file != NULL) {
        DTP_TRY(dtp_file_read(c->source.prompt_file, MAX_PROMPT, &file, &n, err));
    }
    const dtp_status status =
        read_tokens(c, "the prompt", file != NULL ? file : text, n, &c->start, err);
    free(file);
    return status;
}

static dtp_status read_stops(sample_command *c, dtp_err *err)
{
    const tool_list *stops = &c->source.stops;
    c->stops = calloc((size_t)stops->n + 1, sizeof *c->stops);
    DTP_TRY(DTP_MEMORY(err, c->stops));
    for (; c->n_stops < stops->n; c->n_stops++) {
        const char *text = stops->items[c->n_stops];
        DTP_TRY(read_tokens(c, "--stop", text, strlen(text), &c->stops[c->n_stops], err));
    }
    return DTP_OK;
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
    int64_t *ends; /* [rows]: tokens of a row that was stopped; 0: it goes on */
    void *input, *logits;
    ranked_token *ranked; /* [vocab] */
} sampler;

static int64_t *row_of(const sampler *s, int64_t row)
{
    return s->rows + row * (s->c->start.n + s->c->source.tokens);
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

/* A step over the tokens of the input. */
static dtp_status run_model(sampler *s, dtp_err *err)
{
    dtp_step_result step;
    dtp_session_set_input(s->session, s->c->in, s->input);
    DTP_TRY(dtp_session_step(s->session, &step, err));
    return dtp_session_gather(s->session, s->c->out, s->logits, err);
}

/* A step over the last tokens. The logits of the token after them are at the place that is
 * returned. */
static dtp_status forward(sampler *s, int64_t *place, dtp_err *err)
{
    const sample_command *c = s->c;
    const int64_t seen = s->n < c->places ? s->n : c->places;
    for (int64_t i = 0; i < c->rows * c->window; i++) {
        const int64_t row = i / c->window, at = i % c->window;
        dtp_element_set_int(dtype_of(s, c->in), s->input, i,
                            at < seen ? row_of(s, row)[s->n - seen + at] : 0);
    }
    *place = seen - 1;
    return run_model(s, err);
}

static double logit(const sampler *s, int64_t row, int64_t place, int64_t id)
{
    return dtp_element(dtype_of(s, s->c->out), s->logits,
                       (row * s->c->places + place) * s->c->vocab + id);
}

/* How many of the n likeliest tokens have together at least `top_p` of their probability. */
static int64_t nucleus(const sampler *s, int64_t n, double *sum)
{
    const double temperature = s->c->source.temperature;
    double most = 0.0;
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        most += exp((s->ranked[i].logit - s->ranked[0].logit) / temperature);
    }
    most *= s->c->source.top_p;
    for (*sum = 0.0; m < n && (m == 0 || *sum < most); m++) {
        *sum += exp((s->ranked[m].logit - s->ranked[0].logit) / temperature);
    }
    return m;
}

/* The next token of a row, on rank 0: the likeliest, or by chance one of the `top_k` likeliest that
 * have `top_p` of the probability. */
static dtp_status pick(sampler *s, int64_t row, int64_t place, int64_t *token, dtp_err *err)
{
    const sample_command *c = s->c;
    const int64_t most =
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
        double sum;
        const int64_t n = nucleus(s, most, &sum);
        double left = sum * dtp_uniform_at((uint64_t)c->source.seed, dtp_stream_of("sample"),
                                           (uint32_t)(s->n - c->start.n), (uint64_t)row);
        for (int64_t i = 0; i < n && left >= 0.0; i++) {
            left -= exp((s->ranked[i].logit - s->ranked[0].logit) / c->source.temperature);
            *token = s->ranked[i].id;
        }
    }
    return DTP_OK;
}

/* ---- causality ---- */

/* Logits may not depend on tokens behind their place. Tokens behind a cut are replaced, and the
 * logits before it compared: behind the prompt, the first token, half of the places and all but
 * one; by tokens drawn anew, or by one token, as the capacity of experts shows itself with equal
 * tokens. Rows try different ones at once. */
enum { CUTS = 4, PROBES = 64, MOST_STEPS = 8 };

static int64_t drawn(const sampler *s, uint32_t probe, int64_t at)
{
    const double x = dtp_uniform_at(0, dtp_stream_of("causal"), probe, (uint64_t)at);
    return (int64_t)(x * (double)s->c->vocab) % s->c->vocab;
}

/* Places in front of which nothing changes, each once. */
static int32_t find_cuts(const sample_command *c, int64_t cuts[CUTS])
{
    const int64_t most = c->places < c->window ? c->places : c->window - 1;
    const int64_t wanted[CUTS] = {c->start.n, 1, c->places / 2, most};
    int32_t n = 0;
    for (int32_t i = 0; i < CUTS; i++) {
        bool again = wanted[i] < 1 || wanted[i] > most;
        for (int32_t k = 0; k < n && !again; k++) {
            again = cuts[k] == wanted[i];
        }
        if (!again) {
            cuts[n++] = wanted[i];
        }
    }
    return n;
}

/* Token `at` of probe k: the same for all of them in front of `cut`. */
static int64_t probe_token(const sampler *s, int32_t k, int64_t cut, int64_t at)
{
    if (at < cut) {
        return at < s->c->start.n ? s->c->start.ids[at] : drawn(s, 0, at);
    }
    const int64_t ends[] = {0, s->c->vocab - 1};
    const int32_t fill = k / CUTS; /* drawn ones, and one token, in turn */
    return fill % 2 == 0 ? drawn(s, 1 + (uint32_t)fill, at)
           : fill < 4    ? ends[fill / 2]
                         : drawn(s, 1 + (uint32_t)fill, 0);
}

/* Runs probes k, k + 1, ..., one a row; -1: all rows have nothing replaced. */
static dtp_status probe(sampler *s, int32_t k, int32_t n_cuts, const int64_t cuts[CUTS],
                        dtp_err *err)
{
    const sample_command *c = s->c;
    for (int64_t i = 0; i < c->rows * c->window; i++) {
        const int32_t mine = k + (int32_t)(i / c->window);
        const int64_t cut = k < 0 ? c->window : cuts[mine % n_cuts];
        dtp_element_set_int(dtype_of(s, c->in), s->input, i,
                            probe_token(s, mine, cut, i % c->window));
    }
    return run_model(s, err);
}

static dtp_status compare_probes(const sampler *s, int32_t k, int32_t n_cuts,
                                 const int64_t cuts[CUTS], const double *whole, dtp_err *err)
{
    const sample_command *c = s->c;
    for (int64_t row = 0; row < c->rows; row++) {
        const int32_t cut = (k + (int32_t)row) % n_cuts;
        const double *want = whole + cut * c->vocab;
        double largest = 0.0, off = 0.0;
        for (int64_t id = 0; id < c->vocab; id++) {
            largest = fmax(largest, fabs(want[id]));
            off = fmax(off, fabs(logit(s, row, cuts[cut] - 1, id) - want[id]));
        }
        if (off > 1e-3 * largest) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'%s' at token %" PRId64
                            " depends on tokens behind it: the model is not causal",
                            c->job.run->graph->tensors[c->out].name, cuts[cut] - 1);
        }
    }
    return DTP_OK;
}

static dtp_status check_causal(sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    const bool first = s->comm->rank == 0;
    int64_t cuts[CUTS] = {0};
    const int32_t n_cuts = find_cuts(c, cuts);
    double *whole = calloc((size_t)(CUTS * c->vocab), sizeof *whole);
    dtp_status status = dtp_comm_agree_status(s->comm, DTP_MEMORY(err, whole), err);
    if (status == DTP_OK && n_cuts > 0) {
        status = probe(s, -1, n_cuts, cuts, err);
    }
    for (int64_t i = 0; status == DTP_OK && first && i < n_cuts * c->vocab; i++) {
        whole[i] = logit(s, 0, cuts[i / c->vocab] - 1, i % c->vocab);
    }
    int32_t k = 0;
    for (int32_t i = 0; status == DTP_OK && n_cuts > 0 && i < MOST_STEPS && k < PROBES; i++) {
        status = probe(s, k, n_cuts, cuts, err);
        if (status == DTP_OK) {
            status = first ? compare_probes(s, k, n_cuts, cuts, whole, err) : DTP_OK;
            status = dtp_comm_agree_status(s->comm, status, err);
        }
        k += (int32_t)c->rows;
    }
    free(whole);
    return status;
}

/* ---- tokens ---- */

/* Whether a row ends with one of the texts that stop it, all of it added. */
static bool is_stopped(const sampler *s, int64_t row)
{
    const sample_command *c = s->c;
    for (int32_t i = 0; i < c->n_stops; i++) {
        const token_list *stop = &c->stops[i];
        if (s->n - c->start.n >= stop->n && memcmp(row_of(s, row) + s->n - stop->n, stop->ids,
                                                   (size_t)stop->n * sizeof *stop->ids) == 0) {
            return true;
        }
    }
    return false;
}

static dtp_status add_token(sampler *s, dtp_err *err)
{
    const sample_command *c = s->c;
    dtp_status status = DTP_OK;
    int64_t place;
    DTP_TRY(forward(s, &place, err));
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
        const int64_t n = s->ends[row] > 0 ? s->ends[row] : s->n;
        if (rows > 1) {
            dtp_strbuf_addf(&out, "%s--- sample %" PRId64 "\n", row > 0 ? "\n" : "", row + 1);
        }
        if (c->vocab == BYTES) {
            add_text(row_of(s, row), n, &out);
        }
        for (int64_t i = 0; c->vocab != BYTES && i < n; i++) {
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
    const size_t rows = (size_t)c->rows, room = (size_t)(c->start.n + c->source.tokens);
    s->rows = calloc(rows * room, sizeof *s->rows);
    s->next = calloc(rows, sizeof *s->next);
    s->ends = calloc(rows, sizeof *s->ends);
    s->input = malloc((size_t)dtp_ttype_bytes(&tensors[c->in].type));
    DTP_TRY(DTP_MEMORY(err, s->rows, s->next, s->ends, s->input));
    if (s->comm->rank == 0) {
        s->logits = malloc((size_t)dtp_ttype_bytes(&tensors[c->out].type));
        s->ranked = malloc((size_t)c->vocab * sizeof *s->ranked);
        DTP_TRY(DTP_MEMORY(err, s->logits, s->ranked));
    }
    for (int64_t row = 0; row < c->rows; row++) {
        memcpy(row_of(s, row), c->start.ids, (size_t)c->start.n * sizeof *c->start.ids);
    }
    s->n = c->start.n;
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
    if (status == DTP_OK) {
        status = check_causal(&s, err);
    }
    for (bool on = true; status == DTP_OK && on && s.n < c->start.n + c->source.tokens;) {
        status = add_token(&s, err);
        on = false; /* whether some row goes on */
        for (int64_t row = 0; row < c->rows; row++) {
            s.ends[row] = s.ends[row] == 0 && is_stopped(&s, row) ? s.n : s.ends[row];
            on = on || s.ends[row] == 0;
        }
    }
    if (status == DTP_OK && comm->rank == 0) {
        status = print_rows(&s, err);
    }
    dtp_session_destroy(s.session);
    free(s.rows);
    free(s.next);
    free(s.ends);
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
    DTP_TRY(read_stops(c, err));
    if (c->start.n > c->places) {
        dtp_log(&c->ctx, DTP_LOG_WARN, "sample", "cut",
                "prompt=%" PRId64 " places=%" PRId64 ": the last tokens count", c->start.n,
                c->places);
    }
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
    free(c.start.ids);
    for (int32_t i = 0; c.stops != NULL && i < c.source.stops.n; i++) {
        free(c.stops[i].ids);
    }
    free(c.stops);
    return code;
}
