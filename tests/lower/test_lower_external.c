/* Programs on the caller's buffers: what lies outside the arena, what is a renaming of an operand,
 * and that operands are left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/graph.h"
#include "core/base/strbuf.h"
#include "core/graph/ops/op_table.h"
#include "spmd/lower/lower.h"
#include "spmd/program/program.h"
#include "tests/support/spmd_sim.h"
#include "tests/support/layout_list.h"

static void check(const dtp_program *p)
{
    dtp_err err = {0};
    if (dtp_program_check(p, &err) != DTP_OK) {
        dtp_strbuf b = {0};
        dtp_program_print(p, &b);
        (void)fprintf(stderr, "%s", dtp_strbuf_text(&b));
        fail_msg("%s", err.msg);
    }
    for (int32_t v = 0; v < p->n_values; v++) {
        const dtp_value *value = &p->values[v];
        bool outside = value->kind == DTP_VALUE_INPUT || value->keep;
        assert_true(!outside || value->external);
        assert_true(!value->external || value->offset == -1);
    }
}

static dtp_lower_options external(void)
{
    dtp_lower_options options = dtp_lower_options_init(dtp_redistributor_generic());
    options.external = true;
    options.keep_partial = true;
    return options;
}

/* ---- redistributions ---- */

/* Contents before and after, on every rank; operands that are not renamed have buffers of their
 * own. */
static void run_pair(const dtp_program *p, const double *global)
{
    uint64_t seed = 5;
    dtp_value_id result = p->tensor_value[0];
    spmd_sim sim = spmd_sim_create(p, NULL);
    spmd_sim_scatter(&sim, 0, global, &seed);
    spmd_sim_run(&sim);
    assert_true(spmd_sim_matches(&sim, result, global, 1e-9));
    assert_true(spmd_sim_matches(&sim, 0, global, 1e-9));
    assert_true((p->n_instrs == 0) == (dtp_value_root(p, result) == 0));
    spmd_sim_destroy(&sim);
}

static int32_t run_pairs(const char *mesh_text, const int64_t sizes[2])
{
    dtp_graph *g;
    dtp_mesh mesh;
    dtp_tensor_id t;
    dtp_graph_tensor spec = {.name = "t", .kind = DTP_TENSOR_INPUT};
    double global[256];
    int32_t n = 0;
    assert_int_equal(dtp_graph_create("g", dtp_builtin_ops(), &g, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse(mesh_text, &mesh, NULL), DTP_OK);
    spec.type = (dtp_ttype){.dtype = DTP_F64, .rank = 2};
    for (int32_t i = 0; i < 2; i++) {
        spec.type.dims[i].size = sizes[i];
        assert_int_equal(
            dtp_dims_intern(&g->dims, i == 0 ? "a" : "b", sizes[i], &spec.type.dims[i].id, NULL),
            DTP_OK);
    }
    assert_int_equal(dtp_graph_add_tensor(g, &spec, &t, NULL), DTP_OK);
    for (int32_t i = 0; i < 256; i++) {
        global[i] = i + 1;
    }
    layout_list all = layout_list_all(2, mesh.n_dims, true, DTP_REDUCE_SUM);
    dtp_lower_options options = external();
    for (int32_t i = 0; i < all.n * all.n; i++) {
        dtp_program *p;
        if (dtp_lower_redistribution(g, &mesh, &all.items[i / all.n], &all.items[i % all.n],
                                     &options, &p, NULL) == DTP_OK) {
            check(p);
            run_pair(p, global);
            dtp_program_destroy(p);
            n++;
        }
    }
    layout_list_free(&all);
    dtp_graph_destroy(g);
    return n;
}

static void test_external__redistributions_of_all_pairs(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{4, 8}, {5, 3}};
    for (int i = 0; i < 2; i++) {
        assert_true(run_pairs("x:2;y:2", sizes[i]) > 50);
        assert_true(run_pairs("x:3", sizes[i]) > 9);
        assert_true(run_pairs("", sizes[i]) == 1);
    }
}

/* ---- graphs ---- */

/* `same` and `view` rename an operand and a result that is itself kept; `sum` stays partial. */
static const char MODEL[] =
    "{\"format\": \"dtp.model/1\", \"name\": \"m\", \"dims\": {\"a\": 8, \"b\": 6, \"c\": 8},"
    "\"inputs\": {\"x\": {\"dims\": [\"a\", \"b\"], \"dtype\": \"f32\"}},"
    "\"nodes\": ["
    " {\"id\": \"same\", \"op\": \"relabel\", \"in\": [\"x\"], \"out\": [\"c\", \"b\"]},"
    " {\"id\": \"y\", \"op\": \"relu\", \"in\": [\"x\"]},"
    " {\"id\": \"view\", \"op\": \"relabel\", \"in\": [\"y\"], \"out\": [\"c\", \"b\"]},"
    " {\"id\": \"sum\", \"op\": \"reduce\", \"in\": [\"x\"], \"kind\": \"sum\", \"over\": "
    "[\"a\"]}],"
    "\"outputs\": [\"same\", \"y\", \"view\", \"sum\"]}";

typedef struct job {
    dtp_graph *g;
    dtp_arena *arena;
    dtp_program *p;
} job;

static dtp_value_id value_of(const dtp_program *p, const char *name)
{
    dtp_tensor_id t = dtp_graph_find(p->graph, name);
    assert_true(t >= 0);
    return p->tensor_value[t];
}

static job lower(const dtp_lower_options *options)
{
    job j = {.arena = dtp_arena_create()};
    dtp_model_options model = {.size = sizeof model, .f64 = true};
    dtp_err err = {0};
    dtp_mesh mesh;
    dtp_layout_rules rules;
    dtp_sharding s = {0};
    if (dtp_model_parse("m", MODEL, strlen(MODEL), &model, &j.g, &err) != DTP_OK ||
        dtp_mesh_parse("x:2", &mesh, &err) != DTP_OK ||
        dtp_layout_rules_parse("a:x;c:x", &mesh, &j.g->dims, j.arena, &rules, &err) != DTP_OK ||
        dtp_sharding_from_rules(j.g, &mesh, &rules, false, j.arena, &s, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_tensor_id sum = dtp_graph_find(j.g, "sum");
    for (int32_t t = 0; t < s.n_tensors; t++) {
        if (t == sum) {
            s.layouts[t].placement[0] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        }
    }
    if (dtp_lower(j.g, &s, options, &j.p, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return j;
}

static void job_free(job *j)
{
    dtp_program_destroy(j->p);
    dtp_graph_destroy(j->g);
    dtp_arena_destroy(j->arena);
}

static void test_external__results_have_buffers_of_their_own_or_rename_operands(void **state)
{
    (void)state;
    dtp_lower_options options = external();
    job j = lower(&options);
    check(j.p);
    dtp_value_id x = value_of(j.p, "x"), y = value_of(j.p, "y");
    dtp_value_id view = value_of(j.p, "view"), sum = value_of(j.p, "sum");
    assert_int_equal(dtp_value_root(j.p, value_of(j.p, "same")), x);
    assert_int_not_equal(dtp_value_root(j.p, y), x);
    assert_int_not_equal(dtp_value_root(j.p, view), dtp_value_root(j.p, y));
    assert_true(dtp_layout_has_partial(&j.p->values[sum].layout));
    assert_int_equal(j.p->peak_bytes, 0);
    job_free(&j);
    options.keep_partial = false;
    j = lower(&options);
    check(j.p);
    assert_false(dtp_layout_has_partial(&j.p->values[value_of(j.p, "sum")].layout));
    job_free(&j);
}

/* ---- the check can fail ---- */

static void write_into_operand(dtp_program *p)
{
    p->values[value_of(p, "y")].parent = value_of(p, "x");
}

static void inside_only(dtp_program *p)
{
    p->values[value_of(p, "same")].external = false;
}

static void placed_anyway(dtp_program *p)
{
    p->values[value_of(p, "y")].offset = 0;
}

/* The buffer of what lies in another's is the smaller one. */
static void beyond_the_buffer(dtp_program *p)
{
    const dtp_value_id sum = value_of(p, "sum"), same = value_of(p, "same");
    const bool first = p->values[sum].bytes < p->values[same].bytes;
    assert_true(p->values[sum].bytes != p->values[same].bytes);
    p->values[first ? same : sum].parent = first ? sum : same;
}

static void test_external__damage_is_found(void **state)
{
    (void)state;
    void (*const damage[])(dtp_program *) = {write_into_operand, inside_only, placed_anyway,
                                             beyond_the_buffer};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        dtp_lower_options options = external();
        dtp_err err = {0};
        job j = lower(&options);
        damage[i](j.p);
        assert_int_equal(dtp_program_check(j.p, &err), DTP_INTERNAL);
        job_free(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_external__redistributions_of_all_pairs),
        cmocka_unit_test(test_external__results_have_buffers_of_their_own_or_rename_operands),
        cmocka_unit_test(test_external__damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
