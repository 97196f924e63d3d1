/* Recomputation and microbatches do not change what is trained: with recomputed blocks the losses,
 * gradients and parameters have the same bits on one rank and on several, dropout included; with
 * microbatches they agree with the whole batch to rounding. Memory falls, and is what was planned.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/transform/graph_variant.h"
#include "core/transform/microbatch.h"
#include "core/graph/graph.h"
#include "executor/session/session.h"
#include "executor/verify/verify.h"
#include "spmd/lower/lower.h"
#include "executor/cpu/cpu.h"
#include "tests/support/graph_check.h"

enum { STEPS = 4 };

#define MODELS DTP_SOURCE_DIR "/models/"

static const dtp_feed_spec DIGITS[] = {
    {.input = "images", .file = MODELS "data/digits_images.npy"},
    {.input = "labels", .file = MODELS "data/digits_labels.npy"},
};
static const dtp_feed_spec TEXT[] = {{.input = "text", .file = MODELS "data/text.txt"}};

/* A model with its data, small enough to run often. */
typedef struct subject {
    const char *file;
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    int32_t n_dims;
    dtp_dim_override dims[4];
} subject;

static const subject MLP = {"mlp_digits.json", 2, DIGITS, 1, {{"batch", 24}}};
static const subject GPT = {
    "gpt_bytes.json", 1, TEXT, 4, {{"batch", 8}, {"length", 16}, {"heads", 4}, {"layers", 2}}};
static const subject DROPOUT = {"gpt_bytes_dropout.json",
                                1,
                                TEXT,
                                4,
                                {{"batch", 8}, {"length", 16}, {"heads", 4}, {"layers", 2}}};

/* What a run leaves on rank 0. */
typedef struct result {
    double losses[STEPS];
    int64_t peak_bytes;
    int64_t n; /* floats of all gradients and parameters, in the order of the model's gradients */
    float *values;
} result;

typedef struct job {
    const subject *subject;
    const dtp_graph *model, *g;
    const dtp_program *program;
    const char *save, *load; /* checkpoints; NULL = none */
    result *out;
} job;

static dtp_graph *read_model(const subject *s)
{
    char path[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_model_options options = {
        .size = sizeof options, .n_overrides = s->n_dims, .overrides = s->dims};
    (void)snprintf(path, sizeof path, MODELS "%s", s->file);
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

/* Gradients of the last step and parameters after it, found by name. */
static dtp_status gather(dtp_session *s, const job *j, bool first, dtp_err *err)
{
    float *at = j->out->values;
    for (int32_t i = 0; i < j->model->n_grads; i++) {
        const dtp_tensor_id both[2] = {j->model->grads[i].grad, j->model->grads[i].param};
        for (int k = 0; k < 2; k++) {
            const dtp_graph_tensor *t = &j->model->tensors[both[k]];
            const dtp_tensor_id here = dtp_graph_find(j->g, t->name);
            if (here < 0) {
                return DTP_FAIL(err, DTP_INTERNAL, "there is no '%s'", t->name);
            }
            DTP_TRY(dtp_session_gather(s, here, first ? at : NULL, err));
            at += dtp_ttype_elems(&t->type);
        }
    }
    return DTP_OK;
}

static dtp_status train(dtp_session *s, const job *j, dtp_comm *comm, dtp_err *err)
{
    for (int32_t i = 0; i < STEPS; i++) {
        dtp_step_result step;
        DTP_TRY(dtp_session_step(s, &step, err));
        if (comm->rank == 0) {
            j->out->losses[i] = step.loss;
        }
    }
    int64_t allocated, touched;
    dtp_session_peak(s, &allocated, &touched);
    if (allocated != j->program->peak_bytes || touched != j->program->peak_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "planned %lld bytes, allocated %lld, touched %lld",
                        (long long)j->program->peak_bytes, (long long)allocated,
                        (long long)touched);
    }
    if (j->save != NULL) {
        DTP_TRY(dtp_session_save(s, j->save, err));
    }
    return gather(s, j, comm->rank == 0, err);
}

static dtp_status train_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    job *j = user;
    dtp_backend *backend = NULL;
    dtp_session *session = NULL;
    dtp_session_options options = dtp_session_options_init();
    options.seed = 5;
    options.n_feeds = j->subject->n_feeds;
    options.feeds = j->subject->feeds;
    options.load = j->load;
    DTP_TRY(dtp_backend_cpu_create(1, &backend, err));
    dtp_status s = dtp_session_create(j->program, backend, comm, &options, &session, err);
    if (s == DTP_OK) {
        s = train(session, j, comm, err);
    }
    dtp_session_destroy(session);
    dtp_backend_destroy(backend);
    return s;
}

/* How a model is run. */
typedef struct implementation {
    const char *remat;
    int32_t microbatches;
    const char *mesh, *rules;
    const char *save, *load;
} implementation;

static dtp_status lower(const dtp_graph *g, const implementation *m, dtp_arena *arena,
                        dtp_mesh *mesh, dtp_program **out, dtp_err *err)
{
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_layout_rules rules;
    dtp_sharding s;
    DTP_TRY(dtp_mesh_parse(m->mesh, mesh, err));
    DTP_TRY(dtp_layout_rules_parse(m->rules, mesh, &g->dims, arena, &rules, err));
    DTP_TRY(dtp_sharding_from_rules(g, mesh, &rules, false, arena, &s, err));
    DTP_TRY(dtp_graph_results(g, arena, &options.n_fetch, &options.fetch, err));
    DTP_TRY(dtp_lower(g, &s, &options, out, err));
    return dtp_program_check(*out, err);
}

static result run(const subject *what, const implementation *m)
{
    result r = {0};
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *model = read_model(what), *g = NULL;
    dtp_graph_variant choices = {.microbatches = m->microbatches, .micro_dim = -1};
    dtp_program *program = NULL;
    dtp_mesh mesh;
    for (int32_t i = 0; i < model->n_grads; i++) {
        r.n += 2 * dtp_ttype_elems(&model->tensors[model->grads[i].grad].type);
    }
    r.values = calloc((size_t)r.n, sizeof *r.values);
    assert_non_null(r.values);
    dtp_status s = dtp_remat_parse(m->remat, model, arena, &choices.remat, &err);
    s = s == DTP_OK ? dtp_graph_with_variant(model, &choices, 0, NULL, &g, &err) : s;
    s = s == DTP_OK ? graph_check(g, &err) : s;
    s = s == DTP_OK ? lower(g, m, arena, &mesh, &program, &err) : s;
    job j = {.subject = what,
             .model = model,
             .g = g,
             .program = program,
             .save = m->save,
             .load = m->load,
             .out = &r};
    s = s == DTP_OK ? dtp_comm_sim_run(&mesh, train_rank, &j, &err) : s;
    if (s != DTP_OK) {
        fail_msg("remat %s, %d microbatches on '%s' with '%s': %s", m->remat, m->microbatches,
                 m->mesh, m->rules, err.msg);
    }
    r.peak_bytes = program->peak_bytes;
    dtp_program_destroy(program);
    dtp_graph_destroy(g);
    dtp_graph_destroy(model);
    dtp_arena_destroy(arena);
    return r;
}

static void test_memory_saving__remat_has_the_same_bits(void **state)
{
    static const struct {
        const char *mesh, *rules;
    } cases[] = {{"", ""},
                 {"x:2", "batch:x"},
                 {"x:2", "heads:x;d_ff:x;vocab:x"},
                 {"x:2;y:2", "batch:x;heads:y;d_ff:y;vocab:y"}};
    const subject *subjects[] = {&GPT, &DROPOUT};
    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int c = 0; c < 4; c++) {
            const implementation plain = {"none", 1, cases[c].mesh, cases[c].rules, NULL, NULL};
            const implementation again = {"all", 1, cases[c].mesh, cases[c].rules, NULL, NULL};
            const implementation kept = {"all keep=layers.*.{attn,attn.*.mm,mlp.up.mm}$",
                                         1,
                                         cases[c].mesh,
                                         cases[c].rules,
                                         NULL,
                                         NULL};
            result a = run(subjects[i], &plain), b = run(subjects[i], &again);
            result k = run(subjects[i], &kept);
            assert_memory_equal(a.losses, k.losses, sizeof a.losses);
            assert_memory_equal(a.values, k.values, (size_t)a.n * sizeof *a.values);
            assert_true(b.peak_bytes <= k.peak_bytes && k.peak_bytes <= a.peak_bytes);
            free(k.values);
            assert_memory_equal(a.losses, b.losses, sizeof a.losses);
            assert_memory_equal(a.values, b.values, (size_t)a.n * sizeof *a.values);
            assert_true(b.peak_bytes < a.peak_bytes);
            (void)printf("%s on '%s' with '%s': peak %lld, recomputed %lld\n", subjects[i]->file,
                         cases[c].mesh, cases[c].rules, (long long)a.peak_bytes,
                         (long long)b.peak_bytes);
            free(a.values);
            free(b.values);
        }
    }
}

/* Largest difference over the largest value. */
static double relative(const result *a, const result *b)
{
    double top = 0, diff = 0;
    for (int64_t i = 0; i < a->n; i++) {
        assert_true(isfinite(b->values[i]));
        top = fmax(top, fabs((double)a->values[i]));
        diff = fmax(diff, fabs((double)a->values[i] - (double)b->values[i]));
    }
    return diff / top;
}

static void check_microbatches(const subject *s, int32_t n, const implementation *manners)
{
    const implementation whole = {"none", 1, "", "", NULL, NULL};
    result a = run(s, &whole);
    for (int32_t c = 0; c < n; c++) {
        const implementation *m = &manners[c];
        result b = run(s, m);
        double loss = 0;
        for (int32_t i = 0; i < STEPS; i++) {
            loss = fmax(loss, fabs(b.losses[i] - a.losses[i]) / fabs(a.losses[i]));
        }
        (void)printf("%s, remat %s, %d microbatches on '%s' with '%s': loss %.1e, values %.1e\n",
                     s->file, m->remat, m->microbatches, m->mesh, m->rules, loss, relative(&a, &b));
        assert_true(loss <= 1e-6);
        assert_true(relative(&a, &b) <= 1e-6);
        free(b.values);
    }
    free(a.values);
}

static void test_memory_saving__microbatches_are_the_batch(void **state)
{
    static const implementation mlp[] = {
        {"none", 2, "", "", NULL, NULL},
        {"none", 24, "", "", NULL, NULL},
        {"none", 3, "x:2", "batch:x", NULL, NULL},
        {"none", 2, "x:4", "hidden:x", NULL, NULL},
        {"none", 4, "x:2;y:2", "batch:x;hidden:y", NULL, NULL},
    };
    static const implementation gpt[] = {
        {"none", 4, "", "", NULL, NULL},
        {"all", 8, "", "", NULL, NULL},
        {"none", 2, "x:2", "batch:x", NULL, NULL},
        {"none", 4, "x:2", "heads:x;d_ff:x;vocab:x", NULL, NULL},
        {"layer:1", 4, "x:2;y:2", "batch:x;heads:y;d_ff:y;vocab:y", NULL, NULL},
        {"none", 2, "x:2", "length:x", NULL, NULL},
    };
    (void)state;
    check_microbatches(&MLP, sizeof mlp / sizeof mlp[0], mlp);
    check_microbatches(&GPT, sizeof gpt / sizeof gpt[0], gpt);
    check_microbatches(&DROPOUT, sizeof gpt / sizeof gpt[0], gpt);
}

/* The order of the data does not depend on layouts: the same sums of the same rows. */
static void test_memory_saving__layouts_see_the_same_rows(void **state)
{
    const implementation one = {"none", 4, "", "", NULL, NULL};
    const implementation split = {"none", 4, "x:2", "hidden:x", NULL, NULL};
    (void)state;
    result a = run(&MLP, &one), b = run(&MLP, &split);
    assert_true(relative(&a, &b) <= 1e-6);
    free(a.values);
    free(b.values);
}

/* Accumulators are not part of a checkpoint, and a run with microbatches goes on from one without.
 */
static void test_memory_saving__checkpoints_have_no_sums(void **state)
{
    char dir[] = "/tmp/dtp-saving-XXXXXX", path[64], command[80];
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/c", dir);
    const implementation save = {"none", 1, "x:2", "batch:x", path, NULL};
    const implementation save_cut = {"all", 2, "x:2", "batch:x", path, NULL};
    const implementation load = {"none", 1, "", "", NULL, path};
    const implementation load_cut = {"all", 4, "", "", NULL, path};
    result first = run(&GPT, &save), a = run(&GPT, &load), b = run(&GPT, &load_cut);
    assert_true(relative(&a, &b) <= 1e-6);
    assert_true(a.losses[0] < first.losses[0]);
    result again = run(&GPT, &save_cut), c = run(&GPT, &load);
    assert_true(relative(&a, &c) <= 2e-6);
    (void)snprintf(command, sizeof command, "! grep -rl 'accum\\.' %s", dir);
    assert_int_equal(system(command), 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    free(first.values);
    free(a.values);
    free(b.values);
    free(again.values);
    free(c.values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_saving__remat_has_the_same_bits),
        cmocka_unit_test(test_memory_saving__microbatches_are_the_batch),
        cmocka_unit_test(test_memory_saving__layouts_see_the_same_rows),
        cmocka_unit_test(test_memory_saving__checkpoints_have_no_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
