/* Collectives of eager code, forward and backward, against those that PyTorch's tests assert for
 * the same operation (rows R, M and T of docs/compat-torch.md). With `torch` the counts are equal,
 * unless the row has a reason; without, never more. Values equal one device either way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/dtensor/dtensor_suite.h"
#include "tests/dtensor/eager_rows.h"

#define FN(name, expr)                                                                             \
    static dtp_status name(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)          \
    {                                                                                              \
        (void)e;                                                                                   \
        return expr;                                                                               \
    }

/* ---- redistribution ---- */

FN(to_r, eager_to(e, in[0], "R", out, err))
FN(to_s0, eager_to(e, in[0], "S0", out, err))
FN(to_s1, eager_to(e, in[0], "S1", out, err))
FN(to_p, eager_to(e, in[0], "P", out, err))
FN(to_last, eager_to(e, in[0], "S(-1)", out, err))

static void test_counts__redistribute(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"R1 12", "x:4", to_r, {"12,3 S0!"}, "R", {0, 1}, {0}, NULL},
        {"R1 13", "x:4", to_r, {"13,3 S0!"}, "R", {0, 1}, {0}, NULL},
        {"R1 14", "x:4", to_r, {"14,3 S0!"}, "R", {0, 1}, {0}, NULL},
        {"R1 d1 12", "x:4", to_r, {"3,12 S1!"}, "R", {0, 1}, {0}, NULL},
        {"R1 d1 13", "x:4", to_r, {"3,13 S1!"}, "R", {0, 1}, {0}, NULL},
        {"R1 d1 14", "x:4", to_r, {"3,14 S1!"}, "R", {0, 1}, {0}, NULL},
        {"R2", "x:4", to_r, {"12,3 R!"}, "R", {0}, {0}, NULL},
        {"R3", "x:4", to_s0, {"12,3 R!"}, "S0", {0}, {0, 1}, NULL},
        {"R3 13", "x:4", to_s0, {"13,3 R!"}, "S0", {0}, {0, 1}, NULL},
        {"R3 d1", "x:4", to_s1, {"3,14 R!"}, "S1", {0}, {0, 1}, NULL},
        {"R4", "x:4", to_r, {"12,3 P!"}, "R", {1}, {0}, NULL},
        {"R5", "x:4", to_s0, {"12,3 P!"}, "S0", {0, 0, 1}, {0, 1}, NULL},
        {"R5 13", "x:4", to_s0, {"13,3 P!"}, "S0", {0, 0, 1}, {0, 1}, NULL},
        {"R5 d1", "x:4", to_s1, {"3,14 P!"}, "S1", {0, 0, 1}, {0, 1}, NULL},
        {"R6", "x:4", to_p, {"12,3 P!"}, "P", {0}, {0}, NULL},
        {"R13", "x:4", to_r, {"2,8 S0!"}, "R", {0, 1}, {0}, NULL},
        {"R13 S1", "x:4", to_s1, {"2,8 S0!"}, "S1", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
        {"R18", "x:4", to_last, {"12,3 R!"}, "S1", {0}, {0, 1}, NULL},
        {"R9 8", "x:4", to_s1, {"8,8 S0!"}, "S1", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
        {"R9 8,5", "x:4", to_s1, {"8,5 S0!"}, "S1", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
        {"R9 5,5", "x:4", to_s0, {"5,5 S1!"}, "S0", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
        {"R9 8,8,8", "x:4", to_s1, {"8,8,8 S0!"}, "S1", {0, 0, 0, 1}, {0, 0, 0, 1}, NULL},
    };
    eager_check_rows(rows, sizeof rows / sizeof rows[0], EAGER_BOTH);
}

/* ---- matmul ---- */

FN(mm, dtp_tensor_matmul(in[0], in[1], out, err))
FN(linear, dtp_tensor_linear(in[0], in[1], NULL, out, err))
FN(transpose, dtp_tensor_transpose(in[0], 0, -1, out, err))
FN(sdpa, dtp_tensor_attention(in[0], in[1], in[2], true, 0.0, out, err))

static dtp_status twice(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    (void)e;
    DTP_TRY(dtp_tensor_transpose(in[0], 0, 1, &y, err));
    return dtp_tensor_transpose(y, 0, 1, out, err);
}

/* mm(a, b) + bias */
static dtp_status addmm(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor product;
    (void)e;
    DTP_TRY(dtp_tensor_matmul(in[0], in[1], &product, err));
    return dtp_tensor_add(product, in[2], out, err);
}

static void test_counts__matmul(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"M1 S0 R", "x:4", mm, {"6,8 S0", "8,12 R"}, "S0", {0}, {0}, NULL},
        {"M1 R S1", "x:4", mm, {"6,8 R", "8,12 S1"}, "S1", {0}, {0}, NULL},
        {"M1 S1 S0", "x:4", mm, {"6,8 S1", "8,12 S0"}, "P", {0}, {0}, NULL},
        {"M1 R R", "x:4", mm, {"6,8 R", "8,12 R"}, "R", {0}, {0}, NULL},
        {"M2 S0 S0", "x:4", mm, {"8,6,8 S0", "8,8,12 S0"}, "S0", {0}, {0}, NULL},
        {"M2 S1 R", "x:4", mm, {"8,6,8 S1", "8,8,12 R"}, "S1", {0}, {0}, NULL},
        {"M2 R S2", "x:4", mm, {"8,6,8 R", "8,8,12 S2"}, "S2", {0}, {0}, NULL},
        {"M2 S2 S1", "x:4", mm, {"8,6,8 S2", "8,8,12 S1"}, "P", {0}, {0}, NULL},
        {"M2 R R", "x:4", mm, {"8,6,8 R", "8,8,12 R"}, "R", {0}, {0}, NULL},
        {"M4", "x:2", mm, {"8,8 S0", "8,32 S0"}, NULL, {0, 1}, {0}, NULL},
        {"M6", "x:2;y:2", mm, {"4,6 P,R", "6,8 R,P"}, "P,P", {0}, {0}, NULL},
        {"M8", "x:4", linear, {"1,47,64 R", "64,64 S0"}, "S2", {0}, {0}, NULL},
        {"M9 S0", "x:4", transpose, {"12,8 S0!"}, "S1", {0}, {0}, NULL},
        {"M9 P", "x:4", transpose, {"12,8 P"}, "P", {0}, {0}, NULL},
        {"M9 twice", "x:4", twice, {"12,8 S0!"}, "S0", {0}, {0}, NULL},
        {"M9 1-D", "x:4", transpose, {"12 S0!"}, "S0", {0}, {0}, NULL},
        {"M10", "x:4", mm, {"3,4 S0", "4,4 R"}, "R", {0, 1}, {0}, NULL},
        {"M11 R", "x:4", sdpa, {"4,8,8,8 R!", "4,8,8,8 R!", "4,8,8,8 R!"}, "R", {0}, {0}, NULL},
        {"M11 S0",
         "x:4",
         sdpa,
         {"4,8,8,8 S0!", "4,8,8,8 S0!", "4,8,8,8 S0!"},
         "S0",
         {0},
         {0},
         NULL},
        {"M11 S1",
         "x:4",
         sdpa,
         {"4,8,8,8 S1!", "4,8,8,8 S1!", "4,8,8,8 S1!"},
         "S1",
         {0},
         {0},
         NULL},
        {"M14", "x:2;y:2", mm, {"4,4,6 S0,S1", "6,1 R,R"}, "S0,S1", {0}, {0}, NULL},
    };
    eager_check_rows(rows, sizeof rows / sizeof rows[0], EAGER_BOTH);
}

/* M7: the bias follows the output through broadcasting. */
static void test_counts__addmm(void **unused)
{
    (void)unused;
    static const char *const operands[][3] = {
        {"12,8 S0", "8,4 R", "S0"}, {"12,8 R", "8,4 S1", "S1"}, {"12,8 S1", "8,4 S0", "P"}};
    static const char *const biases[][3] = {{"4 R", "4 S0", "4 R"},
                                            {"12,4 S0", "12,4 S1", "12,4 R"},
                                            {" R", " R", " R"},
                                            {"1,4 R", "1,4 S1", "1,4 R"},
                                            {"12,1 S0", "12,1 R", "12,1 R"}};
    for (int i = 0; i < 15; i++) {
        const char *const *o = operands[i % 3];
        const eager_row r = {.id = "M7",
                             .mesh = "x:4",
                             .fn = addmm,
                             .in = {o[0], o[1], biases[i / 3][i % 3]},
                             .out = o[2]};
        eager_check_rows(&r, 1, EAGER_BOTH);
    }
}

/* M3: all pairs of placements, values and gradients. */
static void test_counts__all_pairs_of_a_matmul(void **unused)
{
    (void)unused;
    static const char *const places[] = {"S0", "S1", "R"};
    for (int i = 0; i < 9; i++) {
        char a[32], b[32];
        (void)snprintf(a, sizeof a, "12,8 %s!", places[i / 3]);
        (void)snprintf(b, sizeof b, "8,16 %s!", places[i % 3]);
        const eager_row r = {.id = "M3", .mesh = "x:4", .fn = mm, .in = {a, b}};
        eager_check_rows(&r, 1, EAGER_COMPARED);
    }
}

/* ---- parallel modules ---- */

FN(embedding, dtp_tensor_embedding(in[0], in[1], out, err))
FN(colwise, dtp_tensor_linear(in[0], in[1], &in[2], out, err))

static dtp_status colwise_s0(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor x;
    DTP_TRY(eager_to(e, in[0], "R", &x, err));
    return dtp_tensor_linear(x, in[1], &in[2], out, err);
}

static dtp_status then(eager *e, dtp_tensor y, const char *layout, dtp_tensor *out, dtp_err *err)
{
    dtp_status s = eager_to(e, y, layout, out, err);
    dtp_tensor_destroy(y);
    return s;
}

static dtp_status rowwise(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_linear(in[0], in[1], &in[2], &y, err));
    return then(e, y, "R", out, err);
}

static dtp_status rowwise_s0(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_linear(in[0], in[1], &in[2], &y, err));
    return then(e, y, "S0", out, err);
}

static dtp_status embed_r(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_embedding(in[0], in[1], &y, err));
    return then(e, y, "R", out, err);
}

static dtp_status embed_s1(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor y;
    DTP_TRY(dtp_tensor_embedding(in[0], in[1], &y, err));
    return then(e, y, "S1", out, err);
}

/* relu(x w1' + b1) w2', x whole or in rows, the result as `layout`. */
static dtp_status mlp(eager *e, const dtp_tensor *in, const char *layout, dtp_tensor *out,
                      dtp_err *err)
{
    dtp_tensor x, h, a, y;
    DTP_TRY(eager_to(e, in[0], "R", &x, err));
    DTP_TRY(dtp_tensor_linear(x, in[1], &in[2], &h, err));
    DTP_TRY(dtp_tensor_relu(h, &a, err));
    DTP_TRY(dtp_tensor_linear(a, in[3], NULL, &y, err));
    return then(e, y, layout, out, err);
}

FN(mlp_r, mlp(e, in, "R", out, err))
FN(mlp_s0, mlp(e, in, "S0", out, err))

/* Embedding and output layer share the table. */
static dtp_status tied(eager *e, const dtp_tensor *in, dtp_tensor *out, dtp_err *err)
{
    dtp_tensor x;
    (void)e;
    DTP_TRY(dtp_tensor_embedding(in[0], in[1], &x, err));
    return dtp_tensor_linear(x, in[0], NULL, out, err);
}

static void test_counts__parallel_modules(void **unused)
{
    (void)unused;
    static const eager_row rows[] = {
        {"T1", "x:4", colwise, {"8,16 R!", "16,16 S0!", "16 S0!"}, "S1", {0}, {1}, NULL},
        {"T2",
         "x:4",
         colwise_s0,
         {"32,16 S0!", "16,16 S0!", "16 S0!"},
         "S1",
         {0, 1},
         {0, 0, 1},
         NULL},
        {"T3", "x:4", rowwise, {"8,16 S1!", "16,16 S1!", "16 R!"}, "R", {1}, {0}, NULL},
        {"T3 S0",
         "x:4",
         rowwise_s0,
         {"8,16 S1!", "16,16 S1!", "16 R"},
         "S0",
         {0, 0, 1},
         {0, 1},
         NULL},
        {"T4 columns", "x:4", embedding, {"16,16 S1!", "8 ids:16 R"}, "S1", {0}, {0}, NULL},
        {"T4 rows", "x:4", embed_r, {"16,16 S0!", "8 ids:16 R"}, "R", {1}, {0}, NULL},
        {"T4 rows, S1",
         "x:4",
         embed_s1,
         {"16,16 S0!", "8 ids:16 R"},
         "S1",
         {0, 0, 1},
         {0, 1},
         NULL},
        {"T6", "x:2", mlp_r, {"8,10 R", "16,10 S0!", "16 S0!", "10,16 S1!"}, "R", {1}, {0}, NULL},
        {"T7",
         "x:2",
         mlp_s0,
         {"8,10 S0", "16,10 S0!", "16 S0!", "10,16 S1!"},
         "S0",
         {0, 1, 1},
         {0, 1},
         NULL},
    };
    eager_check_rows(rows, sizeof rows / sizeof rows[0], EAGER_BOTH);
}

/* T16: a table that is embedding and output layer gets one gradient. */
static void test_counts__tied_weights(void **unused)
{
    (void)unused;
    static const eager_row r = {
        .id = "T16", .mesh = "x:2", .fn = tied, .in = {"16,8 S1!", "8 ids:16 R"}};
    eager_check_rows(&r, 1, EAGER_COMPARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts__redistribute),
        cmocka_unit_test(test_counts__matmul),
        cmocka_unit_test(test_counts__addmm),
        cmocka_unit_test(test_counts__all_pairs_of_a_matmul),
        cmocka_unit_test(test_counts__parallel_modules),
        cmocka_unit_test(test_counts__tied_weights),
    };
    return cmocka_run_group_tests(tests, dt_begin, dt_end);
}
