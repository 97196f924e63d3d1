/* auto_mtf replay: graph_interface_test.py, scheduler_test.py, operation names. */
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
    check_graph_g(g);
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
            assert_int_equal(g->tensors[t].shape.dims[i].name[0], tensor_dims[t][i]);
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
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__live_sets(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_g();
    set_final(g, find_tensor(g, "Z1:0"));
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

/* The counterpart of "constructing from a string raises TypeError". */
static void test_auto_mtf__no_graph_is_refused(void **state)
{
    (void)state;
    dtp_mtf_graph *g = NULL;
    assert_int_equal(dtp_mtf_from_graph(NULL, &g, NULL), DTP_INVALID);
    assert_null(g);
}

/* ---- scheduler_test.py ---- */

static void schedule(const dtp_mtf_graph *g, int32_t n, const int32_t *expected,
                     const int64_t *freed)
{
    int32_t order[16];
    int64_t credited[16];
    assert_int_equal(g->n_ops, n);
    assert_int_equal(dtp_mtf_schedule(g, order, credited, NULL), DTP_OK);
    assert_order(order, n, expected);
    assert_freed(credited, n, freed);
}

static void live_bytes(dtp_mtf_graph *g, const int32_t *order, const int64_t *expected)
{
    dtp_mtf_live live;
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
    set_final(g, 2);
    set_final(g, 3);
    schedule(g, 4, (const int32_t[]){0, 1, 2, 3}, (const int64_t[]){-48, -80, -60, -60});
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
    set_final(g, z);
    set_final(g, v);
    schedule(g, 5, (const int32_t[]){0, 1, 3, 2, 4}, (const int64_t[]){-48, -80, -60, -112, -180});
    live_bytes(g, (const int32_t[]){0, 1, 3, 2, 4}, (const int64_t[]){48, 128, 188, 428, 540});
    live_bytes(g, (const int32_t[]){0, 1, 2, 3, 4}, (const int64_t[]){48, 128, 368, 428, 540});
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
    set_final(g, 0);
    set_final(g, 2);
    schedule(g, 3, (const int32_t[]){1, 2, 0}, (const int64_t[]){-12, -12, -16});
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__zero_use_tensor(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_xyz();
    schedule(g, 3, (const int32_t[]){0, 1, 2}, (const int64_t[]){0, -12, 12});
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
        set_final(g, r);
        if (final != 0) {
            set_final(g, p);
        }
        /* X -400; Q costs 0 and goes first; its output is not final, so P is credited 400 - 4. */
        schedule(g, 4, (const int32_t[]){0, 2, 1, 3},
                 final != 0 ? (const int64_t[]){-400, 0, 396, -4}
                            : (const int64_t[]){-400, 0, 396, 0});
        dtp_mtf_graph_destroy(g);
    }
    dtp_mtf_graph *g = graph_new();
    int32_t x = constant(g, "X", DTP_I32, "a:100");
    int32_t p = broadcast(g, "P", x, "b:1");
    int32_t q = broadcast(g, "Q", x, "b:2");
    set_final(g, p);
    set_final(g, q);
    /* P (-4) before Q (-8); P's output is final, so Q keeps -8. */
    schedule(g, 3, (const int32_t[]){0, 1, 2}, (const int64_t[]){-400, -4, -8});
    dtp_mtf_graph_destroy(g);
}

/* ---- operation names ---- */

static void check_names(int32_t n, const char *const *asked, const char *const *expected)
{
    dtp_mtf_graph *g = graph_new();
    for (int32_t i = 0; i < n; i++) {
        (void)constant(g, asked[i], DTP_F32, "a:1");
        assert_string_equal(g->ops[i].name, expected[i]);
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
        cmocka_unit_test(test_auto_mtf__no_graph_is_refused),
        cmocka_unit_test(test_auto_mtf__schedule_is_a_topological_order),
        cmocka_unit_test(test_auto_mtf__list_minimizes_peak_memory),
        cmocka_unit_test(test_auto_mtf__single_use_tensor),
        cmocka_unit_test(test_auto_mtf__zero_use_tensor),
        cmocka_unit_test(test_auto_mtf__credit_follows_the_last_output),
        cmocka_unit_test(test_auto_mtf__unique_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
