/* Reading and writing selection problems: refused files, compressed files, round trips, and the
 * exported integer program solved by GLPK alone. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <glpk.h>
#include <zlib.h>

#include "tests/support/bad_files.h"
#include "core/files/file_out.h"
#include "planner/problem/read.h"
#include "planner/solver/solve.h"
#include "planner/problem/write.h"

#define EXAMPLE DTP_SOURCE_DIR "/models/selection/example.json"
enum { EXAMPLE_OPTIMUM = 445 };

static dtp_status read_one(const char *path, const void *user, dtp_err *err)
{
    dtp_problem *p = NULL;
    (void)user;
    dtp_status s = dtp_problem_read(path, DTP_PROBLEM_MAX_BYTES, &p, err);
    if (s == DTP_OK) {
        dtp_problem_destroy(p);
    }
    return s;
}

static void test_select_read__refuses_bad_files(void **state)
{
    (void)state;
    assert_true(check_bad_files("select", read_one, NULL) > 30);
}

static dtp_problem *read_file(const char *path)
{
    dtp_problem *p = NULL;
    dtp_err err = {0};
    if (dtp_problem_read(path, DTP_PROBLEM_MAX_BYTES, &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return p;
}

static void make_path(char *path, size_t size, const char *name)
{
    (void)snprintf(path, size, "/tmp/test_select_files.%ld.%s", (long)getpid(), name);
}

static void assert_same(const dtp_problem *a, const dtp_problem *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->usage_limit, b->usage_limit);
    assert_int_equal(a->n_variables, b->n_variables);
    assert_int_equal(a->n_edges, b->n_edges);
    const size_t variables = (size_t)a->n_variables, edges = (size_t)a->n_edges,
                 word = sizeof(int64_t);
    assert_memory_equal(a->first, b->first, (variables + 1) * word);
    assert_memory_equal(a->begin, b->begin, variables * word);
    assert_memory_equal(a->end, b->end, variables * word);
    assert_memory_equal(a->cost, b->cost, (size_t)a->first[variables] * word);
    assert_memory_equal(a->usage, b->usage, (size_t)a->first[variables] * word);
    assert_memory_equal(a->edge_a, b->edge_a, edges * sizeof *a->edge_a);
    assert_memory_equal(a->edge_b, b->edge_b, edges * sizeof *a->edge_b);
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int64_t n = dtp_problem_edge_end(a, e) - a->edge_first[e];
        assert_int_equal(dtp_problem_edge_end(b, e) - b->edge_first[e], n);
        assert_memory_equal(a->edge_cost + a->edge_first[e], b->edge_cost + b->edge_first[e],
                            (size_t)n * word);
    }
}

static void test_select_write__reads_back(void **state)
{
    (void)state;
    char plain[64], packed[64];
    dtp_strbuf text = {0};
    dtp_problem *p = read_file(EXAMPLE);
    make_path(plain, sizeof plain, "json");
    make_path(packed, sizeof packed, "json.gz");
    dtp_problem_write_iopddl(p, &text);
    assert_int_equal(dtp_file_write(plain, text.text, text.len, NULL), DTP_OK);
    gzFile out = gzopen(packed, "wb");
    assert_int_equal(gzwrite(out, text.text, (unsigned)text.len), (int)text.len);
    assert_int_equal(gzclose(out), Z_OK);
    dtp_problem *a = read_file(plain), *b = read_file(packed);
    assert_same(p, a);
    assert_same(p, b);
    (void)unlink(plain);
    (void)unlink(packed);
    dtp_strbuf_free(&text);
    dtp_problem_destroy(a);
    dtp_problem_destroy(b);
    dtp_problem_destroy(p);
}

/* Numbers that straddle the reader's buffer, and places behind it. */
static void test_select_read__large_file(void **state)
{
    (void)state;
    enum { N = 60000 };
    char path[64];
    dtp_strbuf text = {0};
    make_path(path, sizeof path, "large.json");
    dtp_strbuf_add(&text,
                   "{\"problem\":{\"usage_limit\":1e18,\"edges\":{\"nodes\":[],\"costs\":[]},"
                   "\"nodes\":{\"intervals\":[[0,0]");
    for (int32_t i = 1; i < N; i++) {
        dtp_strbuf_addf(&text, ",[%d,%d]", i, 7 * i);
    }
    dtp_strbuf_add(&text, "],\n\"costs\":[[0]");
    for (int32_t i = 1; i < N; i++) {
        dtp_strbuf_addf(&text, ",[%d]", 123 * i);
    }
    dtp_strbuf_add(&text, "],\"usages\":[[0]");
    for (int32_t i = 1; i < N; i++) {
        dtp_strbuf_addf(&text, ",[%d]", i);
    }
    dtp_strbuf_add(&text, "]}}}");
    assert_int_equal(dtp_file_write(path, text.text, text.len, NULL), DTP_OK);
    dtp_problem *p = read_file(path);
    assert_int_equal(p->n_variables, N);
    assert_int_equal(p->usage_limit, DTP_FORBIDDEN);
    for (int32_t i = 0; i < N; i++) {
        assert_true(p->end[i] == 7 * i && p->cost[i] == 123 * i && p->usage[i] == i);
    }
    dtp_problem_destroy(p);
    dtp_err err = {0};
    char *end = text.text + text.len - strlen("59999]]}}}");
    *end = 'x';
    const long col = (long)(end - strchr(text.text, '\n'));
    assert_int_equal(dtp_file_write(path, text.text, text.len, NULL), DTP_OK);
    assert_int_equal(dtp_problem_read(path, DTP_PROBLEM_MAX_BYTES, &p, &err), DTP_INVALID);
    char place[160];
    (void)snprintf(place, sizeof place, "%s:2:%ld: problem.nodes.usages[59999][0]", path, col);
    if (strstr(err.msg, place) == NULL) {
        fail_msg("'%s' lacks '%s'", err.msg, place);
    }
    (void)unlink(path);
    dtp_strbuf_free(&text);
}

/* The optimum of the problem as GLPK reads it from a CPLEX-LP file. */
static int64_t optimum_of_lp(const dtp_problem *p)
{
    char path[64];
    dtp_strbuf text = {0};
    make_path(path, sizeof path, "lp");
    assert_int_equal(dtp_problem_write_lp(p, &text, NULL), DTP_OK);
    assert_int_equal(dtp_file_write(path, text.text, text.len, NULL), DTP_OK);
    glp_term_out(GLP_OFF);
    glp_prob *lp = glp_create_prob();
    glp_iocp parm;
    glp_init_iocp(&parm);
    parm.presolve = GLP_ON;
    assert_int_equal(glp_read_lp(lp, NULL, path), 0);
    assert_int_equal(glp_intopt(lp, &parm), 0);
    assert_int_equal(glp_mip_status(lp), GLP_OPT);
    const int64_t optimum = llround(glp_mip_obj_val(lp));
    glp_delete_prob(lp);
    glp_free_env();
    (void)unlink(path);
    dtp_strbuf_free(&text);
    return optimum;
}

static void test_select_write__lp_has_the_same_optimum(void **state)
{
    (void)state;
    dtp_problem *p = read_file(EXAMPLE);
    assert_int_equal(optimum_of_lp(p), EXAMPLE_OPTIMUM);
    dtp_problem_destroy(p);
}

/* -1: nothing fits. */
static int64_t optimum_of(const dtp_problem *p)
{
    const dtp_solve_options o = dtp_solve_options_init();
    dtp_solve_result r;
    assert_int_equal(dtp_solve(p, &o, &r, NULL), DTP_OK);
    const int64_t cost = r.status == DTP_CERT_OPTIMAL ? r.value.cost : -1;
    dtp_solve_result_free(&r);
    return cost;
}

/* Further intervals become variables of the file, tied to their own: the optimum stays. */
static void test_select_write__further_intervals(void **state)
{
    (void)state;
    char path[64];
    dtp_strbuf text = {0};
    dtp_problem *p = read_file(EXAMPLE);
    const int64_t before = optimum_of(p);
    make_path(path, sizeof path, "json");
    for (int32_t i = 0; i < p->n_variables; i++) {
        assert_int_equal(dtp_problem_add_interval(p, i, p->begin[i], p->end[i] + 3,
                                                  p->usage + p->first[i], NULL),
                         DTP_OK);
        assert_int_equal(
            dtp_problem_add_interval(p, i, p->end[i], p->end[i] + 1, p->usage + p->first[i], NULL),
            DTP_OK);
    }
    assert_int_equal(p->n_extra, 2 * p->n_variables);
    assert_int_equal(p->n_extra_usage, p->first[p->n_variables]);
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    assert_int_equal(optimum_of(p), -1);
    int64_t optimum = -1;
    while (optimum < 0) { /* the smallest limit that works */
        p->usage_limit++;
        optimum = optimum_of(p);
    }
    assert_true(optimum >= before);
    assert_int_equal(optimum_of_lp(p), optimum);
    dtp_problem_write_iopddl(p, &text);
    assert_int_equal(dtp_file_write(path, text.text, text.len, NULL), DTP_OK);
    dtp_problem *q = read_file(path);
    assert_int_equal(q->n_variables, 3 * p->n_variables);
    assert_int_equal(optimum_of(q), optimum);
    assert_int_equal(dtp_problem_add_interval(p, p->n_variables, 0, 1, p->usage, NULL),
                     DTP_INVALID);
    (void)unlink(path);
    dtp_strbuf_free(&text);
    dtp_problem_destroy(q);
    dtp_problem_destroy(p);
}

static void test_select_solve__example(void **state)
{
    (void)state;
    const dtp_solve_options o = dtp_solve_options_init();
    dtp_solve_result r;
    dtp_problem *p = read_file(EXAMPLE);
    assert_int_equal(dtp_solve(p, &o, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_CERT_OPTIMAL);
    assert_int_equal(r.value.cost, EXAMPLE_OPTIMUM);
    assert_int_equal(r.bound, EXAMPLE_OPTIMUM);
    assert_int_equal(r.presolve.before.variables, 5);
    dtp_solve_result_free(&r);
    p->usage_limit = 39; /* variables 0 and 1 alone use 10 + 25, variable 2 at least 15 beside 25 */
    assert_int_equal(dtp_solve(p, &o, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_CERT_INFEASIBLE);
    assert_null(r.assignment);
    dtp_solve_result_free(&r);
    dtp_problem_destroy(p);
}

static void test_select_problem__checks(void **state)
{
    (void)state;
    dtp_problem *p = NULL;
    const int64_t good[] = {1, 2, 3, 4}, bad[] = {1, -2, 3, 4};
    int32_t assignment[] = {0, 2};
    dtp_problem_value value;
    assert_int_equal(dtp_problem_create("p", 10, &p, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_variable(p, 0, 1, 0, good, good, NULL), DTP_RANGE);
    assert_int_equal(dtp_problem_add_variable(p, 0, 1, 2, good, good, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_edge(p, 0, 1, good, NULL), DTP_INVALID);
    assert_int_equal(dtp_problem_add_variable(p, 0, 1, 2, good, good, NULL), DTP_OK);
    assert_int_equal(dtp_problem_evaluate(p, assignment, &value, NULL), DTP_INVALID);
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_edge(p, 0, 1, bad, NULL), DTP_OK);
    assert_int_equal(dtp_problem_check(p, NULL), DTP_INVALID);
    dtp_problem_destroy(p);
    assert_int_equal(dtp_problem_add_cost(DTP_FORBIDDEN - 1, 1), DTP_FORBIDDEN);
    assert_int_equal(dtp_problem_add_cost(INT64_MAX, INT64_MAX), DTP_FORBIDDEN);
    assert_int_equal(dtp_problem_add_cost(3, 4), 7);
}

/* Edges share a matrix in memory, by the builder and by the reader; nothing else tells. */
static void test_select_problem__edges_share_matrices(void **state)
{
    (void)state;
    const int64_t cost[] = {1, 2, 3}, usage[] = {0, 0, 0}, m[] = {0, 5, 9, 4, 0, 2, 7, 3, 1};
    dtp_problem *shared = NULL, *apart = NULL;
    assert_int_equal(dtp_problem_create("shared", 1, &shared, NULL), DTP_OK);
    assert_int_equal(dtp_problem_create("shared", 1, &apart, NULL), DTP_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(dtp_problem_add_variable(shared, 0, 1, 3, cost, usage, NULL), DTP_OK);
        assert_int_equal(dtp_problem_add_variable(apart, 0, 1, 3, cost, usage, NULL), DTP_OK);
    }
    assert_int_equal(dtp_problem_add_edge(shared, 0, 1, m, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_edge_like(shared, 2, 1, 0, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_edge(apart, 0, 1, m, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_edge(apart, 2, 1, m, NULL), DTP_OK);
    assert_int_equal(dtp_problem_check(shared, NULL), DTP_OK);
    assert_int_equal(shared->n_stored, 9);
    assert_int_equal(apart->n_stored, 18);
    assert_int_equal(dtp_problem_n_entries(shared), 18);
    dtp_strbuf a = {0}, b = {0};
    dtp_problem_write_iopddl(shared, &a);
    dtp_problem_write_iopddl(apart, &b);
    assert_string_equal(dtp_strbuf_text(&a), dtp_strbuf_text(&b));
    const dtp_solve_options o = dtp_solve_options_init();
    dtp_solve_result x, y;
    assert_int_equal(dtp_solve(shared, &o, &x, NULL), DTP_OK);
    assert_int_equal(dtp_solve(apart, &o, &y, NULL), DTP_OK);
    assert_int_equal(x.value.cost, y.value.cost);
    assert_int_equal(x.bound, x.value.cost);
    dtp_solve_result_free(&x);
    dtp_solve_result_free(&y);
    dtp_strbuf_free(&a);
    dtp_strbuf_free(&b);
    dtp_problem_destroy(shared);
    dtp_problem_destroy(apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select_problem__edges_share_matrices),
        cmocka_unit_test(test_select_read__refuses_bad_files),
        cmocka_unit_test(test_select_write__reads_back),
        cmocka_unit_test(test_select_read__large_file),
        cmocka_unit_test(test_select_write__lp_has_the_same_optimum),
        cmocka_unit_test(test_select_write__further_intervals),
        cmocka_unit_test(test_select_solve__example),
        cmocka_unit_test(test_select_problem__checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
