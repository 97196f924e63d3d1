/* The search for solutions: usage by row against a plain array, moves of forests against
 * enumeration, a walk against itself worked out afresh, solutions against the optimum. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/problem/check.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/primal/primal.h"
#include "planner/solver/primal/primal_tree.h"
#include "planner/solver/reduced/load.h"
#include "tests/solver/random_problems.h"

enum { N_TREES = 300, N_PROBLEMS = 1000, N_MOVES = 20 };

static void test_primal__usage_equals_array(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        random_source r = {seed};
        int64_t rows[40] = {0}, read[40];
        const int32_t n = (int32_t)(1 + draw(&r, 40));
        solver_usage u;
        for (int32_t i = 0; i < n; i++) {
            rows[i] = draw(&r, 100);
        }
        assert_int_equal(solver_usage_create(n, rows, &u, NULL), DTP_OK);
        for (int32_t step = 0; step < 200; step++) {
            const int32_t first = (int32_t)draw(&r, n);
            const int32_t last = (int32_t)(first + 1 + draw(&r, n - first));
            const int64_t amount = draw(&r, 200) - 100;
            solver_usage_add(&u, first, last, amount);
            int64_t most = INT64_MIN, peak = INT64_MIN;
            const int32_t from = (int32_t)draw(&r, n),
                          to = (int32_t)(from + 1 + draw(&r, n - from));
            for (int32_t i = 0; i < n; i++) {
                rows[i] += first <= i && i < last ? amount : 0;
                most = from <= i && i < to && rows[i] > most ? rows[i] : most;
                peak = rows[i] > peak ? rows[i] : peak;
            }
            assert_int_equal(solver_usage_max(&u, from, to), most);
            assert_int_equal(solver_usage_peak(&u), peak);
        }
        solver_usage_read(&u, read);
        assert_memory_equal(read, rows, (size_t)n * sizeof *rows);
        solver_usage_destroy(&u);
    }
}

/* A random problem after some reductions; NULL when they decide it. */
static solver_reduced *reduced(random_source *r, dtp_problem *p)
{
    const dtp_presolve_options o = combination((uint32_t)draw(r, SELECT_COMBINATIONS));
    solver_reduced *w = NULL;
    assert_int_equal(solver_reduced_create(p, &o, dtp_solver_parameters_default(), &w, NULL),
                     DTP_OK);
    assert_int_equal(solver_presolve(w, NULL), DTP_OK);
    if (w->infeasible || solver_size(w).variables == 0) {
        solver_reduced_destroy(w);
        return NULL;
    }
    return w;
}

/* Over the points without anything forbidden; INFINITY if there is none. */
static double least_over(solver_point *w, const int32_t *variables, int32_t n)
{
    double least = (double)INFINITY;
    if (n == 0) {
        return w->n_forbidden == 0 ? w->cost : least;
    }
    for (int32_t s = 0; s < w->g->vertices[variables[0]].k; s++) {
        assert_int_equal(solver_point_set(w, variables[0], s, NULL), DTP_OK);
        const double at = least_over(w, variables + 1, n - 1);
        least = at < least ? at : least;
    }
    return least;
}

/* From random points, the variables of a random forest move to their optimum. */
static void move_forests(random_source *r, const solver_graph *g)
{
    int32_t assignment[SELECT_MAX_NODES] = {0}, order[SELECT_MAX_NODES], n = 0;
    solver_point w;
    solver_forest *f = NULL;
    assert_true(g->forbidden > 0.0);
    assert_int_equal(solver_point_create(g, assignment, 1, &w, NULL), DTP_OK);
    assert_int_equal(solver_forest_create(g, &f, NULL), DTP_OK);
    for (int32_t move = 0; move < N_MOVES; move++) {
        for (int32_t i = 0; i < g->n; i++) {
            assignment[i] = (int32_t)draw(r, g->vertices[i].k);
            order[i] = i;
        }
        solver_point_jump(&w, assignment);
        solver_point_shuffle(&w, order, g->n);
        solver_forest_pick(f, order, (int32_t)(1 + draw(r, g->n)));
        assert_int_equal(solver_forest_solve(f, &w, w.theta, NULL), DTP_OK);
        const double moved = w.n_forbidden == 0 ? w.cost : (double)INFINITY;
        solver_point_undo(&w);
        assert_memory_equal(w.assignment, assignment, (size_t)g->n * sizeof *assignment);
        const int32_t *variables = solver_forest_variables(f, &n);
        assert_true(n > 0 && n <= g->n);
        assert_true(moved == least_over(&w, variables, n));
    }
    solver_forest_destroy(f);
    solver_point_destroy(&w);
}

static void test_primal__forests_move_to_their_optimum(void **state)
{
    (void)state;
    int32_t n = 0;
    for (uint64_t seed = 1; seed <= N_TREES; seed++) {
        random_source r = {seed * 6007};
        dtp_problem *p = random_problem(&r);
        solver_reduced *w = reduced(&r, p);
        solver_graph *g = NULL;
        if (w != NULL) {
            assert_int_equal(solver_graph_create(w, &g, NULL), DTP_OK);
            move_forests(&r, g);
            n++;
        }
        solver_graph_destroy(g);
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
    assert_true(n > N_TREES / 4);
}

/* Cost and usage of a walk after many changes are those of a fresh one. */
static void test_primal__changes_add_up(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_TREES; seed++) {
        random_source r = {seed * 15485863};
        dtp_problem *p = random_problem(&r);
        solver_reduced *w = reduced(&r, p);
        solver_graph *g = NULL;
        solver_point a, b;
        const int32_t zeros[SELECT_MAX_NODES] = {0};
        if (w != NULL) {
            assert_int_equal(solver_graph_create(w, &g, NULL), DTP_OK);
            assert_int_equal(solver_point_create(g, zeros, 1, &a, NULL), DTP_OK);
            for (int32_t i = 0; i < 50; i++) {
                const int32_t x = (int32_t)draw(&r, g->n);
                assert_int_equal(solver_point_set(&a, x, (int32_t)draw(&r, g->vertices[x].k), NULL),
                                 DTP_OK);
            }
            assert_int_equal(solver_point_create(g, a.assignment, 1, &b, NULL), DTP_OK);
            assert_true(a.cost == b.cost && a.n_forbidden == b.n_forbidden);
            assert_int_equal(solver_usage_peak(&a.usage), solver_usage_peak(&b.usage));
            solver_point_destroy(&a);
            solver_point_destroy(&b);
        }
        solver_graph_destroy(g);
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
}

/* What is found is allowed, costs what the walk says, and is not below the optimum; restored and
 * projected, it comes back. */
static bool search(const dtp_problem *p, solver_reduced *w, uint64_t seed, int64_t best)
{
    int32_t assignment[SELECT_MAX_NODES] = {0}, full[SELECT_MAX_NODES];
    solver_primal *primal = NULL;
    dtp_problem_value value;
    assert_int_equal(solver_primal_create(w, assignment, seed, &primal, NULL), DTP_OK);
    assert_int_equal(solver_primal_run(primal, 4, NULL, NULL), DTP_OK);
    const bool found = solver_primal_best(primal, assignment);
    if (found) {
        memcpy(full, assignment, sizeof full);
        solver_restore(w, full);
        assert_int_equal(dtp_problem_evaluate(p, full, &value, NULL), DTP_OK);
        assert_true(value.feasible && value.cost >= best && best >= 0);
        assert_int_equal(plain_cost(p, full), value.cost);
        solver_project(w, full);
        for (int32_t i = 0; i < w->n_variables; i++) {
            assert_true(!w->variables[i].alive || full[i] == assignment[i]);
        }
    }
    solver_primal_destroy(primal);
    return found && value.cost == best;
}

/* Moves costs and multipliers of an ascent into w: the constant may become negative. */
static void spread(solver_reduced *w)
{
    solver_dual *d = NULL;
    int64_t bound = 0;
    assert_int_equal(solver_dual_create(w, &d, NULL), DTP_OK);
    solver_dual_run(d, 50, NULL);
    assert_int_equal(solver_dual_apply(d, w, false, &bound, NULL), DTP_OK);
    solver_dual_destroy(d);
    assert_int_equal(solver_presolve(w, NULL), DTP_OK);
    w->infeasible = w->infeasible || solver_size(w).variables == 0;
}

static void test_primal__solutions_are_allowed_and_mostly_best(void **state)
{
    (void)state;
    int32_t n = 0, optimal = 0, m = 0, warm = 0;
    for (uint64_t seed = 1; seed <= N_PROBLEMS; seed++) {
        random_source r = {seed * 2654435761};
        dtp_problem *p = seed % 5 == 0 ? odd_problem(&r) : random_problem(&r);
        const int64_t best = enumerate(p);
        solver_reduced *w = reduced(&r, p);
        if (w != NULL) {
            n += best >= 0 ? 1 : 0;
            optimal += search(p, w, seed, best) ? 1 : 0;
            spread(w);
            m += best >= 0 && !w->infeasible ? 1 : 0;
            warm += !w->infeasible && search(p, w, seed, best) ? 1 : 0;
        }
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
    print_message("%d of %d searches found the optimum, after an ascent %d of %d\n", optimal, n,
                  warm, m);
    assert_true(n > N_PROBLEMS / 5 && 10 * optimal > 9 * n);
    assert_true(m > N_PROBLEMS / 10 && 10 * warm > 9 * m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_primal__usage_equals_array),
        cmocka_unit_test(test_primal__forests_move_to_their_optimum),
        cmocka_unit_test(test_primal__changes_add_up),
        cmocka_unit_test(test_primal__solutions_are_allowed_and_mostly_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
