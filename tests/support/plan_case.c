/* Plans as dtplan makes them, verified and run as dtrun does, in one process. */
#include "tests/support/plan_case.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/strbuf.h"
#include "core/files/file_in.h"
#include "core/plan/plan.h"
#include "executor/run/ranks.h"
#include "tools/job.h"

enum { MAX_DIMS = 16, NAME_BYTES = 24, PATH_BYTES = 512 };

static const dtp_feed_spec TEXT = {
    .input = "text", .file = DTP_SOURCE_DIR "/models/data/text.txt", .dtype = "u1"};

static void ok(dtp_status status, const dtp_err *err, const char *what)
{
    if (status != DTP_OK) {
        fail_msg("%s: %s", what, err->msg);
    }
}

/* ---- one device ---- */

/* The file with another attention in every node of that op. */
static dtp_status parse_ring(const char *path, const dtp_model_options *options, dtp_graph **out,
                             dtp_err *err)
{
    static const char op[] = "\"op\": \"attention\"", ring[] = ", \"context\": \"ring\"";
    char *text = NULL;
    size_t len = 0;
    dtp_strbuf changed = {0};
    DTP_TRY(dtp_file_read(path, 1 << 20, &text, &len, err));
    const char *at = text;
    for (const char *next; (next = strstr(at, op)) != NULL; at = next + strlen(op)) {
        dtp_strbuf_addf(&changed, "%.*s%s%s", (int)(next - at), at, op, ring);
    }
    dtp_strbuf_add(&changed, at);
    assert_true(changed.len > len);
    const dtp_status s =
        dtp_model_parse(path, dtp_strbuf_text(&changed), changed.len, options, out, err);
    dtp_strbuf_free(&changed);
    free(text);
    return s;
}

static dtp_graph *read_model(const plan_model *of)
{
    char path[PATH_BYTES], names[MAX_DIMS][NAME_BYTES];
    dtp_dim_override overrides[MAX_DIMS];
    dtp_model_options options = dtp_model_options_init();
    dtp_graph *g = NULL;
    dtp_err err = {0};
    int used = 0;
    options.overrides = overrides;
    for (const char *at = of->dims != NULL ? of->dims : ""; *at != '\0'; at += used) {
        dtp_dim_override *o = &overrides[options.n_overrides];
        assert_in_range(options.n_overrides, 0, MAX_DIMS - 1);
        assert_int_equal(
            sscanf(at, " %23[^=]=%" SCNd64 " %n", names[options.n_overrides], &o->size, &used), 2);
        o->name = names[options.n_overrides++];
    }
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/%s", of->file);
    ok(of->ring ? parse_ring(path, &options, &g, &err) : dtp_model_read(path, &options, &g, &err),
       &err, of->file);
    return g;
}

void one_device_open(const plan_model *of, one_device *out)
{
    dtp_err err = {0};
    *out = (one_device){.of = *of, .model = read_model(of), .verify = verify_case_init(of->file)};
    if (of->precision != NULL) {
        dtp_precision precision;
        ok(dtp_precision_parse(of->precision, &precision, &err), &err, of->file);
        ok(dtp_graph_with_precision(out->model, &precision, &out->precise, &err), &err, of->file);
    }
    const dtp_graph *graph = out->precise != NULL ? out->precise : out->model;
    verify_case *v = &out->verify;
    v->backend = of->backend != NULL ? of->backend : "cpu";
    v->options.steps = of->steps > 0 ? of->steps : PLAN_STEPS;
    v->options.n_feeds = of->text;
    v->options.feeds = &TEXT;
    v->options.reference_graph = graph;
    ok(dtp_backend_create(v->backend, 1, &out->backend, &err), &err, of->file);
    v->options.reference = out->backend;
    ok(dtp_verify_reference_create(graph, &v->options, &v->options.kept, &err), &err, of->file);
}

void one_device_close(one_device *d)
{
    dtp_verify_reference_destroy(d->verify.options.kept);
    dtp_backend_destroy(d->backend);
    dtp_graph_destroy(d->precise);
    dtp_graph_destroy(d->model);
}

/* ---- plans ---- */

const char *plan_name(const one_device *d, const plan_row *row)
{
    static char name[1024];
    const dtp_plan_options *o = &row->options;
    size_t n = (size_t)snprintf(
        name, sizeof name, "%s %s on '%s' of %d, mode %d, %s, objective %d, memory %" PRId64,
        d->of.file, d->of.dims != NULL ? d->of.dims : "", row->mesh != NULL ? row->mesh : "any",
        o->devices, (int)o->mode, row->machine != NULL ? row->machine : "no machine",
        (int)o->objective, o->memory_limit_bytes);
    const struct {
        const char *key, *value;
    } texts[] = {{"rules", o->rules},
                 {"precision", d->of.precision},
                 {"remat", o->remat},
                 {"microbatches", o->microbatches},
                 {"outputs", o->outputs}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && n < sizeof name; i++) {
        if (texts[i].value != NULL) {
            n += (size_t)snprintf(name + n, sizeof name - n, ", %s %s", texts[i].key,
                                  texts[i].value);
        }
    }
    for (int32_t i = 0; i < o->n_styles + o->n_pins && n < sizeof name; i++) {
        n += (size_t)snprintf(name + n, sizeof name - n, ", '%s'",
                              i < o->n_styles ? o->styles[i] : o->pins[i - o->n_styles]);
    }
    return name;
}

/* As dtplan does when nothing else is said. */
static void fill_options(const one_device *d, const plan_row *row, char path[PATH_BYTES],
                         dtp_plan_options *o)
{
    const dtp_plan_options init = dtp_plan_options_init();
    *o = row->options;
    o->size = init.size;
    o->seed = o->seed != 0 ? o->seed : init.seed;
    o->gap = o->gap != 0 ? o->gap : init.gap;
    o->precision = d->of.precision;
    o->target = d->of.backend;
    (void)snprintf(path, PATH_BYTES, DTP_SOURCE_DIR "/%.*s.rules.json",
                   (int)(strlen(d->of.file) - strlen(".json")), d->of.file);
    o->rules_file = access(path, R_OK) == 0 ? path : NULL;
}

char *plan_text(const one_device *d, const dtp_plan *plan)
{
    char *text = NULL;
    dtp_err err = {0};
    ok(dtp_plan_describe(plan, d->model, DTP_PLAN_JSON, &text, &err), &err, d->of.file);
    return text;
}

static dtp_plan *read_again(const one_device *d, const dtp_plan *plan, const char *what)
{
    dtp_plan *read = NULL;
    char *text = plan_text(d, plan);
    dtp_err err = {0};
    ok(dtp_plan_read("plan", text, strlen(text), d->model, &read, &err), &err, what);
    free(text);
    return read;
}

dtp_plan *plan_make(const one_device *d, const plan_row *row)
{
    const char *what = plan_name(d, row);
    char path[PATH_BYTES], machine_path[PATH_BYTES];
    dtp_plan_options o;
    dtp_plan_result result;
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    dtp_err err = {0};
    fill_options(d, row, path, &o);
    if (row->mesh != NULL) {
        ok(dtp_mesh_parse(row->mesh, &mesh, &err), &err, what);
        o.mesh = &mesh;
    }
    if (row->machine != NULL) {
        (void)snprintf(machine_path, sizeof machine_path, DTP_SOURCE_DIR "/models/machines/%s.json",
                       row->machine);
        ok(dtp_machine_read(machine_path, &machine, &err), &err, what);
    }
    ok(dtp_plan_make(d->model, machine, &o, &result, &err), &err, what);
    if (result.plan == NULL) {
        fail_msg("%s: there is no plan", what);
    }
    dtp_plan *plan = read_again(d, result.plan, what);
    dtp_plan_result_free(&result);
    dtp_machine_destroy(machine);
    return plan;
}

/* ---- verification ---- */

static dtp_verify_result verify(const one_device *d, const dtp_job_options *options,
                                const char *what)
{
    verify_case c = d->verify;
    dtp_job *job = NULL;
    dtp_err err = {0};
    int32_t n[DTP_VERIFY_N_KINDS] = {0};
    c.what = what;
    ok(dtp_job_create(d->model, options, &job, &err), &err, what);
    const dtp_verify_result result = verify_program(job->graph, job->program, &c);
    for (int32_t i = 0; i < result.n; i++) {
        n[result.items[i].kind]++;
    }
    if (n[DTP_VERIFY_GRADIENT] == 0 || n[DTP_VERIFY_GRADIENT] > n[DTP_VERIFY_UPDATE] ||
        n[DTP_VERIFY_UPDATE] != n[DTP_VERIFY_INITIAL] || n[DTP_VERIFY_OUTPUT] == 0) {
        fail_msg("%s: %d initial values, %d outputs, %d gradients, %d updates", what,
                 n[DTP_VERIFY_INITIAL], n[DTP_VERIFY_OUTPUT], n[DTP_VERIFY_GRADIENT],
                 n[DTP_VERIFY_UPDATE]);
    }
    dtp_job_destroy(job);
    return result;
}

dtp_verify_result plan_verify(const one_device *d, const dtp_plan *plan, const char *what)
{
    dtp_job_options options = dtp_job_options_init();
    options.plan = plan;
    options.results = true;
    return verify(d, &options, what);
}

dtp_verify_result rules_verify(const one_device *d, const char *mesh, const char *rules,
                               const dtp_job_options *options)
{
    char what[256];
    dtp_mesh parsed;
    dtp_err err = {0};
    dtp_job_options all = options != NULL ? *options : dtp_job_options_init();
    (void)snprintf(what, sizeof what, "%s on '%s' with '%s'", d->of.file, mesh, rules);
    ok(dtp_mesh_parse(mesh, &parsed, &err), &err, what);
    all.mesh = &parsed;
    all.rules = rules;
    all.precision = d->of.precision;
    all.target = d->of.backend;
    all.results = true;
    return verify(d, &all, what);
}

/* ---- runs ---- */

typedef struct run_case {
    const one_device *d;
    const dtp_job *job;
    plan_losses losses; /* rank 0's */
} run_case;

static dtp_status check_run(dtp_session *s, const dtp_prediction *predicted, dtp_err *err)
{
    const dtp_coll_stat *stats;
    const int32_t n_stats = dtp_runner_coll_stats(dtp_session_runner(s), &stats);
    int64_t allocated, touched, planned = 0, counted = 0;
    dtp_session_peak(s, &allocated, &touched);
    for (int32_t i = 0; i < n_stats; i++) {
        counted += stats[i].count;
    }
    for (int32_t i = 0; i < DTP_N_COLL_TOTALS; i++) {
        planned += predicted->collectives[i].count;
    }
    return allocated == predicted->peak_bytes && counted == planned
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL,
                          "a peak of %" PRId64 " bytes and %" PRId64 " collectives, predicted "
                          "are %" PRId64 " and %" PRId64,
                          allocated, counted, predicted->peak_bytes, planned);
}

static dtp_status run_rank(dtp_comm *comm, dtp_backend *backend, void *user, dtp_err *err)
{
    run_case *c = user;
    const dtp_verify_options *v = &c->d->verify.options;
    dtp_session_options options = dtp_session_options_init();
    dtp_session *s = NULL;
    options.n_feeds = v->n_feeds;
    options.feeds = v->feeds;
    DTP_TRY(dtp_session_create(dtp_job_program(c->job), backend, comm, &options, &s, err));
    dtp_status status = DTP_OK;
    for (int32_t i = 0; i < PLAN_STEPS && status == DTP_OK; i++) {
        dtp_step_result step = {0};
        status = dtp_session_step(s, &step, err);
        if (comm->rank == 0) {
            c->losses.of[i] = step.loss;
        }
    }
    status = status == DTP_OK ? dtp_session_check(s, err) : status;
    const dtp_prediction *predicted = dtp_job_predicted(c->job);
    if (status == DTP_OK && predicted != NULL) {
        status = check_run(s, predicted, err);
    }
    dtp_session_destroy(s);
    return status;
}

plan_losses plan_run(const one_device *d, const dtp_plan *plan, const char *what)
{
    dtp_job_options options = dtp_job_options_init();
    const dtp_ranks_options ranks = {
        .comm = plan != NULL ? "sim" : "self", .backend = d->verify.backend, .threads = 1};
    dtp_job *job = NULL;
    dtp_err err = {0};
    options.plan = plan;
    options.precision = plan == NULL ? d->of.precision : NULL;
    options.target = plan == NULL ? d->of.backend : NULL;
    ok(dtp_job_create(d->model, &options, &job, &err), &err, what);
    if (plan != NULL && dtp_job_predicted(job) == NULL) {
        fail_msg("%s: the plan predicts nothing", what);
    }
    run_case c = {.d = d, .job = job};
    ok(dtp_ranks_run(&ranks, dtp_job_mesh(job), run_rank, &c, &err), &err, what);
    dtp_job_destroy(job);
    return c.losses;
}

void plan_losses_near(const plan_losses *got, const plan_losses *want, double tolerance,
                      const char *what)
{
    for (int32_t i = 0; i < PLAN_STEPS; i++) {
        if (!(fabs(got->of[i] - want->of[i]) <= tolerance * fabs(want->of[i]))) {
            fail_msg("%s: loss %.9g of step %d, expected %.9g", what, got->of[i], i + 1,
                     want->of[i]);
        }
    }
}
