/* Losses and parameters that are not finite end the run on all ranks with one message, and are
 * never saved. The model's only parameter grows by 8.1e11 in every step: it is infinite after the
 * fourth, and the loss of the fifth is NaN. */
#include "tests/support/job_suite.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/layout/layout_rules.h"
#include "executor/files/npy.h"
#include "executor/files/safetensors.h"
#include "spmd/lower/lower.h"
#include "dtp/device_mesh.h"

enum { MAX_RANKS = 8, BATCH = 8, FEATURES = 4, CLASSES = 4, STEPS = 8 };

static const char model[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"growing\","
    " \"dims\": {\"batch\": 8, \"features\": 4, \"classes\": 4},"
    " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"features\"], \"dtype\": \"f32\"},"
    "  \"labels\": {\"dims\": [\"batch\"], \"dtype\": \"i32\", \"below\": \"classes\"}},"
    " \"params\": {\"w\": {\"dims\": [\"features\", \"classes\"], \"init\": {\"normal\": 0.3}}},"
    " \"nodes\": [{\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"],"
    "   \"out\": [\"batch\", \"classes\"]},"
    "  {\"id\": \"nll\", \"op\": \"cross_entropy\", \"in\": [\"logits\", \"labels\"],"
    "   \"over\": \"classes\", \"reduce\": \"mean\"}],"
    " \"train\": {\"loss\": \"nll\","
    "  \"optimizer\": {\"sgd\": {\"lr\": 9e5, \"weight_decay\": 9e5}}}}";

static dtp_graph *graph;

static int setup(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    if (dtp_model_parse("growing", model, sizeof model - 1, NULL, &graph, &err) != DTP_OK) {
        printf("%s\n", err.msg);
        return -1;
    }
    return 0;
}

static int cleanup(void **unused)
{
    (void)unused;
    dtp_graph_destroy(graph);
    data_remove();
    return 0;
}

typedef struct outcome {
    job job;
    double losses[STEPS];
    dtp_status status[MAX_RANKS];
    dtp_err errors[MAX_RANKS];
} outcome;

static dtp_status body(dtp_comm *comm, void *user, dtp_err *err)
{
    outcome *o = user;
    o->status[comm->rank] = job_run(comm, &o->job, err);
    o->errors[comm->rank] = *err;
    return o->status[comm->rank];
}

/* Runs the job; all ranks must have ended alike. Returns the message of all, "" for none. */
static const char *run_body(outcome *o, dtp_rank_body rank_body)
{
    dtp_mesh mesh;
    dtp_err err = {0};
    o->job.g = graph;
    o->job.backend = "cpu";
    o->job.losses = o->losses;
    for (int i = 0; i < STEPS; i++) {
        o->losses[i] = -1;
    }
    assert_int_equal(dtp_mesh_parse(o->job.mesh, &mesh, &err), DTP_OK);
    dtp_status status = dtp_comm_sim_run(&mesh, rank_body, o, &err);
    for (int r = 0; r < dtp_mesh_ranks(&mesh); r++) {
        assert_int_equal(o->status[r], status);
        assert_string_equal(o->errors[r].msg, err.msg);
    }
    if (status != DTP_OK && status != DTP_NOT_FINITE) {
        fail_msg("mesh %s rules %s: %s", o->job.mesh, o->job.rules, err.msg);
    }
    return o->errors[0].msg;
}

static const char *run(outcome *o)
{
    return run_body(o, body);
}

typedef struct placement {
    const char *mesh, *rules;
} placement;

static const placement placements[] = {
    {"x:1", ""},
    {"x:2", ""},
    {"x:2", "batch:x"},
    {"x:2", "features:x"},
    {"x:2", "classes:x"},
    {"x:4", "batch:x"},
    {"x:2;y:2", "batch:x;classes:y"},
    {"x:2;y:4", "batch:y"},
};
enum { N_PLACEMENTS = sizeof placements / sizeof *placements };

static void starts(const char *text, const char *with)
{
    if (strncmp(text, with, strlen(with)) != 0) {
        fail_msg("'%s' does not start with '%s'", text, with);
    }
}

static void test_loss__ends_the_run_on_all_ranks(void **unused)
{
    (void)unused;
    for (int k = 0; k < N_PLACEMENTS; k++) {
        outcome o = {.job = {.mesh = placements[k].mesh, .rules = placements[k].rules}};
        o.job.steps = STEPS;
        const char *text = run(&o);
        starts(text, "step 5: node 'nll': the loss is nan on ");
        assert_true((strstr(text, "on rank 0") != NULL) == (k == 0));
        assert_non_null(strstr(text, "; the first nan or inf: parameter 'w', "));
        assert_true(isfinite(o.losses[3]) && o.losses[3] > 1e30 && o.losses[4] == -1);
    }
}

static void test_loss__allowed_goes_on(void **unused)
{
    (void)unused;
    for (int k = 0; k < N_PLACEMENTS; k++) {
        outcome o = {.job = {.mesh = placements[k].mesh, .rules = placements[k].rules}};
        o.job.steps = STEPS;
        o.job.allow_nan = true;
        assert_string_equal(run(&o), "");
        assert_true(isfinite(o.losses[3]) && isnan(o.losses[4]) && isnan(o.losses[STEPS - 1]));
    }
}

/* The loss of step 4 is finite, the parameter after it is not: the older checkpoint stays. */
static void refuse_to_save(const char *path, bool allow_nan)
{
    for (int k = 0; k < N_PLACEMENTS; k++) {
        char words[700];
        outcome o = {.job = {.mesh = placements[k].mesh, .rules = placements[k].rules}};
        o.job.save = path;
        o.job.steps = 2;
        assert_string_equal(run(&o), "");
        o.job.load = path;
        o.job.allow_nan = allow_nan;
        snprintf(words, sizeof words,
                 "%s: not saved: after step 4: node 'update.w': parameter 'w' holds ", path);
        starts(run(&o), words);
        o.job.save = NULL;
        assert_string_equal(run(&o), "");
        assert_true(o.losses[0] > 1e20 && o.losses[1] > 1e30);
    }
}

static void test_save__is_refused(void **unused)
{
    (void)unused;
    char path[300];
    snprintf(path, sizeof path, "%s", data_path("folder"));
    refuse_to_save(path, false);
    refuse_to_save(path, true);
    snprintf(path, sizeof path, "%s", data_path("one.safetensors"));
    refuse_to_save(path, false);
    refuse_to_save(path, true);
}

static void write_x(const char *path, float all, int row, float there)
{
    dtp_err err = {0};
    dtp_ttype type = graph->tensors[dtp_graph_find(graph, "x")].type;
    float x[BATCH * FEATURES];
    for (int i = 0; i < BATCH * FEATURES; i++) {
        x[i] = i / FEATURES == row ? there : all;
    }
    assert_int_equal(dtp_npy_write(path, &type, x, &err), DTP_OK);
}

/* A program whose loss stays a sum over the ranks. */
static dtp_status partial_body(dtp_comm *comm, void *user, dtp_err *err)
{
    outcome *o = user;
    job_program p = {.arena = dtp_arena_create()};
    dtp_layout_rules rules;
    dtp_sharding sharding;
    dtp_lower_options lower = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_session_options so = dtp_session_options_init();
    dtp_backend *backend = NULL;
    dtp_session *s = NULL;
    dtp_step_result result;
    DTP_TRY(dtp_layout_rules_parse(o->job.rules, &comm->mesh, &graph->dims, p.arena, &rules, err));
    DTP_TRY(dtp_sharding_from_rules(graph, &comm->mesh, &rules, false, p.arena, &sharding, err));
    sharding.layouts[graph->loss].placement[0] =
        (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    lower.keep_partial = true;
    DTP_TRY(dtp_lower(graph, &sharding, &lower, &p.program, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &backend, err));
    so.n_feeds = o->job.n_feeds;
    so.feeds = o->job.feeds;
    DTP_TRY(dtp_session_create(p.program, backend, comm, &so, &s, err));
    o->status[comm->rank] = dtp_session_step(s, &result, err);
    o->errors[comm->rank] = *err;
    dtp_session_destroy(s);
    dtp_backend_destroy(backend);
    job_program_free(&p);
    return o->status[comm->rank];
}

/* Of a loss that stays partial, the rank is named whose part it is. */
static void test_loss__names_the_rank(void **unused)
{
    (void)unused;
    char path[300];
    snprintf(path, sizeof path, "%s", data_path("x.npy"));
    const dtp_feed_spec feed = {.input = "x", .file = path};
    for (int row = 0; row < BATCH; row++) {
        char words[100];
        outcome o = {.job = {.mesh = "x:4", .rules = "batch:x", .n_feeds = 1, .feeds = &feed}};
        write_x(path, 1.0F, row, NAN);
        snprintf(words, sizeof words, "step 1: node 'nll': the loss is nan on rank %d", row / 2);
        assert_string_equal(run_body(&o, partial_body), words);
    }
    outcome o = {.job = {.mesh = "x:4", .rules = "batch:x", .n_feeds = 1, .feeds = &feed}};
    write_x(path, NAN, -1, 0.0F);
    assert_string_equal(run_body(&o, partial_body),
                        "step 1: node 'nll': the loss is nan on all 4 ranks; the first nan or "
                        "inf: input 'x', nan at rank 0");
}

/* The run starts with this element of w and these rows of x. */
static void ends_with(const char *rules, float element, float rows, float row, const char *words)
{
    char x[300], start[300];
    float w[FEATURES * CLASSES] = {0};
    dtp_err err = {0};
    dtp_st_writer *writer = NULL;
    const dtp_st_entry e = {
        .name = "w", .store = DTP_STORE_F32, .rank = 2, .dims = {FEATURES, CLASSES}};
    snprintf(x, sizeof x, "%s", data_path("origin.npy"));
    snprintf(start, sizeof start, "%s", data_path("origin.safetensors"));
    w[5] = element;
    write_x(x, rows, 5, row);
    assert_int_equal(dtp_st_create(start, 1, &e, 0, NULL, &writer, &err), DTP_OK);
    assert_int_equal(dtp_st_put(writer, w, sizeof w, &err), DTP_OK);
    assert_int_equal(dtp_st_commit(writer, NULL, NULL, &err), DTP_OK);
    const dtp_feed_spec feed = {.input = "x", .file = x};
    outcome o = {.job = {.mesh = "x:4", .rules = rules, .steps = 2}};
    o.job.n_feeds = 1;
    o.job.feeds = &feed;
    o.job.load = start;
    const char *text = run(&o);
    starts(text, "step 1: node 'nll': the loss is ");
    if (strstr(text, words) == NULL) {
        fail_msg("'%s' has no '%s'", text, words);
    }
}

static void test_loss__names_the_first_that_is_not_finite(void **unused)
{
    (void)unused;
    ends_with("batch:x", 1.0F, 1.0F, NAN, "; the first nan or inf: input 'x', nan at rank 2");
    ends_with("features:x", 10.0F, 1.0F, 1e38F, "node 'logits' (einsum), inf at rank 1");
    ends_with("classes:x", 10.0F, 1.0F, 1e38F, "node 'logits' (einsum), inf at rank 1");
    ends_with("", 10.0F, 1.0F, 1e38F, "node 'logits' (einsum), inf at rank 0");
}

static void test_parameter__names_the_rank(void **unused)
{
    (void)unused;
    char x[300], start[300], words[700], save[300];
    snprintf(x, sizeof x, "%s", data_path("small.npy"));
    snprintf(start, sizeof start, "%s", data_path("start.safetensors"));
    snprintf(save, sizeof save, "%s", data_path("never"));
    write_x(x, 1e-3F, -1, 0.0F);
    const dtp_feed_spec feed = {.input = "x", .file = x};
    for (int at = 0; at < FEATURES * CLASSES; at++) {
        const dtp_st_entry e = {
            .name = "w", .store = DTP_STORE_F32, .rank = 2, .dims = {FEATURES, CLASSES}};
        float w[FEATURES * CLASSES] = {0};
        dtp_err err = {0};
        dtp_st_writer *writer = NULL;
        w[at] = 1e30F;
        assert_int_equal(dtp_st_create(start, 1, &e, 0, NULL, &writer, &err), DTP_OK);
        assert_int_equal(dtp_st_put(writer, w, sizeof w, &err), DTP_OK);
        assert_int_equal(dtp_st_commit(writer, NULL, NULL, &err), DTP_OK);
        outcome o = {.job = {.mesh = "x:4", .rules = "features:x", .steps = 1}};
        o.job.n_feeds = 1;
        o.job.feeds = &feed;
        o.job.load = start;
        o.job.save = save;
        snprintf(words, sizeof words,
                 "%s: not saved: after step 1: node 'update.w': parameter 'w' holds -inf on rank "
                 "%d",
                 save, at / CLASSES);
        assert_string_equal(run(&o), words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss__ends_the_run_on_all_ranks),
        cmocka_unit_test(test_loss__allowed_goes_on),
        cmocka_unit_test(test_save__is_refused),
        cmocka_unit_test(test_loss__names_the_rank),
        cmocka_unit_test(test_loss__names_the_first_that_is_not_finite),
        cmocka_unit_test(test_parameter__names_the_rank),
    };
    return cmocka_run_group_tests(tests, setup, cleanup);
}
