/* Whole jobs on virtual ranks: losses, parameters, checkpoints, verification, failures. */
#include "tests/support/job_suite.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "tools/run_report.h"
#include "executor/files/safetensors.h"
#include "dtp/device_mesh.h"

enum { STEPS = 6, PARAMS = 12 * 6 + 6 + 6 * 4 };

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

static dtp_status run_on(const job *j, dtp_rank_body body, dtp_err *err)
{
    dtp_mesh mesh;
    DTP_TRY(dtp_mesh_parse(j->mesh, &mesh, err));
    job copy = *j;
    return dtp_comm_sim_run(&mesh, body, &copy, err);
}

typedef struct placement {
    const char *mesh, *rules;
} placement;

/* Even and uneven splits (6 over 4, 12 over 8), one and two mesh dims, splits of every dim. */
static const placement placements[] = {
    {"x:1", ""},
    {"x:2", ""},
    {"x:2", "batch:x"},
    {"x:2", "hidden:x"},
    {"x:2", "pixels:x"},
    {"x:2", "classes:x"},
    {"x:3", "batch:x"},
    {"x:4", "batch:x"},
    {"x:4", "hidden:x"},
    {"x:2;y:2", "batch:x;hidden:y"},
    {"x:2;y:2", "batch:x;pixels:y"},
    {"x:2;y:2", "batch:x;batch:y"},
    {"x:2;y:2", "hidden:y;pixels:x"},
    {"x:8", "batch:x"},
    {"x:8", "pixels:x"},
};
enum { N_PLACEMENTS = sizeof placements / sizeof *placements };

static void compare_jobs(bool dropout, const char *backend, double loss_bound, double param_bound)
{
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(dropout, &g, &err), &err);
    double base[STEPS];
    float base_params[PARAMS];
    for (int k = 0; k < N_PLACEMENTS; k++) {
        double losses[STEPS];
        float params[PARAMS];
        job j = {.g = g,
                 .mesh = placements[k].mesh,
                 .rules = placements[k].rules,
                 .backend = backend,
                 .steps = STEPS,
                 .losses = k == 0 ? base : losses,
                 .params = k == 0 ? base_params : params};
        dtp_status status = run_on(&j, job_run, &err);
        if (status != DTP_OK) {
            fail_msg("mesh %s rules %s: %s", j.mesh, j.rules, err.msg);
        }
        for (int i = 0; k > 0 && i < STEPS; i++) {
            if (!(fabs(losses[i] - base[i]) <= loss_bound * fabs(base[i]))) {
                fail_msg("mesh %s rules %s: loss %.17g at step %d, %.17g on one rank", j.mesh,
                         j.rules, losses[i], i, base[i]);
            }
        }
        for (int i = 0; k > 0 && i < PARAMS; i++) {
            if (!(fabs((double)params[i] - (double)base_params[i]) <= param_bound)) {
                fail_msg("mesh %s rules %s: parameter %d is %.9g, %.9g on one rank", j.mesh,
                         j.rules, i, (double)params[i], (double)base_params[i]);
            }
        }
    }
    assert_true(fabs(base[1] - base[0]) > 1e-3); /* the parameters move */
    dtp_graph_destroy(g);
}

static void test_session__ref_backend_gives_equal_losses_on_all_meshes(void **unused)
{
    (void)unused;
    compare_jobs(false, "ref", 1e-6, 1e-5);
}

/* Collectives that are done when they start, or as late as they may be: the same bits, so no
 * operand changes and no result is read in between. */
static void test_session__overlap_changes_no_bit(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(false, &g, &err), &err);
    for (int k = 0; k < N_PLACEMENTS; k++) {
        double losses[3][STEPS];
        float params[3][PARAMS];
        for (int way = 0; way < 3; way++) {
            job j = {.g = g,
                     .mesh = placements[k].mesh,
                     .rules = placements[k].rules,
                     .backend = "cpu",
                     .depth = way > 0 ? 8 : 0,
                     .late = way == 2,
                     .steps = STEPS,
                     .losses = losses[way],
                     .params = params[way]};
            must(run_on(&j, job_run, &err), &err);
            assert_memory_equal(losses[way], losses[0], sizeof losses[0]);
            assert_memory_equal(params[way], params[0], sizeof params[0]);
        }
    }
    dtp_graph_destroy(g);
}

static void test_session__cpu_backend_gives_equal_losses_on_all_meshes(void **unused)
{
    (void)unused;
    compare_jobs(false, "cpu", 1e-5, 1e-4);
}

static void test_session__dropout_does_not_depend_on_the_layout(void **unused)
{
    (void)unused;
    compare_jobs(true, "cpu", 1e-5, 1e-4);
}

static void test_verify__passes_on_all_meshes(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(false, &g, &err), &err);
    for (int k = 0; k < N_PLACEMENTS; k++) {
        job j = {
            .g = g, .mesh = placements[k].mesh, .rules = placements[k].rules, .backend = "cpu"};
        dtp_status status = run_on(&j, job_verify, &err);
        if (status != DTP_OK) {
            fail_msg("mesh %s rules %s: %s", j.mesh, j.rules, err.msg);
        }
    }
    dtp_graph_destroy(g);
}

/* A rank whose gelu is wrong in one element, by a relative 1e-3 or by a NaN, is found. */
static const dtp_backend_ops *cpu_ops;
static dtp_kernel spoiled;
static double spoil;

static dtp_status spoiled_gelu(const dtp_kernel_args *args, dtp_err *err)
{
    DTP_TRY(cpu_ops->kernel(NULL, "gelu", 0)->run(args, err));
    float *y = args->out[0].data;
    y[dtp_ttype_elems(&args->out[0].local) - 1] *= (float)spoil;
    return DTP_OK;
}

static const dtp_kernel *spoiled_kernel(const dtp_backend *b, const char *op, int32_t i)
{
    return strcmp(op, "gelu") == 0 && i == 0 ? &spoiled : cpu_ops->kernel(b, op, i);
}

typedef struct spoiled_job {
    const dtp_graph *g;
    const char *rules;
    dtp_verify_result result; /* of rank 1 */
} spoiled_job;

static dtp_status spoiled_body(dtp_comm *comm, void *user, dtp_err *err)
{
    spoiled_job *j = user;
    job_program p = {0};
    dtp_backend *b = NULL, *reference = NULL;
    DTP_TRY(job_lower(j->g, "x:2", j->rules, &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &b, err));
    DTP_TRY(dtp_backend_create("cpu", 1, &reference, err));
    const dtp_backend_ops *ops = b->ops;
    dtp_backend_ops mine = *ops;
    mine.kernel = comm->rank == 1 ? spoiled_kernel : ops->kernel;
    b->ops = &mine;
    dtp_verify_options o = dtp_verify_options_init();
    dtp_verify_result r;
    o.reference = reference;
    dtp_status status = dtp_verify(j->g, p.program, b, comm, &o, &r, err);
    if (comm->rank == 1) {
        j->result = r;
    } else {
        dtp_verify_result_free(&r);
    }
    b->ops = ops;
    dtp_backend_destroy(b);
    dtp_backend_destroy(reference);
    job_program_free(&p);
    return status;
}

static void test_verify__finds_one_wrong_element_of_one_rank(void **unused)
{
    (void)unused;
    static const double spoils[] = {1.001, NAN, INFINITY};
    static const char *const rules[] = {"", "batch:x", "hidden:x"};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_backend *b = NULL;
    dtp_mesh mesh;
    must(job_graph(false, &g, &err), &err);
    must(dtp_backend_create("cpu", 1, &b, &err), &err);
    cpu_ops = b->ops;
    spoiled = *cpu_ops->kernel(b, "gelu", 0);
    spoiled.run = spoiled_gelu;
    dtp_backend_destroy(b);
    must(dtp_mesh_parse("x:2", &mesh, &err), &err);
    for (int k = 0; k < 9; k++) {
        spoiled_job j = {.g = g, .rules = rules[k % 3]};
        spoil = spoils[k / 3];
        must(dtp_comm_sim_run(&mesh, spoiled_body, &j, &err), &err);
        assert_false(j.result.pass);
        assert_true(j.result.max_rel_err > j.result.tolerance);
        assert_true(isinf(j.result.max_rel_err) || k < 3);
        dtp_strbuf text = {0};
        dtp_verify_text(&j.result, &(dtp_verified){0}, &text);
        assert_non_null(strstr(dtp_strbuf_text(&text), "MISMATCH"));
        dtp_strbuf_free(&text);
        dtp_verify_result_free(&j.result);
    }
    dtp_graph_destroy(g);
}

/* ---- checkpoints ---- */

static void train_job(const dtp_graph *g, const placement *p, int32_t steps, const char *load,
                      const char *save, double *losses, float *params)
{
    dtp_err err = {0};
    job j = {.g = g,
             .mesh = p->mesh,
             .rules = p->rules,
             .backend = "ref",
             .steps = steps,
             .load = load,
             .save = save,
             .losses = losses,
             .params = params};
    dtp_status status = run_on(&j, job_run, &err);
    if (status != DTP_OK) {
        fail_msg("mesh %s rules %s: %s", p->mesh, p->rules, err.msg);
    }
}

/* Three steps, a checkpoint, three more under another layout: as six steps in one go. */
static void test_checkpoint__continues_under_every_other_layout(void **unused)
{
    (void)unused;
    static const int from[] = {0, 2, 8, 9, 14};
    static const int to[] = {0, 3, 6, 10, 13};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(false, &g, &err), &err);
    double whole[STEPS], first[3], rest[3];
    float end[PARAMS], params[PARAMS];
    train_job(g, &placements[0], STEPS, NULL, NULL, whole, end);
    for (int single = 0; single < 2; single++) {
        for (int k = 0; k < 5; k++) {
            char path[300];
            snprintf(path, sizeof path, "%s", data_path(single ? "one.safetensors" : "many"));
            train_job(g, &placements[from[k]], 3, NULL, path, first, NULL);
            train_job(g, &placements[to[k]], 3, path, NULL, rest, params);
            for (int i = 0; i < 3; i++) {
                assert_true(fabs(first[i] - whole[i]) <= 1e-6 * whole[i]);
                assert_true(fabs(rest[i] - whole[i + 3]) <= 1e-6 * whole[i + 3]);
            }
            for (int i = 0; i < PARAMS; i++) {
                assert_true(fabs((double)params[i] - (double)end[i]) <= 1e-5);
            }
        }
    }
    dtp_graph_destroy(g);
}

/* A parameter file without optimizer states starts training anew from those parameters. */
static void test_checkpoint__plain_parameter_file_loads(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(false, &g, &err), &err);
    const dtp_st_entry entries[] = {
        {.name = "b1", .store = DTP_STORE_F32, .rank = 1, .dims = {6}},
        {.name = "extra", .store = DTP_STORE_BF16, .rank = 1, .dims = {1}},
        {.name = "w1", .store = DTP_STORE_F64, .rank = 2, .dims = {12, 6}},
        {.name = "w2", .store = DTP_STORE_F32, .rank = 2, .dims = {6, 4}},
    };
    double w1[72];
    float b1[6] = {0}, w2[24];
    uint16_t extra = 0;
    for (int i = 0; i < 72; i++) {
        w1[i] = 0.0; /* all logits are equal: the loss is log 4 */
    }
    for (int i = 0; i < 24; i++) {
        w2[i] = 0.25F;
    }
    const char *path = data_path("plain.safetensors");
    dtp_st_writer *w = NULL;
    must(dtp_st_create(path, 4, entries, 0, NULL, &w, &err), &err);
    must(dtp_st_put(w, b1, sizeof b1, &err), &err);
    must(dtp_st_put(w, &extra, sizeof extra, &err), &err);
    must(dtp_st_put(w, w1, sizeof w1, &err), &err);
    must(dtp_st_put(w, w2, sizeof w2, &err), &err);
    must(dtp_st_commit(w, NULL, NULL, &err), &err);
    double loss;
    char copy[300];
    snprintf(copy, sizeof copy, "%s", path);
    train_job(g, &placements[9], 1, copy, NULL, &loss, NULL);
    assert_true(fabs(loss - log(4.0)) < 1e-6);
    dtp_graph_destroy(g);
}

/* Replaces the first occurrence of a text in an index, which has no checksum then. */
static void edit(const char *path, const char *from, const char *to)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    data_unseal(text);
    char *at = strstr(text, from);
    assert_non_null(at);
    f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
}

typedef struct damage {
    const char *from, *to, *words;
} damage;

static dtp_status load_damaged(const dtp_graph *g, const char *dir, dtp_err *err)
{
    double loss;
    job j = {.g = g,
             .mesh = "x:2",
             .rules = "",
             .backend = "ref",
             .steps = 1,
             .load = dir,
             .losses = &loss};
    *err = (dtp_err){0};
    return run_on(&j, job_run, err);
}

static void test_checkpoint__damage_is_found(void **unused)
{
    (void)unused;
    static const damage cases[] = {
        {"dtp.checkpoint/1", "dtp.checkpoint/2", "dtp.checkpoint/1"},
        {"\"step\"", "\"steps\"", "steps"},
        {"\"w1\"", "\"w9\"", "does not hold"},
        {"rank-1-of-2", "rank-7-of-9", "rank-7-of-9"},
        {"rank-1-of-2", "../rank-1-of-2", "plain file name"},
        {"\"name\": \"rank-0-of-2", "\"name\": \"rank-1-of-2", "does not"},
        {"\"crc32\": \"", "\"crc32\": \"0", "checksum"},
        {"\"file\": 1", "\"file\": 2", "file"},
        {"\"file\": 1", "\"file\": -1", "file"},
        {"\"offset\": [6, 0]", "\"offset\": [5, 0]",
         "checkpoint.json: tensor 'w1' has slices that overlap, in 'rank-0-of-2"},
        {"\"offset\": [6, 0]", "\"offset\": [7, 0]", "dim 0"},
        {"\"shape\": [12, 6]", "\"shape\": [13, 6]", "w1"},
        {"\"shape\": [12, 6]", "\"shape\": [9007199254740992, 9007199254740992]", "2^63"},
        {"\"bytes\": ", "\"bytes\": 1", "bytes"},
        {"\"dtype\": \"F32\"", "\"dtype\": \"F64\"", "does not hold"},
    };
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(job_graph(false, &g, &err), &err);
    char dir[300], index[400], part[400];
    double loss;
    snprintf(dir, sizeof dir, "%s", data_path("damaged"));
    snprintf(index, sizeof index, "%s/dtp.checkpoint.json", dir);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        train_job(g, &(placement){"x:2", "pixels:x"}, 1, NULL, dir, &loss, NULL);
        must(load_damaged(g, dir, &err), &err);
        edit(index, cases[k].from, cases[k].to);
        dtp_status status = load_damaged(g, dir, &err);
        if (status == DTP_OK || strstr(err.msg, cases[k].words) == NULL) {
            fail_msg("%s -> %s: %s", cases[k].from, cases[k].to,
                     status == DTP_OK ? "accepted" : err.msg);
        }
    }
    /* one flipped byte of the data */
    snprintf(dir, sizeof dir, "%s", data_path("flipped"));
    snprintf(index, sizeof index, "%s/dtp.checkpoint.json", dir);
    snprintf(part, sizeof part, "%s/rank-1-of-2.1.safetensors", dir);
    train_job(g, &(placement){"x:2", "pixels:x"}, 1, NULL, dir, &loss, NULL);
    FILE *f = fopen(part, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    int last = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(last ^ 1, f);
    fclose(f);
    assert_int_equal(load_damaged(g, dir, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "damaged"));
    /* no index: there is no checkpoint */
    assert_int_equal(unlink(index), 0);
    assert_int_equal(load_damaged(g, dir, &err), DTP_IO);
    assert_non_null(strstr(err.msg, "no complete checkpoint"));
    dtp_graph_destroy(g);
}

/* ---- counters ---- */

typedef struct counter_case {
    const char *rules;
    double einsum, output, all_reduce;
} counter_case;

/* x[4, 6] w[6, 10] -> y[4, 10] on two ranks: 240 multiply-adds, 40 results. */
static void test_counters__count_elements_of_all_ranks(void **unused)
{
    (void)unused;
    static const char text[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"product\", \"dims\": {\"a\": 4, \"b\": 6, "
        "\"c\": 10},"
        " \"inputs\": {\"x\": {\"dims\": [\"a\", \"b\"], \"dtype\": \"f32\"}},"
        " \"params\": {\"w\": {\"dims\": [\"b\", \"c\"], \"init\": \"ones\"}},"
        " \"nodes\": [{\"id\": \"y\", \"op\": \"einsum\", \"in\": [\"x\", \"w\"], \"out\": [\"a\", "
        "\"c\"]}],"
        " \"outputs\": [\"y\"]}";
    static const counter_case cases[] = {
        {"", 480, 80, 0}, {"a:x", 240, 40, 0}, {"c:x", 240, 40, 0}, {"b:x", 240, 80, 80}};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    must(dtp_model_parse("product", text, sizeof text - 1, NULL, &g, &err), &err);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        job_program p = {0};
        dtp_counters c;
        must(job_lower(g, "x:2", cases[k].rules, &dtp_target_cpu, &p, &err), &err);
        must(dtp_counters_of(p.program, p.arena, &c, &err), &err);
        assert_true(dtp_counters_get(&c, "einsum") == cases[k].einsum);
        assert_true(dtp_counters_get(&c, "einsum_unique") == 240);
        assert_true(dtp_counters_get(&c, "output/EinsumOperation") == cases[k].output);
        assert_true(dtp_counters_get(&c, "output_unique/EinsumOperation") == 40);
        assert_true(dtp_counters_get(&c, "allreduce/[0]/einsum_op") == cases[k].all_reduce);
        assert_true(dtp_counters_get(&c, "allreduce") == cases[k].all_reduce);
        assert_true(dtp_counters_get(&c, "variables/trainable") == 60);
        job_program_free(&p);
    }
    dtp_graph_destroy(g);
}

/* ---- failures ---- */

static const dtp_backend_ops *real_ops;

static const dtp_kernel *lacks_gelu(const dtp_backend *b, const char *op, int32_t i)
{
    return strcmp(op, "gelu") == 0 ? NULL : real_ops->kernel(b, op, i);
}

static dtp_status failing_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)args;
    return DTP_FAIL(err, DTP_RANGE, "on purpose");
}

static const dtp_kernel *fails_gelu(const dtp_backend *b, const char *op, int32_t i)
{
    static const dtp_kernel mine = {.op = "gelu", .run = failing_kernel};
    return strcmp(op, "gelu") == 0 && i == 0 ? &mine : real_ops->kernel(b, op, i);
}

typedef struct failing_job {
    const dtp_graph *g;
    int32_t rank; /* that fails */
    bool at_load;
    int statuses[4], steps_started[4];
} failing_job;

static dtp_status broken_step(dtp_comm *comm, const dtp_program *p, dtp_backend *b, failing_job *j,
                              dtp_err *err)
{
    dtp_session_options o = dtp_session_options_init();
    dtp_session *s = NULL;
    dtp_step_result result;
    DTP_TRY(dtp_session_create(p, b, comm, &o, &s, err));
    j->steps_started[comm->rank] = 1;
    dtp_status status = dtp_session_step(s, &result, err);
    dtp_session_destroy(s);
    return status;
}

static dtp_status broken_body(dtp_comm *comm, void *user, dtp_err *err)
{
    failing_job *j = user;
    job_program p = {0};
    dtp_backend *b = NULL;
    DTP_TRY(job_lower(j->g, "x:4", "batch:x", &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("ref", 1, &b, err));
    const dtp_backend_ops *ops = b->ops;
    dtp_backend_ops mine = *ops;
    if (comm->rank == j->rank) {
        mine.kernel = j->at_load ? lacks_gelu : fails_gelu;
        b->ops = &mine;
    }
    dtp_status status = broken_step(comm, p.program, b, j, err);
    j->statuses[comm->rank] = (int)status;
    b->ops = ops;
    dtp_backend_destroy(b);
    job_program_free(&p);
    return status;
}

static void fail_on_rank_2(bool at_load, const char *const *words, dtp_status want)
{
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_backend *b = NULL;
    dtp_mesh mesh;
    must(job_graph(false, &g, &err), &err);
    must(dtp_backend_create("ref", 1, &b, &err), &err);
    real_ops = b->ops;
    dtp_backend_destroy(b);
    must(dtp_mesh_parse("x:4", &mesh, &err), &err);
    failing_job j = {.g = g, .rank = 2, .at_load = at_load};
    assert_int_equal(dtp_comm_sim_run(&mesh, broken_body, &j, &err), want);
    for (; *words != NULL; words++) {
        if (strstr(err.msg, *words) == NULL) {
            fail_msg("'%s' is not in: %s", *words, err.msg);
        }
    }
    for (int r = 0; r < 4; r++) {
        assert_int_equal(j.statuses[r], r == 2 ? (int)want : (int)DTP_COMM);
        assert_int_equal(j.steps_started[r], !at_load);
    }
    dtp_graph_destroy(g);
}

static void test_runner__missing_kernel_is_found_before_the_first_step(void **unused)
{
    (void)unused;
    static const char *const words[] = {"no kernel for op 'gelu'", "node 'a'", NULL};
    fail_on_rank_2(true, words, DTP_UNSUPPORTED);
}

static void test_runner__failing_kernel_stops_all_ranks(void **unused)
{
    (void)unused;
    static const char *const words[] = {"rank 2",   "step 0",     "instruction ",
                                        "node 'a'", "on purpose", NULL};
    fail_on_rank_2(false, words, DTP_RANGE);
}

/* Ranks with different seeds would train different models: they notice at once. */
static dtp_status other_seed(dtp_comm *comm, void *user, dtp_err *err)
{
    const dtp_graph *g = user;
    job_program p = {0};
    dtp_backend *b = NULL;
    dtp_session *s = NULL;
    dtp_session_options o = dtp_session_options_init();
    o.seed = (uint64_t)comm->rank;
    DTP_TRY(job_lower(g, "x:2", "batch:x", &dtp_target_cpu, &p, err));
    DTP_TRY(dtp_backend_create("ref", 1, &b, err));
    dtp_status status = dtp_session_create(p.program, b, comm, &o, &s, err);
    dtp_session_destroy(status == DTP_OK ? s : NULL);
    dtp_backend_destroy(b);
    job_program_free(&p);
    return status;
}

static void test_session__ranks_must_agree(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_mesh mesh;
    must(job_graph(false, &g, &err), &err);
    must(dtp_mesh_parse("x:2", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, other_seed, g, &err), DTP_COMM);
    assert_non_null(strstr(err.msg, "do not agree"));
    must(dtp_mesh_parse("x:3", &mesh, &err), &err);
    double loss;
    job j = {.g = g, .mesh = "x:2", .rules = "", .backend = "ref", .steps = 1, .losses = &loss};
    assert_int_equal(dtp_comm_sim_run(&mesh, job_run, &j, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "x:2"));
    dtp_graph_destroy(g);
}

static dtp_status on_packed_transport(dtp_comm *comm, void *user, dtp_err *err)
{
    const bool strided = comm->transport.caps.strided;
    comm->transport.caps.strided = false;
    dtp_status status = job_run(comm, user, err);
    comm->transport.caps.strided = strided;
    return status;
}

static void test_session__target_and_transport_must_agree(void **unused)
{
    (void)unused;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    double losses[STEPS];
    must(job_graph(false, &g, &err), &err);
    job j = {.g = g,
             .mesh = "x:2",
             .rules = "hidden:x",
             .backend = "cpu",
             .target = &dtp_target_cpu_packed,
             .steps = STEPS,
             .losses = losses};
    must(run_on(&j, on_packed_transport, &err), &err);
    j.target = &dtp_target_cpu;
    assert_int_equal(run_on(&j, on_packed_transport, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "target 'cpu'"));
    assert_non_null(strstr(err.msg, "transport 'sim'"));
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__ref_backend_gives_equal_losses_on_all_meshes),
        cmocka_unit_test(test_session__cpu_backend_gives_equal_losses_on_all_meshes),
        cmocka_unit_test(test_session__overlap_changes_no_bit),
        cmocka_unit_test(test_session__dropout_does_not_depend_on_the_layout),
        cmocka_unit_test(test_verify__passes_on_all_meshes),
        cmocka_unit_test(test_verify__finds_one_wrong_element_of_one_rank),
        cmocka_unit_test(test_checkpoint__continues_under_every_other_layout),
        cmocka_unit_test(test_checkpoint__plain_parameter_file_loads),
        cmocka_unit_test(test_checkpoint__damage_is_found),
        cmocka_unit_test(test_counters__count_elements_of_all_ranks),
        cmocka_unit_test(test_runner__missing_kernel_is_found_before_the_first_step),
        cmocka_unit_test(test_runner__failing_kernel_stops_all_ranks),
        cmocka_unit_test(test_session__ranks_must_agree),
        cmocka_unit_test(test_session__target_and_transport_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, data_cleanup);
}
