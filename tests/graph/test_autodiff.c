/* Structure of training graphs; the values of gradients are checked against finite differences in
 * tests/oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/autodiff.h"
#include "core/graph/graph_copy.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/op_table.h"
#include "core/graph/optimizer.h"
#include "tests/support/op_fixture.h"
#include "tests/support/graph_check.h"

enum { MAX_IN = 4 };

static dtp_graph *fresh_graph(void)
{
    dtp_graph *g;
    assert_int_equal(dtp_graph_create("test", dtp_builtin_ops(), &g, NULL), DTP_OK);
    return g;
}

static void must(dtp_status s, const dtp_err *err)
{
    if (s != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* Sum of all elements. */
static dtp_tensor_id add_loss(dtp_graph *g, dtp_tensor_id x)
{
    return fx_add(g, "loss", (fx_node){"einsum", NULL, ""}, 1, &x);
}

static dtp_tensor_id grad_of(const dtp_graph *g, dtp_tensor_id param)
{
    for (int32_t i = 0; i < g->n_grads; i++) {
        if (g->grads[i].param == param) {
            return g->grads[i].grad;
        }
    }
    return -1;
}

static int32_t count_op(const dtp_graph *g, const char *op, dtp_phase phase)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        n += strcmp(g->nodes[i].op->name, op) == 0 && g->nodes[i].phase == phase ? 1 : 0;
    }
    return n;
}

/* ---- every op ---- */

typedef struct grad_row {
    fx_node node;
    const char *in[MAX_IN]; /* "=...": it has no gradient */
} grad_row;

#define ROW_REAL(op) {{#op, NULL, NULL}, {"f32 a=2 b=3"}},
#define ROW_POSITIVE(op) ROW_REAL(op)
#define ROW_TRUTH(op)
#define ROW(op, text, domain, ...) ROW_##domain(op)

static const grad_row DIFFERENTIABLE[] = {
    {{"add", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}},
    {{"add", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3 a=2"}},
    {{"add", NULL, "c=4 b=3 a=2"}, {"f32 a=2 b=3", "f32 c=4"}},
    {{"sub", NULL, NULL}, {"f32 a=2", "f32 b=3"}},
    {{"mul", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3 c=2"}},
    {{"div", NULL, NULL}, {"f32 b=3", "f32 a=2 b=3"}},
    {{"max", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}},
    {{"min", NULL, "b=3 a=2"}, {"f32 a=2 b=3", "f32 b=3"}},
    {{"mod", NULL, NULL}, {"f32 a=2 b=3", "f32 b=3"}},
    {{"select", NULL, NULL}, {"bool a=2", "f32 a=2 b=3", "f32 b=3"}},
    {{"select", NULL, NULL}, {"bool c=2", "f32", "f32 b=3"}},
    {{"scale", "float:factor=2", NULL}, {"f32 a=2 b=3"}},
    {{"relu", NULL, "b=3 a=2"}, {"f32 a=2 b=3"}},
    {{"silu", NULL, NULL}, {"f64 a=2"}},
    {{"leaky_relu", NULL, NULL}, {"f32 a=2 b=3"}},
    {{"elu", NULL, NULL}, {"f32 a=2 b=3"}},
    {{"clamp", "float:low=0", "b=3 a=2"}, {"f32 a=2 b=3"}},
    {{"pow", "float:exponent=3", NULL}, {"f32 a=2 b=3"}},
    {{"pow", "float:exponent=0", NULL}, {"f32 a=2 b=3"}},
    {{"fill", "float:value=3", NULL}, {"f32 a=2 b=3"}},
    {{"cast", "int:dtype=1", NULL}, {"f32 a=2"}},
    {{"einsum", NULL, "n=4 m=2"}, {"f32 m=2 k=3", "f32 k=3 n=4"}},
    {{"einsum", NULL, "m=2"}, {"f32 m=2 k=3 z=5", "f32 k=3 y=2", "f32 y=2 x=3"}},
    {{"einsum", NULL, "a=2"}, {"f32 z=5 a=2"}},
    {{"einsum", NULL, "b=3 a=2"}, {"f32 a=2 b=3"}},
    {{"broadcast", NULL, "b=3 a=2"}, {"f32 a=2"}},
    {{"reduce", "int:kind=0 dims:over=a", NULL}, {"f32 a=2 b=3"}},
    {{"reduce", "int:kind=1 dims:over=a,b", NULL}, {"f32 a=2 b=3"}},
    {{"reduce", "int:kind=2 dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"reduce", "int:kind=3 dims:over=a", NULL}, {"f32 a=2 b=3"}},
    {{"reduce", "int:kind=4 dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"logsumexp", "dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"norm", "dims:over=b int:ord=0", NULL}, {"f32 a=2 b=3"}},
    {{"norm", "dims:over=a int:ord=1", NULL}, {"f32 a=2 b=3"}},
    {{"norm", "dims:over=a,b int:ord=2", NULL}, {"f32 a=2 b=3"}},
    {{"var", "dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"std", "dims:over=a int:correction=0", NULL}, {"f32 a=2 b=3"}},
    {{"cumsum", "dim:dim=a", "b=3 a=2"}, {"f32 a=2 b=3"}},
    {{"topk", "dim:over=b int:k=2", NULL}, {"f32 a=2 b=3"}},
    {{"permute", NULL, "b=3 a=2"}, {"f32 a=2 b=3"}},
    {{"stack", "dim:dim=s", "b=3 s=2 a=2"}, {"f32 a=2 b=3", "f32 a=2 b=3"}},
    {{"gather", "dim:over=v", NULL}, {"f32 b=3 v=7 d=4", "i32 a=2 b=3"}},
    {{"gather", "dim:over=v", "a=2 d=4"}, {"f32 v=7 d=4", "i32 a=2"}},
    {{"scatter_add", "dim:over=v dims:along=a int:size=7", NULL}, {"i32 a=2", "f32 a=2 d=4"}},
    {{"relabel", NULL, "c=3 d=2"}, {"f32 a=2 b=3"}},
    {{"slice", "dim:dim=a int:start=1 int:stop=3", NULL}, {"f32 a=5 b=3"}},
    {{"pad", "dim:dim=a int:before=1 int:after=3", NULL}, {"f32 a=5 b=3"}},
    {{"pad", "dim:dim=a int:before=2 int:after=-3", NULL}, {"f32 a=5 b=3"}},
    {{"concat", "dim:dim=a", NULL}, {"f32 a=5 b=3", "f32 a=1 b=3", "f32 a=2 b=3"}},
    {{"dropout", "float:rate=0.5", NULL}, {"f32 a=5 b=3"}},
    {{"softmax", "dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"log_softmax", "dims:over=b", NULL}, {"f32 a=2 b=3"}},
    {{"layer_norm", "dims:over=b", NULL}, {"f32 a=2 b=3", "f32 b=3", "f32 b=3"}},
    {{"rms_norm", "dims:over=b", NULL}, {"f32 a=2 b=3", "f32 b=3"}},
    {{"embedding", "dim:over=v", NULL}, {"f32 v=7 d=4", "i32 a=2"}},
    {{"cross_entropy", "dim:over=v int:reduce=0", NULL}, {"f32 a=2 v=7", "i32 a=2"}},
    {{"cross_entropy", "dim:over=v int:reduce=2", NULL}, {"f32 a=2 v=7", "i32 a=2"}},
    {{"attention", "dim:query=s dim:feature=d", NULL},
     {"f32 h=2 s=4 d=6", "f32 h=2 s=4 d=6", "f32 h=2 s=4 d=6"}},
    {{"attention", "dim:query=s dim:key=t dim:feature=d int:causal=0", NULL},
     {"f32 h=2 s=4 d=6", "f32 h=2 t=5 d=6", "f32 h=2 t=5 d=6", "bool t=5"}},
    {{"rope", "dim:position=s dim:feature=d", NULL}, {"f32 s=4 d=6"}},
    {{"roll", "dim:dim=a int:shift=2", NULL}, {"f32 a=5 b=3"}},
    {{"reorder", "dim:dim=a int:chunks=2", NULL}, {"f32 a=4 b=3"}},
    {{"in_training", NULL, NULL}, {"f32 a=2 b=3", "=f32 a=2 b=3"}},
    {{"quantize_e4m3", NULL, NULL}, {"f32 a=2 b=3", "=f32"}},
    {{"quantize_e5m2", NULL, NULL}, {"f32 a=2 b=3", "=f32"}},
    {{"conv", "dims:spatial=s dims:kernel=k", NULL}, {"f32 a=2 c=3 s=6", "f32 d=4 c=3 k=2"}},
    {{"conv_transpose", "dims:spatial=s dims:kernel=k", NULL},
     {"f32 a=2 d=4 s=5", "f32 d=4 c=3 k=2"}},
    {{"conv_weight", "dims:spatial=s dims:kernel=k", "d=4 c=3 k=2"},
     {"f32 a=2 c=3 s=6", "f32 a=2 d=4 s=5"}},
    {{"pool", "int:kind=0 dims:spatial=s ints:window=3", NULL}, {"f32 a=2 s=6"}},
    DTP_UNARY_OPS(ROW)};

static bool is_covered(const char *op)
{
    for (size_t i = 0; i < sizeof DIFFERENTIABLE / sizeof DIFFERENTIABLE[0]; i++) {
        if (strcmp(DIFFERENTIABLE[i].node.op, op) == 0) {
            return true;
        }
    }
    return false;
}

/* No backward node is there for nothing. */
static void check_needed(const dtp_graph *g, const char *op)
{
    bool needed[256] = {false};
    assert_true(g->n_tensors <= 256);
    for (int32_t i = 0; i < g->n_grads; i++) {
        needed[g->grads[i].grad] = true;
    }
    dtp_graph_mark_needed(g, false, needed);
    for (int32_t n = 0; n < g->n_nodes && g->n_grads > 0; n++) {
        if (g->nodes[n].phase == DTP_BACKWARD && !needed[g->nodes[n].out[0]]) {
            fail_msg("%s: nothing needs '%s'", op, g->nodes[n].name);
        }
    }
}

/* The loss is weighted by a parameter, so that no gradient is a constant. With `only` >= 0 just
 * that operand is a parameter. */
static void check_gradients(const grad_row *row, int32_t only)
{
    dtp_graph *g = fresh_graph();
    dtp_tensor_id in[MAX_IN];
    dtp_err err;
    int32_t n = 0;
    dtp_err_clear(&err);
    for (; n < MAX_IN && row->in[n] != NULL; n++) {
        char name[16];
        const char *type = row->in[n] + (row->in[n][0] == '=' ? 1 : 0);
        const bool is_float = row->in[n][0] == 'f';
        (void)snprintf(name, sizeof name, "in%d", n);
        in[n] = fx_tensor(g, name,
                          is_float && (only < 0 || only == n) ? DTP_TENSOR_PARAM : DTP_TENSOR_INPUT,
                          type);
    }
    const dtp_tensor_id y = fx_add(g, "node", row->node, n, in);
    const dtp_graph_tensor weight = {
        .name = "weight", .kind = DTP_TENSOR_INPUT, .type = g->tensors[y].type};
    dtp_tensor_id pair[2] = {y, -1};
    must(dtp_graph_add_tensor(g, &weight, &pair[1], &err), &err);
    g->loss = fx_add(g, "loss", (fx_node){"einsum", NULL, ""}, 2, pair);
    must(dtp_autodiff(g, g->loss, 0, NULL, NULL, &err), &err);
    must(graph_check(g, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        const dtp_tensor_id grad = grad_of(g, in[i]);
        if (g->tensors[in[i]].kind != DTP_TENSOR_PARAM) {
            assert_int_equal(grad, -1);
        } else if (grad < 0 || !dtp_ttype_equal(&g->tensors[grad].type, &g->tensors[in[i]].type)) {
            fail_msg("%s: operand %d has no gradient of its type", row->node.op, i);
        }
    }
    check_needed(g, row->node.op);
    dtp_graph_destroy(g);
}

static void test_autodiff__every_differentiable_op_has_typed_gradients(void **state)
{
    (void)state;
    for (int32_t i = 0; i < dtp_op_count(); i++) {
        const dtp_op_def *op = dtp_op_at(i);
        if (op->vjp != NULL && !is_covered(op->name)) {
            fail_msg("op '%s' is not in the table", op->name);
        }
    }
    for (size_t i = 0; i < sizeof DIFFERENTIABLE / sizeof DIFFERENTIABLE[0]; i++) {
        const grad_row *row = &DIFFERENTIABLE[i];
        check_gradients(row, -1);
        for (int32_t k = 0; k < MAX_IN && row->in[k] != NULL; k++) {
            check_gradients(row, k);
        }
    }
}

/* ---- the walk ---- */

/* x[b,p] w1[p,h] -> relu -> w2[h,c] -> loss */
static dtp_graph *two_layers(dtp_tensor_id params[2])
{
    dtp_graph *g = fresh_graph();
    const dtp_tensor_id x = fx_tensor(g, "x", DTP_TENSOR_INPUT, "f32 b=4 p=5");
    params[0] = fx_tensor(g, "w1", DTP_TENSOR_PARAM, "f32 p=5 h=6");
    params[1] = fx_tensor(g, "w2", DTP_TENSOR_PARAM, "f32 h=6 c=3");
    const dtp_tensor_id labels = fx_tensor(g, "labels", DTP_TENSOR_INPUT, "i32 b=4");
    const dtp_tensor_id in1[] = {x, params[0]};
    const dtp_tensor_id h = fx_add(g, "h", (fx_node){"einsum", NULL, "b=4 h=6"}, 2, in1);
    const dtp_tensor_id a = fx_add(g, "a", (fx_node){"relu", NULL, NULL}, 1, &h);
    const dtp_tensor_id in2[] = {a, params[1]};
    const dtp_tensor_id y = fx_add(g, "y", (fx_node){"einsum", NULL, "b=4 c=3"}, 2, in2);
    const dtp_tensor_id in3[] = {y, labels};
    g->loss = fx_add(g, "loss", (fx_node){"cross_entropy", "dim:over=c", NULL}, 2, in3);
    return g;
}

static void test_autodiff__emits_only_what_parameters_need(void **state)
{
    (void)state;
    dtp_tensor_id params[2];
    dtp_graph *g = two_layers(params);
    const int32_t n_forward = g->n_nodes;
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, NULL), DTP_OK);
    assert_int_equal(graph_check(g, NULL), DTP_OK);
    /* seed, cross_entropy_grad, dw2, da, relu_grad, dw1; nothing for the input x */
    assert_int_equal(g->n_nodes - n_forward, 6);
    assert_int_equal(count_op(g, "einsum", DTP_BACKWARD), 3);
    assert_int_equal(g->n_grads, 2);
    for (int32_t i = n_forward; i < g->n_nodes; i++) {
        assert_int_equal(g->nodes[i].phase, DTP_BACKWARD);
        assert_in_range(g->nodes[i].origin, 0, n_forward - 1);
        assert_true(i == n_forward || g->nodes[i].origin <= g->nodes[i - 1].origin);
        assert_int_equal(strncmp(g->nodes[i].name, "grad.", 5), 0);
    }
    dtp_graph_destroy(g);
}

static void test_autodiff__gives_gradients_of_other_tensors_on_request(void **state)
{
    (void)state;
    dtp_tensor_id params[2], grads[3];
    dtp_graph *g = two_layers(params);
    const dtp_tensor_id also[3] = {dtp_graph_find(g, "x"), dtp_graph_find(g, "h"),
                                   dtp_graph_find(g, "labels")};
    assert_int_equal(dtp_autodiff(g, g->loss, 3, also, grads, NULL), DTP_OK);
    assert_int_equal(graph_check(g, NULL), DTP_OK);
    assert_int_equal(grads[2], -1);
    for (int32_t i = 0; i < 2; i++) {
        assert_true(grads[i] >= 0);
        assert_true(dtp_ttype_equal(&g->tensors[grads[i]].type, &g->tensors[also[i]].type));
    }
    assert_int_equal(g->n_grads, 2);
    dtp_graph_destroy(g);
}

/* w is read three times: two additions bring its gradients together. */
static void test_autodiff__adds_up_the_uses_of_a_tensor(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    const dtp_tensor_id w = fx_tensor(g, "w", DTP_TENSOR_PARAM, "f32 a=3");
    const dtp_tensor_id ww[] = {w, w};
    const dtp_tensor_id s = fx_add(g, "s", (fx_node){"mul", NULL, NULL}, 2, ww);
    const dtp_tensor_id sw[] = {s, w};
    const dtp_tensor_id t = fx_add(g, "t", (fx_node){"mul", NULL, NULL}, 2, sw);
    g->loss = add_loss(g, t);
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, NULL), DTP_OK);
    assert_int_equal(graph_check(g, NULL), DTP_OK);
    assert_int_equal(count_op(g, "add", DTP_BACKWARD), 2);
    assert_int_equal(g->n_grads, 1);
    dtp_graph_destroy(g);
}

static void test_autodiff__stops_at_piecewise_constant_ops(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    const dtp_tensor_id w = fx_tensor(g, "w", DTP_TENSOR_PARAM, "f32 a=3");
    const dtp_tensor_id v = fx_tensor(g, "v", DTP_TENSOR_PARAM, "f32 a=3");
    const dtp_tensor_id pair[] = {w, v};
    const dtp_tensor_id mask = fx_add(g, "mask", (fx_node){"compare", "int:cmp=0", NULL}, 2, pair);
    const dtp_tensor_id number =
        fx_add(g, "number", (fx_node){"cast", "int:dtype=0", NULL}, 1, &mask);
    const dtp_tensor_id product[] = {number, v};
    g->loss = add_loss(g, fx_add(g, "p", (fx_node){"mul", NULL, NULL}, 2, product));
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, NULL), DTP_OK);
    assert_int_equal(graph_check(g, NULL), DTP_OK);
    assert_int_equal(grad_of(g, w), -1);
    assert_true(grad_of(g, v) >= 0);
    dtp_graph_destroy(g);
}

static void test_autodiff__names_the_op_without_a_gradient(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    dtp_err err;
    const dtp_tensor_id w = fx_tensor(g, "w", DTP_TENSOR_PARAM, "f32 a=3");
    const dtp_tensor_id pair[] = {w, w};
    g->loss = add_loss(g, fx_add(g, "odd", (fx_node){"tanh_grad", NULL, NULL}, 2, pair));
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "node 'odd': op 'tanh_grad' is not differentiable"));
    dtp_graph_destroy(g);
}

static void test_autodiff__refuses_the_gradient_of_a_mask(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    dtp_err err;
    const dtp_tensor_id in[] = {fx_tensor(g, "q", DTP_TENSOR_PARAM, "f32 s=4 d=6"),
                                fx_tensor(g, "k", DTP_TENSOR_INPUT, "f32 t=5 d=6"),
                                fx_tensor(g, "v", DTP_TENSOR_INPUT, "f32 t=5 d=6"),
                                fx_tensor(g, "bias", DTP_TENSOR_PARAM, "f32 s=4 t=5")};
    const fx_node attention = {"attention", "dim:query=s dim:key=t dim:feature=d", NULL};
    g->loss = add_loss(g, fx_add(g, "att", attention, 4, in));
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "node 'att': attention has no gradient through its mask"));
    dtp_graph_destroy(g);
}

static void test_autodiff__refuses_a_loss_that_is_not_one_number(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    dtp_err err;
    const dtp_tensor_id w = fx_tensor(g, "w", DTP_TENSOR_PARAM, "f32 a=3");
    const dtp_tensor_id s = fx_tensor(g, "s", DTP_TENSOR_PARAM, "f32");
    const dtp_tensor_id y = fx_add(g, "y", (fx_node){"exp", NULL, NULL}, 1, &w);
    assert_int_equal(dtp_autodiff(g, y, 0, NULL, NULL, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the loss 'y' must be one number, it is f32[a=3]"));
    assert_int_equal(dtp_autodiff(g, s, 0, NULL, NULL, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "the loss 's' is not the output of a node"));
    dtp_graph_destroy(g);
}

static void test_autodiff__dropout_keeps_its_stream(void **state)
{
    (void)state;
    dtp_graph *g = fresh_graph();
    const dtp_tensor_id w = fx_tensor(g, "w", DTP_TENSOR_PARAM, "f32 a=3");
    g->loss = add_loss(g, fx_add(g, "drop", (fx_node){"dropout", "float:rate=0.25", NULL}, 1, &w));
    assert_int_equal(dtp_autodiff(g, g->loss, 0, NULL, NULL, NULL), DTP_OK);
    const dtp_node *forward = &g->nodes[0];
    const dtp_node *backward = &g->nodes[g->tensors[grad_of(g, w)].producer];
    assert_string_equal(backward->op->name, "dropout");
    assert_true(forward->attrs[1].i != 0);
    assert_int_equal(forward->attrs[1].i, backward->attrs[1].i);
    assert_true(forward->attrs[0].f == backward->attrs[0].f);
    dtp_graph_destroy(g);
}

/* ---- optimizers ---- */

typedef struct optimizer_row {
    const char *op;
    int32_t n_slots;
} optimizer_row;

static void test_optimizer__adds_slots_and_updates(void **state)
{
    (void)state;
    static const optimizer_row rows[] = {
        {NULL, 0}, {"sgd", 0}, {"momentum", 1}, {"adam", 2}, {"adamw", 2}};
    static const char *const slots[] = {"m", "v"};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        dtp_tensor_id params[2];
        dtp_graph *g = two_layers(params);
        if (rows[r].op != NULL) {
            g->training.optimizer =
                dtp_optimizer_spec_of(dtp_optimizer_find(dtp_builtin_ops(), rows[r].op));
            assert_int_equal(dtp_optimizer_spec_set(&g->training.optimizer, "lr", 0.5, NULL),
                             DTP_OK);
        }
        assert_int_equal(dtp_training_graph(g, NULL), DTP_OK);
        assert_int_equal(graph_check(g, NULL), DTP_OK);
        const int32_t n_updates = rows[r].op == NULL ? 0 : 2 * (1 + rows[r].n_slots);
        assert_int_equal(g->n_updates, n_updates);
        for (int32_t p = 0; p < 2 && rows[r].op != NULL; p++) {
            char name[64];
            const char *param = p == 0 ? "w1" : "w2";
            (void)snprintf(name, sizeof name, "update.%s", param);
            const dtp_tensor_id value = dtp_graph_find(g, name);
            assert_true(value >= 0);
            const dtp_node *node = &g->nodes[g->tensors[value].producer];
            assert_string_equal(node->op->name, rows[r].op);
            assert_int_equal(node->phase, DTP_UPDATE);
            assert_int_equal(node->in[0], params[p]);
            assert_int_equal(node->in[1], grad_of(g, params[p]));
            assert_string_equal(node->attrs[0].key, "lr");
            assert_true(node->attrs[0].f == 0.5);
            for (int32_t s = 0; s < rows[r].n_slots; s++) {
                (void)snprintf(name, sizeof name, "%s.%s.%s", rows[r].op, slots[s], param);
                const dtp_tensor_id slot = dtp_graph_find(g, name);
                assert_true(slot >= 0 && g->tensors[slot].kind == DTP_TENSOR_STATE);
                assert_int_equal(g->tensors[slot].init.kind, DTP_INIT_ZEROS);
                assert_int_equal(node->in[2 + s], slot);
            }
        }
        dtp_graph_destroy(g);
    }
}

static void test_optimizer__leaves_a_forward_graph_alone(void **state)
{
    (void)state;
    dtp_tensor_id params[2];
    dtp_graph *g = two_layers(params);
    const int32_t n = g->n_nodes;
    g->loss = -1;
    g->training.optimizer = dtp_optimizer_spec_of(dtp_optimizer_find(dtp_builtin_ops(), "sgd"));
    assert_int_equal(dtp_training_graph(g, NULL), DTP_OK);
    assert_int_equal(g->n_nodes, n);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_autodiff__every_differentiable_op_has_typed_gradients),
        cmocka_unit_test(test_autodiff__emits_only_what_parameters_need),
        cmocka_unit_test(test_autodiff__gives_gradients_of_other_tensors_on_request),
        cmocka_unit_test(test_autodiff__adds_up_the_uses_of_a_tensor),
        cmocka_unit_test(test_autodiff__stops_at_piecewise_constant_ops),
        cmocka_unit_test(test_autodiff__names_the_op_without_a_gradient),
        cmocka_unit_test(test_autodiff__refuses_the_gradient_of_a_mask),
        cmocka_unit_test(test_autodiff__refuses_a_loss_that_is_not_one_number),
        cmocka_unit_test(test_autodiff__dropout_keeps_its_stream),
        cmocka_unit_test(test_optimizer__adds_slots_and_updates),
        cmocka_unit_test(test_optimizer__leaves_a_forward_graph_alone),
    };
    return cmocka_run_group_tests_name("autodiff", tests, NULL, NULL);
}
