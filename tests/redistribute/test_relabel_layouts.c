/* Reshapes to other dim names under other layouts (relabel): the data must be those of one device.
 * The cases are Mesh TensorFlow's reshapes, which are its only way to another layout, with the ones
 * that its fixed order of operations scrambles without notice: two mesh dims that touch one tensor
 * dim in one reshape. Every case runs with every sharding rule of the node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/op.h"
#include "core/graph/ops/op_table.h"
#include "core/layout/layout_rules.h"
#include "executor/verify/redistribute_check.h"
#include "spmd/lower/lower.h"
#include "spmd/program/program_check.h"
#include "tests/support/layout_list.h"
#include "tests/support/op_fixture.h"
#include "core/graph/op_rules.h"

typedef struct reshape {
    const char *in, *out; /* "a=8 b=4" */
    const char *mesh;
    const char *rules;
} reshape;

static const reshape RESHAPES[] = {
    {"f32 a=8 b=4", "c=8 b=4", "all:4", "a:all"},
    {"f32 c=8 b=4", "a=8 b=4", "all:4", "a:all"},
    {"f32 a=8 b=4", "c=8 d=4", "all:4", "a:all;d:all"},
    {"f32 a=4 b=2", "c=8", "all:4", "a:all;c:all"},
    {"f32 b=2 a=4", "c=8", "all:2", "a:all;c:all"},
    {"f32 c=8", "b=2 a=4", "all:2", "c:all;a:all"}, /* not implemented there */
    {"f32 c=8", "b=2 a=4", "all:2", "a:all"},
    {"f32 E=16 B=8 C=4 M=32", "e=16 b=8 C=4 M=32", "all:8", "B:all;e:all"},
    {"f32 batch=16 length=32", "tokens=512", "r:4;s:2", "batch:r;tokens:r;length:s"},
    /* scrambled there */
    {"f32 a=8 b=4", "c=8 d=4", "r:2;s:2", "a:r;c:s"},
    {"f32 a=8 b=4", "c=8 d=4", "r:2;s:2", "a:r;b:s;c:s;d:r"},
    {"f32 a=8 b=4", "c=8 d=4", "r:2;s:2", "a:r;b:s;c:s"},
    {"f32 a=8 b=4", "c=8 d=4", "r:2;s:2", "a:r;b:s;d:r"},
    {"f32 a=8 b=4", "c=8 d=4", "r:2;s:2", "a:r;c:s;d:r"},
};

typedef struct fixture {
    dtp_graph *graph;
    dtp_tensor_id x, y;
    dtp_mesh mesh;
    dtp_sharding_rules rows;
} fixture;

static fixture setup(const char *in, const char *out, const char *mesh)
{
    fixture f = {.graph = NULL};
    assert_int_equal(dtp_graph_create("reshape", dtp_builtin_ops(), &f.graph, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(mesh, &f.mesh, NULL), DTP_OK);
    f.x = fx_tensor(f.graph, "x", DTP_TENSOR_INPUT, in);
    f.y = fx_add(f.graph, "y", (fx_node){"relabel", NULL, out}, 1, &f.x);
    assert_int_equal(dtp_graph_add_output(f.graph, f.y, NULL), DTP_OK);
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(f.graph, &f.graph->nodes[0], &types);
    dtp_sharding_rules_of(&call, true, &f.rows);
    return f;
}

/* Lowers under one strategy and runs; false when the strategy does not fit the sizes. */
static bool run(const fixture *f, const dtp_layout *in, const dtp_layout *out,
                const dtp_strategy *strategy)
{
    dtp_layout layouts[2];
    dtp_strategy strategies[1] = {*strategy};
    dtp_sharding s = {.mesh = f->mesh,
                      .n_tensors = 2,
                      .n_nodes = 1,
                      .layouts = layouts,
                      .strategies = strategies};
    dtp_redistribute_job job = {0};
    dtp_redistribute_verdict v = {0};
    dtp_err err = {0};
    layouts[f->x] = *in;
    layouts[f->y] = *out;
    const dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    if (dtp_lower(f->graph, &s, &passes, &job.program, &err) != DTP_OK) {
        return false;
    }
    job.in = 0;
    job.result = job.program->tensor_value[f->y];
    assert_int_equal(job.program->values[0].kind, DTP_VALUE_INPUT);
    if (dtp_program_check(job.program, &err) != DTP_OK ||
        dtp_redistribute_check(&job, "cpu", 77, &v, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    if (v.wrong > 0) {
        char a[DTP_LAYOUT_TEXT_BYTES], b[DTP_LAYOUT_TEXT_BYTES];
        const dtp_graph_tensor *t = f->graph->tensors;
        dtp_layout_print(in, &f->mesh, &t[f->x].type, &f->graph->dims, a);
        dtp_layout_print(out, &f->mesh, &t[f->y].type, &f->graph->dims, b);
        fail_msg("(%s) to (%s): %lld of %lld elements wrong", a, b, (long long)v.wrong,
                 (long long)v.checked);
    }
    assert_true(v.checked >= dtp_ttype_elems(&f->graph->tensors[f->y].type));
    dtp_redistribute_job_free(&job);
    return true;
}

/* Every row of the node on every mesh dim; returns how many ran. */
static int32_t run_all_strategies(const fixture *f, const dtp_layout *in, const dtp_layout *out)
{
    int32_t all = 1, ran = 0;
    for (int32_t m = 0; m < f->mesh.n_dims; m++) {
        all *= f->rows.n;
    }
    for (int32_t k = 0; k < all; k++) {
        dtp_strategy strategy = {{0}};
        int32_t left = k;
        for (int32_t m = 0; m < f->mesh.n_dims; m++) {
            strategy.row[m] = (int16_t)(left % f->rows.n);
            left /= f->rows.n;
        }
        ran += run(f, in, out, &strategy);
    }
    return ran;
}

static dtp_layout layout_of(const fixture *f, const dtp_layout_rules *rules, dtp_tensor_id t)
{
    dtp_layout layout;
    assert_int_equal(dtp_layout_rules_layout(rules, &f->mesh, &f->graph->dims,
                                             &f->graph->tensors[t].type, false, &layout, NULL),
                     DTP_OK);
    return layout;
}

static void test_relabel__mesh_tensorflow_reshapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof RESHAPES / sizeof RESHAPES[0]; i++) {
        const reshape *r = &RESHAPES[i];
        fixture f = setup(r->in, r->out, r->mesh);
        dtp_layout_rules rules;
        assert_int_equal(
            dtp_layout_rules_parse(r->rules, &f.mesh, &f.graph->dims, f.graph->arena, &rules, NULL),
            DTP_OK);
        dtp_layout in = layout_of(&f, &rules, f.x), out = layout_of(&f, &rules, f.y);
        assert_true(run_all_strategies(&f, &in, &out) > 1);
        dtp_graph_destroy(f.graph);
    }
}

static void test_relabel__every_pair_of_layouts(void **state)
{
    (void)state;
    fixture f = setup("f32 a=8 b=4", "c=8 d=4", "r:2;s:2");
    layout_list from = layout_list_all(2, 2, true, DTP_REDUCE_SUM);
    layout_list to = layout_list_all(2, 2, false, DTP_REDUCE_SUM);
    int32_t ran = 0;
    for (int32_t i = 0; i < from.n; i++) {
        for (int32_t j = 0; j < to.n; j++) {
            int32_t here = run_all_strategies(&f, &from.items[i], &to.items[j]);
            assert_true(here > 0);
            ran += here;
        }
    }
    printf("%d reshapes\n", ran);
    assert_true(ran > 4 * from.n * to.n);
    layout_list_free(&from);
    layout_list_free(&to);
    dtp_graph_destroy(f.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relabel__mesh_tensorflow_reshapes),
        cmocka_unit_test(test_relabel__every_pair_of_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
