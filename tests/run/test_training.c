/* Training on real data does not depend on the number of ranks: the loss of every one of 50 steps
 * on 2 and 4 virtual ranks against one device, for the digits MLP, for the byte-level GPT with
 * dropout, and for the other architectures at small sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "executor/session/session.h"
#include "spmd/lower/lower.h"
#include "tests/support/data_files.h"
#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

enum { STEPS = 50 };

static const double TOLERANCE = 1e-4; /* relative, per step */

#define MODELS DTP_SOURCE_DIR "/models/"

static const dtp_feed_spec DIGITS[] = {
    {.input = "images", .file = MODELS "data/digits_images.npy"},
    {.input = "labels", .file = MODELS "data/digits_labels.npy"},
};
static const dtp_feed_spec TEXT[] = {{.input = "text", .file = MODELS "data/text.txt"}};

typedef struct job {
    const dtp_program *program;
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    bool f64;             /* on the reference backend */
    double losses[STEPS]; /* of rank 0 */
} job;

static dtp_status train(dtp_session *s, job *j, bool first_rank, dtp_err *err)
{
    for (int32_t i = 0; i < STEPS; i++) {
        dtp_step_result step;
        int64_t allocated, touched;
        DTP_TRY(dtp_session_step(s, &step, err));
        dtp_session_peak(s, &allocated, &touched);
        if (allocated != j->program->peak_bytes || touched != j->program->peak_bytes) {
            return DTP_FAIL(err, DTP_INTERNAL, "planned %lld bytes, allocated %lld, touched %lld",
                            (long long)j->program->peak_bytes, (long long)allocated,
                            (long long)touched);
        }
        if (first_rank) {
            j->losses[i] = step.loss;
        }
    }
    return DTP_OK;
}

static dtp_status train_rank(dtp_comm *comm, void *user, dtp_err *err)
{
    job *j = user;
    dtp_backend *backend = NULL;
    dtp_session *session = NULL;
    dtp_session_options options = dtp_session_options_init();
    options.seed = 3;
    options.n_feeds = j->n_feeds;
    options.feeds = j->feeds;
    DTP_TRY(j->f64 ? dtp_backend_ref_create(&backend, err)
                   : dtp_backend_cpu_create(1, &backend, err));
    dtp_status s = dtp_session_create(j->program, backend, comm, &options, &session, err);
    if (s == DTP_OK) {
        s = train(session, j, comm->rank == 0, err);
    }
    dtp_session_destroy(session);
    dtp_backend_destroy(backend);
    return s;
}

static void train_under(const dtp_graph *g, const char *mesh_text, const char *rules_text, job *j)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_mesh mesh;
    dtp_layout_rules rules;
    dtp_sharding s;
    dtp_program *program = NULL;
    dtp_err err = {0};
    dtp_status st = dtp_mesh_parse(mesh_text, &mesh, &err);
    st = st == DTP_OK ? dtp_layout_rules_parse(rules_text, &mesh, &g->dims, arena, &rules, &err)
                      : st;
    st = st == DTP_OK ? dtp_sharding_from_rules(g, &mesh, &rules, false, arena, &s, &err) : st;
    st = st == DTP_OK ? dtp_lower(g, &s, &options, &program, &err) : st;
    st = st == DTP_OK ? dtp_program_check(program, &err) : st;
    j->program = program;
    st = st == DTP_OK ? dtp_comm_sim_run(&mesh, train_rank, j, &err) : st;
    if (st != DTP_OK) {
        fail_msg("mesh '%s', rules '%s': %s", mesh_text, rules_text, err.msg);
    }
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
}

/* Mesh and rules of one run. */
typedef struct layout_case {
    const char *mesh, *rules;
} layout_case;

static void check_losses(const dtp_graph *g, job base, int32_t n, const layout_case *cases)
{
    train_under(g, "", "", &base);
    assert_true(isfinite(base.losses[0]));
    assert_true(base.losses[STEPS - 1] < 0.8 * base.losses[0]);
    for (int32_t c = 0; c < n; c++) {
        job j = base;
        double worst = 0.0;
        memset(j.losses, 0, sizeof j.losses);
        train_under(g, cases[c].mesh, cases[c].rules, &j);
        for (int32_t i = 0; i < STEPS; i++) {
            double error = fabs(j.losses[i] - base.losses[i]) / fabs(base.losses[i]);
            if (!(error <= TOLERANCE)) {
                fail_msg("mesh '%s', rules '%s': loss of step %d is %.8g, on one device %.8g",
                         cases[c].mesh, cases[c].rules, i, j.losses[i], base.losses[i]);
            }
            worst = fmax(worst, error);
        }
        (void)printf("%s on '%s' with '%s': loss %.4f to %.4f, worst relative difference %.1e\n",
                     g->name, cases[c].mesh, cases[c].rules, base.losses[0], base.losses[STEPS - 1],
                     worst);
    }
}

static dtp_graph *read_model(const char *path, int32_t n, const dtp_dim_override *overrides,
                             bool f64)
{
    dtp_graph *g = NULL;
    dtp_err err = {0};
    dtp_model_options options = {
        .size = sizeof options, .n_overrides = n, .overrides = overrides, .f64 = f64};
    if (dtp_model_read(path, &options, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return g;
}

static void test_training__mlp_losses_agree(void **state)
{
    (void)state;
    static const layout_case cases[] = {
        {"x:2", "batch:x"},
        {"x:4", "batch:x"},
        {"x:2", "hidden:x"},
        {"x:4", "hidden:x"},
        {"x:2;y:2", "batch:x;hidden:y"},
    };
    dtp_graph *g = read_model(MODELS "mlp_digits.json", 0, NULL, false);
    job base = {.n_feeds = 2, .feeds = DIGITS};
    check_losses(g, base, sizeof cases / sizeof cases[0], cases);
    dtp_graph_destroy(g);
}

static int32_t count_ops(const dtp_graph *g, const char *op)
{
    int32_t n = 0;
    for (dtp_node_id i = 0; i < g->n_nodes; i++) {
        n += strcmp(g->nodes[i].op->name, op) == 0 ? 1 : 0;
    }
    return n;
}

static void test_training__gpt_losses_agree_with_dropout(void **state)
{
    (void)state;
    static const layout_case cases[] = {
        {"x:2", "batch:x"},
        {"x:4", "batch:x"},
        {"x:2", "heads:x;d_ff:x;vocab:x"},
        {"x:4", "heads:x;d_ff:x;vocab:x"},
        {"x:2;y:2", "batch:x;heads:y;d_ff:y;vocab:y"},
    };
    static const dtp_dim_override small[] = {{"batch", 4}, {"layers", 2}, {"length", 32}};
    dtp_graph *g = read_model(MODELS "gpt_bytes_dropout.json", 3, small, false);
    job base = {.n_feeds = 1, .feeds = TEXT};
    assert_int_equal(count_ops(g, "dropout"), 2 * (1 + 2 * 2));
    check_losses(g, base, sizeof cases / sizeof cases[0], cases);
    dtp_graph_destroy(g);
}

/* ---- other architectures ---- */

/* Bytes for tokens. */
static void train_text_model(const char *path, int32_t n, const dtp_dim_override *overrides,
                             job base, const char *tensor_rules)
{
    const layout_case cases[] = {{"x:2", "batch:x"}, {"x:2", tensor_rules}};
    dtp_graph *g = read_model(path, n, overrides, false);
    check_losses(g, base, 2, cases);
    dtp_graph_destroy(g);
}

static void test_training__llama_learns(void **state)
{
    (void)state;
    static const dtp_dim_override small[] = {{"batch", 8},   {"layers", 2},   {"length", 32},
                                             {"vocab", 256}, {"kv_heads", 4}, {"group", 2},
                                             {"d_head", 16}, {"d_ff", 256}};
    train_text_model(MODELS "llama3_8b.json", 8, small, (job){.n_feeds = 1, .feeds = TEXT},
                     "kv_heads:x;d_ff:x;vocab:x");
}

static void test_training__mixtral_learns(void **state)
{
    (void)state;
    static const dtp_dim_override small[] = {{"batch", 8},   {"layers", 2},   {"length", 32},
                                             {"vocab", 256}, {"kv_heads", 4}, {"group", 2},
                                             {"d_head", 16}, {"d_ff", 128}};
    train_text_model(MODELS "mixtral_8x7b.json", 8, small, (job){.n_feeds = 1, .feeds = TEXT},
                     "batch:x;experts:x");
}

/* The targets are the tokens. */
static void test_training__bert_learns(void **state)
{
    (void)state;
    static const dtp_dim_override small[] = {{"batch", 8},   {"layers", 2}, {"length", 32},
                                             {"vocab", 256}, {"heads", 4},  {"d_head", 32}};
    static const dtp_feed_spec feeds[] = {{.input = "tokens", .file = MODELS "data/text.txt"},
                                          {.input = "targets", .file = MODELS "data/text.txt"}};
    train_text_model(MODELS "bert_large.json", 6, small, (job){.n_feeds = 2, .feeds = feeds},
                     "heads:x;d_ff:x");
}

/* Writes an array as .npy; `shape` such as "8, 4". */
static const char *write_npy(const char *name, const char *type, const char *shape,
                             const void *data, size_t bytes)
{
    enum { HEAD = 128 };
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, HEAD - 10, 0};
    char file[HEAD + 8192];
    assert_true(bytes <= sizeof file - HEAD);
    memset(file, ' ', HEAD);
    memcpy(file, magic, sizeof magic);
    const int n = snprintf(file + 10, HEAD - 10,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    file[10 + n] = ' ';
    file[HEAD - 1] = '\n';
    memcpy(file + HEAD, data, bytes);
    return data_write(name, file, HEAD + bytes);
}

/* The same images at every step. In f64: gradients become small as they are learnt by heart, and
 * Adam with its eps of 1e-8 enlarges what rounding leaves of them. */
static void test_training__vit_learns(void **state)
{
    (void)state;
    static const dtp_dim_override small[] = {{"batch", 4},    {"layers", 1}, {"image", 8},
                                             {"patch", 2},    {"heads", 4},  {"d_head", 2},
                                             {"channels", 1}, {"classes", 8}};
    static const layout_case cases[] = {{"x:2", "batch:x"}, {"x:2", "heads:x;d_ff:x"}};
    float images[4 * 64];
    int32_t labels[4];
    for (int32_t i = 0; i < 4 * 64; i++) {
        images[i] = (float)((i * 7919 + i / 64 * 104729) % 101) / 50.0F - 1.0F;
    }
    for (int32_t i = 0; i < 4; i++) {
        labels[i] = i * 5 % 8;
    }
    char image_file[512], label_file[512];
    (void)snprintf(image_file, sizeof image_file, "%s",
                   write_npy("images.npy", "<f4", "4, 1, 8, 8", images, sizeof images));
    (void)snprintf(label_file, sizeof label_file, "%s",
                   write_npy("labels.npy", "<i4", "4,", labels, sizeof labels));
    const dtp_feed_spec feeds[] = {{.input = "images", .file = image_file},
                                   {.input = "labels", .file = label_file}};
    dtp_graph *g = read_model(MODELS "vit_b16.json", 8, small, true);
    check_losses(g, (job){.n_feeds = 2, .feeds = feeds, .f64 = true}, 2, cases);
    dtp_graph_destroy(g);
    data_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training__mlp_losses_agree),
        cmocka_unit_test(test_training__gpt_losses_agree_with_dropout),
        cmocka_unit_test(test_training__llama_learns),
        cmocka_unit_test(test_training__mixtral_learns),
        cmocka_unit_test(test_training__bert_learns),
        cmocka_unit_test(test_training__vit_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
