/* What every strategy costs at least, against enumeration with the strategy held; rows of
 * blocks. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/problem/check.h"
#include "planner/solver/dual_bound.h"
#include "planner/solver/reduced/reduced.h"
#include "planner/solver/reduced/load.h"
#include "tests/solver/random_problems.h"

enum { N_PROBLEMS = 800, MOST = 64 };

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

/* Without a limit bounds lie near the least costs. */
static void test_strategy_bounds__are_below_enumeration(void **state)
{
    int32_t n = 0, none = 0, equal = 0, open = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= N_PROBLEMS; seed++) {
        random_source r = {seed * 6700417};
        dtp_problem *p = random_problem(&r);
        const bool limited = seed % 2 != 0;
        int64_t best[MOST], bound[MOST];
        p->usage_limit = limited ? p->usage_limit : INT64_MAX / 4;
        const int32_t variable = (int32_t)draw(&r, p->n_variables);
        enumerate_each(p, variable, best);
        assert_int_equal(dtp_strategy_bounds(p, variable, bound, NULL), DTP_OK);
        for (int32_t s = 0; s < dtp_problem_n_strategies(p, variable); s++) {
            if (best[s] >= 0 && bound[s] > best[s]) {
                fail_msg("seed %" PRIu64 ", strategy %d: bound %" PRId64 " above %" PRId64, seed, s,
                         bound[s], best[s]);
            }
            n++;
            none += bound[s] >= DTP_FORBIDDEN ? 1 : 0;
            open += !limited && best[s] >= 0 ? 1 : 0;
            equal += !limited && best[s] >= 0 && bound[s] == best[s] ? 1 : 0;
        }
        dtp_problem_destroy(p);
    }
    print_message("%d strategies, %d impossible; without limit %d of %d bounds are the cost\n", n,
                  none, equal, open);
    assert_true(n > 1000 && none > 10 && 2 * equal > open);
}

/* ---- rows of repeated blocks ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategy_bounds__are_below_enumeration),
        cmocka_unit_test(test_rows__of_blocks_keep_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
