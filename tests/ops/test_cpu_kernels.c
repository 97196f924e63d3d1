/* CPU kernels against the reference backend (f64) on shapes that take each of their paths, and
 * against themselves with other numbers of threads (same bits). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/arena.h"
#include "core/base/philox.h"
#include "core/graph/ops/op_table.h"
#include "tests/ops/cpu_harness.h"
#include "dtp/device_mesh.h"
#include "executor/device/backend.h"

static void check_op(const char *op, const char *a, const char *b, const char *out)
{
    cpu_case c;
    cpu_case_start(&c, op);
    cpu_floats(&c, a);
    if (b != NULL) {
        cpu_floats(&c, b);
    }
    cpu_infer(&c, out);
    cpu_check(&c, 2e-6);
    cpu_case_free(&c);
}

static void test_binary__broadcasts_in_every_direction(void **state)
{
    (void)state;
    check_op("add", "a=300 b=200", "a=300 b=200", NULL);
    check_op("mul", "a=7 b=33", "b=33", NULL);
    check_op("sub", "a=7 b=33", "a=7", NULL);
    check_op("div", "b=33", "a=7 b=33", "a=7 b=33");
    check_op("max", "a=5 b=6 c=7", "c=7 a=5", NULL);
    check_op("min", "a=5 b=6", "c=9", "c=9 b=6 a=5");
    check_op("add", "a=5 b=6", "", NULL);
    check_op("mul", "", "a=40000", "a=40000");
    check_op("add", "a=0 b=6", "b=6", NULL);
    check_op("mod", "a=7 b=33", "b=33", NULL);
}

static void test_activations__match_reference(void **state)
{
    (void)state;
    static const char *const one[] = {"neg",  "exp",  "square", "tanh",     "sigmoid", "relu",
                                      "gelu", "silu", "erf",    "gelu_erf", "floor"};
    static const char *const grads[] = {"tanh_grad", "sigmoid_grad", "relu_grad",    "gelu_grad",
                                        "silu_grad", "erf_grad",     "gelu_erf_grad"};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        check_op(one[i], "a=37 b=1201", NULL, NULL);
        check_op(one[i], "a=3 b=5", NULL, "b=5 a=3");
    }
    for (size_t i = 0; i < sizeof grads / sizeof grads[0]; i++) {
        check_op(grads[i], "a=37 b=1201", "a=37 b=1201", NULL);
        check_op(grads[i], "a=3 b=5", "b=5 a=3", NULL);
    }
}

/* Outputs of an elementwise op on one list of values. */
static void run_values(const char *op, const float *x, int64_t n, float *y)
{
    cpu_case c;
    char dims[32];
    void *out[8];
    cpu_case_start(&c, op);
    snprintf(dims, sizeof dims, "a=%lld", (long long)n);
    cpu_floats(&c, dims);
    memcpy(c.data[0], x, (size_t)n * sizeof *x);
    cpu_infer(&c, NULL);
    cpu_run(&c, "cpu", 1, out);
    memcpy(y, out[0], (size_t)n * sizeof *y);
    cpu_release(&c, out);
    cpu_case_free(&c);
}

static double ulp_of(double v)
{
    int e;
    frexp(v, &e);
    return ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

static void check_accuracy(const char *op, double (*function)(double), double ulps)
{
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) {
        x[i] = -10.0f + 20.0f * (float)i / (float)N;
    }
    run_values(op, x, N, y);
    for (int i = 0; i < N; i++) {
        double want = function((double)x[i]);
        if (!(fabs((double)y[i] - want) <= ulps * ulp_of(want))) {
            fail_msg("%s(%.9g) = %.9g, expected %.9g", op, (double)x[i], (double)y[i], want);
        }
    }
    free(x);
    free(y);
}

static void test_exp_tanh__are_accurate_everywhere(void **state)
{
    (void)state;
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) {
        x[i] = -106.0f + 196.0f * (float)i / (float)N;
    }
    run_values("exp", x, N, y);
    for (int i = 0; i < N; i++) {
        double want = exp((double)x[i]);
        if (want < 3.4028235e38 && !(fabs((double)y[i] - want) <= 2.0 * ulp_of(want))) {
            fail_msg("exp(%.9g) = %.9g, expected %.9g", (double)x[i], (double)y[i], want);
        }
        if (want > 3.41e38) {
            assert_true(isinf(y[i]));
        }
    }
    free(x);
    free(y);
    check_accuracy("tanh", tanh, 3.0);
    check_accuracy("erf", erf, 2.0);
}

static void test_exp_tanh__keep_special_values(void **state)
{
    (void)state;
    const float x[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e30f, -1e30f};
    float y[7];
    run_values("exp", x, 7, y);
    assert_true(isinf(y[0]) && y[0] > 0.0f && isinf(y[5]));
    assert_true(y[1] == 0.0f && y[6] == 0.0f);
    assert_true(isnan(y[2]));
    assert_true(y[3] == 1.0f && y[4] == 1.0f);
    run_values("tanh", x, 7, y);
    assert_true(y[0] == 1.0f && y[1] == -1.0f && isnan(y[2]) && y[3] == 0.0f && y[5] == 1.0f);
    run_values("sigmoid", x, 7, y);
    assert_true(y[0] == 1.0f && y[1] == 0.0f && isnan(y[2]) && y[3] == 0.5f && y[6] == 0.0f);
    run_values("erf", x, 7, y);
    assert_true(y[0] == 1.0f && y[1] == -1.0f && isnan(y[2]) && y[3] == 0.0f && y[5] == 1.0f);
    run_values("relu", x, 7, y);
    assert_true(y[1] == 0.0f && isnan(y[2]));
}

static void check_reduce(const char *kind, const char *x, const char *over)
{
    cpu_case c;
    cpu_case_start(&c, "reduce");
    int64_t index = 0;
    const char *const *choices = c.call.op->attrs[0].choices;
    while (strcmp(choices[index], kind) != 0) {
        index++;
    }
    cpu_attr_int(&c, "kind", index);
    cpu_attr_dims(&c, "over", over);
    cpu_floats(&c, x);
    cpu_infer(&c, NULL);
    cpu_check(&c, 1e-6);
    cpu_case_free(&c);
}

static void test_reduce__every_position(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sum", "mean", "max", "min"};
    for (size_t i = 0; i < 4; i++) {
        check_reduce(kinds[i], "a=5 b=77", "b");
        check_reduce(kinds[i], "a=77 b=5", "a");
        check_reduce(kinds[i], "a=3 b=40 c=6", "b");
        check_reduce(kinds[i], "a=3 b=40 c=6", "a c");
        check_reduce(kinds[i], "a=3 b=40 c=6 d=3", "b d");
        check_reduce(kinds[i], "a=4000 b=3", "a");
        check_reduce(kinds[i], "a=300 b=700", "a");
        check_reduce(kinds[i], "a=300000", "a");
        check_reduce(kinds[i], "a=2 b=100000", "b");
    }
    check_reduce("sum", "a=0 b=4", "a");
}

static void check_einsum(const char *const *operands, const char *out)
{
    cpu_case c;
    cpu_case_start(&c, "einsum");
    for (int i = 0; operands[i] != NULL; i++) {
        cpu_floats(&c, operands[i]);
    }
    cpu_infer(&c, out);
    cpu_check(&c, 3e-6);
    cpu_case_free(&c);
}

static void test_einsum__matrix_products(void **state)
{
    (void)state;
    static const char *const mk_kn[] = {"m=130 k=70", "k=70 n=90", NULL};
    static const char *const km_nk[] = {"k=70 m=130", "n=90 k=70", NULL};
    static const char *const heads[] = {"b=3 l=17 d=24", "d=24 h=4 f=8", NULL};
    static const char *const back[] = {"b=3 l=17 h=4 f=8", "b=3 l=17 d=24", NULL};
    static const char *const batch[] = {"b=5 m=9 k=7", "b=5 k=7 n=11", NULL};
    static const char *const inner[] = {"m=9 b=5 k=7", "k=7 n=11 b=5", NULL};
    static const char *const matvec[] = {"m=300 k=200", "k=200", NULL};
    static const char *const vecmat[] = {"k=200", "m=300 k=200", NULL};
    static const char *const long_k[] = {"k=3000 m=3", "k=3000 n=5", NULL};
    check_einsum(mk_kn, "m=130 n=90");
    check_einsum(mk_kn, "n=90 m=130");
    check_einsum(km_nk, "m=130 n=90");
    check_einsum(heads, "b=3 l=17 h=4 f=8");
    check_einsum(heads, "b=3 h=4 l=17 f=8");
    check_einsum(back, "d=24 h=4 f=8");
    check_einsum(batch, "b=5 m=9 n=11");
    check_einsum(inner, "n=11 b=5 m=9");
    check_einsum(matvec, "m=300");
    check_einsum(vecmat, "m=300");
    check_einsum(long_k, "m=3 n=5");
}

static void test_einsum__loops_and_several_operands(void **state)
{
    (void)state;
    static const char *const dot[] = {"a=100000", "a=100000", NULL};
    static const char *const rows[] = {"a=50 b=60", "a=50 b=60", NULL};
    static const char *const outer[] = {"a=50", "b=60", NULL};
    static const char *const product[] = {"a=50 b=60", "b=60 a=50", NULL};
    static const char *const one[] = {"a=50 b=60 c=7", NULL};
    static const char *const big[] = {"a=300 b=257", NULL};
    static const char *const three[] = {"a=5 b=6", "b=6 c=7", "c=7 d=8", NULL};
    static const char *const sum_first[] = {"a=5 b=6 z=9", "b=6 c=7", NULL};
    check_einsum(dot, "");
    check_einsum(rows, "a=50");
    check_einsum(rows, "b=60");
    check_einsum(outer, "b=60 a=50");
    check_einsum(product, "a=50 b=60");
    check_einsum(one, "c=7 b=60 a=50");
    check_einsum(one, "b=60");
    check_einsum(one, "c=7 a=50");
    check_einsum(big, "b=257 a=300");
    check_einsum(three, "d=8 a=5");
    check_einsum(sum_first, "a=5 c=7");
}

static void check_row_op(const char *op, const char *over, const char *const *operands,
                         double tolerance)
{
    cpu_case c;
    cpu_case_start(&c, op);
    cpu_attr_dims(&c, "over", over);
    for (int i = 0; operands[i] != NULL; i++) {
        cpu_floats(&c, operands[i]);
    }
    cpu_infer(&c, NULL);
    cpu_check(&c, tolerance);
    cpu_case_free(&c);
}

static void test_softmax__any_position(void **state)
{
    (void)state;
    static const char *const x[] = {"a=40 b=50 c=30", NULL};
    static const char *const pair[] = {"a=40 b=50 c=30", "a=40 b=50 c=30", NULL};
    static const char *const overs[] = {"c", "b", "a", "b c", "a c"};
    for (size_t i = 0; i < sizeof overs / sizeof overs[0]; i++) {
        check_row_op("softmax", overs[i], x, 2e-6);
        check_row_op("log_softmax", overs[i], x, 2e-6);
        check_row_op("softmax_grad", overs[i], pair, 2e-6);
        check_row_op("log_softmax_grad", overs[i], pair, 4e-6);
        check_row_op("row_dot", overs[i], pair, 2e-6);
    }
}

static void test_norms__any_position(void **state)
{
    (void)state;
    static const char *const ln[] = {"a=40 b=50 c=30", "c=30", "c=30", NULL};
    static const char *const ln2[] = {"a=40 b=50 c=30", "b=50 c=30", "b=50 c=30", NULL};
    static const char *const ln_mid[] = {"a=40 b=50 c=30", "b=50", "b=50", NULL};
    static const char *const ln_split[] = {"a=40 b=50 c=30", "a=40 c=30", "a=40 c=30", NULL};
    static const char *const ln_long[] = {"a=5 c=3000", "c=3000", "c=3000", NULL};
    check_row_op("layer_norm", "c", ln, 3e-6);
    check_row_op("layer_norm", "b c", ln2, 3e-6);
    check_row_op("layer_norm", "b", ln_mid, 3e-6);
    check_row_op("layer_norm", "a c", ln_split, 3e-6);
    check_row_op("layer_norm", "c", ln_long, 3e-6);
    static const char *const rms[] = {"a=40 b=50 c=30", "c=30", NULL};
    static const char *const rms_mid[] = {"a=40 b=50 c=30", "b=50", NULL};
    check_row_op("rms_norm", "c", rms, 3e-6);
    check_row_op("rms_norm", "b", rms_mid, 3e-6);
    static const char *const grad[] = {"a=40 b=50 c=30", "c=30",           "a=40 b=50",
                                       "a=40 b=50",      "a=40 b=50 c=30", NULL};
    static const char *const grad_mid[] = {"a=40 b=50 c=30", "b=50",           "a=40 c=30",
                                           "a=40 c=30",      "a=40 b=50 c=30", NULL};
    static const char *const grad_wide[] = {"a=100 c=700", "c=700",       "a=100",
                                            "a=100",       "a=100 c=700", NULL};
    check_row_op("layer_norm_grad", "c", grad, 3e-6);
    check_row_op("layer_norm_grad", "b", grad_mid, 3e-6);
    check_row_op("layer_norm_grad", "c", grad_wide, 3e-6);
    check_row_op("layer_norm_grad_sums", "c", grad, 3e-6);
    static const char *const rms_grad[] = {"a=40 b=50 c=30", "c=30", "a=40 b=50", "a=40 b=50 c=30",
                                           NULL};
    check_row_op("rms_norm_grad", "c", rms_grad, 3e-6);
    static const char *const moments[] = {"a=40 b=50 c=30", "a=40", NULL};
    static const char *const squares[] = {"a=40 b=50 c=30", NULL};
    check_row_op("moments", "b c", moments, 3e-6);
    check_row_op("moments", "b c", squares, 3e-6);
}

static void check_cross_entropy(const char *op, const char *reduce, const char *logits,
                                const char *labels)
{
    cpu_case c;
    cpu_case_start(&c, op);
    bool grad = strcmp(op, "cross_entropy_grad") == 0;
    int64_t index = 0;
    const char *const *choices = c.call.op->attrs[1].choices;
    while (strcmp(choices[index], reduce) != 0) {
        index++;
    }
    cpu_attr_int(&c, "reduce", index);
    cpu_attr_dim(&c, "over", "v");
    cpu_floats(&c, logits);
    cpu_ints(&c, index == 0 ? DTP_I32 : DTP_I64, labels, 65);
    if (grad) {
        cpu_floats(&c, labels);
        for (int64_t i = 0, n = dtp_ttype_elems(&c.in[2]); i < n; i++) {
            ((float *)c.data[2])[i] = 4.2f;
        }
        cpu_floats(&c, strcmp(reduce, "none") == 0 ? labels : "");
    }
    cpu_infer(&c, NULL);
    cpu_check(&c, 3e-6);
    cpu_case_free(&c);
}

static void test_cross_entropy__every_reduction(void **state)
{
    (void)state;
    static const char *const reductions[] = {"mean", "sum", "none"};
    for (size_t i = 0; i < 3; i++) {
        check_cross_entropy("cross_entropy", reductions[i], "a=40 b=30 v=65", "a=40 b=30");
        check_cross_entropy("cross_entropy", reductions[i], "a=10 v=65 b=30", "b=30 a=10");
        check_cross_entropy("cross_entropy_grad", reductions[i], "a=40 b=30 v=65", "a=40 b=30");
    }
}

static void test_cross_entropy__rejects_labels(void **state)
{
    (void)state;
    cpu_case c;
    dtp_err err;
    void *out[8];
    cpu_case_start(&c, "cross_entropy");
    cpu_attr_dim(&c, "over", "v");
    cpu_floats(&c, "a=4 v=10");
    cpu_ints(&c, DTP_I64, "a=4", 10);
    ((int64_t *)c.data[1])[2] = 10;
    cpu_infer(&c, NULL);
    assert_int_equal(cpu_try(&c, "cpu", out, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "label 10 is not in [0, 10)"));
    cpu_release(&c, out);
    cpu_case_free(&c);
}

static void test_embedding__looks_up_and_scatters(void **state)
{
    (void)state;
    static const char *const tables[] = {"v=50 d=40", "d=40 v=50"};
    cpu_case c;
    for (size_t i = 0; i < 2; i++) {
        cpu_case_start(&c, "embedding");
        cpu_attr_dim(&c, "over", "v");
        cpu_floats(&c, tables[i]);
        cpu_ints(&c, DTP_I32, "b=30 l=40", 50);
        cpu_infer(&c, NULL);
        cpu_check(&c, 0.0);
        cpu_case_free(&c);
        cpu_case_start(&c, "embedding_grad");
        cpu_attr_dim(&c, "over", "v");
        cpu_attr_int(&c, "size", 50);
        cpu_ints(&c, DTP_I64, "b=30 l=40", 50);
        cpu_floats(&c, "b=30 l=40 d=40");
        cpu_infer(&c, i == 0 ? NULL : "d=40 v=50");
        cpu_check(&c, 2e-6);
        cpu_case_free(&c);
    }
}

static void test_rope__rotates(void **state)
{
    (void)state;
    static const char *const shapes[] = {"b=3 l=50 h=2 f=16", "f=16 l=50 b=3", "l=7 f=300"};
    for (size_t i = 0; i < 3; i++) {
        for (int64_t inverse = 0; inverse < 2; inverse++) {
            cpu_case c;
            cpu_case_start(&c, "rope");
            cpu_attr_dim(&c, "position", "l");
            cpu_attr_dim(&c, "feature", "f");
            cpu_attr_int(&c, "offset", 5);
            cpu_attr_float(&c, "base", 10000.0);
            cpu_attr_int(&c, "scaling", 0);
            cpu_attr_float(&c, "factor", 1.0);
            cpu_attr_float(&c, "low", 1.0);
            cpu_attr_float(&c, "high", 0.0);
            cpu_attr_int(&c, "original", 0);
            cpu_attr_float(&c, "amplitude", 1.0);
            cpu_attr_int(&c, "inverse", inverse);
            cpu_floats(&c, shapes[i]);
            cpu_infer(&c, NULL);
            cpu_check(&c, 1e-6);
            cpu_case_free(&c);
        }
    }
}

static void test_shape_ops__move_elements(void **state)
{
    (void)state;
    cpu_case c;
    for (int64_t at = 0; at < 3; at++) {
        const char *dim = at == 0 ? "a" : at == 1 ? "b" : "c";
        cpu_case_start(&c, "slice");
        cpu_attr_dim(&c, "dim", dim);
        cpu_attr_int(&c, "start", 2);
        cpu_attr_int(&c, "stop", 5);
        cpu_floats(&c, "a=6 b=7 c=8");
        cpu_infer(&c, NULL);
        cpu_check(&c, 0.0);
        cpu_case_free(&c);
        cpu_case_start(&c, "pad");
        cpu_attr_dim(&c, "dim", dim);
        cpu_attr_int(&c, "before", 2);
        cpu_attr_int(&c, "after", 1);
        cpu_floats(&c, at == 0 ? "a=1 b=7 c=8" : at == 1 ? "a=6 b=1 c=8" : "a=6 b=7 c=1");
        cpu_infer(&c, NULL);
        cpu_check(&c, 0.0);
        cpu_case_free(&c);
        cpu_case_start(&c, "concat");
        cpu_attr_dim(&c, "dim", dim);
        cpu_floats(&c, "a=6 b=7 c=8");
        cpu_floats(&c, at == 0 ? "a=1 b=7 c=8" : at == 1 ? "a=6 b=1 c=8" : "a=6 b=7 c=1");
        cpu_infer(&c, NULL);
        cpu_check(&c, 0.0);
        cpu_case_free(&c);
    }
    cpu_case_start(&c, "broadcast");
    cpu_floats(&c, "a=30 b=40");
    cpu_infer(&c, "b=40 z=50 a=30");
    cpu_check(&c, 0.0);
    cpu_case_free(&c);
}

/* A shard of a random tensor holds the values of its global indices. */
static void test_dropout__follows_global_indices(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 301, FIRST = 3, ALL_COLS = 701 };
    dtp_dims dims = {0};
    const dtp_op_def *op = dtp_op_find("dropout");
    dtp_attr attrs[] = {dtp_attr_float("rate", 0.3), dtp_attr_int("stream", 99)};
    float x[ROWS * COLS], y[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = 1.0f;
    }
    dtp_view v = {.local = {DTP_F32, 2, {{0, ROWS}, {1, COLS}}},
                  .global = {20, ALL_COLS},
                  .offset = {7, FIRST},
                  .data = x};
    dtp_view out = v;
    out.data = y;
    dtp_op_call call = {.op = op,
                        .dims = &dims,
                        .attrs = attrs,
                        .n_attrs = 2,
                        .n_in = 1,
                        .n_out = 1,
                        .in = &v.local,
                        .out = &out.local};
    const dtp_step_record record = dtp_step_record_init(UINT64_C(0x123456789abc), 4);
    const dtp_kernel_args args = {.call = &call, .in = &v, .out = &out, .record = &record};
    dtp_backend *b;
    dtp_bound_kernel kernel;
    dtp_arena *arena = dtp_arena_create();
    assert_int_equal(dtp_backend_create("cpu", CPU_TEAM, &b, NULL), DTP_OK);
    assert_int_equal(dtp_backend_bind(b, &args, arena, &kernel, NULL), DTP_OK);
    assert_int_equal(dtp_bound_kernel_run(&kernel, NULL), DTP_OK);
    dtp_arena_destroy(arena);
    dtp_backend_destroy(b);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            uint64_t at = (uint64_t)(7 + i) * ALL_COLS + (uint64_t)(FIRST + j);
            double u = dtp_uniform_at(record.seed, 99, 4, at);
            float want = u >= 0.3 ? 1.0f / 0.7f : 0.0f;
            assert_true(fabsf(y[i * COLS + j] - want) < 1e-6f);
        }
    }
}

static void test_random__equals_philox_bits(void **state)
{
    (void)state;
    static const char *const ops[] = {"uniform", "normal"};
    for (size_t k = 0; k < 2; k++) {
        cpu_case c;
        void *out[8];
        cpu_case_start(&c, ops[k]);
        cpu_attr_int(&c, "stream", 5);
        c.step = 3;
        cpu_infer(&c, "a=3 b=1001");
        cpu_run(&c, "cpu", CPU_TEAM, out);
        for (uint64_t i = 0; i < 3003; i++) {
            double want = k == 0 ? dtp_uniform_at(c.seed, 5, 3, i) : dtp_normal_at(c.seed, 5, 3, i);
            assert_true(((const float *)out[0])[i] == (float)want);
        }
        cpu_release(&c, out);
        cpu_case_free(&c);
    }
}

static void test_optimizers__match_reference(void **state)
{
    (void)state;
    static const char *const ops[] = {"sgd", "momentum", "adam", "adamw"};
    for (int at = 0; at < 12; at++) { /* without a factor, with one, and skipped though NaN */
        const int k = at % 4, kind = at / 4;
        cpu_case c;
        cpu_case_start(&c, ops[k]);
        int n = k == 0 ? 2 : k == 1 ? 3 : 4;
        cpu_attr_float(&c, "lr", 0.01);
        cpu_attr_float(&c, "weight_decay", 0.1);
        if (k == 1) {
            cpu_attr_float(&c, "momentum", 0.9);
        }
        if (k >= 2) {
            cpu_attr_float(&c, "beta1", 0.9);
            cpu_attr_float(&c, "beta2", 0.999);
            cpu_attr_float(&c, "eps", 1e-8);
        }
        for (int i = 0; i < n; i++) {
            cpu_floats(&c, "a=50 b=1001");
        }
        for (int i = 0; k >= 2 && i < 50 * 1001; i++) {
            ((float *)c.data[3])[i] = fabsf(((float *)c.data[3])[i]);
        }
        if (kind > 0) {
            cpu_floats(&c, "");
            ((float *)c.data[n])[0] = kind == 1 ? 0.25F : 0.0F;
            ((float *)c.data[1])[7] = kind == 1 ? ((float *)c.data[1])[7] : NAN;
        }
        c.step = 2;
        cpu_infer(&c, NULL);
        cpu_check(&c, kind == 2 ? 0.0 : 2e-6);
        cpu_case_free(&c);
    }
}

static void test_dtypes__others_are_refused(void **state)
{
    (void)state;
    cpu_case c;
    dtp_err err;
    void *out[8];
    cpu_case_start(&c, "add");
    cpu_floats(&c, "a=4");
    cpu_floats(&c, "a=4");
    cpu_infer(&c, NULL);
    c.in[1].dtype = DTP_F64;
    assert_int_equal(cpu_try(&c, "cpu", out, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "'add'"));
    assert_non_null(strstr(err.msg, "dtype f64, its kernels take f32, bf16, f16, i32, i64, bool"));
    cpu_release(&c, out);
    cpu_case_free(&c);
}

static void test_table__has_every_op(void **state)
{
    (void)state;
    dtp_backend *b;
    assert_int_equal(dtp_backend_create("cpu", 1, &b, NULL), DTP_OK);
    assert_true(dtp_op_count() > 50);
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        if (b->ops->kernel(b, dtp_op_at(i)->name, 0) == NULL) {
            fail_msg("no kernel for '%s'", dtp_op_at(i)->name);
        }
    }
    dtp_backend_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__has_every_op),
        cmocka_unit_test(test_binary__broadcasts_in_every_direction),
        cmocka_unit_test(test_activations__match_reference),
        cmocka_unit_test(test_exp_tanh__are_accurate_everywhere),
        cmocka_unit_test(test_exp_tanh__keep_special_values),
        cmocka_unit_test(test_reduce__every_position),
        cmocka_unit_test(test_einsum__matrix_products),
        cmocka_unit_test(test_einsum__loops_and_several_operands),
        cmocka_unit_test(test_softmax__any_position),
        cmocka_unit_test(test_norms__any_position),
        cmocka_unit_test(test_cross_entropy__every_reduction),
        cmocka_unit_test(test_cross_entropy__rejects_labels),
        cmocka_unit_test(test_embedding__looks_up_and_scatters),
        cmocka_unit_test(test_rope__rotates),
        cmocka_unit_test(test_shape_ops__move_elements),
        cmocka_unit_test(test_dropout__follows_global_indices),
        cmocka_unit_test(test_random__equals_philox_bits),
        cmocka_unit_test(test_optimizers__match_reference),
        cmocka_unit_test(test_dtypes__others_are_refused),
    };
    return cmocka_run_group_tests_name("cpu_kernels", tests, NULL, NULL);
}
