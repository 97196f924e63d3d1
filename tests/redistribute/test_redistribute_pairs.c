/* Every pair of layouts, by every planner, gives every rank its piece of the tensor to the bit: the
 * steps run on virtual ranks (tests/support/spmd_sim.h) inside the planned memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/torch_cost.h"
#include "core/graph/ops/op_table.h"
#include "spmd/program/program_check.h"
#include "spmd/redistribute/steps.h"
#include "spmd/lower/redistribute_program.h"
#include "tests/support/layout_list.h"
#include "tests/support/spmd_sim.h"
#include "tests/support/quarter.h"

enum { MAX_ELEMS = 1024, CHECK_EVERY = 16 };

typedef struct implementation {
    const char *mesh;
    int32_t rank;
    int64_t sizes[3];
} implementation;

static const implementation SETTINGS[] = {
    {"x:4", 1, {16}},
    {"x:4", 1, {7}},
    {"x:4", 1, {3}},
    {"x:4", 2, {8, 12}},
    {"x:4", 2, {5, 3}},
    {"x:4", 3, {3, 4, 5}},
    {"x:4", 3, {1, 2, 13}},
    {"x:2;y:2", 1, {8}},
    {"x:2;y:2", 1, {3}},
    {"x:2;y:2", 2, {8, 4}},
    {"x:2;y:2", 2, {5, 7}},
    {"x:2;y:2", 3, {4, 8, 4}},
    {"x:2;y:2", 3, {2, 3, 7}},
    {"x:2;y:3", 1, {18}},
    {"x:2;y:3", 1, {5}},
    {"x:2;y:3", 2, {6, 12}},
    {"x:2;y:3", 2, {7, 5}},
    {"x:2;y:3", 3, {6, 12, 6}},
    {"x:2;y:3", 3, {1, 6, 7}},
    {"x:2;y:2;z:2", 1, {16}},
    {"x:2;y:2;z:2", 1, {19}},
    {"x:2;y:2;z:2", 1, {5}},
    {"x:2;y:2;z:2", 2, {8, 16}},
    {"x:2;y:2;z:2", 2, {9, 5}},
    {"x:2;y:2;z:2", 3, {8, 2, 8}},
    {"x:2;y:2;z:2", 3, {3, 5, 2}},
};

typedef struct fixture {
    dtp_graph *graph;
    dtp_mesh mesh;
    dtp_ttype type;
    double global[MAX_ELEMS];
} fixture;

static void setup(const implementation *s, fixture *f)
{
    static const char *const names[] = {"a", "b", "c"};
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &f->graph, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(s->mesh, &f->mesh, NULL), DTP_OK);
    f->type = (dtp_ttype){.dtype = DTP_F64, .rank = s->rank};
    for (int32_t i = 0; i < s->rank; i++) {
        f->type.dims[i].size = s->sizes[i];
        assert_int_equal(
            dtp_dims_intern(&f->graph->dims, names[i], s->sizes[i], &f->type.dims[i].id, NULL),
            DTP_OK);
    }
    assert_in_range(dtp_ttype_elems(&f->type), 1, MAX_ELEMS);
    for (int64_t i = 0; i < dtp_ttype_elems(&f->type); i++) {
        f->global[i] = (double)(i * 7 % 101) - 40 + (double)i * 200;
    }
}

static bool is_legal(const dtp_layout *from, const dtp_layout *to)
{
    for (int32_t m = 0; m < from->n_mesh; m++) {
        const dtp_placement *a = &from->placement[m], *b = &to->placement[m];
        if (b->kind == DTP_PARTIAL &&
            (a->kind == DTP_SHARD || (b->op == DTP_REDUCE_PROD && a->kind == DTP_REPLICATE))) {
            return false;
        }
    }
    return true;
}

static void describe_failure(const char *planner, const fixture *f, const dtp_layout *from,
                             const dtp_steps *steps)
{
    dtp_strbuf trace = {0};
    dtp_steps_trace(from, steps, &trace);
    fail_msg("%s: wrong values, sizes %lld ...: %s", planner, (long long)f->type.dims[0].size,
             dtp_strbuf_text(&trace));
}

static void check_steps(const fixture *f, const dtp_layout *from, const dtp_layout *to,
                        const dtp_steps *steps)
{
    dtp_layout at = *from;
    for (int32_t i = 0; i < steps->n; i++) {
        at = steps->steps[i].after;
        assert_int_equal(dtp_layout_check(&at, &f->mesh, &f->type, NULL), DTP_OK);
    }
    assert_true(dtp_layout_equal(&at, to));
}

typedef struct planner {
    const char *name;
    const dtp_redistributor *r;
} planner;

static void check_pair(const fixture *f, const planner *who, const dtp_layout *from,
                       const dtp_layout *to, uint64_t *seed)
{
    dtp_err err = {0};
    dtp_steps steps = {0};
    dtp_redistribute_job job = {0};
    const bool packed = spmd_sim_random(seed) % 2 == 0;
    const dtp_target *target = packed ? &dtp_target_cpu_packed : &dtp_target_cpu;
    if (dtp_redistribute_by(who->r, &f->mesh, &f->type, from, to, &steps, &err) != DTP_OK ||
        dtp_redistribute_program(f->graph, &f->mesh, target, &f->type, from, &steps, &job, &err) !=
            DTP_OK) {
        fail_msg("%s", err.msg);
    }
    check_steps(f, from, to, &steps);
    if (spmd_sim_random(seed) % CHECK_EVERY == 0 &&
        dtp_program_check(job.program, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    spmd_sim sim = spmd_sim_create(job.program, NULL);
    spmd_sim_scatter(&sim, job.in, f->global, seed);
    spmd_sim_run(&sim);
    if (!spmd_sim_matches(&sim, job.result, f->global, 0)) {
        describe_failure(who->name, f, from, &steps);
    }
    spmd_sim_destroy(&sim);
    dtp_redistribute_job_free(&job);
}

static void check_all_pairs(const implementation *s, const planner *who, dtp_reduce_op op)
{
    fixture f;
    uint64_t seed = 11;
    int64_t legal = 0;
    setup(s, &f);
    layout_list list = layout_list_all(s->rank, f.mesh.n_dims, true, op);
    for (int64_t pair = 0; pair < (int64_t)list.n * list.n; pair++) {
        const dtp_layout *from = &list.items[pair / list.n], *to = &list.items[pair % list.n];
        if (is_legal(from, to) && quarter_has(legal++, (int64_t)list.n * list.n)) {
            check_pair(&f, who, from, to, &seed);
        }
    }
    assert_true(legal > (int64_t)list.n * list.n / 3);
    layout_list_free(&list);
    dtp_graph_destroy(f.graph);
}

static void test_redistribute__every_pair_gives_every_rank_its_piece(void **state)
{
    (void)state;
    const planner who = {"generic", dtp_redistributor_generic()};
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        check_all_pairs(&SETTINGS[i], &who, DTP_REDUCE_SUM);
    }
}

static void test_redistribute__every_reduction(void **state)
{
    (void)state;
    static const implementation implementations[] = {
        {"x:4", 2, {5, 8}}, {"x:2;y:2", 2, {5, 8}}, {"x:2;y:2;z:2", 1, {6}}};
    const planner who = {"generic", dtp_redistributor_generic()};
    for (size_t i = 0; i < sizeof implementations / sizeof implementations[0]; i++) {
        for (int op = DTP_REDUCE_AVG; op < DTP_N_REDUCE_OPS; op++) {
            check_all_pairs(&implementations[i], &who, (dtp_reduce_op)op);
        }
    }
}

static void check_torch(dtp_torch_options options, const char *name)
{
    options.price = dtp_torch_step_price;
    for (dtp_mesh_set set = 1; set < 8; set++) {
        options.flat[options.n_flat++] = set;
    }
    dtp_torch_planner torch = {.options = options};
    dtp_redistributor r = dtp_torch_redistributor(&torch);
    const planner who = {name, &r};
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++) {
        check_all_pairs(&SETTINGS[i], &who, i % 2 == 0 ? DTP_REDUCE_SUM : DTP_REDUCE_MAX);
    }
}

static void test_redistribute_torch__every_pair_gives_every_rank_its_piece(void **state)
{
    (void)state;
    check_torch((dtp_torch_options){.min_cost = false}, "torch, greedy");
    check_torch((dtp_torch_options){.no_all_to_all = true}, "torch, without all-to-all");
}

static void test_redistribute_torch__least_cost_gives_every_rank_its_piece(void **state)
{
    (void)state;
    check_torch((dtp_torch_options){.min_cost = true}, "torch, least cost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute__every_pair_gives_every_rank_its_piece),
        cmocka_unit_test(test_redistribute__every_reduction),
        cmocka_unit_test(test_redistribute_torch__every_pair_gives_every_rank_its_piece),
        cmocka_unit_test(test_redistribute_torch__least_cost_gives_every_rank_its_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
