/* Cross-entropy with label smoothing, class weights and ignored labels: the values of PyTorch's
 * definition, and how often it communicates when classes, rows or both are split (rows N2, N3 and
 * N4 of PyTorch's counts): 3 all-reduces over the mesh dim of the classes forward, none backward.
 * Usage: test_loss_parallel [seed]
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

#include "core/graph/autodiff.h"
#include "core/graph/ops/op_table.h"
#include "executor/rule_verify/op_case.h"
#include "tests/support/context_case.h"
#include "tests/support/op_fixture.h"

enum { ROWS = 8, CLASSES = 16, MEAN = 0, SUM = 1, NONE = 2 };

static uint64_t seed = 20240517;

typedef struct loss_case {
    int32_t reduce;
    bool weights, ignores;
    double smoothing;
} loss_case;

static const loss_case CASES[] = {
    {MEAN, false, false, 0.0}, {SUM, false, false, 0.0}, {NONE, false, false, 0.0},
    {MEAN, true, false, 0.0},  {SUM, true, false, 0.1},  {NONE, true, true, 0.1},
    {MEAN, true, true, 0.2},   {MEAN, false, true, 0.0}, {MEAN, false, false, 0.3},
};

enum { N_CASES = sizeof CASES / sizeof CASES[0], IGNORED = 5 };

/* Inputs x, labels, perhaps weights; output: the loss or, with gradients of sum(loss), dx. */
static dtp_graph *loss_graph(const loss_case *c, bool gradients)
{
    dtp_graph *g = NULL;
    char attrs[128];
    dtp_tensor_id in[3], grad;
    assert_int_equal(dtp_graph_create("loss", dtp_builtin_ops(), &g, NULL), DTP_OK);
    in[0] = fx_tensor(g, "x", DTP_TENSOR_INPUT, "f64 r=8 c=16");
    in[1] = fx_tensor(g, "labels", DTP_TENSOR_INPUT, "i32 r=8");
    in[2] = c->weights ? fx_tensor(g, "weights", DTP_TENSOR_INPUT, "f64 c=16") : -1;
    int n = snprintf(attrs, sizeof attrs, "dim:over=c int:reduce=%d float:smoothing=%g", c->reduce,
                     c->smoothing);
    if (c->ignores) {
        (void)snprintf(attrs + n, sizeof attrs - (size_t)n, " int:ignore=%d", IGNORED);
    }
    dtp_tensor_id y =
        fx_add(g, "loss", (fx_node){"cross_entropy", attrs, NULL}, c->weights ? 3 : 2, in);
    if (!gradients) {
        assert_int_equal(dtp_graph_add_output(g, y, NULL), DTP_OK);
        return g;
    }
    if (c->reduce == NONE) {
        y = fx_add(g, "sum", (fx_node){"einsum", NULL, ""}, 1, &y);
    }
    assert_int_equal(dtp_autodiff(g, y, 1, in, &grad, NULL), DTP_OK);
    assert_int_equal(dtp_graph_add_output(g, grad, NULL), DTP_OK);
    return g;
}

/* ---- values ---- */

typedef struct inputs {
    double x[ROWS * CLASSES], labels[ROWS], weights[CLASSES];
} inputs;

static void fill(inputs *in)
{
    uint64_t state = seed;
    for (int32_t i = 0; i < ROWS * CLASSES; i++) {
        in->x[i] = 6.0 * dtp_case_uniform(&state) - 3.0;
    }
    for (int32_t i = 0; i < CLASSES; i++) {
        in->weights[i] = 0.5 + dtp_case_uniform(&state);
    }
    for (int32_t i = 0; i < ROWS; i++) {
        in->labels[i] = floor(CLASSES * dtp_case_uniform(&state));
    }
    in->labels[2] = IGNORED;
}

static double log_sum(const double *x)
{
    double s = 0.0;
    for (int32_t c = 0; c < CLASSES; c++) {
        s += exp(x[c]);
    }
    return log(s);
}

/* torch.nn.functional.cross_entropy: the target is (1 - e) onehot(y) + e / C, every class counts
 * with its weight, and the mean divides by the weights of the labels that are not ignored. */
static void torch_loss(const loss_case *c, const inputs *in, double loss[ROWS])
{
    double sum = 0.0, total = 0.0;
    for (int32_t r = 0; r < ROWS; r++) {
        const double *x = &in->x[r * CLASSES], lse = log_sum(x);
        const int32_t y = (int32_t)in->labels[r];
        loss[r] = 0.0;
        if (c->ignores && y == IGNORED) {
            continue;
        }
        for (int32_t k = 0; k < CLASSES; k++) {
            double target = (k == y ? 1.0 - c->smoothing : 0.0) + c->smoothing / CLASSES;
            loss[r] += (c->weights ? in->weights[k] : 1.0) * target * (lse - x[k]);
        }
        total += c->weights ? in->weights[y] : 1.0;
        sum += loss[r];
    }
    if (c->reduce != NONE) {
        loss[0] = c->reduce == MEAN ? sum / total : sum;
    }
}

static void check_values(const loss_case *c, const char *mesh, const char *rules)
{
    inputs in;
    double want[ROWS];
    context_values v = {.in = {in.x, in.labels, in.weights}, .want = {want}};
    fill(&in);
    torch_loss(c, &in, want);
    dtp_graph *g = loss_graph(c, false);
    dtp_program *p = context_lower(g, mesh, rules);
    double error = context_error(p, "ref", &v);
    if (!(error <= 1e-12)) {
        fail_msg("reduce %d, weights %d, ignore %d, smoothing %g on '%s': off by %g, seed %llu",
                 c->reduce, c->weights, c->ignores, c->smoothing, mesh, error,
                 (unsigned long long)seed);
    }
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
}

static void test_loss__is_that_of_pytorch(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        check_values(&CASES[i], "", "");
        check_values(&CASES[i], "x:4", "c:x");
        check_values(&CASES[i], "x:3", "c:x");
        check_values(&CASES[i], "x:4", "r:x");
        check_values(&CASES[i], "x:2;y:2", "r:x,c:y");
        check_values(&CASES[i], "x:2;y:3", "c:x,c:y");
    }
}

/* ---- counts ---- */

static int32_t count_over(const dtp_program *p, dtp_phase phase, dtp_mesh_set set)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const dtp_instr *in = &p->instrs[i];
        n += in->kind == DTP_INSTR_START && in->phase == phase && in->coll.set == set ? 1 : 0;
    }
    return n;
}

/* Collectives over the mesh dims of a set. */
typedef struct counts {
    int32_t forward, backward;
} counts;

static counts count(const loss_case *c, const char *mesh, const char *rules, dtp_mesh_set set)
{
    dtp_graph *g = loss_graph(c, true);
    dtp_program *p = context_lower(g, mesh, rules);
    counts n = {count_over(p, DTP_FORWARD, set), count_over(p, DTP_BACKWARD, set)};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        assert_true(p->instrs[i].kind != DTP_INSTR_START ||
                    p->instrs[i].coll.kind == DTP_ALL_REDUCE);
    }
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
    return n;
}

static bool weighted_mean(const loss_case *c)
{
    return c->reduce == MEAN && (c->weights || c->ignores);
}

/* Over the classes 3 and 0; over the rows only a weighted mean needs their total weight, once for
 * the loss and once for its gradient. The loss itself stays partial. */
static void test_loss__counts(void **state)
{
    (void)state;
    for (int32_t i = 0; i < N_CASES; i++) {
        const loss_case *c = &CASES[i];
        const int32_t extra = weighted_mean(c) ? 1 : 0;
        counts n = count(c, "x:4", "c:x", 1);
        assert_int_equal(n.forward, 3);
        assert_int_equal(n.backward, 0);
        n = count(c, "x:4", "r:x", 1);
        assert_int_equal(n.forward, extra);
        assert_int_equal(n.backward, extra);
        n = count(c, "x:2;y:2", "r:x,c:y", 2);
        assert_int_equal(n.forward, 3);
        assert_int_equal(n.backward, 0);
        n = count(c, "x:2;y:2", "r:x,c:y", 1);
        assert_int_equal(n.forward, extra);
        assert_int_equal(n.backward, extra);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss__is_that_of_pytorch),
        cmocka_unit_test(test_loss__counts),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    (void)printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
