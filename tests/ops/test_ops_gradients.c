/* Analytic gradients against central finite differences, both on the reference backend in f64.
 *
 * loss = sum w y with random w. The five-point stencil
 *   f'(x) = (f(x-2h) - 8 f(x-h) + 8 f(x+h) - f(x+2h)) / 12h,  h = 1e-3
 * has an error of order h^4 f^(5) / 30, far under the bound for these inputs.
 * Usage: test_gradients [seed]
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
#include "tests/ops/eval.h"
#include "tests/ops/cases.h"
#include "tests/support/graph_check.h"
#include "executor/ref/ref.h"

static uint64_t seed = 20240517;
static const double STEP = 1e-3, BOUND = 1e-6;
/* Gradients below this count as this large. */
static const double FLOOR = 1e-2;

/* Appends loss = sum of w * (output 0 of the case); `weights` gets the id of w. */
static dtp_tensor_id append_loss(dtp_case_graph *cg, dtp_tensor_id *weights)
{
    dtp_graph *g = cg->g;
    dtp_tensor_id y = g->nodes[cg->node].out[0], loss = -1;
    dtp_graph_tensor w = {.name = "w", .kind = DTP_TENSOR_INPUT, .type = g->tensors[y].type};
    assert_int_equal(dtp_graph_add_tensor(g, &w, weights, NULL), DTP_OK);
    const dtp_tensor_id in[] = {y, *weights};
    dtp_node_spec spec = dtp_node_spec_init("loss", "einsum");
    spec.n_in = 2;
    spec.in = in;
    spec.out = &(dtp_ttype){.rank = 0};
    assert_int_equal(dtp_graph_add_node(g, &spec, &loss, NULL), DTP_OK);
    return loss;
}

static double loss_at(eval *e, const dtp_case_graph *cg, int32_t operand, int64_t index, double x)
{
    int64_t n = dtp_ttype_elems(&e->g->tensors[operand].type);
    double *values = calloc((size_t)n, sizeof *values);
    assert_non_null(values);
    memcpy(values, cg->values[operand], (size_t)n * sizeof *values);
    values[index] = x;
    eval_set(e, operand, values);
    eval_run(e);
    eval_set(e, operand, cg->values[operand]);
    free(values);
    return eval_get(e, e->g->loss, 0);
}

static double difference(eval *e, const dtp_case_graph *cg, int32_t operand, int64_t i)
{
    double x = cg->values[operand][i];
    double far =
        loss_at(e, cg, operand, i, x - 2 * STEP) - loss_at(e, cg, operand, i, x + 2 * STEP);
    double near = loss_at(e, cg, operand, i, x + STEP) - loss_at(e, cg, operand, i, x - STEP);
    return (far + 8.0 * near) / (12.0 * STEP);
}

static void fill_eval(eval *e, const dtp_case_graph *cg, dtp_tensor_id weights)
{
    uint64_t state = seed ^ 0x5eed;
    double w[4096];
    int64_t n = dtp_ttype_elems(&e->g->tensors[weights].type);
    assert_in_range(n, 1, 4096);
    for (int64_t i = 0; i < n; i++) {
        w[i] = 2.0 * dtp_case_uniform(&state) - 1.0;
    }
    eval_set(e, weights, w);
    for (int32_t i = 0; i < cg->n_in; i++) {
        eval_set(e, i, cg->values[i]);
    }
}

/* Compares the gradient of one operand; `analytic` is -1 when the loss does not depend on it. */
static double compare_operand(const dtp_op_case *c, const dtp_case_graph *cg, eval *forward,
                              const eval *backward, int32_t operand, dtp_tensor_id analytic)
{
    int64_t n = dtp_ttype_elems(&cg->g->tensors[operand].type);
    double largest = FLOOR, worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double numeric = difference(forward, cg, operand, i);
        double exact = analytic < 0 ? 0.0 : eval_get(backward, analytic, i);
        double miss = fabs(numeric - exact);
        largest = fmax(largest, fabs(numeric));
        worst = miss >= worst || isnan(miss) ? miss : worst;
    }
    if (!(worst / largest <= BOUND)) {
        fail_msg("'%s' (%s): gradient of operand %d is off by %g relative, seed %llu", c->op,
                 c->attrs == NULL ? "" : c->attrs, operand, worst / largest,
                 (unsigned long long)seed);
    }
    return worst / largest;
}

/* Checks the gradients of all float operands of one case. */
static double check_case(const dtp_op_case *c, dtp_backend *ref)
{
    dtp_case_graph forward_graph, graph;
    dtp_tensor_id weights = -1, also[DTP_OP_CASE_MAX_IN], grads[DTP_OP_CASE_MAX_IN];
    int32_t n_also = 0;
    double worst = 0.0;
    dtp_err err;
    eval forward, backward;
    case_build(c, DTP_F64, seed, &forward_graph);
    case_build(c, DTP_F64, seed, &graph);
    forward_graph.g->loss = append_loss(&forward_graph, &weights);
    graph.g->loss = append_loss(&graph, &weights);
    for (int32_t i = 0; i < graph.n_in; i++) {
        if (graph.is_float[i]) {
            also[n_also++] = i;
        }
    }
    if (dtp_autodiff(graph.g, graph.g->loss, n_also, also, grads, &err) != DTP_OK ||
        graph_check(graph.g, &err) != DTP_OK) {
        fail_msg("'%s': %s", c->op, err.msg);
    }
    eval_init(&forward, forward_graph.g, ref);
    eval_init(&backward, graph.g, ref);
    fill_eval(&forward, &forward_graph, weights);
    fill_eval(&backward, &graph, weights);
    eval_run(&backward);
    for (int32_t k = 0; k < n_also; k++) {
        worst = fmax(worst, compare_operand(c, &graph, &forward, &backward, also[k], grads[k]));
    }
    eval_free(&forward);
    eval_free(&backward);
    dtp_case_free(&forward_graph);
    dtp_case_free(&graph);
    return worst;
}

static bool has_float_operand(const dtp_op_case *c)
{
    dtp_case_graph cg;
    bool any = false;
    case_build(c, DTP_F64, seed, &cg);
    for (int32_t i = 0; i < cg.n_in; i++) {
        any = any || cg.is_float[i];
    }
    dtp_case_free(&cg);
    return any;
}

/* Does finite differencing apply: differentiable op, float operand, float output? */
static bool applies(const dtp_op_case *c)
{
    dtp_case_graph cg;
    if (dtp_op_find(c->op)->vjp == NULL || c->no_fd || !has_float_operand(c)) {
        return false;
    }
    case_build(c, DTP_F64, seed, &cg);
    dtp_dtype out = cg.g->tensors[cg.g->nodes[cg.node].out[0]].type.dtype;
    dtp_case_free(&cg);
    return dtp_dtype_is_float(out);
}

static void test_ops_gradients__equal_finite_differences(void **state)
{
    (void)state;
    dtp_backend *ref = NULL;
    double worst = 0.0;
    int32_t checked = 0;
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        if (applies(&DTP_OP_CASES[i])) {
            worst = fmax(worst, check_case(&DTP_OP_CASES[i], ref));
            checked++;
        }
    }
    printf("%d cases, largest relative error %.2g, seed %llu\n", checked, worst,
           (unsigned long long)seed);
    dtp_backend_destroy(ref);
}

/* Functions that round, whose gradient is that of what they round. */
static bool rounds(const char *op)
{
    return strncmp(op, "quantize_", strlen("quantize_")) == 0;
}

static void test_ops_gradients__pass_a_rounding(void **state)
{
    (void)state;
    dtp_backend *ref = NULL;
    int32_t checked = 0;
    assert_int_equal(dtp_backend_ref_create(&ref, NULL), DTP_OK);
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        if (!rounds(DTP_OP_CASES[i].op)) {
            continue;
        }
        const dtp_tensor_id both[] = {0, 1};
        dtp_case_graph cg;
        dtp_tensor_id weights = -1, grads[2];
        eval e;
        case_build(&DTP_OP_CASES[i], DTP_F64, seed, &cg);
        cg.g->loss = append_loss(&cg, &weights);
        assert_int_equal(dtp_autodiff(cg.g, cg.g->loss, 2, both, grads, NULL), DTP_OK);
        assert_int_equal(grads[1], -1); /* a scale is taken for a constant */
        eval_init(&e, cg.g, ref);
        fill_eval(&e, &cg, weights);
        eval_run(&e);
        for (int64_t k = 0; k < dtp_ttype_elems(&cg.g->tensors[0].type); k++) {
            assert_true(eval_get(&e, grads[0], k) == eval_get(&e, weights, k));
        }
        eval_free(&e);
        dtp_case_free(&cg);
        checked++;
    }
    assert_int_equal(checked, 4);
    dtp_backend_destroy(ref);
}

static void test_ops_gradients__every_differentiable_op_is_checked(void **state)
{
    (void)state;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        int32_t n = 0;
        for (int32_t k = 0; k < DTP_OP_CASE_COUNT; k++) {
            n += dtp_case_is_of(&DTP_OP_CASES[k], op) && applies(&DTP_OP_CASES[k]) ? 1 : 0;
        }
        if (op->vjp != NULL && n == 0 && !rounds(op->name)) {
            fail_msg("no case checks the gradient of '%s'", op->name);
        }
    }
}

/* An op without a gradient says so with its name and reason. */
static void test_ops_gradients__others_are_refused_by_name(void **state)
{
    (void)state;
    for (int32_t i = 0; i < DTP_OP_CASE_COUNT; i++) {
        const dtp_op_case *c = &DTP_OP_CASES[i];
        const dtp_op_def *op = dtp_op_find(c->op);
        dtp_case_graph cg;
        dtp_tensor_id weights, also = 0, grad;
        dtp_err err;
        if (op->vjp != NULL || !has_float_operand(c)) {
            continue;
        }
        case_build(c, DTP_F64, seed, &cg);
        if (dtp_dtype_is_float(cg.g->tensors[cg.g->nodes[cg.node].out[0]].type.dtype)) {
            dtp_tensor_id loss = append_loss(&cg, &weights);
            assert_true(cg.is_float[0] || cg.n_in > 1);
            also = cg.is_float[0] ? 0 : 1;
            assert_int_equal(dtp_autodiff(cg.g, loss, 1, &also, &grad, &err), DTP_UNSUPPORTED);
            assert_non_null(strstr(err.msg, op->name));
            assert_non_null(strstr(err.msg, op->no_grad));
        }
        dtp_case_free(&cg);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_gradients__equal_finite_differences),
        cmocka_unit_test(test_ops_gradients__pass_a_rounding),
        cmocka_unit_test(test_ops_gradients__every_differentiable_op_is_checked),
        cmocka_unit_test(test_ops_gradients__others_are_refused_by_name),
    };
    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
