/* Tables of stages: their checker against mutated tables, each of which it refuses or an executor
 * written here runs to the end, and the replay against closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/pipeline.h"

enum { MUTANTS = 1000, MOST = 64 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* Of n stages with v chunks each. */
static dtp_stage_table make(int32_t n, int32_t v, int32_t m, int32_t parts, int32_t *slots,
                            dtp_arena *arena)
{
    const dtp_stage_table size = {
        .n_stages = n, .n_chunks = n * v, .n_microbatches = m, .n_parts = parts, .slots = slots};
    dtp_stage_table t;
    dtp_err err = {0};
    if (dtp_stage_table_make(&size, arena, &t, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return t;
}

/* ---- an executor ---- */

typedef struct machine {
    int32_t slot[MOST][MOST * 4]; /* by stage, by slot: 1 + chunk * MOST + the microbatch in it */
    int32_t ran[MOST], n_sent[MOST];
    bool arrived[MOST][MOST], gradient[MOST][MOST], done[MOST][2][MOST]; /* by chunk */
    int32_t order[MOST][MOST], n_order[MOST];
} machine;

static bool run_one(machine *x, const dtp_stage_table *t, int32_t s, bool *bad)
{
    if (x->ran[s] == t->n_actions[s]) {
        return false;
    }
    const dtp_stage_action *a = &t->actions[s][x->ran[s]];
    const int32_t m = a->microbatch, c = a->chunk, mark = 1 + c * MOST + m;
    if (a->section == DTP_SECTION_FORWARD) {
        if (c == 0 && x->slot[0][a->slot] == 0) {
            x->slot[0][a->slot] = mark;
            x->arrived[0][m] = true;
        }
        if (!x->arrived[c][m]) {
            *bad = *bad || c == 0;
            return false;
        }
        *bad = *bad || x->slot[s][a->slot] != mark || c % t->n_stages != s;
        x->order[c][x->n_order[c]++] = m;
    } else if (a->section == DTP_SECTION_BACKWARD) {
        if (c + 1 < t->n_chunks && !x->gradient[c][m]) {
            return false;
        }
        *bad = *bad || x->slot[s][a->slot] != mark || !x->done[c][0][m];
        x->slot[s][a->slot] = 0;
        x->gradient[c > 0 ? c - 1 : MOST - 1][m] = true;
    }
    if (a->section < DTP_SECTION_UPDATE) {
        *bad = *bad || x->done[c][a->section][m];
        x->done[c][a->section][m] = true;
    }
    x->ran[s]++;
    return true;
}

static int32_t slot_of(const dtp_stage_table *t, int32_t c, int32_t m)
{
    const int32_t s = c % t->n_stages;
    for (int32_t i = 0; i < t->n_actions[s]; i++) {
        const dtp_stage_action *a = &t->actions[s][i];
        if (a->section == DTP_SECTION_FORWARD && a->chunk == c && a->microbatch == m) {
            return a->slot;
        }
    }
    return -1;
}

/* Whether everything before the forward section of a microbatch that had its slot has ended: only
 * then the slot is given to it. */
static bool is_given(const machine *x, const dtp_stage_table *t, int32_t c, int32_t m)
{
    const int32_t s = c % t->n_stages, slot = slot_of(t, c, m);
    int32_t last = -1;
    for (int32_t i = 0; i < t->n_actions[s]; i++) {
        const dtp_stage_action *a = &t->actions[s][i];
        if (a->section == DTP_SECTION_FORWARD && a->chunk == c && a->microbatch == m) {
            break;
        }
        last = a->slot == slot && a->section == DTP_SECTION_BACKWARD ? i : last;
    }
    return slot >= 0 && x->ran[s] > last && x->slot[s][slot] == 0;
}

/* Whether all stages come to the end with every microbatch in its slot, stages taking turns at
 * random. */
static bool executes(const dtp_stage_table *t, uint64_t *seed)
{
    static machine x;
    bool bad = false;
    int32_t idle = 0, left = 0;
    memset(&x, 0, sizeof x);
    while (idle < 40 * t->n_chunks && !bad) {
        const int32_t c = (int32_t)draw(seed, (uint32_t)t->n_chunks), to = (c + 1) % t->n_stages;
        bool moved = false;
        if (draw(seed, 2) == 0) {
            moved = run_one(&x, t, c % t->n_stages, &bad);
        } else if (c + 1 < t->n_chunks && x.n_sent[c] < x.n_order[c]) {
            const int32_t m = x.order[c][x.n_sent[c]];
            moved = is_given(&x, t, c + 1, m);
            if (moved) {
                x.slot[to][slot_of(t, c + 1, m)] = 1 + (c + 1) * MOST + m;
                x.arrived[c + 1][m] = true;
                x.n_sent[c]++;
            }
        }
        idle = moved ? 0 : idle + 1;
    }
    for (int32_t s = 0; s < t->n_stages; s++) {
        left += t->n_actions[s] - x.ran[s];
    }
    for (int32_t c = 0; c < t->n_chunks; c++) {
        for (int32_t m = 0; m < t->n_microbatches; m++) {
            bad = bad || !x.done[c][0][m] || !x.done[c][1][m];
        }
    }
    return !bad && left == 0;
}

/* ---- tests ---- */

static void test_table__is_1f1b_and_gpipe(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    int32_t few[] = {4, 3, 2, 1}, all[] = {9, 9, 9, 9};
    const dtp_stage_table a = make(4, 1, 8, 1, few, arena), b = make(4, 1, 8, 1, all, arena);
    for (int32_t s = 0; s < 4; s++) {
        for (int32_t i = 0; i < 16; i++) { /* S - s forward sections, then one of each in turn */
            const int32_t warm = few[s], turn = i - warm;
            const bool forward = i < warm || (turn % 2 == 1 && turn / 2 + warm < 8);
            const bool early = i < 16 - warm;
            assert_true(!early || (a.actions[s][i].section == DTP_SECTION_FORWARD) == forward);
            assert_int_equal(b.actions[s][i].section, i < 8 ? 0 : 1);
            assert_int_equal(b.actions[s][i].microbatch, i % 8);
        }
        assert_int_equal(a.slots[s], few[s]);
        assert_int_equal(b.slots[s], 8);
    }
    dtp_arena_destroy(arena);
}

/* Megatron's interleaved schedule: groups of S microbatches, in a group chunk by chunk; stage 0 of
 * 4 with 2 chunks has 11 in flight, each next one 2 less. */
static void test_table__is_interleaved(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_stages stages = {.n = 4, .n_chunks = 8, .slots = 1, .n_parts = 1};
    const dtp_graph g = {.stages = &stages, .microbatches = 16};
    dtp_stage_table t;
    assert_int_equal(dtp_stage_table_of(&g, arena, &t, NULL), DTP_OK);
    for (int32_t s = 0; s < 4; s++) {
        const int32_t warm = 11 - 2 * s;
        int32_t flying = 0, most = 0, forward = 0;
        assert_int_equal(t.slots[s], warm);
        assert_int_equal(t.n_actions[s], 2 * 2 * 16 + 2);
        for (int32_t i = 0; i < 64; i++) {
            const dtp_stage_action *a = &t.actions[s][i];
            const bool ahead = a->section == DTP_SECTION_FORWARD;
            if (ahead) {
                assert_int_equal(a->chunk, forward / 4 % 2 * 4 + s);
                assert_int_equal(a->microbatch, forward / 8 * 4 + forward % 4);
                forward++;
            }
            assert_true(i >= warm || ahead); /* then one of each in turn */
            assert_true(s == 0 || i < warm || i >= 64 - warm || ahead == ((i - warm) % 2 == 1));
            flying += ahead ? 1 : -1;
            most = flying > most ? flying : most;
        }
        assert_int_equal(most, warm);
    }
    dtp_arena_destroy(arena);
}

static void test_table__checks_and_executes_with_any_slots(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int32_t k = 0; k < 300; k++) {
        dtp_arena *arena = dtp_arena_create();
        int32_t slots[8];
        const int32_t n = 1 + (int32_t)draw(&seed, 8), m = 1 + (int32_t)draw(&seed, 20);
        const int32_t v = 1 + (k % 2) * (int32_t)draw(&seed, 4), first = m < n ? m : n;
        for (int32_t s = 0; s < n; s++) {
            slots[s] = (v - 1) * first + 1 + (int32_t)draw(&seed, 10);
        }
        const dtp_stage_table t = make(n, v, m, 1 + (int32_t)draw(&seed, 3), slots, arena);
        dtp_err err = {0};
        assert_int_equal(dtp_stage_table_check(&t, &err), DTP_OK);
        assert_true(executes(&t, &seed));
        dtp_arena_destroy(arena);
    }
}

static void mutate(dtp_stage_table *t, uint64_t *seed)
{
    const int32_t s = (int32_t)draw(seed, (uint32_t)t->n_stages);
    const uint32_t n = (uint32_t)t->n_actions[s];
    dtp_stage_action *list = t->actions[s], *a = &list[draw(seed, n)], *b = &list[draw(seed, n)];
    const dtp_stage_action old = *a;
    switch (draw(seed, 5)) {
    case 0: /* neighbours */
        b = a + (a + 1 < list + n ? 1 : -1);
        *a = *b;
        *b = old;
        break;
    case 1:
        *a = *b;
        *b = old;
        break;
    case 2: /* dropped */
        memmove(a, a + 1, (size_t)(list + n - a - 1) * sizeof *a);
        t->n_actions[s]--;
        break;
    case 3: /* doubled */
        *a = *b;
        break;
    default: /* one slot less */
        t->slots[s]--;
        break;
    }
}

static void test_check__refuses_mutants_or_they_execute(void **state)
{
    (void)state;
    uint64_t seed = 11;
    int32_t refused = 0;
    for (int32_t k = 0; k < MUTANTS; k++) {
        dtp_arena *arena = dtp_arena_create();
        int32_t slots[6];
        const int32_t n = 2 + (int32_t)draw(&seed, 5), m = 2 + (int32_t)draw(&seed, 10);
        const int32_t more = (int32_t)draw(&seed, 4), v = 1 + k % 2 * (1 + (int32_t)draw(&seed, 2));
        for (int32_t s = 0; s < n; s++) {
            slots[s] = (v - 1) * n + (n - s) * (v > 1 ? 2 : 1) + more;
        }
        dtp_stage_table t = make(n, v, m, 1 + k % 3, slots, arena);
        dtp_err err = {0};
        mutate(&t, &seed);
        if (dtp_stage_table_check(&t, &err) != DTP_OK) {
            refused++;
            assert_non_null(strstr(err.msg, "stage"));
        } else {
            for (int32_t i = 0; i < 5; i++) {
                assert_true(executes(&t, &seed));
            }
        }
        dtp_arena_destroy(arena);
    }
    assert_true(refused > MUTANTS / 2 && refused < MUTANTS);
}

/* Equal stages: forward sections of 2, backward sections of 5, an update of 3; messages to and from
 * the neighbours. */
static double step_of(int32_t n, int32_t v, int32_t m, bool gpipe, double send_s)
{
    dtp_arena *arena = dtp_arena_create();
    double section_s[64 * 6];
    dtp_pipeline_step step;
    dtp_stage_message messages[2 * 64];
    int32_t slots[16], k = 0;
    dtp_err err = {0};
    for (int32_t s = 0; s < n * v; s++) {
        const double times[] = {2.0 / v, 2.0 / v, 5.0 / v, 5.0 / v, 3.0 / v, 3.0 / v};
        memcpy(&section_s[(size_t)s * 6], times, sizeof times);
        if (s < n) {
            slots[s] = gpipe ? m * v : (v > 1 ? 2 : 1) * (n - 1 - s) + (v - 1) * n + 1;
        }
        for (int32_t back = 0; back < 2 && s + 1 < n * v; back++) {
            messages[k++] = (dtp_stage_message){
                .from = s + back, .to = s + 1 - back, .section = back, .time_s = send_s};
        }
    }
    const dtp_stage_table t = make(n, v, m, 1, slots, arena);
    const dtp_pipeline_times times = {section_s, k, messages};
    assert_int_equal(dtp_pipeline_replay(&t, &times, arena, &step, &err), DTP_OK);
    dtp_arena_destroy(arena);
    return step.end_s;
}

static void test_replay__equal_stages_take_what_the_closed_form_says(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 16; n *= 2) {
        for (int32_t m = n; m <= 8 * n; m *= m == 2 * n ? 4 : 2) {
            const double all = (m + n - 1) * (2.0 + 5.0) + 3.0;
            assert_true(fabs(step_of(n, 1, m, true, 0.0) - all) < 1e-9);
            assert_true(fabs(step_of(n, 1, m, false, 0.0) - all) < 1e-9);
            for (int32_t v = 2; v <= 4; v++) { /* interleaved: the bubble is 1/v */
                const double less = (m + (n - 1.0) / v) * (2.0 + 5.0) + 3.0;
                assert_true(fabs(step_of(n, v, m, false, 0.0) - less) < 1e-9);
                assert_true(fabs(step_of(n, v, m, true, 0.0) - less) < 1e-9);
                assert_true(step_of(n, v, m, false, 0.25) > less + 0.25);
            }
            /* GPipe: every send but those of the fill is hidden; 1F1B exposes two per turn. */
            const double sent = step_of(n, 1, m, true, 0.25), turns = step_of(n, 1, m, false, 0.25);
            assert_true(fabs(sent - (all + 2 * (n - 1) * 0.25)) < 1e-9);
            assert_true(turns >= sent - 1e-9);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__is_1f1b_and_gpipe),
        cmocka_unit_test(test_table__is_interleaved),
        cmocka_unit_test(test_table__checks_and_executes_with_any_slots),
        cmocka_unit_test(test_check__refuses_mutants_or_they_execute),
        cmocka_unit_test(test_replay__equal_stages_take_what_the_closed_form_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
