/* auto_mtf replay: layout_optimizer_test.py, api_test.py, memory_estimator_test.py and
 * valid_layouts_test.py, with every derived number. */
#include "tests/planner/auto_mtf.h"

#include "planner/mtf/assignments.h"

/* x1=zeros[a:10,b:5]; x2=zeros[b:5,c:20]; n einsums -> [a:10,c:20]; returns the first one. */
static int32_t build_einsums(dtp_mtf_graph *g, int32_t n)
{
    int32_t x1 = zeros(g, "a:10 b:5");
    int32_t x2 = zeros(g, "b:5 c:20");
    int32_t first = einsum2(g, NULL, x1, x2, "a:10 c:20");
    for (int32_t i = 1; i < n; i++) {
        (void)einsum2(g, NULL, x1, x2, "a:10 c:20");
    }
    return first;
}

static const char *const worse[] = {"a:m1;b:m2", "a:m1;c:m2", "b:m1;a:m2", "b:m1;c:m2",
                                    "c:m1;b:m2"};
static const int64_t worse_values[] = {428, 352, 528, 504, 352};

static void check_einsum_values(const dtp_mtf_problem *p)
{
    for (size_t i = 0; i < sizeof worse / sizeof worse[0]; i++) {
        assert_int_equal(value_of(p, worse[i]), worse_values[i]);
        assert_true(value_of(p, "a:m2;c:m1") <= value_of(p, worse[i]));
    }
    assert_int_equal(value_of(p, "a:m2;c:m1"), 300);
    assert_int_equal(value_of(p, "c:m1;a:m2"), 300);
}

static void test_auto_mtf__variable_names(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    const char *hidden_first[] = {"hidden", "channel"};
    const char *channel_first[] = {"channel", "hidden"};
    const char *xy[] = {"x", "y"};
    const char *y_only[] = {"y", NULL};
    assert_string_equal(dtp_mtf_global_name(arena, "cake", "lie"), "x_(cake:lie)");
    assert_string_equal(dtp_mtf_local_name(arena, 0, NULL, NULL), "y_()");
    assert_string_equal(dtp_mtf_local_name(arena, 2, hidden_first, xy), "y_(channel:y,hidden:x)");
    assert_string_equal(dtp_mtf_local_name(arena, 2, channel_first, y_only),
                        "y_(channel:y,hidden)");
    dtp_arena_destroy(arena);
}

static bool has_row(const int8_t *rows, int32_t n, const int8_t row[3])
{
    for (int32_t r = 0; r < n; r++) {
        if (memcmp(&rows[r * 3], row, 3) == 0) {
            return true;
        }
    }
    return false;
}

/* s1, s2, s3 on m1, m2. */
static void test_auto_mtf__assignments(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    int8_t *rows = NULL;
    int32_t n = 0;
    assert_int_equal(dtp_assignments_make(arena, 3, 2, 1000, &rows, &n, NULL), DTP_OK);
    assert_int_equal(n, 13);
    assert_true(has_row(rows, n, (const int8_t[]){-1, -1, -1}));
    assert_true(has_row(rows, n, (const int8_t[]){-1, -1, 1}));
    assert_true(has_row(rows, n, (const int8_t[]){1, 0, -1}));
    assert_false(has_row(rows, n, (const int8_t[]){1, -1, 1}));
    for (int32_t a = 0; a < n; a++) {
        for (int32_t b = 0; b < a; b++) {
            assert_true(memcmp(&rows[a * 3], &rows[b * 3], 3) != 0);
        }
    }
    dtp_arena_destroy(arena);
}

static void test_auto_mtf__assignment_counts(void **state)
{
    (void)state;
    static const int32_t table[][3] = {{2, 2, 7},   {3, 2, 13},   {3, 3, 34},    {4, 2, 21},
                                       {4, 3, 73},  {5, 3, 136},  {6, 3, 229},   {8, 2, 73},
                                       {8, 3, 529}, {10, 2, 111}, {10, 3, 1021}, {10, 4, 8501}};
    dtp_arena *arena = dtp_arena_create();
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int8_t *rows = NULL;
        int32_t n = 0;
        assert_int_equal(dtp_assignments_count(table[i][0], table[i][1]), table[i][2]);
        assert_int_equal(
            dtp_assignments_make(arena, table[i][0], table[i][1], 10000, &rows, &n, NULL), DTP_OK);
        assert_int_equal(n, table[i][2]);
    }
    assert_int_equal(dtp_assignments_make(arena, 40, 6, 1000, NULL, NULL, NULL), DTP_RANGE);
    dtp_arena_destroy(arena);
}

static void test_auto_mtf__optimize_layout(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    (void)build_einsums(g, 1);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2");
    assert_int_equal(p->n_dims, 3);
    assert_int_equal(p->gcd[0], 10);
    assert_int_equal(p->gcd[1], 5);
    assert_int_equal(p->gcd[2], 20);
    assert_int_equal(p->n_op_sets, 3);
    assert_int_equal(p->n_sets, 4);
    int32_t local = 0;
    for (int32_t d = 0; d < p->n_sets; d++) {
        local += p->sets[d].n_maps;
    }
    assert_int_equal(local, 34);
    assert_int_equal(p->n_variables, 41);
    assert_int_equal(p->upper_bound, 1400);
    assert_order(p->order, 3, (const int32_t[]){0, 1, 2});
    assert_freed(p->freed, 3, (const int64_t[]){-200, -400, 600});
    assert_live(&p->live, 0, 1, (const int32_t[]){0});
    assert_live(&p->live, 1, 2, (const int32_t[]){0, 1});
    assert_live(&p->live, 2, 3, (const int32_t[]){0, 1, 2});
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_string_equal(s.layout, "a:m2;c:m1");
    assert_int_equal(s.peak, 300);
    assert_int_equal(s.objective, 4 * 300 - 2);
    check_einsum_values(p);
    assert_int_equal(value_of(p, ""), 1400);
    assert_int_equal(value_of(p, "nosuch:m1"), 1400);
    int64_t peak = 0;
    assert_int_equal(dtp_mtf_evaluate(p, "a:m9", &peak, NULL), DTP_INVALID);
    assert_int_equal(dtp_mtf_evaluate(p, "am1", &peak, NULL), DTP_INVALID);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__optimize_layout_repetition(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    (void)build_einsums(g, 100);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2");
    assert_int_equal(g->n_ops, 102);
    assert_int_equal(p->n_variables, 41);
    assert_int_equal(p->upper_bound, 80600);
    assert_order(p->order, 6, (const int32_t[]){0, 1, 2, 3, 12, 13});
    assert_string_equal(g->ops[12].name, "einsum_10");
    for (int32_t step = 2; step < 101; step++) {
        int32_t out = g->ops[p->order[step]].out[0];
        assert_live(&p->live, step, 3, (const int32_t[]){0, 1, out});
    }
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_string_equal(s.layout, "a:m2;c:m1");
    assert_int_equal(s.peak, 300);
    assert_int_equal(s.objective, 1198);
    check_einsum_values(p);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__optimize_layout_unsplittable(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    int32_t x1 = zeros(g, "a:10 b:5");
    int32_t x2 = zeros(g, "b:5 c:20");
    int32_t out = -1;
    assert_int_equal(dtp_mtf_unstack(g, NULL, x1, "a", &out, NULL), DTP_OK);
    assert_int_equal(dtp_mtf_unstack(g, NULL, x2, "c", &out, NULL), DTP_OK);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2");
    assert_int_equal(p->n_dims, 1);
    assert_string_equal(p->dims[0], "b");
    assert_order(p->order, 4, (const int32_t[]){0, 2, 1, 3});
    assert_string_equal(g->ops[1].name, "constant_1");
    assert_string_equal(g->ops[2].name, "unstack");
    assert_string_equal(g->ops[3].name, "unstack_1");
    assert_freed(p->freed, 4, (const int64_t[]){-200, 200, -400, 400});
    assert_int_equal(p->n_variables, 6);
    assert_int_equal(p->n_sets, 1);
    assert_int_equal(p->upper_bound, 1200);
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_string_equal(s.layout, "");
    assert_int_equal(s.peak, 800);
    assert_int_equal(s.objective, 2 * 800);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__optimize_layout_tiebreak(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    (void)build_einsums(g, 1);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2 m3:1");
    assert_int_equal(p->n_variables, 9 + 73 + 1);
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_string_equal(s.layout, "a:m2;b:m3;c:m1");
    assert_int_equal(s.peak, 300);
    assert_int_equal(s.objective, 4 * 300 - 3);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__api_layout(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    dtp_mtf_set_final(g, build_einsums(g, 1));
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2");
    assert_freed(p->freed, 3, (const int64_t[]){-200, -400, -200});
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_int_equal(s.split[dtp_mtf_problem_find_dim(p, "a")], 1);
    assert_int_equal(s.split[dtp_mtf_problem_find_dim(p, "b")], -1);
    assert_int_equal(s.split[dtp_mtf_problem_find_dim(p, "c")], 0);
    assert_int_equal(s.peak, 300);
    assert_int_equal(s.objective, 1198);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

static void test_auto_mtf__api_layout_and_mesh_shape(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_mtf_graph *g = graph_new();
    dtp_mtf_set_final(g, build_einsums(g, 1));
    dtp_mtf_choice c;
    char text[DTP_MESH_TEXT_BYTES];
    assert_int_equal(dtp_mtf_layout_and_mesh_shape(g, 8, 2, arena, &c, NULL), DTP_OK);
    dtp_mesh_print(&c.mesh, text);
    assert_string_equal(text, "mesh_0:4;mesh_1:2");
    assert_string_equal(c.layout, "a:mesh_1;c:mesh_0");
    assert_int_equal(c.peak, 300);
    assert_int_equal(dtp_mtf_layout_and_mesh_shape(g, 8, 0, arena, &c, NULL), DTP_OK);
    assert_int_equal(c.peak, 300);
    assert_int_equal(c.mesh.n_dims, 2);
    assert_int_equal(dtp_mtf_layout_and_mesh_shape(g, 8, 1, arena, &c, NULL), DTP_OK);
    dtp_mesh_print(&c.mesh, text);
    assert_string_equal(text, "mesh_0:8");
    assert_string_equal(c.layout, "");
    assert_int_equal(c.peak, 1400);
    assert_int_equal(c.objective, 5600);
    assert_int_equal(dtp_mtf_layout_and_mesh_shape(g, 6, 2, arena, &c, NULL), DTP_INVALID);
    dtp_mtf_graph_destroy(g);
    dtp_arena_destroy(arena);
}

/* All 64 maps of a, b, c to three mesh dims of size 2 or nowhere: the optimum, and how many reach
 * it. */
static void test_auto_mtf__three_mesh_dims_have_six_tied_layouts(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    dtp_mtf_set_final(g, build_einsums(g, 1));
    dtp_mtf_problem *p = problem_new(g, "mesh_0:2 mesh_1:2 mesh_2:2");
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_int_equal(s.peak, 500);
    int32_t tied = 0;
    for (int32_t code = 0; code < 64; code++) {
        int8_t split[3] = {(int8_t)(code % 4 - 1), (int8_t)(code / 4 % 4 - 1),
                           (int8_t)(code / 16 - 1)};
        bool clash = (split[0] >= 0 && (split[0] == split[1] || split[0] == split[2])) ||
                     (split[1] >= 0 && split[1] == split[2]);
        bool legal = !clash && split[1] < 0; /* b of size 5 does not divide by 2 */
        int32_t n_split = (split[0] >= 0 ? 1 : 0) + (split[2] >= 0 ? 1 : 0);
        if (legal) {
            assert_true(4 * dtp_mtf_peak(p, split) - n_split >= s.objective);
            tied += 4 * dtp_mtf_peak(p, split) - n_split == s.objective ? 1 : 0;
        }
    }
    assert_int_equal(tied, 6);
    assert_string_equal(s.layout, "a:mesh_0;c:mesh_1");
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

/* memory_estimator_test.py */
static void test_auto_mtf__memory_estimator(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    int32_t x = constant(g, "X", DTP_I32, "a:3 b:4");
    int32_t y = constant(g, "Y", DTP_I32, "b:4 c:5");
    int32_t z = einsum2(g, "Z", x, y, "a:3 c:5");
    dtp_mtf_set_final(g, z);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:3");
    assert_int_equal(p->n_dims, 3);
    assert_string_equal(p->dims[0], "a");
    assert_string_equal(p->dims[1], "b");
    assert_string_equal(p->dims[2], "c");
    assert_false(dtp_mtf_is_valid_assignment(p, "a", "m1"));
    assert_true(dtp_mtf_is_valid_assignment(p, "a", "m2"));
    assert_int_equal(g->n_ops, 3);
    assert_string_equal(g->ops[0].name, "X");
    assert_string_equal(g->ops[1].name, "Y");
    assert_string_equal(g->ops[2].name, "Z");
    assert_int_equal(g->tensors[x].shape.dims[0].size, 3);
    assert_int_equal(g->tensors[x].shape.dims[1].size, 4);
    assert_int_equal(g->tensors[z].shape.dims[0].size, 3);
    assert_int_equal(g->tensors[z].shape.dims[1].size, 5);
    assert_false(g->tensors[dtp_mtf_find_tensor(g, "Y:0")].final);
    assert_true(g->tensors[dtp_mtf_find_tensor(g, "Z:0")].final);
    assert_int_equal(value_of(p, ""), 188);
    dtp_mtf_solution s;
    assert_int_equal(dtp_mtf_solve(p, &s, NULL), DTP_OK);
    assert_string_equal(s.layout, "a:m2;b:m1");
    assert_int_equal(s.peak, 44);
    assert_int_equal(s.objective, 4 * 44 - 2);
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

/* valid_layouts_test.py */
static void test_auto_mtf__valid_layouts(void **state)
{
    (void)state;
    dtp_mtf_graph *g = graph_new();
    int32_t in[2] = {zeros(g, "a:5 b:10 concat:15"), zeros(g, "a:5 b:10 concat:20")};
    int32_t out = -1;
    assert_int_equal(dtp_mtf_concat(g, NULL, 2, in, "concat", &out, NULL), DTP_OK);
    assert_int_equal(g->tensors[out].shape.dims[2].size, 35);
    dtp_mtf_shape anonymous = dtp_mtf_anonymous_shape(2, (const int64_t[]){5, 10});
    assert_int_equal(dtp_mtf_constant(g, NULL, DTP_F32, &anonymous, &out, NULL), DTP_OK);
    dtp_mtf_problem *p = problem_new(g, "m1:4 m2:2");
    assert_int_equal(p->n_dims, 2);
    assert_string_equal(p->dims[0], "a");
    assert_string_equal(p->dims[1], "b");
    assert_int_equal(p->mesh.sizes[dtp_mesh_find(&p->mesh, "m1")], 4);
    assert_int_equal(p->mesh.sizes[dtp_mesh_find(&p->mesh, "m2")], 2);
    assert_true(dtp_mtf_is_valid_assignment(p, "b", "m2"));
    assert_false(dtp_mtf_is_valid_assignment(p, "a", "m1"));
    assert_false(dtp_mtf_is_valid_assignment(p, "a", "m2"));
    assert_false(dtp_mtf_is_valid_assignment(p, "b", "m1"));
    assert_false(dtp_mtf_is_valid_assignment(p, "concat", "m1"));
    assert_false(dtp_mtf_is_valid_assignment(p, "concat", "m2"));
    dtp_mtf_problem_destroy(p);
    dtp_mtf_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_mtf__variable_names),
        cmocka_unit_test(test_auto_mtf__assignments),
        cmocka_unit_test(test_auto_mtf__assignment_counts),
        cmocka_unit_test(test_auto_mtf__optimize_layout),
        cmocka_unit_test(test_auto_mtf__optimize_layout_repetition),
        cmocka_unit_test(test_auto_mtf__optimize_layout_unsplittable),
        cmocka_unit_test(test_auto_mtf__optimize_layout_tiebreak),
        cmocka_unit_test(test_auto_mtf__api_layout),
        cmocka_unit_test(test_auto_mtf__api_layout_and_mesh_shape),
        cmocka_unit_test(test_auto_mtf__three_mesh_dims_have_six_tied_layouts),
        cmocka_unit_test(test_auto_mtf__memory_estimator),
        cmocka_unit_test(test_auto_mtf__valid_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
