/* Registered ops are planned, lowered, run and verified as built-in ones. */
#include "tests/ops/own_ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/ops/op_table.h"
#include "interop/layout_forms.h"
#include "core/graph/graph.h"
#include "dtp/ops.h"
#include "dtp/world.h"
#include "dtp/op.h"
#include "planner/plan_rules.h"
#include "spmd/propagate/propagate.h"
#include "tests/support/job_suite.h"
#include "tests/support/verify_case.h"
#include "tests/support/graph_check.h"
#include "dtp/device_mesh.h"

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* A classifier; with `own`, its products and gains are registered ops, and the classes are reversed
 * by one (the built-in model has no such op, so both leave it out when `reverse` is false). */
static dtp_graph *classifier(const dtp_op_set *set, bool own, bool reverse)
{
    char text[2048];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_model_options options = {.size = sizeof options, .ops = set};
    const int n = snprintf(
        text, sizeof text,
        "{\"format\": \"dtp.model/1\", \"name\": \"own\","
        " \"dims\": {\"batch\": 6, \"d\": 5, \"h\": 4, \"classes\": 3},"
        " \"inputs\": {\"x\": {\"dims\": [\"batch\", \"d\"], \"dtype\": \"f32\"},"
        "  \"labels\": {\"dims\": [\"batch\"], \"dtype\": \"i32\", \"below\": \"classes\"}},"
        " \"params\": {\"w1\": {\"dims\": [\"d\", \"h\"], \"init\": {\"normal\": 0.4}},"
        "  \"gain\": {\"dims\": [\"h\"], \"init\": {\"normal\": 1.0}},"
        "  \"w2\": {\"dims\": [\"h\", \"classes\"], \"init\": {\"normal\": 0.4}}},"
        " \"nodes\": [%s,"
        "  {\"id\": \"a\", \"op\": \"gelu\", \"in\": [\"s\"]},"
        "  %s, %s"
        "  {\"id\": \"loss\", \"op\": \"cross_entropy\", \"in\": [\"%s\", \"labels\"],"
        "   \"over\": \"classes\", \"reduce\": \"mean\"}],"
        " \"outputs\": [\"logits\"],"
        " \"train\": {\"loss\": \"loss\", \"optimizer\": {\"sgd\": {\"lr\": 0.1}}}}",
        own ? "{\"id\": \"h1\", \"op\": \"my_matmul\", \"in\": [\"x\", \"w1\"]},"
              "{\"id\": \"s\", \"op\": \"my_scale\", \"in\": [\"h1\", \"gain\"]}"
            : "{\"id\": \"h1\", \"op\": \"einsum\", \"in\": [\"x\", \"w1\"], \"out\": "
              "[\"batch\", \"h\"]},"
              "{\"id\": \"s\", \"op\": \"mul\", \"in\": [\"h1\", \"gain\"]}",
        own ? "{\"id\": \"logits\", \"op\": \"my_matmul\", \"in\": [\"a\", \"w2\"]}"
            : "{\"id\": \"logits\", \"op\": \"einsum\", \"in\": [\"a\", \"w2\"], \"out\": "
              "[\"batch\", \"classes\"]}",
        reverse ? "{\"id\": \"r\", \"op\": \"my_reverse\", \"in\": [\"logits\"], \"offset\": 1},"
                : "",
        reverse ? "r" : "logits");
    assert_true(n > 0 && n < (int)sizeof text);
    must(dtp_model_parse("own", text, (size_t)n, &options, &g, &err), &err);
    must(graph_check(g, &err), &err);
    return g;
}

/* On virtual ranks, against one device; the losses of three steps when `losses` is not NULL. */
static void verify(const dtp_graph *g, const dtp_program *p, const char *backend, double *losses)
{
    verify_case c = verify_case_init("own ops");
    c.backend = backend;
    c.options.seed = 3;
    c.options.steps = 3;
    c.n_kernels = OWN_OPS;
    c.kernels = own_ops_kernels;
    dtp_verify_result result = verify_program(g, p, &c);
    for (int32_t i = 0; i < 3 && losses != NULL; i++) {
        losses[i] = result.losses[i];
    }
    dtp_verify_result_free(&result);
}

static void test_own_ops__every_rule_set_equals_one_device(void **state)
{
    static const char *const rows[][2] = {
        {"x:2", ""},
        {"x:2", "batch:x"},
        {"x:4", "batch:x"},
        {"x:2", "h:x"},
        {"x:3", "h:x"},
        {"x:2", "d:x"},
        {"x:2;y:2", "batch:x;h:y"},
        {"x:2;y:2", "d:x;h:y"},
        {"x:2;y:2", "batch:x;batch:y"},
    };
    static const char *const backends[] = {"cpu", "ref"};
    (void)state;
    dtp_op_set *set = own_ops_create();
    dtp_graph *g = classifier(set, true, true);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        job_program p;
        dtp_err err = {0};
        must(job_lower(g, rows[i][0], rows[i][1], &dtp_target_cpu, &p, &err), &err);
        for (int k = 0; k < 2; k++) {
            verify(g, p.program, backends[k], NULL);
        }
        job_program_free(&p);
    }
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

static void test_own_ops__train_as_the_built_in_ones(void **state)
{
    double losses[2][3];
    (void)state;
    dtp_op_set *set = own_ops_create();
    for (int own = 0; own < 2; own++) {
        dtp_graph *g = classifier(set, own == 1, false);
        job_program p;
        dtp_err err = {0};
        must(job_lower(g, "x:2", "batch:x", &dtp_target_cpu, &p, &err), &err);
        verify(g, p.program, "cpu", losses[own]);
        job_program_free(&p);
        dtp_graph_destroy(g);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(losses[0][i] > 0.1);
        assert_true(losses[0][i] - losses[1][i] < 1e-5 && losses[1][i] - losses[0][i] < 1e-5);
    }
    dtp_op_set_destroy(set);
}

static void test_own_ops__a_whole_dim_cannot_be_split(void **state)
{
    (void)state;
    dtp_op_set *set = own_ops_create();
    dtp_graph *g = classifier(set, true, true);
    job_program p;
    dtp_err err = {0};
    assert_int_equal(job_lower(g, "x:3", "classes:x", &dtp_target_cpu, &p, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'r' (my_reverse)"));
    assert_non_null(strstr(err.msg, "dim 'classes' must be whole"));
    job_program_free(&p);
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

/* The planner prices them, and what it chooses runs. The wide model makes splitting pay. */
static void test_own_ops__are_planned(void **state)
{
    static const char *const meshes[] = {"x:2", "x:2;y:2"};
    dtp_machine *machine = NULL;
    dtp_err err = {0};
    (void)state;
    must(dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, &err), &err);
    dtp_op_set *set = own_ops_create();
    dtp_graph *g = classifier(set, true, true);
    for (int i = 0; i < 2; i++) {
        dtp_mesh mesh;
        dtp_plan_result plan;
        dtp_program *p = NULL;
        char *text = NULL;
        dtp_plan *again = NULL;
        dtp_lower_options o = dtp_lower_options_init(dtp_redistributor_generic());
        dtp_plan_request request = dtp_plan_request_init();
        must(dtp_mesh_parse(meshes[i], &mesh, &err), &err);
        request.options.mesh = &mesh;
        request.options.rules = "batch:x";
        must(dtp_plan_rules(g, machine, &request, &plan, &err), &err);
        assert_non_null(plan.plan);
        assert_true(plan.plan->predicted.step_time_s > 0);
        must(dtp_plan_write(plan.plan, g, false, &text, &err), &err);
        must(dtp_plan_read("plan", text, strlen(text), g, &again, &err), &err);
        must(dtp_graph_results(g, g->arena, &o.n_fetch, &o.fetch, &err), &err);
        must(dtp_lower(g, &again->sharding, &o, &p, &err), &err);
        verify(g, p, "cpu", NULL);
        dtp_program_destroy(p);
        free(text);
        dtp_plan_destroy(again);
        dtp_plan_result_free(&plan);
    }
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
    dtp_machine_destroy(machine);
}

/* ---- opaque ops ---- */

static dtp_graph *one_node(const dtp_op_set *set, const char *op, const char *b_dims)
{
    char text[512];
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const dtp_model_options options = {.size = sizeof options, .ops = set};
    const int n = snprintf(text, sizeof text,
                           "{\"format\": \"dtp.model/1\", \"name\": \"g\","
                           " \"dims\": {\"m\": 16, \"k\": 8, \"n\": 12},"
                           " \"inputs\": {\"a\": {\"dims\": [\"m\", \"k\"], \"dtype\": \"f32\"},"
                           "  \"b\": {\"dims\": [%s], \"dtype\": \"f32\"}},"
                           " \"nodes\": [{\"id\": \"y\", \"op\": \"%s\", \"in\": [\"a\", \"b\"]}],"
                           " \"outputs\": [\"y\"]}",
                           b_dims, op);
    must(dtp_model_parse("g", text, (size_t)n, &options, &g, &err), &err);
    return g;
}

/* Where the operands are, in which layout the node reads them (NULL: as it likes). */
typedef struct local_case {
    const char *op, *mesh, *b_dims;
    const char *a, *b, *read_a, *read_b, *out;
    int collectives; /* -1: refused under strict */
} local_case;

static void add_pin(const dtp_graph *g, const dtp_mesh *mesh, dtp_tensor_id t, dtp_node_id node,
                    const char *layout, dtp_propagate_options *o, dtp_pin *pins)
{
    dtp_err err = {0};
    if (layout == NULL) {
        return;
    }
    pins[o->n_pins] = (dtp_pin){.tensor = t, .node = node};
    must(dtp_layout_parse_any(layout, mesh, &g->tensors[t].type, &g->dims, &pins[o->n_pins].layout,
                              &err),
         &err);
    o->n_pins++;
}

static void check_local(const dtp_op_set *set, const local_case *c)
{
    dtp_graph *g = one_node(set, c->op, c->b_dims);
    dtp_mesh mesh;
    dtp_pin pins[5];
    dtp_sharding s;
    dtp_program *p = NULL;
    dtp_err err = {0};
    dtp_propagate_options o = {.price = dtp_step_generic_price,
                               .redistributor = dtp_redistributor_generic(),
                               .pins = pins,
                               .strict = c->collectives < 0};
    must(dtp_mesh_parse(c->mesh, &mesh, &err), &err);
    add_pin(g, &mesh, 0, -1, c->a, &o, pins);
    add_pin(g, &mesh, 1, -1, c->b, &o, pins);
    add_pin(g, &mesh, 0, 0, c->read_a, &o, pins);
    add_pin(g, &mesh, 1, 0, c->read_b, &o, pins);
    add_pin(g, &mesh, 2, -1, c->out, &o, pins);
    const dtp_status status = dtp_propagate(g, &mesh, &o, g->arena, &s, &err);
    if (c->collectives < 0) {
        assert_int_equal(status, DTP_INVALID);
        assert_non_null(strstr(err.msg, "'y'"));
        dtp_graph_destroy(g);
        return;
    }
    must(status, &err);
    must(dtp_sharding_check(g, &s, &err), &err);
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    must(dtp_lower(g, &s, &passes, &p, &err), &err);
    must(dtp_program_check(p, &err), &err);
    int count = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        count += p->instrs[i].kind == DTP_INSTR_START ? 1 : 0;
    }
    if (count != c->collectives) {
        fail_msg("%s with %s and %s: %d collectives, want %d", c->op, c->a, c->b, count,
                 c->collectives);
    }
    verify(g, p, "cpu", NULL);
    dtp_program_destroy(p);
    dtp_graph_destroy(g);
}

static void test_own_ops__opaque_ops_run_in_declared_layouts(void **state)
{
    static const char kn[] = "\"k\", \"n\"", mk[] = "\"m\", \"k\"";
    static const local_case cases[] = {
        /* dtensor.md X1, X2 */
        {"local_mm", "x:2", kn, "S1", "S0", NULL, NULL, "R", 1},
        {"local_mm", "x:2", kn, "S0", "S1", "S1", "S0", "R", 3},
        {"local_mm", "x:2", kn, "S0", "S1", NULL, NULL, "R", -1},
        {"local_mm", "x:2", kn, "S0", "R", NULL, NULL, "S0", 0},
        /* both mesh dims, in one strategy and in two */
        {"local_mm", "x:2;y:2", kn, "S1,S1", "S0,S0", NULL, NULL, "R,R", 1},
        {"local_mm", "x:2;y:2", kn, "S0,S1", "R,S0", NULL, NULL, "S0,R", 1},
        /* a dim split in one operand only, over two mesh dims, unevenly, in another order */
        {"local_dot", "x:2", mk, "S0", "R", NULL, NULL, "R", 1},
        {"local_dot", "x:3", mk, "S0", "R", NULL, NULL, "R", 1},
        {"local_dot", "x:2;y:2", mk, "S0,S0", "R,R", NULL, NULL, "R,R", 1},
        {"local_dot", "x:3;y:2", mk, "S0,S1", "R,S1", NULL, NULL, "R,R", 1},
        {"local_dot", "x:2;y:2", mk, "S1,S1", "S1,S1", NULL, NULL, "R,R", 1},
    };
    (void)state;
    dtp_op_set *set = own_ops_create();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_local(set, &cases[i]);
    }
    dtp_op_set_destroy(set);
}

/* ---- calls on distributed tensors ---- */

static dtp_status eager(dtp_device_mesh *mesh, void *user, dtp_err *err)
{
    const int64_t shape[] = {5, 6};
    float x[30], y[5];
    dtp_tensor_desc desc;
    dtp_tensor t, max;
    (void)user;
    for (int i = 0; i < 30; i++) {
        x[i] = (float)((i * 7) % 31) - 40.0F;
    }
    DTP_TRY(dtp_tensor_desc_init(mesh, DTP_F32, 2, shape, "P(None, 'x')", &desc, err));
    DTP_TRY(dtp_tensor_from_array(mesh, &desc, x, &t, err));
    const dtp_call call = {.op = "my_max", .dims = "bd->b", .n_in = 1, .in = &t};
    DTP_TRY(dtp_tensor_call(&call, &max, err));
    dtp_layout whole;
    DTP_TRY(dtp_tensor_layout(mesh, 1, "replicated", &whole, err));
    dtp_tensor reduced;
    DTP_TRY(dtp_tensor_redistribute(max, &whole, &reduced, err));
    DTP_TRY(dtp_tensor_read(reduced, y, err));
    for (int i = 0; i < 5; i++) {
        float best = x[6 * i];
        for (int k = 1; k < 6; k++) {
            best = x[6 * i + k] > best ? x[6 * i + k] : best;
        }
        if (y[i] != best) {
            return DTP_FAIL(err, DTP_INTERNAL, "row %d: %g, want %g", i, (double)y[i],
                            (double)best);
        }
    }
    return DTP_OK;
}

static void test_own_ops__can_be_called_on_distributed_tensors(void **state)
{
    dtp_err err = {0};
    dtp_world_options o = dtp_world_options_init();
    (void)state;
    dtp_op_set *set = own_ops_create();
    o.comm = "sim";
    o.mesh.ops = set;
    o.n_kernels = OWN_OPS;
    o.kernels = own_ops_kernels;
    must(dtp_world_run("x:2", &o, eager, NULL, &err), &err);
    must(dtp_world_run("x:3", &o, eager, NULL, &err), &err);
    o.mesh.ops = NULL;
    assert_int_equal(dtp_world_run("x:2", &o, eager, NULL, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "no op 'my_max'"));
    dtp_op_set_destroy(set);
}

/* Is there a kernel for the op with operands of a dtype? */
static bool finds(const dtp_backend *b, const char *op, dtp_dtype dtype, dtp_err *err)
{
    const dtp_op_def def = {.name = op};
    const dtp_ttype type = {.dtype = dtype};
    const dtp_op_call call = {.op = &def, .n_in = 1, .n_out = 1, .in = &type, .out = &type};
    const dtp_kernel *found = NULL;
    return dtp_backend_kernel(b, &call, &found, err) == DTP_OK && strcmp(found->op, op) == 0;
}

static void test_own_ops__kernels_must_be_new(void **state)
{
    static const dtp_kernel built_in[] = {{.op = "my_new"}};
    dtp_kernel two[2] = {own_ops_kernels[0], own_ops_kernels[0]};
    dtp_backend *b = NULL;
    dtp_err err = {0};
    (void)state;
    must(dtp_backend_create("cpu", 1, &b, &err), &err);
    assert_false(finds(b, "my_matmul", DTP_F32, &err));
    assert_int_equal(dtp_backend_add_kernels(b, two, 2, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'my_matmul' has a kernel already"));
    assert_false(finds(b, "my_matmul", DTP_F32, &err));
    two[1].op = "gelu";
    assert_int_equal(dtp_backend_add_kernels(b, two, 2, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "'gelu' is built in"));
    assert_int_equal(dtp_backend_add_kernels(b, built_in, 1, &err), DTP_INVALID);
    must(dtp_backend_add_kernels(b, own_ops_kernels, OWN_OPS, &err), &err);
    assert_true(finds(b, "my_matmul", DTP_F32, &err));
    assert_true(finds(b, "gelu", DTP_F32, &err));
    dtp_backend_destroy(b);
}

/* An op may have a kernel per dtype; a call of another dtype is told what there is. */
static void test_own_ops__kernels_are_found_by_dtype(void **state)
{
    static const uint32_t first = DTP_DTYPE_BIT(DTP_F32) | DTP_DTYPE_BIT(DTP_I32);
    dtp_kernel pair[2] = {own_ops_kernels[0], own_ops_kernels[0]};
    dtp_backend *b = NULL;
    dtp_err err = {0};
    (void)state;
    pair[0].dtypes = first;
    pair[1].dtypes = DTP_DTYPE_BIT(DTP_F64);
    must(dtp_backend_create("cpu", 1, &b, &err), &err);
    must(dtp_backend_add_kernels(b, pair, 2, &err), &err);
    assert_true(finds(b, "my_matmul", DTP_F32, &err));
    assert_true(finds(b, "my_matmul", DTP_F64, &err));
    assert_false(finds(b, "my_matmul", DTP_BF16, &err));
    assert_non_null(strstr(err.msg, "'my_matmul' on backend cpu: operand 0 has dtype bf16"));
    assert_non_null(strstr(err.msg, "f64; f32, i32"));
    pair[0].dtypes = DTP_DTYPE_BIT(DTP_BF16) | DTP_DTYPE_BIT(DTP_F64);
    assert_int_equal(dtp_backend_add_kernels(b, pair, 1, &err), DTP_INVALID);
    pair[0].dtypes = 0;
    assert_int_equal(dtp_backend_add_kernels(b, pair, 1, &err), DTP_INVALID);
    dtp_backend_destroy(b);
}

static void test_own_ops__a_missing_kernel_is_named(void **state)
{
    (void)state;
    dtp_op_set *set = own_ops_create();
    dtp_graph *g = classifier(set, true, true);
    job_program p;
    dtp_err err = {0};
    must(job_lower(g, "x:2", "batch:x", &dtp_target_cpu, &p, &err), &err);
    job j = {.g = g, .mesh = "x:2", .rules = "batch:x", .backend = "cpu", .steps = 1};
    dtp_mesh mesh;
    must(dtp_mesh_parse("x:2", &mesh, &err), &err);
    assert_int_equal(dtp_comm_sim_run(&mesh, job_run, &j, &err), DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "no kernel for op 'my_matmul'"));
    job_program_free(&p);
    dtp_graph_destroy(g);
    dtp_op_set_destroy(set);
}

/* Every rule, one and two mesh dims, uneven sizes, forward and gradients, by the rule verifier. */
static void test_own_ops__every_rule_is_verified(void **state)
{
    static const dtp_op_case cases[] = {
        {.op = "my_matmul", .in = {"m=5,k=7", "k=7,n=4"}},
        {.op = "my_scale", .in = {"a=3,b=5,d=7", "d=7"}},
        {.op = "my_reverse", .in = {"a=5,d=4"}, .attrs = "offset=3"},
        {.op = "my_max", .in = {"b=5,d=7 distinct"}},
        {.op = "local_mm", .in = {"m=5,k=7", "k=7,n=4"}},
        {.op = "local_dot", .in = {"a=5,b=7", "a=5,b=7"}},
    };
    (void)state;
    dtp_op_set *set = own_ops_create();
    for (int32_t i = 0; i < dtp_op_set_count(set); i++) {
        dtp_rule_report report;
        dtp_err err = {0};
        dtp_rule_verify_options o = dtp_rule_verify_options_init();
        print_message("seed %llu\n", (unsigned long long)o.seed);
        o.n_cases = OWN_OPS;
        o.cases = cases;
        o.ops = set;
        o.n_kernels = OWN_OPS;
        o.kernels = own_ops_kernels;
        must(dtp_rule_verify(dtp_op_set_at(set, i), &o, &report, &err), &err);
        if (!report.pass) {
            fail_msg("%s", report.first_wrong.msg);
        }
        assert_int_equal(report.cases, 1);
        assert_true(report.programs >= 30);
        assert_true((report.gradient_programs > 0) == (dtp_op_set_at(set, i)->vjp != NULL));
    }
    dtp_op_set_destroy(set);
}

static dtp_status run_softmax(const dtp_kernel_args *a, dtp_err *err)
{
    const dtp_view *x = &a->in[0];
    const int64_t n = x->local.dims[x->local.rank - 1].size, elems = dtp_ttype_elems(&x->local);
    (void)err;
    for (int64_t i = 0; i < elems; i += n) {
        double sum = 0.0;
        for (int64_t k = i; k < i + n; k++) {
            sum += exp(((const double *)x->data)[k]);
        }
        for (int64_t k = i; k < i + n; k++) {
            ((double *)a->out[0].data)[k] = exp(((const double *)x->data)[k]) / sum;
        }
    }
    return DTP_OK;
}

/* What nobody gave a role is not split, and the report says what could be. */
static void test_own_ops__letters_without_a_role_are_whole(void **state)
{
    static const dtp_letter_role d = {'d', DTP_ROLE_WHOLE, DTP_REDUCE_SUM};
    static const dtp_letter_role k = {'k', DTP_ROLE_REDUCED, DTP_REDUCE_SUM};
    static const dtp_letter_role dots = {'.', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    static const struct {
        const char *op, *signature;
        const dtp_letter_role *role;
        dtp_op_case operands;
        int32_t rules;
        const char *parallel;
    } rows[] = {
        {"soft", "...d->...d", NULL, {.in = {"a=3,b=4,d=5"}}, 1, "."},
        {"soft", "...d->...d", &d, {.in = {"a=3,d=5"}}, 1, "."},
        {"soft", "...d->...d", &dots, {.in = {"a=3,b=4,d=5"}}, 3, ""},
        {"soft", "abd->abd", NULL, {.in = {"a=3,b=4,d=5"}}, 1, "ab"},
        {"my_matmul", "mk,kn->mn", NULL, {.in = {"m=5,k=7", "k=7,n=4"}}, 1, "mn"},
        {"my_matmul", "mk,kn->mn", &k, {.in = {"m=5,k=7", "k=7,n=4"}}, 2, "mn"},
        {"my_scale", "...d,d->...d", NULL, {.in = {"a=3,b=5,d=7", "d=7"}}, 1, ".d"},
        {"my_max", "bd->b", NULL, {.in = {"b=5,d=7 distinct"}}, 1, "b"},
    };
    const dtp_kernel soft = {.op = "soft", .run = run_softmax};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_op_set *set = NULL;
        dtp_rule_report report;
        dtp_err err = {0};
        dtp_rule_verify_options o = dtp_rule_verify_options_init();
        dtp_op_case operands = rows[i].operands;
        dtp_custom_op op = dtp_custom_op_init(rows[i].op, rows[i].signature);
        op.n_roles = rows[i].role != NULL ? 1 : 0;
        op.roles = rows[i].role;
        must(dtp_op_set_create(dtp_builtin_ops(), &set, &err), &err);
        must(dtp_custom_op_register(set, &op, &err), &err);
        operands.op = rows[i].op;
        o.n_cases = 1;
        o.cases = &operands;
        o.ops = set;
        o.n_kernels = i < 4 ? 1 : OWN_OPS;
        o.kernels = i < 4 ? &soft : own_ops_kernels;
        must(dtp_rule_verify(dtp_op_set_at(set, 0), &o, &report, &err), &err);
        if (!report.pass || report.rules != rows[i].rules ||
            strcmp(report.parallel, rows[i].parallel) != 0) {
            fail_msg("row %zu: %d rules, parallel '%s'; %s", i, report.rules, report.parallel,
                     report.first_wrong.msg);
        }
        dtp_op_set_destroy(set);
    }
}

/* ... which notices a role that is wrong: the rows of my_reverse are not parallel in d. */
static void test_own_ops__a_wrong_role_is_caught(void **state)
{
    static const dtp_op_case reverse = {.op = "my_reverse", .in = {"a=5,d=4"}};
    static const dtp_op_case dot = {.op = "local_dot", .in = {"a=5,b=7", "a=5,b=7"}};
    static const char *const wrong[] = {"S0,R->R"};
    static const dtp_letter_role parallel_d = {'d', DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    const dtp_op_case *cases[] = {&reverse, &dot};
    static const dtp_attr_spec offset[] = {{.key = "offset", .kind = DTP_ATTR_INT}, {.key = NULL}};
    dtp_custom_op ops[] = {dtp_custom_op_init("my_reverse", "...d->...d"),
                           dtp_custom_op_init("local_dot", "ab,ab->")};
    (void)state;
    ops[0].attrs = offset;
    ops[0].n_roles = 1;
    ops[0].roles = &parallel_d;
    ops[1].n_strategies = 1;
    ops[1].strategies = wrong;
    for (int i = 0; i < 2; i++) {
        dtp_op_set *set = NULL;
        dtp_rule_report report;
        dtp_err err = {0};
        dtp_rule_verify_options o = dtp_rule_verify_options_init();
        must(dtp_op_set_create(dtp_builtin_ops(), &set, &err), &err);
        must(dtp_custom_op_register(set, &ops[i], &err), &err);
        o.n_cases = 1;
        o.cases = cases[i];
        o.n_kernels = OWN_OPS;
        o.kernels = own_ops_kernels;
        must(dtp_rule_verify(dtp_op_set_at(set, 0), &o, &report, &err), &err);
        assert_false(report.pass);
        dtp_op_set_destroy(set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_ops__every_rule_set_equals_one_device),
        cmocka_unit_test(test_own_ops__train_as_the_built_in_ones),
        cmocka_unit_test(test_own_ops__a_whole_dim_cannot_be_split),
        cmocka_unit_test(test_own_ops__are_planned),
        cmocka_unit_test(test_own_ops__opaque_ops_run_in_declared_layouts),
        cmocka_unit_test(test_own_ops__can_be_called_on_distributed_tensors),
        cmocka_unit_test(test_own_ops__kernels_must_be_new),
        cmocka_unit_test(test_own_ops__kernels_are_found_by_dtype),
        cmocka_unit_test(test_own_ops__every_rule_is_verified),
        cmocka_unit_test(test_own_ops__letters_without_a_role_are_whole),
        cmocka_unit_test(test_own_ops__a_wrong_role_is_caught),
        cmocka_unit_test(test_own_ops__a_missing_kernel_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
