/* The problem of layout rules against enumeration: on random graphs, for a target that fuses
 * nothing and one that fuses, every rule set is lowered. The problem says what its plain program
 * costs, to the picosecond, and no more bytes than its program needs; GLPK and the solver of our
 * own must find exactly the best value, and what certificates of plans say holds of all
 * programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/sharding.h"
#include "cost_models/predict.h"
#include "cost_models/redistribution_price.h"
#include "planner/plan_rules.h"
#include "planner/problem/rules/rules_internal.h"
#include "planner/problem/overlay.h"
#include "planner/solver/minimum_memory.h"
#include "tests/support/random_graphs.h"

enum { N_GRAPHS = 600, FIRST_SEED = 20240700 };

static const char *const MESHES[] = {"x:2",     "x:3",     "x:4",    "x:2;y:2",
                                     "x:3;y:2", "x:2;y:4", "x:4;y:3"};
enum { N_MESHES = sizeof MESHES / sizeof MESHES[0] };

typedef struct outcome {
    bool legal;
    int64_t cost_ps, peak_bytes; /* as the problem counts */
} outcome;

typedef struct bruteforce {
    const dtp_graph *g;
    dtp_pricer pricer;
    bool uneven;
    dtp_layout_rules rules;
    double counted; /* sum of problem's peak / program's peak */
} bruteforce;

/* ---- one rule set ---- */

/* What the programs of the rules cost and need. */
static outcome evaluate(const bruteforce *b)
{
    dtp_arena *arena = dtp_arena_create();
    outcome o = {0};
    dtp_sharding s;
    dtp_program *program = NULL;
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    options.target = b->pricer.target;
    assert_non_null(arena);
    o.legal = dtp_sharding_from_rules(b->g, &b->pricer.mesh, &b->rules, b->uneven, arena, &s,
                                      NULL) == DTP_OK &&
              dtp_lower(b->g, &s, &options, &program, NULL) == DTP_OK;
    if (o.legal) {
        assert_int_equal(
            dtp_additive_cost(b->g, &b->pricer, &s, options.redistributor, &o.cost_ps, NULL),
            DTP_OK);
        o.peak_bytes = program->peak_bytes;
    }
    dtp_program_destroy(program);
    dtp_arena_destroy(arena);
    return o;
}

/* ---- all rule sets ---- */

/* Rule set number `code`: n_mesh bits for each dim of the graph, splits in mesh order. */
static void decode(bruteforce *b, uint64_t code)
{
    const int32_t n_mesh = b->pricer.mesh.n_dims;
    for (dtp_dim_id d = 0; d < b->g->dims.n; d++) {
        b->rules.splits[d] =
            dtp_rules__splits_of((uint8_t)(code >> (d * n_mesh) & ((1U << n_mesh) - 1U)));
    }
}

/* A split with more parts than a size: outside of what is searched. */
static bool has_empty_parts(const bruteforce *b)
{
    bool has = false;
    for (int32_t t = 0; t < b->g->n_tensors; t++) {
        const dtp_ttype *type = &b->g->tensors[t].type;
        for (int32_t i = 0; i < type->rank; i++) {
            const dtp_rule_splits *splits = &b->rules.splits[type->dims[i].id];
            int64_t parts = 1;
            for (int8_t k = 0; k < splits->n; k++) {
                parts *= b->pricer.mesh.sizes[splits->mesh_dims[k]];
            }
            has = has || parts > type->dims[i].size;
        }
    }
    return has;
}

typedef struct table {
    int32_t n;
    outcome *legal; /* of the legal rule sets */
    uint64_t *code;
} table;

/* Evaluates every rule set and compares each with the planner's tables. */
static table enumerate(bruteforce *b, const dtp_rules_problem *p)
{
    const uint64_t n = UINT64_C(1) << (b->g->dims.n * b->pricer.mesh.n_dims);
    table all = {.legal = calloc((size_t)n, sizeof *all.legal),
                 .code = calloc((size_t)n, sizeof *all.code)};
    assert_non_null(all.legal);
    assert_non_null(all.code);
    int32_t *assignment = calloc((size_t)p->select->n_variables, sizeof *assignment);
    assert_non_null(assignment);
    for (uint64_t code = 0; code < n; code++) {
        dtp_problem_value v;
        decode(b, code);
        outcome o = evaluate(b);
        if (!dtp_rules_assignment(p, &b->rules, assignment)) {
            assert_true(!o.legal || (b->uneven && has_empty_parts(b)));
            continue;
        }
        assert_int_equal(dtp_problem_evaluate(p->select, assignment, &v, NULL), DTP_OK);
        assert_int_equal(v.feasible, o.legal);
        if (o.legal) {
            assert_int_equal(v.cost, o.cost_ps);
            assert_true(v.peak <= o.peak_bytes);
            b->counted += (double)v.peak / (double)o.peak_bytes;
            o = (outcome){.legal = true, .cost_ps = v.cost, .peak_bytes = v.peak};
            all.code[all.n] = code;
            all.legal[all.n++] = o;
        }
    }
    free(assignment);
    return all;
}

/* ---- comparison with the solvers ---- */

typedef struct question {
    const dtp_layout_rules *pins; /* NULL: none */
    bool memory;                  /* the least peak, else the least cost */
    int64_t limit_bytes;          /* 0: none */
} question;

/* Best cost (or peak) among the legal rule sets within the limit that hold the pin; -1 = none. */
static int64_t best_of(bruteforce *b, const table *all, const question *q)
{
    int64_t best = -1;
    for (int32_t i = 0; i < all->n; i++) {
        bool holds = q->limit_bytes == 0 || all->legal[i].peak_bytes <= q->limit_bytes;
        decode(b, all->code[i]);
        for (dtp_dim_id d = 0; q->pins != NULL && d < q->pins->n; d++) {
            const dtp_rule_splits *want = &q->pins->splits[d];
            holds = holds && (want->n == 0 || memcmp(want, &b->rules.splits[d], sizeof *want) == 0);
        }
        const int64_t value = q->memory ? all->legal[i].peak_bytes : all->legal[i].cost_ps;
        best = holds && (best < 0 || value < best) ? value : best;
    }
    return best;
}

static int64_t least_cost(const dtp_problem *p, const dtp_solve_options *o, int64_t limit)
{
    dtp_overlay overlay;
    dtp_solve_result r;
    dtp_err err = {0};
    dtp_overlay_init(p, &overlay);
    overlay.problem.usage_limit = limit > 0 ? limit : p->usage_limit;
    if (dtp_solve(&overlay.problem, o, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const bool found = r.assignment != NULL;
    assert_int_equal(r.status, found ? DTP_CERT_OPTIMAL : DTP_CERT_INFEASIBLE);
    assert_true(!found || (r.value.feasible && r.bound == r.value.cost));
    dtp_solve_result_free(&r);
    dtp_overlay_free(&overlay);
    return found ? r.value.cost : -1;
}

static int64_t least_peak(const dtp_problem *p, const dtp_solve_options *o, int64_t limit)
{
    dtp_minimum_memory m;
    dtp_err err = {0};
    if (dtp_minimum_memory_find(p, o, limit, &m, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    const bool found = m.assignment != NULL && (limit == 0 || m.usage <= limit);
    assert_true(!found || m.bound == m.usage);
    dtp_minimum_memory_free(&m);
    return found ? m.usage : -1;
}

static void compare(bruteforce *b, const table *all, const question *q)
{
    static const dtp_solver solvers[] = {DTP_SOLVER_GLPK, DTP_SOLVER_AUTO};
    const int64_t best = best_of(b, all, q);
    dtp_rules_problem *p = NULL;
    dtp_err err = {0};
    if (dtp_rules_problem_create(b->g, &b->pricer, dtp_redistributor_generic(), q->pins, b->uneven,
                                 &p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < 2; i++) {
        dtp_solve_options o = dtp_solve_options_init();
        o.solver = solvers[i];
        assert_int_equal(q->memory ? least_peak(p->select, &o, q->limit_bytes)
                                   : least_cost(p->select, &o, q->limit_bytes),
                         best);
    }
    dtp_rules_problem_destroy(p);
}

/* A limit between the smallest and the largest peak of the legal rule sets, or just below the
 * smallest. */
static int64_t some_limit(const table *all, uint64_t *state)
{
    int64_t low = INT64_MAX, high = 0;
    for (int32_t i = 0; i < all->n; i++) {
        low = all->legal[i].peak_bytes < low ? all->legal[i].peak_bytes : low;
        high = all->legal[i].peak_bytes > high ? all->legal[i].peak_bytes : high;
    }
    const int32_t kind = random_below(state, 8);
    if (kind == 0) {
        return low - 1;
    }
    return kind == 1 ? low : low + (int64_t)(random_next(state) % (uint64_t)(high - low + 1));
}

static void compare_objectives(bruteforce *b, const table *all, uint64_t *state)
{
    question q = {0};
    dtp_layout_rules pins;
    compare(b, all, &q);
    q.limit_bytes = some_limit(all, state);
    compare(b, all, &q);
    q.memory = true;
    compare(b, all, &q);
    q.limit_bytes = 0;
    compare(b, all, &q);
    /* Pin one dim as some legal rule set has it. */
    decode(b, all->code[random_below(state, all->n)]);
    assert_int_equal(dtp_layout_rules_create(b->g->arena, b->g->dims.n, &pins, NULL), DTP_OK);
    const int32_t d = random_below(state, b->g->dims.n);
    pins.splits[d] = b->rules.splits[d];
    q.pins = &pins;
    compare(b, all, &q);
    q.memory = false;
    q.limit_bytes = some_limit(all, state);
    compare(b, all, &q);
}

/* ---- plans ---- */

/* The least cost of the programs that are within a limit, with steps at the machine's prices or
 * those of the generic machine; -1: none is. */
static int64_t least_program(bruteforce *b, const table *all, const dtp_redistributor *machine,
                             int64_t limit)
{
    const dtp_redistributor *const redistributors[] = {machine, dtp_redistributor_generic()};
    int64_t least = -1;
    for (int32_t i = 0; i < 2 * all->n; i++) {
        dtp_arena *arena = dtp_arena_create();
        dtp_sharding s;
        dtp_prediction predicted;
        dtp_lower_options options = dtp_lower_options_init(redistributors[i % 2]);
        int64_t cost;
        options.target = b->pricer.target;
        options.overlap = (dtp_overlap){.depth = DTP_OVERLAP_CHOOSE,
                                        .bucket_bytes = options.overlap.bucket_bytes,
                                        .memory_bytes = limit};
        decode(b, all->code[i / 2]);
        assert_int_equal(
            dtp_sharding_from_rules(b->g, &b->pricer.mesh, &b->rules, b->uneven, arena, &s, NULL),
            DTP_OK);
        assert_int_equal(
            dtp_sharding_predict(b->g, &b->pricer, &s, &options, &predicted, &cost, NULL), DTP_OK);
        const bool fits = limit == 0 || predicted.peak_bytes <= limit;
        least = fits && (least < 0 || cost < least) ? cost : least;
        dtp_arena_destroy(arena);
    }
    return least;
}

/* No program within the limit costs less than the bound; an optimal plan has the cheapest one. */
static bool compare_plan(bruteforce *b, const table *all, const dtp_machine *machine, int64_t limit)
{
    dtp_redistribution_pricer *moves = NULL;
    dtp_plan_request request = dtp_plan_request_init();
    dtp_plan_result r;
    dtp_err err = {0};
    request.options.mesh = &b->pricer.mesh;
    request.target = b->pricer.target;
    request.options.memory_limit_bytes = limit;
    request.options.uneven = b->uneven;
    assert_int_equal(dtp_redistribution_pricer_create(&b->pricer, &moves, NULL), DTP_OK);
    const int64_t least =
        least_program(b, all, dtp_redistribution_pricer_redistributor(moves), limit);
    if (dtp_plan_rules(b->g, machine, &request, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_true(r.plan == NULL || least >= 0);
    const bool optimal = r.plan != NULL && r.plan->certificate.status == DTP_CERT_OPTIMAL;
    if (r.plan != NULL) {
        assert_int_equal(r.plan->uneven, b->uneven);
        assert_true(r.plan->certificate.bound <= least && r.plan->certificate.cost >= least);
        assert_true(!optimal || r.plan->certificate.cost == least);
    }
    dtp_plan_result_free(&r);
    dtp_redistribution_pricer_destroy(moves);
    return optimal;
}

/* ---- the graphs ---- */

/* Sums over graphs. */
typedef struct tally {
    int32_t choices, real, optimal;
    double counted;
} tally;

static void check_graph(const dtp_machine *machine, const dtp_target *target, bool uneven,
                        uint64_t seed, tally *sum)
{
    char *text = NULL;
    uint64_t state = seed ^ UINT64_C(0x5bd1e995);
    dtp_mesh mesh;
    dtp_rules_problem *p = NULL;
    dtp_err err = {0};
    dtp_graph *g = random_graph(seed, &text);
    assert_non_null(g);
    bruteforce b = {.g = g, .uneven = uneven};
    const char *mesh_text = MESHES[random_below(&state, g->dims.n > 5 ? 3 : N_MESHES)];
    print_message("seed %llu mesh %s, %s: %d nodes, %d dims\n", (unsigned long long)seed, mesh_text,
                  target->name, g->n_nodes, g->dims.n);
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &mesh, target, &b.pricer, NULL), DTP_OK);
    assert_int_equal(dtp_layout_rules_create(g->arena, g->dims.n, &b.rules, NULL), DTP_OK);
    if (dtp_rules_problem_create(g, &b.pricer, dtp_redistributor_generic(), NULL, uneven, &p,
                                 &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    table all = enumerate(&b, p);
    assert_true(all.n >= 1);
    sum->choices += all.n;
    sum->real += all.n > 4 ? 1 : 0;
    sum->counted += b.counted;
    compare_objectives(&b, &all, &state);
    if (seed % 4 == 0) {
        sum->optimal += compare_plan(&b, &all, machine, 0) ? 1 : 0;
        sum->optimal += compare_plan(&b, &all, machine, some_limit(&all, &state)) ? 1 : 0;
    }
    dtp_rules_problem_destroy(p);
    dtp_graph_destroy(g);
    free(all.legal);
    free(all.code);
    free(text);
}

static void check_graphs(const dtp_target *target, bool uneven, uint64_t n)
{
    dtp_machine *machine = NULL;
    tally sum = {0};
    assert_int_equal(
        dtp_machine_read(DTP_SOURCE_DIR "/models/machines/h100_64.json", &machine, NULL), DTP_OK);
    for (uint64_t k = 0; k < n; k++) {
        check_graph(machine, target, uneven, FIRST_SEED + k, &sum);
    }
    sum.counted /= sum.choices;
    print_message("%s%s: %d legal rule sets on %d graphs; %d graphs with more than four; the "
                  "problem counts %.3f of what programs need; %d plans are optimal\n",
                  target->name, uneven ? ", uneven" : "", sum.choices, (int)n, sum.real,
                  sum.counted, sum.optimal);
    /* uneven shards are packed into staging, which is not counted beside results */
    assert_true(sum.counted > (uneven ? 0.7 : 0.8));
    assert_true(sum.real > (int32_t)n / 2 && sum.optimal > (int32_t)n / 12);
    dtp_machine_destroy(machine);
}

static void test_rules_ilp__equals_brute_force(void **state)
{
    (void)state;
    check_graphs(&dtp_target_cpu, false, N_GRAPHS);
    check_graphs(&dtp_target_cuda, false, N_GRAPHS);
}

static void test_rules_ilp__equals_brute_force_with_uneven_splits(void **state)
{
    (void)state;
    check_graphs(&dtp_target_cpu, true, N_GRAPHS / 4);
    check_graphs(&dtp_target_cuda, true, N_GRAPHS / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_ilp__equals_brute_force),
        cmocka_unit_test(test_rules_ilp__equals_brute_force_with_uneven_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
