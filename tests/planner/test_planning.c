/* Which of the candidates on one mesh is kept: the best by the one objective; and the least
 * additive cost. Which mesh is taken, and what is said while planning. */
#include "planner/planning.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"

enum { SEED = 4711, ROUNDS = 3000, MAX_CANDIDATES = 24, LIMIT = 1000 };

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % below;
}

/* ---- fixture ---- */

static bool keeps_pins(const dtp_planning *p, const dtp_candidate *c)
{
    (void)p;
    return c->name == NULL || strcmp(c->name, "against a pin") != 0;
}

static const char tags[MAX_CANDIDATES]; /* candidate i: why = &tags[i] */
static const dtp_planner planner = {.keeps_pins = keeps_pins};

/* All bytes are set: what must not change is compared as memory. */
static void begin_planning(dtp_planning *p, const dtp_plan_request *request)
{
    memset(p, 0, sizeof *p);
    p->request = request;
    p->planner = &planner;
}

/* Few times, sums and peaks, so that there are ties; means differ by a ten-thousandth
 * or more, or are equal. */
static dtp_candidate random_candidate(uint64_t *random, int64_t least)
{
    return (dtp_candidate){
        .legal = true,
        .cost_ps = least + INT64_C(1300000000) * (int64_t)draw(random, 12),
        .predicted = {.step_time_s = 1.0 + 0.001 * draw(random, 12),
                      .peak_bytes = LIMIT - (int64_t)draw(random, 4)},
    };
}

static int random_candidates(uint64_t *random, dtp_candidate *c)
{
    const int64_t least = INT64_C(1000000000000);
    const int n = 1 + (int)draw(random, MAX_CANDIDATES);
    for (int i = 0; i < n; i++) {
        c[i] = random_candidate(random, least);
        c[i].why = &tags[i];
    }
    return n;
}

/* One that must not count: it would be the best of all. */
static dtp_candidate random_excluded(uint64_t *random)
{
    dtp_candidate c = {
        .legal = true, .cost_ps = 1, .predicted = {.step_time_s = 0.001, .peak_bytes = 1}};
    switch (draw(random, 3)) {
    case 0:
        c.legal = false;
        break;
    case 1:
        c.predicted.peak_bytes = LIMIT + 1;
        break;
    default:
        c.name = "against a pin";
    }
    return c;
}

static void check_excluded(dtp_planning *p, uint64_t *random)
{
    static dtp_planning before;
    const dtp_candidate c = random_excluded(random);
    memcpy(&before, p, sizeof before);
    assert_int_equal(dtp_planning_offer(p, &c, NULL), DTP_OK);
    assert_memory_equal(&before, p, sizeof before);
}

/* ---- what is expected ---- */

static double step_of(const dtp_candidate *c)
{
    return c->predicted.step_time_s;
}

static int64_t least_of(int n, const dtp_candidate *c)
{
    int64_t least = c[0].cost_ps;
    for (int i = 1; i < n; i++) {
        least = c[i].cost_ps < least ? c[i].cost_ps : least;
    }
    return least;
}

static void check_least(const dtp_planning *p, int n, const dtp_candidate *c)
{
    const int64_t least = least_of(n, c);
    assert_true(p->has_best);
    assert_int_equal(p->cheapest.cost_ps, least);
}

/* ---- objective time ---- */

/* Whether b comes before a: a shorter makespan, or a smaller peak at the same one. */
static bool is_before(const dtp_candidate *b, const dtp_candidate *a)
{
    return step_of(b) < step_of(a) ||
           (step_of(b) == step_of(a) && b->predicted.peak_bytes < a->predicted.peak_bytes);
}

/* The best one is among them, and none of them comes before it. */
static void check_best(const dtp_planning *p, int n, const dtp_candidate *c)
{
    bool found = false;
    for (int i = 0; i < n; i++) {
        assert_false(is_before(&c[i], &p->best));
        found = found || c[i].why == p->best.why;
    }
    assert_true(found);
}

static void test_planning__keeps_the_shortest_makespan(void **state)
{
    (void)state;
    uint64_t random = SEED;
    int dearer = 0;
    print_message("seed %d\n", SEED);
    dtp_plan_request request = dtp_plan_request_init();
    request.options.objective = DTP_OBJECTIVE_TIME;
    request.options.memory_limit_bytes = LIMIT;
    for (int round = 0; round < ROUNDS; round++) {
        dtp_candidate c[MAX_CANDIDATES];
        dtp_planning p;
        begin_planning(&p, &request);
        const int n = random_candidates(&random, c);
        check_excluded(&p, &random);
        for (int i = 0; i < n; i++) {
            assert_int_equal(dtp_planning_offer(&p, &c[i], NULL), DTP_OK);
            check_excluded(&p, &random);
            check_least(&p, i + 1, c);
            check_best(&p, i + 1, c);
        }
        dearer += p.best.cost_ps > p.cheapest.cost_ps ? 1 : 0;
    }
    print_message("%d rounds, best not the cheapest: %d\n", ROUNDS, dearer);
    assert_true(dearer > ROUNDS / 10);
}

/* ---- objective memory ---- */

/* The least peak, then the least time. */
static void test_planning__objective_memory(void **state)
{
    (void)state;
    uint64_t random = SEED + 2;
    print_message("seed %d\n", SEED + 2);
    dtp_plan_request request = dtp_plan_request_init();
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    request.options.memory_limit_bytes = LIMIT;
    for (int round = 0; round < ROUNDS; round++) {
        dtp_candidate c[MAX_CANDIDATES];
        dtp_planning p;
        begin_planning(&p, &request);
        const int n = random_candidates(&random, c);
        for (int i = 0; i < n; i++) {
            assert_int_equal(dtp_planning_offer(&p, &c[i], NULL), DTP_OK);
            check_excluded(&p, &random);
        }
        for (int i = 0; i < n; i++) {
            const int64_t peak = c[i].predicted.peak_bytes, best = p.best.predicted.peak_bytes;
            assert_true(best <= peak);
            assert_true(best < peak || step_of(&p.best) <= step_of(&c[i]));
        }
        assert_int_equal(p.cheapest.cost_ps, least_of(n, c));
    }
}

/* ---- a mode ---- */

static dtp_status begins(dtp_planning *p, dtp_err *err)
{
    (void)p;
    (void)err;
    return DTP_OK;
}

static void finishes(dtp_planning *p)
{
    (void)p;
}

static dtp_status decides(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    (void)err;
    plan->sharding = p->best.sharding;
    return DTP_OK;
}

/* ---- ties ---- */

enum { N_KINDS = 3, TIE_ROUNDS = 400, TIES = 12 };

/* Layouts of candidates, in the order in which equals are taken: by modules with fewer and with
 * more kinds of layouts, and by placements alone. */
static const char *const kinds[N_KINDS] = {"", "batch:x", "hidden:x"};

typedef struct tied {
    int kind;
    double step_s;
    int64_t bytes;
} tied;

static tied ties[TIES];
static int n_ties;

static dtp_status offers_ties(dtp_planning *p, dtp_err *err)
{
    for (int i = 0; i < n_ties; i++) {
        dtp_candidate c = {.legal = true, .redistributor = dtp_planning_redistributor(p)};
        DTP_TRY(dtp_layout_rules_parse(kinds[ties[i].kind], &p->pricer.mesh, &p->graph->dims,
                                       p->arena, &c.rules, err));
        DTP_TRY(dtp_sharding_from_rules(p->graph, &p->pricer.mesh, &c.rules, false, p->arena,
                                        &c.sharding, err));
        c.predicted.step_time_s = ties[i].step_s;
        c.predicted.peak_bytes = ties[i].bytes;
        DTP_TRY(dtp_planning_offer(p, &c, err));
    }
    return DTP_OK;
}

/* Within the slack of the fastest: the least memory but for 1 %, then the kind, then the time. */
static const tied *expected_tie(double slack)
{
    double fastest = (double)INFINITY;
    int64_t least = INT64_MAX;
    const tied *best = NULL;
    for (int i = 0; i < n_ties; i++) {
        fastest = ties[i].step_s < fastest ? ties[i].step_s : fastest;
    }
    for (int i = 0; i < n_ties; i++) {
        const bool within = ties[i].step_s <= (1.0 + slack) * fastest;
        least = within && ties[i].bytes < least ? ties[i].bytes : least;
    }
    for (int i = 0; i < n_ties; i++) {
        const tied *t = &ties[i];
        if (t->step_s <= (1.0 + slack) * fastest && (double)t->bytes <= 1.01 * (double)least) {
            const bool before = best == NULL || t->kind < best->kind ||
                                (t->kind == best->kind && t->step_s < best->step_s);
            best = before ? t : best;
        }
    }
    return best;
}

/* Of what takes about as long the plan is the one that is best else, and it names the fastest. */
static void test_planning__breaks_ties(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    uint64_t random = SEED + 3;
    int slower = 0, by_kind = 0;
    dtp_plan_request request = dtp_plan_request_init();
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", NULL, &g, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, &err), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2", &mesh, &err), DTP_OK);
    request.options.mesh = &mesh;
    for (int round = 0; round < TIE_ROUNDS; round++) {
        dtp_plan_result r;
        double fastest = (double)INFINITY;
        request.options.slack = round % 4 == 0 ? 0.0 : 0.0035;
        n_ties = 1 + (int)draw(&random, TIES);
        for (int i = 0; i < n_ties; i++) {
            ties[i] = (tied){(int)draw(&random, N_KINDS), 1.0 + 0.001 * draw(&random, 8) + 1e-7 * i,
                             100000 + 600 * (int64_t)draw(&random, 8)};
            fastest = ties[i].step_s < fastest ? ties[i].step_s : fastest;
        }
        static const dtp_planner tying = {.begin = begins,
                                          .finish = finishes,
                                          .solve = offers_ties,
                                          .keeps_pins = keeps_pins,
                                          .decide = decides};
        if (dtp_planning_run(&tying, g, machine, &request, &r, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        const tied *e = request.options.slack > 0.0 ? expected_tie(request.options.slack) : NULL;
        const dtp_prediction *p = &r.plan->predicted;
        assert_true(p->step_time_s == (e != NULL ? e->step_s : fastest));
        assert_true(e == NULL || p->peak_bytes == e->bytes);
        assert_true(r.plan->fastest.step_time_s == (p->step_time_s > fastest ? fastest : 0.0));
        slower += p->step_time_s > fastest ? 1 : 0;
        by_kind += e != NULL && e->kind == 0 ? 1 : 0;
        dtp_plan_result_free(&r);
    }
    print_message("%d of %d plans are not the fastest, %d are replicated\n", slower, TIE_ROUNDS,
                  by_kind);
    assert_in_range(slower, TIE_ROUNDS / 4, TIE_ROUNDS);
    assert_in_range(by_kind, TIE_ROUNDS / 4, TIE_ROUNDS);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

/* ---- meshes that cannot beat the incumbent ---- */

static dtp_status prunes(dtp_planning *p, dtp_err *err)
{
    (void)err;
    p->pruned = true;
    p->certificate.bound = 7;
    return DTP_OK;
}

static void test_planning__every_mesh_is_pruned(void **state)
{
    (void)state;
    static const dtp_planner pruning = {
        .begin = begins, .finish = finishes, .solve = prunes, .keeps_pins = keeps_pins};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_machine *machine = NULL;
    dtp_plan_result r;
    dtp_plan_request request = dtp_plan_request_init();
    request.options.devices = 4;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", NULL, &g, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/a100_8.json", &machine, &err), DTP_OK);
    assert_int_equal(dtp_planning_run(&pruning, g, machine, &request, &r, &err), DTP_OK);
    assert_null(r.plan);
    assert_false(r.infeasible);
    assert_int_equal(r.n_meshes, 2); /* x:4 and x:2;y:2 */
    for (int32_t i = 0; i < r.n_meshes; i++) {
        assert_int_equal(r.meshes[i].outcome, DTP_MESH_PRUNED);
        assert_int_equal(r.meshes[i].bound, 7);
    }
    dtp_plan_result_free(&r);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

/* ---- meshes with more dims ---- */

enum { MAX_MESHES = 16, MESH_ROUNDS = 200 };

/* A mode whose plan on a mesh takes a time that is known beforehand. */
static double steps_s[MAX_MESHES];
static int32_t at_mesh;

static dtp_status plans_step(dtp_planning *p, dtp_err *err)
{
    dtp_candidate c = {.legal = true, .redistributor = dtp_planning_redistributor(p)};
    DTP_TRY(dtp_layout_rules_create(p->arena, p->graph->dims.n, &c.rules, err));
    DTP_TRY(dtp_sharding_from_rules(p->graph, &p->pricer.mesh, &c.rules, false, p->arena,
                                    &c.sharding, err));
    c.predicted.step_time_s = steps_s[at_mesh++];
    return dtp_planning_offer(p, &c, err);
}

/* Of the fewest dims first: the best of a number of dims that is at least 1 % faster than all with
 * fewer. */
static double expected_step(const dtp_plan_result *r)
{
    double taken = 0.0, fewer = (double)INFINITY;
    for (int32_t dims = 1; dims <= 3; dims++) {
        double best = (double)INFINITY;
        for (int32_t i = 0; i < r->n_meshes; i++) {
            const dtp_mesh_report *m = &r->meshes[i];
            const bool planned = m->outcome == DTP_MESH_PLANNED && m->mesh.n_dims == dims;
            best = planned && m->step_time_s < best ? m->step_time_s : best;
        }
        taken = best <= 0.99 * fewer ? best : taken;
        fewer = best < fewer ? best : fewer;
    }
    return taken;
}

/* Those of three dims where every mesh with two neighbouring ones as one takes longer than the best
 * by more than 2 %. */
static int32_t check_left_out(const dtp_plan_result *r)
{
    double best = (double)INFINITY;
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_meshes; i++) {
        const dtp_mesh_report *m = &r->meshes[i];
        best = m->mesh.n_dims < 3 && m->step_time_s < best ? m->step_time_s : best;
    }
    for (int32_t i = 0; i < r->n_meshes; i++) {
        const dtp_mesh_report *m = &r->meshes[i];
        bool good = m->mesh.n_dims < 3;
        for (int32_t k = 0; k < i; k++) {
            const dtp_mesh_report *c = &r->meshes[k];
            const int64_t *two = c->mesh.sizes, *three = m->mesh.sizes;
            good = good || (c->mesh.n_dims == 2 && c->step_time_s <= 1.02 * best &&
                            ((two[0] == three[0] && two[1] == three[1] * three[2]) ||
                             (two[0] == three[0] * three[1] && two[1] == three[2])));
        }
        assert_int_equal(m->outcome, good ? DTP_MESH_PLANNED : DTP_MESH_LEFT_OUT);
        n += good ? 0 : 1;
    }
    return n;
}

static void test_planning__more_dims_must_earn_it(void **state)
{
    (void)state;
    static const dtp_planner fixed = {.begin = begins,
                                      .finish = finishes,
                                      .solve = plans_step,
                                      .keeps_pins = keeps_pins,
                                      .decide = decides};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_machine *machine = NULL;
    uint64_t random = SEED;
    int32_t refused = 0, more = 0, left_out = 0;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", NULL, &g, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, &err), DTP_OK);
    for (int32_t round = 0; round < MESH_ROUNDS; round++) {
        dtp_plan_request request = dtp_plan_request_init();
        dtp_plan_result r;
        double least = (double)INFINITY;
        request.options.devices = 16;
        at_mesh = 0;
        for (int32_t i = 0; i < MAX_MESHES; i++) {
            steps_s[i] = 1.0 - 0.002 * draw(&random, 12);
        }
        if (dtp_planning_run(&fixed, g, machine, &request, &r, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        left_out += check_left_out(&r);
        for (int32_t i = 0; i < at_mesh; i++) {
            least = steps_s[i] < least ? steps_s[i] : least;
        }
        const double taken = r.plan->predicted.step_time_s;
        assert_true(taken == expected_step(&r));
        refused += taken > least ? 1 : 0;
        more += r.plan->mesh.n_dims > 1 ? 1 : 0;
        dtp_plan_result_free(&r);
    }
    print_message("%d of %d searches leave a faster mesh for one with fewer dims, %d take more\n",
                  refused, MESH_ROUNDS, more);
    assert_true(refused > MESH_ROUNDS / 10 && more > MESH_ROUNDS / 10);
    assert_in_range(left_out, 1, 3 * MESH_ROUNDS - 1);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

/* ---- progress ---- */

typedef struct notes {
    int32_t n, with_gap, meshes, variants;
    char mesh[DTP_MESH_TEXT_BYTES], variant[128];
    double best_s;
} notes;

static void note(void *user, const dtp_plan_progress *now)
{
    notes *x = user;
    assert_non_null(now->variant);
    x->n++;
    x->with_gap += now->gap >= 0.0 ? 1 : 0;
    assert_true(now->gap <= 1.0 && (now->gap < 0.0 || now->best_s > 0.0));
    assert_true(x->best_s == 0.0 || (now->best_s > 0.0 && now->best_s <= x->best_s));
    assert_int_equal(now->best_s > 0.0, now->best_bytes > 0);
    x->best_s = now->best_s;
    x->meshes += strcmp(x->mesh, now->mesh) != 0 ? 1 : 0;
    x->variants += strcmp(x->variant, now->variant) != 0 ? 1 : 0;
    (void)snprintf(x->mesh, sizeof x->mesh, "%s", now->mesh);
    (void)snprintf(x->variant, sizeof x->variant, "%s", now->variant);
}

/* Every mesh of every variant is told, and the best plan so far is that of all of them. */
static void test_plan_make__tells_how_far_it_is(void **state)
{
    (void)state;
    static const dtp_planning_mode modes[] = {DTP_PLAN_RULES, DTP_PLAN_TENSOR};
    dtp_err err = {0};
    dtp_graph *g = NULL;
    dtp_machine *machine = NULL;
    assert_int_equal(dtp_model_read(DTP_SOURCE_DIR "/models/mlp_digits.json", NULL, &g, &err),
                     DTP_OK);
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, &err), DTP_OK);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        dtp_plan_options o = dtp_plan_options_init();
        dtp_plan_result r;
        notes x = {0};
        o.mode = modes[i];
        o.devices = 4;
        o.microbatches = "auto";
        o.memory_limit_bytes = 110000; /* the model as it is does not fit */
        o.progress = note;
        o.user = &x;
        if (dtp_plan_make(g, machine, &o, &r, &err) != DTP_OK) {
            fail_msg("%s", err.msg);
        }
        int32_t planned = 0;
        for (int32_t k = 0; k < r.n_tried; k++) {
            planned += strstr(r.tried[k], "kernels alone") == NULL ? 1 : 0;
        }
        print_message("%d notes, %d with a gap; %d of %d variants are planned\n", x.n, x.with_gap,
                      planned, r.n_tried);
        assert_true(planned > 1);
        if (modes[i] == DTP_PLAN_RULES) {
            assert_int_equal(x.variants, planned);
            assert_int_equal(x.meshes, 2 * planned); /* x:4 and x:2;y:2 */
        } else { /* by usual layouts; some again, where they are solved */
            assert_in_range(x.variants, planned + 1, 2 * planned);
            assert_in_range(x.meshes, 2 * planned + 1, 4 * planned);
        }
        assert_true(x.with_gap > 0);
        assert_true(x.best_s <= r.plan->predicted.step_time_s);
        dtp_plan_result_free(&r);
    }
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning__keeps_the_shortest_makespan),
        cmocka_unit_test(test_planning__objective_memory),
        cmocka_unit_test(test_planning__breaks_ties),
        cmocka_unit_test(test_planning__every_mesh_is_pruned),
        cmocka_unit_test(test_planning__more_dims_must_earn_it),
        cmocka_unit_test(test_plan_make__tells_how_far_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
