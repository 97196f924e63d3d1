/* Collectives of single eager calls, forward and backward, against those that PyTorch's tests
 * assert (rows N of docs/compat-torch.md). With `torch` the counts are equal, unless the row has a
 * reason; without, never more. Values equal one device either way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op.h"
#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_rows.h"

#define FN(name, expr)                                                                             \
    static dtp_status name(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)          \
    {                                                                                              \
        (void)e;                                                                                   \
        return expr;                                                                               \
    }

/* ---- normalisation, loss, pointwise ---- */

/* The second piece along dim 0. */
static dtp_status unbind(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor pieces[4];
    DTP_TRY(dtp_tensor_unbind(x, 0, pieces, err));
    *out = pieces[1];
    return DTP_OK;
}

static dtp_status embed_whole(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_embedding(in[0], in[1], &y, err));
    return eager_to(e, y, "R", out, err);
}

FN(softmax0, dtp_tensor_softmax(in[0], 0, out, err))
FN(softmax1, dtp_tensor_softmax(in[0], 1, out, err))
FN(softmax2, dtp_tensor_softmax(in[0], 2, out, err))
FN(softmax_last, dtp_tensor_softmax(in[0], -1, out, err))
FN(layer_norm, dtp_tensor_layer_norm(in[0], in[1], in[2], 1e-5, out, err))
FN(rms_norm, dtp_tensor_rms_norm(in[0], in[1], 1e-6, out, err))
FN(add, dtp_tensor_add(in[0], in[1], out, err))
FN(twofold, dtp_tensor_scale(in[0], 2.0, out, err))
FN(mul, dtp_tensor_mul(in[0], in[1], out, err))
FN(embedding, dtp_tensor_embedding(in[0], in[1], out, err))
FN(unbound, unbind(in[0], out, err))
FN(slice8, dtp_tensor_slice(in[0], 1, 8, 16, out, err))
FN(roll1, dtp_tensor_roll(in[0], 1, 1, out, err))
FN(shift1, dtp_tensor_pad(in[0], 1, 1, -1, out, err))
FN(stack0, dtp_tensor_stack(2, in, 0, out, err))
FN(stack1, dtp_tensor_stack(2, in, 1, out, err))

FN(cumsum0, dtp_tensor_cumsum(in[0], 0, out, err))
FN(cumsum1, dtp_tensor_cumsum(in[0], 1, out, err))
FN(lse0, dtp_tensor_logsumexp(in[0], 1, (const int32_t[]){0}, out, err))
FN(lse1, dtp_tensor_logsumexp(in[0], 1, (const int32_t[]){1}, out, err))
FN(norm2, dtp_tensor_norm(in[0], "2", 0, NULL, out, err))

static dtp_status topk3(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor indices;
    (void)e;
    DTP_TRY(dtp_tensor_topk(in[0], 0, 3, out, &indices, err));
    dtp_tensor_destroy(indices);
    return DTP_OK;
}

/* N1: a negative dim counts from the last. */
static void test_counts__softmax(void **unused)
{
    (void)unused;
    static const eager_row_fn fns[] = {softmax0, softmax1, softmax2, softmax_last};
    for (int i = 0; i < 16; i++) {
        char in[32], place[4] = "R";
        const int dim = i / 4, shard = i % 4 - 1;
        const bool same = (dim == 3 ? 2 : dim) == shard;
        if (shard >= 0) {
            (void)snprintf(place, sizeof place, "S%d", shard);
        }
        (void)snprintf(in, sizeof in, "8,12,16 %s", place);
        const eager_row r = {.id = "N1",
                             .mesh = "x:4",
                             .fn = fns[dim],
                             .in = {in},
                             .out = same ? "R" : place,
                             .forward = {0, same ? 1 : 0}};
        eager_check_rows(&r, 1, EAGER_BOTH);
    }
}

/* ---- losses ---- */

/* Classes in the last dim, or in the second of three: logits (8,16), (8,16,12). */
static dtp_status cross_entropy(const dtp_tensor *in, const char *reduce, dtp_tensor *out,
                                dtp_err *err)
{
    dtp_tensor_desc d;
    DTP_TRY(dtp_tensor_describe(in[0], &d, err));
    const dtp_arg args[] = {{.key = "over", .kind = DTP_ARG_DIMS, .text = "c"},
                            {.key = "reduce", .kind = DTP_ARG_ENUM, .text = reduce}};
    const dtp_call call = {.op = "cross_entropy",
                           .dims = d.rank == 3 ? "bcd,bd" : "bc,b",
                           .n_in = 2,
                           .in = in,
                           .n_args = 2,
                           .args = args};
    dtp_tensor outs[DTP_MAX_OP_OUT]; /* the loss, and what its gradient reads */
    DTP_TRY(dtp_tensor_call(&call, outs, err));
    *out = outs[0];
    return DTP_OK;
}

FN(ce_mean, cross_entropy(in, "mean", out, err))
FN(ce_sum, cross_entropy(in, "sum", out, err))
FN(ce_none, cross_entropy(in, "none", out, err))

static const eager_row_fn LOSSES[] = {ce_mean, ce_sum, ce_none};

/* N2: split classes are gathered; split rows stay. */
static void test_counts__cross_entropy(void **unused)
{
    (void)unused;
    static const struct {
        const char *logits, *labels, *rows; /* layout of "none"; NULL: classes are split */
    } cases[] = {
        {"8,16 S1", "8 ids:16 R", NULL},        {"8,16,12 S1", "8,12 ids:16 R", NULL},
        {"8,16 S0", "8 ids:16 S0", "S0"},       {"8,16,12 S0", "8,12 ids:16 S0", "S0"},
        {"8,16,12 S2", "8,12 ids:16 S1", "S1"}, {"8,16 R", "8 ids:16 R", "R"},
    };
    for (size_t i = 0; i < 3 * sizeof cases / sizeof cases[0]; i++) {
        const char *rows = cases[i / 3].rows;
        const char *reduced = rows == NULL || strcmp(rows, "R") == 0 ? "R" : "P";
        const eager_row r = {.id = "N2",
                             .mesh = "x:4",
                             .fn = LOSSES[i % 3],
                             .in = {cases[i / 3].logits, cases[i / 3].labels},
                             .out = i % 3 == 2 && rows != NULL ? rows : reduced,
                             .forward = {0, rows == NULL ? 1 : 0}};
        eager_check_rows(&r, 1, EAGER_BOTH);
    }
}

/* The loss, whole over the mesh dim of the classes (the last one). */
static dtp_status parallel(eager *e, const dtp_tensor *in, const char *reduce, dtp_tensor *out,
                           dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(cross_entropy(in, reduce, &y, err));
    const bool rows = dtp_device_mesh_dims(e->mesh)->n_dims == 2;
    return eager_to(e, y, !rows ? "R" : strcmp(reduce, "none") == 0 ? "S0,R" : "P,R", out, err);
}

FN(lp_mean, parallel(e, in, "mean", out, err))
FN(lp_sum, parallel(e, in, "sum", out, err))
FN(lp_none, parallel(e, in, "none", out, err))

static const eager_row_fn PARALLEL[] = {lp_mean, lp_sum, lp_none};

/* N3, N4: PyTorch's loss_parallel, 3 all-reduces forward and none backward. Without `torch` a call
 * chooses between these and gathering the logits, which takes one collective and is cheaper for few
 * classes. */
static void test_counts__loss_parallel(void **unused)
{
    (void)unused;
    static const struct {
        eager_row row;
        const char *none;
        eager_counted counted;
    } cases[] = {
        {{.id = "N3", .mesh = "x:4", .in = {"8,16 S1!", "8 ids:16 R"}}, "R", EAGER_AT_MOST},
        {{.id = "N3 3-D", .mesh = "x:4", .in = {"8,16,12 S1!", "8,12 ids:16 R"}},
         "R",
         EAGER_AT_MOST},
        {{.id = "N3 many", .mesh = "x:4", .in = {"8,65536 S1!", "8 ids:65536 R"}, .out = "R"},
         "R",
         EAGER_OWN},
        {{.id = "N4", .mesh = "x:2;y:2", .in = {"8,16 S0,S1!", "8 ids:16 S0,R"}, .out = "P,R"},
         "S0,R",
         EAGER_AT_MOST},
        {{.id = "N4 many",
          .mesh = "x:2;y:2",
          .in = {"8,65536 S0,S1!", "8 ids:65536 S0,R"},
          .out = "P,R"},
         "S0,R",
         EAGER_OWN},
    };
    for (size_t i = 0; i < 3 * sizeof cases / sizeof cases[0]; i++) {
        if (cases[i / 3].counted == EAGER_OWN && i % 3 != 0) {
            continue; /* large: the mean is enough */
        }
        eager_row r = cases[i / 3].row;
        r.fn = PARALLEL[i % 3];
        r.out = i % 3 == 2 ? cases[i / 3].none : r.out;
        r.forward[DTP_ALL_REDUCE] = 3;
        eager_check_rows(&r, 1, cases[i / 3].counted);
    }
}

/* ---- N5: norms ---- */

static void check_norm(eager_row_fn fn, int first, int shard)
{
    static const char *const gammas[] = {"20,5,10", "5,10", "10"};
    const bool outer = shard < first;
    char x[32], gamma[32], place[4];
    (void)snprintf(place, sizeof place, "S%d", shard);
    (void)snprintf(x, sizeof x, "20,5,10 %s!", place);
    (void)snprintf(gamma, sizeof gamma, "%s R%c", gammas[first], outer ? '+' : '!');
    const eager_row r = {.id = "N5",
                         .mesh = "x:4",
                         .fn = fn,
                         .in = {x, gamma, fn == layer_norm ? gamma : NULL},
                         .out = outer ? place : "R",
                         .forward = {0, outer ? 0 : 1},
                         .backward = {0, outer ? 0 : 1}};
    eager_check_rows(&r, 1, EAGER_BOTH);
}

static void test_counts__norms(void **unused)
{
    (void)unused;
    for (int i = 0; i < 9; i++) {
        check_norm(layer_norm, i / 3, i % 3);
        check_norm(rms_norm, i / 3, i % 3);
    }
}

/* ---- N6 to N24 ---- */

static void test_counts__pointwise_and_indexing(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"N7 cumsum 0", "x:4", cumsum0, {"3,5 S0"}, "R", {0, 1}, {0}, NULL},
        {"N7 cumsum 1", "x:4", cumsum1, {"3,5 S0!"}, "S0", {0}, {0}, NULL},
        {"N7 logsumexp 0", "x:4", lse0, {"3,5 S0"}, "R", {0, 1}, {0}, NULL},
        {"N7 logsumexp 1", "x:4", lse1, {"3,5 S0!"}, "S0", {0}, {0}, NULL},
        {"N8", "x:4", topk3, {"12,8,8 S0"}, "R", {0, 1}, {0}, NULL},
        {"N12", "x:4", norm2, {"2 P"}, "R", {1}, {0}, NULL},
        {"N13", "x:4", twofold, {"3,4 P!"}, "P", {0}, {0}, NULL},
        {"N14 sum", "x:4", add, {"2,2 P", "2,1 R"}, "P", {0}, {0}, NULL},
        {"N14 avg", "x:4", add, {"2,2 P(avg)", "2,1 R"}, "P(avg)", {0}, {0}, NULL},
        {"N15", "x:4", mul, {"2,2 P", "2,2 P"}, "P", {1}, {0}, NULL},
        {"N16", "x:4", mul, {"2,2 P(max)", "2,2 R"}, "R", {1}, {0}, NULL},
        {"N19", "x:4", embedding, {"17,12 S1!", "5,4 ids:17 R"}, "S2", {0}, {0}, NULL},
        {"N19 3-D", "x:4", embedding, {"21,11 S1!", "6,7,6 ids:21 R"}, "S3", {0}, {0}, NULL},
        {"N20", "x:4", embedding, {"16,22 S0!", "5,12 ids:16 R"}, "P", {0}, {0}, NULL},
        {"N20 whole", "x:4", embed_whole, {"16,22 S0!", "5,12 ids:16 R"}, "R", {1}, {0}, NULL},
        {"N20 3-D", "x:4", embed_whole, {"13,22 S0!", "6,7,6 ids:13 R"}, "R", {1}, {0}, NULL},
        {"N20 1-D", "x:4", embed_whole, {"15,14 S0!", "34 ids:15 R"}, "R", {1}, {0}, NULL},
        {"N23", "x:4", unbound, {"4,8 S1!"}, "S0", {0}, {0}, NULL},
        {"N24 dim 0", "x:4", stack0, {"8,8 S1!", "8,8 S1!"}, "S2", {0}, {0}, NULL},
        {"N24 dim 1", "x:4", stack1, {"8,8 S1!", "8,8 S1!"}, "S2", {0}, {0}, NULL},
    };
    eager_check_rows(rows, sizeof rows / sizeof rows[0], EAGER_BOTH);
}

/* Of a dim along which elements move PyTorch gathers all, we send the margins: here what lies one
 * and two ranks behind. */
static void test_counts__elements_move_by_permutes(void **unused)
{
    (void)unused;
    static const char *const why =
        "PyTorch has 1 backward; the gradient of a whole output is whole already";
    const eager_row torch = {"N22", "x:4", slice8, {"8,16 S1!"}, "R", {0, 1}, {0}, why};
    static const eager_row own[] = {
        {"N22", "x:4", slice8, {"8,16 S1!"}, "S1", {0, 0, 0, 0, 2}, {0, 0, 0, 0, 2}, NULL},
        {"roll", "x:4", roll1, {"8,16 S1!"}, "S1", {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}, NULL},
        {"pad", "x:4", shift1, {"8,16 S1!"}, "S1", {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}, NULL},
    };
    eager_check_rows(&torch, 1, EAGER_TORCH);
    eager_check_rows(own, sizeof own / sizeof own[0], EAGER_OWN);
}

/* What is large moves in the lightest way, also when that takes more collectives. */
static void test_counts__large_operands_move_to_another_split(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"cumsum, 256 KB", "x:4", cumsum0, {"32,1024 S0!"}, "R", {0, 1}, {0}, NULL},
        {"cumsum, 1 MB", "x:4", cumsum0, {"128,1024 S0!"}, "S1", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
        {"layer_norm",
         "x:4",
         layer_norm,
         {"256,1024 S1!", "1024 R", "1024 R"},
         "S1",
         {2},
         {1},
         NULL},
    };
    eager_check_rows(rows, sizeof rows / sizeof rows[0], EAGER_OWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts__softmax),
        cmocka_unit_test(test_counts__cross_entropy),
        cmocka_unit_test(test_counts__loss_parallel),
        cmocka_unit_test(test_counts__norms),
        cmocka_unit_test(test_counts__pointwise_and_indexing),
        cmocka_unit_test(test_counts__elements_move_by_permutes),
        cmocka_unit_test(test_counts__large_operands_move_to_another_split),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
