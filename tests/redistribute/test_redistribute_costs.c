/* Tables of the costs of all redistributions against one search per pair: arbitrary costs of steps,
 * random meshes, sizes and layouts; and prices of moves on machines against the programs of the
 * steps that a lowering takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/redistribution_price.h"
#include "core/graph/ops/op_table.h"
#include "spmd/redistribute/redistribute_tables.h"
#include "spmd/redistribute/redistribute_even.h"
#include "spmd/lower/redistribute_program.h"
#include "tests/support/layout_list.h"
#include "tests/support/spmd_sim.h"

enum { MAX_RANK = 5 };

/* ---- random cases ---- */

static int64_t draw(uint64_t *seed, int64_t n)
{
    return (int64_t)(spmd_sim_random(seed) % (uint64_t)n);
}

static dtp_mesh random_mesh(uint64_t *seed, int32_t max_dims)
{
    static const char *const names[] = {"x", "y", "z", "w"};
    dtp_mesh mesh = {.n_dims = 1 + (int32_t)draw(seed, max_dims)};
    for (int32_t m = 0; m < mesh.n_dims; m++) {
        (void)snprintf(mesh.names[m], sizeof mesh.names[m], "%s", names[m]);
        mesh.sizes[m] = 1 + draw(seed, 4);
    }
    return mesh;
}

/* Some dims divide over all ranks, some over a part of them, some over none. */
static dtp_ttype random_type(uint64_t *seed, const dtp_mesh *mesh)
{
    dtp_ttype type = {.dtype = draw(seed, 2) == 0 ? DTP_F32 : DTP_F64,
                      .rank = (int32_t)draw(seed, MAX_RANK + 1)};
    for (int32_t i = 0; i < type.rank; i++) {
        const int64_t odd = 1 + draw(seed, 3) * 2;
        int64_t size = odd;
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            size *= draw(seed, 4) > 0 ? mesh->sizes[m] : 1;
        }
        type.dims[i] = (dtp_tdim){.id = i, .size = size};
    }
    return type;
}

/* Mesh dims are placed in a random order, so that tensor dims are split in every order. */
static dtp_layout random_layout(uint64_t *seed, const dtp_mesh *mesh, const dtp_ttype *type,
                                dtp_reduce_op op)
{
    dtp_layout layout = dtp_layout_replicated(type->rank, mesh->n_dims);
    const int32_t first = (int32_t)draw(seed, mesh->n_dims);
    const int32_t stride = draw(seed, 2) == 0 ? 1 : mesh->n_dims - 1;
    for (int32_t i = 0; i < mesh->n_dims; i++) {
        const int32_t m = (first + i * stride) % mesh->n_dims;
        const int64_t kind = draw(seed, 5);
        if (kind >= 2 && type->rank > 0) {
            dtp_layout_split(&layout, m, (int32_t)draw(seed, type->rank));
        } else if (kind == 1) {
            const bool other = draw(seed, 16) == 0;
            layout.placement[m] =
                (dtp_placement){.kind = DTP_PARTIAL, .op = (int8_t)(other ? DTP_REDUCE_AVG : op)};
        }
    }
    return layout;
}

static bool is_even(const dtp_mesh *mesh, const dtp_ttype *type, const dtp_layout *layout)
{
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t parts = 1;
        for (int32_t m = 0; m < layout->n_mesh; m++) {
            const dtp_placement *p = &layout->placement[m];
            parts *= p->kind == DTP_SHARD && p->axis == i ? mesh->sizes[m] : 1;
        }
        if (type->dims[i].size % parts != 0) {
            return false;
        }
    }
    return true;
}

static bool has_tables(const dtp_layout *from, const dtp_layout *to)
{
    int op = -1;
    for (int32_t m = 0; m < 2 * from->n_mesh; m++) {
        const dtp_placement *p = &(m % 2 == 0 ? from : to)->placement[m / 2];
        if (p->kind != DTP_PARTIAL) {
            continue;
        }
        if ((op >= 0 && op != p->op) || p->op == DTP_REDUCE_AVG || p->op == DTP_REDUCE_PROD) {
            return false;
        }
        op = p->op;
    }
    return true;
}

/* ---- arbitrary costs of steps ---- */

typedef struct costs {
    const dtp_mesh *mesh;
    uint64_t seed;
    int64_t range;
    int32_t fails_after; /* calls; -1: never */
    bool direct;         /* of a target that takes one collective per mesh dim */
} costs;

/* The same for steps of one kind, mesh dims, reduction, element type and bytes. */
static int64_t cost_of(const costs *c, const dtp_ttype *type, const dtp_layout *before,
                       const dtp_step *step)
{
    dtp_ttype local;
    dtp_layout_local_max(before, c->mesh, type, &local);
    const uint64_t words[] = {c->seed,
                              (uint64_t)step->kind,
                              step->set,
                              (uint64_t)step->op,
                              (uint64_t)type->dtype,
                              (uint64_t)dtp_ttype_bytes(&local)};
    uint64_t h = 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        h = (h ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 31;
    }
    return (int64_t)(h % (uint64_t)c->range);
}

static dtp_status table_cost(void *user, const dtp_ttype *type, const dtp_layout *before,
                             const dtp_step *step, int64_t *cost, dtp_err *err)
{
    costs *c = user;
    if (c->fails_after == 0) {
        return DTP_FAIL(err, DTP_RANGE, "no cost");
    }
    c->fails_after -= c->fails_after > 0 ? 1 : 0;
    *cost = cost_of(c, type, before, step);
    return DTP_OK;
}

static double search_cost(void *user, const dtp_mesh *mesh, const dtp_ttype *type,
                          const dtp_layout *before, const dtp_step *step)
{
    return is_even(mesh, type, &step->after) ? (double)cost_of(user, type, before, step)
                                             : (double)INFINITY;
}

/* Whether a step over one mesh dim leaves it as `to` says, or only makes it whole. */
static bool leads_there(const dtp_step *step, const dtp_layout *to)
{
    for (int32_t m = 0; m < to->n_mesh; m++) {
        const dtp_placement *p = &step->after.placement[m], *q = &to->placement[m];
        const bool there = p->kind == q->kind && (p->kind != DTP_SHARD || p->axis == q->axis);
        if ((step->set >> m & 1U) != 0 && !there && step->kind != DTP_STEP_ALL_GATHER &&
            step->kind != DTP_STEP_SCALE) {
            return false;
        }
    }
    return step->kind == DTP_STEP_KEEP_FIRST || step->kind == DTP_STEP_SCALE ||
           (step->set & (step->set - 1U)) == 0;
}

static int64_t searched(costs *c, const dtp_ttype *type, const dtp_layout *from,
                        const dtp_layout *to)
{
    dtp_steps steps;
    dtp_layout at = *from;
    int64_t sum = 0;
    if ((c->direct ? dtp_redistribute_direct : dtp_redistribute_plan)(
            c->mesh, type, from, to, search_cost, c, &steps, NULL) != DTP_OK) {
        return DTP_COST_IMPOSSIBLE;
    }
    for (int32_t i = 0; i < steps.n; i++) {
        assert_true(!c->direct || leads_there(&steps.steps[i], to));
        sum += cost_of(c, type, &at, &steps.steps[i]);
        at = steps.steps[i].after;
    }
    return sum;
}

/* Pairs of several tensors on one mesh; returns how many are in tables. */
static int32_t check_mesh(uint64_t seed, int32_t max_dims, int32_t pairs)
{
    uint64_t at = seed;
    const dtp_mesh mesh = random_mesh(&at, max_dims);
    costs c = {.mesh = &mesh, .seed = seed, .range = 1 + draw(&at, 1000), .fails_after = -1};
    dtp_target target = dtp_target_cpu;
    dtp_redistribute_tables *tables;
    int32_t n = 0;
    c.direct = target.direct = seed % 4 == 0;
    assert_int_equal(dtp_redistribute_tables_create(&mesh, &target, table_cost, &c, &tables, NULL),
                     DTP_OK);
    dtp_ttype type = random_type(&at, &mesh);
    for (int32_t i = 0; i < pairs; i++) {
        static const dtp_reduce_op ops[] = {DTP_REDUCE_SUM, DTP_REDUCE_SUM, DTP_REDUCE_MIN,
                                            DTP_REDUCE_MAX, DTP_REDUCE_AVG, DTP_REDUCE_PROD};
        const dtp_reduce_op op = ops[draw(&at, 6)];
        type = i % 16 == 0 ? random_type(&at, &mesh) : type;
        const dtp_layout from = random_layout(&at, &mesh, &type, op);
        const dtp_layout to = random_layout(&at, &mesh, &type, op);
        bool known;
        int64_t cost = -1;
        assert_int_equal(
            dtp_redistribute_tables_find(tables, &type, &from, &to, &known, &cost, NULL), DTP_OK);
        assert_int_equal(known, has_tables(&from, &to) && is_even(&mesh, &type, &from) &&
                                    is_even(&mesh, &type, &to));
        if (known && cost != searched(&c, &type, &from, &to)) {
            fail_msg("seed %llu, pair %d: %lld in the table, %lld by a search",
                     (unsigned long long)seed, i, (long long)cost,
                     (long long)searched(&c, &type, &from, &to));
        }
        n += known ? 1 : 0;
    }
    dtp_redistribute_tables_destroy(tables);
    return n;
}

static void test_redistribute_costs__tables_have_what_a_search_finds(void **state)
{
    (void)state;
    int32_t n = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        n += check_mesh(seed, 3, 100);
    }
    for (uint64_t seed = 401; seed <= 430; seed++) {
        n += check_mesh(seed, 4, 60);
    }
    assert_true(n > 8000);
}

static void test_redistribute_costs__every_pair_of_a_small_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *mesh;
        int32_t rank;
        int64_t sizes[3];
    } implementations[] = {{"x:2;y:2;z:2", 2, {8, 16}}, {"x:2;y:2;z:2", 2, {4, 6}},
                           {"x:2;y:3", 3, {6, 2, 9}},   {"x:2;y:3", 3, {9, 6, 2}},
                           {"x:4;y:1;z:2", 2, {8, 4}},  {"x:2;y:2;z:2", 1, {2}}};
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        dtp_mesh mesh;
        dtp_redistribute_tables *tables;
        dtp_ttype type = {.dtype = DTP_F32, .rank = implementations[i].rank};
        assert_int_equal(dtp_mesh_parse(implementations[i].mesh, &mesh, NULL), DTP_OK);
        costs c = {.mesh = &mesh, .seed = i, .range = 1000, .fails_after = -1};
        for (int32_t k = 0; k < type.rank; k++) {
            type.dims[k] = (dtp_tdim){.id = k, .size = implementations[i].sizes[k]};
        }
        assert_int_equal(
            dtp_redistribute_tables_create(&mesh, &dtp_target_cpu, table_cost, &c, &tables, NULL),
            DTP_OK);
        layout_list list = layout_list_all(type.rank, mesh.n_dims, true, DTP_REDUCE_SUM);
        for (int64_t pair = 0; pair < (int64_t)list.n * list.n; pair++) {
            const dtp_layout *from = &list.items[pair / list.n], *to = &list.items[pair % list.n];
            bool known;
            int64_t cost;
            assert_int_equal(
                dtp_redistribute_tables_find(tables, &type, from, to, &known, &cost, NULL), DTP_OK);
            assert_int_equal(known, is_even(&mesh, &type, from) && is_even(&mesh, &type, to));
            assert_true(!known || cost == searched(&c, &type, from, to));
        }
        layout_list_free(&list);
        dtp_redistribute_tables_destroy(tables);
    }
}

static void test_redistribute_costs__failures_are_passed_on(void **state)
{
    (void)state;
    dtp_mesh mesh;
    dtp_err err = {0};
    dtp_redistribute_tables *tables;
    bool known;
    int64_t cost;
    const dtp_ttype type = {
        .dtype = DTP_F32, .rank = 2, .dims = {{.id = 0, .size = 8}, {.id = 1, .size = 8}}};
    assert_int_equal(dtp_mesh_parse("x:2;y:2", &mesh, NULL), DTP_OK);
    const dtp_layout to = dtp_layout_replicated(2, 2);
    dtp_layout from = to;
    dtp_layout_split(&from, 0, 0);
    dtp_layout_split(&from, 1, 1);
    costs c = {.mesh = &mesh, .seed = 7, .range = 1000, .fails_after = 3};
    assert_int_equal(
        dtp_redistribute_tables_create(&mesh, &dtp_target_cpu, table_cost, &c, &tables, NULL),
        DTP_OK);
    assert_int_equal(dtp_redistribute_tables_find(tables, &type, &from, &to, &known, &cost, &err),
                     DTP_RANGE);
    assert_non_null(strstr(err.msg, "no cost"));
    c.fails_after = -1; /* what failed is made again */
    assert_int_equal(dtp_redistribute_tables_find(tables, &type, &from, &to, &known, &cost, NULL),
                     DTP_OK);
    assert_true(known && cost == searched(&c, &type, &from, &to));
    dtp_redistribute_tables_destroy(tables);
    dtp_redistribute_tables_destroy(NULL);
}

/* ---- the graph ---- */

static void test_even_graph__has_every_even_layout(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:4", "x:2;y:3", "x:2;y:2;z:2", "x:2;y:1;z:4"};
    static const int64_t sizes[][3] = {{8, 24, 16}, {2, 6, 12}, {1, 5, 4}, {12, 12, 12}};
    for (size_t i = 0; i < 16; i++) {
        dtp_mesh mesh;
        dtp_even_graph *g, *none;
        dtp_ttype type = {.dtype = DTP_F32, .rank = 3};
        int64_t parts[DTP_MAX_RANK];
        int32_t n = 0;
        dtp_arena *arena = dtp_arena_create();
        assert_int_equal(dtp_mesh_parse(meshes[i / 4], &mesh, NULL), DTP_OK);
        for (int32_t k = 0; k < type.rank; k++) {
            type.dims[k] = (dtp_tdim){.id = k, .size = sizes[i % 4][k]};
            parts[k] = dtp_even_part(dtp_mesh_ranks(&mesh), type.dims[k].size);
        }
        assert_int_equal(dtp_even_graph_create(arena, &mesh, 3, parts, 10000, &g, NULL), DTP_OK);
        layout_list list = layout_list_all(3, mesh.n_dims, true, DTP_REDUCE_SUM);
        for (int32_t k = 0; k < list.n; k++) {
            const bool even = is_even(&mesh, &type, &list.items[k]);
            n += even ? 1 : 0;
            assert_int_equal(dtp_even_graph_find(g, dtp_layout__key(&list.items[k])) >= 0, even);
        }
        assert_int_equal(g->n_layouts, n);
        assert_int_equal(dtp_even_graph_create(arena, &mesh, 3, parts, n, &none, NULL), DTP_OK);
        assert_non_null(none);
        assert_int_equal(dtp_even_graph_create(arena, &mesh, 3, parts, n - 1, &none, NULL), DTP_OK);
        assert_null(none);
        layout_list_free(&list);
        dtp_arena_destroy(arena);
    }
}

/* ---- prices on machines ---- */

/* The instructions of the steps that a lowering takes. */
static int64_t lowered_price(const dtp_graph *g, const dtp_pricer *pricer,
                             const dtp_redistributor *r, const dtp_ttype *type,
                             const dtp_layout *from, const dtp_layout *to)
{
    dtp_steps steps;
    dtp_redistribute_job job;
    dtp_err err = {0};
    int64_t ps = 0;
    const dtp_status s = dtp_redistribute_by(r, &pricer->mesh, type, from, to, &steps, &err);
    if (s == DTP_UNSUPPORTED) {
        return DTP_REDISTRIBUTION_IMPOSSIBLE;
    }
    if (s != DTP_OK || dtp_redistribute_program(g, &pricer->mesh, pricer->target, type, from,
                                                &steps, &job, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int32_t i = 0; i < job.program->n_instrs; i++) {
        ps += dtp_picoseconds(dtp_price_instr(pricer, job.program, &job.program->instrs[i]));
    }
    dtp_redistribute_job_free(&job);
    return ps;
}

static void check_machine(const dtp_graph *g, const char *name, const char *mesh_text,
                          const dtp_target *target, uint64_t seed)
{
    char path[512];
    dtp_machine *machine;
    dtp_mesh mesh;
    dtp_pricer pricer;
    dtp_redistribution_pricer *moves;
    uint64_t at = seed;
    (void)snprintf(path, sizeof path, DTP_SOURCE_DIR "/models/machines/%s.json", name);
    assert_int_equal(dtp_machine_read(path, &machine, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &mesh, target, &pricer, NULL), DTP_OK);
    assert_int_equal(dtp_redistribution_pricer_create(&pricer, &moves, NULL), DTP_OK);
    const dtp_redistributor *r = dtp_redistribution_pricer_redistributor(moves);
    dtp_ttype type = {0};
    for (int32_t i = 0; i < 300; i++) {
        type = i % 20 == 0 ? random_type(&at, &mesh) : type;
        const dtp_reduce_op op = draw(&at, 4) == 0 ? DTP_REDUCE_AVG : DTP_REDUCE_SUM;
        const dtp_layout from = random_layout(&at, &mesh, &type, op);
        const dtp_layout to = random_layout(&at, &mesh, &type, op);
        int64_t ps;
        assert_int_equal(dtp_redistribution_price(moves, &type, &from, &to, &ps, NULL), DTP_OK);
        const int64_t want = lowered_price(g, &pricer, r, &type, &from, &to);
        if (ps != want) {
            fail_msg("%s, %s, seed %llu, pair %d: %lld ps, the program has %lld ps", name,
                     mesh_text, (unsigned long long)seed, i, (long long)ps, (long long)want);
        }
    }
    dtp_redistribution_pricer_destroy(moves);
    dtp_machine_destroy(machine);
}

static void test_move_price__is_that_of_the_program(void **state)
{
    (void)state;
    static const char *const names[] = {"0", "1", "2", "3", "4"};
    static const struct {
        const char *machine, *mesh;
    } implementations[] = {{"a100_8", "x:8"},          {"a100_8", "x:2;y:3"},
                           {"v100_16", "x:2;y:2;z:2"}, {"h100_64", "x:4;y:4;z:4"},
                           {"h100_64", "x:16;y:4"},    {"l4_16", "x:2;y:2;z:2;w:2"},
                           {"cpu_2", "x:2"},           {"h100_128", "x:8;y:16"}};
    dtp_graph *g;
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &g, NULL), DTP_OK);
    for (int32_t i = 0; i < MAX_RANK; i++) {
        dtp_dim_id id;
        assert_int_equal(dtp_dims_intern(&g->dims, names[i], 0, &id, NULL), DTP_OK);
    }
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        for (uint64_t seed = 1; seed <= 8; seed++) {
            check_machine(g, implementations[i].machine, implementations[i].mesh,
                          seed % 2 == 0 ? &dtp_target_cpu : &dtp_target_cpu_packed, seed);
        }
    }
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute_costs__tables_have_what_a_search_finds),
        cmocka_unit_test(test_redistribute_costs__every_pair_of_a_small_tensor),
        cmocka_unit_test(test_redistribute_costs__failures_are_passed_on),
        cmocka_unit_test(test_even_graph__has_every_even_layout),
        cmocka_unit_test(test_move_price__is_that_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
