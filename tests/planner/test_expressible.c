/* Plans of which a form loses nothing: what the restricted problem of tensor mode forbids, against
 * what the exporter itself says of every selection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/quarter.h"
#include "tests/support/tensor_cases.h"

static const tensor_case CASES[] = {
    {.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS, .remat = true},
    {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS, .microbatches = 2},
    {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS, .precision = "bf16"},
};

enum { N_CASES = sizeof CASES / sizeof CASES[0], SELECTIONS = 40, CHANGES = 25 };

/* All that placements lose; what JAX does; training alone. */
static const uint32_t LOSES[] = {~0U & ~(1U << DTP_LOST_PARTIAL | 1U << DTP_LOST_TERMS),
                                 ~0U & ~(1U << DTP_LOST_INSIDE | 1U << DTP_LOST_MESH_ORDER |
                                         1U << DTP_LOST_PARTIAL | 1U << DTP_LOST_TERMS),
                                 1U << DTP_LOST_GRADIENTS | 1U << DTP_LOST_STATES};

enum { N_LOSES = sizeof LOSES / sizeof LOSES[0] };

typedef struct space_case {
    tensor_fixture f;
    dtp_arena *arena;
    dtp_names names;
    bool has_names;
    dtp_export_form form; /* placements, of which `loses` counts */
    dtp_plan plan;        /* all whole */
    dtp_placements placements;
    dtp_form_space space;
    dtp_tensor_problem *problem;
} space_case;

static void begin_case(const tensor_case *c, uint32_t loses, bool names, space_case *s)
{
    const dtp_export_form *placements = NULL;
    dtp_layout_rules none;
    dtp_tensor_options options = dtp_tensor_options_init();
    char path[512];
    memset(s, 0, sizeof *s);
    tensor_fixture_create(c, &s->f);
    s->arena = dtp_arena_create();
    assert_non_null(s->arena);
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/%.*s.names.json",
                   (int)strcspn(c->model, "."), c->model);
    if (names) {
        assert_int_equal(dtp_names_read(path, s->arena, &s->names, NULL), DTP_OK);
    }
    s->has_names = names;
    assert_int_equal(dtp_export_form_find("placements", &placements, NULL), DTP_OK);
    s->form = *placements;
    s->form.loses = loses;
    s->plan.mesh = s->f.pricer.mesh;
    const dtp_graph *g = s->f.graph;
    assert_int_equal(dtp_layout_rules_create(s->arena, g->dims.n, &none, NULL), DTP_OK);
    assert_int_equal(
        dtp_sharding_from_rules(g, &s->plan.mesh, &none, false, s->arena, &s->plan.sharding, NULL),
        DTP_OK);
    assert_int_equal(
        dtp_placements_make(&s->plan, g, names ? &s->names : NULL, s->arena, &s->placements, NULL),
        DTP_OK);
    assert_int_equal(dtp_form_space_make(loses, &s->placements, &s->space, NULL), DTP_OK);
    options.space = &s->space;
    s->problem = tensor_fixture_problem(&s->f, &options);
}

static void end_case(space_case *s)
{
    dtp_tensor_problem_destroy(s->problem);
    dtp_arena_destroy(s->arena);
    tensor_fixture_destroy(&s->f);
}

static bool is_said(const space_case *s, const int32_t *selection)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_plan plan = s->plan;
    dtp_said said = DTP_SAID_NOT;
    dtp_err err = {0};
    plan.expressible.form = s->form.name;
    dtp_status st = dtp_tensor_sharding(s->problem, selection, arena, &plan.sharding, &err);
    st = st == DTP_OK ? dtp_export_says_all(&s->form, &plan, s->f.graph,
                                            s->has_names ? &s->names : NULL, &said, &err)
                      : st;
    if (st != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_arena_destroy(arena);
    return said != DTP_SAID_NOT;
}

/* Whether a module's product is redistributed, and the sum with its bias elsewhere again: lost
 * inside the module, which takes three layouts to say, so that ties allow it. */
static bool is_sent_twice(const space_case *s, const int32_t *selection)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_sharding sharding;
    dtp_uses_of_layouts uses;
    const dtp_graph *g = s->f.graph;
    bool twice = false;
    assert_int_equal(dtp_tensor_sharding(s->problem, selection, arena, &sharding, NULL), DTP_OK);
    assert_int_equal(dtp_uses_of_layouts_find(g, &sharding, arena, &uses, NULL), DTP_OK);
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_tensor_id sum = dtp_placements_sum(&s->placements, t);
        twice = twice || (sum >= 0 && !dtp_layout_equal(&uses.made[t], &sharding.layouts[t]) &&
                          !dtp_layout_equal(&sharding.layouts[t], &sharding.layouts[sum]));
    }
    dtp_arena_destroy(arena);
    return twice;
}

static bool is_allowed(const dtp_problem *p, const int32_t *selection)
{
    dtp_problem_value value;
    assert_int_equal(dtp_problem_evaluate(p, selection, &value, NULL), DTP_OK);
    return value.cost < DTP_FORBIDDEN;
}

/* How many selections lose nothing, and how many something. */
typedef struct tally {
    int32_t said, lost;
} tally;

/* What the ties allow loses nothing; what they forbid, and nothing else does, loses something. */
static void check_selection(const space_case *s, const dtp_tensor_problem *any,
                            const int32_t *selection, tally *t)
{
    const bool tied = is_allowed(s->problem->select, selection);
    if (tied) {
        assert_true(is_said(s, selection) || is_sent_twice(s, selection));
        t->said++;
    } else if (any != NULL && is_allowed(any->select, selection)) {
        assert_false(is_said(s, selection));
        t->lost++;
    }
}

/* Selections at random, and what one other choice makes of them. Names and modules take strategies
 * away, so that without ties the same numbers are other strategies: `any` NULL. */
static void check_selections(const space_case *s, const dtp_tensor_problem *any, uint64_t *seed,
                             tally *t)
{
    const dtp_tensor_problem *p = s->problem;
    int32_t *selection = calloc((size_t)p->n_variables + 1, sizeof *selection);
    assert_non_null(selection);
    for (int k = 0; k < SELECTIONS; k++) {
        const bool found = tensor_random_selection(p, seed, selection);
        check_selection(s, any, selection, t);
        for (int i = 0; i < CHANGES && found && any != NULL; i++) {
            const uint64_t v = tensor_draw(seed, (uint64_t)p->n_variables);
            const int32_t before = selection[v];
            selection[v] = (int32_t)tensor_draw(seed, (uint64_t)p->variables[v].n_strategies);
            check_selection(s, any, selection, t);
            selection[v] = before;
        }
    }
    free(selection);
}

static void check_case(int32_t i, bool names, tally *t)
{
    uint64_t seed = (uint64_t)i + 1;
    for (int k = 0; k < N_LOSES; k++) {
        space_case s;
        begin_case(&CASES[i], LOSES[k], names, &s);
        const dtp_tensor_options options = dtp_tensor_options_init();
        dtp_tensor_problem *any = names ? NULL : tensor_fixture_problem(&s.f, &options);
        check_selections(&s, any, &seed, t);
        dtp_tensor_problem_destroy(any);
        end_case(&s);
    }
}

static void test_expressible__ties_are_what_is_lost(void **state)
{
    (void)state;
    for (int names = 0; names < 2; names++) {
        tally t = {0};
        for (int i = 0; i < N_CASES; i++) {
            if (quarter_has(i, N_CASES)) {
                check_case(i, names == 1, &t);
            }
        }
        print_message("names %d: %d selections lose nothing, %d something\n", names, t.said,
                      t.lost);
        assert_true(t.said > quarter_of(20) && (names == 1 || t.lost > quarter_of(20)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressible__ties_are_what_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
