/* Bytes that instructions need: holding buffers along a walk is holding them one instruction after
 * the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/program/needed.h"
#include "tests/support/spmd_sim.h"

enum { N_CASES = 4000, N_INSTRS = 40, N_BUFFERS = 12 };

typedef struct case_of {
    dtp_need needs[N_BUFFERS];
    int64_t bytes[N_INSTRS + 2];
    dtp_needed needed;
} case_of;

static int32_t below(uint64_t *seed, int32_t n)
{
    return (int32_t)(spmd_sim_random(seed) % (uint64_t)n);
}

/* Some buffers are never needed; the limit leaves room, little or none. */
static void draw(case_of *c, uint64_t *seed)
{
    memset(c, 0, sizeof *c);
    for (int32_t k = 0; k < N_BUFFERS; k++) {
        dtp_need *need = &c->needs[k];
        *need = (dtp_need){.first = INT32_MAX, .last = -1, .bytes = below(seed, 100)};
        if (below(seed, 5) > 0) {
            need->first = below(seed, N_INSTRS);
            need->last = need->first + below(seed, N_INSTRS - need->first);
        }
        for (int32_t i = need->first; i <= need->last; i++) {
            c->bytes[i] += need->bytes;
        }
    }
    for (int32_t i = 0; i < N_INSTRS; i++) {
        c->needed.peak = c->bytes[i] > c->needed.peak ? c->bytes[i] : c->needed.peak;
    }
    c->needed.limit = c->needed.peak - 50 + below(seed, 100);
}

static void test_needed__a_walk_is_its_steps(void **state)
{
    (void)state;
    int32_t whole = 0, part = 0;
    for (uint64_t seed = 1; seed <= N_CASES; seed++) {
        uint64_t s = seed;
        case_of steps, walk;
        draw(&steps, &s);
        walk = steps;
        dtp_value_id own[N_BUFFERS], roots[N_BUFFERS];
        for (dtp_value_id k = 0; k < N_BUFFERS; k++) {
            own[k] = k;
        }
        steps.needed.roots = walk.needed.roots = own;
        steps.needed.needs = steps.needs;
        steps.needed.bytes = steps.bytes;
        walk.needed.needs = walk.needs;
        walk.needed.bytes = walk.bytes;
        int32_t n = 0;
        for (dtp_value_id k = 0; k < N_BUFFERS; k++) {
            roots[n] = k;
            n += below(&s, 3) == 0 ? 1 : 0;
        }
        const int32_t step = below(&s, 2) == 0 ? 1 : -1;
        const int32_t from = below(&s, N_INSTRS);
        const int32_t end =
            step > 0 ? from + below(&s, N_INSTRS - from + 1) : from - below(&s, from + 2);
        int32_t i = from;
        while (i != end && dtp_needed_hold(&steps.needed, n, roots, i, i)) {
            i += step;
        }
        assert_int_equal(dtp_needed_hold_on(&walk.needed, n, roots, from, end, step), i);
        assert_memory_equal(walk.bytes, steps.bytes, sizeof walk.bytes);
        for (int32_t k = 0; k < N_BUFFERS; k++) {
            assert_int_equal(walk.needs[k].first, steps.needs[k].first);
            assert_int_equal(walk.needs[k].last, steps.needs[k].last);
        }
        whole += i == end ? 1 : 0;
        part += i != end && i != from ? 1 : 0;
    }
    print_message("%d walks to the end, %d to a limit on the way\n", whole, part);
    assert_true(whole > N_CASES / 10 && part > N_CASES / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_needed__a_walk_is_its_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
