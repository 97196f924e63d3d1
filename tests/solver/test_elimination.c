/* The oracles of tensor mode against plain enumeration of small random problems. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/solver/elimination.h"
#include "tests/solver/limit_search.h"
#include "tests/solver/random_problems.h"

enum { PROBLEMS = 1000 };

/* Without a limit, whatever the order and whatever is dropped on the way. */
static void check_optima(dtp_problem *p)
{
    const int64_t limit = p->usage_limit;
    p->usage_limit = INT64_MAX / 4;
    const int64_t best = enumerate(p), want = best < 0 ? DTP_FORBIDDEN : best;
    p->usage_limit = limit;
    assert_int_equal(elimination_optimum(p, NULL), want);
    for (int64_t most = 1; most <= 4096; most *= 16) {
        elimination *e = elimination_create(p, 3, true);
        elimination_reduce(e, most);
        elimination *all = elimination_finish(e, NULL, most);
        assert_int_equal(all->least < ELIMINATION_FORBIDDEN ? all->least / 3 : DTP_FORBIDDEN, want);
        elimination_destroy(all);
        elimination_destroy(e);
    }
}

static void test_elimination__equals_enumeration(void **state)
{
    (void)state;
    int32_t solvable = 0, limited = 0;
    random_source r = {41};
    for (int32_t i = 0; i < PROBLEMS; i++) {
        dtp_problem *p = random_problem(&r);
        check_optima(p);
        const int64_t want = enumerate(p);
        for (int64_t most = 1; most <= 4096 && want >= 0 && p->usage_limit > 0; most *= 64) {
            limit_options options = limit_options_init();
            options.rounds = 40;
            options.most_cells = most;
            const limit_result got = limit_search(p, &options);
            assert_true(got.found && got.bound <= want);
            assert_int_equal(got.cost, want);
        }
        limited += want >= 0 && elimination_optimum(p, NULL) < want ? 1 : 0;
        solvable += want >= 0 ? 1 : 0;
        dtp_problem_destroy(p);
    }
    print_message("%d of %d problems have a solution, the limit costs something in %d\n", solvable,
                  PROBLEMS, limited);
    assert_true(solvable > PROBLEMS / 2 && limited > PROBLEMS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_elimination__equals_enumeration)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
