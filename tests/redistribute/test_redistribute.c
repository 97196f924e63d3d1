/* Redistribution: refusals, counts of known cases, what the steps hold in memory. Exhaustive tests:
 * test_redistribute_*.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/program/program_internal.h"
#include "core/graph/ops/op_table.h"
#include "spmd/lower/redistribute_program.h"
#include "spmd/redistribute/redistribute.h"
#include "tests/support/spmd_sim.h"
#include "tests/support/layout_list.h"
#include "spmd/lower/overlap.h"

enum { MAX_ELEMS = 4096 };

typedef struct fixture {
    dtp_graph *graph;
    dtp_mesh mesh;
    dtp_ttype type;
    dtp_program *program;
} fixture;

static fixture setup(const char *mesh, int32_t rank, const int64_t *sizes)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    fixture f = {0};
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &f.graph, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(mesh, &f.mesh, NULL), DTP_OK);
    f.type = (dtp_ttype){.dtype = DTP_F64, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        f.type.dims[i].size = sizes[i];
        assert_int_equal(
            dtp_dims_intern(&f.graph->dims, names[i], sizes[i], &f.type.dims[i].id, NULL), DTP_OK);
    }
    assert_int_equal(dtp_program_create(f.graph, &f.mesh, &dtp_target_cpu, &f.program, NULL),
                     DTP_OK);
    f.program->plain_names = true;
    return f;
}

static void teardown(fixture *f)
{
    dtp_program_destroy(f->program);
    dtp_graph_destroy(f->graph);
}

/* ---- running one pair ---- */

static int32_t count_collectives(const dtp_program *p, dtp_coll_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].kind == DTP_INSTR_START &&
             (kind == DTP_N_COLLS || p->instrs[i].coll.kind == kind);
    }
    return n;
}

/* Lowers from -> to into the fixture's program; input is value 0. */
static dtp_status lower_pair(fixture *f, const dtp_layout *from, const dtp_layout *to,
                             dtp_value_id *out, dtp_err *err)
{
    dtp_steps steps;
    dtp_value v = dtp_program__value_init("t", DTP_VALUE_INPUT);
    v.type = f->type;
    v.layout = *from;
    assert_int_equal(dtp_program_reset(f->program, NULL), DTP_OK);
    assert_int_equal(dtp_program__add_value(f->program, &v, out, NULL), DTP_OK);
    DTP_TRY(dtp_redistribute_plan(&f->mesh, &f->type, from, to, dtp_step_generic_price, NULL,
                                  &steps, err));
    dtp_layout at = *from;
    for (int32_t i = 0; i < steps.n; i++) {
        at = steps.steps[i].after;
        assert_int_equal(dtp_layout_check(&at, &f->mesh, &f->type, NULL), DTP_OK);
    }
    assert_true(dtp_layout_equal(&at, to));
    return dtp_redistribute_emit(f->program, &steps, -1, DTP_FORWARD, out, err);
}

static bool is_legal(const dtp_layout *from, const dtp_layout *to)
{
    for (int32_t m = 0; m < from->n_mesh; m++) {
        const dtp_placement *a = &from->placement[m], *b = &to->placement[m];
        if (b->kind == DTP_PARTIAL && a->kind == DTP_SHARD) {
            return false;
        }
        if (b->kind == DTP_PARTIAL && b->op == DTP_REDUCE_PROD && a->kind == DTP_REPLICATE) {
            return false;
        }
    }
    return true;
}

static dtp_layout layout_of(const fixture *f, const char *text)
{
    dtp_layout layout;
    dtp_err err;
    if (dtp_layout_parse(text, &f->mesh, &f->type, &f->graph->dims, &layout, &err) != DTP_OK) {
        fail_msg("%s: %s", text, err.msg);
    }
    return layout;
}

/* Parts are taken from where they lie: no copies when all shards have one size. */
static void test_redistribute__even_shards_are_never_packed(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 12, 8};
    uint64_t seed = 5;
    fixture f = setup("x:2;y:2", 3, sizes);
    layout_list list = layout_list_all(3, 2, true, DTP_REDUCE_SUM);
    int32_t strided = 0;
    for (int32_t k = 0; k < 600; k++) {
        const dtp_layout *from = &list.items[spmd_sim_random(&seed) % (uint64_t)list.n];
        const dtp_layout *to = &list.items[spmd_sim_random(&seed) % (uint64_t)list.n];
        dtp_value_id out;
        if (!is_legal(from, to)) {
            continue;
        }
        assert_int_equal(lower_pair(&f, from, to, &out, NULL), DTP_OK);
        for (int32_t i = 0; i < f.program->n_instrs; i++) {
            const dtp_instr *instr = &f.program->instrs[i];
            bool packs = instr->kind == DTP_INSTR_COPY &&
                         (instr->move.kind == DTP_COPY_PACK || instr->move.kind == DTP_COPY_UNPACK);
            assert_false(packs);
            strided += instr->kind == DTP_INSTR_START &&
                       (instr->coll.in_outer > 1 || instr->coll.out_outer > 1);
        }
    }
    assert_true(strided > 100);
    layout_list_free(&list);
    teardown(&f);
}

/* ---- passing shards on ---- */

static void check_permute(const char *mesh, const char *layout, dtp_mesh_set set, int32_t shift)
{
    static const int64_t sizes[] = {12, 4};
    fixture f = setup(mesh, 2, sizes);
    double global[48];
    uint64_t seed = 3;
    dtp_value v = dtp_program__value_init("t", DTP_VALUE_INPUT);
    dtp_value_id in, out = -1;
    v.type = f.type;
    v.layout = layout_of(&f, layout);
    assert_int_equal(dtp_program__add_value(f.program, &v, &in, NULL), DTP_OK);
    assert_int_equal(
        dtp_program__emit_permute(f.program, in, set, shift, -1, DTP_FORWARD, &out, NULL), DTP_OK);
    f.program->values[out].keep = true;
    const dtp_overlap none = {0};
    assert_int_equal(dtp_program_overlap(f.program, &none, false, NULL), DTP_OK);
    dtp_err err = {0};
    if (dtp_program_check(f.program, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    for (int i = 0; i < 48; i++) {
        global[i] = i;
    }
    spmd_sim sim = spmd_sim_create(f.program, NULL);
    spmd_sim_scatter(&sim, in, global, &seed);
    spmd_sim_run(&sim);
    int32_t n = dtp_mesh_set_size(&f.mesh, set);
    dtp_ttype local;
    dtp_value_local(f.program, in, 0, &local, NULL);
    for (int32_t r = 0; r < dtp_mesh_ranks(&f.mesh); r++) {
        int32_t to = (dtp_mesh_set_index(&f.mesh, set, r) + shift % n + n) % n;
        int32_t receiver = dtp_mesh_set_member(&f.mesh, set, r, to);
        assert_memory_equal(spmd_sim_data(&sim, in, r), spmd_sim_data(&sim, out, receiver),
                            (size_t)dtp_ttype_elems(&local) * sizeof(double));
    }
    spmd_sim_destroy(&sim);
    teardown(&f);
}

static void test_permute__passes_shards_on(void **state)
{
    (void)state;
    check_permute("x:4", "a@x", 1, 1);
    check_permute("x:4", "b@x", 1, -3);
    check_permute("x:3;y:2", "a@x, b@y", 1, 1);
    check_permute("x:3;y:2", "a@x, b@y", 2, 1);
    check_permute("x:3;y:2", "a@x+y", 3, 5);
}

static void test_permute__refuses_uneven_shards(void **state)
{
    (void)state;
    static const int64_t sizes[] = {10, 4};
    fixture f = setup("x:4", 2, sizes);
    dtp_err err = {0};
    dtp_value v = dtp_program__value_init("t", DTP_VALUE_INPUT);
    dtp_value_id in, out = -1;
    v.type = f.type;
    v.layout = layout_of(&f, "a@x");
    assert_int_equal(dtp_program__add_value(f.program, &v, &in, NULL), DTP_OK);
    assert_int_equal(dtp_program__emit_permute(f.program, in, 1, 1, -1, DTP_FORWARD, &out, &err),
                     DTP_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "differ in size"));
    teardown(&f);
}

/* ---- refusals ---- */

static void test_redistribute__refuses_what_has_no_meaning(void **state)
{
    (void)state;
    static const int64_t sizes[] = {8, 8};
    static const struct {
        const char *from, *to, *words;
    } cases[] = {{"a@x", "+sum(x)", "(S0, R) to (P(sum), R)"},
                 {"+sum(x)", "+avg(x)", "one partial reduction"},
                 {"+sum(x)", "+max(x)", "one partial reduction"},
                 {"replicated", "+prod(y)", "partial product"},
                 {"+sum(x), +max(y)", "replicated", "no defined order"}};
    fixture f = setup("x:2;y:2", 2, sizes);
    for (size_t i = 0; i < 5; i++) {
        dtp_layout from = layout_of(&f, cases[i].from), to = layout_of(&f, cases[i].to);
        dtp_steps steps;
        dtp_err err;
        assert_int_equal(dtp_redistribute_plan(&f.mesh, &f.type, &from, &to, dtp_step_generic_price,
                                               NULL, &steps, &err),
                         DTP_UNSUPPORTED);
        assert_non_null(strstr(err.msg, cases[i].words));
    }
    teardown(&f);
}

/* ---- known cases ---- */

typedef struct known {
    const char *mesh;
    int32_t rank;
    int64_t sizes[3];
    const char *from, *to;
    int32_t all_reduce, all_gather, reduce_scatter, all_to_all;
} known;

static void check_known(const known *k)
{
    fixture f = setup(k->mesh, k->rank, k->sizes);
    dtp_layout from = layout_of(&f, k->from), to = layout_of(&f, k->to);
    dtp_value_id out;
    assert_int_equal(lower_pair(&f, &from, &to, &out, NULL), DTP_OK);
    int32_t want[DTP_N_COLLS] = {k->all_reduce, k->all_gather, k->reduce_scatter, k->all_to_all};
    for (int c = 0; c < DTP_N_COLLS; c++) {
        int32_t got = count_collectives(f.program, (dtp_coll_kind)c);
        if (got != want[c]) {
            fail_msg("%s: (%s) to (%s): %d %s, expected %d", k->mesh, k->from, k->to, got,
                     dtp_coll_name((dtp_coll_kind)c), want[c]);
        }
    }
    teardown(&f);
}

static void test_redistribute__known_counts(void **state)
{
    (void)state;
    static const known cases[] = {
        /* flattened: one collective */
        {"x:2;y:2;z:2", 2, {64, 64}, "a@x+y+z", "b@x+y+z", 0, 0, 0, 1},
        {"x:4;y:2", 2, {64, 64}, "+sum(x), +sum(y)", "replicated", 1, 0, 0, 0},
        {"x:4;y:2", 2, {64, 64}, "+sum(x), +sum(y)", "a@x+y", 0, 0, 1, 0},
        {"x:4;y:2", 2, {512, 512}, "+sum(x), +sum(y)", "a@x, b@y", 0, 0, 2, 0},
        {"x:4;y:2", 2, {64, 64}, "a@x+y", "replicated", 0, 1, 0, 0},
        {"x:4;y:2", 2, {64, 64}, "a@x, b@y", "replicated", 0, 2, 0, 0},
        {"x:2;y:2;z:2", 2, {64, 64}, "+sum(x), +sum(y), +sum(z)", "replicated", 1, 0, 0, 0},
        {"x:2;y:2;z:2", 2, {64, 64}, "+sum(x), +sum(z)", "replicated", 1, 0, 0, 0},
        {"x:2;y:4;z:1", 1, {8}, "+sum(x), a@y, +sum(z)", "a@y", 1, 0, 0, 0},
        {"x:2;y:2", 2, {64, 64}, "+avg(x), +sum(y)", "replicated", 1, 0, 0, 0},
        /* nested in descending order: one mesh dim at a time; uneven sizes too */
        {"x:4;y:2", 2, {64, 64}, "a@y+x", "replicated", 0, 2, 0, 0},
        {"x:2;y:3", 1, {10}, "+sum(x), +sum(y)", "a@x+y", 0, 0, 2, 0},
        /* relayouts */
        {"x:4", 2, {12, 3}, "a@x", "replicated", 0, 1, 0, 0},
        {"x:4", 2, {12, 3}, "replicated", "b@x", 0, 0, 0, 0},
        {"x:4", 2, {13, 3}, "+sum(x)", "a@x", 0, 0, 1, 0},
        {"x:4", 2, {5, 8}, "a@x", "b@x", 0, 0, 0, 1},
        {"x:2;y:2", 2, {8, 8}, "a@x, b@y", "a@x+y", 0, 0, 0, 1},
        {"x:4;y:1", 2, {16, 8}, "a@x, b@y", "a@x+y", 0, 0, 0, 0},
        {"x:4;y:1", 2, {16, 8}, "a@x, +sum(y)", "a@x", 0, 0, 0, 0},
        {"x:3;y:2", 3, {2, 2, 3}, "b@y, c@x", "a@x, b@y", 0, 0, 0, 1},
        /* the whole tensor must not be gathered on the way */
        {"x:4;y:2", 3, {16, 16, 16}, "a@y, c@x", "b@x+y", 0, 0, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_known(&cases[i]);
    }
}

static int64_t moved_elems(const fixture *f)
{
    int64_t n = 0;
    for (int32_t i = 0; i < f->program->n_instrs; i++) {
        const dtp_coll *c = &f->program->instrs[i].coll;
        if (f->program->instrs[i].kind == DTP_INSTR_START) {
            n += (dtp_mesh_set_size(&f->mesh, c->set) - 1) * c->count;
        }
    }
    return n;
}

static void test_redistribute__flattened_all_to_all_moves_only_the_shard(void **state)
{
    (void)state;
    static const int64_t sizes[] = {64, 64};
    fixture f = setup("x:2;y:2;z:2", 2, sizes);
    dtp_layout from = layout_of(&f, "a@x+y+z"), to = layout_of(&f, "b@x+y+z");
    dtp_value_id out;
    assert_int_equal(lower_pair(&f, &from, &to, &out, NULL), DTP_OK);
    assert_int_equal(moved_elems(&f), 64 * 64 / 8 * 7 / 8);
    teardown(&f);
}

static void test_redistribute__swapped_orders_never_hold_the_whole_tensor(void **state)
{
    (void)state;
    static const int64_t sizes[] = {4096, 4096, 4};
    fixture f = setup("x:4;y:4", 3, sizes);
    dtp_layout from = layout_of(&f, "a@x+y"), to = layout_of(&f, "a@y+x");
    dtp_value_id out;
    assert_int_equal(lower_pair(&f, &from, &to, &out, NULL), DTP_OK);
    for (int32_t v = 0; v < f.program->n_values; v++) {
        assert_true(f.program->values[v].bytes <= dtp_ttype_bytes(&f.type) / 4);
    }
    teardown(&f);
}

static void test_redistribute__many_mesh_dims(void **state)
{
    (void)state;
    static const int64_t sizes[] = {64, 64, 64};
    fixture f = setup("u:2;v:2;w:2;x:2;y:2;z:2", 3, sizes);
    dtp_layout from = layout_of(&f, "a@u+v, b@w+x, +sum(y), +sum(z)");
    dtp_layout to = layout_of(&f, "b@v+u, c@z+y+x+w");
    dtp_value_id out;
    dtp_err err;
    if (lower_pair(&f, &from, &to, &out, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute__even_shards_are_never_packed),
        cmocka_unit_test(test_permute__passes_shards_on),
        cmocka_unit_test(test_permute__refuses_uneven_shards),
        cmocka_unit_test(test_redistribute__refuses_what_has_no_meaning),
        cmocka_unit_test(test_redistribute__known_counts),
        cmocka_unit_test(test_redistribute__flattened_all_to_all_moves_only_the_shard),
        cmocka_unit_test(test_redistribute__swapped_orders_never_hold_the_whole_tensor),
        cmocka_unit_test(test_redistribute__many_mesh_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
