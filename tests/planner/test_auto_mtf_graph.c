/* auto_mtf replay: graph_interface_test.py, scheduler_test.py, the mesh shape iterator, operation
 * names. */
#include "tests/planner/auto_mtf.h"

/* X const int32 [a:3,b:4]; Y const int32 [b:4,c:5]; Z1, Z2 = einsum(X,Y) -> [a:3,c:5]. */
static dtp_mtf_graph *graph_g(void)
{
    dtp_mtf_graph *g = graph_new();
    int32_t x = constant(g, "X", DTP_I32, "a:3 b:4");
    int32_t y = constant(g, "Y", DTP_I32, "b:4 c:5");
    (void)einsum2(g, "Z1", x, y, "a:3 c:5");
    (void)einsum2(g, "Z2", x, y, "a:3 c:5");
    return g;
}

/* The same as a plain TensorFlow graph: dims without names, every operation on one device. */
static dtp_mtf_graph *graph_g_plain(void)
{
    static const char *const names[] = {"X", "Y", "Z1", "Z2"};
    static const int64_t sizes[][2] = {{3, 4}, {4, 5}, {3, 5}, {3, 5}};
    dtp_mtf_graph *g = graph_new();
    g->canonical_device = "/device:CPU:0";
    for (int32_t i = 0; i < 4; i++) {
        dtp_mtf_shape shape = {.n = 2, .dims = {{NULL, sizes[i][0]}, {NULL, sizes[i][1]}}};
        int32_t in[2] = {0, 1};
        dtp_mtf_op_spec spec = {.name = names[i],
                                .device = "/device:CPU:0",
                                .n_in = i < 2 ? 0 : 2,
                                .in = in,
                                .n_out = 1,
                                .out = &shape,
                                .dtype = DTP_I32};
        assert_int_equal(dtp_mtf_add_op(g, &spec, NULL, NULL), DTP_OK);
    }
    return g;
}

static void check_graph_g(const dtp_mtf_graph *g)
{
    static const char *const names[] = {"X", "Y", "Z1", "Z2"};
    static const char *const outputs[] = {"X:0", "Y:0", "Z1:0", "Z2:0"};
    static const int64_t shapes[][2] = {{3, 4}, {4, 5}, {3, 5}, {3, 5}};
    static const int64_t entries[] = {12, 20, 15, 15};
    assert_int_equal(g->n_ops, 4);
    assert_int_equal(g->n_tensors, 4);
    for (int32_t i = 0; i < 4; i++) {
        assert_string_equal(g->ops[i].name, names[i]);
        assert_int_equal(g->ops[i].n_in, i < 2 ? 0 : 2);
        assert_int_equal(g->ops[i].n_out, 1);
        assert_string_equal(g->tensors[g->ops[i].out[0]].name, outputs[i]);
        assert_string_equal(g->tensors[i].name, outputs[i]);
        assert_int_equal(g->tensors[i].dtype, DTP_I32);
        assert_int_equal(g->tensors[i].shape.n, 2);
        assert_int_equal(g->tensors[i].shape.dims[0].size, shapes[i][0]);
        assert_int_equal(g->tensors[i].shape.dims[1].size, shapes[i][1]);
        assert_int_equal(g->tensors[i].bytes, entries[i] * 4);
        assert_true(dtp_mtf_on_canonical_device(g, i));
    }
    for (int32_t i = 2; i < 4; i++) {
        assert_string_equal(g->tensors[g->ops[i].in[0]].name, "X:0");
        assert_string_equal(g->tensors[g->ops[i].in[1]].name, "Y:0");
    }
}

static void test_auto_mtf__graph_contents(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_g();
    dtp_mtf_graph *plain = graph_g_plain();
    check_graph_g(g);
    check_graph_g(plain);
    for (int32_t i = 0; i < 4; i++) {
        assert_null(g->tensors[i].device);
        assert_string_equal(plain->tensors[i].device, "/device:CPU:0");
        assert_null(plain->tensors[i].shape.dims[0].name);
    }
    dtp_mtf_graph_destroy(plain);
    dtp_mtf_graph_destroy(g);
}

/* The dim names of an operation are those of its inputs and outputs. */
static void test_auto_mtf__dim_names(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_g();
    dtp_mtf_problem *p = problem_new(g, "m1:1");
    static const char *const tensor_dims[] = {"ab", "bc", "ac", "ac"};
    for (int32_t t = 0; t < 4; t++) {
        for (int32_t i = 0; i < 2; i++) {
            char name[2] = {tensor_dims[t][i], '\0'};
            assert_int_equal(dtp_mtf_shape_find(&g->tensors[t].shape, name), i);
        }
    }
    /* Sets of the operations X, Y, Z1 = Z2 in order: {a,b} {b,c} {a,b,c}. */
    assert_int_equal(p->n_op_sets, 3);
    assert_int_equal(p->sets[0].n, 2);
    assert_order(p->sets[0].dims, 2, (const int32_t[]){0, 1});
    assert_int_equal(p->sets[1].n, 2);
    assert_order(p->sets[1].dims, 2, (const int32_t[]){1, 2});
    assert_int_equal(p->sets[2].n, 3);
    assert_order(p->sets[2].dims, 3, (const int32_t[]){0, 1, 2});
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph *plain = graph_g_plain();
    p = problem_new(plain, "m1:2");
    assert_int_equal(p->n_dims, 0);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(plain);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__live_sets(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_g();
    dtp_mtf_set_final(g, dtp_mtf_find_tensor(g, "Z1:0"));
    dtp_mtf_live live;
    assert_int_equal(dtp_mtf_live_sets(g, (const int32_t[]){0, 1, 2, 3}, g->arena, &live, NULL),
                     DTP_OK);
    assert_live(&live, 0, 1, (const int32_t[]){0});
    assert_live(&live, 1, 2, (const int32_t[]){0, 1});
    assert_live(&live, 2, 3, (const int32_t[]){0, 1, 2});
    assert_live(&live, 3, 4, (const int32_t[]){0, 1, 2, 3});
    assert_int_equal(dtp_mtf_live_sets(g, (const int32_t[]){0, 1, 3, 2}, g->arena, &live, NULL),
                     DTP_OK);
    assert_live(&live, 0, 1, (const int32_t[]){0});
    assert_live(&live, 1, 2, (const int32_t[]){0, 1});
    assert_live(&live, 2, 3, (const int32_t[]){0, 1, 3});
    assert_live(&live, 3, 3, (const int32_t[]){0, 1, 2});
    dtp_mtf_graph_destroy(g);
}

static void check_cost_graph(dtp_mtf_graph *g, int32_t n_devices, const char *const *devices,
                             bool counted)
{
    static const int64_t bytes[] = {48, 80, 60, 60};
    const dtp_mtf_cost_node *nodes = NULL;
    assert_int_equal(dtp_mtf_cost_graph(g, n_devices, devices, &nodes, NULL), DTP_OK);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(nodes[i].id, i);
        assert_int_equal(nodes[i].n_out, 1);
        assert_int_equal(nodes[i].out[0].bytes, counted ? bytes[i] : 0);
        assert_int_equal(nodes[i].out[0].has_shape, counted);
        assert_int_equal(nodes[i].out[0].dtype, DTP_I32);
        assert_int_equal(nodes[i].out[0].alias_input_port, -1);
        assert_int_equal(nodes[i].is_final, i == 2);
        assert_int_equal(nodes[i].n_in, i < 2 ? 0 : 2);
        for (int32_t k = 0; k < nodes[i].n_in; k++) {
            assert_int_equal(nodes[i].in[k].preceding_node, k);
            assert_int_equal(nodes[i].in[k].preceding_port, 0);
        }
    }
}

static void test_auto_mtf__cost_graph(void **state)
{
    (void)state;
    static const char *const cpu[] = {"/device:CPU:0"};
    static const char *const none[] = {NULL};
    dtp_mtf_graph *g = graph_g();
    dtp_mtf_graph *plain = graph_g_plain();
    dtp_mtf_set_final(g, dtp_mtf_find_tensor(g, "Z1:0"));
    dtp_mtf_set_final(plain, dtp_mtf_find_tensor(plain, "Z1:0"));
    check_cost_graph(g, 0, NULL, true);
    check_cost_graph(g, 1, cpu, true);
    check_cost_graph(g, 0, none, true);
    check_cost_graph(plain, 0, NULL, true);
    check_cost_graph(plain, 1, cpu, true);
    check_cost_graph(plain, 0, none, false);
    const dtp_mtf_cost_node *nodes = NULL;
    assert_int_equal(dtp_mtf_cost_graph(g, 0, NULL, &nodes, NULL), DTP_OK);
    assert_null(nodes[0].device);
    assert_int_equal(dtp_mtf_cost_graph(plain, 0, NULL, &nodes, NULL), DTP_OK);
    assert_string_equal(nodes[0].device, "/device:CPU:0");
    dtp_mtf_graph_destroy(plain);
    dtp_mtf_graph_destroy(g);
}

/* The counterpart of "constructing from a string raises TypeError". */
static void test_auto_mtf__no_graph_is_refused(void **state)
{
    (void)state;
    dtp_mtf_graph *g = NULL;
    assert_int_equal(dtp_mtf_from_graph(NULL, &g, NULL), DTP_INVALID);
    assert_null(g);
}

/* A tensor on another device than the canonical one counts nothing. */
static void test_auto_mtf__other_devices_count_nothing(void **state)
{
    (void)state;
    dtp_mtf_graph *plain = graph_g_plain();
    plain->canonical_device = "/device:CPU:1";
    dtp_mtf_problem *p = problem_new(plain, "m1:2");
    assert_int_equal(p->upper_bound, 0);
    assert_int_equal(value_of(p, ""), 0);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(plain);
}

/* ---- scheduler_test.py ---- */

static void schedule(const dtp_mtf_graph *g, dtp_mtf_scheduler alg, int32_t n,
                     const int32_t *expected, const int64_t *freed)
{
    int32_t order[16];
    int64_t credited[16];
    assert_int_equal(g->n_ops, n);
    assert_int_equal(dtp_mtf_schedule(g, alg, order, credited, NULL), DTP_OK);
    assert_order(order, n, expected);
    if (freed != NULL) {
        assert_freed(credited, n, freed);
    }
}

static void live_bytes(dtp_mtf_graph *g, dtp_mtf_scheduler alg, const int64_t *expected)
{
    int32_t order[16];
    dtp_mtf_live live;
    assert_int_equal(dtp_mtf_schedule(g, alg, order, NULL, NULL), DTP_OK);
    assert_int_equal(dtp_mtf_live_sets(g, order, g->arena, &live, NULL), DTP_OK);
    for (int32_t step = 0; step < live.n_steps; step++) {
        int64_t sum = 0;
        for (int32_t k = live.first[step]; k < live.first[step + 1]; k++) {
            sum += g->tensors[live.tensors[k]].bytes;
        }
        assert_int_equal(sum, expected[step]);
    }
}

static void test_auto_mtf__schedule_is_a_topological_order(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_g();
    dtp_mtf_set_final(g, 2);
    dtp_mtf_set_final(g, 3);
    schedule(g, DTP_MTF_NAIVE, 4, (const int32_t[]){0, 1, 2, 3}, NULL);
    schedule(g, DTP_MTF_LIST, 4, (const int32_t[]){0, 1, 2, 3},
             (const int64_t[]){-48, -80, -60, -60});
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__list_minimizes_peak_memory(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    int32_t x = constant(g, "X", DTP_I32, "a:3 b:4");
    int32_t y = constant(g, "Y", DTP_I32, "b:4 c:5");
    int32_t z = einsum2(g, "Z", x, y, "a:3 b:4 c:5");
    int32_t w = einsum2(g, "W", x, y, "a:3 c:5");
    int32_t v = broadcast(g, "V", w, "a:3 b:4 c:5");
    dtp_mtf_set_final(g, z);
    dtp_mtf_set_final(g, v);
    schedule(g, DTP_MTF_LIST, 5, (const int32_t[]){0, 1, 3, 2, 4},
             (const int64_t[]){-48, -80, -60, -112, -180});
    live_bytes(g, DTP_MTF_LIST, (const int64_t[]){48, 128, 188, 428, 540});
    live_bytes(g, DTP_MTF_NAIVE, (const int64_t[]){48, 128, 368, 428, 540});
    dtp_mtf_graph_destroy(g);
}

static dtp_mtf_graph *graph_xyz(void)
{
    dtp_mtf_graph *g = graph_new();
    (void)constant(g, "X", DTP_I32, "a:4");
    int32_t y = constant(g, "Y", DTP_I32, "b:3");
    (void)broadcast(g, "Z", y, "b:3 c:2");
    return g;
}

static void test_auto_mtf__single_use_tensor(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_xyz();
    dtp_mtf_set_final(g, 0);
    dtp_mtf_set_final(g, 2);
    schedule(g, DTP_MTF_LIST, 3, (const int32_t[]){1, 2, 0}, (const int64_t[]){-12, -12, -16});
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__zero_use_tensor(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_xyz();
    schedule(g, DTP_MTF_LIST, 3, (const int32_t[]){0, 1, 2}, (const int64_t[]){0, -12, 12});
    dtp_mtf_graph_destroy(g);
}

/* The credit of an input's last reader hangs on the output of the operation just scheduled: P
 * (final) and Q read X; scheduling P gives Q no credit although X is not final, scheduling Q first
 * gives P credit. */
static void test_auto_mtf__credit_follows_the_last_output(void **state)
{
    (void)state;
    for (int32_t final = 0; final < 2; final++) {
        dtp_mtf_graph *g = graph_new();
        int32_t x = constant(g, "X", DTP_I32, "a:100");
        int32_t p = broadcast(g, "P", x, "b:1");
        (void)broadcast(g, "Q", x, "b:2");
        int32_t r = broadcast(g, "R", p, "b:1");
        dtp_mtf_set_final(g, r);
        if (final != 0) {
            dtp_mtf_set_final(g, p);
        }
        /* X -400; Q costs 0 and goes first; its output is not final, so P is credited 400 - 4. */
        schedule(g, DTP_MTF_LIST, 4, (const int32_t[]){0, 2, 1, 3},
                 final != 0 ? (const int64_t[]){-400, 0, 396, -4}
                            : (const int64_t[]){-400, 0, 396, 0});
        dtp_mtf_graph_destroy(g);
    }
    dtp_mtf_graph *g = graph_new();
    int32_t x = constant(g, "X", DTP_I32, "a:100");
    int32_t p = broadcast(g, "P", x, "b:1");
    int32_t q = broadcast(g, "Q", x, "b:2");
    dtp_mtf_set_final(g, p);
    dtp_mtf_set_final(g, q);
    /* P (-4) before Q (-8); P's output is final, so Q keeps -8. */
    schedule(g, DTP_MTF_LIST, 3, (const int32_t[]){0, 1, 2}, (const int64_t[]){-400, -4, -8});
    dtp_mtf_graph_destroy(g);
}

/* ---- mesh shapes ---- */

static void check_shapes(int64_t machines, int32_t cap, const char *expected)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_mesh_shape *shapes = NULL;
    int32_t n = 0;
    char text[1024] = "";
    size_t used = 0;
    assert_int_equal(dtp_mtf_mesh_shapes(machines, cap, arena, &shapes, &n, NULL), DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < shapes[i].n; k++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", k > 0 ? "," : "",
                                     (long long)shapes[i].sizes[k]);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, " ");
    }
    assert_string_equal(text, expected);
    dtp_arena_destroy(arena);
}

static void test_auto_mtf__mesh_shape_iterator(void **state)
{
    (void)state;
    check_shapes(1, 0, "1 ");
    check_shapes(2, 0, "2 ");
    check_shapes(4, 0, "4 2,2 ");
    check_shapes(8, 0, "8 4,2 2,2,2 ");
    check_shapes(
        512, 0,
        "512 256,2 128,4 128,2,2 64,8 64,4,2 64,2,2,2 32,16 32,8,2 32,4,4 32,4,2,2 "
        "32,2,2,2,2 16,16,2 16,8,4 16,8,2,2 16,4,4,2 16,4,2,2,2 16,2,2,2,2,2 8,8,8 8,8,4,2 "
        "8,8,2,2,2 8,4,4,4 8,4,4,2,2 8,4,2,2,2,2 8,2,2,2,2,2,2 4,4,4,4,2 4,4,4,2,2,2 "
        "4,4,2,2,2,2,2 4,2,2,2,2,2,2,2 2,2,2,2,2,2,2,2,2 ");
    check_shapes(512, 1, "512 ");
    check_shapes(512, 2, "512 256,2 128,4 64,8 32,16 ");
    check_shapes(1024, 2, "1024 512,2 256,4 128,8 64,16 32,32 ");
}

static void test_auto_mtf__mesh_shapes_need_a_power_of_two(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_mesh_shape *shapes = NULL;
    int32_t n = 0;
    assert_int_equal(dtp_mtf_mesh_shapes(6, 0, arena, &shapes, &n, NULL), DTP_INVALID);
    assert_int_equal(dtp_mtf_mesh_shapes(0, 0, arena, &shapes, &n, NULL), DTP_INVALID);
    dtp_arena_destroy(arena);
}

/* ---- operation names ---- */

static void check_names(int32_t n, const char *const *asked, const char *const *expected)
{
    dtp_mtf_graph *g = graph_new();
    for (int32_t i = 0; i < n; i++) {
        const char *name = NULL;
        assert_int_equal(dtp_mtf_unique_name(g, asked[i], &name, NULL), DTP_OK);
        assert_string_equal(name, expected[i]);
    }
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__unique_names(void **state)
{
    (void)state;
    check_names(3, (const char *const[]){"a", "a", "a"}, (const char *const[]){"a", "a_1", "a_2"});
    check_names(3, (const char *const[]){"a", "a", "a_1"},
                (const char *const[]){"a", "a_1", "a_1_1"});
    check_names(3, (const char *const[]){"a", "a_1", "a"},
                (const char *const[]){"a", "a_1", "a_2"});
    check_names(2, (const char *const[]){"a", "A"}, (const char *const[]){"a", "A_1"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_mtf__graph_contents),
        cmocka_unit_test(test_auto_mtf__dim_names),
        cmocka_unit_test(test_auto_mtf__live_sets),
        cmocka_unit_test(test_auto_mtf__cost_graph),
        cmocka_unit_test(test_auto_mtf__no_graph_is_refused),
        cmocka_unit_test(test_auto_mtf__other_devices_count_nothing),
        cmocka_unit_test(test_auto_mtf__schedule_is_a_topological_order),
        cmocka_unit_test(test_auto_mtf__list_minimizes_peak_memory),
        cmocka_unit_test(test_auto_mtf__single_use_tensor),
        cmocka_unit_test(test_auto_mtf__zero_use_tensor),
        cmocka_unit_test(test_auto_mtf__credit_follows_the_last_output),
        cmocka_unit_test(test_auto_mtf__mesh_shape_iterator),
        cmocka_unit_test(test_auto_mtf__mesh_shapes_need_a_power_of_two),
        cmocka_unit_test(test_auto_mtf__unique_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
