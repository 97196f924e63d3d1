/* Dual ascent: bounds below the optimum whatever was reduced, costs that do not change when they
 * are moved, and bounds that reach what they should where that is known: the optimum of trees
 * without memory, the linear relaxation where only memory couples. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/solver/dive.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/relax.h"
#include "planner/solver/reduced/load.h"
#include "tests/solver/random_problems.h"

enum { N_PROBLEMS = 2500, N_TREES = 60, N_KNAPSACKS = 40, N_DIVES = 400 };

static solver_reduced *presolved(const dtp_problem *p, dtp_presolve_options options, int64_t cutoff)
{
    solver_reduced *w = NULL;
    assert_int_equal(solver_reduced_create(p, &options, dtp_solver_parameters_default(), &w, NULL),
                     DTP_OK);
    w->cutoff = cutoff;
    assert_int_equal(solver_presolve(w, NULL), DTP_OK);
    return w;
}

static int64_t raise_bound(solver_reduced *w, int64_t rounds, bool fix)
{
    solver_dual *d = NULL;
    int64_t bound = -1;
    assert_int_equal(solver_dual_create(w, &d, NULL), DTP_OK);
    solver_dual_run(d, rounds, NULL);
    assert_int_equal(solver_dual_apply(d, w, fix, &bound, NULL), DTP_OK);
    solver_dual_destroy(d);
    return bound;
}

/* What an assignment of the variables alive costs in the reduced problem, -1 when it is forbidden
 * there. */
static int64_t work_cost(const solver_reduced *w, const int32_t *assignment)
{
    int64_t sum = w->constant;
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive) {
            const int64_t cost = w->variables[i].cost[assignment[i]];
            if (cost >= DTP_FORBIDDEN) {
                return -1;
            }
            assert_true(cost >= 0);
            sum += cost;
        }
    }
    for (int32_t e = 0; e < w->n_edges; e++) {
        const solver_edge *edge = &w->edges[e];
        if (edge->alive) {
            const int64_t at =
                (int64_t)assignment[edge->u] * w->variables[edge->v].k + assignment[edge->v];
            if (solver_matrix(edge)[at] >= DTP_FORBIDDEN) {
                return -1;
            }
            assert_true(solver_matrix(edge)[at] >= 0);
            sum += solver_matrix(edge)[at];
        }
    }
    return sum;
}

/* Random assignments of the kernel cost the same in the reduced problem and, restored, in the
 * problem. */
static void check_costs(const solver_reduced *w, random_source *r)
{
    for (int32_t n = 0; n < 20; n++) {
        int32_t assignment[SELECT_MAX_NODES] = {0};
        for (int32_t i = 0; i < w->n_variables; i++) {
            assignment[i] = w->variables[i].alive ? (int32_t)draw(r, w->variables[i].k) : 0;
        }
        const int64_t cost = work_cost(w, assignment);
        solver_restore(w, assignment);
        const int64_t plain = plain_cost(w->p, assignment);
        if (cost >= 0 && plain >= 0) {
            assert_int_equal(cost, plain);
        }
    }
}

static bool fits(const solver_reduced *w, const int32_t *assignment)
{
    for (int32_t r = 0; r < w->n_rows; r++) {
        int64_t used = w->base[r];
        for (int32_t i = 0; i < w->n_variables; i++) {
            const solver_variable *x = &w->variables[i];
            for (int32_t j = 0; j < x->n_pieces; j++) {
                const bool covers = x->pieces[j].first <= r && r < x->pieces[j].last;
                used += covers ? x->pieces[j].use[assignment[i]] : 0;
            }
        }
        if (used > w->limit) {
            return false;
        }
    }
    return true;
}

/* The least cost of an assignment of the kernel that fits, -1 when there is none. */
static int64_t kernel_optimum(const solver_reduced *w)
{
    int32_t assignment[SELECT_MAX_NODES] = {0};
    int64_t best = -1;
    for (int32_t i = 0; i < w->n_variables && !w->infeasible;) {
        const int64_t cost = work_cost(w, assignment);
        best = cost >= 0 && (best < 0 || cost < best) && fits(w, assignment) ? cost : best;
        for (i = 0; i < w->n_variables; i++) {
            assignment[i] = w->variables[i].alive ? (assignment[i] + 1) % w->variables[i].k : 0;
            if (assignment[i] > 0) {
                break;
            }
        }
    }
    return best;
}

static void check_problem(uint64_t seed)
{
    random_source r = {seed * 15485863};
    dtp_problem *p = seed % 10 == 0 ? odd_problem(&r) : random_problem(&r);
    const int64_t best = enumerate(p);
    const bool capped = best >= 0 && draw(&r, 2) == 0;
    const uint32_t bits = (uint32_t)draw(&r, SELECT_COMBINATIONS);
    solver_reduced *w = presolved(p, combination(bits), capped ? best + 1 : DTP_FORBIDDEN);
    for (int32_t i = 0; i < 3 && !w->infeasible; i++) {
        const int64_t bound = raise_bound(w, 1 + draw(&r, 60), draw(&r, 3) > 0);
        if (best >= 0 && bound > best) {
            fail_msg("seed %" PRIu64 ": bound %" PRId64 ", optimum %" PRId64, seed, bound, best);
        }
        assert_int_equal(solver_presolve(w, NULL), DTP_OK);
        check_costs(w, &r);
    }
    if (kernel_optimum(w) != best) {
        fail_msg("seed %" PRIu64 ": optimum %" PRId64 " became %" PRId64, seed, best,
                 kernel_optimum(w));
    }
    solver_reduced_destroy(w);
    dtp_problem_destroy(p);
}

static void test_solver_dual__bounds_and_costs_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_PROBLEMS; seed++) {
        check_problem(seed);
    }
}

/* Variable i > 0 hangs on an earlier one. */
static dtp_problem *random_tree(random_source *r)
{
    enum { MAX_K = 6 };
    dtp_problem *p = NULL;
    int64_t cost[MAX_K * MAX_K] = {0};
    const int64_t usage[MAX_K] = {0};
    const int32_t n = (int32_t)(2 + draw(r, 40));
    assert_int_equal(dtp_problem_create("tree", 0, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        const int32_t k = (int32_t)(1 + draw(r, MAX_K));
        for (int32_t s = 0; s < k; s++) {
            cost[s] = draw(r, 1000);
        }
        assert_int_equal(dtp_problem_add_variable(p, 0, 1, k, cost, usage, NULL), DTP_OK);
    }
    for (int32_t i = 1; i < n; i++) {
        const int32_t a = (int32_t)draw(r, i);
        for (int32_t s = 0; s < MAX_K * MAX_K; s++) {
            cost[s] = draw(r, 5) == 0 && s > MAX_K ? DTP_FORBIDDEN : draw(r, 1000);
        }
        assert_int_equal(dtp_problem_add_edge(p, a, i, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

static void test_solver_dual__trees_without_memory_are_solved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_TREES; seed++) {
        random_source r = {seed * 32452843};
        dtp_problem *p = random_tree(&r);
        solver_reduced *easy = presolved(p, dtp_presolve_options_init(), DTP_FORBIDDEN);
        solver_reduced *w = presolved(p, combination(SELECT_COMBINATIONS - 2), DTP_FORBIDDEN);
        assert_int_equal(solver_size(easy).variables, 0);
        const int64_t bound = raise_bound(w, 10, false);
        if (bound != solver_lower_bound(easy)) {
            fail_msg("seed %" PRIu64 ": bound %" PRId64 ", optimum %" PRId64, seed, bound,
                     solver_lower_bound(easy));
        }
        solver_reduced_destroy(easy);
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
}

/* No edges; intervals over up to 20 times, so that several rows bind. */
static dtp_problem *random_knapsack(random_source *r)
{
    enum { K = 5 };
    dtp_problem *p = NULL;
    int64_t cost[K], usage[K];
    const int32_t n = (int32_t)(20 + draw(r, 60));
    const int64_t times = 1 + draw(r, 20);
    assert_int_equal(dtp_problem_create("knapsack", 1000 * n / times, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t s = 0; s < K; s++) {
            cost[s] = s * s * (100 + draw(r, 1000));
            usage[s] = (K - 1 - s) * (200 + draw(r, 400));
        }
        const int64_t begin = draw(r, times);
        assert_int_equal(dtp_problem_add_variable(p, begin, begin + 1 + draw(r, times - begin), K,
                                                  cost, usage, NULL),
                         DTP_OK);
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

static void test_solver_dual__knapsacks_reach_the_linear_relaxation(void **state)
{
    (void)state;
    int32_t binding = 0;
    for (uint64_t seed = 1; seed <= N_KNAPSACKS; seed++) {
        random_source r = {seed * 49979687};
        dtp_problem *p = random_knapsack(&r);
        solver_reduced *w = presolved(p, combination(0), DTP_FORBIDDEN);
        int32_t *assignment = calloc((size_t)p->n_variables + 1, sizeof *assignment);
        solver_relaxation relaxed = {0};
        assert_non_null(assignment);
        assert_int_equal(solver_relax(w, NULL, assignment, &relaxed, NULL), DTP_OK);
        const int64_t bound = raise_bound(w, 3000, false);
        binding += w->n_rows > 1 && relaxed.bound > 0 ? 1 : 0;
        if ((double)bound < 0.995 * (double)relaxed.bound) {
            fail_msg("seed %" PRIu64 ": bound %" PRId64 ", relaxation %" PRId64, seed, bound,
                     relaxed.bound);
        }
        free(assignment);
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
    assert_true(binding > N_KNAPSACKS / 4);
}

/* What a dive finds is a plan of the problem, at the cost that it states; it finds one mostly. */
static void test_solver_dual__dives_find_plans(void **state)
{
    (void)state;
    int32_t feasible = 0, found = 0;
    for (uint64_t seed = 1; seed <= N_DIVES; seed++) {
        random_source r = {seed * 67867967};
        dtp_problem *p = seed % 5 == 0 ? odd_problem(&r) : random_problem(&r);
        const int64_t best = enumerate(p);
        int32_t plan[3][SELECT_MAX_NODES + 1] = {{0}};
        const dtp_solve_options options = dtp_solve_options_init();
        dtp_solve_result result = {0};
        dtp_evaluator *evaluator = NULL;
        assert_int_equal(dtp_evaluator_create(p, &evaluator, NULL), DTP_OK);
        solver_state v = {.p = p,
                          .evaluator = evaluator,
                          .options = &options,
                          .out = &result,
                          .cutoff = DTP_FORBIDDEN,
                          .best = plan[0],
                          .assignment = plan[1],
                          .full = plan[2]};
        solver_reduced *w =
            presolved(p, combination((uint32_t)draw(&r, SELECT_COMBINATIONS)), DTP_FORBIDDEN);
        if (!w->infeasible) {
            (void)raise_bound(w, 50, false);
            assert_int_equal(solver_presolve(w, NULL), DTP_OK);
            assert_int_equal(w->infeasible ? DTP_OK : solver_dive(&v, w, NULL), DTP_OK);
        }
        feasible += best >= 0 ? 1 : 0;
        if (v.cutoff < DTP_FORBIDDEN) {
            found++;
            assert_int_equal(plain_cost(p, v.best), v.cutoff);
            assert_true(best >= 0 && v.cutoff >= best);
        }
        dtp_evaluator_destroy(evaluator);
        solver_reduced_destroy(w);
        dtp_problem_destroy(p);
    }
    print_message("plans for %d of %d feasible problems\n", found, feasible);
    assert_true(2 * found > feasible);
}

static void test_solver_dual__is_deterministic(void **state)
{
    (void)state;
    random_source r = {42};
    dtp_problem *p = random_knapsack(&r);
    solver_reduced *a = presolved(p, combination(0), DTP_FORBIDDEN);
    solver_reduced *b = presolved(p, combination(0), DTP_FORBIDDEN);
    assert_int_equal(raise_bound(a, 100, false), raise_bound(b, 100, false));
    assert_int_equal(a->n_rows, b->n_rows);
    assert_memory_equal(a->multiplier, b->multiplier, (size_t)a->n_rows * sizeof *a->multiplier);
    solver_reduced_destroy(a);
    solver_reduced_destroy(b);
    dtp_problem_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solver_dual__bounds_and_costs_hold),
        cmocka_unit_test(test_solver_dual__trees_without_memory_are_solved),
        cmocka_unit_test(test_solver_dual__knapsacks_reach_the_linear_relaxation),
        cmocka_unit_test(test_solver_dual__dives_find_plans),
        cmocka_unit_test(test_solver_dual__is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
