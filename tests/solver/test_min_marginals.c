/* What every strategy costs at least, against enumeration with the strategy held. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/solver/primal/variable_elimination.h"
#include "planner/problem/check.h"
#include "planner/solver/min_marginals.h"
#include "planner/solver/solve.h"
#include "planner/solver/reduced/reduced.h"
#include "planner/solver/reduced/load.h"
#include "tests/solver/random_problems.h"

enum { N_PROBLEMS = 400, MOST = 64 };

/* The least cost with every strategy of a variable, -1: none is allowed. */
static void enumerate_each(dtp_problem *p, int32_t variable, int64_t *best)
{
    const int32_t k = dtp_problem_n_strategies(p, variable);
    int64_t *cost = p->cost + p->first[variable], kept[MOST];
    assert_true(k <= MOST);
    memcpy(kept, cost, (size_t)k * sizeof *kept);
    for (int32_t s = 0; s < k; s++) {
        for (int32_t i = 0; i < k; i++) {
            cost[i] = i == s ? kept[i] : DTP_FORBIDDEN;
        }
        best[s] = enumerate(p);
    }
    memcpy(cost, kept, (size_t)k * sizeof *kept);
}

/* Presolve that keeps a variable leaves its strategies their least costs, where nothing else is
 * left: exactly; else as bounds. */
static int32_t check_presolve(const dtp_problem *p, int32_t variable, const int64_t *best,
                              uint64_t seed)
{
    dtp_presolve_options options = combination((uint32_t)(seed % SELECT_COMBINATIONS));
    solver_reduced *w = NULL;
    int32_t origin[MOST];
    options.incumbent_filter = false;
    assert_int_equal(solver_reduced_create(p, &options, dtp_solver_parameters_default(), &w, NULL),
                     DTP_OK);
    w->variables[variable].kept = true;
    assert_int_equal(solver_presolve(w, NULL), DTP_OK);
    const bool alone = !w->infeasible && solver_size(w).variables == 1;
    bool seen[MOST] = {false};
    for (int32_t s = 0; s < MOST; s++) {
        origin[s] = s;
    }
    for (int64_t i = 0; i < w->n_undo; i++) {
        for (int32_t s = 0; w->undo[i].variable == variable && s < w->undo[i].kept; s++) {
            origin[s] = origin[w->undo[i].table[s]];
        }
    }
    for (int32_t i = 0; alone && i < w->variables[variable].k; i++) {
        const int64_t cost = w->variables[variable].cost[i];
        const int32_t s = origin[i];
        if (cost < DTP_FORBIDDEN) {
            assert_true(best[s] >= 0 || w->n_rows > 0);
            assert_true(best[s] < 0 || cost + w->constant <= best[s]);
            assert_true(w->n_rows > 0 || cost + w->constant == best[s]);
            seen[s] = true;
        }
    }
    for (int32_t s = 0; s < dtp_problem_n_strategies(p, variable); s++) {
        assert_true(seen[s] || !(alone || w->infeasible) || best[s] < 0);
    }
    solver_reduced_destroy(w);
    return alone ? 1 : 0;
}

/* Elimination of what some reductions leave, the variable last: the best solution with each
 * strategy.
 */
static int32_t check_elimination(const dtp_problem *p, int32_t variable, const int64_t *best,
                                 uint64_t seed)
{
    dtp_presolve_options options = combination((uint32_t)(seed / 3 % SELECT_COMBINATIONS));
    solver_reduced *w = NULL;
    solver_elimination *b = NULL;
    int64_t looks = 0;
    int32_t assignment[SELECT_MAX_NODES] = {0}, solved = 0;
    options.incumbent_filter = false;
    options.memory_rows = true;
    assert_int_equal(solver_reduced_create(p, &options, dtp_solver_parameters_default(), &w, NULL),
                     DTP_OK);
    w->variables[variable].kept = true;
    assert_int_equal(solver_presolve(w, NULL), DTP_OK);
    if (!w->infeasible && w->n_rows == 0) {
        bool seen[MOST] = {false};
        assert_int_equal(solver_elimination_create(w, variable, INT64_MAX / 16, &b, &looks, NULL),
                         DTP_OK);
        assert_non_null(b);
        for (int32_t i = 0; i < w->variables[variable].k; i++) {
            if (solver_elimination_choose(b, i, assignment)) {
                solver_restore(w, assignment);
                assert_int_equal(plain_cost(p, assignment), best[assignment[variable]]);
                seen[assignment[variable]] = true;
                solved++;
            }
        }
        for (int32_t s = 0; s < dtp_problem_n_strategies(p, variable); s++) {
            assert_true(seen[s] || best[s] < 0);
        }
        solver_elimination_destroy(b);
        assert_int_equal(solver_elimination_create(w, variable, 0, &b, &looks, NULL), DTP_OK);
        assert_true(b == NULL || solver_size(w).variables == 1);
        solver_elimination_destroy(b);
    }
    solver_reduced_destroy(w);
    return solved;
}

/* Returns the number of strategies; *exact counts those with a cost that is the least. */
static int32_t check_marginals(const dtp_problem *p, int32_t variable, const int32_t *start,
                               const int64_t *best, bool thorough, int32_t *exact)
{
    const int32_t k = dtp_problem_n_strategies(p, variable);
    dtp_min_marginal_options o = dtp_min_marginal_options_init(p, variable, start);
    dtp_min_marginal out[MOST];
    o.exact = thorough;
    for (int32_t s = 0; s < k; s++) {
        out[s] = (dtp_min_marginal){.cost = DTP_FORBIDDEN};
    }
    assert_int_equal(dtp_min_marginals(p, &o, out, NULL), DTP_OK);
    for (int32_t s = 0; s < k; s++) {
        const bool known = out[s].cost < DTP_FORBIDDEN;
        assert_true(!known || (best[s] >= 0 && out[s].cost >= best[s]));
        assert_true(best[s] < 0 || out[s].bound <= best[s]);
        assert_true(!thorough || out[s].bound == (best[s] < 0 ? DTP_FORBIDDEN : best[s]));
        *exact += out[s].bound == out[s].cost ? 1 : 0;
    }
    return k;
}

/* Bit 0: without a memory limit. */
static void test_marginals__equal_enumeration(void **state)
{
    (void)state;
    int32_t n[2] = {0}, exact[2] = {0}, problems[2] = {0}, alone = 0, solved = 0;
    for (uint64_t seed = 1; seed <= N_PROBLEMS || problems[0] < N_PROBLEMS; seed++) {
        random_source r = {seed * 6700417};
        dtp_problem *p = random_problem(&r);
        const dtp_solve_options options = dtp_solve_options_init();
        dtp_solve_result start;
        if (seed % 2 == 0) {
            p->usage_limit = INT64_MAX / 4;
        }
        const int32_t variable = (int32_t)draw(&r, p->n_variables);
        int64_t best[MOST];
        assert_int_equal(dtp_solve(p, &options, &start, NULL), DTP_OK);
        enumerate_each(p, variable, best);
        alone += check_presolve(p, variable, best, seed);
        solved += check_elimination(p, variable, best, seed);
        if (start.assignment != NULL) {
            const bool thorough = seed % 4 >= 2;
            if (seed % 3 == 0) { /* a worse one to start from */
                start.assignment[variable] =
                    (int32_t)draw(&r, dtp_problem_n_strategies(p, variable));
            }
            if (plain_cost(p, start.assignment) >= 0) {
                n[seed % 2] += check_marginals(p, variable, start.assignment, best, thorough,
                                               &exact[seed % 2]);
                problems[seed % 2]++;
            }
        }
        dtp_solve_result_free(&start);
        dtp_problem_destroy(p);
    }
    print_message(
        "no limit: %d problems, %d strategies, %d exact; limit: %d, %d, %d; presolve left "
        "the node alone %d times\n",
        problems[0], n[0], exact[0], problems[1], n[1], exact[1], alone);
    assert_true(problems[0] >= 300 && problems[1] >= 100 && alone > 300 && solved > 300);
    assert_true(2 * exact[0] > n[0] && 2 * exact[1] > n[1]);
}

/* ---- rows of repeated blocks ----------------------------------------------------------------- */

enum { INSTANCES = 12, PLACES = 9, BLOCK_NODES = 4, ROUNDS = 60, CHOICES = 20 };

/* Variables decide for all instances of a block that runs forwards and, in the opposite order,
 * backwards; some usages last from one to the other. Now and then an instance is not like the
 * others. */
static dtp_problem *block_problem(random_source *r)
{
    dtp_problem *p = NULL;
    const int64_t odd = draw(r, 2) == 0 ? draw(r, INSTANCES) : -1;
    assert_int_equal(dtp_problem_create("block", INT64_MAX / 4, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < BLOCK_NODES; i++) {
        int64_t cost[2] = {0, 0}, own[2] = {draw(r, 9), draw(r, 9)};
        const int64_t at = draw(r, INSTANCES * PLACES);
        assert_int_equal(dtp_problem_add_variable(p, at, at + 1 + draw(r, 40), 2, cost, own, NULL),
                         DTP_OK);
    }
    for (int32_t i = 0; i < BLOCK_NODES; i++) {
        const int64_t use[2] = {draw(r, 9), draw(r, 9)}, begin = draw(r, PLACES),
                      end = begin + 1 + draw(r, PLACES), back = draw(r, PLACES);
        const bool lasts = draw(r, 2) == 0;
        for (int64_t l = 0; l < INSTANCES; l++) {
            const int64_t to = lasts ? (2 * INSTANCES - 1 - l) * PLACES + back : l * PLACES + end;
            const int64_t from = l * PLACES + begin + (l == odd ? 1 : 0);
            assert_int_equal(dtp_problem_add_interval(p, i, from, to > from ? to : from, use, NULL),
                             DTP_OK);
        }
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

static int64_t largest_row(const solver_reduced *w, const int32_t *assignment)
{
    int64_t most = 0;
    for (int32_t row = 0; row < w->n_rows; row++) {
        int64_t sum = w->base[row];
        for (int32_t i = 0; i < w->n_variables; i++) {
            for (int32_t j = 0; j < w->variables[i].n_pieces; j++) {
                const solver_piece *x = &w->variables[i].pieces[j];
                sum += x->first <= row && row < x->last ? x->use[assignment[i]] : 0;
            }
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void test_rows__of_blocks_keep_the_peak(void **state)
{
    (void)state;
    int64_t all = 0, kept = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        random_source r = {seed * 15485863};
        dtp_problem *p = block_problem(&r);
        dtp_presolve_options options = dtp_presolve_options_init();
        solver_reduced *w = NULL, *plain = NULL;
        assert_int_equal(
            solver_reduced_create(p, &options, dtp_solver_parameters_default(), &w, NULL), DTP_OK);
        options.memory_rows = false;
        assert_int_equal(
            solver_reduced_create(p, &options, dtp_solver_parameters_default(), &plain, NULL),
            DTP_OK);
        for (int32_t c = 0; c < CHOICES; c++) {
            int32_t assignment[BLOCK_NODES];
            dtp_problem_value value;
            for (int32_t i = 0; i < BLOCK_NODES; i++) {
                assignment[i] = (int32_t)draw(&r, 2);
            }
            assert_int_equal(dtp_problem_evaluate(p, assignment, &value, NULL), DTP_OK);
            assert_int_equal(largest_row(w, assignment), value.peak);
            assert_int_equal(largest_row(plain, assignment), value.peak);
        }
        all += plain->n_rows;
        kept += w->n_rows;
        solver_reduced_destroy(w);
        solver_reduced_destroy(plain);
        dtp_problem_destroy(p);
    }
    print_message("%" PRId64 " of %" PRId64 " rows are kept\n", kept, all);
    assert_true(2 * kept < all);
}

static void test_marginals__need_a_feasible_start(void **state)
{
    (void)state;
    dtp_problem *p = NULL;
    const int64_t cost[2] = {1, DTP_FORBIDDEN}, usage[2] = {0, 0};
    const int32_t start[1] = {1};
    dtp_min_marginal out[2] = {{DTP_FORBIDDEN, 0}, {DTP_FORBIDDEN, 0}};
    dtp_err err = {0};
    assert_int_equal(dtp_problem_create("one", 0, &p, NULL), DTP_OK);
    assert_int_equal(dtp_problem_add_variable(p, 0, 1, 2, cost, usage, NULL), DTP_OK);
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    const dtp_min_marginal_options o = dtp_min_marginal_options_init(p, 0, start);
    assert_int_equal(dtp_min_marginals(p, &o, out, &err), DTP_INVALID);
    dtp_problem_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marginals__equal_enumeration),
        cmocka_unit_test(test_rows__of_blocks_keep_the_peak),
        cmocka_unit_test(test_marginals__need_a_feasible_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
