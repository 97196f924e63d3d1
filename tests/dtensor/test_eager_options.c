/* Functions of include/dtp/ops.h against naive loops, under random layouts on several meshes: truth
 * values, positions, the sequence order, and the loss and attention with their options. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_run.h"

enum { MAX_IN = 4, MAX_OUT = 256 };

/* Notes of a run: the inputs, the output and, with `grad`, the gradients of the sum of its squares
 * for float inputs. */
typedef struct case_row {
    const char *name;
    dtp_status (*run)(const dtp_tensor *in, dtp_tensor *out, dtp_err *err);
    void (*naive)(double *const *in, double *out); /* of the inputs' values */
    int64_t n_out;
    bool grad;
    int32_t n_in;
    eager_spec in[MAX_IN];
} case_row;

/* ---- elementwise and reductions ---- */

#define RUN(name, expr)                                                                            \
    static dtp_status run_##name(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)              \
    {                                                                                              \
        return expr;                                                                               \
    }
#define EACH(name, n, expr)                                                                        \
    static void naive_##name(double *const *in, double *out)                                       \
    {                                                                                              \
        for (int i = 0; i < (n); i++) {                                                            \
            out[i] = (expr);                                                                       \
        }                                                                                          \
    }
RUN(and, dtp_tensor_logical_and(in[0], in[1], out, err))
RUN(or, dtp_tensor_logical_or(in[0], in[1], out, err))
RUN(xor, dtp_tensor_logical_xor(in[0], in[1], out, err))
RUN(not, dtp_tensor_logical_not(in[0], out, err))
RUN(any, dtp_tensor_any(in[0], 1, (const int32_t[]){-1}, out, err))
RUN(all, dtp_tensor_all(in[0], 0, NULL, out, err))
RUN(leaky_relu, dtp_tensor_leaky_relu(in[0], 0.2, out, err))
RUN(elu, dtp_tensor_elu(in[0], 1.5, out, err))
RUN(reorder, dtp_tensor_reorder(in[0], 0, 3, false, out, err))
RUN(reorder_back, dtp_tensor_reorder(in[0], 0, 3, true, out, err))
RUN(scatter_add, dtp_tensor_scatter_add(in[0], 1, in[1], 5, out, err))
EACH(and, 30, in[0][i] * in[1][i % 6])
EACH(or, 30, fmax(in[0][i], in[1][i % 6]))
EACH(xor, 30, in[0][i] != in[1][i % 6] ? 1.0 : 0.0)
EACH(not, 30, 1.0 - in[0][i])
EACH(any, 5, fmax(in[0][2 * i], in[0][2 * i + 1]))
EACH(leaky_relu, 30, in[0][i] > 0 ? in[0][i] : 0.2 * in[0][i])
EACH(elu, 30, in[0][i] > 0 ? in[0][i] : 1.5 * (exp(in[0][i]) - 1))

static void naive_all(double *const *in, double *out)
{
    out[0] = 1.0;
    for (int i = 0; i < 4; i++) {
        out[0] *= in[0][i];
    }
}

/* [12, 2] over 3 chunks, runs of 2: places 0, 1, .. 5 hold runs 0, 5, 1, 4, 2, 3. */
static const int RUN_AT[] = {0, 5, 1, 4, 2, 3};

static void naive_reorder(double *const *in, double *out)
{
    for (int i = 0; i < 24; i++) {
        out[i] = in[0][RUN_AT[i / 4] * 4 + i % 4];
    }
}

static void naive_reorder_back(double *const *in, double *out)
{
    for (int i = 0; i < 24; i++) {
        out[RUN_AT[i / 4] * 4 + i % 4] = in[0][i];
    }
}

/* src [3, 2, 4, 2], ids [2, 4] below 5 -> [3, 5, 2] */
static void naive_scatter_add(double *const *in, double *out)
{
    memset(out, 0, 30 * sizeof *out);
    for (int i = 0; i < 48; i++) {
        const int row = i / 16, at = (int)in[1][i / 2 % 8];
        out[(row * 5 + at) * 2 + i % 2] += in[0][i];
    }
}

/* ---- loss ---- */

enum { LOSS_ROWS = 6, CLASSES = 5, IGNORED = 2 };

static dtp_status run_loss(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_cross_entropy_options o = dtp_cross_entropy_options_init();
    o.weights = &in[2];
    o.smoothing = 0.3;
    o.ignore = true;
    o.ignored = IGNORED;
    return dtp_tensor_cross_entropy_with(in[0], in[1], &o, out, err);
}

static dtp_status run_loss_rows(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_cross_entropy_options o = dtp_cross_entropy_options_init();
    o.reduce = "none";
    o.smoothing = 0.3;
    return dtp_tensor_cross_entropy_with(in[0], in[1], &o, out, err);
}

static double row_loss(const double *x, int label, const double *weights)
{
    double lse = 0.0, spread = 0.0;
    for (int c = 0; c < CLASSES; c++) {
        lse += exp(x[c]);
    }
    lse = log(lse);
    for (int c = 0; c < CLASSES; c++) {
        spread += (weights == NULL ? 1.0 : weights[c]) * (lse - x[c]) / CLASSES;
    }
    return 0.7 * (weights == NULL ? 1.0 : weights[label]) * (lse - x[label]) + 0.3 * spread;
}

static void naive_loss(double *const *in, double *out)
{
    double sum = 0.0, total = 0.0;
    for (int r = 0; r < LOSS_ROWS; r++) {
        const int label = (int)in[1][r];
        if (label != IGNORED) {
            sum += row_loss(in[0] + r * CLASSES, label, in[2]);
            total += in[2][label];
        }
    }
    out[0] = sum / total;
}

static void naive_loss_rows(double *const *in, double *out)
{
    for (int r = 0; r < LOSS_ROWS; r++) {
        out[r] = row_loss(in[0] + r * CLASSES, (int)in[1][r], NULL);
    }
}

/* ---- attention ---- */

enum { HEADS = 2, LENGTH = 12, FEATURES = 3, VALUES = 2 };

static dtp_status attend(const char *context, const char *order, const dtp_tensor *in,
                         dtp_tensor *out, dtp_err *err)
{
    dtp_attention_options o = dtp_attention_options_init();
    o.scale = 0.75;
    o.context = context;
    o.order = order;
    o.chunks = 3;
    return dtp_tensor_attention_with(in[0], in[1], in[2], &o, out, err);
}

RUN(gather, attend("gather", "contiguous", in, out, err))
RUN(ring, attend("ring", "contiguous", in, out, err))
RUN(ring_zigzag, attend("ring", "zigzag", in, out, err))
RUN(gather_zigzag, attend("gather", "zigzag", in, out, err))
RUN(plain, attend(NULL, "contiguous", in, out, err))

/* The mask is over queries and keys. */
static dtp_status run_masked(const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_attention_options o = dtp_attention_options_init();
    o.scale = 0.75;
    o.causal = false;
    o.mask = &in[3];
    return dtp_tensor_attention_with(in[0], in[1], in[2], &o, out, err);
}

static int position_of(int place, bool zigzag)
{
    return zigzag ? RUN_AT[place / 2] * 2 + place % 2 : place;
}

/* One query of a head; seen: of each key. */
static void attend_row(const double *q, const double *k, const double *v, const double *seen,
                       double *out)
{
    double total = 0.0;
    memset(out, 0, VALUES * sizeof *out);
    for (int j = 0; j < LENGTH; j++) {
        double score = 0.0;
        for (int f = 0; f < FEATURES; f++) {
            score += 0.75 * q[f] * k[j * FEATURES + f];
        }
        const double p = seen[j] != 0.0 ? exp(score) : 0.0;
        total += p;
        for (int f = 0; f < VALUES; f++) {
            out[f] += p * v[j * VALUES + f];
        }
    }
    for (int f = 0; f < VALUES && total > 0.0; f++) {
        out[f] /= total;
    }
}

/* seen[query][key] */
static void attend_seen(double *const *in, const double *seen, double *out)
{
    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < LENGTH; i++) {
            const int row = h * LENGTH + i;
            attend_row(in[0] + row * FEATURES, in[1] + h * LENGTH * FEATURES,
                       in[2] + h * LENGTH * VALUES, seen + i * LENGTH, out + row * VALUES);
        }
    }
}

static void attend_naively(double *const *in, bool zigzag, double *out)
{
    double seen[LENGTH * LENGTH];
    for (int i = 0; i < LENGTH * LENGTH; i++) {
        seen[i] = position_of(i % LENGTH, zigzag) <= position_of(i / LENGTH, zigzag);
    }
    attend_seen(in, seen, out);
}

static void naive_masked(double *const *in, double *out)
{
    attend_seen(in, in[3], out);
}

static void naive_attention(double *const *in, double *out)
{
    attend_naively(in, false, out);
}

static void naive_zigzag(double *const *in, double *out)
{
    attend_naively(in, true, out);
}

/* ---- rows ---- */

#define QKV                                                                                        \
    3,                                                                                             \
    {                                                                                              \
        {.rank = 3, .shape = {HEADS, LENGTH, FEATURES}},                                           \
            {.rank = 3, .shape = {HEADS, LENGTH, FEATURES}},                                       \
        {                                                                                          \
            .rank = 3, .shape = { HEADS, LENGTH, VALUES }                                          \
        }                                                                                          \
    }
#define LOGITS                                                                                     \
    {                                                                                              \
        .rank = 2, .shape = { LOSS_ROWS, CLASSES }                                                 \
    }
#define LABELS                                                                                     \
    {                                                                                              \
        .rank = 1, .shape = {LOSS_ROWS}, .fill = EAGER_IDS, .below = CLASSES                       \
    }
#define MATRIX                                                                                     \
    1,                                                                                             \
    {                                                                                              \
        {                                                                                          \
            .rank = 2, .shape = { 5, 6 }                                                           \
        }                                                                                          \
    }
#define TRUTHS                                                                                     \
    {                                                                                              \
        .rank = 2, .shape = {5, 6}, .fill = EAGER_BOOL                                             \
    }
#define TRUTH_ROW                                                                                  \
    {                                                                                              \
        .rank = 1, .shape = {6}, .fill = EAGER_BOOL                                                \
    }

static const case_row ROWS[] = {
    {"logical_and", run_and, naive_and, 30, false, 2, {TRUTHS, TRUTH_ROW}},
    {"logical_or", run_or, naive_or, 30, false, 2, {TRUTHS, TRUTH_ROW}},
    {"logical_xor", run_xor, naive_xor, 30, false, 2, {TRUTHS, TRUTH_ROW}},
    {"logical_not", run_not, naive_not, 30, false, 1, {TRUTHS}},
    {"any", run_any, naive_any, 5, false, 1, {{.rank = 2, .shape = {5, 2}, .fill = EAGER_BOOL}}},
    {"all", run_all, naive_all, 1, false, 1, {{.rank = 1, .shape = {4}, .fill = EAGER_BOOL}}},
    {"leaky_relu", run_leaky_relu, naive_leaky_relu, 30, true, MATRIX},
    {"elu", run_elu, naive_elu, 30, true, MATRIX},
    {"reorder", run_reorder, naive_reorder, 24, true, 1, {{.rank = 2, .shape = {12, 2}}}},
    {"reorder back",
     run_reorder_back,
     naive_reorder_back,
     24,
     true,
     1,
     {{.rank = 2, .shape = {12, 2}}}},
    {"scatter_add",
     run_scatter_add,
     naive_scatter_add,
     30,
     true,
     2,
     {{.rank = 4, .shape = {3, 2, 4, 2}},
      {.rank = 2, .shape = {2, 4}, .fill = EAGER_IDS, .below = 5}}},
    {"loss, weighted and smoothed, a label ignored",
     run_loss,
     naive_loss,
     1,
     true,
     3,
     {LOGITS, LABELS, {.rank = 1, .shape = {CLASSES}, .fill = EAGER_POSITIVE}}},
    {"loss of rows, smoothed",
     run_loss_rows,
     naive_loss_rows,
     LOSS_ROWS,
     true,
     2,
     {LOGITS, LABELS}},
    {"attention, two sequences", run_plain, naive_attention, HEADS *LENGTH *VALUES, true, QKV},
    {"attention, masked",
     run_masked,
     naive_masked,
     HEADS *LENGTH *VALUES,
     true,
     4,
     {{.rank = 3, .shape = {HEADS, LENGTH, FEATURES}},
      {.rank = 3, .shape = {HEADS, LENGTH, FEATURES}},
      {.rank = 3, .shape = {HEADS, LENGTH, VALUES}},
      {.rank = 2, .shape = {LENGTH, LENGTH}, .fill = EAGER_BOOL}}},
    {"attention, gathered", run_gather, naive_attention, HEADS *LENGTH *VALUES, true, QKV},
    {"attention, ring", run_ring, naive_attention, HEADS *LENGTH *VALUES, true, QKV},
    {"attention, gathered, zigzag", run_gather_zigzag, naive_zigzag, HEADS *LENGTH *VALUES, true,
     QKV},
    {"attention, ring, zigzag", run_ring_zigzag, naive_zigzag, HEADS *LENGTH *VALUES, true, QKV},
};

static dtp_status note_gradients(eager *e, dtp_tape *tape, const case_row *row,
                                 const dtp_tensor *in, dtp_err *err)
{
    dtp_tensor sources[MAX_IN], grads[MAX_IN], y, square, loss;
    int32_t n = 0;
    for (int32_t i = 0; i < row->n_in; i++) {
        if (row->in[i].fill == EAGER_ANY) {
            DTP_TRY(dtp_tape_watch(tape, in[i], err));
            sources[n++] = in[i];
        }
    }
    DTP_TRY(row->run(in, &y, err));
    DTP_TRY(eager_note(e, y, err));
    DTP_TRY(dtp_tensor_square(y, &square, err));
    DTP_TRY(dtp_tensor_sum(square, 0, NULL, false, &loss, err));
    DTP_TRY(dtp_tape_gradient(tape, loss, n, sources, grads, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(eager_note(e, grads[i], err));
    }
    return DTP_OK;
}

static dtp_status body(eager *e, dtp_err *err)
{
    const case_row *row = e->user;
    dtp_tensor in[MAX_IN], y;
    dtp_tape *tape;
    for (int32_t i = 0; i < row->n_in; i++) {
        DTP_TRY(eager_input(e, &row->in[i], &in[i], err));
        DTP_TRY(eager_note(e, in[i], err));
    }
    if (!row->grad) {
        DTP_TRY(row->run(in, &y, err));
        return eager_note(e, y, err);
    }
    DTP_TRY(dtp_tape_create(e->mesh, &tape, err));
    dtp_status s = note_gradients(e, tape, row, in, err);
    dtp_tape_destroy(tape);
    return s;
}

static void check_naively(const case_row *row, uint64_t seed)
{
    const eager_options o = {.seed = seed, .user = row, .what = row->name};
    double want[MAX_OUT];
    eager e;
    eager_alone(body, &o, &e);
    const double *got = e.notes[row->n_in];
    row->naive(e.notes, want);
    assert_int_equal(e.n_values[row->n_in], row->n_out);
    for (int64_t i = 0; i < row->n_out; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-12 * fmax(1.0, fabs(want[i])))) {
            fail_msg("%s, seed %d: element %d is %.17g, expected %.17g", row->name, (int)seed,
                     (int)i, got[i], want[i]);
        }
    }
    eager_free(&e);
}

static void test_options__equal_naive_loops_and_one_device(void **unused)
{
    static const char *const meshes[] = {"x:2", "x:3", "x:2;y:2", "x:4"};
    (void)unused;
    for (size_t r = 0; r < sizeof ROWS / sizeof ROWS[0]; r++) {
        for (uint64_t seed = 1; seed <= 8; seed++) {
            const eager_options o = {
                .seed = seed, .torch = seed % 4 == 0, .user = &ROWS[r], .what = ROWS[r].name};
            check_naively(&ROWS[r], seed);
            eager_compare(meshes[seed % 4], body, &o, NULL);
        }
    }
}

/* ---- what is sent, what is refused ---- */

/* The sequences split as they lie: a ring of 3 passes keys and values on twice, `gather` gathers
 * them once. */
static dtp_status count(eager *e, dtp_err *err)
{
    const case_row *row = e->user;
    dtp_tensor in[MAX_IN], y;
    for (int32_t i = 0; i < row->n_in; i++) {
        eager_spec spec = row->in[i];
        spec.layout = "S1";
        DTP_TRY(eager_input(e, &spec, &in[i], err));
    }
    dtp_device_mesh_reset_counts(e->mesh);
    DTP_TRY(row->run(in, &y, err));
    eager_count(e, 0);
    return eager_note(e, y, err);
}

/* On ours and on PyTorch's kind of mesh, and where gathering q, k and v is cheaper as well. */
static void test_options__context_says_how_keys_travel(void **unused)
{
    const case_row ring = {"ring", run_ring, NULL, 0, false, QKV};
    const case_row gather = {"gather", run_gather, NULL, 0, false, QKV};
    (void)unused;
    for (int torch = 0; torch < 2; torch++) {
        const eager_options of_ring = {
            .seed = 5, .user = &ring, .what = "ring", .torch = torch == 1};
        const eager_options of_gather = {
            .seed = 5, .user = &gather, .what = "gather", .torch = torch == 1};
        eager e;
        if (eager_compare("x:3", count, &of_ring, &e)) {
            assert_int_equal(e.counts[0][DTP_PERMUTE], 2);
            assert_int_equal(e.counts[0][DTP_ALL_GATHER], 0);
        }
        if (eager_compare("x:3", count, &of_gather, &e)) {
            assert_int_equal(e.counts[0][DTP_PERMUTE], 0);
            assert_int_equal(e.counts[0][DTP_ALL_GATHER], 1);
        }
    }
}

static dtp_status expect(dtp_status got, dtp_status want, const char *text, dtp_err *err)
{
    if (got == want && strstr(err->msg, text) != NULL) {
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INTERNAL, "status %d, expected %d and '%s'", (int)got, (int)want,
                    text);
}

static dtp_status misuse(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    const int64_t shape[] = {LOSS_ROWS, CLASSES};
    dtp_cross_entropy_options loss = dtp_cross_entropy_options_init();
    dtp_attention_options attention = dtp_attention_options_init();
    dtp_tensor_desc dx, dy;
    dtp_tensor x, labels, y;
    dtp_err e = {0};
    (void)user;
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F64, 2, shape, "S0", &dx, err));
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_I32, 1, shape, "S0", &dy, err));
    DTP_TRY(dtp_tensor_ones(mesh, &dx, &x, err));
    DTP_TRY(dtp_tensor_zeros(mesh, &dy, &labels, err));

    loss.smoothing = 1.5;
    *err = e;
    DTP_TRY(expect(dtp_tensor_cross_entropy_with(x, labels, &loss, &y, err), DTP_RANGE, "smoothing",
                   err));
    loss.smoothing = 0.0;
    loss.reduce = "median";
    DTP_TRY(expect(dtp_tensor_cross_entropy_with(x, labels, &loss, &y, err), DTP_INVALID, "median",
                   err));
    loss = dtp_cross_entropy_options_init();
    loss.weights = &x;
    DTP_TRY(expect(dtp_tensor_cross_entropy_with(x, labels, &loss, &y, err), DTP_INVALID,
                   "operand 2", err));
    attention.context = "shout";
    DTP_TRY(
        expect(dtp_tensor_attention_with(x, x, x, &attention, &y, err), DTP_INVALID, "shout", err));
    attention.context = "ring";
    attention.order = "zigzag";
    attention.chunks = 2;
    DTP_TRY(expect(dtp_tensor_attention_with(x, x, x, &attention, &y, err), DTP_INVALID, "zigzag",
                   err));
    attention.mask = &x;
    DTP_TRY(expect(dtp_tensor_attention_with(x, x, x, &attention, &y, err), DTP_INVALID,
                   "a mask beside context 'ring'", err));
    attention = dtp_attention_options_init();
    attention.mask = &labels;
    DTP_TRY(expect(dtp_tensor_attention_with(x, x, x, &attention, &y, err), DTP_INVALID,
                   "the mask (operand 3) is i32", err));
    DTP_TRY(expect(dtp_tensor_reorder(x, 0, 2, false, &y, err), DTP_INVALID, "zigzag", err));
    DTP_TRY(expect(dtp_tensor_scatter_add(x, 0, labels, 0, &y, err), DTP_RANGE, "size", err));
    DTP_TRY(expect(dtp_tensor_scatter_add(x, 2, labels, 4, &y, err), DTP_INVALID, "axis 2", err));
    return expect(dtp_tensor_logical_and(x, x, &y, err), DTP_INVALID, "bool", err);
}

static void test_options__misuse_is_explained(void **unused)
{
    dtp_err err = {0};
    (void)unused;
    if (!dt_fits("x:2")) {
        skip();
    }
    if (dtp_world_run("x:2", NULL, misuse, NULL, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__equal_naive_loops_and_one_device),
        cmocka_unit_test(test_options__context_says_how_keys_travel),
        cmocka_unit_test(test_options__misuse_is_explained),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
