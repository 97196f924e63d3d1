/* Eager optimizers against the training of the same model as a graph: every optimizer of the table,
 * parameters and states after each of several steps, on several meshes and layouts, with gradients
 * that are replicated, split or partial; with and without a schedule, clipping and a group. Runs on
 * virtual ranks and under MPI. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/graph/ops/op_table.h"
#include "core/graph/optimizer.h"
#include "dtp/optimizer.h"
#include "dtp/tape.h"
#include "executor/session/session.h"
#include "spmd/lower/lower.h"
#include "tests/dtensor/dtensor_suite.h"
#include "executor/ref/ref.h"

enum { STEPS = 6, ROWS = 8, FEATURES = 6, HIDDEN = 4, CLASSES = 5, MAX_STATES = 4, SEED = 11 };
enum { MOST = ROWS * FEATURES, PARAMS = 2 };

static const char *const PARAM_NAMES[PARAMS] = {"w1", "w2"};
static const int64_t SHAPES[PARAMS][2] = {{FEATURES, HIDDEN}, {HIDDEN, CLASSES}};

static const dtp_schedule SCHEDULE = {
    .kind = DTP_SCHEDULE_LINEAR, .warmup = 2, .steps = STEPS, .last = 0.25};
static const double CLIP_NORM = 0.3;
static const dtp_hyper GROUP = {"lr", 0.02};

/* The values of a training: inputs by step, parameters and states after each step. */
typedef struct training {
    const dtp_op_def *op;
    bool scheduled; /* with SCHEDULE, CLIP_NORM and GROUP of w2 */
    double norms[STEPS];
    int32_t n_hypers;
    dtp_hyper hypers[DTP_OPTIMIZER_MAX_HYPERS];
    double x[STEPS][MOST];
    int32_t y[STEPS][ROWS];
    double initial[PARAMS][MOST];
    double after[STEPS][PARAMS][1 + MAX_STATES][MOST];
} training;

/* ---- as a graph, on one device ---- */

/* Hyperparameters other than the defaults. */
static void draw_hypers(training *t)
{
    t->n_hypers = dtp_optimizer_hypers(t->op);
    for (int32_t i = 0; i < t->n_hypers; i++) {
        const dtp_attr_spec *a = &t->op->attrs[i];
        const double value = a->required ? 0.05 : a->def == 0.0 ? 0.02 : 0.75 * a->def;
        t->hypers[i] = (dtp_hyper){a->key, value};
    }
}

static dtp_status model_of(const training *t, dtp_graph **out, dtp_err *err)
{
    static const char model[] =
        "{\"format\": \"dtp.model/1\", \"name\": \"tiny\","
        " \"dims\": {\"b\": %d, \"f\": %d, \"h\": %d, \"c\": %d},"
        " \"inputs\": {\"x\": {\"dims\": [\"b\", \"f\"], \"dtype\": \"f32\"},"
        "              \"y\": {\"dims\": [\"b\"], \"dtype\": \"i32\", \"below\": \"c\"}},"
        " \"params\": {\"w1\": {\"dims\": [\"f\", \"h\"], \"init\": {\"normal\": 0.5}},"
        "              \"w2\": {\"dims\": [\"h\", \"c\"], \"init\": {\"normal\": 0.5}}},"
        " \"nodes\": [{\"id\": \"z\", \"op\": \"einsum\", \"in\": [\"x\", \"w1\"],"
        "              \"out\": [\"b\", \"h\"]},"
        "             {\"id\": \"a\", \"op\": \"tanh\", \"in\": [\"z\"]},"
        "             {\"id\": \"l\", \"op\": \"einsum\", \"in\": [\"a\", \"w2\"],"
        "              \"out\": [\"b\", \"c\"]},"
        "             {\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"l\", \"y\"],"
        "              \"over\": \"c\"}],"
        " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"%s\": {%s}}%s}}";
    static const char more[] =
        ", \"clip_norm\": 0.3, \"groups\": [{\"params\": \"w2\", \"lr\": 0.02}],"
        " \"schedule\": {\"linear\": {\"warmup\": 2, \"steps\": 6, \"last\": 0.25}}";
    const dtp_model_options options = {.size = sizeof options, .f64 = true};
    char hypers[512] = "", text[2048];
    for (int32_t i = 0; i < t->n_hypers; i++) {
        const size_t n = strlen(hypers);
        (void)snprintf(hypers + n, sizeof hypers - n, "%s\"%s\": %.17g", i > 0 ? ", " : "",
                       t->hypers[i].key, t->hypers[i].value);
    }
    const int n = snprintf(text, sizeof text, model, ROWS, FEATURES, HIDDEN, CLASSES, t->op->name,
                           hypers, t->scheduled ? more : "");
    return dtp_model_parse("tiny", text, (size_t)n, &options, out, err);
}

static dtp_shard whole(const dtp_graph *g, const char *name)
{
    static const dtp_mesh none = {0};
    const dtp_ttype *type = &g->tensors[dtp_graph_find(g, name)].type;
    const dtp_layout layout = dtp_layout_replicated(type->rank, 0);
    return dtp_shard_of(type, &layout, &none, 0);
}

static dtp_status note_inputs(training *t, const dtp_graph *g, dtp_err *err)
{
    dtp_feed *feed;
    const dtp_shard x = whole(g, "x"), y = whole(g, "y");
    DTP_TRY(dtp_feed_create(g, 0, NULL, SEED, DTP_FEED_SHUFFLED, &feed, err));
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < STEPS && s == DTP_OK; i++) {
        s = dtp_feed_fill(feed, dtp_graph_find(g, "x"), i, &x, t->x[i], err);
        s = s == DTP_OK ? dtp_feed_fill(feed, dtp_graph_find(g, "y"), i, &y, t->y[i], err) : s;
    }
    dtp_feed_destroy(feed);
    for (int32_t p = 0; p < PARAMS && s == DTP_OK; p++) {
        const dtp_shard piece = whole(g, PARAM_NAMES[p]);
        s = dtp_init_fill(&g->tensors[dtp_graph_find(g, PARAM_NAMES[p])], SEED, &piece, 1,
                          t->initial[p], err);
    }
    return s;
}

static dtp_status note_step(training *t, const dtp_graph *g, dtp_session *s, int32_t step,
                            dtp_err *err)
{
    for (int32_t p = 0; p < PARAMS; p++) {
        const char *state;
        DTP_TRY(
            dtp_session_gather(s, dtp_graph_find(g, PARAM_NAMES[p]), t->after[step][p][0], err));
        for (int32_t k = 0; (state = dtp_optimizer_state_name(t->op, k)) != NULL; k++) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s.%s.%s", t->op->name, state, PARAM_NAMES[p]);
            DTP_TRY(dtp_session_gather(s, dtp_graph_find(g, name), t->after[step][p][1 + k], err));
        }
    }
    return DTP_OK;
}

static dtp_status run_session(training *t, const dtp_program *p, dtp_err *err)
{
    dtp_comm *comm = NULL;
    dtp_backend *backend = NULL;
    dtp_session *session = NULL;
    dtp_session_options options = dtp_session_options_init();
    options.seed = SEED;
    DTP_TRY(dtp_comm_self_create(&comm, err));
    dtp_status s = dtp_backend_ref_create(&backend, err);
    s = s == DTP_OK ? dtp_session_create(p, backend, comm, &options, &session, err) : s;
    for (int32_t i = 0; i < STEPS && s == DTP_OK; i++) {
        dtp_step_result result;
        s = dtp_session_step(session, &result, err);
        t->norms[i] = result.grad_norm;
        s = s == DTP_OK ? note_step(t, p->graph, session, i, err) : s;
    }
    dtp_session_destroy(session);
    dtp_backend_destroy(backend);
    dtp_comm_destroy(comm);
    return s;
}

static dtp_status train_graph(training *t, dtp_err *err)
{
    static const dtp_mesh none = {0};
    dtp_graph *g;
    dtp_layout_rules rules;
    dtp_sharding sharding;
    dtp_program *p = NULL;
    const dtp_lower_options lowering = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_arena *arena = dtp_arena_create();
    draw_hypers(t);
    DTP_TRY(model_of(t, &g, err));
    dtp_status s = note_inputs(t, g, err);
    s = s == DTP_OK ? dtp_layout_rules_parse("", &none, &g->dims, arena, &rules, err) : s;
    s = s == DTP_OK ? dtp_sharding_from_rules(g, &none, &rules, false, arena, &sharding, err) : s;
    s = s == DTP_OK ? dtp_lower(g, &sharding, &lowering, &p, err) : s;
    s = s == DTP_OK ? run_session(t, p, err) : s;
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
    return s;
}

/* ---- eager ---- */

/* Where things lie in one eager run. */
typedef struct variant {
    const char *mesh, *x, *y, *w[PARAMS];
    bool partial;              /* gradients stay partial sums */
    const char *moved[PARAMS]; /* gradients are moved there first; NULL: as they come */
} variant;

static const variant VARIANTS[] = {
    {"", "replicated", "replicated", {"replicated", "replicated"}, false, {NULL, NULL}},
    {"x:2", "0@x", "0@x", {"replicated", "replicated"}, false, {NULL, NULL}},
    {"x:2", "0@x", "0@x", {"replicated", "replicated"}, true, {NULL, NULL}},
    {"x:2", "replicated", "replicated", {"1@x", "0@x"}, false, {"replicated", "1@x"}},
    {"x:3", "0@x", "replicated", {"0@x", "1@x"}, true, {NULL, NULL}},
    {"x:2;y:2", "0@x", "0@x", {"1@y", "0@y"}, true, {NULL, NULL}},
    {"x:2;y:2", "0@x", "0@x", {"0@y+x", "0@x, 1@y"}, false, {"1@x", "1@y"}},
};

typedef struct job {
    const training *t;
    const variant *v;
    bool restart; /* halfway a new optimizer takes over steps and states */
} job;

static dtp_status make(dtp_device_mesh *mesh, dtp_dtype dtype, int32_t rank, const int64_t *shape,
                       const char *layout, const void *data, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor_desc desc;
    DTP_TRY(dtp_tensor_desc_init(mesh, dtype, rank, shape, layout, &desc, err));
    return dtp_tensor_from_array(mesh, &desc, data, out, err);
}

static dtp_status gradients(dtp_device_mesh *mesh, const job *j, int32_t step,
                            const dtp_tensor *params, dtp_tensor *grads, dtp_err *err)
{
    static const int64_t shape[] = {ROWS, FEATURES};
    dtp_tensor x, y, z, a, l, loss;
    dtp_tape *tape;
    DTP_TRY(make(mesh, DTP_F64, 2, shape, j->v->x, j->t->x[step], &x, err));
    DTP_TRY(make(mesh, DTP_I32, 1, shape, j->v->y, j->t->y[step], &y, err));
    DTP_TRY(dtp_tape_create(mesh, &tape, err));
    dtp_tape_keep_partial(tape, j->v->partial);
    for (int32_t p = 0; p < PARAMS; p++) {
        DTP_TRY(dtp_tape_watch(tape, params[p], err));
    }
    DTP_TRY(dtp_tensor_matmul(x, params[0], &z, err));
    DTP_TRY(dtp_tensor_tanh(z, &a, err));
    DTP_TRY(dtp_tensor_matmul(a, params[1], &l, err));
    DTP_TRY(dtp_tensor_cross_entropy(l, y, "mean", &loss, err));
    DTP_TRY(dtp_tape_gradient(tape, loss, PARAMS, params, grads, err));
    dtp_tape_destroy(tape);
    for (int32_t p = 0; p < PARAMS && j->v->moved[p] != NULL; p++) {
        dtp_layout to;
        DTP_TRY(dtp_tensor_layout(mesh, 2, j->v->moved[p], &to, err));
        DTP_TRY(dtp_tensor_redistribute(grads[p], &to, &grads[p], err));
    }
    return DTP_OK;
}

static dtp_status compare(dtp_tensor t, const double *want, const char *what, int32_t step,
                          dtp_err *err)
{
    double got[MOST];
    dtp_tensor_desc d;
    DTP_TRY(dtp_tensor_describe(t, &d, err));
    DTP_TRY(dtp_tensor_gather(t, -1, got, err));
    for (int64_t i = 0; i < d.shape[0] * d.shape[1]; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-11 * (1.0 + fabs(want[i])))) {
            return DTP_FAIL(err, DTP_INTERNAL, "step %d: %s: element %lld is %.15g, not %.15g",
                            step, what, (long long)i, got[i], want[i]);
        }
    }
    return DTP_OK;
}

static dtp_status check_after(dtp_optimizer *opt, const job *j, int32_t step,
                              const dtp_tensor *params, dtp_err *err)
{
    for (int32_t p = 0; p < PARAMS; p++) {
        const char *name;
        const double(*want)[MOST] = j->t->after[step][p];
        DTP_TRY(compare(params[p], want[0], PARAM_NAMES[p], step, err));
        for (int32_t k = 0; (name = dtp_optimizer_state_name(j->t->op, k)) != NULL; k++) {
            dtp_tensor state;
            dtp_tensor_desc have, like;
            DTP_TRY(dtp_optimizer_state(opt, params[p], name, &state, err));
            DTP_TRY(compare(state, want[1 + k], name, step, err));
            DTP_TRY(dtp_tensor_describe(state, &have, err));
            DTP_TRY(dtp_tensor_describe(params[p], &like, err));
            if (!dtp_layout_equal(&have.layout, &like.layout)) {
                return DTP_FAIL(err, DTP_INTERNAL, "state %s lies elsewhere", name);
            }
            dtp_tensor_destroy(state);
        }
    }
    return DTP_OK;
}

static dtp_status make_optimizer(dtp_device_mesh *mesh, const training *t, const dtp_tensor *params,
                                 dtp_optimizer **out, dtp_err *err)
{
    DTP_TRY(dtp_optimizer_create(mesh, t->op->name, t->n_hypers, t->hypers, out, err));
    if (!t->scheduled) {
        return DTP_OK;
    }
    DTP_TRY(dtp_optimizer_set_schedule(*out, &SCHEDULE, err));
    DTP_TRY(dtp_optimizer_set_clip_norm(*out, CLIP_NORM, err));
    return dtp_optimizer_set_group(*out, 1, &params[1], 1, &GROUP, err);
}

static dtp_status check_norm(const dtp_optimizer *opt, double want, int32_t step, dtp_err *err)
{
    const double got = dtp_optimizer_grad_norm(opt);
    const bool same = isnan(want) ? isnan(got) : fabs(got - want) <= 1e-11 * want;
    return same ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "step %d: the norm is %.15g, not %.15g", step, got,
                           want);
}

/* A new optimizer with the steps and, from another layout, the states of the old one. */
static dtp_status take_over(dtp_device_mesh *mesh, const job *j, const dtp_tensor *params,
                            dtp_optimizer **opt, dtp_err *err)
{
    dtp_optimizer *next;
    DTP_TRY(make_optimizer(mesh, j->t, params, &next, err));
    DTP_TRY(dtp_optimizer_set_steps(next, dtp_optimizer_steps(*opt), err));
    for (int32_t p = 0; p < PARAMS; p++) {
        const char *name;
        for (int32_t k = 0; (name = dtp_optimizer_state_name(j->t->op, k)) != NULL; k++) {
            dtp_tensor state, moved;
            const dtp_layout all = dtp_layout_replicated(2, dtp_device_mesh_dims(mesh)->n_dims);
            DTP_TRY(dtp_optimizer_state(*opt, params[p], name, &state, err));
            DTP_TRY(dtp_tensor_redistribute(state, &all, &moved, err));
            DTP_TRY(dtp_optimizer_set_state(next, params[p], name, moved, err));
            dtp_tensor_destroy(state);
            dtp_tensor_destroy(moved);
        }
    }
    dtp_optimizer_destroy(*opt);
    *opt = next;
    return DTP_OK;
}

static dtp_status train_eager(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    const job *j = user;
    dtp_tensor params[PARAMS], grads[PARAMS], value;
    dtp_optimizer *opt;
    for (int32_t p = 0; p < PARAMS; p++) {
        DTP_TRY(make(mesh, DTP_F64, 2, SHAPES[p], j->v->w[p], j->t->initial[p], &value, err));
        DTP_TRY(dtp_variable_create(value, &params[p], err));
    }
    DTP_TRY(make_optimizer(mesh, j->t, params, &opt, err));
    for (int32_t i = 0; i < STEPS; i++) {
        DTP_TRY(gradients(mesh, j, i, params, grads, err));
        DTP_TRY(dtp_optimizer_step(opt, PARAMS, params, grads, err));
        DTP_TRY(check_after(opt, j, i, params, err));
        DTP_TRY(check_norm(opt, j->t->norms[i], i, err));
        if (j->restart && i == STEPS / 2) {
            DTP_TRY(take_over(mesh, j, params, &opt, err));
        }
    }
    const bool counted = dtp_optimizer_steps(opt) == STEPS;
    dtp_optimizer_destroy(opt);
    return counted ? DTP_OK : DTP_FAIL(err, DTP_INTERNAL, "steps are not counted");
}

static dtp_world_options world_options(const char *backend)
{
    dtp_world_options world = dtp_world_options_init();
    world.backend = backend;
    world.threads = 1;
    world.environment = environ;
    return world;
}

static void train_all(bool scheduled)
{
    static training t;
    const dtp_world_options world = world_options("ref");
    for (int32_t i = 0; dtp_optimizer_at(dtp_builtin_ops(), i) != NULL; i++) {
        dtp_err err = {0};
        t = (training){.op = dtp_optimizer_at(dtp_builtin_ops(), i), .scheduled = scheduled};
        assert_in_range(t.op->n_out, 1, MAX_STATES + 1);
        if (train_graph(&t, &err) != DTP_OK) {
            fail_msg("%s as a graph: %s", t.op->name, err.msg);
        }
        for (size_t v = 0; v < sizeof VARIANTS / sizeof VARIANTS[0]; v++) {
            job j = {.t = &t, .v = &VARIANTS[v], .restart = (v + (size_t)i) % 2 == 0};
            if (dt_fits(j.v->mesh) &&
                dtp_world_run(j.v->mesh, &world, train_eager, &j, &err) != DTP_OK) {
                fail_msg("%s, variant %zu on '%s': %s", t.op->name, v, j.v->mesh, err.msg);
            }
        }
    }
}

static void test_optimizers__train_as_graphs(void **unused)
{
    (void)unused;
    train_all(false);
}

static void test_optimizers__schedule_clip_and_group_as_graphs(void **unused)
{
    (void)unused;
    train_all(true);
}

/* ---- numbers and misuse ---- */

/* Adam at x = 1 with gradient 1 and rate 0.1 goes down by 0.1 in each step. */
static dtp_status two_steps(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const dtp_hyper lr = {"lr", 0.1};
    const dtp_layout all = dtp_layout_replicated(0, dtp_device_mesh_dims(mesh)->n_dims);
    const dtp_tensor_desc desc = dt_desc(DTP_F32, 0, NULL, &all);
    dtp_tensor one, x;
    dtp_optimizer *opt;
    float got;
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &one, err));
    DTP_TRY(dtp_variable_create(one, &x, err));
    DTP_TRY(dtp_optimizer_create(mesh, "adam", 1, &lr, &opt, err));
    for (int i = 1; i <= 2; i++) {
        DTP_TRY(dtp_optimizer_step(opt, 1, &x, &one, err));
        DTP_TRY(dtp_tensor_read(x, &got, err));
        if (fabs((double)got - (1.0 - 0.1 * i)) > 1e-5) {
            return DTP_FAIL(err, DTP_INTERNAL, "%.4f after step %d", (double)got, i);
        }
    }
    dtp_optimizer_destroy(opt);
    return DTP_OK;
}

static dtp_status expect(dtp_status got, dtp_status want, const char *words, const dtp_err *said,
                         dtp_err *err)
{
    return got == want && strstr(said->msg, words) != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "got '%s' ('%.500s'), expected '%s' with '%s'",
                          dtp_status_text(got), got == DTP_OK ? "" : said->msg,
                          dtp_status_text(want), words);
}

static dtp_status refused_ops(dtp_device_mesh *mesh, dtp_err *err)
{
    static const int64_t shape[] = {4};
    dtp_tensor_desc desc;
    dtp_tensor t[4], outs[4];
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "replicated", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t[0], err));
    t[1] = t[2] = t[3] = t[0];
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        dtp_err said = {0};
        const dtp_call call = {.op = op->name, .n_in = op->min_in < 4 ? op->min_in : 4, .in = t};
        if ((op->flags & DTP_OP_INTERNAL_USE) != 0) {
            DTP_TRY(expect(dtp_tensor_call(&call, outs, &said), DTP_INVALID,
                           (op->flags & DTP_OP_UPDATE) != 0 ? "use dtp_optimizer_step" : "alone",
                           &said, err));
        }
    }
    return DTP_OK;
}

static dtp_status misuse(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    (void)user;
    static const int64_t shape[] = {4};
    static const dtp_hyper lr = {"lr", 0.1}, rows[] = {{"lr", 0.1}, {"beta1", 1.0}},
                           more = {"momentum", 0.5};
    dtp_tensor_desc desc;
    dtp_tensor t, half, narrow, sums, v[2], g[2];
    dtp_optimizer *opt;
    dtp_err said = {0};
    DTP_TRY(expect(dtp_optimizer_create(mesh, "adagrad", 1, &lr, &opt, &said), DTP_INVALID,
                   "there are: sgd, momentum, adam, adamw", &said, err));
    DTP_TRY(expect(dtp_optimizer_create(mesh, "adam", 0, NULL, &opt, &said), DTP_INVALID,
                   "'lr' is required", &said, err));
    DTP_TRY(expect(dtp_optimizer_create(mesh, "adam", 2, rows, &opt, &said), DTP_RANGE,
                   "1 is not in [0, 1)", &said, err));
    DTP_TRY(expect(dtp_optimizer_create(mesh, "sgd", 1, &more, &opt, &said), DTP_NOT_FOUND,
                   "no hyperparameter 'momentum'", &said, err));
    DTP_TRY(dtp_optimizer_create(mesh, "adam", 1, &lr, &opt, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &t, err));
    DTP_TRY(dtp_variable_create(t, &v[0], err));
    desc.shape[0] = 2;
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &half, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 1, shape, "+sum(x)", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &sums, err));
    DTP_TRY(dtp_variable_create(sums, &v[1], err));
    g[0] = g[1] = t;
    DTP_TRY(expect(dtp_optimizer_step(opt, 2, v, g, &said), DTP_INVALID, "parameter 1: f32[4] +sum",
                   &said, err));
    v[1] = t;
    DTP_TRY(
        expect(dtp_optimizer_step(opt, 2, v, g, &said), DTP_INVALID, "not a variable", &said, err));
    v[1] = v[0];
    DTP_TRY(expect(dtp_optimizer_step(opt, 2, v, g, &said), DTP_INVALID, "also parameter 0", &said,
                   err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_BF16, 1, shape, "0@x", &desc, err));
    DTP_TRY(dtp_tensor_ones(mesh, &desc, &narrow, err));
    DTP_TRY(dtp_variable_create(narrow, &v[1], err));
    g[1] = narrow;
    DTP_TRY(expect(dtp_optimizer_step(opt, 2, v, g, &said), DTP_INVALID, "parameter 1: it is bf16",
                   &said, err));
    g[0] = half;
    DTP_TRY(expect(dtp_optimizer_step(opt, 1, v, g, &said), DTP_INVALID,
                   "the gradient is f32[2] 0@x, the parameter f32[4]", &said, err));
    DTP_TRY(expect(dtp_optimizer_set_steps(opt, -1, &said), DTP_RANGE, "-1", &said, err));
    DTP_TRY(expect(dtp_optimizer_state(opt, v[0], "w", &t, &said), DTP_NOT_FOUND, "no state 'w'",
                   &said, err));
    DTP_TRY(dtp_optimizer_step(opt, 1, v, &sums, err));
    const bool one = dtp_optimizer_steps(opt) == 1;
    dtp_optimizer_destroy(opt);
    return one ? refused_ops(mesh, err) : DTP_FAIL(err, DTP_INTERNAL, "refused steps are counted");
}

static void run_body(const char *mesh, dtp_world_body body)
{
    const dtp_world_options world = world_options("cpu");
    dtp_err err = {0};
    if (dt_fits(mesh) && dtp_world_run(mesh, &world, body, NULL, &err) != DTP_OK) {
        fail_msg("mesh '%s': %s", mesh, err.msg);
    }
}

static void test_adam__counts_its_steps(void **unused)
{
    (void)unused;
    run_body("", two_steps);
    run_body("x:2", two_steps);
    run_body("x:4", two_steps);
}

static void test_optimizer__refuses_misuse(void **unused)
{
    (void)unused;
    run_body("x:2", misuse);
    run_body("x:2;y:2", misuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adam__counts_its_steps),
        cmocka_unit_test(test_optimizers__train_as_graphs),
        cmocka_unit_test(test_optimizers__schedule_clip_and_group_as_graphs),
        cmocka_unit_test(test_optimizer__refuses_misuse)};
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
